"""The layout somebody ticked, which every picture marks until it is unticked, and the open tab; the address has both.

Neither is bound to it: Streamlit takes what is bound out of the address before it goes on to another page, and makes an
entry of the history of that, to which Back would lead instead of to the tab that was open.
"""

from collections.abc import Collection

import numpy as np
import streamlit as st

from parplan.links import ROW_KEY, VIEW_KEY
from parplan.planner import Result
from parplan.ui import history

FIRST = "Overview"
"""The tab that is open unless another one is asked for."""
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


def opened() -> None:
    """Write the tab just opened into the address; the first one is not written."""
    tab = st.session_state[VIEW_KEY]
    history.enter({VIEW_KEY: "" if tab == FIRST else tab})


def recall(tabs: Collection[str]) -> None:
    """Tick the layout and open the tab that the address names, when it is opened, come to or gone back to.

    Args:
        tabs: those there are.
    """
    if VIEW_KEY not in st.session_state or history.gone_through():
        asked = st.query_params.get(VIEW_KEY, FIRST)
        st.session_state[VIEW_KEY] = asked if asked in tabs else FIRST
    if TICKED not in st.session_state or history.gone_through():
        tables = st.session_state.get(TABLES, 0) + 1
        st.session_state.update({TICKED: st.query_params.get(ROW_KEY, ""), TABLES: tables})
