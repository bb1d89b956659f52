"""What the workload needs beside what the engine reserves, on the fullest GPU."""

import pandas as pd
import streamlit as st

from parplan.balance import Balance, Entry, balance
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.ui.words import plain
from parplan.units import GIB


def show(found: Plan, problem: Problem, *, key: str) -> None:
    """Both sums, what the pools hold, what is missing and what is not counted; part by part when asked for.

    Args:
        key: of the box that opens.
    """
    both = balance(problem, found)
    st.caption(plain(f"{both.sums} {both.holds}"))
    if both.missing:
        st.markdown(f":orange-badge[Does not fit] {plain(both.missing)}")
    if both.left_out:
        st.caption(plain(both.left_out))
    with st.expander("Needed and reserved, part by part", key=key, on_change="rerun") as box:
        if box.open:
            _table(both)


def _table(both: Balance) -> None:
    st.table(
        pd.DataFrame([_row(entry, engine=both.engine) for entry in (*both.entries, both.together)]),
        border="horizontal",
        hide_index=True,
        alt=f"{both.sums} {both.cache}",
    )
    st.caption(plain(f"{both.cache} {both.longest}"))


def _row(entry: Entry, *, engine: str) -> dict[str, str]:
    return {
        "GiB on the fullest GPU": entry.name,
        "Needed": f"{entry.needed / GIB:,.2f}",
        f"{engine} reserves": f"{entry.reserved / GIB:,.2f}",
    }
