"""The layout somebody ticked, which every picture marks until it is unticked."""

import numpy as np
import streamlit as st

from parplan.links import VIEW_KEY
from parplan.planner import Result

TICKED = "_ticked"
"""Key under which the session keeps its name."""


def ticked(result: Result) -> int | None:
    """The layout ticked, where it is among those of a result. None: nothing is, or it is not."""
    found = np.flatnonzero(result.layout.named(st.session_state.get(TICKED) or ""))
    return int(found[0]) if found.size else None


def look_at(layout: str) -> None:
    """Tick a layout and open its card."""
    st.session_state.update({TICKED: layout, VIEW_KEY: "Layouts"})
