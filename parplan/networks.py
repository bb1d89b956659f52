"""Machines that join nodes by another network than the GPU's usual one: the same layout at its speed there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parplan.hardware import Gpu
from parplan.instances import Purchase
from parplan.layout import Layout
from parplan.planner import Plan, judged_side_by_side


@dataclass(frozen=True)
class Offer:
    """Machines to buy, and the plan as it runs on them."""

    purchase: Purchase
    plan: Plan
    """At the speed of their own network, where it is used."""


def uses_network(purchase: Purchase, *, gpu: Gpu, gpus: int) -> bool:
    """Whether a replica on these machines speaks over the network: it fills several, and no rack joins them.

    Args:
        gpus: of one replica.
    """
    return gpus > purchase.instance.gpus and not gpu.node < gpus <= gpu.domain


@dataclass(frozen=True, eq=False)
class Speeds:
    """Plans over other networks than the GPU's usual one, each worked out once."""

    known: dict[tuple[Layout, int], Mapping[float, Plan]] = field(default_factory=dict)
    """By layout and requests: the plan by network, one-way bytes/s per GPU."""

    def offers(self, plan: Plan, found: Iterable[Purchase]) -> tuple[Offer, ...]:
        """Every purchase with the plan at the speed of its network.

        Args:
            plan: at the speed of the GPU's usual network.
            found: ways to buy enough for it, in the order they come back.
        """
        bought, problem = tuple(found), plan.result.problem
        networks = [
            one.instance.network if uses_network(one, gpu=problem.gpu, gpus=plan.gpus) else None
            for one in bought
        ]
        others = sorted({network for network in networks if network} - {problem.gpu.network})
        key = plan.layout, problem.workload.concurrency
        if others and key not in self.known:
            self.known[key] = plans_over(plan, networks=others)
        there = self.known.get(key, {})
        return tuple(
            Offer(one, there.get(network or 0.0, plan)) for one, network in zip(bought, networks, strict=True)
        )


def plans_over(plan: Plan, *, networks: Sequence[float]) -> Mapping[float, Plan]:
    """The same layout on the same GPUs with other networks between nodes, all in one pass.

    Args:
        networks: one-way bytes/s per GPU.
    """
    problem = plan.result.problem
    there = [
        replace(problem, gpu=problem.gpu.model_copy(update={"network": network})) for network in networks
    ]
    one = plan.result.layout[[plan.index]]
    results = judged_side_by_side(
        there, layouts=[one] * len(there), concurrency=np.array([problem.workload.concurrency])
    )
    return {network: result.plan(0) for network, result in zip(networks, results, strict=True)}


def quick_enough(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Those on which the plan still meets the targets."""
    return tuple(offer for offer in offers if offer.plan.in_time)
