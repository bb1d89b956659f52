"""Where the ranks of a replica sit: in which order an engine numbers them, and how many of a group share a fast domain.

Nodes and fast domains are filled in the order of the numbers, all with the same number of ranks, so that no group is
cut unevenly: of the innermost cuts all ranks sit together, of the next as many as divide it and have room, of those
further out one. Shapes: layouts come as [layouts, 1]; results broadcast with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np

from parplan.hardware import Gpu, Hardware
from parplan.layout import Layout
from parplan.units import Count

Order: TypeAlias = tuple[str, ...]
"""Cuts of GPUs (`layout.GPU_CUTS`) as their ranks are numbered, from neighbours outwards."""
PLAIN: Order = ("tensor", "data", "context", "pipeline")
"""Of engines without an order of their own here. TensorRT-LLM's: its data ranks are its tensor ranks, "tp" inside "cp"
inside "pp" (tensorrt_llm/mapping.py, `Mapping`; 05ebebb, read 2026-11-30). Assumed of the ideal."""
NUMBERED: Mapping[str, Order] = {
    "vllm": ("tensor", "context", "pipeline", "data"),
    "sglang": ("tensor", "context", "data", "pipeline"),
}
"""Family of an engine -> its own order.

vLLM starts all stages of a data rank before the next ("ExternalDP x DP x PP x TP", with prefill context between the
last two) and spreads experts over the data and tensor ranks of a stage (vllm/distributed/parallel_state.py,
`initialize_model_parallel`; 0c175ae, read 2026-11-30). SGLang's data and context ranks are parts of its tensor ranks,
which lie inside a stage (sglang/srt/distributed/parallel_state.py, `initialize_model_parallel`; 0005973), and its
nodes hold whole stages or equal parts of one (srt/entrypoints/engine.py, `_calculate_rank_ranges`; both read
2026-11-30).
"""


def numbering(family: str) -> Order:
    """The order in which an engine numbers ranks, from neighbours outwards.

    >>> numbering("vllm")
    ('tensor', 'context', 'pipeline', 'data')
    """
    return NUMBERED.get(family, PLAIN)


def fast_domain(gpu: Gpu) -> int:
    """GPUs of one fast domain (of one node, for PCIe)."""
    return gpu.node if gpu.fabric == "pcie" else gpu.domain


def largest_divisor(size: Count, *, most: Count) -> Any:
    """The largest divisor of a whole number up to a limit.

    Args:
        most: the limit; at least 1.

    >>> largest_divisor(np.array([6, 12, 7]), most=4).tolist()
    [3, 4, 1]
    """
    held = np.array(np.minimum(size, most))
    uneven = size % held > 0
    if np.any(uneven):
        whole, limit = (np.broadcast_to(count, held.shape)[uneven][:, None] for count in (size, most))
        tried = np.arange(1, limit.max() + 1)
        held[uneven] = np.where((whole % tried == 0) & (tried <= limit), tried, 1).max(axis=-1)
    return held


def seated_together(sizes: Mapping[str, Count], *, most: Count) -> dict[str, Any]:
    """How many ranks of every cut sit together where so many have room, the innermost cut first.

    Args:
        sizes: ranks of every cut, from neighbours outwards.
        most: ranks there is room for.

    >>> {cut: int(held) for cut, held in seated_together({"tensor": 2, "pipeline": 3, "data": 4}, most=8).items()}
    {'tensor': 2, 'pipeline': 3, 'data': 1}
    """
    held, room = dict[str, Any](), np.asarray(most)
    for cut, size in sizes.items():
        held[cut] = largest_divisor(size, most=room)
        room = np.where(held[cut] == size, room // size, 1)
    return held


@dataclass(frozen=True)
class Group:
    """Ranks that speak with each other."""

    ranks: Count
    """All of them."""
    near: Count
    """Those in any one of the fast domains they reach, equally many in each."""

    @cached_property
    def domains(self) -> Any:
        """Fast domains they reach."""
        return self.ranks // self.near


@dataclass(frozen=True)
class Seating:
    """The ranks of one replica of a layout on nodes of a type of GPU, as an engine numbers them."""

    layout: Layout
    gpu: Hardware
    order: Order

    @cached_property
    def _outer(self) -> dict[str, Any]:
        """Ranks of every cut that share the larger one of node and fast domain."""
        sizes = {cut: getattr(self.layout, cut) for cut in self.order}
        return seated_together(sizes, most=self.gpu.each(lambda one: max(one.node, fast_domain(one))))

    @cached_property
    def _inner(self) -> dict[str, Any]:
        """Ranks of every cut that share the smaller one inside it."""
        return seated_together(self._outer, most=self.gpu.each(lambda one: min(one.node, fast_domain(one))))

    @cached_property
    def near(self) -> dict[str, Any]:
        """Ranks of every cut that share a fast domain."""
        wide = self.gpu.each(lambda one: fast_domain(one) >= one.node)
        if np.all(wide):
            return self._outer
        return {cut: np.where(wide, self._outer[cut], self._inner[cut]) for cut in self.order}

    @property
    def box(self) -> Any:
        """GPUs of the replica in every fast domain it reaches."""
        return prod(self.near.values())

    @property
    def here(self) -> Any:
        """GPUs of the replica in every node.

        >>> eight = Gpu.model_construct(fabric="nvlink", domain=8, node=8)
        >>> [int(Seating(one, eight, PLAIN).here) for one in (Layout(tensor=4, pipeline=3), Layout(tensor=16))]
        [4, 8]
        """
        wide = self.gpu.each(lambda one: fast_domain(one) > one.node)
        return np.where(wide, prod(self._inner.values()), prod(self._outer.values()))

    @property
    def nodes(self) -> Any:
        """Nodes of one replica: the fewest that are filled evenly."""
        return self.layout.gpus // self.here

    def group(self, *cuts: str) -> Group:
        """The ranks that differ in nothing but some cuts."""
        return Group(
            ranks=prod(getattr(self.layout, cut) for cut in cuts), near=prod(self.near[cut] for cut in cuts)
        )

    def sequence_group(self) -> Group:
        """The ranks that cut a sequence's cache between them: neighbours among the tensor ranks."""
        ranks = self.layout.decode_context
        return Group(ranks=ranks, near=np.gcd(ranks, self.near["tensor"]))
