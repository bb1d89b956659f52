"""What an engine's start-up log says of its memory, beside what was predicted.

vLLM (V0 and V1), SGLang and TensorRT-LLM each word the same quantities in their own way, and every few versions anew:
`tables` has the lines as they read, `wording` makes them searchable, `reading` finds the figures, `comparing` puts them
beside the prediction, `taking` turns them into a scenario, `showing` writes them out.
"""

from parplan.logs.comparing import (
    Pair,
    compared,
    laid_out,
    layout_decided,
    predicted_memory,
    settings_from,
)
from parplan.logs.quantities import LABELS, QUANTITIES, EngineName
from parplan.logs.reading import LONGEST_LOG, Figure, Line, LogError, LogFigures, log_figures
from parplan.logs.showing import log_json, written_log
from parplan.logs.tables import SETTINGS, WORDINGS
from parplan.logs.taking import gpus_of, layout_of, measured_overheads, scenario_from
from parplan.logs.wording import PLACE, Wording

__all__ = [
    "LABELS",
    "LONGEST_LOG",
    "PLACE",
    "QUANTITIES",
    "SETTINGS",
    "WORDINGS",
    "EngineName",
    "Figure",
    "Line",
    "LogError",
    "LogFigures",
    "Pair",
    "Wording",
    "compared",
    "gpus_of",
    "laid_out",
    "layout_decided",
    "layout_of",
    "log_figures",
    "log_json",
    "measured_overheads",
    "predicted_memory",
    "scenario_from",
    "settings_from",
    "written_log",
]
