"""The sidebar: one widget per field of the scenario, bound to the link in the address bar.

The address bar holds what differs from the defaults. It is read once, when a session starts: whatever it asks for that
cannot be had is replaced and said so. Steps of a slider always include the value a link brought, however odd.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import streamlit as st
from pydantic import ValidationError
from streamlit.elements.lib.mutable_popover_container import PopoverContainer

from parplan import catalog
from parplan.facts import readable
from parplan.hub import ConfigError, DownloadError, Hub
from parplan.layout import CUT_NAMES
from parplan.links import FACTS_KEY, ROW_KEY, VIEW_KEY, Reading, from_query, known_names, read, to_query
from parplan.own_model import LARGEST_CONFIG, packed, packed_entry
from parplan.scenario import (
    BY_CONFIG,
    BY_SIZE,
    OVERHEADS,
    Scenario,
    leaves_out_towers,
    transformer_asked_for,
)
from parplan.shortlist import PLACES
from parplan.ui import history, own_hardware
from parplan.ui.words import count, plain, sentence
from parplan.workload import OBJECTIVES

Steps: TypeAlias = tuple[float, ...]

LONGEST_ID = 200
"""Characters of a Hub id."""
STEPS: dict[str, Steps] = {
    "size": (0.5, 1, 1.5, 2, 3, 4, 7, 8, 9, 12, 14, 20, 24, 27, 30, 32, 40, 50, 70, 100, 120, 140, 180, 235, 300, 400,
             500, 670, 800, 1000, 1500, 2000),
    "active": (0, 1, 2, 3, 4, 5, 8, 12, 17, 20, 22, 32, 37, 50, 75, 100, 150, 200),
    "concurrency": (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096),
    "prompt": (16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
               49152, 65536, 98304, 131072, 196608, 262144, 524288, 1000000, 2000000),
    "output": (1, 16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
               65536, 131072, 200000),
}  # fmt: skip
"""Where the sliders stop."""
ELSEWHERE = (*PLACES, VIEW_KEY, ROW_KEY)
"""Keys of the address bar that others read: the scenarios of a comparison, the open tab, the ticked layout."""
EXACT = {"concurrency": "Concurrent requests", "prompt": "Prompt tokens", "output": "Output tokens"}
"""Sliders whose value can also be typed."""
FOLDED: dict[str, dict[str, tuple[str, float]]] = {
    "Load": {
        "prefix": ("Prefix cache hits, %", 5),
        "replicas": ("Replicas", 1),
        "rate": ("Requests per second", 1),
        "peak": ("Peak over mean", 0.5),
    },
    "Layout": {
        "budget": ("Most GPUs per replica", 1),
        "tensor": ("Tensor (TP)", 1),
        "data": ("Attention data (DP)", 1),
        "pipeline": ("Pipeline stages (PP)", 1),
        "expert": ("Expert groups (EP)", 1),
        "redundant": ("Redundant experts", 8),
        "context": ("Context (CP)", 1),
        "decode_context": ("Decode context (DCP)", 1),
    },
    "Engine settings": {
        "utilization": ("GPU memory taken, %", 1),
        "slots": ("Sequences at once", 64),
        "step_tokens": ("Tokens of one step", 1024),
        "images": ("Images", 0),
        "draft": ("Drafted tokens per step", 1),
        "acceptance": ("Accepted of them, %", 5),
    },
    "Prices": {
        "discount": ("Off list prices, %", 5),
        "gpu_hour": ("Own price, USD per GPU and hour", 0.1),
    },
    "From measurements": {
        "activations": ("Activations, GiB", 0.1),
        "non_torch": ("Non-torch memory, GiB", 0.1),
        "graphs": ("CUDA graphs, GiB", 0.1),
        "memory_scale": ("Memory rate, times", 0.05),
        "compute_scale": ("Arithmetic rate, times", 0.05),
        "overhead_scale": ("Overheads, times", 0.05),
    },
}
"""Fields rarely used, folded away: label of each, and the step of a number."""
LABELS = {name: label for fields in FOLDED.values() for name, (label, _) in fields.items()}
"""What they are called."""
EMPTY: dict[str, str] = {
    **dict.fromkeys(("ttft", "tpot"), "none"),
    **dict.fromkeys(("budget", *CUT_NAMES, "utilization", "slots", "step_tokens", *OVERHEADS), "auto"),
    "gpu_hour": "list price",
}
"""Numbers that may be left out, and what their empty fields say then. Links hold the scenario's default instead."""


def whole(value: Any) -> Any:
    """A number as people write it: 70 rather than 70.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def open_link() -> None:
    """Take the scenario from the address bar when a session starts, and leave there only what could be used."""
    if "_link" in st.session_state:
        return
    asked = {key: st.query_params.get_all(key) for key in st.query_params}
    given = {key: values for key, values in asked.items() if key not in ELSEWHERE}
    found = st.session_state["_link"] = read(given)
    st.session_state["_extra"] = {name: set() for name in STEPS}
    _move(found.scenario)
    used = to_query(found.scenario, full=True)
    if readable(asked.get(FACTS_KEY, [""])[-1]):
        used[FACTS_KEY] = asked.get(FACTS_KEY, [""])[
            -1
        ]  # of the day the link was made: a reload says the same
    kept = {
        key: used[key]
        for key, values in given.items()
        if values[-1:] == [used.get(key)] and not left_out(key, getattr(found.scenario, key, None))
    }
    if kept.keys() != given.keys() or any(len(values) > 1 for values in asked.values()):
        st.query_params.from_dict(kept | {key: asked[key][-1] for key in ELSEWHERE if key in asked})
        st.rerun()  # widgets read the address as it was when the run began


def keep(page: str) -> None:
    """Take the scenario of the address where Back or Forward leads; or along to another page, where the address has
    lost it: it does when somebody goes on before the browser knows all widgets.

    Args:
        page: the one to be shown.
    """
    last, st.session_state["_page"] = st.session_state.get("_page", page), page
    if history.gone_through():  # widgets see it when they are run, and the page may be drawn before
        take(read({key: st.query_params.get_all(key) for key in st.query_params}).scenario)
    elif taken := st.session_state.get("_taken"):
        take(taken.model_copy(update=_moved()))
    elif last != page and not st.query_params.keys() & Scenario.model_fields.keys():
        take(st.session_state.get("_scenario", st.session_state["_link"].scenario))


def left_out(name: str, value: Any) -> bool:
    """Whether a value of a field says no more than that it was left out.

    >>> left_out("tpot", 0), left_out("activations", -1), left_out("prefix", 0)
    (True, True, False)
    """
    predicted = name in OVERHEADS and value < 0
    return predicted or (name in EMPTY and bool(value == Scenario.model_fields[name].default))


def kept(scenario: Scenario) -> None:
    """Remember what the whole page was made for, settings and all."""
    st.session_state.update(_scenario=scenario, _taken=None)


def _moved() -> Mapping[str, Any]:
    """Fields that differ from what the last whole page was made for."""
    before: Scenario = st.session_state.get("_scenario", st.session_state["_link"].scenario)
    return {name: value for name, value in scenario() if value != getattr(before, name)}


def take(scenario: Scenario) -> None:
    """Move every widget to a scenario, and the address with them; for buttons.

    It is remembered until a run has reached all widgets: another click may come before that, and with it the browser
    repeats what they said before this one.
    """
    _move(scenario)
    st.session_state["_taken"] = scenario
    history.enter(dict.fromkeys(Scenario.model_fields, "") | to_query(scenario, full=False))


def _move(scenario: Scenario) -> None:
    for name, value in scenario:
        if name in STEPS:
            st.session_state["_extra"][name].add(whole(value))
        st.session_state[name] = _widget_value(name, value)


def _widget_value(name: str, value: Any) -> Any:
    """A field's value as its widget holds it: sliders show whole numbers as such, what is left out is empty."""
    if left_out(name, value):
        return None
    return whole(value) if name in STEPS else _kind(name)(value)


def _kind(name: str) -> Any:
    """The type of a field."""
    return Scenario.model_fields[name].annotation


def _default(name: str) -> Any:
    return _widget_value(name, Scenario.model_fields[name].default)


def _about(name: str) -> str | None:
    """Help of a field: its own documentation."""
    return Scenario.model_fields[name].description


def limits(name: str) -> dict[str, Any]:
    """Smallest and largest value to type into a field, of the field's own type; a predicted overhead is not typed."""
    least, most = (
        next(
            bound
            for item in Scenario.model_fields[name].metadata
            if (bound := getattr(item, side, None)) is not None
        )
        for side in ("ge", "le")
    )
    return {"min_value": _kind(name)(0 if name in OVERHEADS else least), "max_value": _kind(name)(most)}


def _choose(name: str, label: str) -> str:
    listed = sorted(known_names()[name], key=lambda one: one not in (BY_SIZE, BY_CONFIG))  # in sight first
    chosen: str = st.selectbox(
        label,
        listed,
        index=listed.index(_default(name)),
        key=name,
        bind="query-params",
        help=_about(name),
        filter_mode="contains",
    )
    return chosen


def _slide(name: str, label: str, *, below: float | None = None) -> None:
    """A slider over a field's steps and the odd values that links and people brought.

    Args:
        below: leave out what is not below this.
    """
    steps = sorted({*STEPS[name], *st.session_state["_extra"][name]})
    st.select_slider(
        label,
        [step for step in steps if below is None or step < below],
        value=_default(name),
        key=name,
        bind="query-params",
        help=_about(name),
    )


def _number(name: str, label: str, *, step: float = 1) -> None:
    st.number_input(
        label,
        **limits(name),
        value=_default(name),
        step=_kind(name)(step),
        format="%d" if _kind(name) is int else "%g",
        key=name,
        bind="query-params",
        help=_about(name),
        placeholder=EMPTY.get(name),
    )


def _switch(name: str, label: str) -> None:
    st.toggle(label, value=_default(name), key=name, bind="query-params", help=_about(name))


def _applies(name: str) -> bool:
    """Whether a folded field means something for the model and the engine, or differs from its default."""
    if name != "images" or _in_use(name):
        return True
    try:
        asked = scenario()
        return leaves_out_towers(transformer_asked_for(asked), engine=catalog.engines()[asked.engine])
    except ConfigError:
        return False


def _in_use(name: str) -> bool:
    """Whether a folded field differs from its default, here or in the address bar: without its widget, the address bar
    would lose it. Groups that are neither open nor in use are not built."""
    return st.session_state.get(name, _default(name)) != _default(name) or name in st.query_params


def _typed() -> None:
    """Move sliders to the numbers typed."""
    take(scenario().model_copy(update={name: st.session_state[f"_exact_{name}"] for name in EXACT}))


def folded(label: str, *, icon: str, width: Literal["stretch", "content"] = "stretch") -> PopoverContainer:
    """A button with something behind it, to be built only while it is open."""
    return st.popover(label, icon=icon, width=width, key=f"_open_{label}", on_change="rerun")


def _exact_numbers() -> None:
    """The same numbers typed: used all at once and when asked for, so that what a browser still shows of earlier values
    moves no slider back."""
    with folded("Exact numbers", icon=":material/edit:") as exact:
        if exact.open:
            with st.form("_exact_form", border=False):
                for name, label in EXACT.items():
                    st.session_state[f"_exact_{name}"] = st.session_state[name]
                    st.number_input(label, **limits(name), key=f"_exact_{name}")
                st.form_submit_button("Use these", on_click=_typed, width="stretch")


def _objective() -> None:
    """What the best layout is. The address has the names of the options as they are shown, so what they mean stands
    below."""
    chosen = _choose("objective", "Best layout by")
    st.caption(
        plain(next(f"{name}: the one {words}" for name, words in OBJECTIVES.items() if name == chosen))
    )


def _model() -> None:
    chosen = _choose("model", "Model")
    if chosen not in (BY_SIZE, BY_CONFIG):
        st.caption(plain(_described(chosen)))
    if chosen == BY_SIZE:
        _slide("size", "Size, billion parameters")
        _slide("active", "Active per token, billion (0: dense)", below=st.session_state["size"])
    if chosen == BY_CONFIG:
        _config()


def _described(name: str) -> str:
    """A model of the catalogue in one line; the selector may have no room for its whole name."""
    model = catalog.transformer(name)
    active = f", {count(model.active_parameters)} active" if model.is_moe else ""
    stored = " and ".join(sorted(set(model.native.values()) or {"bf16"}))
    return (
        f"{model.name.rpartition('/')[2]}: {count(model.total_parameters)} parameters{active}; "
        f"context {model.context_length:,}; published in {stored}"
    )


def _take(pack: Callable[[], str]) -> None:
    """Plan for the model somebody gives, or say why not."""
    try:
        st.session_state["config"] = pack()
        st.session_state["_config_error"] = ""
    except (ConfigError, DownloadError) as error:
        st.session_state["_config_error"] = str(error)


def _take_pasted() -> None:
    _take(lambda: packed(st.session_state["_pasted"]))


def _take_uploaded() -> None:
    given = st.session_state["_uploaded"]
    if given is not None:
        _take(lambda: packed(given.getvalue()))


def _take_fetched() -> None:
    _take(lambda: packed_entry(Hub.from_environment().entry(st.session_state["_hub_id"].strip())))


def _config() -> None:
    """A config.json to paste, to upload or to fetch, and the packed form that the link carries."""
    st.text_area(
        "config.json",
        key="_pasted",
        height=140,
        max_chars=LARGEST_CONFIG,
        on_change=_take_pasted,
        persist_state="session",
        placeholder='{"architectures": ["LlamaForCausalLM"], ...}',
        help="From the model's page on the Hub. Nothing is sent anywhere but into your link.",
    )
    st.file_uploader("Or a file", type="json", key="_uploaded", on_change=_take_uploaded)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Or a Hub id",
            key="_hub_id",
            max_chars=LONGEST_ID,
            placeholder="organisation/model",
            persist_state="session",
        )
        st.button(
            "Fetch",
            on_click=_take_fetched,
            help="This server asks the Hub, or the mirror HF_ENDPOINT names, for the model's config.",
        )
    if error := st.session_state.get("_config_error"):
        st.text(f"Not used: {error}")
    st.text_input("The same, as the link carries it", key="config", bind="query-params", disabled=True)


def sidebar() -> None:
    """All inputs. Those the mission names first, rarely used ones folded away."""
    with st.sidebar:
        _model()
        with st.grid(2, min_column_width=100):
            _choose("weights", "Weights")
            _choose("kv", "KV cache")
        _choose("gpu", "GPU")
        own_hardware.sidebar()
        _slide("concurrency", "Concurrent requests")
        _slide("prompt", "Prompt tokens")
        _slide("output", "Output tokens")
        _exact_numbers()
        _choose("engine", "Engine")
        st.caption("Targets, if any")
        with st.grid(2, min_column_width=100):
            _number("ttft", "First token, ms", step=50)
            _number("tpot", "Each token, ms", step=1)
        _objective()
        for title, fields in FOLDED.items():
            with st.expander(title, icon=":material/tune:", key=f"_fold_{title}", on_change="rerun") as group:
                if group.open or any(_in_use(name) for name in fields):
                    for name, (label, step) in fields.items():
                        if _kind(name) is not bool:
                            _number(name, label, step=step)
                        elif _applies(name):
                            _switch(name, label)


def scenario() -> Scenario:
    """What the widgets say. They run in a browser, so they are checked like any other input."""
    state = st.session_state.to_dict()
    chosen = {name: state[name] for name in Scenario.model_fields if state.get(name) is not None}
    try:
        return Scenario.model_validate(chosen)
    except ValidationError:
        return from_query({name: [str(value)] for name, value in chosen.items()})[0]


def link_messages() -> None:
    """What a link asked for and did not get, and which facts have changed since it was made."""
    link: Reading = st.session_state["_link"]
    if not (link.complaints or link.changes):
        return
    with st.container(border=True):
        if link.complaints:
            st.markdown(":orange-badge[Link] Part of it could not be used:")
            st.text("\n".join(map(str, link.complaints)))
        if link.changes:
            st.markdown(":blue-badge[Link] Changed since it was made; the numbers here are those of today:")
            st.text("\n".join(map(sentence, link.changes)))
        st.button("Dismiss", on_click=lambda: st.session_state.update(_link=Reading(link.scenario)))
