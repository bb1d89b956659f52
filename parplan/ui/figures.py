"""Figures on the page."""

from typing import Any

import streamlit as st

from parplan.ui.charts import Chart
from parplan.ui.theme import DARK, LIGHT, Theme

CONFIG: dict[str, Any] = {"displaylogo": False, "modeBarButtons": [["toImage"]]}
"""Figures can be saved as PNG, and nothing else."""


def theme() -> Theme:
    """The theme the browser shows."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def draw(chart: Chart, *, key: str) -> None:
    """A figure that keeps its place from one run to the next."""
    st.plotly_chart(
        chart.figure,
        key=key,
        theme=None,
        config=CONFIG | {"toImageButtonOptions": {"filename": key}},
        alt=chart.alt,
    )
