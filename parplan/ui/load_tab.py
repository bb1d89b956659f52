"""Requests as they really come: what a rate takes, what users then feel, what it costs."""

from collections.abc import Mapping
from datetime import date
from functools import partial

import pandas as pd
import streamlit as st

from parplan.cost import Bill, bought_for, cost
from parplan.instances import Purchase, purchases
from parplan.planner import Plan
from parplan.scenario import Answer, Scenario, price_terms
from parplan.traffic import Replica, Traffic, replica_of, replicas_for, traffic
from parplan.ui.figures import draw, theme
from parplan.ui.load_chart import first_token_against_rate
from parplan.ui.prices import machines, price_day, worth
from parplan.ui.words import plain, significant
from parplan.units import written_time

ASKED = {"rate": ("Requests per second", 1.0), "peak": ("Peak over mean", 0.5)}
"""Fields moved here: label and step."""
COLUMNS = {
    "Machines": st.column_config.TextColumn(pinned=True),
    "GPUs": st.column_config.NumberColumn(format="%d", width=60, help="Paid for"),
    "USD/hour": st.column_config.NumberColumn(format="%.2f"),
    "USD/request": st.column_config.NumberColumn(format="%.5f", help="At the mean rate"),
    "USD/M output": st.column_config.NumberColumn(
        format="%.2f", help="USD per million output tokens, at the mean rate"
    ),
    "USD/M input": st.column_config.NumberColumn(
        format="%.2f", help="USD per million prompt tokens, at the mean rate"
    ),
    "USD/M total": st.column_config.NumberColumn(
        format="%.2f", help="USD per million tokens, prompt and output alike, at the mean rate"
    ),
    "Region": st.column_config.TextColumn(),
    "Price of": st.column_config.TextColumn(help="The day the price was valid; old after 30 days"),
}
ASSUMED = (
    "Requests come at random (Poisson), output lengths vary as much as their mean (exponential), replicas share the "
    "load evenly. At the knee 5 of 100 requests begin to wait for room in the KV cache or for a free slot. Up to 90 % "
    "of the knee the figures agree within 10 % with a simulated engine for prompts up to ten times as long as the "
    "output; pipeline stages and repeated attention have not been simulated. Traffic in bursts waits longer."
)


def show(answer: Answer) -> None:
    """Inputs, what they take, the picture, and the bill."""
    best = answer.advice.recommended
    if best is None:
        st.text("No layout runs, so there is nothing to load.")
        return
    _inputs()
    scenario, replica = answer.scenario, replica_of(answer.result, best.index)
    if not replica.bearable:
        st.text(
            f"{best.layout} misses {replica.limit} with a single request already; no number of replicas helps. "
            "Loosen the target, or choose another layout or GPU."
        )
    enough = replicas_for(replica, rate=scenario.rate, peak=scenario.peak) if scenario.rate else 0
    found = traffic(replica, rate=scenario.rate, peak=scenario.peak, replicas=enough or scenario.replicas)
    if replica.bearable:
        _figures(found, scenario)
        st.text(in_words(found, scenario, best))
    draw(first_token_against_rate(found, theme=theme()), key="load")
    st.caption(plain(f"{ASSUMED} {band_words(answer, best)}"))
    if enough:
        _bill(found, answer, best)


def _inputs() -> None:
    """The two fields, moved from here; the sidebar's widgets carry them in the link."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name, (label, step) in ASKED.items():
            field = Scenario.model_fields[name]
            st.session_state[f"_load_{name}"] = float(st.session_state.get(name, field.default))
            st.number_input(
                label,
                min_value=1.0 if name == "peak" else 0.0,
                max_value=100.0 if name == "peak" else 100_000.0,
                step=step,
                format="%g",
                key=f"_load_{name}",
                on_change=partial(_take, name),
                help=field.description,
                width=200,
            )


def _take(name: str) -> None:
    st.session_state[name] = st.session_state[f"_load_{name}"]


def _figures(found: Traffic, scenario: Scenario) -> None:
    """Five boxes: what it takes, and what users feel at the busiest time."""
    busiest, asked = found.busiest, scenario.rate > 0
    boxes = {
        "Replicas": (f"{found.replicas:,}", f"{found.busiest.gpus:,.0f} GPUs"),
        "Requests/s they bear": (
            significant(found.replicas * found.replica.bearable),
            f"knee at {significant(found.replicas * found.replica.knee)}",
        ),
    }
    if asked:
        boxes |= {
            "Busy at the peak": (f"{busiest.utilisation:.0%}", f"{found.mean.utilisation:.0%} on average"),
            "First token, 95 of 100": (
                written_time(float(busiest.ttft_p95)),
                f"half within {written_time(float(busiest.ttft_p50))}",
            ),
            "Time per token": (
                written_time(float(found.tpot)),
                f"{significant(busiest.in_hand)} in hand each",
            ),
        }
    with st.grid(len(boxes), min_column_width=150):
        for label, (value, note) in boxes.items():
            st.metric(label, value, note, delta_color="off", delta_arrow="off", border=True, height="stretch")


def in_words(found: Traffic, scenario: Scenario, best: Plan) -> str:
    """What the rate takes, and what gives way first."""
    replica = found.replica
    bears = f"One replica ({best.layout}) bears {significant(replica.bearable)} requests per second"
    first = f"{bears}; {limit_words(replica)}"
    if not scenario.rate:
        return f"{first} Say how many requests come per second to see how many replicas they take."
    peak = f", {significant(scenario.rate * scenario.peak)} at the peak" if scenario.peak > 1 else ""
    return (
        f"{significant(scenario.rate)} requests per second{peak}: {found.replicas:,} replica"
        f"{'s' * (found.replicas > 1)} of {best.gpus} GPU{'s' * (best.gpus > 1)}. {first}"
    )


def band_words(answer: Answer, best: Plan) -> str:
    """How far the rate a replica bears may be off; empty for an engine that is a bound."""
    known = answer.confidence(best)
    if known is None:
        return ""
    return (
        f"The rate a replica bears may be off as far as the time per token, {known.tpot.relative:.0%} either way; "
        "close to the knee that moves waits by far more."
    )


def limit_words(replica: Replica) -> str:
    """What gives way first beyond the rate a replica bears."""
    slots = f"all {replica.slots:,} slots taken it answers {significant(replica.sustained)}"
    if replica.limit in list(replica.limits)[1:]:
        return f"beyond, {replica.limit} is missed. With {slots}."
    return f"beyond, requests begin to wait. With {slots}."


def _bill(found: Traffic, answer: Answer, best: Plan) -> None:
    """What the replicas cost on every machine that can hold them, cheapest first."""
    offers = purchases(answer.offers, gpu=answer.result.problem.gpu, gpus=best.gpus)
    bills = sorted(
        (
            _billed(
                bought_for(offer.instance, replicas=found.replicas, gpus=best.gpus), found, answer.scenario
            )
            for offer in offers
            if offer.price is not None
        ),
        key=lambda bill: float(bill.cost.per_hour),
    )
    if not bills:
        st.text("No price is known for machines with so many of this GPU.")
        return
    st.markdown("**What that costs**")
    st.dataframe(
        pd.DataFrame([_row(bill) for bill in bills], columns=list(COLUMNS)),
        key="load_bill",
        hide_index=True,
        column_config=COLUMNS,
        alt="Cost of the replicas on the machines that can be rented, cheapest first",
    )
    days = [bill.purchase.instance.priced for bill in bills]
    terms, age = price_terms(answer.scenario), worth(days, today=date.today())
    st.caption(f"{terms} What stands idle between peaks is paid for too. {age}")


def _billed(purchase: Purchase, found: Traffic, scenario: Scenario) -> Bill:
    assert purchase.price is not None
    spent = cost(purchase.price, requests_per_s=scenario.rate, prompt=scenario.prompt, output=scenario.output)
    return Bill(purchase, found.replicas, spent)


def _row(bill: Bill) -> Mapping[str, object]:
    instance, spent = bill.purchase.instance, bill.cost
    return {
        "Machines": machines(bill.purchase),
        "GPUs": bill.purchase.gpus,
        "USD/hour": spent.per_hour,
        "USD/request": spent.per_request,
        "USD/M output": spent.per_million_output,
        "USD/M input": spent.per_million_input,
        "USD/M total": spent.per_million_tokens,
        "Region": instance.region,
        "Price of": price_day(instance.priced, today=date.today()),
    }
