"""How a figure is made: its parts with the user's own numbers, the formulas behind them, and the sources."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pandas as pd
import streamlit as st

from parplan.cost import bill
from parplan.explanation import gpu_count, time_per_token, time_to_first_token, tokens_per_second
from parplan.memory_explanation import kv_cache, memory_parts, weights
from parplan.planner import Plan
from parplan.products import Explanation, Part, called, written
from parplan.purchase_explanation import million_price, napkin_gpus
from parplan.scenario import Answer, price_terms
from parplan.ui.words import bullets, cited, plain

QUESTION = "How is this number made?"


@dataclass(frozen=True)
class Figure:
    """A figure that can be opened."""

    made: Callable[[], Explanation | None]
    """How it is made, found out when it is opened. None: there is no such figure, for want of a price."""
    note: str = ""
    """What there is to say about it beside its parts."""


Figures: TypeAlias = Mapping[str, Figure]
"""What a dialog opens, by name."""


def _smallest(answer: Answer, _: Plan) -> Explanation:
    return napkin_gpus(answer.result.problem, answer.advice.napkin)


def _cost(answer: Answer, _: Plan) -> Explanation | None:
    """Of the cheapest machines that hold every request; None where none has a price."""
    for rung in answer.advice.ladder:
        if rung.name == "holds":
            for offer in rung.offers:
                work = answer.scenario.work(rung.requests_per_s_of(offer.plan))
                if paid := bill(offer.purchase, replicas=rung.replicas, work=work):
                    return million_price(paid, kind="output")
    return None


EXPLAINED: Mapping[str, Callable[[Answer, Plan], Explanation | None]] = {
    "Time per token": lambda answer, found: time_per_token(answer.result.problem, found),
    "Time to first token": lambda answer, found: time_to_first_token(answer.result.problem, found),
    "Tokens per second": lambda answer, found: tokens_per_second(
        answer.result.problem, found, replicas=answer.replicas
    ),
    "GPUs": lambda answer, found: gpu_count(found, replicas=answer.replicas),
    "Memory": lambda answer, found: memory_parts(answer.result.problem, found),
    "Weights": lambda answer, found: weights(answer.result.problem, found),
    "KV cache": lambda answer, found: kv_cache(answer.result.problem, found),
    "Smallest size": _smallest,
    "Cost": _cost,
}
NOTES: Mapping[str, Callable[[Answer], str]] = {
    "Smallest size": lambda answer: answer.advice.napkin_note,
    "Cost": lambda answer: (
        f"{price_terms(answer.scenario)} Always busy; GPUs that stay idle are paid for too."
    ),
}
"""What there is to say about a figure beside its parts."""


def of_plan(answer: Answer, found: Plan) -> Figures:
    """The figures of a plan."""
    return {
        name: Figure(partial(made, answer, found), NOTES[name](answer) if name in NOTES else "")
        for name, made in EXPLAINED.items()
    }


def show(found: Plan, answer: Answer, *, key: str = "_explain", label: str = QUESTION) -> None:
    """A button that opens the figures of a plan, one at a time.

    Args:
        key: of the button; there may be several on a page.
        label: what it says.
    """
    button(lambda: {"": of_plan(answer, found)}, key=key, label=label, figure_key="_figure")


def button(
    opened: Callable[[], Mapping[str, Figures]],
    *,
    key: str,
    label: str = QUESTION,
    figure_key: str = "",
) -> None:
    """A button that opens figures, one at a time; nothing is worked out before.

    Args:
        opened: the figures, by what they are the figures of; of several, one is chosen.
        key: of the button; there may be several on a page.
        label: what it says.
        figure_key: of the choice among figures; its own where several dialogs have other figures.
    """
    if st.button(label, icon=":material/function:", key=key, help=QUESTION):
        _figures(opened(), figure_key or f"_figure{key}")


@st.dialog(QUESTION, width="large")
def _figures(opened: Mapping[str, Figures], key: str) -> None:
    first, *others = opened
    subject = st.selectbox("Machines", list(opened), key=f"{key}_of") if others else first
    figures = opened[subject]
    figure = st.segmented_control(
        "Figure", list(figures), default=next(iter(figures)), required=True, key=key
    )
    explained = figures[figure].made()
    if explained is None:
        st.text("No machine that holds every request has a price in the catalogue.")
        return
    _explanation(explained)
    if note := figures[figure].note:
        st.caption(plain(note))


def _explanation(explained: Explanation) -> None:
    st.table(table(explained), border="horizontal", hide_index=True, alt=f"{explained.figure}, part by part")
    if explained.terms:
        st.table(terms(explained), border="horizontal", hide_index=True, alt="What goes into it")
    with st.popover("The formulas", icon=":material/menu_book:", disabled=not explained.laws):
        for law in explained.laws:
            st.markdown(f"**`{called(law)}`**")
            st.code(inspect.getdoc(law), language=None, wrap_lines=True)
    if (
        explained.sources
    ):  # nothing in them takes the focus, so they must not scroll by themselves, as in a popover
        with st.expander("Sources of the constants", icon=":material/link:"):
            st.markdown(bullets(cited([source]) for source in explained.sources))


def terms(explained: Explanation) -> pd.DataFrame:
    """One row for each of the terms next to a figure."""
    rows = [
        (plain(f"{'↳ ' * one.depth}{one.name}"), plain(one.words), plain(one.what)) for one in explained.terms
    ]
    return pd.DataFrame(rows, columns=["What goes in", "Your number", "What it is"])


def table(explained: Explanation) -> pd.DataFrame:
    """One row per part, largest first, and what they come to together."""
    parts = sorted(explained.parts, key=lambda part: -part.value)
    rows = [
        (part.name, _product(part, explained.unit), written(part.value, unit=explained.unit))
        for part in parts
    ]
    together = ("together", "", written(explained.value, unit=explained.unit))
    return pd.DataFrame(
        [tuple(plain(cell) for cell in row) for row in (*rows, together)],
        columns=["Part", "Your numbers", explained.figure],
    )


def _product(part: Part, unit: str) -> str:
    """The product; where several sides could bound it, all of them, the one that counts first."""
    sides = part.words(unit=unit)
    ordered = sorted(sides, key=lambda name: name != part.bound)
    return "; ".join(f"{name}: {sides[name]}" if name else sides[name] for name in ordered if sides[name])
