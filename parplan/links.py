"""Scenarios in links: reading one never fails, writing one keeps every field."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

from pydantic import ValidationError

from parplan import catalog, facts
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
from parplan.workload import OBJECTIVES

VERSION_KEY, FACTS_KEY = "v", "facts"
VIEW_KEY, ROW_KEY = "view", "row"
"""Say which tab is open and which layout is ticked, and nothing about the scenario."""
MIGRATIONS: Mapping[int, Callable[[dict[str, str]], dict[str, str]]] = {}
"""By version of the link format, what turns the settings of such a link into those of the next version: fields by their
new names; with its former default, a field that the link could not have yet and whose default has changed."""
NO_CONFIG = {"model": Scenario().model, "config": ""}
"""What is used instead of a config.json that describes no model."""
NO_GPU = {"gpu": Scenario().gpu, "own_gpu": ""}
"""What is used instead of a description of no GPU."""
MOST_FIELDS = 1000
"""Settings of a query string that are read; there are some fifty."""
MOST_CHARACTERS = 1 << 17
"""Four times the longest link there can be; packed parts are refused when they are longer than a link carries."""
SHOWN = 60
"""Characters of a bad value that are shown again."""


@dataclass(frozen=True)
class Complaint:
    """One thing that was wrong with a query string, and what was done instead."""

    wrong: str
    instead: str

    def __str__(self) -> str:
        """Both, as a sentence."""
        return f"{self.wrong}; {self.instead}."


@dataclass(frozen=True)
class Reading:
    """What a query string asks for."""

    scenario: Scenario
    complaints: tuple[Complaint, ...] = ()
    """Everything that was wrong with it."""
    changes: tuple[str, ...] = ()
    """Facts of the catalogue that are not what they were when the link was made, in words."""


def _shown(value: object) -> str:
    return repr(str(value)[:SHOWN])


def from_query(query: Mapping[str, Iterable[str]]) -> tuple[Scenario, list[str]]:
    """The scenario of a query string, and what is to be said about it, in plain words.

    Never raises: a bad value is replaced by its default, an unknown key is ignored, and each is reported, as are facts
    that changed since the link was made.

    Args:
        query: values by key, as `urllib.parse.parse_qs` gives them; of repeated keys the last counts.

    >>> from_query({"concurrency": ["0"], "gpu": ["h200-sxm"]})[1]
    ["concurrency='0' was not used: Input should be greater than or equal to 1; 64 is used instead."]
    """
    found = read(query)
    changes = [f"Changed since the link was made: {change}." for change in found.changes]
    return found.scenario, [*(str(complaint) for complaint in found.complaints), *changes]


def read(query: Mapping[str, Iterable[str]]) -> Reading:
    """The scenario of a query string, everything that was wrong with it, and what has changed; see `from_query`."""
    given = {key: list(values)[-1] for key, values in query.items() if list(values)}
    version, since = given.pop(VERSION_KEY, str(SCHEMA)), given.pop(FACTS_KEY, "")
    for key in (VIEW_KEY, ROW_KEY):
        given.pop(key, None)
    given, complaints = _of_today(given, version=version)
    complaints = [*_repeated(query), *complaints]
    if not facts.readable(since):
        complaints.append(
            Complaint(f"{FACTS_KEY}={_shown(since)} says nothing", "what has changed is not known")
        )
        since = ""
    unknown = [key for key in given if key not in Scenario.model_fields]
    complaints += [Complaint(f"{_shown(key)} is not a setting", "it was ignored") for key in unknown]
    values: dict[str, Any] = {key: value for key, value in given.items() if key not in unknown}
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            wrong = f"{key}={_shown(values.pop(key, None))} was not used: {problem['msg']}"
            complaints.append(Complaint(wrong, f"{Scenario.model_fields[key].default} is used instead"))
        scenario = Scenario.model_validate(values)
    for check in (_with_known_names, _with_possible_model, _with_possible_gpu):
        scenario, found = check(scenario)
        complaints += found
    return Reading(scenario, tuple(complaints), facts.changed(scenario, since=since))


def _repeated(query: Mapping[str, Iterable[str]]) -> list[Complaint]:
    """Settings that are given more than once, and not the same every time."""
    times = {
        key: list(values) for key, values in query.items() if key in (*Scenario.model_fields, VERSION_KEY)
    }
    return [
        Complaint(f"{key} is given {len(values)} times", f"the last of them, {_shown(values[-1])}, counts")
        for key, values in times.items()
        if len(set(values)) > 1
    ]


def _of_today(given: dict[str, str], *, version: str) -> tuple[dict[str, str], list[Complaint]]:
    """The settings of a link of any version as this one names them."""
    known = [str(number) for number in range(1, SCHEMA + 1)]
    if version not in known:
        wrong = f"The link says version {_shown(version)}, and this is version {SCHEMA}"
        return given, [Complaint(wrong, "what is still understood was used")]
    for number in range(int(version), SCHEMA):
        given = MIGRATIONS[number](given)
    return given, []


def _with_known_names(scenario: Scenario) -> tuple[Scenario, list[Complaint]]:
    """Names the catalogue does not know, replaced by the defaults and reported."""
    replaced: dict[str, Any] = {}
    complaints = []
    for key, known in known_names().items():
        name = getattr(scenario, key)
        if name not in known:
            replaced[key] = Scenario.model_fields[key].default
            near = catalog.UnknownNameError(key, name, known).nearest
            hint = (
                f"the nearest known: {', '.join(near)}"
                if near
                else f"{len(known)} are, {known[0]} among them"
            )
            wrong = f"{key}={_shown(name)} is not known ({hint})"
            complaints.append(Complaint(wrong, f"{replaced[key]} is used instead"))
    return scenario.model_copy(update=replaced), complaints


def _with_possible_model(scenario: Scenario) -> tuple[Scenario, list[Complaint]]:
    """A size no model has, or a packed config.json that describes none, is reported and the default used instead."""
    if scenario.model not in (BY_SIZE, BY_CONFIG):
        return scenario, []
    try:
        transformer_asked_for(scenario)
    except ValueError as error:
        by_size = scenario.model == BY_SIZE
        what, change = ("The active parameters", {"active": 0}) if by_size else ("The config.json", NO_CONFIG)
        used = "a dense model" if by_size else NO_CONFIG["model"]
        complaint = Complaint(
            f"{what} {'were' if by_size else 'was'} not used: {error}", f"{used} is used instead"
        )
        return scenario.model_copy(update=change), [complaint]
    return scenario, []


def _with_possible_gpu(scenario: Scenario) -> tuple[Scenario, list[Complaint]]:
    """A GPU of one's own that cannot be used is reported and the default used instead."""
    try:
        gpu_asked_for(scenario)
    except ValueError as error:
        complaint = Complaint(
            f"The GPU of your own was not used: {error}", f"{NO_GPU['gpu']} is used instead"
        )
        return scenario.model_copy(update=NO_GPU), [complaint]
    return scenario, []


def known_names() -> dict[str, tuple[str, ...]]:
    """What every field that holds a name may say."""
    return {
        "model": (*catalog.model_files(), *catalog.model_aliases(), BY_SIZE, BY_CONFIG),
        "weights": (AUTO, NATIVE, *catalog.weight_formats()),
        "kv": (AUTO, *catalog.kv_formats()),
        "gpu": (*catalog.gpus(), OWN),
        "engine": tuple(catalog.engines()),
        "objective": tuple(OBJECTIVES),
    }


def to_query(scenario: Scenario, *, full: bool) -> dict[str, str]:
    """A scenario as keys and values of a query string.

    Args:
        full: every field, the schema version, and the facts it rests on, for a link that is passed on: it must mean the
            same after defaults change, and say so where facts do; otherwise only what differs from the defaults.
    """
    values = scenario.model_dump() if full else scenario.changed()
    written = {key: _written(value) for key, value in values.items()}
    if not full:
        return written
    return {VERSION_KEY: str(SCHEMA)} | written | {FACTS_KEY: facts.marks(scenario)}


def _written(value: str | float) -> str:
    """A value as short as it can be read back: 70 rather than 70.0; yes and no as the page's widgets write them."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value).removesuffix(".0")


def share_url(scenario: Scenario, *, base: str) -> str:
    """A link with every field, the schema version, and the marks of the facts of today."""
    return f"{base}?{urlencode(to_query(scenario, full=True))}"


def parsed(text: str) -> dict[str, list[str]]:
    """Keys and values of a whole link, a query string, or KEY=VALUE words joined by &; what follows the first
    `MOST_FIELDS`, or the first `MOST_CHARACTERS`, is not read.

    >>> parsed("https://example.org/?gpu=h100-sxm&prompt=512")
    {'gpu': ['h100-sxm'], 'prompt': ['512']}
    """
    text = text[:MOST_CHARACTERS]
    query = text.partition("#")[0].partition("?")[2] if "?" in text else text
    fields = query.split("&", MOST_FIELDS)[:MOST_FIELDS]
    return parse_qs("&".join(fields), keep_blank_values=True)
