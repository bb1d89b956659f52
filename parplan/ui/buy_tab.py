"""What to buy: the ladder of sizes, machines that have them, and the textbook estimate beside it."""

from collections.abc import Sequence
from datetime import date

import pandas as pd
import streamlit as st

from parplan.cost import cost_per_million_tokens
from parplan.instances import Purchase
from parplan.planner import Plan
from parplan.scenario import Answer
from parplan.ui.prices import worth
from parplan.ui.words import cited, plain, sentence

NOTHING = "nothing within the GPUs one replica may use"


def show(answer: Answer) -> None:
    """One box per rung, from the smallest that loads upwards."""
    gpu = answer.result.problem.gpu.label
    for rung in answer.advice.ladder:
        with st.container(border=True):
            size = f"{rung.plan.gpus} × {gpu}, {rung.plan.layout}" if rung.plan else NOTHING
            st.markdown(f"**{plain(sentence(rung.name))}: {plain(size)}**", help=plain(rung.meaning))
            if rung.plan:
                _offers(rung.plan, rung.purchases, key=f"offers_{rung.name}")
    st.markdown("**On a napkin**")
    st.text(answer.advice.napkin_note)


def _offers(found: Plan, purchases: Sequence[Purchase], *, key: str) -> None:
    if not purchases:
        st.text("No machine in the catalogue has so many of this GPU.")
        return
    st.dataframe(
        pd.DataFrame([_offer(found, purchase) for purchase in purchases]),
        key=key,
        hide_index=True,
        height=215,
        column_config={
            "USD per hour": st.column_config.NumberColumn(format="%.2f"),
            "USD per million tokens": st.column_config.NumberColumn(
                format="%.2f",
                help="Output tokens at the asked concurrency; always busy; unused GPUs are paid for too.",
            ),
        },
        alt=f"Machines with {found.gpus} GPUs and more, cheapest first ({key})",
    )
    days = [purchase.instance.priced for purchase in purchases if purchase.price is not None]
    if warning := worth(days, today=date.today()):
        st.caption(warning)


def _offer(found: Plan, purchase: Purchase) -> dict[str, object]:
    instance, price, rate = purchase.instance, purchase.price, found.serving.tokens_per_s
    return {
        "Provider": instance.provider,
        "Instance": f"{purchase.count} × {instance.name}",
        "GPUs": purchase.gpus,
        "USD per hour": price,
        "USD per million tokens": None if price is None else float(cost_per_million_tokens(price, rate=rate)),
        "Price of": instance.priced,
        "Region": instance.region,
        "Source": cited(instance.sources),
    }
