"""A link to pass on: the link itself, and a button that copies it, in sight without pointing at it."""

from pathlib import Path

import streamlit as st

_copy = st.components.v2.component(
    "copy",
    html='<button type="button" aria-live="polite"></button>',
    css="""button {
        width: 100%; min-height: 2.5rem; padding: 0.25rem 0.75rem; cursor: pointer; font: inherit; font-size: 0.875rem;
        color: var(--st-text-color); background: var(--st-background-color);
        border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius);
    }
    button:hover, button:focus-visible { color: var(--st-primary-color); border-color: var(--st-primary-color); }""",
    js=Path(__file__).with_name("copy.js").read_text("utf-8"),
)


def show(link: str, *, key: str) -> None:
    """The button and the link.

    Args:
        key: of the button.
    """
    _copy(data={"text": link}, key=key)
    st.code(link, language=None, wrap_lines=True)
