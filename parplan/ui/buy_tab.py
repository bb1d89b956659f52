"""What to buy: the ladder of sizes, machines that have them, and the textbook estimate beside it."""

from collections.abc import Sequence
from datetime import date

import pandas as pd
import streamlit as st

from parplan.cost import cost_per_million_tokens, energy_per_token
from parplan.instances import Purchase
from parplan.ladder import Rung
from parplan.scenario import Answer, price_terms
from parplan.ui.prices import price_day, worth
from parplan.ui.words import cited, counted, plain, sentence, significant
from parplan.units import GB

NOTHING = "nothing within the GPUs one replica may use"
TITLES = {
    "loads": "Starts",
    "holds": "Holds every asked request",
    "meets targets": "Holds them and meets the targets",
    "survives": "Goes on while any one machine is lost",
}
"""Rungs of the ladder, in words."""
COLUMNS = {
    "USD per hour": st.column_config.NumberColumn(format="%.2f"),
    "USD per million tokens": st.column_config.NumberColumn(
        format="%.2f",
        help="Output tokens at the asked concurrency; always busy; unused and spare GPUs are paid for too.",
    ),
    "GB/s per GPU": st.column_config.NumberColumn(
        format="%.1f", help="Network to other machines, one way. Empty: none, or not published"
    ),
    "Price of": st.column_config.TextColumn(help="The day the price was valid; old after 30 days"),
}


def show(answer: Answer) -> None:
    """The textbook estimate against the full answer, then one box per rung, from the smallest that loads upwards."""
    gpu, advice = answer.result.problem.gpu, answer.advice
    _napkin(answer)
    st.caption(plain(price_terms(answer.scenario)))
    for rung in advice.ladder:
        with st.container(border=True):
            size = f"{rung.gpus} × {gpu.label}, {rung.layout}" if rung.plan else NOTHING
            st.markdown(f"**{TITLES[rung.name]}: {plain(size)}**", help=plain(sentence(rung.meaning)))
            if rung.plan:
                _offers(rung, key=f"offers_{rung.name}")
                st.caption(plain(_energy(rung, tdp=gpu.tdp)))


def _napkin(answer: Answer) -> None:
    """Both answers side by side, and why they differ."""
    advice, best = answer.advice, answer.advice.recommended
    left, right, why = st.columns([1, 1, 3], vertical_alignment="center")
    left.metric("On a napkin", counted(advice.napkin.gpus, "GPU"), border=True)
    right.metric("Full answer", counted(best.gpus, "GPU") if best else "none", border=True)
    why.text(advice.napkin_note)


def _energy(rung: Rung, *, tdp: float | None) -> str:
    """Energy per output token, in words."""
    if tdp is None or rung.gpus is None:
        return "Energy per token: the power limit of this GPU is not known."
    joules = energy_per_token(tdp * rung.gpus, rate=rung.tokens_per_s)
    return (
        f"Energy: at most {significant(joules)} J per output token, all GPUs at their limit of {tdp:g} W; "
        "the rest of the machines left out."
    )


def _offers(rung: Rung, *, key: str) -> None:
    purchases: Sequence[Purchase] = rung.purchases
    if not purchases:
        st.text("No machine in the catalogue has so many of this GPU, or a network that joins them.")
        return
    st.dataframe(
        pd.DataFrame([_offer(rung, purchase) for purchase in purchases]).dropna(axis="columns", how="all"),
        key=key,
        hide_index=True,
        height=min(35 * len(purchases) + 38, 215),
        column_config=COLUMNS,
        alt=f"Machines with {rung.gpus} GPUs and more, cheapest first ({key})",
    )
    days = [purchase.instance.priced for purchase in purchases if purchase.price is not None]
    if warning := worth(days, today=date.today()):
        st.caption(warning)


def _offer(rung: Rung, purchase: Purchase) -> dict[str, object]:
    instance, price, rate = purchase.instance, purchase.price, rung.tokens_per_s
    return {
        "Provider": instance.provider,
        "Instance": f"{purchase.count} × {instance.name}",
        "GPUs": purchase.gpus,
        "USD per hour": price,
        "USD per million tokens": None if price is None else float(cost_per_million_tokens(price, rate=rate)),
        "Price of": None if price is None else price_day(instance.priced, today=date.today()),
        "Region": instance.region,
        "GB/s per GPU": None if instance.network is None else instance.network / GB,
        "Note": instance.note or None,
        "Source": cited(instance.sources),
    }
