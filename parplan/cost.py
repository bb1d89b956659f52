"""What tokens cost."""

from parplan.units import TokensPerSecond, Usd

SECONDS_PER_HOUR = 3600.0
MILLION = 1e6


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
