"""Requests as they really come: what a rate takes, what users then feel, what it costs."""

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial

import pandas as pd
import streamlit as st

from parplan.cost import Bill
from parplan.explanation import gpu_count
from parplan.load_explanation import (
    MEDIAN,
    MOST,
    bearable_rate,
    busy_share,
    first_token,
    in_hand,
    knee,
    replica_count,
    token_interval,
    wait,
)
from parplan.planner import Plan
from parplan.products import Explanation
from parplan.purchase_explanation import machines_needed
from parplan.report import in_one_line
from parplan.scenario import UNPRICED, Answer, Scenario, price_terms
from parplan.traffic import ASSUMED, Traffic
from parplan.ui import explain, inputs, prices
from parplan.ui.figures import draw, room_for_tools, theme
from parplan.ui.load_chart import first_token_against_rate
from parplan.ui.prices import costs, machines, price_day, worth
from parplan.ui.words import plain, significant
from parplan.units import counted, either_way, written_share, written_time

ASKED = ("rate", "peak")
"""Fields moved here."""
ASKED_RATE, FULL_LOAD = "at the mean rate", "fully loaded"
"""What the cost of a token is reckoned at."""
COLUMNS = {
    "Machines": st.column_config.TextColumn(pinned=True, width=250),
    "GPUs": st.column_config.NumberColumn(format="%d", width=60, help="Paid for"),
    **{name: column for name, column in prices.COLUMNS.items() if name != "Price of"},
    "Region": st.column_config.TextColumn(),
    "Price of": prices.COLUMNS["Price of"],
}


def show(answer: Answer) -> None:
    """Inputs, what they take, the picture, and the bill."""
    best, found, scenario = answer.advice.recommended, answer.traffic, answer.scenario
    if best is None or found is None:
        st.text("No layout runs, so there is nothing to load.")
        return
    _inputs()
    replica = found.replica
    if replica.bearable:
        _figures(found, scenario)
        explain.button(
            lambda: {"": explained(found, answer, best)}, key="_explain_load", label="Explain these figures"
        )
    st.text(" ".join(filter(None, (_taken(answer), replica.words, _next(found, scenario)))))
    _leaner(answer)
    draw(first_token_against_rate(found, theme=theme()), key="load", about=in_one_line(answer.result.problem))
    st.caption(plain(f"{ASSUMED} {band_words(answer, best)}"))
    if replica.bearable and scenario.rate:
        _bill(found, answer)


def _leaner(answer: Answer) -> None:
    """That room for fewer requests at once would take fewer GPUs, one click away."""
    if other := answer.leaner:
        st.text(answer.leaner_words)
        st.button(
            f"Plan for {other.scenario.concurrency:,} at once",
            on_click=inputs.take,
            args=(other.scenario,),
            icon=":material/arrow_forward:",
            key="_leaner",
        )


def _taken(answer: Answer) -> str:
    """What the rate takes, where one is asked for and can be borne."""
    return answer.load_words if answer.traffic and answer.traffic.replica.bearable else ""


def _next(found: Traffic, scenario: Scenario) -> str:
    """What to do where there is no answer yet."""
    if not found.replica.bearable:
        return "Loosen the target, or choose another layout or GPU."
    if not scenario.rate:
        return "Say how many requests come per second to see how many replicas they take."
    return ""


def _inputs() -> None:
    """The two fields, moved from here; the sidebar's widgets carry them in the link."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name in ASKED:
            label, step = inputs.FOLDED["Load"][name]
            field = Scenario.model_fields[name]
            st.session_state[f"_load_{name}"] = float(st.session_state.get(name, field.default))
            st.number_input(
                label,
                **inputs.limits(name),
                step=float(step),
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
        "Replicas": (f"{found.replicas:,}", counted(int(found.busiest.gpus), "GPU")),
        "Requests/s they bear": (
            significant(found.bearable),
            f"knee at {significant(found.knee)}",
        ),
    }
    if asked:
        boxes |= {
            "Busy at the peak": (
                written_share(busiest.utilisation),
                f"{written_share(found.mean.utilisation)} on average",
            ),
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


def explained(found: Traffic, answer: Answer, best: Plan) -> explain.Figures:
    """How the figures of the boxes are made, and the waits behind them."""
    problem, scenario, busiest = answer.result.problem, answer.scenario, found.busiest
    made: dict[str, Callable[[], Explanation]] = {
        "Replicas": partial(replica_count, problem, found, rate=scenario.rate, peak=scenario.peak),
        "GPUs": partial(gpu_count, best, replicas=found.replicas),
        "Requests/s they bear": partial(bearable_rate, problem, found),
        "Knee": partial(knee, problem, found),
    }
    if scenario.rate:
        made |= {
            "Busy at the peak": partial(busy_share, problem, found, at=busiest),
            "Busy on average": partial(busy_share, problem, found, at=found.mean),
            "First token, half": partial(first_token, problem, found, at=busiest, quantile=MEDIAN),
            "First token, 95 of 100": partial(first_token, problem, found, at=busiest, quantile=MOST),
            "Wait, half": partial(wait, problem, found, at=busiest, quantile=MEDIAN),
            "Wait, 95 of 100": partial(wait, problem, found, at=busiest, quantile=MOST),
            "Time per token": partial(token_interval, problem, found),
            "In hand each": partial(in_hand, problem, found, at=busiest),
        }
    return {name: explain.Figure(one, ASSUMED) for name, one in made.items()}


def band_words(answer: Answer, best: Plan) -> str:
    """How far the rate a replica bears may be off; empty for an engine that is a bound."""
    known = answer.confidence(best)
    if known is None:
        return ""
    return (
        "The rate a replica bears may be off as far as the time per token, "
        f"{either_way(known.tpot.relative)}; close to the knee that moves waits by far more."
    )


def _bill(found: Traffic, answer: Answer) -> None:
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
    rate = found.bearable if at == FULL_LOAD else scenario.rate
    bills = answer.bills(rate)
    if not bills:
        st.text(UNPRICED)
        return
    room_for_tools()
    st.dataframe(
        pd.DataFrame([_row(one) for one in bills], columns=list(COLUMNS)),
        key="load_bill",
        hide_index=True,
        placeholder="",
        column_config=COLUMNS,
        alt="Cost of the replicas on the machines that can be rented, cheapest first",
    )
    explain.button(
        lambda: {machines(one.purchase): bill_explained(one, answer) for one in bills},
        key="_explain_bill",
        label="Explain these costs",
    )
    days = [one.purchase.instance.priced for one in bills]
    terms, age = price_terms(scenario), worth(days, today=date.today())
    busy = f"At {significant(rate)} requests per second" + (", day and night." if at == FULL_LOAD else ".")
    st.caption(f"{terms} {busy} What stands idle is paid for too. {prices.SPREAD} {age}")


def bill_explained(paid: Bill, answer: Answer) -> explain.Figures:
    """How the figures of one row of the bill are made.

    Args:
        paid: the row.
        answer: whose replicas they are.
    """
    gpus = int(answer.traffic.replica.layout.gpus) if answer.traffic else 1
    needed = machines_needed(paid.purchase, replicas=paid.replicas, gpus=gpus)
    return prices.explained(paid, needed=needed, scenario=answer.scenario)


def _row(paid: Bill) -> Mapping[str, object]:
    instance = paid.purchase.instance
    return costs(paid.cost) | {
        "Machines": machines(paid.purchase),
        "GPUs": paid.purchase.gpus,
        "Region": instance.region,
        "Price of": price_day(instance.priced, today=date.today()),
    }
