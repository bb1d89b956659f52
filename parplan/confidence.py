"""How far a predicted time may be off, from what was measured of its kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from parplan import catalog
from parplan.calibration import SpeedErrors, TimeErrors
from parplan.layout import Layout
from parplan.problem import Problem
from parplan.transformer import Transformer

Kind: TypeAlias = Literal["fitted", "pairs", "models", "gpus"]
"""Errors of the fit, and by what was left out of it."""
WIDEST = "the 90th percentile of the left-out errors stands in"


@dataclass(frozen=True)
class Band:
    """Half of the comparable measurements lie within this of the prediction."""

    relative: float
    """0.08: 8 % either way."""
    words: str
    """What it rests on."""


@dataclass(frozen=True)
class Confidence:
    """Bands of one layout's times."""

    tpot: Band
    ttft: Band


@cache
def _measured_on(engine: str) -> tuple[tuple[Transformer, str], ...]:
    """Models and GPUs measured with an engine."""
    return tuple(
        (catalog.model(model).transformer, gpu)
        for model, gpu, used in sorted(catalog.measured_runs())
        if used == engine
    )


def _alike(first: Transformer, second: Transformer) -> bool:
    """The same architecture under whatever name."""
    return first.blocks == second.blocks and first.sequence == second.sequence


CUTS = {
    "data": "attention data parallelism",
    "expert": "expert parallelism",
    "pipeline": "pipeline stages",
    "context": "context parallelism",
    "decode_context": "decode-context parallelism",
}
"""Cuts of a layout that change how an engine runs, and their names."""


def unmeasured(layout: Layout, *, engine: str) -> Iterator[str]:
    """Kinds of cut in a layout of which no published measurement with an engine is in the catalogue."""
    measured = {cut for used, cut in catalog.measured_cuts() if used == engine}
    return (name for cut, name in CUTS.items() if int(getattr(layout, cut)) > 1 and cut not in measured)


def _times(errors: SpeedErrors, kinds: Sequence[Kind], *, new: bool, words: str) -> Confidence:
    """The widest of the errors of some kinds.

    Args:
        new: nothing like it was measured: 90th percentiles instead of medians.
    """

    def band(time: TimeErrors) -> Band:
        found = [getattr(time, kind) for kind in kinds]
        return Band(max(one.p90 if new else one.median for one in found), words)

    return Confidence(tpot=band(errors.tpot), ttft=band(errors.ttft))


def confidence(problem: Problem, *, layout: Layout) -> Confidence | None:
    """Bands for one layout of a problem; None for an engine that is a bound rather than a prediction.

    A prediction is as good as those in cross-validation that knew as much:

        model and GPU measured together      error of the fit
        each measured, but not together      pairs left out
        GPU measured, model not              models left out
        model measured, GPU not              GPUs left out
        neither, or a cut nobody published   the 90th percentile of these: nothing better is known

    Half of the points lay within the median. What less is known of is never given a narrower band.
    """
    errors = problem.engine.errors
    if errors is None:
        return None
    family, label, gpu = problem.engine.family, problem.engine.label, problem.gpu.label
    runs = _measured_on(family)
    on_gpu = [model for model, name in runs if name == problem.gpu.name]
    model_known = any(_alike(model, problem.transformer) for model, _ in runs)
    several = ["several nodes"] if layout.gpus > problem.gpu.node else []
    new = [*unmeasured(layout, engine=family), *several]
    everything: Sequence[Kind] = ("fitted", "pairs", "models", "gpus")
    if new:
        return _times(
            errors, everything, new=True, words=f"no measurement of {', '.join(new)} with {label}: {WIDEST}"
        )
    if any(_alike(model, problem.transformer) for model in on_gpu):
        words = f"this model was measured on {gpu} with {label}: median error of the fit"
        return _times(errors, ("fitted",), new=False, words=words)
    if on_gpu and model_known:
        words = (
            f"{label} was measured with this model and on {gpu}, not together: median error of pairs left out"
        )
        return _times(errors, ("fitted", "pairs"), new=False, words=words)
    if on_gpu:
        words = f"other models were measured on {gpu} with {label}: median error of models left out"
        return _times(errors, ("fitted", "pairs", "models"), new=False, words=words)
    if model_known:
        words = f"this model was measured with {label} on other GPUs: median error of GPUs left out"
        return _times(errors, ("fitted", "pairs", "gpus"), new=False, words=words)
    words = f"no measurement of this model, nor of {gpu}, with {label}: {WIDEST}"
    return _times(errors, everything, new=True, words=words)


def tpot_error(problem: Problem, layout: Layout) -> float:
    """How far the time per token of a layout may be off, relative; 0 for an engine that is a bound."""
    known = confidence(problem, layout=layout)
    return known.tpot.relative if known else 0.0
