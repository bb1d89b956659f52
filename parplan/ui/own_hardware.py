"""A GPU of one's own: a form that starts from a GPU of the catalogue and ends in the link."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import streamlit as st

from parplan import catalog
from parplan.formats import Arithmetic
from parplan.hardware import Gpu
from parplan.layout import MOST_GPUS
from parplan.own_gpu import (
    OWN,
    OwnGpu,
    OwnGpuError,
    packed_gpu,
    unpacked_fields,
    unpacked_gpu,
    written_gpu,
)
from parplan.scenario import Scenario
from parplan.ui import history

SPEEDS = {
    "memory": "Memory",
    "bandwidth": "Memory bandwidth",
    "link": "Link",
    "peer": "To one other GPU",
    "network": "Network",
    "pcie": "PCIe",
    "tdp": "Power limit",
}
"""Quantities, as people write them."""
COUNTS = {"domain": "GPUs the link joins", "node": "GPUs per machine"}
CHOICES = {"vendor": "Vendor", "fabric": "Link type"}
PEAKS: Sequence[Arithmetic] = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4")
LONGEST = 40
"""Characters of one field."""


def _key(name: str) -> str:
    return f"_own_{name}"


def _about(name: str) -> str | None:
    return OwnGpu.model_fields[name].description


def copied(gpu: Gpu) -> dict[str, Any]:
    """A GPU of the catalogue as the description of one's own."""
    return written_gpu(gpu) | {"label": f"My {gpu.label}"[:LONGEST].strip()}


def _start() -> None:
    """Describe the GPU picked to start from, and plan for it."""
    if chosen := st.session_state[_key("start")]:
        described = {"gpu": OWN, "own_gpu": packed_gpu(copied(catalog.gpus()[chosen]))}
        st.session_state.update(described | {_key("start"): None})
        history.enter(described)


def _take() -> None:
    """Plan for what the form says, or say why not."""
    state = st.session_state
    names = ("label", "architecture", *CHOICES, *SPEEDS, *COUNTS)
    fields = {name: value for name in names if (value := state[_key(name)]) not in (None, "")}
    fields["peaks"] = {name: value for name in PEAKS if (value := state[_key(name)].strip())}
    try:
        state["own_gpu"] = state[_key("shown")] = packed_gpu(fields)
        state[_key("error")] = ""
    except OwnGpuError as error:
        state[_key("error")] = str(error)


def _described() -> Mapping[str, Any]:
    """The description in use; a copy of the default GPU where there is none."""
    state = st.session_state
    for text in (state.get("own_gpu"), state.get(_key("kept"))):
        try:
            unpacked_gpu(text or "")
            state["own_gpu"] = text
            return unpacked_fields(text or "")
        except OwnGpuError:
            continue
    fields = copied(catalog.gpus()[Scenario().gpu])
    state["own_gpu"] = packed_gpu(fields)
    return fields


def _fill() -> None:
    """Move the form to the description in use, unless it shows that one already."""
    state, fields = st.session_state, _described()
    packed = state[_key("kept")] = state["own_gpu"]
    if packed == state.get(_key("shown")) and _key("label") in state:
        return
    state[_key("shown")], state[_key("error")] = packed, ""
    checked = unpacked_gpu(packed)
    for name in ("label", "architecture", *CHOICES, *SPEEDS):
        state[_key(name)] = str(fields.get(name) or "")
    for name in COUNTS:
        state[_key(name)] = getattr(checked, name)
    for peak in PEAKS:
        state[_key(peak)] = str(fields["peaks"].get(peak, ""))


def _text(name: str, label: str, *, about: str | None) -> None:
    st.text_input(label, key=_key(name), max_chars=LONGEST, on_change=_take, help=about)


def _form() -> None:
    """Every field of the description, two abreast."""
    _fill()
    if error := st.session_state[_key("error")]:
        st.text(f"Not used: {error}")
    _text("label", "Name", about=_about("label"))
    left, right = st.columns(2)
    for place, (name, label) in zip((left, right), CHOICES.items(), strict=True):
        options = get_args(OwnGpu.model_fields[name].annotation)
        place.selectbox(label, options, key=_key(name), on_change=_take, help=_about(name))
    known = {gpu.architecture for gpu in catalog.gpus().values()} | {st.session_state[_key("architecture")]}
    st.selectbox(
        "Architecture",
        sorted(known),
        key=_key("architecture"),
        accept_new_options=True,
        on_change=_take,
        help=_about("architecture"),
    )
    for place, (name, label) in zip((left, right), COUNTS.items(), strict=True):
        place.number_input(label, 1, MOST_GPUS, key=_key(name), on_change=_take, help=_about(name))
    left, right = st.columns(2)
    for index, (name, label) in enumerate(SPEEDS.items()):
        with (left, right)[index % 2]:
            _text(name, label, about=_about(name))
    st.caption("Dense peaks; leave out what it cannot do")
    left, right = st.columns(2)
    for index, peak in enumerate(PEAKS):
        with (left, right)[index % 2]:
            _text(peak, peak, about=_about("peaks"))
    st.text_input("The same, as the link carries it", key="own_gpu", bind="query-params", disabled=True)


def sidebar() -> None:
    """The form where the scenario has a GPU of its own; otherwise where to start one from."""
    own = st.session_state["gpu"] == OWN
    with st.expander("Own GPU", icon=":material/memory:", expanded=own):
        st.selectbox(
            "Start from",
            list(catalog.gpus()),
            index=None,
            key=_key("start"),
            placeholder="a GPU of the catalogue",
            on_change=_start,
            filter_mode="contains",
            help="Its figures are copied; change what differs in yours. They travel in the link.",
        )
        if own:
            _form()
