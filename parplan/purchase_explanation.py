"""How the smallest size and the cost of a token come about, with the user's own numbers."""

from parplan.cost import MILLION, SECONDS_PER_HOUR, cost_per_million_tokens
from parplan.instances import Napkin, Purchase, napkin
from parplan.problem import Problem
from parplan.products import Explanation, Factor, Term, single
from parplan.units import TokensPerSecond, Usd


def napkin_gpus(problem: Problem, found: Napkin) -> Explanation:
    """GPUs that the weights and the cache of all requests fill, before anything else that a GPU must hold."""
    usable = Factor(problem.gpu.memory, "B", divides=True)
    amounts = {"weights": found.weights, "KV cache of all requests": found.kv}
    parts = tuple(
        single(f"filled by {name}", Term((Factor(amount, "B"), usable)), law=napkin)
        for name, amount in amounts.items()
    )
    sources = tuple(source for field, source in problem.gpu.sources.items() if "memory" in field)
    return Explanation("GPUs filled", sum(part.value for part in parts), "GPUs", parts, sources)


def token_cost(purchase: Purchase, *, price: Usd, rate: TokensPerSecond) -> Explanation:
    """USD per million output tokens of machines that are always busy.

    Args:
        purchase: the machines.
        price: USD per hour of all of them.
        rate: output tokens per second.
    """
    product = Term(
        (
            Factor(purchase.count, f"machine{'s' * (purchase.count != 1)}"),
            Factor(float(price) / purchase.count, "USD an hour"),
            Factor(SECONDS_PER_HOUR, "seconds an hour", divides=True),
            Factor(float(rate), "tokens/s", divides=True),
            Factor(MILLION, "tokens"),
        )
    )
    name = f"{purchase.instance.name} of {purchase.instance.provider}"
    part = single(name, product, law=cost_per_million_tokens)
    return Explanation("USD per million", product.value, "USD", (part,), purchase.instance.sources)
