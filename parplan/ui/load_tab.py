"""Requests as they really come: what a rate takes, what users then feel, what it costs."""

from collections.abc import Mapping
from datetime import date
from functools import partial

import pandas as pd
import streamlit as st

from parplan.cost import Bill, bill, fleets
from parplan.instances import purchases
from parplan.planner import Plan
from parplan.scenario import Answer, Scenario, price_terms
from parplan.traffic import Replica, Traffic, traffic_asked_for
from parplan.ui import prices
from parplan.ui.figures import draw, theme
from parplan.ui.load_chart import first_token_against_rate
from parplan.ui.prices import costs, machines, price_day, worth
from parplan.ui.words import plain, significant
from parplan.units import written_time

ASKED = {"rate": ("Requests per second", 1.0), "peak": ("Peak over mean", 0.5)}
"""Fields moved here: label and step."""
ASKED_RATE, FULL_LOAD = "at the mean rate", "fully loaded"
"""What the cost of a token is reckoned at."""
COLUMNS = {
    "Machines": st.column_config.TextColumn(pinned=True, width=250),
    "GPUs": st.column_config.NumberColumn(format="%d", width=60, help="Paid for"),
    **{name: column for name, column in prices.COLUMNS.items() if name != "Price of"},
    "Region": st.column_config.TextColumn(),
    "Price of": prices.COLUMNS["Price of"],
}
ASSUMED = (
    "Requests come at random (Poisson), output lengths vary as much as their mean (exponential), replicas share the "
    "load evenly. At the knee 5 of 100 requests begin to wait for room in the KV cache or for a free slot. Up to 90 % "
    "of the knee the figures agree within 10 % with a simulated engine for prompts up to ten times as long as the "
    "output (within 15 % where fewer than a dozen requests run at once); pipeline stages and repeated attention have "
    "not been simulated. Traffic in bursts waits longer."
)


def show(answer: Answer) -> None:
    """Inputs, what they take, the picture, and the bill."""
    best = answer.advice.recommended
    if best is None:
        st.text("No layout runs, so there is nothing to load.")
        return
    _inputs()
    scenario = answer.scenario
    found = traffic_asked_for(
        answer.result, best.index, rate=scenario.rate, peak=scenario.peak, replicas=scenario.replicas
    )
    replica = found.replica
    if not replica.bearable:
        st.text(
            f"{best.layout} misses {replica.limit} with a single request already; no number of replicas helps. "
            "Loosen the target, or choose another layout or GPU."
        )
    else:
        _figures(found, scenario)
        st.text(in_words(found, scenario, best))
    draw(first_token_against_rate(found, theme=theme()), key="load")
    st.caption(plain(f"{ASSUMED} {band_words(answer, best)}"))
    if replica.bearable and scenario.rate:
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
            significant(found.bearable),
            f"knee at {significant(found.knee)}",
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
    scenario = answer.scenario
    st.markdown("**What that costs**")
    at = st.segmented_control(
        "Cost of tokens and requests",
        [ASKED_RATE, FULL_LOAD],
        default=ASKED_RATE,
        required=True,
        key="_cost_at",
        help="Machines are paid for whether they are busy or not: at the mean rate what stands idle between peaks is "
        "spread over the work; fully loaded, all replicas answer all they bear, all the time.",
    )
    offers = purchases(answer.offers, gpu=answer.result.problem.gpu, gpus=best.gpus)
    rate = found.bearable if at == FULL_LOAD else scenario.rate
    bills = [
        one
        for bought in fleets(offers, replicas=found.replicas, gpus=best.gpus)
        if (
            one := bill(
                bought,
                replicas=found.replicas,
                requests_per_s=rate,
                prompt=scenario.prompt,
                output=scenario.output,
            )
        )
    ]
    if not bills:
        st.text("No price is known for machines with so many of this GPU.")
        return
    st.dataframe(
        pd.DataFrame([_row(one) for one in bills], columns=list(COLUMNS)),
        key="load_bill",
        hide_index=True,
        placeholder="",
        column_config=COLUMNS,
        alt="Cost of the replicas on the machines that can be rented, cheapest first",
    )
    days = [one.purchase.instance.priced for one in bills]
    terms, age = price_terms(scenario), worth(days, today=date.today())
    busy = f"At {significant(rate)} requests per second" + (", day and night." if at == FULL_LOAD else ".")
    st.caption(f"{terms} {busy} What stands idle is paid for too. {age}")


def _row(paid: Bill) -> Mapping[str, object]:
    instance = paid.purchase.instance
    return costs(paid.cost) | {
        "Machines": machines(paid.purchase),
        "GPUs": paid.purchase.gpus,
        "Region": instance.region,
        "Price of": price_day(instance.priced, today=date.today()),
    }
