"""What one takes away: the table, the whole answer, and a page for a design document."""

import json
from collections.abc import Callable
from datetime import date

import pandas as pd
import streamlit as st

from parplan import __version__
from parplan.choice import ranking
from parplan.export import inert
from parplan.report import assumptions, everything, report
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
        return json.dumps(everything(answer, link=link, written=date.today()), indent=1)

    def rows() -> str:
        return table(answer, link=link, written=date.today()).to_csv(index=False)

    _button(
        "Report, Markdown", page, "plan.md", about="One page for a design document, with all assumptions."
    )
    _button(
        "Report, HTML", web, "plan.html", about="The same page for a browser; it opens without a network."
    )
    _button(
        "Everything, JSON",
        figures,
        "plan.json",
        about="All layouts with memory, times and objections; assumptions, sources, version, day and link.",
    )
    _button(
        "Table of layouts, CSV",
        rows,
        "layouts.csv",
        about="What the Layouts tab shows, all rows in its order; after it every setting in a column of its own, "
        "and with which version, when and for which link it was made.",
    )
    st.caption(
        "A figure: the camera at its upper right corner saves it as PNG, with a line of what it is about."
    )


def table(answer: Answer, *, link: str, written: date) -> pd.DataFrame:
    """The rows of the tab Layouts, all of them and in its order, with what they rest on in columns of their own.

    Every setting stands in each row, under the name a link has for it: a reader that knows nothing of parplan opens the
    file, and rows of several files can be put together and told apart. Settings that are empty have no column.

    Args:
        answer: whose layouts they are.
        link: opens to the same scenario.
        written: the day it is made.
    """
    found = layouts_tab.table(answer.result, ranking(answer.result).tolist())
    asked = {name: value for name, value in answer.scenario.model_dump().items() if value != ""}
    found = found.assign(**asked, **used(answer), Version=__version__, Date=written.isoformat(), Link=link)
    return found.map(lambda cell: inert(cell) if isinstance(cell, str) else cell)


def used(answer: Answer) -> dict[str, str]:
    """What settings that leave a choice ("auto") came to, and what else is assumed."""
    problem = answer.result.problem
    return {
        "Weights used": "; ".join(problem.weight_labels),
        "KV cache used": problem.precision.kv.label,
        "Engine used": f"{problem.engine.label} {problem.engine.versions}",
        "Assumed": " ".join(assumptions(answer)),
    }


def _button(label: str, content: Callable[[], str], name: str, *, about: str) -> None:
    st.download_button(
        label, content, name, on_click="ignore", width="stretch", help=about, key=f"_file_{name}"
    )
