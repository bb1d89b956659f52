"""Figures on the page.

Streamlit's own chart element is a new one whenever its figure changes: it is taken down, built at a width of its own,
and drawn once more at the right one. That was two fifths of the time from a slider to the picture, so figures are drawn
by a component (`figure.js`) that keeps its place.
"""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import streamlit as st
from plotly.io.json import to_json_plotly

from parplan import __version__
from parplan.ui.charts import Chart
from parplan.ui.front import PLOTLY
from parplan.ui.theme import DARK, LIGHT, Theme

CONFIG: dict[str, Any] = {"displaylogo": False, "displayModeBar": True}
"""The button that saves a figure (`figure.js` has no other) is seen without pointing at it."""
TOOLS = 12
"""Pixels beside the gaps between elements, 44 with them: as high as a table's buttons on a phone."""
AS_HIGH = """
.stElementContainer:has(> .stBidiComponent [role="figure"]) {
    height: auto;
    flex-basis: auto;
}
"""
"""The height Streamlit is told holds until a figure comes; from then on its place is as high as the figure, which grows
with its legend."""
_figure = st.components.v2.component(
    "figure",
    css=AS_HIGH,
    js=Path(__file__).with_name("figure.js").read_text("utf-8").replace("__LIBRARY__", PLOTLY),
    isolate_styles=False,
)


def room_for_tools() -> None:
    """Room above a table for the buttons Streamlit puts there, on a phone for good: they would cover what is there."""
    st.space(TOOLS)


def theme() -> Theme:
    """The theme the browser shows."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def on_phone() -> bool:
    """Whether the browser says it runs on a phone."""
    return "Mobi" in st.context.headers.get("User-Agent", "")


def caption(about: str, *, made: date) -> str:
    """The line below a figure that is saved as a picture, which stands alone from then on.

    Args:
        about: what the figure shows; may be empty.
        made: the day it is saved.

    >>> caption("A model on a GPU", made=date(2026, 11, 30)).startswith("A model on a GPU. parplan ")
    True
    """
    return ". ".join(filter(None, (about, f"parplan {__version__}, {made.isoformat()}")))


def draw(chart: Chart, *, key: str, about: str = "", on_point: Callable[[str], None] | None = None) -> None:
    """A figure that keeps its place from one run to the next.

    Args:
        key: of the figure; the name of its file when it is saved.
        about: what it shows, for the caption it has when it is saved.
        on_point: what a click on a point does, given what the point stands for (its `customdata`, or the `meta` of its
            line).
    """

    def clicked() -> None:
        if on_point and (point := st.session_state[key].point):
            on_point(str(point))

    _figure(
        key=key,
        data={
            "figure": to_json_plotly(chart.figure),
            "alt": chart.alt,
            "config": CONFIG,
            "picture": {
                "filename": key,
                "caption": caption(about, made=date.today()),
                "background": theme().background,
            },
            "clickable": on_point is not None,
        },
        height=int(chart.figure["layout"]["height"]),  # from the start, whenever its script comes
        on_point_change=clicked,
    )
