"""The page: `streamlit run app.py`.

Streamlit imports this file once, to start the server, and runs it anew for every visitor and every change.
"""

import gc
import sys
from collections.abc import Callable
from functools import partial

import streamlit as st

from parplan import Scenario, catalog, plan
from parplan.ui import (
    accuracy_page,
    catalog_page,
    compare_page,
    front,
    inputs,
    log_page,
    method_page,
    plan_page,
    presets,
)
from parplan.ui.turns import turn

PAGES = {
    "compare": ("Compare", compare_page.show),
    "log": ("Read a log", log_page.show),
    "catalogue": ("Catalogue", catalog_page.show),
    "accuracy": ("Accuracy", accuracy_page.show),
    "method": ("Method", method_page.show),
}
"""Pages beside the plan, by the last part of their addresses: title, and what shows them."""


def show() -> None:
    """The page that is asked for, with the inputs beside it."""
    st.set_page_config(page_title="parplan", layout="wide")
    plan_first = st.Page(plan_page.show, title="Plan", url_path="plan", default=True)
    others = [st.Page(shown, title=title, url_path=path) for path, (title, shown) in PAGES.items()]
    page = st.navigation([plan_first, *others], position="top")
    with turn():
        inputs.open_link()
        inputs.keep(page.title)
        seen = st.session_state.get("_seen") == page.title
        # Pictures need not wait for widgets that stay as they are; the address of a page just opened waits for its own.
        asked = inputs.scenario()
        beside, shown = partial(settings, asked), partial(main, page.run)
        for part in (shown, beside) if seen else (beside, shown):
            part()
        inputs.kept(asked)
        st.session_state["_seen"] = page.title


def main(page: Callable[[], None]) -> None:
    """What was wrong with the link, whatever page it leads to, and the page."""
    inputs.link_messages()
    page()


def settings(asked: Scenario) -> None:
    """The examples and all inputs, beside the page.

    Args:
        asked: what they say.
    """
    with st.sidebar:
        presets.choose(asked)
    inputs.sidebar()


def prepare() -> None:
    """Read the catalogue and plan once, so that a fault stops the start and the first visitor need not wait.

    What is there by then stays: the garbage collector need not look at it again.
    """
    try:
        catalog.check()
        plan(Scenario())
    except (catalog.CatalogError, LookupError) as error:
        sys.exit(f"parplan cannot start: {error}")
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    show()
else:
    prepare()
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    app = st.App(__file__, routes=front.routes(PAGES, base=base))
