"""What would change the answer: the recommended layout over concurrency and prompt length, and step by step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from parplan.advice import recommended_index
from parplan.layout import Layout
from parplan.planner import Counts, Problem, Result, solve
from parplan.workload import Workload

NOTHING = "nothing fits"


def _name(layout: Layout | None, gpus: int) -> str:
    return NOTHING if layout is None else f"{layout}, {gpus} GPU{'s' if gpus > 1 else ''}"


def winner(result: Result) -> str:
    """The recommended layout's name and size, or that nothing fits."""
    index = recommended_index(result)
    return NOTHING if index is None else _name(result.layout.one(index), int(result.gpus[index]))


@dataclass(frozen=True)
class WinnerMap:
    """The recommended layout for every prompt length and concurrency."""

    prompts: tuple[int, ...]
    concurrency: Counts
    """[batches]"""
    winners: tuple[tuple[str, ...], ...]
    """[prompts][batches]"""

    @property
    def names(self) -> tuple[str, ...]:
        """Every layout that wins somewhere, in the order of appearance."""
        return tuple(dict.fromkeys(name for row in self.winners for name in row))


def winner_map(problem: Problem, *, prompts: Sequence[int]) -> WinnerMap:
    """Where which layout is recommended; one vectorised plan per prompt length serves all concurrencies."""
    results = [solve(_changed(problem, prompt=prompt)) for prompt in prompts]
    rows = [[winner(result.asking(batch)) for batch in range(result.concurrency.size)] for result in results]
    return WinnerMap(tuple(prompts), results[0].concurrency, tuple(tuple(row) for row in rows))


def _changed(problem: Problem, **fields: float | None) -> Problem:
    return replace(problem, workload=problem.workload.model_copy(update=fields))


def flip_points(result: Result) -> tuple[tuple[int, str], ...]:
    """Concurrencies of the grid at which the recommendation changes, with the new one; the first entry is the start."""
    found: list[tuple[int, str]] = []
    for batch, concurrency in enumerate(result.concurrency):
        name = winner(result.asking(batch))
        if not found or found[-1][1] != name:
            found.append((int(concurrency), name))
    return tuple(found)


@dataclass(frozen=True)
class Change:
    """One change of the workload, and the recommendation before and after."""

    words: str
    before: str
    after: str

    @property
    def flips(self) -> bool:
        """The recommendation changes."""
        return self.before != self.after


CHANGES: tuple[tuple[str, Callable[[Workload], dict[str, float]]], ...] = (
    ("twice the requests at once", lambda w: {"concurrency": w.concurrency * 2}),
    ("half the requests at once", lambda w: {"concurrency": max(w.concurrency // 2, 1)}),
    ("prompts twice as long", lambda w: {"prompt": w.prompt * 2}),
    ("prompts four times as long", lambda w: {"prompt": w.prompt * 4}),
    ("prompts half as long", lambda w: {"prompt": max(w.prompt // 2, 1)}),
    ("outputs twice as long", lambda w: {"output": w.output * 2}),
    ("outputs half as long", lambda w: {"output": max(w.output // 2, 1)}),
    ("half the prompt in the prefix cache", lambda w: {"prefix_hit": max(w.prefix_hit, 0.5)}),
)
"""Changes worth trying on any workload."""


def target_changes(result: Result) -> tuple[tuple[str, dict[str, float]], ...]:
    """Tighter targets: a third faster than the recommended layout is now."""
    index = recommended_index(result)
    if index is None:
        return ()
    tpot, ttft = (
        float(result.at_asked(times)[index]) for times in (result.serving.tpot, result.serving.ttft)
    )
    return (
        ("a time per token a third shorter than now", {"tpot": tpot / 1.5}),
        ("a time to first token a third shorter than now", {"ttft": ttft / 1.5}),
    )


def sensitivity(result: Result) -> tuple[Change, ...]:
    """The recommendation after each of a list of changes, those that flip it first."""
    before, problem = winner(result), result.problem
    tries = (*((words, change(problem.workload)) for words, change in CHANGES), *target_changes(result))
    found = [Change(words, before, winner(solve(_changed(problem, **fields)))) for words, fields in tries]
    return tuple(sorted(found, key=lambda change: not change.flips))
