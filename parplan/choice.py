"""Which layout to use: of those that do the job, the best by what the user is after."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from parplan.layout import CUT_NAMES, FAMILIES, Layout
from parplan.planner import FORBIDDING, Plan, Result, judged
from parplan.problem import Problem
from parplan.units import Array, Counts, Mask, Seconds

INDISTINCT = 0.05
"""Relative difference in speed that two layouts must have before it decides: half the model's measured error."""
TIE = INDISTINCT / 10
"""A relative difference in speed that decides nothing but between layouts that are otherwise alike."""


def why_unwise(plan: Plan) -> str:
    """Why a layout is not recommended while another does the job; empty where nothing forbids it."""
    return next((objection.reason for objection in plan.objections if objection.rule in FORBIDDING), "")


def left_out(plan: Plan) -> str:
    """What layouts are, in words, that are recommended in the place of one that a warning forbids."""
    return next(FORBIDDING[objection.rule] for objection in plan.objections if objection.rule in FORBIDDING)


def preferred(result: Result, *, among: Mask) -> Mask:
    """The wise layouts of those allowed, or all of them where none is wise, [layouts]."""
    allowed = among & result.wise
    return allowed if allowed.any() else among


@dataclass(frozen=True)
class Filled:
    """Each layout with as many requests at once as bring the most within its cache and the targets, [layouts] each."""

    tokens_per_s_per_gpu: Array
    """0: it is not legal, or misses a target with one request already."""
    requests: Array
    """At once, per replica."""
    tpot: Array
    """Seconds."""


def filled(result: Result, *, tpot: Seconds = np.inf) -> Filled:
    """What a fleet delivers per GPU: replicas are filled up, and added as the load asks for them.

    The batches planned for lie a factor apart. The one that just fills the cache is among them; the one that just meets
    a target lies between the last that does and the next, where all is taken to be linear.

        part  (target - time) / (time with the next batch - time), of the requests between them: whole ones

    Args:
        tpot: a time per output token to keep below as well, seconds.
    """
    serving, used = result.serving, result.strain(tpot=tpot)
    rate = result.grid(serving.tokens_per_s_per_gpu)
    allowed = result.legal[:, None] & result.growing & (used <= 1)
    rows, last = np.arange(len(rate)), np.where(allowed, rate, 0.0).argmax(axis=1)
    after = np.minimum(last + 1, rate.shape[1] - 1)
    late = allowed[rows, last] & ~allowed[rows, after] & result.growing[rows, after]
    more = late & (rate[rows, after] > rate[rows, last])
    step = np.where(more, used[rows, after] - used[rows, last], np.inf)
    held = result.grid(serving.running)
    gap = np.where(more, held[rows, after] - held[rows, last], np.inf)
    part = np.floor((1 - used[rows, last]) / step * np.where(more, gap, 1.0)) / gap

    def between(values: Any) -> Array:
        grid = result.grid(values)
        found = grid[rows, last] + part * (grid[rows, after] - grid[rows, last])
        return np.where(allowed.any(axis=1), found, 0.0)

    return Filled(between(rate), between(serving.running), between(serving.tpot))


def merits(result: Result) -> tuple[Array, ...]:
    """What the objective rates a layout by, the weightiest first; more is better, [layouts] each.

    At a fixed number of requests in hand, more tokens per second and less time per request are the same thing; so on
    as many GPUs the cheapest layout is the one with the most tokens per second.
    """
    serving = result.serving
    match result.problem.objective:
        case "cost":
            return (result.at_asked(serving.tokens_per_s),)
        case "throughput":
            return (filled(result).tokens_per_s_per_gpu,)
        case "latency":
            return 1 / result.at_asked(serving.tpot), 1 / result.at_asked(serving.ttft)


def fewest(result: Result, *, among: Mask, bought: Counts) -> Mask:
    """The layouts with the fewest GPUs to buy, wise ones first, of those allowed, [layouts].

    Args:
        bought: GPUs to buy for each, [layouts].
    """
    allowed = preferred(result, among=among)
    return cast(Mask, allowed & (bought == bought[allowed].min(initial=np.iinfo(np.int64).max)))


def best_index(result: Result, *, among: Mask) -> int | None:
    """The layout the objective rates best of those allowed; cost rates the fewest GPUs to buy best of all: for one
    replica, or for those that a rate takes. Fleets within `INDISTINCT` of the smallest are alike: of these the one
    whose GPUs do most.

    Unwise layouts only count where no other is allowed.
    """
    if result.problem.objective != "cost":
        return first_by(merits(result), result=result, among=preferred(result, among=among))
    fleets = to_buy(result, among=preferred(result, among=among) & result.does_job)
    if not result.problem.counts_fleets or np.isinf(fleets).all():
        return smallest_index(result, among=among)
    near = np.asarray(fleets <= fleets.min() * (1 + INDISTINCT))
    rate = result.at_asked(result.serving.tokens_per_s_per_gpu)
    return first_by([rate], result=result, among=near, bought=fleets)


def to_buy(result: Result, *, among: Mask) -> Array:
    """GPUs to buy for what is asked for, [layouts]: one replica or, where a rate is asked for and cost decides, those
    that bear it at its peak with the targets met under load; see `Fleets.sizes`. Infinite where not allowed.

    Args:
        among: layouts allowed, [layouts].
    """
    if result.problem.counts_fleets:
        return result.fleets.sizes(among=among, within=INDISTINCT)
    return np.where(among, result.bought, np.inf)


def outdone_by(result: Result, *, index: int) -> int | None:
    """The layout that does the job, is clearly better than one by the objective, and is not recommended because a
    warning forbids it. None: there is none, so that the one is the best there is."""
    unwise = result.does_job & ~result.wise
    if not (result.does_job[index] and result.wise[index] and unwise.any()):
        return None
    if result.problem.objective != "cost":
        rated = merits(result)[0]
        better = rated > rated[index] * (1 + INDISTINCT)
    elif result.problem.counts_fleets:
        better = to_buy(result, among=unwise) < result.fleets.size(index) * (1 - INDISTINCT)
    else:
        better = result.bought < result.bought[index]
    return best_index(result, among=unwise & better)


def smallest_index(result: Result, *, among: Mask) -> int | None:
    """Of the layouts with the fewest GPUs to buy, the one the objective rates best."""
    return first_by(merits(result), result=result, among=fewest(result, among=among, bought=result.bought))


def first_by(
    rated: Sequence[Array], *, result: Result, among: Mask, bought: Array | Counts | None = None
) -> int | None:
    """The layout with the most of the first merit, then of the second, of those allowed. None: none is.

    Differences below `INDISTINCT` decide nothing: among those the layout with the fewest GPUs to buy wins, then the
    simplest one.

    Args:
        rated: [layouts] each.
        bought: GPUs to buy, where that is not one replica's, [layouts].
    """
    if not among.any():
        return None
    left = among
    for merit in rated:
        left = left & (merit >= merit[left].max() * (1 - INDISTINCT))
    size = np.asarray(result.bought if bought is None else bought)
    return int(np.lexsort((-rated[0], _complexity(result), size, ~left))[0])


def overtakes(rated: Sequence[Array], *, result: Result, first: int, second: int) -> Mask:
    """Numbers of requests at which the second of two layouts is chosen before the first, as `first_by` does, [batches].

    Args:
        rated: [layouts, batches] each.
    """
    pair = np.zeros(result.shape[0], dtype=bool)
    pair[[first, second]] = True
    ahead = np.isin(np.arange(pair.size), second).astype(float)
    simpler, as_simple = (
        first_by([merit], result=result, among=pair) == second for merit in (1 - ahead * TIE, 1 + ahead * TIE)
    )
    wins, alike = np.zeros(result.concurrency.size, dtype=bool), np.ones(result.concurrency.size, dtype=bool)
    for merit in rated:
        wins |= alike & (merit[first] < merit[second] * (1 - INDISTINCT))
        alike &= np.maximum(merit[first], merit[second]) * (1 - INDISTINCT) <= np.minimum(
            *merit[[first, second]]
        )
    tied = simpler | (as_simple & (rated[0][second] > rated[0][first]))
    in_time = result.timely
    return cast(Mask, in_time[second] & (wins | (alike & tied) | ~in_time[first]))


def turning_point(problem: Problem, *, layouts: Layout, after: int, until: int) -> int:
    """Requests at once from which the second of two layouts is recommended before the first.

    Args:
        problem: with slots for so many requests.
        layouts: the two, [2].
        after: a number of requests at which the first is.
        until: a larger one at which the second is, with nothing but these two in between.
    """
    between = np.arange(after + 1, until + 1)
    workload = problem.workload.model_copy(update={"concurrency": until})
    both = judged(replace(problem, workload=workload), layout=layouts, concurrency=between)
    turned = bisect_left(
        range(between.size - 1), 1, key=lambda batch: int(recommended_index(both.asking(batch)) == 1)
    )
    return int(between[turned])


def _complexity(result: Result) -> Counts:
    """How much there is to a layout, [layouts]: its kinds of cut, and one each for repeating attention, which costs
    memory, and for leaving bought GPUs idle.

    Where attention is repeated, whole experts over the same GPUs are part of it: engines' makers publish no such
    deployment with cut experts (vLLM expert_parallel_deployment.md, SGLang expert_parallelism.md).
    """
    layout = result.layout
    repeated, spread = np.greater(layout.data, 1), np.greater(layout.expert, 1)
    kinds = np.sum([np.greater(getattr(layout, name), 1) for name in CUT_NAMES if name != "expert"], axis=0)
    idle = result.bought > result.gpus
    return np.asarray(kinds + np.where(repeated, 1 + ~spread, spread) + idle)


def recommended_index(result: Result) -> int | None:
    """The layout to use: the best by the objective that holds every request and meets the targets; else as near as
    can be.

    Where nothing does both, the targets come first to give way: the layout that holds every request and misses the
    targets least; where nothing holds every request, the best of those that run the most.
    """
    if result.does_job.any():
        return best_index(result, among=result.does_job)
    if result.holds.any():
        return int(np.argmin(np.where(preferred(result, among=result.holds), _miss(result), np.inf)))
    if result.legal.any():
        allowed, most = preferred(result, among=result.legal), result.at_asked(result.runnable)
        return best_index(result, among=allowed & (most == most[allowed].max()))
    return None


def _miss(result: Result) -> Array:
    """By what factor the worse of both targets is missed, [layouts]; 1 or less: met."""
    workload, serving = result.problem.workload, result.serving
    with np.errstate(over="ignore"):  # a target of nothing is missed by an infinite factor
        ttft = result.at_asked(serving.ttft) / (workload.ttft or np.inf)
        tpot = result.at_asked(serving.tpot) / (workload.tpot or np.inf)
    return np.asarray(np.maximum(ttft, tpot))


AGAINST = ("late", "unwise", "larger", "less when full", "alike")
"""What speaks against a layout that does more for a user and per GPU than the recommended one: it misses a target, is
unwise, takes more GPUs to buy, delivers less once filled up where that is what is asked for, or hardly differs."""


def passed_over(result: Result, *, index: int) -> dict[str, Counts]:
    """Layouts that hold the asked requests and then do more than one of them, both for a user and per GPU: by the first
    of `AGAINST` that holds, most tokens/s per GPU first."""
    serving, bought = result.serving, to_buy(result, among=result.does_job)
    per_user, per_gpu = (
        result.at_asked(rate) for rate in (serving.tokens_per_s_per_user, serving.tokens_per_s_per_gpu)
    )
    more = result.holds & (per_user > per_user[index]) & (per_gpu > per_gpu[index])
    throughput = result.problem.objective == "throughput"
    full = filled(result).tokens_per_s_per_gpu if throughput else np.zeros(more.size)
    marks = (~result.in_time, ~result.wise, bought > bought[index], full < full[index])
    against = np.select(marks, AGAINST[:-1], default=AGAINST[-1])
    order = np.argsort(-per_gpu, kind="stable")
    found = {name: order[(more & (against == name))[order]] for name in AGAINST}
    return {name: layouts for name, layouts in found.items() if layouts.size}


def roomiest_index(result: Result, *, among: Mask) -> int:
    """Of some layouts, the legal one that runs the most requests; the least broken one where none is legal."""
    broken = np.sum(list(result.errors.values()), axis=0)
    most, pool = result.at_asked(result.runnable), result.at_asked(result.memory.pool)
    order = np.lexsort((-pool, -most, ~result.wise, broken, ~among))
    return int(order[0])


def candidates(result: Result, *, most: int = 7) -> tuple[int, ...]:
    """The few layouts worth drawing side by side: the best of every GPU count, and the largest that does not load.

    Ordered by GPUs; the recommended layout is among them. Where none loads, the one that comes nearest.
    """
    if not result.legal.any():
        return (roomiest_index(result, among=~result.legal),)
    chosen = set()
    bought, rated = result.bought, merits(result)
    for size in np.unique(bought):
        same = bought == size
        index = first_by(rated, result=result, among=preferred(result, among=result.legal & same))
        chosen.add(roomiest_index(result, among=same) if index is None else index)
    failing = sorted((i for i in chosen if not result.legal[i]), key=lambda i: -result.gpus[i])[:1]
    working = sorted((i for i in chosen if result.legal[i]), key=lambda i: result.gpus[i])[
        : most - len(failing)
    ]
    recommended = recommended_index(result)
    extra = () if recommended is None or recommended in working else (recommended,)
    return tuple(sorted((*failing, *working, *extra), key=lambda i: (result.gpus[i], i)))


def contrasting(result: Result, *, index: int, own: int | None = None, most: int = 7) -> list[int]:
    """Layouts worth a curve: one of them, the best of its size in every family, the best of other sizes.

    Args:
        index: of the one.
        own: another that is wanted first; left out where it does not run.
        most: of all of them.
    """
    same = result.legal & (result.gpus == result.gpus[index])
    families = (best_index(result, among=same & (result.families == name)) for name in FAMILIES)
    others = (other for other in candidates(result) if result.legal[other])
    runs = own if own is not None and result.legal[own] else None
    chosen = dict.fromkeys(one for one in (index, runs, *families, *others) if one is not None)
    return sorted(list(chosen)[:most])


def rivals(found: Plan, result: Result, *, most: int = 200) -> list[int]:
    """Layouts to compare a plan with: the recommended one, or the next best to it; then others, the nearest in size
    first.

    Args:
        found: of this or another result.
        result: whose layouts they are.
        most: of the others.
    """
    same = np.logical_and.reduce(
        [getattr(result.layout, name) == getattr(found.layout, name) for name in CUT_NAMES]
    )
    others = result.legal & ~same
    recommended = recommended_index(result)
    if recommended is None or not others[recommended]:
        holding = others & result.holds
        recommended = best_index(result, among=holding if holding.any() else others)
    nearest = np.argsort(np.abs(result.gpus - found.gpus), kind="stable")
    listed = nearest[others[nearest]][:most].tolist()
    return list(dict.fromkeys(listed if recommended is None else [recommended, *listed]))


def ranking(result: Result) -> Counts:
    """All layouts, best first, [layouts]: the recommended one, those that do the job, wise ones before unwise ones, by
    the objective; then those too slow, those whose requests wait, and impossible ones."""
    cost = result.problem.objective == "cost"
    fleets = result.problem.counts_fleets
    bought = to_buy(result, among=result.does_job) if fleets else np.where(cost, result.bought, 0.0)
    order = np.lexsort(
        (
            *(-merit for merit in reversed(merits(result))),
            bought,
            result.does_job & ~result.wise,
            ~result.does_job,
            ~result.holds,
            ~result.legal,
        )
    )
    best = recommended_index(result)
    return order if best is None else np.concatenate([[best], order[order != best]])
