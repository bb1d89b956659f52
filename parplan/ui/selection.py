"""The layout somebody ticked, which every picture marks until it is unticked; it is in the address too."""

import numpy as np
import streamlit as st

from parplan.links import ROW_KEY, VIEW_KEY
from parplan.planner import Result
from parplan.ui import history

TICKED, TABLES = "_ticked", "_tables"
"""Keys of the session: the name of the layout ticked, and how often its table was built anew to tick another one."""


def ticked(result: Result) -> int | None:
    """The layout ticked, where it is among those of a result. None: nothing is, or it is not."""
    found = np.flatnonzero(result.layout.named(st.session_state.get(TICKED) or ""))
    return int(found[0]) if found.size else None


def look_at(layout: str) -> None:
    """Tick a layout, or none, and open its card; for clicks."""
    st.session_state.update({TICKED: layout, VIEW_KEY: "Layouts"})
    history.enter({ROW_KEY: layout, VIEW_KEY: "Layouts"})


def recall() -> None:
    """Tick what the address names, when it is opened or gone back to."""
    if TICKED not in st.session_state or history.gone_through():
        tables = st.session_state.get(TABLES, 0) + 1
        st.session_state.update({TICKED: st.query_params.get(ROW_KEY, ""), TABLES: tables})
