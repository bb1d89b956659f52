"""Figures on the page."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from parplan.ui.charts import Chart
from parplan.ui.marks import Ready
from parplan.ui.theme import DARK, LIGHT, Theme

CONFIG: dict[str, Any] = {"displaylogo": False, "displayModeBar": True, "modeBarButtons": [["toImage"]]}
"""Figures can be saved as PNG, and nothing else; the button is seen without pointing at them."""


def theme() -> Theme:
    """The theme the browser shows."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def clickable() -> bool:
    """Whether points can be clicked: on a phone, a figure that listens to clicks keeps a finger from scrolling on."""
    return "Mobi" not in st.context.headers.get("User-Agent", "")


def draw(chart: Chart, *, key: str, on_point: Callable[[str], None] | None = None) -> None:
    """A figure that keeps its place from one run to the next.

    Args:
        on_point: what a click on a point does, given what the point stands for (its `customdata`).
    """

    def clicked() -> None:
        for point in st.session_state[key]["selection"]["points"]:
            if on_point and "customdata" in point:
                on_point(str(point["customdata"]))

    st.plotly_chart(
        Ready(chart.figure),
        key=key,
        theme=None,
        on_select=clicked if on_point and clickable() else "ignore",
        selection_mode="points",
        config=CONFIG | {"toImageButtonOptions": {"filename": key}},
        alt=chart.alt,
    )
