"""What tokens and requests cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from math import inf

from parplan.hardware import Instance
from parplan.instances import Purchase, bought, cheapest_first
from parplan.replicas import instances_needed
from parplan.units import Count, Number, TokensPerSecond, Usd

SECONDS_PER_HOUR = 3600.0
MILLION = 1e6
BEST_BEFORE = timedelta(days=30)
"""How long a price is taken to be fresh."""


def cost_per_million_tokens(price: Usd, *, rate: TokensPerSecond) -> Usd:
    """USD per million tokens of hardware that is paid by the hour and always busy.

        price / 3600 / rate x 10^6

    Args:
        price: USD per hour.
        rate: tokens per second; whatever is counted (output, input, total) is what is priced.

    >>> round(cost_per_million_tokens(36.0, rate=1000.0), 9)
    10.0
    """
    return price / SECONDS_PER_HOUR / rate * MILLION


def cost_per_request(price: Usd, *, rate: Number) -> Usd:
    """USD per request of hardware that is paid by the hour.

        price / 3600 / rate

    Args:
        price: USD per hour.
        rate: requests per second it is given.

    >>> round(cost_per_request(36.0, rate=2.0), 9)
    0.005
    """
    return price / SECONDS_PER_HOUR / rate


@dataclass(frozen=True)
class Cost:
    """One bill, spread over whatever is counted. The figures are the same money and do not add up."""

    per_hour: Usd
    per_request: Usd
    per_million_output: Usd
    """All of it over the output tokens alone."""
    per_million_input: Usd
    """All of it over the prompt tokens alone, cached ones too."""
    per_million_tokens: Usd
    """Prompt and output tokens alike."""


ANSWERED, COME, BORNE = "requests/s answered", "requests/s that come", "requests/s the replicas bear"
"""What a rate is that machines are paid for."""


@dataclass(frozen=True)
class Work:
    """What machines are given to do, for which they are paid."""

    requests_per_s: Number
    """Of all replicas on them together."""
    prompt: Count
    """Prompt tokens of a mean request."""
    output: Count
    """Output tokens of a mean request."""
    named: str = ANSWERED
    """What the rate is."""


def cost(price: Usd, *, work: Work) -> Cost:
    """What requests and tokens cost on hardware that is paid by the hour.

    Args:
        price: USD per hour of everything that is paid for, idle or not.
        work: what it is given to answer.

    >>> found = cost(36.0, work=Work(10.0, prompt=300, output=100))
    >>> [round(usd, 6) for usd in (found.per_million_output, found.per_million_input, found.per_million_tokens)]
    [10.0, 3.333333, 2.5]
    """
    rate, prompt, output = work.requests_per_s, work.prompt, work.output
    return Cost(
        per_hour=price,
        per_request=cost_per_request(price, rate=rate),
        per_million_output=cost_per_million_tokens(price, rate=rate * output),
        per_million_input=cost_per_million_tokens(price, rate=rate * prompt),
        per_million_tokens=cost_per_million_tokens(price, rate=rate * (prompt + output)),
    )


def energy_per_token(power: Number, *, rate: TokensPerSecond) -> Number:
    """Joules per token of GPUs that draw all they may: an upper bound for the GPUs, the rest of the machine left out.

        power / rate

    Args:
        power: TDP of all GPUs that work on it, watts.
        rate: tokens per second of all of them.

    >>> energy_per_token(1400.0, rate=700.0)
    2.0
    """
    return power / rate


def replicas_held(purchase: Purchase, *, gpus: int) -> int:
    """Replicas that bought machines hold: several in one where they fit, several machines for one where they do not.

    Args:
        purchase: enough machines for one replica.
        gpus: of one replica.
    """
    size = purchase.instance.gpus
    return purchase.count * (size // gpus) if size >= gpus else purchase.count // -(-gpus // size)


def bought_for(instance: Instance, *, replicas: int, gpus: int) -> Purchase:
    """As many machines of one kind as replicas need, several replicas in one machine where they fit.

    Args:
        instance: one machine.
        replicas: how many.
        gpus: of one replica.
    """
    return bought(instance, count=int(instances_needed(replicas, gpus=gpus, instance=instance.gpus)))


@dataclass(frozen=True)
class Bill:
    """Machines, the replicas that run on them, their work, and what it costs."""

    purchase: Purchase
    replicas: int
    work: Work
    cost: Cost


def bill(purchase: Purchase, *, replicas: int, work: Work) -> Bill | None:
    """What work costs on machines that were bought; None where no price is known.

    Args:
        purchase: all of them, paid for whether idle or not.
        replicas: that run on them.
        work: of all replicas together.
    """
    if purchase.price is None:
        return None
    return Bill(purchase, replicas, work, cost(purchase.price, work=work))


def bills(found: Iterable[Purchase], *, replicas: int, work: Work) -> tuple[Bill, ...]:
    """The same for several ways to buy; those without a price are left out."""
    return tuple(one for each in found if (one := bill(each, replicas=replicas, work=work)))


def purchases_for(found: Iterable[Purchase], *, replicas: int, gpus: int) -> tuple[Purchase, ...]:
    """As many of the same machines as replicas need, cheapest first, unpriced last."""
    return cheapest_first(bought_for(one.instance, replicas=replicas, gpus=gpus) for one in found)


def cheapest(bills: Iterable[Bill]) -> Bill | None:
    """The bill with the least to pay per request; None where there is none."""
    return min(bills, key=lambda bill: float(bill.cost.per_request), default=None)


def age(priced: date | None, *, today: date) -> float:
    """Days since a price was valid; infinite where nobody says when.

    >>> age(date(2026, 11, 1), today=date(2026, 11, 29)), age(None, today=date(2026, 11, 29))
    (28, inf)
    """
    return inf if priced is None else (today - priced).days


def stale(priced: date | None, *, today: date) -> bool:
    """Whether a price is older than `BEST_BEFORE`.

    >>> stale(date(2026, 10, 30), today=date(2026, 11, 29)), stale(date(2026, 10, 29), today=date(2026, 11, 29))
    (False, True)
    """
    return age(priced, today=today) > BEST_BEFORE.days
