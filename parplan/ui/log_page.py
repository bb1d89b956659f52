"""Read a log: what an engine said at start-up, beside what was predicted, and back into the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from parplan import logs
from parplan.layout import CUT_NAMES
from parplan.logs import LogError, LogFigures, Pair
from parplan.scenario import Scenario
from parplan.ui import inputs
from parplan.ui.figures import room_for_tools
from parplan.ui.words import plain

LONGEST = 1 << 20
"""Characters that can be pasted."""
PLACEHOLDER = """INFO 09-19 10:00:01 [gpu_model_runner.py] Model loading took 33.88 GiB memory and 54.25 seconds
INFO 09-19 10:00:41 [gpu_worker.py] Available KV cache memory: 37.28 GiB
INFO 09-19 10:00:41 [kv_cache_utils.py] GPU KV cache size: 244,304 tokens"""
FOUND = {
    "Quantity": st.column_config.TextColumn(pinned=True),
    "Value": st.column_config.TextColumn(),
    "Line": st.column_config.NumberColumn(format="%d", width=60),
    "Rank": st.column_config.TextColumn(help="The one with least memory left, where several say it"),
    "As it reads": st.column_config.TextColumn(width="large"),
}
BESIDE = {
    "Quantity": st.column_config.TextColumn(pinned=True),
    "Predicted": st.column_config.TextColumn(),
    "Logged": st.column_config.TextColumn(),
    "Difference": st.column_config.TextColumn(help="Predicted less logged"),
    "Relative": st.column_config.NumberColumn(format="percent"),
    "Line": st.column_config.NumberColumn(format="%d", width=60),
}


def show() -> None:
    """A box to paste into, and what is read out of it. All text of the log is shown as it is."""
    st.subheader("Read an engine's start-up log", anchor=False)
    st.text(
        "Paste what vLLM, SGLang or TensorRT-LLM printed until it was ready, best from the first line on. Nothing is "
        "kept, and nothing is sent on."
    )
    pasted = st.text_area(
        "Start-up log",
        key="_log",
        height=220,
        max_chars=LONGEST,
        placeholder=PLACEHOLDER,
        persist_state="session",
        help="1 MiB at most",
    )
    if not pasted.strip():
        return
    try:
        figures = logs.log_figures(pasted)
    except LogError as error:
        st.markdown(":orange-badge[Not read]")
        st.text(str(error))
        return
    changes, messages = logs.scenario_from(figures)
    _failures(figures)
    scenario = _told(changes)
    if scenario:
        _take_over(scenario, changes, logs.measured_overheads(figures))
        _beside(figures, scenario)
    _figures(figures)
    _messages([*messages, *figures.messages])


def _told(changes: Mapping[str, object]) -> Scenario | None:
    """The scenario on the left, with what the log says put over it; None where they do not go together."""
    chosen = inputs.scenario()
    cuts = {name: Scenario.model_fields[name].default for name in CUT_NAMES}
    try:
        return Scenario.model_validate(
            chosen.model_dump() | (cuts if "tensor" in changes else {}) | dict(changes)
        )
    except ValidationError:
        return None


def _failures(figures: LogFigures) -> None:
    if figures.failures:
        st.markdown(":red-badge[It did not come up]")
        st.code("\n".join(f"line {line.number}: {line.text}" for line in figures.failures), language=None)


def _take_over(scenario: Scenario, changes: Mapping[str, object], overheads: Mapping[str, float]) -> None:
    """One click puts what the log says into the scenario."""
    chosen = inputs.scenario()
    same = scenario == chosen
    differing = [name for name, value in changes.items() if value != getattr(chosen, name)]
    parts = [
        f"{inputs.LABELS.get(name, name)}: {inputs.whole(changes[name])}"
        for name in differing
        if name not in CUT_NAMES
    ]
    if any(name in CUT_NAMES for name in differing):
        parts.append(f"layout: {logs.layout_decided(scenario)}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Plan with what the log says",
            on_click=inputs.take,
            args=(scenario,),
            disabled=same,
            icon=":material/arrow_forward:",
        )
        st.text("The plan already has every setting the log states." if same else "; ".join(parts))
    _take_overheads(scenario, overheads)


def _take_overheads(scenario: Scenario, overheads: Mapping[str, float]) -> None:
    """One click more puts the logged overheads in the place of the predicted ones."""
    if not overheads:
        return
    measured = scenario.model_copy(update=dict(overheads))
    listed = ", ".join(f"{name.replace('_', '-')} {amount:.2f} GiB" for name, amount in overheads.items())
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "The same, with its measured overheads",
            on_click=inputs.take,
            args=(measured,),
            disabled=measured == inputs.scenario(),
            icon=":material/arrow_forward:",
            help="They stand in for the predicted ones, in the link too.",
        )
        st.text(listed)


def _beside(figures: LogFigures, scenario: Scenario) -> None:
    """Prediction and log, component by component."""
    st.markdown("**Predicted and logged, per GPU**")
    try:
        decided, whose = logs.laid_out(figures, scenario)
        layout = logs.layout_decided(decided)
        pairs = logs.compared(figures, logs.predicted_memory(figures, decided), layout=layout)
    except (LookupError, ValueError) as error:
        st.text(f"No prediction: {error}")
        return
    if not pairs:
        st.text("The log states nothing that is predicted.")
        return
    told = f"Predicted for {scenario.model} on {scenario.gpu}, {layout} ({whose})"
    st.caption(plain(f"{told}. What else the log does not say is as on the left."))
    room_for_tools()
    st.dataframe(
        pd.DataFrame([_pair(pair) for pair in pairs], columns=list(BESIDE)),
        key="log_beside",
        hide_index=True,
        placeholder="",
        column_config=BESIDE,
        alt="Each part of the memory, predicted and as logged",
    )


def _pair(pair: Pair) -> Mapping[str, object]:
    def written(value: float) -> str:
        return replace(pair.figure, value=value).written

    return {
        "Quantity": pair.label,
        "Predicted": written(pair.predicted),
        "Logged": written(pair.logged),
        "Difference": written(pair.difference),
        "Relative": pair.relative,
        "Line": pair.figure.line.number,
    }


def _figures(figures: LogFigures) -> None:
    """Everything that was read, with the line it was read from."""
    version = figures.word("version")
    st.markdown("**What the log says**")
    st.text(f"{logs.LABELS[figures.engine]} {version}".strip())
    room_for_tools()
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "Quantity": figure.label,
                    "Value": figure.written,
                    "Line": figure.line.number,
                    "Rank": figure.rank,
                    "As it reads": f"({figure.derived}) {figure.line.text}"
                    if figure.derived
                    else figure.line.text,
                }
                for figure in figures.found.values()
            ],
            columns=list(FOUND),
        ),
        key="log_figures",
        hide_index=True,
        placeholder="",
        column_config=FOUND,
        alt="Every figure of the log with the line it was read from",
    )


def _messages(messages: Sequence[str]) -> None:
    if messages:
        st.markdown("**What it leaves open**")
        st.text("\n".join(dict.fromkeys(messages)))
