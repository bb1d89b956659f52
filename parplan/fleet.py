"""How many GPUs the replicas for a rate take, layout by layout: what decides where a rate is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parplan.hardware import Gpu
from parplan.instances import sizes_sold
from parplan.layout import Layout
from parplan.load import KNEE_LEAST, Queue, knee_rate, load, prompts_per_step, queue
from parplan.replicas import instances_needed, replicas_needed
from parplan.serving import Serving
from parplan.units import Array, Count, Counts, Mask, Number
from parplan.workload import Workload

VARIATION = 1.0
"""Standard deviation over mean of the output length: exponential. Lengths that are more alike wait less."""
LATE = 0.05
"""Share of requests whose first token may come later than its target."""
POINTS = 96
"""Rates a replica is looked at."""
HIGHEST = 0.995
"""Share of the sustained rate where these end; at that rate itself the wait has no end."""
AT_ONCE = 16
"""Layouts worked out together: enough for numpy, few enough that the bounds of the others may spare them."""


def rates(sustained: Number) -> Array:
    """Rates from next to no traffic to next to all that a replica sustains, [..., rates].

    >>> rates(96.0)[[0, -1]].tolist()
    [0.995, 95.52]
    """
    return np.asarray(sustained)[..., None] * (np.linspace(0, HIGHEST, POINTS + 1)[1:])


def bearable_rate(one: Queue, *, workload: Workload, packed: Number) -> Number:
    """Requests per second of one replica up to which few wait for admission and the targets are met under load.

        the knee, or the last of `rates` at which 95 of 100 have their first token in time and the mean time per token
        is within its target, if that is less; 0: there is none

    Args:
        one: the replica in every state, [...].
        workload: the targets.
        packed: prompts one step takes.
    """
    knee = np.asarray(knee_rate(one, variation=VARIATION))
    if not (workload.ttft or workload.tpot):
        return knee[()]
    every = rates(one.sustained)
    low, high = np.full(knee.shape, -1), np.full(knee.shape, POINTS - 1)
    while np.any(low < high):
        middle = (low + high + 1) // 2
        rate = np.take_along_axis(every, middle[..., None], axis=-1)[..., 0]
        found = load(rate, queue=one, variation=VARIATION, packed=packed)
        late = found.later(workload.ttft) > LATE if workload.ttft else np.zeros(knee.shape, dtype=bool)
        slow = late | (np.asarray(found.tpot) > (workload.tpot or np.inf))
        low, high = np.where(slow, low, middle), np.where(slow, middle - 1, high)
    last = np.take_along_axis(every, np.maximum(low, 0)[..., None], axis=-1)[..., 0]
    return np.where(low < 0, 0.0, np.minimum(knee, last))[()]


def fleet_gpus(replicas: Number, *, gpus: Counts, gpu: Gpu) -> Array:
    """GPUs to buy for so many replicas, in machines of one size: the size of which they take the fewest.

    Args:
        replicas: how many; infinite: no number does.
        gpus: of one replica.
        gpu: sold in machines of 1, 2, 4, ... up to a node; replicas larger than a node take whole nodes.

    >>> h100 = Gpu.model_construct(node=8)
    >>> fleet_gpus(np.array([5.0, 3.0, 2.0]), gpus=np.array([2, 3, 16]), gpu=h100).tolist()
    [10.0, 12.0, 32.0]
    """
    sizes = np.array(sizes_sold(gpu), dtype=float)[:, None]
    within = np.where(sizes >= np.minimum(gpus, gpu.node), sizes, np.inf)
    fits = np.isfinite(within) & np.isfinite(replicas)
    counts = instances_needed(
        np.where(np.isfinite(replicas), replicas, 1.0), gpus=gpus, instance=np.where(fits, within, gpu.node)
    )
    return np.where(fits, counts * np.where(fits, within, 1.0), np.inf).min(axis=0)


@dataclass(eq=False)
class Fleets:
    """Replicas of each layout that bear a rate; each is worked out when it matters, and kept."""

    rate: float
    """Requests per second at the busiest time, over all replicas."""
    gpu: Gpu
    workload: Workload
    layout: Layout
    """[layouts]"""
    serving: Callable[[Counts], Serving]
    """Of some layouts, [some, batches]."""
    sustained: Array
    """Requests per second a replica answers with all slots taken, [layouts]."""

    @cached_property
    def gpus(self) -> Counts:
        """Of one replica, [layouts]."""
        return np.broadcast_to(self.layout.gpus, self.layout.shape)

    @cached_property
    def replicas(self) -> Array:
        """Fewest that bear the rate, [layouts]; infinite: no number does; not a number: not worked out yet."""
        return np.full(self.layout.shape, np.nan)

    def sizes(self, *, among: Mask, within: float) -> Array:
        """GPUs to buy, [layouts]: of those allowed exactly, as far as they may be the smallest or near it; at least so
        many where that is clearly larger; infinite for others, and where no number of replicas bears the rate.

        Args:
            among: layouts allowed, [layouts].
            within: relative difference to the smallest that counts as near.
        """
        least = np.full(self.layout.shape, np.inf)
        allowed = np.flatnonzero(among)
        fewest = replicas_needed(self.rate, sustained=self.sustained[allowed], peak=1.0, ceiling=1.0)
        least[allowed] = fleet_gpus(fewest, gpus=self.gpus[allowed], gpu=self.gpu)
        order = allowed[np.argsort(least[allowed], kind="stable")]
        while True:
            known = ~np.isnan(self.replicas[order])
            exact = fleet_gpus(self.replicas[order[known]], gpus=self.gpus[order[known]], gpu=self.gpu)
            reach = exact.min(initial=np.inf) * (1 + within)
            open_ones = order[~known][least[order[~known]] <= reach]
            if not open_ones.size:
                least[order[known]] = exact
                return least
            self._work_out(open_ones[:AT_ONCE])

    def _work_out(self, some: Counts) -> None:
        """Replicas of some layouts."""
        serving = self.serving(some)
        one, packed = queue(serving, layout=self.layout[some]), prompts_per_step(serving)
        bears = np.asarray(bearable_rate(one, workload=self.workload, packed=packed))
        ceiling = np.where(bears > 0, bears / self.sustained[some], KNEE_LEAST)
        needed = replicas_needed(self.rate, sustained=self.sustained[some], peak=1.0, ceiling=ceiling)
        self.replicas[some] = np.where(bears > 0, needed, np.inf)

    def of(self, index: int) -> Count:
        """Fewest replicas of one layout that bear the rate; infinite: no number does."""
        if np.isnan(self.replicas[index]):
            self._work_out(np.array([index]))
        return float(self.replicas[index])

    def size(self, index: int) -> float:
        """GPUs to buy for them."""
        replicas, gpus = np.array([self.of(index)]), self.gpus[[index]]
        return float(fleet_gpus(replicas, gpus=gpus, gpu=self.gpu)[0])
