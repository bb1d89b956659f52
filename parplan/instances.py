"""The smallest thing to buy: the textbook napkin, and real instances for a number of GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import numpy as np

from parplan.formats import Precision
from parplan.hardware import Gpu, Instance
from parplan.provenance import Source
from parplan.replicas import instances_needed
from parplan.transformer import Transformer
from parplan.units import Bytes, Count, Number, Usd
from parplan.work import cache_bytes
from parplan.workload import Workload


def weight_bytes(transformer: Transformer, precision: Precision) -> Bytes:
    """All weights once, scales included."""
    return sum(
        count * precision.bytes_per_parameter(component)
        for component, count in transformer.components.items()
    )


def sequence_bytes(transformer: Transformer, precision: Precision, *, length: Count) -> Bytes:
    """Cache of one sequence of `length` tokens over all layers, as the model defines it, held once."""
    return sum(
        count * cache_bytes(block.mixer, precision, length=length)
        for count, block in transformer.kinds
        if block.mixer
    )


def next_power_of_two(number: float) -> int:
    """The smallest of 1, 2, 4, 8, ... that is not below a number.

    >>> next_power_of_two(4.2), next_power_of_two(8)
    (8, 8)
    """
    return 1 << int(np.ceil(np.log2(max(number, 1))))


def sizes_sold(gpu: Gpu) -> list[int]:
    """GPUs of the machines a GPU is taken to be sold in: 1, 2, 4, ... up to a node.

    >>> sizes_sold(Gpu.model_construct(node=8))
    [1, 2, 4, 8]
    """
    return sorted({*(1 << power for power in range(gpu.node.bit_length())), gpu.node})


def sold_gpus(gpus: Count, *, gpu: Gpu) -> Count:
    """GPUs one has to buy to use so many: 1, 2, 4, 8 up to a node, whole nodes beyond.

    >>> h100 = Gpu.model_construct(node=8)
    >>> sold_gpus(np.array([1, 3, 6, 8, 9, 17]), gpu=h100).tolist()
    [1, 4, 8, 8, 16, 24]
    """
    part = 2 ** np.ceil(np.log2(gpus)).astype(np.int64)
    return np.where(np.asarray(gpus) <= gpu.node, np.minimum(part, gpu.node), -(-gpus // gpu.node) * gpu.node)


@dataclass(frozen=True)
class Napkin:
    """The estimate everybody makes first."""

    weights: float
    """Bytes of all weights."""
    kv: float
    """Bytes of the cache of every asked request at full length."""
    gpus: int
    """GPUs those bytes fill, rounded up."""


def gpus_filled(weights: Bytes, *, cache: Bytes, memory: Bytes) -> Count:
    """GPUs that weights and cache fill, rounded up to whole ones.

        ceil((weights + cache) / memory)

    Args:
        weights: all of them, once.
        cache: of every asked request at full length, held once.
        memory: of one GPU, all of it.

    >>> float(gpus_filled(70e9, cache=20e9, memory=80e9))
    2.0
    """
    return np.ceil((weights + cache) / memory)


def napkin(transformer: Transformer, precision: Precision, *, gpu: Gpu, workload: Workload) -> Napkin:
    """Parameters x bytes plus KV cache over the memory of one GPU, see `gpus_filled`: no layout does it with fewer.

    It forgets activations, overheads, what an engine refuses to use, and everything that is repeated on several
    GPUs, and which cuts a model allows; the full answer is shown beside it.
    """
    weights = float(weight_bytes(transformer, precision))
    kv = float(workload.concurrency * sequence_bytes(transformer, precision, length=workload.length))
    return Napkin(weights=weights, kv=kv, gpus=int(gpus_filled(weights, cache=kv, memory=gpu.memory)))


@dataclass(frozen=True)
class Purchase:
    """So many of one instance."""

    instance: Instance
    count: int

    @property
    def gpus(self) -> int:
        """GPUs paid for."""
        return self.count * self.instance.gpus

    @property
    def price(self) -> float | None:
        """USD per hour for all of them; None where no price is known."""
        return None if self.instance.price is None else self.count * self.instance.price


def bought(instance: Instance, *, count: int) -> Purchase:
    """At least so many of one machine, in the lots it is sold in.

    >>> tray = Instance.model_construct(lot=18)
    >>> bought(tray, count=2).count, bought(tray, count=19).count
    (18, 36)
    """
    return Purchase(instance, -(-count // instance.lot) * instance.lot)


def purchases(instances: Iterable[Instance], *, gpu: Gpu, gpus: int) -> tuple[Purchase, ...]:
    """Every way to buy at least `gpus` GPUs of one type, cheapest first, unpriced last.

    An instance must hold the whole layout, or a whole node of it together with a network between instances. Inside
    one rack that the fast link joins as a whole (NVL72) no network is needed.
    """
    enough, one_rack = min(gpus, gpu.node), gpu.node < gpus <= gpu.domain
    found = [
        bought(instance, count=-(-gpus // instance.gpus))
        for instance in instances
        if instance.gpu == gpu.name
        and instance.gpus >= enough
        and (instance.gpus >= gpus or instance.network is not None or one_rack)
    ]
    return cheapest_first(found)


def cheapest_first(found: Iterable[Purchase]) -> tuple[Purchase, ...]:
    """Purchases by price, then by size; unpriced last."""
    return tuple(sorted(found, key=lambda p: (p.price is None, p.price or 0.0, p.gpus, p.instance.name)))


def machines_with_spare(replicas: Count, *, gpus: Count, instance: Count) -> Count:
    """Machines that still run so many replicas when any one of them is lost, without moving or restarting any, where as
    many run on them as `replicas_with_spare` says.

    A lost machine takes all the replicas it holds with it, or the one replica it is a part of.

    Args:
        replicas: how many must go on.
        gpus: of one replica.
        instance: GPUs of one machine.

    >>> float(machines_with_spare(3, gpus=4, instance=8)), float(machines_with_spare(1, gpus=16, instance=8))
    (3.0, 4.0)
    """
    lost = np.ceil(np.divide(gpus, instance))
    return instances_needed(replicas, gpus=gpus, instance=instance) + lost


def replicas_with_spare(replicas: int, *, machines: int, held: int) -> int:
    """Fewest replicas, spread evenly over machines, of which so many are left when any one of the machines is lost.

        ceil(replicas x machines / (machines - 1))

    Args:
        replicas: how many must go on.
        machines: as many as `machines_with_spare` says, or more.
        held: replicas that one of them holds; 0: one replica is spread over several of them.

    >>> replicas_with_spare(2, machines=2, held=4), replicas_with_spare(2, machines=3, held=1)
    (4, 3)
    """
    return -(-replicas * machines // (machines - 1)) if held else replicas + 1


def surviving(found: Iterable[Purchase], *, replicas: int, gpus: int) -> tuple[Purchase, ...]:
    """As many of the same machines as still run so many replicas when any one machine is lost, cheapest first."""
    return cheapest_first(
        bought(one.instance, count=int(machines_with_spare(replicas, gpus=gpus, instance=one.instance.gpus)))
        for one in found
    )


YOURS = "yours"
"""The provider of machines at a price of one's own."""


def own_machines(gpu: Gpu, *, gpu_hour: Usd, today: date) -> tuple[Instance, ...]:
    """Machines of 1, 2, 4, ... GPUs up to a node, for whoever has a price of one's own or a GPU nobody lists.

    Args:
        gpu: what is in them; its network joins whole nodes, and what a part of one has is not known.
        gpu_hour: USD per GPU and hour. 0: not known.
        today: when the user said so.
    """
    source = Source(text="your own price" if gpu_hour else "your own hardware, no price given", read=today)
    return tuple(
        Instance(
            provider=YOURS,
            name=f"{size}-GPU machine",
            gpu=gpu.name,
            gpus=size,
            network=gpu.network if size == gpu.node else None,
            price=size * float(gpu_hour) or None,
            priced=today if gpu_hour else None,
            sources=(source,),
        )
        for size in sizes_sold(gpu)
    )


def discounted(instances: Iterable[Instance], *, discount: Number) -> tuple[Instance, ...]:
    """Instances with a share taken off every price.

    Args:
        instances: at list prices.
        discount: 0 to 1.
    """
    if not discount:
        return tuple(instances)
    return tuple(
        one if one.price is None else one.model_copy(update={"price": one.price * (1 - discount)})
        for one in instances
    )
