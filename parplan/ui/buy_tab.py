"""What to buy: the ladder of sizes, machines that have them, and the textbook estimate beside it."""

from collections.abc import Mapping
from datetime import date
from functools import partial

import pandas as pd
import streamlit as st

from parplan.cost import Bill, bill, energy_per_token
from parplan.explanation import gpu_count
from parplan.ladder import Rung
from parplan.networks import Offer
from parplan.purchase_explanation import napkin_gpus, rung_machines, token_energy
from parplan.scenario import Answer, Scenario, price_terms
from parplan.ui import explain, prices
from parplan.ui.figures import room_for_tools
from parplan.ui.prices import costs, price_day, worth
from parplan.ui.words import cited, plain, sentence, significant
from parplan.units import GB, MS, counted

NOTHING = "nothing within the GPUs one replica may use"
TITLES = {
    "loads": "Starts",
    "holds": "Holds every asked request",
    "meets targets": "Holds them and meets the targets",
    "survives": "Goes on while any one machine is lost",
}
"""Rungs of the ladder, in words."""
COLUMNS = {
    "Provider": st.column_config.TextColumn(width=95),
    "Instance": st.column_config.TextColumn(width=165),
    **{name: prices.COLUMNS[name] for name in ("USD/hour", "USD/M output")},
    "GPUs": st.column_config.NumberColumn(format="%d", width=55, help="Paid for"),
    "Region": st.column_config.TextColumn(width=95),
    "GB/s per GPU": st.column_config.NumberColumn(
        format="%.1f", width=95, help="Network to other machines, one way. Empty: none, or not published"
    ),
    "ms/token": st.column_config.NumberColumn(
        format="%.1f", width=80, help="Time per output token over the network of these machines"
    ),
    **{name: prices.COLUMNS[name] for name in ("Price of", "USD/M input", "USD/M total", "USD/request")},
    "Note": st.column_config.TextColumn(),
    "Source": st.column_config.TextColumn(),
}
BOUND = "All GPUs at their limit; the rest of the machines left out."
TERMS = "Cost of tokens and requests: always busy with the requests asked for; unused and spare GPUs are paid for too."


def show(answer: Answer) -> None:
    """The textbook estimate against the full answer, then one box per rung, from the smallest that loads upwards."""
    gpu, advice = answer.result.problem.gpu, answer.advice
    _napkin(answer)
    days = [
        purchase.instance.priced
        for rung in advice.ladder
        for purchase in rung.purchases
        if purchase.price is not None
    ]
    st.caption(
        plain(f"{price_terms(answer.scenario)} {TERMS} {prices.SPREAD} {worth(days, today=date.today())}")
    )
    if answer.fleet_words:
        st.text(
            f"{answer.load_words} {answer.fleet_words} All machines for them: tab Load. The sizes below are for the "
            "requests asked for at once, whatever the rate."
        )
    elif answer.replicas > 1:
        requests = counted(answer.scenario.concurrency, "request")
        st.text(f"The sizes are for one of the {answer.replicas:,} replicas, which has {requests} at once.")
    for rung in advice.ladder:
        with st.container(border=True):
            st.markdown(
                f"**{TITLES[rung.name]}: {plain(_size(rung, gpu.label))}**",
                help=plain(sentence(rung.meaning)),
            )
            if rung.note:
                st.text(rung.note)
            if rung.plan:
                _offers(rung, answer.scenario)
                st.caption(plain(_energy(rung, tdp=gpu.tdp)))
                explain.button(
                    partial(explained, rung, answer), key=f"_explain_{rung.name}", label="Explain this size"
                )


def _size(rung: Rung, label: str) -> str:
    """GPUs and layout; of replicas that share the requests also how many each has, and how fast."""
    if rung.plan is None:
        return NOTHING
    each = rung.plan.result.problem.workload.concurrency
    share = f", {counted(each, 'request')} each" if rung.replicas > 1 else ""
    return f"{rung.gpus} × {label}, {rung.layout}{share}"


def _napkin(answer: Answer) -> None:
    """Both answers side by side, and why they differ."""
    advice, smallest = answer.advice, answer.advice.smallest
    left, right, why = st.columns([1, 1, 3], vertical_alignment="center")
    left.metric("GPUs on a napkin", f"{advice.napkin.gpus:,}", border=True)
    right.metric("GPUs in the full answer", f"{smallest.gpus:,}" if smallest else "none", border=True)
    why.text(advice.napkin_note)  # beside boxes that are higher: how long it is moves nothing
    explain.button(lambda: {"": _napkin_figures(answer)}, key="_explain_napkin", label="Explain both")


def _napkin_figures(answer: Answer) -> explain.Figures:
    """The two estimates."""
    advice, smallest = answer.advice, answer.advice.smallest
    full = (
        {}
        if smallest is None or smallest.plan is None
        else {"Full answer": explain.Figure(partial(gpu_count, smallest.plan, replicas=smallest.replicas))}
    )
    estimate = partial(napkin_gpus, answer.result.problem, advice.napkin)
    return {"Napkin": explain.Figure(estimate, advice.napkin_note), **full}


def explained(rung: Rung, answer: Answer) -> Mapping[str, explain.Figures]:
    """How the figures of a size are made, by the machines they are about."""
    gpu, found = answer.result.problem.gpu, rung.plan
    if found is None:
        return {}
    size: dict[str, explain.Figure] = {
        "GPUs": explain.Figure(
            partial(gpu_count, found, replicas=rung.replicas), f"{sentence(rung.meaning)}. {rung.note}"
        )
    }
    if gpu.tdp is not None and rung.gpus is not None:
        energy = partial(token_energy, gpu, tdp=gpu.tdp, gpus=rung.gpus, rate=rung.tokens_per_s)
        size["J per token"] = explain.Figure(energy, BOUND)
    paid = [(one, offer) for offer in rung.offers if (one := _paid(rung, offer, answer.scenario))]
    priced = {
        prices.machines(one.purchase): {
            **size,
            **prices.explained(
                one,
                needed=rung_machines(rung, one.purchase, gpus=found.gpus),
                scenario=answer.scenario,
            ),
        }
        for one, offer in paid
    }
    return priced or {"": size}


def _paid(rung: Rung, offer: Offer, scenario: Scenario) -> Bill | None:
    """What the requests asked for cost on machines that are always busy with them."""
    work = scenario.work(rung.requests_per_s_of(offer.plan))
    return bill(offer.purchase, replicas=rung.replicas, work=work)


def _energy(rung: Rung, *, tdp: float | None) -> str:
    """Energy per output token, in words."""
    if tdp is None or rung.gpus is None:
        return "Energy per token: the power limit of this GPU is not known."
    joules = energy_per_token(tdp * rung.gpus, rate=rung.tokens_per_s)
    return (
        f"Energy: at most {significant(joules)} J per output token, all GPUs at their limit of {tdp:g} W; "
        "the rest of the machines left out."
    )


def _offers(rung: Rung, scenario: Scenario) -> None:
    if not rung.purchases:
        st.text(f"{rung.unsold} With a price of your own (Prices, on the left) it is reckoned here.")
        return
    key = f"offers_{rung.name}"
    rows = [_offer(rung, offer, scenario) for offer in rung.offers]
    room_for_tools()
    st.dataframe(
        pd.DataFrame(rows, columns=list(COLUMNS)).dropna(axis="columns", how="all"),
        key=key,
        hide_index=True,
        height=min(35 * len(rows) + 38, 215),
        placeholder="",
        column_config=COLUMNS,
        alt=f"Machines with {rung.gpus} GPUs and more, cheapest first ({key})",
    )


def _offer(rung: Rung, offer: Offer, scenario: Scenario) -> dict[str, object]:
    purchase, instance = offer.purchase, offer.purchase.instance
    paid = _paid(rung, offer, scenario)
    known = costs(paid.cost) | {"Price of": price_day(instance.priced, today=date.today())} if paid else {}
    return known | {
        "Provider": instance.provider,
        "Instance": f"{purchase.count} × {instance.name}",
        "GPUs": purchase.gpus,
        "Region": instance.region,
        "GB/s per GPU": None if instance.network is None else instance.network / GB,
        "ms/token": float(offer.plan.serving.tpot) / MS if rung.networked else None,
        "Note": instance.note or None,
        "Source": cited(instance.sources),
    }
