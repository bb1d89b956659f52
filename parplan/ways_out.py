"""Ways out of a plan that does not do the job: single changes of the scenario, each tested to be one."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Any, TypeAlias

import numpy as np

from parplan import catalog
from parplan.advice import verdict
from parplan.calibration import Engine
from parplan.choice import recommended_index, smallest_index
from parplan.fit import longest_request, runnable
from parplan.hardware import Gpu
from parplan.instances import purchases, sequence_bytes, weight_bytes
from parplan.layout import CUT_NAMES, GPU_CUTS, MOST_GPUS
from parplan.objections import largest_percent
from parplan.planner import Plan, judged
from parplan.problem import Problem
from parplan.scenario import Answer, Scenario, offers, problem_of
from parplan.search import candidate_layouts, deciding_batches
from parplan.support import Kind, Refusal
from parplan.units import MS, counted

LARGE_SHARE = 95
"""Percent of a GPU's memory engines commonly still come up with."""
DRAFTED = 3
"""Tokens drafted to be quicker: as many as the acceptance a scenario has by itself was measured with."""
Change: TypeAlias = tuple[str, dict[str, Any]]
"""Words, and the fields that change."""
Alternatives: TypeAlias = tuple[Change, ...]
"""Changes of one kind, the mildest first; the first that works is enough."""
STORED: dict[Kind, str] = {"weights": "the weights", "kv": "the KV cache"}
"""What a format is of, in words."""
TARGETS = {"tpot": "per token", "ttft": "to the first"}
"""What a target is for, in words."""
RETOLD = frozenset({"slots", "step_tokens", "utilization"})
"""Fields that only tell the engine otherwise."""


@dataclass(frozen=True)
class WayOut:
    """One change to a scenario that makes it work."""

    words: str
    scenario: Scenario
    plan: Plan
    """What is recommended then; it holds every request, and meets the targets where that was what was missing."""
    verdict: str
    """The answer in one sentence then."""
    price: float
    """USD per hour of the cheapest machines that do it then; infinite where no price is known."""
    retold: bool
    """Only the engine is told otherwise: nothing is bought, and requests and formats stay."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica then."""
        return self.plan.gpus


def ways_out(answer: Answer) -> tuple[WayOut, ...]:
    """Changes that make a scenario hold every request, and meet the targets where only those are missed; cheapest
    machines first, then fewest GPUs. Each has been planned and does it.

    Meant for answers that do not: formats that run and engines that run the asked ones; targets as the nearest layout
    meets them, drafted tokens and quicker GPUs where they are missed; more sequence slots, a share of memory the driver
    context fits beside, other cuts than the user fixed, smaller formats, a larger share of memory, as many or as long
    requests as do fit, more GPUs, larger GPUs of the same vendor. Of two ways to the same plan the first counts.
    """
    scenario, seen, late = answer.scenario, [answer.result.problem], _late(answer)
    found: list[WayOut] = []
    for alternatives in (
        *_formats_that_run(answer),
        *_quicker(answer),
        *_more_slots(scenario),
        *_smaller_share(answer),
        *_recut(scenario),
        *_smaller(scenario),
        *_fewer_or_shorter(answer),
        *_larger(answer),
    ):
        for words, change in alternatives:
            changed = scenario.model_copy(update=change)
            problem = problem_of(changed)
            if problem in seen or not could_hold(problem):
                continue
            seen.append(problem)
            if way := _held(words, changed, problem, retold=change.keys() <= RETOLD, in_time=late):
                found.append(way)
                break
    return tuple(sorted(found, key=lambda way: (way.price, way.gpus)))


def foremost(ways: Iterable[WayOut], *, most: int = 3) -> tuple[WayOut, ...]:
    """The few to show: those that only tell the engine otherwise, then the cheapest."""
    return tuple(sorted(ways, key=lambda way: not way.retold)[:most])


def could_hold(problem: Problem) -> bool:
    """Whether the GPU budget has the bytes of the weights and of every request's cache, whatever the layout.

    weights + requests x bytes of one <= GPUs x usable memory
    """
    weights = float(weight_bytes(problem.transformer, problem.precision))
    each = float(sequence_bytes(problem.transformer, problem.precision, length=problem.workload.length))
    gpus = max(
        problem.budget, int(np.prod([size for name, size in problem.fixed.items() if name in GPU_CUTS]))
    )
    return weights + problem.workload.concurrency * each <= gpus * problem.gpu.memory


def _held(
    words: str, changed: Scenario, problem: Problem, *, retold: bool, in_time: bool = False
) -> WayOut | None:
    """The change as a way out. None: it is none.

    Args:
        retold: it only tells the engine otherwise.
        in_time: the targets must be met too.
    """
    result = judged(problem, layout=candidate_layouts(problem), concurrency=deciding_batches(problem))
    does = result.does_job if in_time else result.holds
    index, smallest = recommended_index(result), smallest_index(result, among=does)
    if index is None or smallest is None:
        return None
    best = result.plan(index)
    bought = purchases(offers(changed, gpu=problem.gpu), gpu=problem.gpu, gpus=int(result.gpus[smallest]))
    price = next((purchase.price for purchase in bought if purchase.price is not None), inf)
    return WayOut(words, changed, best, verdict(result, best), price, retold)


def _formats_that_run(answer: Answer) -> tuple[Alternatives, ...]:
    """Where the engine refuses formats: the nearest in size that run, on more GPUs where it takes them; or each other
    engine that refuses none, the newest version of it."""
    problem = answer.result.problem

    def refusals(engine: Engine) -> tuple[Refusal, ...]:
        return engine.support.refusals(problem.transformer, precision=problem.precision, gpu=problem.gpu)

    refused = refusals(problem.engine)
    if not refused:
        return ()
    nearest = {
        one.of: problem.engine.support.nearest(
            one, problem.transformer, precision=problem.precision, gpu=problem.gpu
        )
        for one in refused
    }
    stored = {of: found for of, found in nearest.items() if found is not None}
    change: dict[str, Any] = {of: found.name for of, found in stored.items()}
    words = f"store {' and '.join(f'{STORED[of]} in {found.label}' for of, found in stored.items())}"
    larger = tuple(
        (f"{words}, on up to {limit:,} GPUs per replica", change | {"budget": limit})
        for limit in _budgets(problem.budget)
    )
    startable = [engine for engine in catalog.engines().values() if engine.errors and not refusals(engine)]
    others = {engine.family: engine for engine in reversed(startable)}
    return (
        *((((words, change), *larger),) if stored.keys() == nearest.keys() else ()),
        *(((f"use {engine.label}", {"engine": engine.name}),) for engine in others.values()),
    )


def _late(answer: Answer) -> bool:
    """Every request is held, and a target missed."""
    best = answer.advice.recommended
    return bool(best and best.holds and not best.in_time)


def _quicker(answer: Answer) -> tuple[Alternatives, ...]:
    """Where a target is missed: what the nearest layout takes as the target, drafted tokens, as many requests as are in
    time, quicker GPUs of the same vendor."""
    best, scenario, result = answer.advice.recommended, answer.scenario, answer.result
    if best is None or not _late(answer):
        return ()
    taken = {"tpot": float(best.serving.tpot), "ttft": float(best.serving.ttft)}
    missed = {name: time for name, time in taken.items() if 0 < getattr(scenario, name) * MS < time}
    looser = {name: rounded_up(time / MS) for name, time in missed.items()}
    limits = " and ".join(f"{time:g} ms {TARGETS[name]}" for name, time in looser.items())
    draft: Alternatives = ((f"draft {DRAFTED} tokens per step", {"draft": DRAFTED}),)
    in_time = result.concurrency[: result.asked][result.timely[:, : result.asked].any(axis=0)]
    most = int(in_time.max(initial=0))
    gpu = result.problem.gpu
    quicker = [g for g in catalog.gpus().values() if g.vendor == gpu.vendor and g.bandwidth > gpu.bandwidth]
    return (
        ((f"allow {limits}", looser),),
        *((draft,) if "tpot" in missed and not scenario.draft else ()),
        *(((_at_most(most),),) if most else ()),
        tuple(_use(g) for g in sorted(quicker, key=lambda g: g.bandwidth)),
    )


def rounded_up(time: float) -> float:
    """A positive number to three digits, never below it.

    >>> rounded_up(0.0123449), rounded_up(0.5), rounded_up(12.345), rounded_up(1234.5)
    (0.0124, 0.5, 12.4, 1240.0)
    """
    step = floor(log10(time)) - 2
    return round(ceil(time / 10.0**step) * 10.0**step, -step)


def _more_slots(scenario: Scenario) -> tuple[Alternatives, ...]:
    """A sequence slot for every request, where the user set fewer, and a step with a token for each."""
    asked = scenario.concurrency
    fewer = {name for name in ("slots", "step_tokens") if 0 < getattr(scenario, name) < asked}
    if not fewer:
        return ()
    change = {"slots": asked} | ({"step_tokens": asked} if "step_tokens" in fewer else {})
    return (((f"let {asked:,} sequences run at once", change),),)


def _smaller_share(answer: Answer) -> tuple[Alternatives, ...]:
    """Shares of memory that leave room for the driver context, where layouts fail for want of that: the one that does
    for all of them first, which costs some cache, then larger ones."""
    result = answer.result
    failing = np.flatnonzero(result.errors["share"])
    shares = {largest_percent(result.plan(index).memory) for index in failing.tolist()}
    found = tuple(
        (f"let the engine take at most {share} % of each GPU", {"utilization": share})
        for share in sorted(shares)
        if share > 0
    )
    return (found,) if found else ()


def _recut(scenario: Scenario) -> tuple[Alternatives, ...]:
    """The nearest sizes of each cut the user fixed, below and above, others as they are; all free where none does."""
    fixed = [name for name in CUT_NAMES if getattr(scenario, name)]
    single = tuple(
        (
            (
                f"use {CUT_NAMES[name]}{size} instead of {CUT_NAMES[name]}{getattr(scenario, name)}",
                {name: size},
            ),
        )
        for name in fixed
        for size in _sizes_around(scenario, name)
    )
    free: Alternatives = (("try all layouts", dict.fromkeys(fixed, 0)),)
    return single or ((free,) if fixed else ())


def _sizes_around(scenario: Scenario, name: str) -> tuple[int, ...]:
    """The next smaller and the next larger size of a fixed cut with which a layout does the job, or holds every request
    where none does."""
    problem = problem_of(scenario.model_copy(update={name: 0}))
    layout, fixed = candidate_layouts(problem), getattr(scenario, name)
    found = judged(problem, layout=layout, concurrency=deciding_batches(problem))
    does = found.does_job if found.does_job.any() else found.holds
    sizes = np.unique(np.broadcast_to(getattr(layout, name), layout.shape)[does])
    return (*sizes[sizes < fixed][-1:].tolist(), *sizes[sizes > fixed][:1].tolist())


def _smaller(scenario: Scenario) -> tuple[Alternatives, ...]:
    """Smaller formats, and a larger share of memory for the engine."""
    share = (f"let the engine take {LARGE_SHARE} % of each GPU", {"utilization": LARGE_SHARE})
    return (
        (("store the KV cache in FP8", {"kv": "fp8"}),),
        (("store the weights in FP8", {"weights": "fp8"}),),
        (("store weights and KV cache in FP8", {"weights": "fp8", "kv": "fp8"}),),
        (("store the weights in 4 bits", {"weights": "int4-g128"}),),
        *(((share,),) if scenario.utilization < LARGE_SHARE else ()),
    )


def _fewer_or_shorter(answer: Answer) -> tuple[Alternatives, ...]:
    """As many requests, or as long ones, as the recommended layout or the nearest one holds; or one alone."""
    result, best = answer.result, answer.advice.recommended
    if _late(answer):
        return ()
    others = [mask for rule, mask in result.errors.items() if rule != "one-request"]
    possible = ~np.logical_or.reduce(others)
    if not possible.any():
        return ()
    requests = np.where(possible, result.at_asked(result.memory.requests), -np.inf)
    nearest = best.index if best else int(np.argmax(requests))
    most = int(runnable(result.case(nearest).memory))
    together = _shorter(answer, nearest, concurrency=answer.scenario.concurrency, words="keep requests to")
    alone = _shorter(answer, nearest, concurrency=1, words="have one request at a time, of up to")
    return (
        *(((_at_most(most),),) if 0 < most < answer.scenario.concurrency else ()),
        *(((*together, *alone),) if together or alone else ()),
    )


def _at_most(requests: int) -> Change:
    """Fewer requests."""
    return f"have at most {counted(requests, 'request')} in hand", {"concurrency": requests}


def _shorter(answer: Answer, index: int, *, concurrency: int, words: str) -> Alternatives:
    """So many requests of the same shape, as long as one layout runs them; none where it runs none, or longer ones.

    Args:
        index: of the layout.
        words: what stands before the length.
    """
    scenario, problem = answer.scenario, answer.result.problem
    length = longest_request(problem, layout=answer.result.layout.one(index), concurrency=concurrency)
    output = max(round(length * scenario.output / problem.workload.length), 1)
    change = {"concurrency": concurrency, "prompt": length - output, "output": output}
    return ((f"{words} {length:,} tokens", change),) if output < length < problem.workload.length else ()


def _larger(answer: Answer) -> tuple[Alternatives, ...]:
    """Twice as many GPUs until it holds, or larger ones of the same vendor."""
    gpu = answer.result.problem.gpu
    limits = _budgets(answer.result.problem.budget)
    larger = [g for g in catalog.gpus().values() if g.vendor == gpu.vendor and g.memory > gpu.memory * 1.05]
    uses = [_use(g) for g in sorted(larger, key=lambda g: g.memory)]
    roomy = [use for use in uses if could_hold(problem_of(answer.scenario.model_copy(update=use[1])))]
    return (
        tuple((f"allow up to {limit:,} GPUs per replica", {"budget": limit}) for limit in limits),
        *((use,) for use in roomy[:3]),
    )


def _budgets(budget: int) -> tuple[int, ...]:
    """Twice as many GPUs, four times and so on, and the most there may be."""
    doubled = (budget << times for times in range(1, MOST_GPUS.bit_length()))
    return (*(limit for limit in doubled if limit < MOST_GPUS), MOST_GPUS)


def _use(gpu: Gpu) -> Change:
    """Another GPU, at list prices."""
    return f"use {gpu.label}", {"gpu": gpu.name, "gpu_hour": 0.0}
