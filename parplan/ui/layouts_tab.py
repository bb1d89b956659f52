"""Every layout: a table with what speaks against each, and the card of the one ticked."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from parplan.objections import objections
from parplan.planner import Plan, Result
from parplan.scenario import CUTS, Answer, Scenario
from parplan.ui import charts, inputs
from parplan.ui.figures import draw, theme
from parplan.ui.words import plain
from parplan.units import MS

AGAINST = "What speaks against it"
STATUS = ("impossible", "requests wait", "too slow", "good")
MOST_ROWS = 250
"""Rows of the table; the impossible ones come last."""
COLUMNS = {
    "Layout": st.column_config.TextColumn(pinned=True),
    "GPUs": st.column_config.NumberColumn(format="%d", width=60),
    "Status": st.column_config.TextColumn(width=100),
    "ms/token": st.column_config.NumberColumn(format="%.1f", help="Time per output token"),
    "First token, ms": st.column_config.NumberColumn(format="%,.0f"),
    "Tokens/s per GPU": st.column_config.NumberColumn(format="%,.0f"),
    "Requests held": st.column_config.NumberColumn(
        format="localized", help="Of full length, in the KV cache"
    ),
    "KV tokens": st.column_config.NumberColumn(format="%,.0f"),
    AGAINST: st.column_config.TextColumn(width="large"),
}


def show(answer: Answer) -> None:
    """The table and the card."""
    result, best = answer.result, answer.advice.recommended
    _fixed(answer.scenario)
    rows = sorted(range(len(result.legal)), key=lambda index: not result.legal[index])[:MOST_ROWS]
    found = table(result, rows)
    ticked = st.dataframe(
        found,
        key="layouts",
        hide_index=True,
        height=330,
        on_select="rerun",
        selection_mode="single-row",
        column_config=COLUMNS,
        alt="All layouts with their speed, what they hold, and what speaks against them",
    )
    chosen = [rows[row] for row in ticked.selection.rows if row < len(rows)]
    more = (
        f" {len(result.legal) - len(rows):,} more of them are not listed."
        if len(rows) < len(result.legal)
        else ""
    )
    st.caption(f"Tick a row to see that layout. Impossible ones come last.{more}")
    if chosen:
        _card(result.plan(chosen[0]), answer)
    elif best:
        _card(best, answer)
    st.download_button(
        "Download the table", found.to_csv(index=False), "layouts.csv", icon=":material/download:"
    )


def table(result: Result, rows: Sequence[int]) -> pd.DataFrame:
    """One row per layout, in the order of `rows`; what cannot run has no speed."""
    listed, serving, memory = np.array(rows, dtype=int), result.serving, result.memory
    legal = result.legal[listed]
    texts = {
        "Layout": [str(result.layout.one(index)) for index in rows],
        "GPUs": result.gpus[listed],
        "Status": np.select(
            [~legal, ~result.holds[listed], ~result.in_time[listed]], STATUS[:3], default=STATUS[3]
        ),
    }
    figures = {
        "ms/token": serving.tpot / MS,
        "First token, ms": serving.ttft / MS,
        "Tokens/s per GPU": serving.tokens_per_s_per_gpu,
        "Requests held": memory.capacity,
        "KV tokens": memory.kv_tokens,
    }
    shown = {
        name: np.where(legal, result.at_asked(values)[listed], np.nan) for name, values in figures.items()
    }
    return pd.DataFrame({**texts, **shown, AGAINST: [_against(result, index) for index in rows]})


def _against(result: Result, index: int) -> str:
    """Everything wrong with one layout, and the ways out; nothing is composed for a layout without fault."""
    if not any(mask[index] for mask in (*result.errors.values(), *result.warnings.values())):
        return ""
    return " ".join(f"{objection.reason} {objection.fix}" for objection in objections(result.case(index)))


def _fixed(scenario: Scenario) -> None:
    """What the user has fixed, and the way back."""
    fixed = [f"{name} {size}" for name in CUTS if (size := getattr(scenario, name))]
    if fixed:
        free = scenario.model_copy(update=dict.fromkeys(CUTS, 0))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Fixed: {', '.join(fixed)}.")
            st.button("Try all layouts", on_click=inputs.take, args=(free,))


def _card(found: Plan, answer: Answer) -> None:
    """One layout: its memory, its time, what speaks against it, and a way to keep it."""
    kept = answer.scenario.model_copy(update={name: getattr(found.layout, name) for name in CUTS})
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            title = f"{found.layout} on {found.gpus} × {answer.result.problem.gpu.label}"
            st.markdown(f"**{plain(title)}**", width="content")
            st.button(
                "Keep this layout", on_click=inputs.take, args=(kept,), help="Fixes it, in the link too."
            )
        st.caption(plain(charts.memory_words(found)))
        show_objections(found)
        if found.legal:
            draw(charts.time_bar(found, theme=theme()), key="time_bar")


def show_objections(found: Plan) -> None:
    """What speaks against a layout, errors first, with the way out and the source."""
    for objection in found.objections:
        badge = ":red-badge[Impossible]" if objection.severity == "error" else ":orange-badge[Note]"
        st.markdown(f"{badge} {plain(f'{objection.reason} {objection.fix}')}", help=plain(objection.source))
