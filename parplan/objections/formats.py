"""What an engine refuses whatever the layout: a GPU it does not run on, a number format it does not run there."""

from collections.abc import Mapping

from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.objections.case import Case, Rule
from parplan.support import Kind, Refusal
from parplan.transformer import Transformer

REFUSALS: Mapping[str, Kind] = {"engine-gpu": "gpu", "weight-format": "weights", "kv-format": "kv"}
"""Names of the rules, and what each is about."""


def starts(transformer: Transformer, *, precision: Precision, gpu: Gpu, engine: Engine) -> bool:
    """Whether an engine runs on a GPU and loads a model in these formats there, as far as the catalogue knows."""
    found = engine.support.refusals(transformer, precision=precision, gpu=gpu)
    return all(refusal.of == "kv" for refusal in found)


def _refusals(case: Case, of: Kind) -> tuple[Refusal, ...]:
    found = case.engine.support.refusals(case.transformer, precision=case.precision, gpu=case.gpu)
    return tuple(refusal for refusal in found if refusal.of == of)


def _way_out(case: Case, refusal: Refusal) -> str:
    """The format nearest in size that runs there, as it is asked for; another engine where there is none."""
    nearest = case.engine.support.nearest(refusal, case.transformer, precision=case.precision, gpu=case.gpu)
    if nearest is None:
        return "Use another engine or another GPU."
    asked = f"{nearest.label} ({refusal.of}={nearest.name})"
    return f"The nearest that runs there is {asked}; or use another engine or GPU."


def _rule(name: str, of: Kind) -> Rule:
    return Rule(
        name,
        "error",
        lambda case: bool(_refusals(case, of)),
        lambda case: _refusals(case, of)[0].words(case.engine.label, gpu=case.gpu),
        lambda case: _way_out(case, _refusals(case, of)[0]),
        lambda case: _refusals(case, of)[0].cited,
    )


FORMATS: tuple[Rule, ...] = tuple(_rule(name, of) for name, of in REFUSALS.items())
"""What an engine refuses of a GPU, of weights and of a KV cache."""
