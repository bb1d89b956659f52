"""The second best layout, and what it would take for it to win."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from parplan.choice import INDISTINCT, best_index, filled, merits, overtakes, turning_point
from parplan.layout import GPU_CUTS, Layout
from parplan.planner import Plan, Result
from parplan.units import Array, counted, either_way, written_share, written_time

LEAST_GAP = 0.005
"""Relative difference that is written as a whole percent."""


@dataclass(frozen=True)
class RunnerUp:
    """The layout that would be recommended if the recommended one, and its close kin, were not there."""

    plan: Plan
    best: Plan
    """The recommended one."""
    result: Result = field(repr=False)
    error: Callable[[Layout], float] = field(repr=False)
    """How far the time per token of a layout may be off, relative; 0: it is a bound."""

    @cached_property
    def words(self) -> str:
        """What it is worse at, and from where on it would win; looked for when somebody asks."""
        result, best, second = self.result, self.best, self.plan
        ways = [way for way in _ways(result, best, second) if way]
        wins = f"It overtakes {best.layout} {' or '.join(ways)}." if ways else _never(result, best, second)
        near = _indistinct(result, best, second, error=self.error)
        return f"{_size(result, second)} comes next{near}. {wins}"


def runner_up(result: Result, best: Plan, *, error: Callable[[Layout], float]) -> RunnerUp | None:
    """The best of the other layouts that do the job; None: no other does, or the recommended one does not.

    One that differs in more than its experts and how the cache is cut, where there is one.

    Args:
        error: how far the time per token of a layout may be off, relative; 0: it is a bound.
    """
    if not best.does_job:
        return None
    does = result.does_job & (np.arange(result.shape[0]) != best.index)
    other = np.logical_or.reduce(
        [getattr(result.layout, name) != getattr(best.layout, name) for name in GPU_CUTS]
    )
    index = best_index(result, among=does & other if (does & other).any() else does)
    return None if index is None else RunnerUp(result.plan(index), best, result, error)


def _size(result: Result, plan: Plan) -> str:
    """A layout and its GPUs, or those of its replicas where a rate is what is compared."""
    replicas = result.fleets.of(plan.index) if result.problem.counts_fleets else 1
    if replicas == 1 or np.isinf(replicas):
        return f"{plan.layout} on {counted(plan.gpus, 'GPU')}"
    return f"{replicas:,.0f} × {plan.layout} on {counted(int(plan.gpus * replicas), 'GPU')}"


def _bought(result: Result, *plans: Plan) -> tuple[float, ...]:
    """GPUs to buy for layouts, for the rate where that is what is compared."""
    if result.problem.counts_fleets:
        return tuple(result.fleets.size(plan.index) for plan in plans)
    return tuple(float(result.bought[plan.index]) for plan in plans)


def _indistinct(result: Result, best: Plan, second: Plan, *, error: Callable[[Layout], float]) -> str:
    """That two layouts differ by less than their speeds may be off, where speed is what decides between them."""
    (first, other), rated = _bought(result, best, second), merits(result)[0]
    if result.problem.objective == "cost" and first != other:
        return ""
    gap = abs(rated[second.index] / rated[best.index] - 1)
    off = {plan.layout: error(plan.layout) for plan in (best, second)}
    within = [layout for layout in off if gap < off[layout]]
    if not within:
        return ""
    bands = " and ".join(dict.fromkeys(either_way(off[layout]) for layout in within))
    whose = "either" if len(within) == len(off) else str(within[0])
    size = written_share(gap) if gap >= LEAST_GAP else "less than 1 %"
    return f": the two differ by {size}, within the error of {whose} ({bands})"


def _ways(result: Result, best: Plan, second: Plan) -> tuple[str, ...]:
    """Changes of the number of requests or of a target that make the second one win, in words."""
    first, other = _bought(result, best, second)
    faster = (
        _tighter(float(second.serving.tpot), float(best.serving.tpot), of="per token"),
        _tighter(float(second.serving.ttft), float(best.serving.ttft), of="to the first"),
    )
    match result.problem.objective:
        case "cost" if result.problem.counts_fleets:
            return faster
        case "cost" if other > first:
            return (*faster, _roomier(result, best, second))
        case "cost":
            return (_elsewhere(result, best, second, [result.grid(result.serving.tokens_per_s)]),)
        case "throughput":
            return (_tighter_filled(result, best, second),)
        case "latency":
            times = (result.serving.tpot, result.serving.ttft)
            return (_elsewhere(result, best, second, [1 / result.grid(time) for time in times]),)


def _tighter(second: float, best: float, *, of: str) -> str:
    """A target only the second one meets."""
    if second >= best * (1 - INDISTINCT):
        return ""
    return f"with a target below {written_time(best)} {of} (it reaches {written_time(second)})"


def _roomier(result: Result, best: Plan, second: Plan) -> str:
    """More requests than the best one holds in time, while the second one still does."""
    lost = result.timely[second.index] & ~result.timely[best.index]
    more = np.flatnonzero(lost[result.asked :]) + result.asked
    return f"from {_at_once(_turns(result, best, second, batch=more[0]))} on" if more.size else ""


def _elsewhere(result: Result, best: Plan, second: Plan, rated: Sequence[Array]) -> str:
    """The nearest numbers of requests at which the second one is chosen before the best.

    Args:
        rated: what decides, the weightiest first; more is better, [layouts, batches] each.
    """
    ahead = overtakes(rated, result=result, first=best.index, second=second.index)
    batch, found = np.arange(result.concurrency.size), []
    if (more := batch[ahead & (batch > result.asked)]).size:
        found.append(f"from about {_at_once(_turns(result, best, second, batch=more[0]))} on")
    if (fewer := batch[ahead & (batch < result.asked)]).size:
        found.append(f"up to about {_at_once(_turns(result, second, best, batch=fewer[-1] + 1) - 1)}")
    return " or ".join(found)


def _turns(result: Result, first: Plan, second: Plan, *, batch: int) -> int:
    """Requests at once from which the second plan is recommended before the first: up to one number of the grid, above
    the one before."""
    after, until = result.concurrency[batch - 1 : batch + 1].tolist()
    layouts = result.layout[[first.index, second.index]]
    return turning_point(result.problem, layouts=layouts, after=after, until=until)


def _at_once(requests: int) -> str:
    return f"{counted(requests, 'request')} at once"


def _tighter_filled(result: Result, best: Plan, second: Plan) -> str:
    """The loosest time per token, tighter than now, at which the second one delivers clearly more per GPU."""
    limits = np.unique(result.grid(result.serving.tpot)[[best.index, second.index]])[::-1]
    for limit in limits[limits < (result.problem.workload.tpot or np.inf)].tolist():
        rate = filled(result, tpot=limit).tokens_per_s_per_gpu
        if rate[second.index] > rate[best.index] * (1 + INDISTINCT):
            return f"with a target of {written_time(limit)} per token"
    return ""


def _never(result: Result, best: Plan, second: Plan) -> str:
    """How far behind it stays at every number of requests tried."""
    fewest, more = _bought(result, best, second)
    if more > fewest:
        return "It takes more GPUs, and no target or number of requests that was tried asks for them."
    first = merits(result)[0]
    behind = first[best.index] / first[second.index] - 1
    if behind < INDISTINCT:
        return f"It is within {written_share(INDISTINCT)} of the best, and less simple."
    return f"To win it would have to gain {written_share(behind)}."
