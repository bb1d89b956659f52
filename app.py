"""The page: `streamlit run app.py`."""

import streamlit as st

from parplan.ui import accuracy_page, catalog_page, inputs, log_page, method_page, plan_page, presets

st.set_page_config(page_title="parplan", layout="wide")
page = st.navigation(
    [
        st.Page(plan_page.show, title="Plan", url_path="plan", default=True),
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
