"""The ladder of sizes: the fewest GPUs that load the model, hold the requests, meet the targets, survive a loss."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import cast

import numpy as np

from parplan.choice import fewest, first_by, merits, preferred, why_unwise
from parplan.cost import purchases_for
from parplan.hardware import Instance
from parplan.instances import Purchase, purchases, replicas_with_spare, sizes_sold, surviving
from parplan.networks import Offer, Speeds, quick_enough
from parplan.planner import Plan, Result, judged
from parplan.units import GB, Array, Counts, Mask, counted, written_time

SURVIVES = "survives"
"""The step that goes on with one machine lost."""

MOST_REPLICAS = np.iinfo(np.int32).max
"""Stands for the replicas of a layout that does not do it, however many there are."""

UNLISTED = "Nobody in the catalogue sells this GPU."
NOT_SOLD = (
    "Nobody in the catalogue sells so many of this GPU in one machine, or in machines with a known network."
)
TOO_SLOW = "Nobody in the catalogue sells so many of this GPU in one machine, or with a network that meets the targets."


@dataclass(frozen=True)
class Rung:
    """One step of the ladder of sizes: the fewest GPUs that do something."""

    name: str
    """loads, holds, meets targets, survives."""
    meaning: str
    plan: Plan | None
    """The best layout of that size, with one replica's share of the requests. None: nothing within the GPU budget
    does."""
    offers: tuple[Offer, ...]
    """Ways to buy it, cheapest first, each with the plan over the network of those machines."""
    note: str = ""
    """That fewer GPUs would do, and why more are bought; what is left out of the offers; empty where nothing is."""
    replicas: int = 1
    """Copies of the layout that share the requests, spare ones included."""
    spare: int = 0
    """Replicas of those that are not counted on."""
    busy: float = 1.0
    """How many times the requests of one replica are asked for: the work of all replicas over that of one."""
    index: int | None = None
    """Of the layout in the result."""
    unsold: str = ""
    """Why there are no offers; empty where there are."""

    @property
    def gpus(self) -> int | None:
        """GPUs in use, all replicas together. None: nothing within the GPU budget does."""
        return None if self.plan is None else self.plan.gpus * self.replicas

    @property
    def purchases(self) -> tuple[Purchase, ...]:
        """The machines of the offers, cheapest first."""
        return tuple(offer.purchase for offer in self.offers)

    @property
    def price(self) -> float:
        """USD per hour of the cheapest offer; infinite where no price is known."""
        return _cheapest(self.purchases)

    @property
    def networked(self) -> bool:
        """Whether offers differ in speed: a replica fills several machines, and not all of their networks are alike."""
        return any(offer.plan is not self.offers[0].plan for offer in self.offers)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second at the asked concurrency over the GPU's usual network; spare replicas idle."""
        return 0.0 if self.plan is None else self.tokens_per_s_of(self.plan)

    def tokens_per_s_of(self, plan: Plan) -> float:
        """The same with the plan as it runs on the machines of one offer."""
        return float(plan.serving.tokens_per_s) * self.busy

    def requests_per_s_of(self, plan: Plan) -> float:
        """Requests per second, likewise."""
        return float(plan.serving.requests_per_s) * self.busy

    @property
    def layout(self) -> str:
        """The layout and how often it runs, in words; empty where nothing does."""
        return "" if self.plan is None else str(replace(self.plan.layout, replicas=self.replicas))

    @property
    def size(self) -> str:
        """GPUs and layout, in words: "2 GPUs: TP2", "6 GPUs: 3 × TP2"; empty where nothing does."""
        return "" if self.gpus is None else f"{counted(self.gpus, 'GPU')}: {self.layout}"


@dataclass(frozen=True, eq=False)
class Purpose:
    """What one step of the ladder asks for."""

    name: str
    meaning: str
    replicas: Counts
    """Fewest of each layout that do it, [layouts]; `MOST_REPLICAS`: it does not."""
    in_time: bool = False
    """Whether the targets are part of it."""
    spare: int = 0
    """Replicas more than that."""


@dataclass(frozen=True, eq=False)
class Market:
    """The machines that a result's layouts could be bought in; each thing about them is worked out once."""

    result: Result
    machines: Sequence[Instance]
    """Those with its GPU."""
    speeds: Speeds = field(default_factory=Speeds)
    for_one: dict[int, tuple[Purchase, ...]] = field(default_factory=dict)
    """Ways to buy one replica of so many GPUs, cheapest first."""
    for_many: dict[tuple[int, int, bool], tuple[Purchase, ...]] = field(default_factory=dict)
    """Ways to buy replicas, cheapest first, by GPUs of one, how many, and whether they survive a lost machine."""
    shares: dict[tuple[int, int, bool], tuple[Plan, int]] = field(default_factory=dict)
    """Plans of layouts with a share of the requests, and the replicas, by layout, estimate, and whether in time."""

    @cached_property
    def held(self) -> Purpose:
        """Every request runs at once."""
        return Purpose("holds", "holds every asked request at full length", holding(self.result))

    @cached_property
    def job(self) -> Purpose:
        """Everything that is asked for."""
        workload = self.result.problem.workload
        if not (workload.ttft or workload.tpot):
            return self.held
        words = "holds every request and meets the targets"
        return Purpose("meets targets", words, meeting(self.result), in_time=True)

    def one(self, gpus: int) -> tuple[Purchase, ...]:
        """Ways to buy one replica of so many GPUs, cheapest first."""
        if gpus not in self.for_one:
            self.for_one[gpus] = purchases(self.machines, gpu=self.result.problem.gpu, gpus=gpus)
        return self.for_one[gpus]

    def many(self, gpus: int, replicas: int, *, spare: bool) -> tuple[Purchase, ...]:
        """Ways to buy so many replicas of so many GPUs, cheapest first.

        Args:
            spare: as many are to go on while any one machine is lost.
        """
        key = gpus, replicas, spare
        if key not in self.for_many:
            whole = surviving if spare else purchases_for
            self.for_many[key] = whole(self.one(gpus), replicas=replicas, gpus=gpus)
        return self.for_many[key]

    def alone(self, plan: Plan) -> tuple[Offer, ...]:
        """Ways to buy one replica of a plan; where it meets the targets, those on which it still does."""
        found = self.speeds.offers(plan, self.one(plan.gpus))
        return quick_enough(found) if plan.in_time else found


def ladder(market: Market) -> tuple[Rung, ...]:
    """The fewest GPUs that load the model, hold every request, meet the targets, and do so with one machine lost.

    Equal replicas may share the requests. What does more also does less, so no step is larger than the one after it.
    """
    alone = np.where(market.result.legal, 1, MOST_REPLICAS)
    job = market.job
    words = f"{job.meaning}, in equal replicas, also while any one machine is lost"
    steps = (
        Purpose("loads", "starts and holds at least one request of full length", alone),
        *((market.held,) if job.in_time else ()),
        job,
        replace(job, name=SURVIVES, meaning=words, spare=1),
    )
    return _climbed([_Builder(market, step) for step in steps])


def thriftiest(market: Market) -> Rung:
    """The replicas that hold every request in time for the lowest price, on the fewest GPUs where no price is known."""
    return _Builder(market, market.job).thriftiest


def holding(result: Result) -> Counts:
    """Fewest equal replicas of each layout that together run every asked request at once, [layouts].

    ceil(requests / requests one replica runs at once)
    """
    return _sharing(result, share=np.where(result.legal, result.at_asked(result.runnable), 0))


def meeting(result: Result) -> Counts:
    """Fewest equal replicas of each layout that also meet the targets with their share of the requests, [layouts].

    The share that just meets them lies between two of the batches planned for, where times are taken to be linear.
    """
    grid, used = result.concurrency[: result.asked + 1], result.strain()
    timely = used[:, : grid.size] <= 1
    rows, last = np.arange(len(timely)), grid.size - 1 - timely[:, ::-1].argmax(axis=1)
    after = np.minimum(last + 1, grid.size - 1)
    step = np.where(after > last, used[rows, after] - used[rows, last], np.inf)
    share = grid[last] + np.clip((1 - used[rows, last]) / step, 0, 1) * (grid[after] - grid[last])
    share = np.minimum(share, result.at_asked(result.serving.running))
    replicas = _sharing(result, share=np.where(result.legal & timely.any(axis=1), share, 0))
    return np.where(result.does_job, 1, np.where(replicas == 1, 2, replicas))


def _sharing(result: Result, *, share: Array) -> Counts:
    """Replicas that have at most so many requests each, [layouts]; a share below one does not do."""
    asked = result.problem.workload.concurrency
    needed = np.ceil(asked / np.maximum(np.floor(share), 1)).astype(np.int64)
    return np.where(share >= 1, needed, MOST_REPLICAS)


@dataclass(frozen=True, eq=False)
class _Builder:
    """Makes one step of the ladder."""

    market: Market
    step: Purpose

    @property
    def result(self) -> Result:
        """All layouts."""
        return self.market.result

    @cached_property
    def does(self) -> Mask:
        """Layouts that do it, [layouts]."""
        return np.asarray(self.step.replicas < MOST_REPLICAS)

    @cached_property
    def bought(self) -> Counts:
        """GPUs to buy for all replicas of each layout, [layouts]."""
        return np.asarray(np.where(self.does, self.step.replicas + self.step.spare, 0) * self.result.bought)

    @cached_property
    def best(self) -> int | None:
        """Of the layouts with the fewest GPUs to buy: the cheapest, then the fewest replicas, then the best by the
        objective. None: nothing does it."""
        return self._simplest(self._thrifty(fewest(self.result, among=self.does, bought=self.bought)))

    @cached_property
    def cheapest(self) -> int | None:
        """The same by price first, then by GPUs to buy."""
        among = self._thrifty(preferred(self.result, among=self.does))
        return self._simplest(fewest(self.result, among=among, bought=self.bought))

    @cached_property
    def thriftiest(self) -> Rung:
        """The step with the cheapest layout."""
        return self.none() if self.cheapest is None else self.rung(self.cheapest)

    def _thrifty(self, among: Mask) -> Mask:
        """Of some layouts those whose replicas cost least; all of them where no price is known, [layouts]."""
        kinds = list(zip(self.result.gpus[among].tolist(), self.step.replicas[among].tolist(), strict=True))
        known = {kind: _cheapest(self.found(*kind)) for kind in dict.fromkeys(kinds)}
        least, kept = min(known.values(), default=inf), among.copy()
        kept[among] = [known[kind] == least for kind in kinds]
        return kept

    def _simplest(self, among: Mask) -> int | None:
        """Of some layouts one with the fewest replicas: the best by the objective."""
        if not among.any():
            return None
        replicas = self.step.replicas
        among = among & (replicas == replicas[among].min())
        rated = merits(self.result) if (replicas[among] == 1).all() else _merits(self.result, replicas)
        return first_by(rated, result=self.result, among=among, bought=self.bought)

    def found(self, gpus: int, replicas: int) -> tuple[Purchase, ...]:
        """Machines for so many replicas of so many GPUs, cheapest first."""
        return self.market.many(gpus, replicas, spare=self.step.spare > 0)

    def none(self) -> Rung:
        """That nothing does it."""
        return Rung(self.step.name, self.step.meaning, None, ())

    def rung(self, index: int) -> Rung:
        """The step with one layout, which does it."""
        plan, replicas = self.shared(index)
        offers = self.market.speeds.offers(plan, self.found(plan.gpus, replicas))
        kept = quick_enough(offers) if self.step.in_time else offers
        all_replicas = replicas + self.step.spare
        fewer = fewer_would_do(
            self.result, replicas=self.step.replicas, spare=self.step.spare, gpus=plan.gpus * all_replicas
        )
        return Rung(
            name=self.step.name,
            meaning=self.step.meaning,
            plan=plan,
            offers=kept,
            note=" ".join(
                filter(
                    None,
                    (
                        fewer,
                        _too_slow(offers) if self.step.in_time else "",
                        _in_step(kept, replicas=replicas) if self.step.spare else "",
                    ),
                )
            ),
            replicas=all_replicas,
            spare=self.step.spare,
            busy=self.result.problem.workload.concurrency / plan.result.problem.workload.concurrency,
            index=index,
            unsold="" if kept else TOO_SLOW if offers else NOT_SOLD if self.market.machines else UNLISTED,
        )

    def shared(self, index: int) -> tuple[Plan, int]:
        """A layout with its share of the requests, and the fewest replicas that do it."""
        estimate, known = int(self.step.replicas[index]), self.market.shares
        if estimate == 1:
            return self.result.plan(index), 1
        key = index, estimate, self.step.in_time
        if key not in known:
            known[key] = _fewest_replicas(
                self.result, index=index, estimate=estimate, in_time=self.step.in_time
            )
        return known[key]


def _fewest_replicas(result: Result, *, index: int, estimate: int, in_time: bool) -> tuple[Plan, int]:
    """A layout with its share of the requests, and the fewest replicas that do it: tried one by one around an estimate,
    and with shares that are planned for."""
    asked, planned = result.problem.workload.concurrency, result.concurrency[: result.asked + 1]
    counts = {estimate - 1, estimate, estimate + 1, *(-(-asked // planned)).tolist()}
    tried = {
        -(-asked // count): count for count in sorted(counts, reverse=True) if 1 < count <= 2 * estimate + 1
    }
    shares = np.array(sorted(tried))
    workload = result.problem.workload.model_copy(update={"concurrency": int(shares[-1])})
    found = judged(
        replace(result.problem, workload=workload), layout=result.layout[[index]], concurrency=shares
    )
    plans = [found.asking(batch).plan(0) for batch in reversed(range(shares.size))]
    does = (plan for plan in plans if plan.holds and (plan.in_time or not in_time))
    best = next(does, plans[-1])
    return best, tried[best.result.problem.workload.concurrency]


def _climbed(builders: Sequence[_Builder]) -> tuple[Rung, ...]:
    """All steps, the last one first: what does a step also does the one before, and is taken where it is smaller."""
    rungs: list[Rung] = []
    for builder in reversed(builders):
        indices = [builder.best, *(rung.index for rung in rungs[:1])]
        found = [builder.rung(index) for index in dict.fromkeys(indices) if index is not None]
        best = min(found, key=lambda rung: (rung.gpus, rung.price), default=builder.none())
        thrifty = [builder.thriftiest, *rungs[:1]]
        rungs.insert(0, _against(best, min(thrifty, key=lambda rung: rung.price)))
    return tuple(rungs)


def _against(rung: Rung, thrifty: Rung) -> Rung:
    """A step that says so where the cheapest way to do it costs less: its GPUs are then sold in other machines."""
    if thrifty.price >= rung.price:
        return rung
    more = f"{thrifty.size}, from {thrifty.price:,.2f} USD per hour in machines of {thrifty.purchases[0].instance.gpus}"
    words = (
        f"{'More GPUs cost' if (thrifty.gpus or 0) > (rung.gpus or 0) else 'Another cut costs'} less ({more})"
        if rung.purchases
        else f"Nobody in the catalogue sells that, but {more}"
    )
    return replace(rung, note=" ".join(filter(None, (rung.note, f"{words}."))))


def _cheapest(found: Iterable[Purchase]) -> float:
    return next((float(one.price) for one in found if one.price is not None), inf)


def _merits(result: Result, replicas: Counts) -> tuple[Array, ...]:
    """What the objective rates each layout by when so many replicas share the requests, [layouts] each."""
    if result.problem.objective == "throughput":
        return merits(result)
    asked, serving = result.problem.workload.concurrency, result.serving
    at = np.searchsorted(result.concurrency, -(-asked // replicas))
    rows = np.arange(at.size)
    if result.problem.objective == "latency":
        return tuple(1 / result.grid(time)[rows, at] for time in (serving.tpot, serving.ttft))
    return (replicas * result.grid(serving.tokens_per_s)[rows, at],)


def fewer_would_do(result: Result, *, replicas: Counts, spare: int = 0, gpus: int) -> str:
    """That fewer GPUs than those of an answer would do, and why they are not the answer; empty where none would.

    Args:
        replicas: of each layout that does it; `MOST_REPLICAS`: it does not, [layouts].
        spare: replicas more than that.
        gpus: of the answer, all replicas together.
    """
    does = replicas < MOST_REPLICAS
    every = np.where(does, replicas + spare, 0)
    total, bought = every * result.gpus, every * result.bought
    least = int(total[does].min())
    if least >= gpus:
        return ""
    among = preferred(result, among=does & (total == least))
    index = cast(int, first_by(_merits(result, np.where(does, replicas, 1)), result=result, among=among))
    fewer, gpu, copies = result.plan(index), result.problem.gpu, int(every[index])
    words = f"{counted(least, 'GPU')} would do ({replace(fewer.layout, replicas=copies)})"
    if bought[index] < bought[does & result.wise].min(initial=np.iinfo(np.int64).max):
        return f"{words}, but not be recommended. {why_unwise(fewer)}"
    *others, last = [gpu.node] if fewer.gpus > gpu.node else sizes_sold(gpu)
    sizes = f"{', '.join(map(str, others))} or {last}" if others else f"{last}"
    return f"{words}; sold in machines of {sizes}, they are {bought[index]}."


def _in_step(offers: Iterable[Offer], *, replicas: int) -> str:
    """How many replicas have to run where machines hold several, which are all lost together; empty where one spare is
    enough.

    Args:
        offers: machines with one more than do it.
        replicas: how many must go on.
    """
    sizes = dict.fromkeys(
        (offer.purchase.count, offer.purchase.instance.gpus, offer.purchase.instance.gpus // offer.plan.gpus)
        for offer in offers
    )
    running = {
        (machines, size): replicas_with_spare(replicas, machines=machines, held=held)
        for machines, size, held in sizes
    }
    more = [
        f"{total:,} in {machines:,} machines of {size}"
        for (machines, size), total in running.items()
        if total > replicas + 1
    ]
    if not more:
        return ""
    go_on = f"{counted(replicas, 'replica')} go{'es' * (replicas == 1)} on"
    return (
        f"That {go_on} whichever machine is lost takes more of them where one machine holds several: "
        f"{', '.join(more)}."
    )


def _too_slow(offers: Iterable[Offer]) -> str:
    """Machines on which the plan misses the targets, because their network is slower; empty where none is."""
    slow = [
        f"{offer.purchase.instance.provider} {offer.purchase.instance.name} "
        f"({(offer.purchase.instance.network or 0) / GB:g} GB/s per GPU: "
        f"{written_time(float(offer.plan.serving.tpot))} per token, "
        f"{written_time(float(offer.plan.serving.ttft))} to the first)"
        for offer in offers
        if not offer.plan.in_time
    ]
    return f"Left out, as their network is too slow for the targets: {', '.join(slow)}." if slow else ""
