"""The page: `streamlit run app.py`.

Streamlit imports this file once, to start the server, and runs it anew for every visitor and every change.
"""

import gc
import sys

import streamlit as st

from parplan import Scenario, catalog, plan
from parplan.ui import (
    accuracy_page,
    catalog_page,
    compare_page,
    inputs,
    log_page,
    method_page,
    plan_page,
    presets,
)


def show() -> None:
    """The page that is asked for, with the inputs beside it."""
    st.set_page_config(page_title="parplan", layout="wide")
    page = st.navigation(
        [
            st.Page(plan_page.show, title="Plan", url_path="plan", default=True),
            st.Page(compare_page.show, title="Compare", url_path="compare"),
            st.Page(log_page.show, title="Read a log", url_path="log"),
            st.Page(catalog_page.show, title="Catalogue", url_path="catalogue"),
            st.Page(accuracy_page.show, title="Accuracy", url_path="accuracy"),
            st.Page(method_page.show, title="Method", url_path="method"),
        ],
        position="top",
    )
    inputs.open_link()
    with st.sidebar:
        presets.choose()
    inputs.sidebar()
    page.run()


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
    app = st.App(__file__)
