"""The ladder of sizes: the fewest GPUs that load the model, hold the requests, meet the targets, survive a loss."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from parplan.choice import fewest, first_by, merits, preferred, smallest_index, why_unwise
from parplan.hardware import Instance
from parplan.instances import Purchase, purchases, sizes_sold, sold_gpus, surviving
from parplan.planner import Plan, Result
from parplan.units import Mask, counted

SURVIVES = "survives"
"""The step that goes on with one machine lost."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder of sizes: the fewest GPUs that do something."""

    name: str
    """loads, holds, meets targets, survives."""
    meaning: str
    plan: Plan | None
    """The best layout of that size. None: nothing within the GPU budget does."""
    purchases: tuple[Purchase, ...]
    """Ways to buy it, cheapest first."""
    note: str = ""
    """That fewer GPUs would do, and why more are bought; empty where none would."""
    replicas: int = 1
    """Copies of the layout that run; the plan is that of one of them with its share of the requests."""

    @property
    def gpus(self) -> int | None:
        """GPUs in use, all replicas together. None: nothing within the GPU budget does."""
        return None if self.plan is None else self.plan.gpus * self.replicas

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second at the asked concurrency; of several replicas one is spare and not counted."""
        return 0.0 if self.plan is None else float(self.plan.serving.tokens_per_s) * max(self.replicas - 1, 1)

    @property
    def requests_per_s(self) -> float:
        """Requests per second, likewise."""
        if self.plan is None:
            return 0.0
        return float(self.plan.serving.requests_per_s) * max(self.replicas - 1, 1)

    @property
    def layout(self) -> str:
        """The layout and how often it runs, in words; empty where nothing does."""
        if self.plan is None:
            return ""
        return f"{self.replicas} × {self.plan.layout}" if self.replicas > 1 else str(self.plan.layout)


def ladder(result: Result, *, instances: Iterable[Instance]) -> tuple[Rung, ...]:
    """The fewest GPUs that load the model, hold every request, meet the targets, and do so with one machine lost."""
    offers = tuple(instances)
    steps = [
        ("loads", "starts and holds at least one request of full length", result.legal),
        ("holds", "holds every asked request at full length", result.holds),
    ]
    if result.problem.workload.ttft or result.problem.workload.tpot:
        steps.append(("meets targets", "holds every request and meets the targets", result.does_job))
    rungs = [_rung(result, name, meaning, among, offers) for name, meaning, among in steps]
    return (*rungs, _surviving_rung(result, meaning=steps[-1][1], offers=offers))


def _rung(result: Result, name: str, meaning: str, among: Mask, offers: tuple[Instance, ...]) -> Rung:
    index = smallest_index(result, among=among)
    if index is None:
        return Rung(name, meaning, None, ())
    found = result.plan(index)
    bought = purchases(offers, gpu=result.problem.gpu, gpus=found.gpus)
    return Rung(name, meaning, found, bought, note=fewer_would_do(result, found, among=among))


def fewer_would_do(result: Result, found: Plan, *, among: Mask) -> str:
    """That fewer GPUs than those of a layout would do, and why they are not the answer; empty where none would.

    Args:
        among: what does it, [layouts].
    """
    least = int(result.gpus[among].min())
    if least >= found.gpus:
        return ""
    index = first_by(
        merits(result), result=result, among=preferred(result, among=among & (result.gpus == least))
    )
    fewer, gpu = result.plan(cast(int, index)), result.problem.gpu
    words = f"{counted(least, 'GPU')} would do ({fewer.layout})"
    if (sold := int(sold_gpus(least, gpu=gpu))) < sold_gpus(found.gpus, gpu=gpu):
        return f"{words}, but not be recommended. {why_unwise(fewer)}"
    *others, last = [gpu.node] if least > gpu.node else sizes_sold(gpu)
    machines = f"{', '.join(map(str, others))} or {last}" if others else f"{last}"
    return f"{words}; sold in machines of {machines}, they are {sold}."


def _surviving_rung(result: Result, *, meaning: str, offers: tuple[Instance, ...]) -> Rung:
    """The fewest GPUs in equal replicas that go on with every request when any one machine is lost.

    One replica more than hold the requests in time, each on machines of its own: many small ones may need fewer spare
    GPUs than two large ones. Speed is that of a replica with its share of the requests while one is missing.
    """
    workload, serving = result.problem.workload, result.serving
    replicas = result.concurrency[: result.asked + 1]
    share = -(-workload.concurrency // replicas)
    batch = np.searchsorted(result.concurrency, share)
    ttft, tpot, capacity = (
        result.grid(values)[:, batch] for values in (serving.ttft, serving.tpot, result.runnable)
    )
    enough = result.legal[:, None] & (capacity >= share) & workload.in_time(ttft=ttft, tpot=tpot)
    first = enough.argmax(axis=1)
    needed, at = replicas[first], batch[first]
    rate = needed * np.take_along_axis(result.grid(serving.tokens_per_s), at[:, None], axis=1)[:, 0]
    bought = (needed + 1) * result.bought
    among = fewest(result, among=np.asarray(enough.any(axis=1)), bought=bought)
    index = first_by([rate], result=result, among=among, bought=bought)
    meaning = f"{meaning}, in equal replicas, also while any one machine is lost"
    if index is None:
        return Rung(SURVIVES, meaning, None, ())
    on, found = int(needed[index]), result.asking(int(at[index])).plan(index)
    one = purchases(offers, gpu=result.problem.gpu, gpus=found.gpus)
    return Rung(SURVIVES, meaning, found, surviving(one, replicas=on, gpus=found.gpus), replicas=on + 1)
