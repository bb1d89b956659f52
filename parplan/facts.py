"""The facts a scenario rests on, as letters its link carries: who opens it later is told which of them changed."""

import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from parplan import catalog
from parplan.own_gpu import OWN
from parplan.products import written
from parplan.provenance import Source
from parplan.scenario import BILLION, BY_CONFIG, BY_SIZE, Scenario

LETTERS = 3
"""Letters of a mark, six bits each: a change stays unseen once in 260,000."""
NO_MARK = "~" * LETTERS
"""Stands for what does not come from the catalogue: the link itself holds it."""
GPU_FACTS = {
    "memory": ("memory",),
    "memory bandwidth": ("bandwidth",),
    "arithmetic": ("peaks",),
    "links": ("fabric", "link", "peer", "domain", "node", "network", "pcie"),
}
"""Facts of a GPU, and the fields each is made of."""


@dataclass(frozen=True)
class Fact:
    """Something the catalogue says, as it is today."""

    name: str
    """What it is a fact about, in words."""
    today: str
    """What is known of it today, in words."""
    mark: str
    """`LETTERS` letters that change with it."""


def marks(scenario: Scenario) -> str:
    """The mark of what a scenario names, then of every fact it rests on."""
    return _mark(_names(scenario)) + "".join(fact.mark if fact else NO_MARK for fact in _facts(scenario))


def readable(text: str) -> bool:
    """Whether a text can be what `marks` wrote."""
    return re.fullmatch(rf"(?:[\w-]{{{LETTERS}}}|{NO_MARK})*", text, re.ASCII) is not None


def changed(scenario: Scenario, *, since: str) -> tuple[str, ...]:
    """The facts that are no longer what they were, in words; none where the marks are those of another scenario, as
    after a link was changed by hand.

    Args:
        since: what `marks` wrote once.

    >>> changed(Scenario(), since=marks(Scenario()))
    ()
    """
    then = [since[start : start + LETTERS] for start in range(0, len(since), LETTERS)]
    if then[:1] != [_mark(_names(scenario))]:
        return ()
    return tuple(
        f"{fact.name}: {fact.today}"
        for fact, mark in zip(_facts(scenario), then[1:], strict=False)
        if fact and fact.mark != mark
    )


def _names(scenario: Scenario) -> list[str]:
    return [scenario.model, scenario.weights, scenario.kv, scenario.gpu, scenario.engine]


def _facts(scenario: Scenario) -> tuple[Fact | None, ...]:
    """In an order that never changes; what is added comes last."""
    own, made_up = scenario.gpu == OWN, scenario.model in (BY_SIZE, BY_CONFIG)
    return (
        None if made_up else _of_model(scenario.model),
        *((None,) * len(GPU_FACTS) if own else _of_gpu(scenario.gpu)),
        *_of_engine(scenario.engine),
        None if own or scenario.gpu_hour else _prices(scenario.gpu),
    )


def _mark(value: Any) -> str:
    """Letters that are the same on every machine: what has no order is sorted."""
    spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), default=sorted)
    return urlsafe_b64encode(hashlib.sha256(spelled.encode()).digest()).decode()[:LETTERS]


def _newest(sources: Iterable[Source]) -> str:
    return f"read {max(source.read for source in sources).isoformat()}"


@cache
def _of_model(name: str) -> Fact:
    entry = catalog.model(name)
    found = entry.transformer
    return Fact(
        name=f"architecture of {entry.name}",
        today=f"{found.total_parameters / BILLION:,.1f} billion parameters today, {_newest([entry.source])}",
        mark=_mark([entry.config, entry.quantization]),
    )


@cache
def _of_gpu(name: str) -> tuple[Fact, ...]:
    gpu = catalog.gpus()[name]
    fields_of = gpu.model_dump()
    sizes = {"memory": written(gpu.memory, unit="B"), "memory bandwidth": written(gpu.bandwidth, unit="B/s")}
    found = []
    for fact, fields in GPU_FACTS.items():
        sources = gpu.sources_of(*fields)
        today = f"{sizes[fact]} today, {_newest(sources)}" if fact in sizes else _newest(sources)
        found.append(Fact(f"{fact} of {gpu.label}", today, _mark([fields_of[field] for field in fields])))
    return tuple(found)


@cache
def _of_engine(name: str) -> tuple[Fact, Fact]:
    engine = catalog.engines()[name]
    speed, memory = engine.speed.model_dump(), engine.memory.model_dump()
    return (
        Fact(f"speed constants of {engine.label}", f"for {engine.versions} today", _mark(speed)),
        Fact(f"memory overheads of {engine.label}", f"for {engine.versions} today", _mark(memory)),
    )


@cache
def _prices(gpu: str) -> Fact:
    offers = [one for one in catalog.instances() if one.gpu == gpu]
    listed = [(one.provider, one.name, one.gpus, one.price) for one in offers]
    days = [one.priced.isoformat() for one in offers if one.priced]
    newest = f"newest of {max(days)} today" if days else "none today"
    return Fact(f"list prices of {catalog.gpus()[gpu].label}", newest, _mark(listed))
