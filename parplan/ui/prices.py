"""Prices as people read them: machines, the day a price was valid, and whether it is still worth something."""

from collections.abc import Iterable
from datetime import date

from parplan.cost import BEST_BEFORE, age, stale
from parplan.instances import Purchase


def machines(purchase: Purchase) -> str:
    """What is bought, in words."""
    return f"{purchase.count} × {purchase.instance.name}, {purchase.instance.provider}"


def price_day(priced: date | None, *, today: date) -> str:
    """The day a price was valid, and its age once it is stale.

    >>> price_day(date(2026, 9, 19), today=date(2026, 11, 29)), price_day(date(2026, 11, 1), today=date(2026, 11, 29))
    ('2026-09-19, 71 days old', '2026-11-01')
    """
    if priced is None:
        return "day not known"
    return f"{priced}, {age(priced, today=today):.0f} days old" if stale(priced, today=today) else str(priced)


def worth(days: Iterable[date | None], *, today: date) -> str:
    """What prices of these days are worth, as a sentence; empty where all are fresh.

    >>> worth([date(2026, 11, 1)], today=date(2026, 11, 29))
    ''
    """
    priced = list(days)
    old = sum(stale(day, today=today) for day in priced)
    if not old:
        return ""
    which = "All" if old == len(priced) else f"{old} of {len(priced)}"
    return f"{which} prices are older than {BEST_BEFORE.days} days: ask again before you buy."
