"""How a figure is made: its parts with the user's own numbers, the formulas behind them, and the sources."""

import inspect
from collections.abc import Callable, Mapping

import pandas as pd
import streamlit as st

from parplan.explanation import gpu_count, time_per_token, time_to_first_token, tokens_per_second
from parplan.memory_explanation import kv_cache, memory_parts, weights
from parplan.planner import Plan
from parplan.products import Explanation, Part, written
from parplan.purchase_explanation import napkin_gpus, token_cost
from parplan.scenario import Answer, price_terms
from parplan.ui.words import bullets, cited, plain

QUESTION = "How is this number made?"


def _smallest(answer: Answer, _: Plan) -> Explanation:
    return napkin_gpus(answer.result.problem, answer.advice.napkin)


def _cost(answer: Answer, _: Plan) -> Explanation | None:
    """Of the cheapest machines that hold every request; None where none has a price."""
    for rung in answer.advice.ladder:
        if rung.name == "holds" and rung.tokens_per_s:
            for offer in rung.offers:
                if (price := offer.purchase.price) is not None:
                    return token_cost(offer.purchase, price=price, rate=rung.tokens_per_s_of(offer.plan))
    return None


EXPLAINED: Mapping[str, Callable[[Answer, Plan], Explanation | None]] = {
    "Time per token": lambda answer, found: time_per_token(answer.result.problem, found),
    "Time to first token": lambda answer, found: time_to_first_token(answer.result.problem, found),
    "Tokens per second": lambda answer, found: tokens_per_second(
        answer.result.problem, found, replicas=answer.scenario.replicas
    ),
    "GPUs": lambda answer, found: gpu_count(found, replicas=answer.scenario.replicas),
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


def show(found: Plan, answer: Answer, *, key: str = "_explain", label: str = QUESTION) -> None:
    """A button that opens the figures of a plan, one at a time.

    Args:
        key: of the button; there may be several on a page.
        label: what it says.
    """
    if st.button(label, icon=":material/function:", key=key, help=QUESTION):
        _figures(found, answer)


@st.dialog(QUESTION, width="large")
def _figures(found: Plan, answer: Answer) -> None:
    figure = st.segmented_control(
        "Figure", list(EXPLAINED), default=next(iter(EXPLAINED)), required=True, key="_figure"
    )
    explained = EXPLAINED[figure](answer, found)
    if explained is None:
        st.text("No machine that holds every request has a price in the catalogue.")
        return
    _explanation(explained)
    if figure in NOTES:
        st.caption(plain(NOTES[figure](answer)))


def _explanation(explained: Explanation) -> None:
    st.table(table(explained), border="horizontal", hide_index=True, alt=f"{explained.figure}, part by part")
    laws = dict.fromkeys(part.law for part in explained.parts if part.law and part.formula)
    with st.container(horizontal=True):
        with st.popover("The formulas", icon=":material/menu_book:", disabled=not laws):
            for law in laws:
                st.markdown(f"**`{law.__module__}.{law.__name__}`**")
                st.code(inspect.getdoc(law), language=None, wrap_lines=True)
        with st.popover("Sources of the constants", icon=":material/link:", disabled=not explained.sources):
            st.markdown(bullets(cited([source]) for source in explained.sources))


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
