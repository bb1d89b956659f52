"""How a number is made: the formulas in their own words, read from the code that computes them."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType

import streamlit as st

from parplan import (
    allocator,
    attention,
    collectives,
    cost,
    drafting,
    instances,
    layout,
    load,
    matrices,
    memory,
    messages,
    placement,
    replicas,
    seating,
    serving,
    step,
    traffic,
    waiting,
    work,
)

CHAPTERS: dict[str, ModuleType] = {
    "Layout": layout,
    "Work": work,
    "Memory": memory,
    "Cache": allocator,
    "Drafting": drafting,
    "Rates": placement,
    "Matrix products": matrices,
    "Attention": attention,
    "Seats": seating,
    "Collectives": collectives,
    "Messages": messages,
    "One step": step,
    "Serving": serving,
    "Load": load,
    "Waiting": waiting,
    "Traffic": traffic,
    "Replicas": replicas,
    "Buying": instances,
    "Cost": cost,
}


def modules(chapter: ModuleType) -> Iterator[ModuleType]:
    """The module of a chapter; of a package, those it is made of."""
    yield chapter
    for part in pkgutil.iter_modules(getattr(chapter, "__path__", ()), prefix=f"{chapter.__name__}."):
        yield importlib.import_module(part.name)


def formulas(chapter: ModuleType) -> Iterator[tuple[str, str]]:
    """Name and documentation of every public formula of a chapter, in the order of the code."""
    for module in modules(chapter):
        for name, value in vars(module).items():
            own = (
                isinstance(value, FunctionType)
                and value.__module__ == module.__name__
                and not name.startswith("_")
            )
            if own and (documentation := inspect.getdoc(value)):
                yield name, documentation


def show() -> None:
    """One chapter at a time."""
    st.subheader("How a number is made", anchor=False)
    st.text(
        "The documentation of the code that computes them. Quantities are bytes, seconds, FLOP, tokens and USD. "
        "Explain, beside the verdict of a plan and below figures of Hardware, Load and Buy, opens the same formulas "
        "with your numbers."
    )
    tabs = st.tabs(list(CHAPTERS), key="_chapter", on_change="rerun")
    for tab, chapter in zip(tabs, CHAPTERS.values(), strict=True):
        if tab.open:
            with tab:
                st.text(inspect.getdoc(chapter))
                for name, documentation in formulas(chapter):
                    st.markdown(f"**`{name}`**")
                    st.code(documentation, language=None, wrap_lines=True)
