"""How far a predicted time may be off, from what was measured of its kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from parplan import catalog
from parplan.calibration import GroupError, TimeErrors
from parplan.layout import Layout
from parplan.problem import Problem
from parplan.transformer import Transformer
from parplan.units import counted

Time: TypeAlias = Literal["tpot", "ttft"]
Kind: TypeAlias = Literal["fitted", "pairs", "models", "gpus"]
"""Errors of the fit, and by what was left out of it."""
EVERYTHING: Sequence[Kind] = ("fitted", "pairs", "models", "gpus")
WIDEST = "the 90th percentile of the left-out errors stands in"
WIDER = "the largest median of the left-out errors stands in"
NOUNS: Mapping[Time, str] = {"tpot": "time per token", "ttft": "time to first token"}
FEWEST = 3
"""Measurements of a model on a GPU from which on it counts as measured there."""


@dataclass(frozen=True)
class Band:
    """Half of the comparable measurements lie within this of the prediction."""

    relative: float
    """0.08: 8 % either way. From 1 on: a factor of one more, either way."""
    words: str
    """What it rests on."""


@dataclass(frozen=True)
class Confidence:
    """Bands of one layout's times."""

    tpot: Band
    ttft: Band


@dataclass(frozen=True)
class Group:
    """Measurements that share something, and the architecture of their model."""

    error: GroupError
    transformer: Transformer | None
    """None: of any model."""


@cache
def _groups(engine: str, time: Time) -> tuple[Group, ...]:
    """What was measured of a time with an engine, all families of its versions."""
    return tuple(
        Group(error, catalog.model(error.model).transformer if error.model else None)
        for error in catalog.group_errors()
        if error.engine.partition("-")[0] == engine.partition("-")[0] and error.time == time
    )


def _alike(first: Transformer, second: Transformer) -> bool:
    """The same architecture under whatever name."""
    return first.blocks == second.blocks and first.sequence == second.sequence


CUT_KINDS = {
    "data": "attention data parallelism",
    "expert": "expert parallelism",
    "pipeline": "pipeline stages",
    "context": "context parallelism",
    "decode_context": "decode-context parallelism",
}
"""Cuts of a layout that change how an engine runs, and their names."""


def unmeasured(layout: Layout, *, engine: str, time: Time) -> Iterator[str]:
    """Kinds of cut in a layout of which no comparable measurement of a time with an engine is in the catalogue."""
    measured = {group.error.cut for group in _groups(engine, time)}
    return (name for cut, name in CUT_KINDS.items() if int(getattr(layout, cut)) > 1 and cut not in measured)


@dataclass(frozen=True)
class Known:
    """What was measured of a plan's time."""

    model: bool
    """Its model, on any GPU."""
    gpu: bool
    """Its GPU, with any model."""
    pair: bool
    """Both together, whatever the format of the weights."""
    weights: bool
    """The format of its weights, with any model."""
    before: bool
    """That format, on versions of the engine whose costs for it were others."""
    same: int
    """Measurements of its model on its GPU with weights in its format."""
    own: tuple[tuple[GroupError, str], ...]
    """Groups it belongs to, and what they are of."""


def _known(problem: Problem, *, layout: Layout, time: Time) -> Known:
    """What was measured of a layout's time."""
    transformer, gpu = problem.transformer, problem.gpu
    weights = problem.precision.weights[transformer.main_component].name
    family = problem.engine.name
    every = _groups(family, time)
    alike = [one.error for one in every if one.transformer and _alike(one.transformer, transformer)]
    predicted = {family, family.partition("-")[0]}
    stored = [one.error for one in every if one.error.weights == weights]
    formats = [error for error in stored if error.engine in predicted]
    of_model = [error for error in formats if error in alike]
    same = [error for error in of_model if error.gpu == gpu.name]
    on_gpu = [one.error for one in every if one.error.gpu == gpu.name and not one.error.model]
    cuts = [
        one.error for one in every if one.error.cut in CUT_KINDS and int(getattr(layout, one.error.cut)) > 1
    ]
    elsewhere = [error for error in of_model if not error.gpu]
    nearest = [(error, "of this model there") for error in same] or [
        *((error, f"on {gpu.label}") for error in on_gpu),
        *((error, "of this model") for error in elsewhere),
    ]
    return Known(
        model=bool(alike),
        gpu=bool(on_gpu),
        pair=any(error.gpu == gpu.name for error in alike),
        weights=bool(formats),
        before=len(stored) > len(formats),
        same=sum(error.rows for error in same),
        own=(*nearest, *((error, f"with {CUT_KINDS[error.cut]}") for error in cuts)),
    )


def _band(
    errors: TimeErrors,
    kinds: Sequence[Kind],
    *,
    words: str,
    rests: str,
    own: Iterable[tuple[GroupError, str]],
    new: bool = False,
) -> Band:
    """The widest of the errors of some kinds, and of the plan's own groups.

    Args:
        words: what was measured.
        rests: what the errors of these kinds are called.
        new: nothing like it was measured: 90th percentiles instead of medians.
    """
    found = [getattr(errors, kind) for kind in kinds]
    general = max(one.p90 if new else one.median for one in found)
    worst, what = max(own, key=lambda one: one[0].off, default=(None, ""))
    if worst is None or worst.off <= general:
        return Band(general, f"{words}: {rests}")
    factor = f", a factor of {1 + worst.off:.1f}" if worst.off >= 1 else ""
    missed = ", which the predictions are known to miss" if worst.off > errors.fitted.p90 else ""
    return Band(
        worst.off, f"{words}: median error of {counted(worst.rows, 'measurement')} {what}{factor}{missed}"
    )


def _time_band(problem: Problem, errors: TimeErrors, *, layout: Layout, time: Time) -> Band:
    """The band of one of a layout's times."""
    label, gpu = problem.engine.label, problem.gpu.label
    known = _known(problem, layout=layout, time=time)
    several = ["several nodes"] if layout.gpus > problem.gpu.node else []
    stored = problem.precision.weights[problem.transformer.main_component].name
    changed = [f"weights in {stored} on these versions"] if known.before and not known.weights else []
    new = [*unmeasured(layout, engine=problem.engine.name, time=time), *several, *changed]
    here = f"this model was measured on {gpu} with {label}"
    if new:
        words = f"no {NOUNS[time]} of {', '.join(new)} was measured with {label}"
        return _band(errors, EVERYTHING, words=words, rests=WIDEST, own=known.own, new=True)
    if not (known.gpu or known.model):
        words = f"no {NOUNS[time]} of this model, nor on {gpu}, was measured with {label}"
        return _band(errors, EVERYTHING, words=words, rests=WIDEST, own=known.own, new=True)
    if not known.weights:
        words = f"no {NOUNS[time]} of weights in {stored} was measured with {label}"
        return _band(errors, EVERYTHING, words=words, rests=WIDER, own=known.own)
    if known.same >= FEWEST:
        return _band(errors, ("fitted",), words=here, rests="median error of the fit", own=known.own)
    if known.pair:
        few = f"only {counted(known.same, 'time')}" if known.same else f"but not in {stored}"
        words, rests = f"{here}, {few}", "median error of pairs left out"
        return _band(errors, ("fitted", "pairs"), words=words, rests=rests, own=known.own)
    if known.gpu and known.model:
        words = f"{label} was measured with this model and on {gpu}, not together"
        rests = "median error of pairs left out"
        return _band(errors, ("fitted", "pairs"), words=words, rests=rests, own=known.own)
    if known.gpu:
        words, rests = f"other models were measured on {gpu} with {label}", "median error of models left out"
        return _band(errors, ("fitted", "pairs", "models"), words=words, rests=rests, own=known.own)
    words, rests = f"this model was measured with {label} on other GPUs", "median error of GPUs left out"
    return _band(errors, ("fitted", "pairs", "gpus"), words=words, rests=rests, own=known.own)


def confidence(problem: Problem, *, layout: Layout) -> Confidence | None:
    """Bands for one layout of a problem; None for an engine that is a bound rather than a prediction.

    A time is known as well as those in cross-validation of which as much was measured:

        model, weights and GPU together      error of the fit
        each, but not together               pairs left out
        GPU, model not                       models left out
        model, GPU not                       GPUs left out
        the format of the weights with none  the widest of these
        neither, a new cut, or costs that newer versions are without: the 90th percentile of these

    Half of the points lay within the median. What less is known of is never given a narrower band, and no band is
    narrower than the median error of what was measured of the plan itself: its model on its GPU, otherwise its model
    and its GPU each, and its cuts. Measured is what the Accuracy page compares: times of batches below the stated one,
    or of tokens that may be drafted, do not count.
    """
    errors = problem.engine.errors
    if errors is None:
        return None
    return Confidence(
        tpot=_time_band(problem, errors.tpot, layout=layout, time="tpot"),
        ttft=_time_band(problem, errors.ttft, layout=layout, time="ttft"),
    )


def tpot_error(problem: Problem, layout: Layout) -> float:
    """How far the time per token of a layout may be off, relative; 0 for an engine that is a bound."""
    known = confidence(problem, layout=layout)
    return known.tpot.relative if known else 0.0
