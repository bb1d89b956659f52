"""The page: `streamlit run app.py`."""

import streamlit as st

st.set_page_config(page_title="parplan", layout="wide")
st.title("parplan")
