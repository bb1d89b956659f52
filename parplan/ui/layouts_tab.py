"""Every layout: a table with what speaks against each, and the card of the one ticked."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from parplan.choice import filled, ranking, recommended_index
from parplan.layout import CUT_NAMES
from parplan.planner import Result
from parplan.scenario import Answer, Scenario
from parplan.ui import card, inputs, selection
from parplan.ui.figures import room_for_tools
from parplan.units import MS

FILLED = "Tokens/s per GPU at most"
AGAINST = "What speaks against it"
STATUS = ("impossible", "recommended", "nearest", "requests wait", "too slow", "unwise", "good")
MOST_ROWS = 250
"""Rows of the table; the impossible ones come last."""
COLUMNS = {
    "Layout": st.column_config.TextColumn(pinned=True, width=150),
    "GPUs": st.column_config.NumberColumn(format="%d", width=60),
    "Status": st.column_config.TextColumn(width=110),
    AGAINST: st.column_config.TextColumn(width=280, help="A click shows all of it."),
    "ms/token": st.column_config.NumberColumn(format="%.1f", help="Time per output token"),
    "First token, ms": st.column_config.NumberColumn(format="%,.0f"),
    "Tokens/s per GPU": st.column_config.NumberColumn(format="%,.0f", help="With the requests asked for"),
    FILLED: st.column_config.NumberColumn(
        format="%,.0f",
        help="With as many requests as bring the most: of those that fit and meet the targets",
    ),
    "Requests held": st.column_config.NumberColumn(
        format="localized", help="Of full length, in the KV cache"
    ),
    "KV tokens": st.column_config.NumberColumn(format="%,.0f"),
}


def show(answer: Answer) -> None:
    """The table and the card."""
    result, best = answer.result, answer.advice.recommended
    _fixed(answer.scenario)
    rows = ranking(result).tolist()
    rows, left_out = rows[:MOST_ROWS], len(rows) - MOST_ROWS
    more = f" {left_out:,} more of them are not listed." if left_out > 0 else ""
    st.caption(
        "Tick a row (keyboard: Shift and space bar) to see that layout. The best comes first, impossible ones "
        f"last.{more}"
    )
    room_for_tools()
    chosen = _ticked(table(result, rows), [str(result.layout.one(index)) for index in rows])
    if chosen is not None:
        card.show(result.plan(rows[chosen]), answer)
    elif best:
        card.show(best, answer)


def _ticked(found: pd.DataFrame, names: Sequence[str]) -> int | None:
    """The table, and the place of the row ticked in it: the tick stays with its layout when rows change places."""
    before = st.session_state.get(selection.TICKED)
    at = [names.index(before)] if before in names else []
    key = f"layouts_{st.session_state[selection.TABLES]}_{'|'.join(names)}"
    table = st.dataframe(
        found,
        key=key,
        hide_index=True,
        placeholder="",
        on_select=partial(_keep, key, names),
        selection_mode="single-row",
        selection_default={"selection": {"rows": at}},
        column_config=COLUMNS,
        alt="All layouts with their speed, what they hold, and what speaks against them",
    )
    return next(iter(table.selection.rows), None)


def _keep(key: str, names: Sequence[str]) -> None:
    """Note what was ticked, in the address too."""
    selection.look_at(next((names[row] for row in st.session_state[key].selection.rows), ""))


def table(result: Result, rows: Sequence[int]) -> pd.DataFrame:
    """One row per layout, in the order of `rows`; what cannot run has no speed."""
    listed, serving, memory = np.array(rows, dtype=int), result.serving, result.memory
    legal, most = result.legal[listed], filled(result).tokens_per_s_per_gpu
    best, does = listed == recommended_index(result), result.does_job[listed]
    texts = {
        "Layout": [str(result.layout.one(index)) for index in rows],
        "GPUs": result.gpus[listed],
        "Status": np.select(
            [
                ~legal,
                best & does,
                best,
                ~result.holds[listed],
                ~result.in_time[listed],
                ~result.wise[listed],
            ],
            STATUS[:-1],
            default=STATUS[-1],
        ),
    }
    figures = {
        "ms/token": np.where(result.problem.workload.one_token, np.nan, serving.tpot) / MS,
        "First token, ms": serving.ttft / MS,
        "Tokens/s per GPU": serving.tokens_per_s_per_gpu,
        FILLED: np.where(most > 0, most, np.nan)[:, None],
        "Requests held": memory.capacity,
        "KV tokens": np.floor(memory.kv_tokens),
    }
    shown = {
        name: np.where(legal, result.at_asked(values)[listed], np.nan) for name, values in figures.items()
    }
    against = {AGAINST: [_against(result, index) for index in rows]}
    return pd.DataFrame({**texts, **against, **shown})


def _against(result: Result, index: int) -> str:
    """Everything wrong with one layout, and the ways out."""
    found = [f"{objection.reason} {objection.fix}" for objection in result.objections(index)]
    nearest = None if result.legal[index] else result.nearest_legal(index)
    return " ".join([*found, *([f"Nearest that runs: {nearest}."] if nearest else [])])


def _fixed(scenario: Scenario) -> None:
    """What the user has fixed, and the way back."""
    fixed = [f"{short}{size}" for name, short in CUT_NAMES.items() if (size := getattr(scenario, name))]
    if fixed:
        free = scenario.model_copy(update=dict.fromkeys(CUT_NAMES, 0))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Fixed: {', '.join(fixed)}.")
            st.button("Try all layouts", on_click=inputs.take, args=(free,))
