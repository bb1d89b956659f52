"""How far a predicted time may be off, from what was measured of its kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from parplan import catalog
from parplan.layout import Layout
from parplan.planner import Problem
from parplan.transformer import Transformer


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


def unmeasured(layout: Layout) -> Iterator[str]:
    """Kinds of cut in a layout of which no published measurement is in the catalogue."""
    cuts = {
        "pipeline stages": layout.pipeline,
        "context parallelism": layout.context,
        "decode-context parallelism": layout.decode_context,
    }
    return (name for name, size in cuts.items() if int(size) > 1)


def confidence(problem: Problem, *, layout: Layout) -> Confidence | None:
    """Bands for one layout of a problem; None for an engine that is a bound rather than a prediction.

    Where the model was measured on this GPU with this engine, half of the points lay within the fitted error. Where
    only the GPU was, within the error of models left out of the fit. Where neither was, or the layout has a kind of
    cut nobody published, the 90th percentile of that error stands in: nothing better is known.
    """
    errors = problem.engine.errors
    if errors is None:
        return None
    family = problem.engine.name.partition("-")[0]
    runs = _measured_on(family)
    on_gpu = [model for model, gpu in runs if gpu == problem.gpu.name]
    new = [*unmeasured(layout), *(["several nodes"] if layout.gpus > problem.gpu.node else [])]
    label = problem.engine.label
    if new or not on_gpu:
        what = ", ".join(new) or problem.gpu.label
        words = f"no measurement of {what} with {label}: the 90th percentile of the left-out error stands in"
        return Confidence(
            Band(errors.tpot_left_out.p90, words),
            Band(errors.ttft_left_out.p90, words),
        )
    if any(_alike(model, problem.transformer) for model in on_gpu):
        words = f"this model was measured on {problem.gpu.label} with {label}: median error of the fit"
        return Confidence(Band(errors.tpot_fitted.median, words), Band(errors.ttft_fitted.median, words))
    words = f"other models were measured on {problem.gpu.label} with {label}: median error of models left out"
    return Confidence(Band(errors.tpot_left_out.median, words), Band(errors.ttft_left_out.median, words))
