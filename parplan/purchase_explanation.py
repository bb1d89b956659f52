"""How the smallest size, and what machines, tokens and requests cost, come about, with the user's own numbers."""

from collections.abc import Callable
from functools import partial

from parplan.cost import (
    MILLION,
    SECONDS_PER_HOUR,
    Bill,
    cost_per_million_tokens,
    cost_per_request,
    energy_per_token,
    replicas_held,
)
from parplan.hardware import Gpu
from parplan.instances import Napkin, Purchase, bought, gpus_filled, machines_with_spare
from parplan.ladder import SURVIVES, Rung
from parplan.problem import Problem
from parplan.products import Applied, Explanation, Factor, Given, Part, Term, put, single
from parplan.replicas import instances_needed
from parplan.units import Count, TokensPerSecond, Usd

COUNTED = {"output": "output tokens", "input": "prompt tokens", "total": "tokens"}
"""What the cost of a million is spread over."""


def napkin_gpus(problem: Problem, found: Napkin) -> Explanation:
    """GPUs that the weights and the cache of all requests fill, before anything else that a GPU must hold."""
    amounts = {"weights": found.weights, "cache": found.kv, "memory": problem.gpu.memory}
    given = {name: put(amount, unit="B") for name, amount in amounts.items()}
    rounded = Applied("whole GPUs", gpus_filled, given, "GPUs")
    usable = Factor(problem.gpu.memory, "B", divides=True)
    filled = {
        f"filled by {name}": Term((Factor(amount, "B"), usable))
        for name, amount in {"weights": found.weights, "KV cache of all requests": found.kv}.items()
    }
    rest = rounded.value - sum(term.value for term in filled.values())
    terms = filled | {"rounded up to whole GPUs": Term((Factor(rest, "GPUs", by=(rounded,)),))}
    parts = tuple(single(name, term, law=gpus_filled) for name, term in terms.items())
    return Explanation("GPUs", float(found.gpus), "GPUs", parts, problem.gpu.sources_of("memory"))


def _machines(law: Callable[..., Count], purchase: Purchase, *, replicas: int, gpus: int) -> Applied:
    given = {
        "replicas": put(replicas),
        "gpus": put(gpus),
        "instance": Given(purchase.instance.gpus, f"{purchase.instance.gpus:,}, {purchase.instance.name}"),
    }
    return Applied("machines it takes", law, given, "machines")


machines_needed = partial(_machines, instances_needed)
"""Machines that hold so many replicas, as `instances_needed` counts them."""
machines_spared = partial(_machines, machines_with_spare)
"""Machines that still do when any one of them is lost, as `machines_with_spare` counts them."""


def rung_machines(rung: Rung, purchase: Purchase, *, gpus: int) -> Applied:
    """Machines that a step of the ladder takes; where one may be lost, all replicas but the spare one go on.

    Args:
        rung: the step.
        purchase: a way to buy it.
        gpus: of one replica.
    """
    if rung.name == SURVIVES:
        return machines_spared(purchase, replicas=rung.replicas - 1, gpus=gpus)
    return machines_needed(purchase, replicas=rung.replicas, gpus=gpus)


def _each_hour(purchase: Purchase, *, price: Usd) -> tuple[Factor, ...]:
    count = purchase.count
    return (
        Factor(count, f"machine{'s' * (count != 1)}"),
        Factor(float(price) / count, "USD an hour"),
    )


def hourly_price(paid: Bill, *, needed: Applied) -> Explanation:
    """USD per hour of all machines.

    Args:
        paid: the machines.
        needed: how many of them it takes; more are bought where they are sold in lots.
    """
    count, each = _each_hour(paid.purchase, price=paid.cost.per_hour)
    lot = paid.purchase.instance.lot
    name = f"{paid.purchase.instance.name} of {paid.purchase.instance.provider}"
    name += f", sold in lots of {lot}" if lot > 1 else ""
    counted = Factor(count.value, count.unit, by=(needed,))
    part = single(name, Term((counted, each)), law=bought)
    return _spent("USD per hour", paid.cost.per_hour, paid, part)


def million_price(paid: Bill, *, kind: str) -> Explanation:
    """USD per million tokens of one kind, all of the bill spread over them.

    Args:
        paid: the machines.
        kind: output, input, total.
    """
    cost, work = paid.cost, paid.work
    shown, tokens = {
        "output": (cost.per_million_output, work.output),
        "input": (cost.per_million_input, work.prompt),
        "total": (cost.per_million_tokens, work.prompt + work.output),
    }[kind]
    product = Term(
        (
            *_each_hour(paid.purchase, price=cost.per_hour),
            Factor(SECONDS_PER_HOUR, "seconds an hour", divides=True),
            Factor(float(work.requests_per_s), work.named, divides=True),
            Factor(float(tokens), f"{COUNTED[kind]} each", divides=True),
            Factor(MILLION, COUNTED[kind]),
        )
    )
    name = f"the whole bill over {COUNTED[kind]}"
    return _spent("USD per million", shown, paid, single(name, product, law=cost_per_million_tokens))


def request_price(paid: Bill) -> Explanation:
    """USD per request."""
    product = Term(
        (
            *_each_hour(paid.purchase, price=paid.cost.per_hour),
            Factor(SECONDS_PER_HOUR, "seconds an hour", divides=True),
            Factor(float(paid.work.requests_per_s), paid.work.named, divides=True),
        )
    )
    part = single("the whole bill over requests", product, law=cost_per_request)
    return _spent("USD per request", paid.cost.per_request, paid, part)


def _spent(figure: str, value: Usd, paid: Bill, part: Part) -> Explanation:
    return Explanation(figure, float(value), "USD", (part,), paid.purchase.instance.sources)


def token_energy(gpu: Gpu, *, tdp: float, gpus: Count, rate: TokensPerSecond) -> Explanation:
    """Joules per output token, at most.

    Args:
        gpu: whose limit it is.
        tdp: the limit of one, watts.
        gpus: that work on it.
        rate: output tokens per second of all of them.
    """
    factors = (
        Factor(float(gpus), f"GPU{'s' * (gpus != 1)}"),
        Factor(tdp, "W"),
        Factor(float(rate), "output tokens/s", divides=True),
    )
    part = single("GPUs at their limit", Term(factors), law=energy_per_token)
    joules = float(energy_per_token(tdp * gpus, rate=rate))
    return Explanation("J per output token", joules, "J", (part,), gpu.sources_of("tdp"))


def replicas_on(paid: Bill, *, gpus: int) -> Explanation:
    """Replicas that run on bought machines.

    Args:
        paid: the machines, filled up.
        gpus: of one replica.
    """
    purchase = paid.purchase
    words = f"{purchase.count} × {purchase.instance.name} with {purchase.instance.gpus} GPUs"
    held = Applied(
        "replicas",
        replicas_held,
        {"purchase": Given(purchase, words), "gpus": put(gpus)},
        "replicas",
    )
    return Explanation("Replicas", float(paid.replicas), "replicas", (held.part,), purchase.instance.sources)
