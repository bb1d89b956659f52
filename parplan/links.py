"""Scenarios in links: reading one never fails, writing one keeps every field."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from pydantic import ValidationError

from parplan import catalog
from parplan.own_gpu import OWN
from parplan.scenario import (
    AUTO,
    BY_CONFIG,
    BY_SIZE,
    NATIVE,
    SCHEMA,
    Scenario,
    gpu_asked_for,
    transformer_asked_for,
)

VERSION_KEY = "v"
NO_CONFIG = {"model": Scenario().model, "config": ""}
"""What is used instead of a config.json that describes no model."""
NO_GPU = {"gpu": Scenario().gpu, "own_gpu": ""}
"""What is used instead of a description of no GPU."""
SHOWN = 60
"""Characters of a bad value that are shown again."""


def _shown(value: object) -> str:
    return repr(str(value)[:SHOWN])


def from_query(query: Mapping[str, Iterable[str]]) -> tuple[Scenario, list[str]]:
    """The scenario of a query string, and what was wrong with it, in plain words.

    Never raises: a bad value is replaced by its default, an unknown key is ignored, and each is reported.

    Args:
        query: values by key, as `urllib.parse.parse_qs` gives them; of repeated keys the last counts.

    >>> from_query({"concurrency": ["0"], "gpu": ["h200-sxm"]})[1]
    ["concurrency='0' was not used: Input should be greater than or equal to 1; 64 is used instead."]
    """
    given = {key: list(values)[-1] for key, values in query.items() if list(values)}
    messages = _version_messages(given.pop(VERSION_KEY, str(SCHEMA)))
    unknown = [key for key in given if key not in Scenario.model_fields]
    messages += [f"{_shown(key)} is not a setting; it was ignored." for key in unknown]
    values: dict[str, Any] = {key: value for key, value in given.items() if key not in unknown}
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            bad = values.pop(key, None)
            default = Scenario.model_fields[key].default
            messages.append(f"{key}={_shown(bad)} was not used: {problem['msg']}; {default} is used instead.")
        scenario = Scenario.model_validate(values)
    return _with_possible_gpu(*_with_possible_model(*_with_known_names(scenario, messages)))


def _with_possible_model(scenario: Scenario, messages: list[str]) -> tuple[Scenario, list[str]]:
    """A size no model has, or a packed config.json that describes none, is reported and the default used instead."""
    if scenario.model not in (BY_SIZE, BY_CONFIG):
        return scenario, messages
    try:
        transformer_asked_for(scenario)
    except ValueError as error:
        key, change = ("active", {"active": 0}) if scenario.model == BY_SIZE else ("config", NO_CONFIG)
        used = "a dense model" if scenario.model == BY_SIZE else NO_CONFIG["model"]
        return scenario.model_copy(update=change), [
            *messages,
            f"{key} was not used: {error}; {used} is used instead.",
        ]
    return scenario, messages


def _with_possible_gpu(scenario: Scenario, messages: list[str]) -> tuple[Scenario, list[str]]:
    """A GPU of one's own that cannot be used is reported and the default used instead."""
    try:
        gpu_asked_for(scenario)
    except ValueError as error:
        said = f"own_gpu was not used: {error}; {NO_GPU['gpu']} is used instead."
        return scenario.model_copy(update=NO_GPU), [*messages, said]
    return scenario, messages


def _version_messages(version: str) -> list[str]:
    if version == str(SCHEMA):
        return []
    return [
        f"The link says version {_shown(version)}; this is version {SCHEMA}. What is still understood was used."
    ]


def _with_known_names(scenario: Scenario, messages: list[str]) -> tuple[Scenario, list[str]]:
    """Names the catalogue does not know, replaced by the defaults and reported."""
    replaced: dict[str, Any] = {}
    for key, known in known_names().items():
        name = getattr(scenario, key)
        if name not in known:
            default = Scenario.model_fields[key].default
            near = catalog.UnknownNameError(key, name, known).nearest
            hint = f" (the nearest known: {', '.join(near)})" if near else ""
            messages.append(f"{key}={_shown(name)} is not known{hint}; {default} is used instead.")
            replaced[key] = default
    return scenario.model_copy(update=replaced), messages


def known_names() -> dict[str, tuple[str, ...]]:
    """What every field that holds a name may say."""
    return {
        "model": (*catalog.model_files(), *catalog.model_aliases(), BY_SIZE, BY_CONFIG),
        "weights": (NATIVE, *catalog.weight_formats()),
        "kv": (AUTO, *catalog.kv_formats()),
        "gpu": (*catalog.gpus(), OWN),
        "engine": tuple(catalog.engines()),
    }


def to_query(scenario: Scenario, *, full: bool) -> dict[str, str]:
    """A scenario as keys and values of a query string.

    Args:
        full: every field and the schema version, for a link that is passed on and must mean the same after defaults
            change; otherwise only what differs from the defaults.
    """
    values = scenario.model_dump() if full else scenario.changed()
    written = {key: str(value).removesuffix(".0") for key, value in values.items()}
    return {VERSION_KEY: str(SCHEMA)} | written if full else written


def share_url(scenario: Scenario, *, base: str) -> str:
    """A link with every field and the schema version."""
    return f"{base}?{urlencode(to_query(scenario, full=True))}"


def parsed(text: str) -> dict[str, list[str]]:
    """Keys and values of a whole link, a query string, or KEY=VALUE words joined by &.

    >>> parsed("https://example.org/?gpu=h100-sxm&prompt=512")
    {'gpu': ['h100-sxm'], 'prompt': ['512']}
    """
    query = urlsplit(text).query if "?" in text else text
    return parse_qs(query, keep_blank_values=True, max_num_fields=1000)
