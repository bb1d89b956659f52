"""The smallest thing to buy: the textbook napkin, and real instances for a number of GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from parplan.formats import Precision
from parplan.hardware import Gpu, Instance
from parplan.transformer import Transformer
from parplan.units import Bytes, Count
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
    layers = zip(transformer.blocks, transformer.counts, strict=True)
    return sum(
        count * cache_bytes(block.mixer, precision, length=length) for block, count in layers if block.mixer
    )


def next_power_of_two(number: float) -> int:
    """The smallest of 1, 2, 4, 8, ... that is not below a number.

    >>> next_power_of_two(4.2), next_power_of_two(8)
    (8, 8)
    """
    return 1 << int(np.ceil(np.log2(max(number, 1))))


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
    """GPUs those bytes fill, rounded up to 1, 2, 4, 8, 16, ..."""


def napkin(transformer: Transformer, precision: Precision, *, gpu: Gpu, workload: Workload) -> Napkin:
    """Parameters x bytes plus KV cache over the memory of one GPU, rounded up to the next size sold.

    It forgets activations, overheads, what an engine refuses to use, and everything that is repeated on several
    GPUs; the full answer is shown beside it.
    """
    weights = float(weight_bytes(transformer, precision))
    kv = float(workload.concurrency * sequence_bytes(transformer, precision, length=workload.length))
    return Napkin(weights=weights, kv=kv, gpus=next_power_of_two((weights + kv) / gpu.memory))


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


def purchases(instances: Iterable[Instance], *, gpu: Gpu, gpus: int) -> tuple[Purchase, ...]:
    """Every way to buy at least `gpus` GPUs of one type, cheapest first, unpriced last.

    An instance must hold the whole layout, or a whole node of it together with a network between instances.
    """
    enough = min(gpus, gpu.node)
    found = [
        Purchase(instance, -(-gpus // instance.gpus))
        for instance in instances
        if instance.gpu == gpu.name
        and instance.gpus >= enough
        and (instance.gpus >= gpus or instance.network is not None)
    ]
    return tuple(sorted(found, key=lambda p: (p.price is None, p.price or 0.0, p.gpus, p.instance.name)))
