"""What one takes away: the table, the whole answer, and a page for a design document."""

import json
from collections.abc import Callable
from datetime import date

import pandas as pd
import streamlit as st

from parplan import __version__
from parplan.choice import ranking
from parplan.export import answer_json, inert
from parplan.report import report
from parplan.scenario import Answer
from parplan.ui import layouts_tab
from parplan.webpage import webpage


def show(answer: Answer, *, link: str) -> None:
    """Four files, each made when asked for."""

    def page() -> str:
        return report(answer, link=link, written=date.today())

    def web() -> str:
        return webpage(page())

    def figures() -> str:
        return json.dumps(answer_json(answer), indent=1)

    def rows() -> str:
        return table(answer, link=link, written=date.today()).to_csv(index=False)

    _button(
        "Report, Markdown", page, "plan.md", about="One page for a design document, with all assumptions."
    )
    _button(
        "Report, HTML", web, "plan.html", about="The same page for a browser; it opens without a network."
    )
    _button("Everything, JSON", figures, "plan.json", about="All layouts with memory, times and objections.")
    _button(
        "Table of layouts, CSV",
        rows,
        "layouts.csv",
        about="What the Layouts tab shows, all rows in its order; the last columns say with which version, when and "
        "for which link it was made.",
    )
    st.caption("A figure: the camera at its upper right corner saves it as PNG.")


def table(answer: Answer, *, link: str, written: date) -> pd.DataFrame:
    """The rows of the tab Layouts, all of them and in its order, with what they rest on in columns of their own.

    Args:
        link: opens to the same scenario.
        written: the day it is made.
    """
    found = layouts_tab.table(answer.result, ranking(answer.result).tolist())
    found = found.assign(Version=__version__, Date=written.isoformat(), Link=link)
    return found.map(lambda cell: inert(cell) if isinstance(cell, str) else cell)


def _button(label: str, content: Callable[[], str], name: str, *, about: str) -> None:
    st.download_button(
        label, content, name, on_click="ignore", width="stretch", help=about, key=f"_file_{name}"
    )
