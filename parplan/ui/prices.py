"""Prices as people read them: machines, the day a price was valid, and whether it is still worth something."""

from collections.abc import Iterable
from datetime import date
from functools import partial

import streamlit as st

from parplan.cost import BEST_BEFORE, Bill, Cost, age, stale
from parplan.instances import Purchase
from parplan.products import Applied
from parplan.purchase_explanation import hourly_price, million_price, request_price
from parplan.scenario import Scenario, price_terms
from parplan.ui import explain

COLUMNS = {
    "USD/hour": st.column_config.NumberColumn(format="%.2f", width=80, help="Of all the machines of the row"),
    "USD/M output": st.column_config.NumberColumn(
        format="%.2f", width=100, help="USD per million output tokens: all of the cost over them"
    ),
    "USD/M input": st.column_config.NumberColumn(
        format="%.2f", help="USD per million prompt tokens: all of the cost over them"
    ),
    "USD/M total": st.column_config.NumberColumn(
        format="%.2f", help="USD per million tokens, prompt and output alike"
    ),
    "USD/request": st.column_config.NumberColumn(format="%.5f"),
    "Price of": st.column_config.TextColumn(
        width=115, help="The day the price was valid, and its age in days once it is older than 30"
    ),
}
"""What machines and their work cost, in every table."""
SPREAD = (
    "The prices per million output, input and total tokens each contain the whole bill: they do not add up."
)
"""What has to be said wherever more than one of them is shown."""


def costs(spent: Cost) -> dict[str, object]:
    """A bill's figures by column."""
    return {
        "USD/hour": spent.per_hour,
        "USD/M output": spent.per_million_output,
        "USD/M input": spent.per_million_input,
        "USD/M total": spent.per_million_tokens,
        "USD/request": spent.per_request,
    }


def explained(paid: Bill, *, needed: Applied, scenario: Scenario) -> explain.Figures:
    """How the figures of a bill are made, by column.

    Args:
        paid: the bill.
        needed: how many machines its work takes.
        scenario: whose prices they are.
    """
    made = {
        "USD/hour": partial(hourly_price, paid, needed=needed),
        "USD/M output": partial(million_price, paid, kind="output"),
        "USD/M input": partial(million_price, paid, kind="input"),
        "USD/M total": partial(million_price, paid, kind="total"),
        "USD/request": partial(request_price, paid),
    }
    day = price_day(paid.purchase.instance.priced, today=date.today())
    note = f"{price_terms(scenario)} Price of: {day}. What stands idle is paid for too."
    return {name: explain.Figure(one, note) for name, one in made.items()}


def machines(purchase: Purchase) -> str:
    """What is bought, in words."""
    return f"{purchase.count} × {purchase.instance.name}, {purchase.instance.provider}"


def price_day(priced: date | None, *, today: date) -> str:
    """The day a price was valid, and its age once it is stale.

    >>> price_day(date(2026, 9, 19), today=date(2026, 11, 29)), price_day(date(2026, 11, 1), today=date(2026, 11, 29))
    ('2026-09-19, 71 d', '2026-11-01')
    """
    if priced is None:
        return "day not known"
    return f"{priced}, {age(priced, today=today):.0f} d" if stale(priced, today=today) else str(priced)


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
