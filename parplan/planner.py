"""Every candidate layout at every batch, evaluated in one vectorised call and judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from parplan.arrays import Values, mapped, picked, unbeaten
from parplan.fit import most_requests, runnable, short_of_slots
from parplan.fleet import Fleets
from parplan.hardware import Gpus, Hardware
from parplan.instances import sold_gpus
from parplan.layout import CUT_NAMES, FAMILIES, Layout, families
from parplan.memory import Memory, default_slots, memory
from parplan.objections import Case, Objection, broken, narrower_tensor, objection
from parplan.problem import Problem
from parplan.search import batches, candidate_layouts, deciding_batches
from parplan.serving import Serving, serve
from parplan.units import Array, Counts, Mask, Seconds, counted

SHORTEST = 1e-9
"""Seconds below which one target is missed like any other: a time over it stays a number."""
FORBIDDING = {
    "tensor-spans": "without tensor parallelism across nodes",
    "pipeline-inside": "without stages inside one fast domain",
    "pipeline-needless": "without needless stages across nodes",
}
"""Warnings that keep a layout from being recommended while another one does the job; what layouts are that have none,
in words."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One layout of a result at the asked concurrency; what nobody looks at is not worked out."""

    result: "Result" = field(repr=False)
    """What it is a part of."""
    index: int
    """Its place in the result."""

    def __eq__(self, other: object) -> bool:
        """The same layout with the same memory and speed, whichever result it is a part of."""
        return isinstance(other, Plan) and (self.layout, self.memory, self.serving) == (
            other.layout,
            other.memory,
            other.serving,
        )

    def __hash__(self) -> int:
        return hash(self.layout)

    @cached_property
    def layout(self) -> Layout:
        """How the model is cut."""
        return self.result.layout.one(self.index)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return int(self.result.gpus[self.index])

    @property
    def legal(self) -> bool:
        """No objection is an error: the engine starts and holds at least one request."""
        return bool(self.result.legal[self.index])

    @property
    def holds(self) -> bool:
        """Legal, and every asked request runs at once: the KV pool and the sequence slots hold all of them."""
        return bool(self.result.holds[self.index])

    @property
    def most(self) -> int:
        """Most requests it runs at once."""
        return most_requests(self.memory)

    @property
    def short_of_slots(self) -> bool:
        """What keeps it from running more at once is its sequence slots, not its KV pool."""
        return short_of_slots(self.memory, self.result.problem.settings, layout=self.layout)

    @property
    def runs(self) -> str:
        """How many of the asked requests it runs at once, as the end of a sentence."""
        return self.runs_in(1)

    def runs_in(self, replicas: int) -> str:
        """The same of several replicas together."""
        asked = self.result.problem.workload.concurrency * replicas
        verb = "runs" if self.short_of_slots else "holds"
        return f"{verb} {self.most * replicas:,} of {counted(asked, 'request')} at once"

    @property
    def in_time(self) -> bool:
        """Legal, and both targets are met."""
        return bool(self.result.in_time[self.index])

    @property
    def does_job(self) -> bool:
        """It holds every asked request and meets both targets."""
        return self.holds and self.in_time

    @cached_property
    def memory(self) -> Memory:
        """Of its worst rank."""
        return self.result.picked(self.result.memory, index=self.index)

    @cached_property
    def serving(self) -> Serving:
        """Its speed."""
        return self.result.picked(self.result.serving, index=self.index)

    @cached_property
    def objections(self) -> tuple[Objection, ...]:
        """Everything wrong with it, in words, errors first."""
        return self.result.objections(self.index)

    @cached_property
    def nearest(self) -> Layout | None:
        """The legal layout that differs least, for a layout that is not legal. None: it is legal, or none is."""
        return None if self.legal else self.result.nearest_legal(self.index)


@dataclass(frozen=True)
class Result:
    """All layouts of a problem at all batches. Arrays are [layouts] or broadcast to [layouts, batches]."""

    problem: Problem
    layout: Layout
    """[layouts]"""
    concurrency: Counts
    """[batches]"""
    asked: int
    """Index of the asked concurrency."""
    memory: Memory
    serving: Serving
    errors: Mapping[str, Mask]
    """Rules whose breaking makes a layout impossible: name -> which layouts break it, [layouts]."""
    warnings: Mapping[str, Mask]
    """Rules whose breaking makes a layout unwise: name -> which layouts break it, [layouts]."""
    fleets: Fleets = field(repr=False, compare=False)
    """Replicas of each layout for the rate that is asked for; they do not follow from what is asked at once."""

    @property
    def shape(self) -> tuple[int, int]:
        """Layouts, batches."""
        return (*self.layout.shape, self.concurrency.size)  # type: ignore[return-value]

    def grid(self, values: Any) -> Array:
        """Values spread over all layouts and batches, [layouts, batches]."""
        return np.broadcast_to(values, self.shape)

    def at_asked(self, values: Any) -> Array:
        """The column of the asked concurrency, [layouts]."""
        return self.grid(values)[:, self.asked]

    def asking(self, batch: int) -> "Result":
        """What somebody gets who asks for another concurrency of the grid: the same result, as long as the engine runs
        so many with the slots it has; else layouts are judged anew, at that concurrency alone, with as many as needed.
        """
        problem = self._asked_for(batch)
        if self._has_slots(batch):
            return replace(self, problem=problem, asked=batch)
        return judged(problem, layout=self.layout, concurrency=deciding_batches(problem))

    def with_targets_of(self, problem: Problem) -> "Result":
        """What somebody gets who asks for other targets alone."""
        fleets = fleets_of(problem, layout=self.layout, served=self.serving, shape=self.shape)
        return replace(self, problem=problem, fleets=fleets)

    def asking_each(self, *, most: int) -> Iterator["Result"]:
        """The same for every concurrency of the grid up to one; those that need more slots are judged in one pass."""
        beyond = [
            batch for batch in range(self.concurrency.size)
            if self.concurrency[batch] <= most and not self._has_slots(batch)
        ]  # fmt: skip
        more = None
        if len(beyond) > 1 and deciding_batches(self.problem).size == 1:
            counts = self.concurrency[beyond]
            first = self._asked_for(beyond[0])
            settings = first.settings.running(tuple(counts.tolist()))
            more = judged(replace(first, settings=settings), layout=self.layout, concurrency=counts)
        for batch in np.flatnonzero(self.concurrency <= most).tolist():
            yield more.asking(beyond.index(batch)) if more and batch in beyond else self.asking(batch)

    def _asked_for(self, batch: int) -> Problem:
        """The problem with another concurrency of the grid, and slots that follow it where these do not hold it."""
        workload = self.problem.workload.model_copy(update={"concurrency": int(self.concurrency[batch])})
        settings, kept = self.problem.settings, isinstance(self.problem.settings.at_once, int)
        if not (kept and self._has_slots(batch)):
            settings = settings.running(workload.concurrency)
        return replace(self.problem, workload=workload, settings=settings)

    def _has_slots(self, batch: int) -> bool:
        """Whether each layout has a slot for every request of a concurrency of the grid, or could not be given more."""
        settings, profile = self.problem.settings, self.problem.engine.memory
        if settings.at_once is None or settings.max_num_seqs:
            return True
        most = np.append(default_slots(settings, profile=profile, gpu=self.problem.gpu), settings.at_once)
        return bool(self.concurrency[batch] <= most.max())

    @cached_property
    def gpus(self) -> Counts:
        """GPUs of one replica, [layouts]."""
        return np.broadcast_to(self.layout.gpus, self.layout.shape)

    @cached_property
    def bought(self) -> Counts:
        """GPUs to buy for one replica, [layouts]."""
        return np.asarray(sold_gpus(self.gpus, gpu=self.problem.gpu))

    @cached_property
    def legal(self) -> Mask:
        """Layouts without an error, [layouts]."""
        return cast(Mask, ~np.logical_or.reduce(list(self.errors.values())))

    @cached_property
    def runnable(self) -> Array:
        """Most requests each layout runs at once: what its KV pool holds, at most one for each sequence slot, [layouts,
        batches] or broadcast to it."""
        return np.asarray(runnable(self.memory))

    @cached_property
    def narrower(self) -> Counts:
        """Tensor width that delivers clearly more in replicas on as many GPUs; 0: none, [layouts]."""
        return narrower_tensor(
            self.layout,
            tokens_per_s=np.where(self.legal[:, None], self.grid(self.serving.tokens_per_s), 0.0),
            concurrency=self.concurrency,
            asked=self.asked,
        )

    @cached_property
    def holds(self) -> Mask:
        """Legal layouts that run every asked request at once: their KV pool holds all at full length, and there is a
        sequence slot for each, [layouts]."""
        return self.legal & (self.at_asked(self.runnable) >= self.problem.workload.concurrency)

    @cached_property
    def in_time(self) -> Mask:
        """Legal layouts that meet both targets at the asked concurrency; without targets all do, [layouts]."""
        ttft, tpot = self.at_asked(self.serving.ttft), self.at_asked(self.serving.tpot)
        return cast(Mask, self.legal & self.problem.workload.in_time(ttft=ttft, tpot=tpot))

    @cached_property
    def does_job(self) -> Mask:
        """Layouts that hold every asked request and meet both targets, [layouts]."""
        return self.holds & self.in_time

    @cached_property
    def wise(self) -> Mask:
        """Layouts free of the warnings that forbid a recommendation, [layouts]."""
        return cast(Mask, ~np.logical_or.reduce([self.warnings[name] for name in FORBIDDING]))

    @cached_property
    def families(self) -> Any:
        """The family of each layout, [layouts]."""
        return families(self.layout)

    @cached_property
    def possible(self) -> Mask:
        """Legal layouts at batches they run at once, [layouts, batches]."""
        return self.legal[:, None] & (self.grid(self.runnable) >= self.concurrency)

    @cached_property
    def timely(self) -> Mask:
        """Of those, the ones that meet both targets; without targets all do, [layouts, batches]."""
        ttft, tpot = self.serving.ttft, self.serving.tpot
        return cast(Mask, self.possible & self.problem.workload.in_time(ttft=ttft, tpot=tpot))

    @cached_property
    def growing(self) -> Mask:
        """Batches of which a layout runs more than of the one before: all that its pool and slots hold, and the first
        beyond, of which it runs as many as there is room for, [layouts, batches]."""
        running = self.grid(self.serving.running)
        return (np.diff(running, axis=1, prepend=0) > 0) & (self.grid(self.memory.capacity) >= 1)

    def strain(self, *, tpot: Seconds = np.inf) -> Array:
        """The worse of both times over its target, waiting for room left out; up to 1 both are met, [layouts, batches].

        Args:
            tpot: a time per output token to keep below as well, seconds.
        """
        workload, serving = self.problem.workload, self.serving
        limits = min(tpot, workload.tpot or np.inf), workload.ttft or np.inf
        times = serving.tpot, serving.ttft - serving.queued
        return cast(
            Array,
            np.maximum(
                *(self.grid(time) / max(limit, SHORTEST) for time, limit in zip(times, limits, strict=True))
            ),
        )

    def filled(self, index: int) -> int | None:
        """The first batch of which a layout cannot run all: its KV pool or its slots are full. None: it always can."""
        full = np.flatnonzero(self.grid(self.serving.waiting)[index] > 0)
        return int(full[0]) if full.size else None

    @cached_property
    def frontiers(self) -> Mapping[str, tuple[Counts, Counts]]:
        """By family: its layouts and batches that no other of it beats in both tokens/s per user and tokens/s per GPU,
        fastest for a user first, up to a full cache; empty for a family that cannot run."""
        grown = self.legal[:, None] & self.growing
        return {
            name: self._unbeaten(*np.nonzero(grown & (self.families == name)[:, None])) for name in FAMILIES
        }

    @cached_property
    def frontier(self) -> tuple[Counts, Counts]:
        """The same of all families together."""
        layouts, batches = zip(*self.frontiers.values(), strict=True)
        return self._unbeaten(np.concatenate(layouts), np.concatenate(batches))

    def _unbeaten(self, layouts: Counts, batches: Counts) -> tuple[Counts, Counts]:
        per_user = self.grid(self.serving.tokens_per_s_per_user)[layouts, batches]
        per_gpu = self.grid(self.serving.tokens_per_s_per_gpu)[layouts, batches]
        best = unbeaten(per_user, per_gpu)
        return layouts[best], batches[best]

    @cached_property
    def _doublings(self) -> Array:
        """Every cut of every layout as a power of two, [cuts, layouts]."""
        return np.log2([np.broadcast_to(getattr(self.layout, name), self.layout.shape) for name in CUT_NAMES])

    def nearest_legal(self, index: int) -> Layout | None:
        """The legal layout that differs least from one: fewest doublings and halvings of its cuts, then fewest GPUs."""
        legal = np.flatnonzero(self.legal)
        if not legal.size:
            return None
        far = np.abs(self._doublings[:, legal] - self._doublings[:, [index]]).sum(axis=0)
        return self.layout.one(int(legal[np.lexsort((self.gpus[legal], far))[0]]))

    def picked(self, values: Values, *, index: int) -> Values:
        """Memory or speed of one layout at the asked concurrency."""
        return picked(values, shape=self.shape, index=(index, self.asked))

    def case(self, index: int) -> Case:
        """One layout as the rules judge it."""
        held = self.picked(self.memory, index=index)
        case = case_of(self.problem, layout=self.layout.one(index), held=held)
        return replace(case, narrower=int(self.narrower[index]), staged_gain=self._staged_gain(index))

    def _staged_gain(self, index: int) -> float:
        """Tokens/s of one layout over the most of those without stages that do the job on as many GPUs, less one; 0:
        none does."""
        flat = self.does_job & (self.layout.pipeline == 1) & (self.gpus == self.gpus[index])
        rate = self.at_asked(self.serving.tokens_per_s)
        return float(rate[index] / rate[flat].max() - 1) if flat.any() else 0.0

    def objections(self, index: int) -> tuple[Objection, ...]:
        """Everything wrong with one layout in words, errors first; nothing is composed for one without fault."""
        names = [name for name, mask in (*self.errors.items(), *self.warnings.items()) if mask[index]]
        if not names:
            return ()
        case = self.case(index)
        return tuple(objection(name, case) for name in names)

    def plan(self, index: int) -> Plan:
        """One layout at the asked concurrency."""
        return Plan(self, index)


def case_of(problem: Problem, *, layout: Layout, held: Memory) -> Case:
    """A problem with layouts to judge and the memory they take at the asked concurrency."""
    return Case(
        transformer=problem.transformer,
        precision=problem.precision,
        gpu=problem.gpu,
        engine=problem.engine,
        workload=problem.workload,
        layout=layout,
        memory=held,
        settings=problem.settings,
    )


def evaluate(
    problem: Problem, *, layout: Layout, concurrency: Counts, gpu: Hardware | None = None
) -> tuple[Memory, Serving]:
    """Memory and speed of layouts at concurrencies; whatever broadcasts, broadcasts.

    Args:
        gpu: in place of the problem's own.
    """
    gpu = gpu or problem.gpu
    held = memory(
        problem.transformer,
        problem.precision,
        layout=layout,
        gpu=gpu,
        engine=problem.engine,
        workload=problem.workload,
        concurrency=concurrency,
        settings=problem.settings,
    )
    served = serve(
        problem.transformer,
        problem.precision,
        layout=layout,
        gpu=gpu,
        engine=problem.engine,
        workload=problem.workload,
        concurrency=concurrency,
        capacity=np.minimum(held.capacity, held.slots),
        settings=problem.settings,
    )
    return held, served


def solve(problem: Problem) -> Result:
    """Every candidate layout at every batch, judged."""
    return judged(problem, layout=candidate_layouts(problem), concurrency=batches(problem.workload))


def judged(problem: Problem, *, layout: Layout, concurrency: Counts) -> Result:
    """Layouts at batches, judged.

    Args:
        layout: [layouts], one or more.
        concurrency: ascending, the asked one among them, [batches].
    """
    held, served = evaluate(problem, layout=layout.column(), concurrency=concurrency)
    return _judged(problem, layout=layout, concurrency=concurrency, held=held, served=served)


def judged_side_by_side(
    problems: Sequence[Problem], *, layouts: Sequence[Layout], concurrency: Counts
) -> Iterator[Result]:
    """The layouts of each of several problems, judged; `evaluate` is called once for all.

    Args:
        problems: alike in everything that memory and speed follow from, but for their GPUs.
        layouts: of each problem, [layouts].
        concurrency: as in `judged`.
    """
    sizes = tuple(layout.shape[0] for layout in layouts)
    gpus = Gpus(tuple(problem.gpu for problem in problems), layouts=sizes)
    every = Layout.joined(layouts).column()
    held, served = evaluate(problems[0], layout=every, concurrency=concurrency, gpu=gpus)
    for problem, layout, end in zip(problems, layouts, np.cumsum(sizes).tolist(), strict=True):
        own = partial(_own, rows=slice(end - layout.shape[0], end))
        yield _judged(
            problem,
            layout=layout,
            concurrency=concurrency,
            held=mapped(held, own),
            served=mapped(served, own),
        )


def _own(values: Array, *, rows: slice) -> Array:
    """Some rows of what differs between layouts, [layouts, 1] or [layouts, batches]; what does not stays whole."""
    return values[rows] if values.ndim == 2 and len(values) > 1 else values


def _judged(
    problem: Problem, *, layout: Layout, concurrency: Counts, held: Memory, served: Serving
) -> Result:
    """Layouts of known memory and speed, [layouts, batches], judged."""
    asked = int(np.searchsorted(concurrency, problem.workload.concurrency))
    shape = layout.shape[0], concurrency.size
    case = case_of(problem, layout=layout, held=picked(held, shape=shape, index=(slice(None), asked)))
    result = Result(
        problem=problem,
        layout=layout,
        concurrency=concurrency,
        asked=asked,
        memory=held,
        serving=served,
        errors=broken(case, severity="error"),
        warnings={},
        fleets=fleets_of(problem, layout=layout, served=served, shape=shape),
    )
    warnings = broken(replace(case, narrower=result.narrower), severity="warning")
    return replace(result, warnings=warnings)


def fleets_of(problem: Problem, *, layout: Layout, served: Serving, shape: tuple[int, int]) -> Fleets:
    """Replicas of each layout for the rate a problem asks for.

    Args:
        layout: [layouts].
        served: their speed, [layouts, batches] or broadcast to it.
        shape: layouts, batches.
    """
    return Fleets(
        rate=problem.busiest,
        gpu=problem.gpu,
        workload=problem.workload,
        layout=layout,
        serving=lambda some: picked(served, shape=shape, index=(some,)),
        sustained=np.broadcast_to(served.requests_per_s, shape)[:, -1],
    )
