"""The GPUs of one replica, those that hold the same put together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from parplan.memory import Rank, Ranks, replica_memory
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.ui.words import sentence
from parplan.units import MIB, counted

PARTS = ("weights", "activations", "overhead", "kv", "kv_waiting")
"""What two GPUs must have in common to be alike."""


@dataclass(frozen=True)
class Kind:
    """GPUs of a replica that hold the same, to the mebibyte."""

    words: str
    """Which ones, and how many."""
    each: Rank
    worst: bool
    """The one that limits the replica is among them."""


def kinds(problem: Problem, found: Plan) -> tuple[Kind, ...]:
    """All GPUs of one replica of a layout, stage by stage."""
    ranks = replica_memory(
        problem.transformer,
        problem.precision,
        layout=found.layout,
        gpu=problem.gpu,
        engine=problem.engine,
        workload=problem.workload,
        concurrency=problem.workload.concurrency,
        settings=problem.settings,
    )
    alike: dict[object, list[Ranks]] = {}
    for rank in ranks:
        alike.setdefault(_amounts(rank), []).append(rank)
    uneven = len({rank.experts for rank in ranks}) > 1
    return tuple(
        _kind(group, piped=bool(found.layout.pipeline > 1), uneven=uneven) for group in alike.values()
    )


def shown(found: Sequence[Kind], *, most: int = 8) -> list[Kind]:
    """The worst, the fullest and the emptiest kind of GPU, at most so many, in the order they came."""
    fullest = sorted(found, key=lambda kind: (not kind.worst, -float(kind.each.needed)))
    picked = fullest if len(fullest) <= most else [*fullest[: most - 1], fullest[-1]]
    return [kind for kind in found if kind in picked]


def _amounts(rank: Ranks) -> tuple[float, ...]:
    return (rank.experts, *(round(float(getattr(rank.each, part)) / MIB) for part in PARTS))


def _kind(group: Sequence[Ranks], *, piped: bool, uneven: bool) -> Kind:
    gpus = sum(rank.gpus for rank in group)
    where = f"{_stages([rank.stage + 1 for rank in group])}, " if piped else ""
    experts = group[0].experts
    what = f", {experts:g} expert{'s' * (experts != 1)}" if uneven else ""
    return Kind(
        words=sentence(f"{where}{counted(gpus, 'GPU')}{what}"),
        each=group[0].each,
        worst=any(rank.worst for rank in group),
    )


def _stages(numbers: Iterable[int]) -> str:
    """Stages by number, neighbours as a range.

    >>> _stages([1]), _stages([2, 3, 4, 7])
    ('stage 1', 'stages 2-4, 7')
    """
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])
    ]
    listed = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"stage{'s' * (listed != f'{runs[0][0]}')} {listed}"
