"""What would change the answer: the recommended layout over concurrency and prompt length, and step by step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parplan.arrays import picked
from parplan.choice import INDISTINCT, candidates, recommended_index, turning_point
from parplan.disaggregation import pools
from parplan.layout import Layout
from parplan.mixers import GroupedQuery
from parplan.planner import Result, solve
from parplan.problem import Problem
from parplan.units import Counts, Mask, counted, written_rate, written_time
from parplan.workload import MOST_AT_ONCE, Workload

NOTHING = "nothing fits"
UNMET = "all too slow"
UNHELD = "none holds it"
MOST_FLIPS = 12
"""Recommendations listed as a target tightens."""


def _name(layout: Layout) -> str:
    return f"{layout}, {counted(int(layout.gpus), 'GPU')}"


def winner(result: Result) -> str:
    """The recommended layout's name and size, or that nothing fits."""
    return _cell(result).name


@dataclass(frozen=True)
class Cell:
    """What is recommended for one prompt length and concurrency."""

    layout: Layout | None
    """None: nothing fits."""
    misses: tuple[str, ...] = ()
    """The targets it misses, with the time it takes."""
    waits: str = ""
    """How many requests it holds, where that is not all of them."""

    @property
    def name(self) -> str:
        """The layout and its size, or that nothing fits."""
        return NOTHING if self.layout is None else _name(self.layout)

    @property
    def outcome(self) -> str:
        """The layout and its size where it does the job; else that nothing does."""
        if self.layout is None or not self.words:
            return self.name
        return UNHELD if self.waits else UNMET

    @property
    def words(self) -> str:
        """What it fails at, in words; empty where it does the job."""
        return "; ".join(filter(None, (self.waits, *self.misses)))


def _cell(result: Result) -> Cell:
    index = recommended_index(result)
    if index is None:
        return Cell(None)
    layout, workload = result.layout.one(index), result.problem.workload
    if result.does_job[index]:
        return Cell(layout)
    times = (
        (result.serving.tpot, workload.tpot, "per token"),
        (result.serving.ttft, workload.ttft, "to the first token"),
    )
    return Cell(
        layout,
        misses=tuple(
            f"{written_time(taken)} {what}, {written_time(target)} asked for"
            for values, target, what in times
            if target and (taken := float(result.at_asked(values)[index])) > target
        ),
        waits="" if result.holds[index] else result.plan(index).runs.removesuffix(" at once"),
    )


@dataclass(frozen=True)
class WinnerMap:
    """The recommended layout for every prompt length and concurrency."""

    prompts: tuple[int, ...]
    concurrency: Counts
    """[batches]"""
    cells: tuple[tuple[Cell, ...], ...]
    """[prompts][batches]"""


def winner_map(problem: Problem, *, prompts: Sequence[int]) -> WinnerMap:
    """Where which layout is recommended, and where it does not do the job; one vectorised plan per prompt length serves
    all concurrencies."""
    results = [solve(_changed(problem, prompt=prompt)) for prompt in prompts]
    concurrency = results[0].concurrency[results[0].concurrency <= MOST_AT_ONCE]
    cells = (tuple(_cell(asked) for asked in result.asking_each(most=MOST_AT_ONCE)) for result in results)
    return WinnerMap(tuple(prompts), concurrency, tuple(cells))


def _changed(problem: Problem, **fields: float | None) -> Problem:
    """A problem with another workload, and slots for as many requests."""
    workload = problem.workload.model_copy(update=fields)
    return replace(problem, workload=workload, settings=problem.settings.running(workload.concurrency))


def flip_points(result: Result) -> tuple[tuple[int, str], ...]:
    """Concurrencies at which the recommendation changes, with the new one, or that nothing does the job any more; the
    first entry is the start. That it does is seen on the grid, and where between two numbers of it, as between the two
    layouts alone."""
    found: list[tuple[int, str]] = []
    before: tuple[int, int] | None = None
    for asked in result.asking_each(most=MOST_AT_ONCE):
        requests, name = asked.problem.workload.concurrency, _cell(asked).outcome
        index = recommended_index(asked) if asked.does_job.any() else None
        if not found or found[-1][1] != name:
            start = requests
            if before and index is not None:
                layouts = asked.layout[[before[0], index]]
                start = turning_point(asked.problem, layouts=layouts, after=before[1], until=requests)
            found.append((start, name))
        before = None if index is None else (index, requests)
    return tuple(found)


def target_flips(result: Result) -> tuple[tuple[float, str], ...]:
    """Shortest time per output token each recommendation reaches as that target tightens, seconds, and its name.

    Begins with the recommendation as it is, ends with the last that holds every request and meets a target; empty
    where none does. Steps below `INDISTINCT` are passed over.
    """
    found: list[tuple[float, str]] = []
    limit = result.problem.workload.tpot
    while len(found) < MOST_FLIPS:
        tighter = result.with_targets_of(_changed(result.problem, tpot=limit))
        index = recommended_index(tighter)
        if index is None or not tighter.does_job[index]:
            break
        reached = float(tighter.at_asked(tighter.serving.tpot)[index])
        found.append((reached, winner(tighter)))
        limit = reached * (1 - INDISTINCT)
    return tuple(found)


@dataclass(frozen=True)
class Change:
    """One change of the workload, and the answer before and after."""

    words: str
    before: str
    after: str
    """The recommended layout, or that nothing does the job then."""

    @property
    def flips(self) -> bool:
        """The answer changes."""
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
    """The answer after each of a list of changes, those that flip it first."""
    before, problem = _cell(result).outcome, result.problem
    tries = (*((words, change(problem.workload)) for words, change in CHANGES), *target_changes(result))
    found = [
        Change(words, before, _cell(solve(changed)).outcome)
        for words, fields in tries
        if (changed := _changed(problem, **fields)).workload != problem.workload  # half of one request is one
    ]
    return tuple(sorted(found, key=lambda change: not change.flips))


@dataclass(frozen=True)
class Apart:
    """The best pair of pools, one for prefill and one for decode, beside the best single pool under the same limits."""

    prefill: Layout
    decode: Layout
    prefill_replicas: int
    decode_replicas: int
    gpus: int
    """GPUs of both pools, at the smallest size whose rates match."""
    asked: int
    """Requests in hand that are asked for, over all replicas."""
    busy: int
    """Requests in hand that keep both pools as busy as the rate says."""
    ttft: float
    tpot: float
    rate: float
    """Output tokens per second and GPU over both pools."""
    together: float
    """The most a single pool delivers per GPU within the same times, at any batch; 0: it never does."""

    @property
    def gain(self) -> float:
        """Two pools over one; infinite where one pool never meets the times."""
        return self.rate / self.together if self.together else np.inf

    @property
    def words(self) -> str:
        """Both in a sentence."""
        one = (
            f"{written_rate(self.together)} in one pool"
            if self.together
            else "one pool, which never meets these times"
        )
        pools = (
            f"{self.prefill_replicas} × {self.prefill} for prefill and {self.decode_replicas} × {self.decode} for "
            f"decode, {self.gpus} GPUs"
        )
        rates = (
            f"{written_rate(self.rate)} tokens/s per GPU at {written_time(self.tpot)} per token and "
            f"{written_time(self.ttft)} to the first, against {one}"
        )
        if self.gain > 1 + INDISTINCT and self.asked < self.busy:
            return (
                f"Not for {counted(self.asked, 'request')} at once: {pools}, take about {self.busy:,} to "
                f"be busy. Then it pays: {rates}."
            )
        pays = "It does not pay" if self.gain < 1 - INDISTINCT else "It hardly matters"
        pays = "It pays" if self.gain > 1 + INDISTINCT else pays
        return f"{pays}: {pools}: {rates}."


def connected(problem: Problem, layout: Layout) -> Mask:
    """Which prefill layout can send its cache to which decode layout, [prefill, decode].

    SGLang deals the heads of windowed attention anew for another tensor width only where prefill has no pipeline stages
    (disaggregation/common/conn.py at 0.5.23).
    """
    mixers = problem.transformer.mixers
    windowed = any(mixer.cache.window for mixer in mixers if isinstance(mixer, GroupedQuery))
    tensor, pipeline = (np.broadcast_to(cut, layout.shape) for cut in (layout.tensor, layout.pipeline))
    dealt = (tensor[:, None] == tensor) | (pipeline == 1)[:, None]
    return dealt if windowed and problem.engine.name == "sglang" else np.ones_like(dealt)


def apart(result: Result, *, replicas: int = 1) -> Apart | None:
    """Whether prefill and decode pay on pools of their own; None where no pair fits or is in time.

    Both are held to the targets; where there is none for the time per token, to that of the recommended layout. The
    layouts tried on either side are the best of every size. With few requests two pools stand idle in turn: what
    they deliver when busy counts only for those who have that many.

    Args:
        replicas: how often the requests in hand come.
    """
    index = recommended_index(result)
    tried = [i for i in candidates(result) if result.legal[i]]
    if index is None or not tried:
        return None
    problem, serving = result.problem, result.serving
    tpot = problem.workload.tpot or float(result.at_asked(serving.tpot)[index])
    ttft = problem.workload.ttft or np.inf
    layout = result.layout[np.array(tried)]
    found = pools(
        problem.transformer,
        problem.precision,
        prefill=layout,
        decode=layout,
        prefill_gpu=problem.gpu,
        decode_gpu=problem.gpu,
        engine=problem.engine,
        workload=problem.workload,
        concurrency=result.concurrency,
        settings=problem.settings,
    )
    place = found.best(ttft=ttft, tpot=tpot, allowed=connected(problem, layout)[..., None])
    if place is None:
        return None
    in_time = result.possible & (result.grid(serving.tpot) <= tpot) & (result.grid(serving.ttft) <= ttft)
    best = picked(found, shape=(len(tried), len(tried), result.concurrency.size), index=place)
    return Apart(
        prefill=result.layout.one(tried[place[0]]),
        decode=result.layout.one(tried[place[1]]),
        prefill_replicas=int(best.prefill_replicas),
        decode_replicas=int(best.decode_replicas),
        gpus=int(best.gpus),
        asked=problem.workload.concurrency * replicas,
        busy=round(
            float(best.requests_per_s) * (float(best.ttft) + problem.workload.output * float(best.tpot))
        ),
        ttft=float(best.ttft),
        tpot=float(best.tpot),
        rate=float(best.tokens_per_s_per_gpu),
        together=float(np.where(in_time, result.grid(serving.tokens_per_s_per_gpu), 0.0).max()),
    )
