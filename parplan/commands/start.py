"""What a command follows from: the checkpoint to load, the longest request, the nodes; and what an engine must say."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from parplan.commands.shell import MODEL, Word
from parplan.formats import LINEAR, Component, Format
from parplan.layout import Cuts, Layout
from parplan.memory import Memory
from parplan.problem import Problem
from parplan.seating import Order, Seating
from parplan.units import Bytes, gib

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
PLAIN = {"bf16": "bfloat16", "fp16": "half", "fp32": "float32"}
"""Formats every engine converts on loading, as `--dtype` names them."""
DRAFTER = "DRAFTER"
"""Stands for a checkpoint that drafts tokens, which the reader has to name."""
CACHE_BLOCK = 16
"""The longest request is rounded up to whole cache blocks of so many tokens."""


@dataclass(frozen=True)
class Launch:
    """How to start one replica of a layout."""

    engine: str
    """Name of the engine."""
    commands: tuple[str, ...] = ()
    """One shell command per node, the first node first; a single one where a cluster manager starts all nodes."""
    config: str = ""
    """A YAML file the commands name; empty where none is needed."""
    expect: tuple[str, ...] = ()
    """Lines, or the start of lines, of the log: what the memory model predicts, in the engine's own words."""
    notes: tuple[str, ...] = ()
    """What else there is to know or to do."""
    cannot: str = ""
    """Why the engine cannot run the layout; empty when it can."""
    checked: str = ""
    """Version the flags and lines were checked against."""


@dataclass(frozen=True)
class Checkpoint:
    """What to load, and how."""

    model: Word
    quantization: str | None = None
    """Method that quantises on loading. None: the weights stay as they are stored."""
    note: str = ""

    @property
    def published(self) -> bool:
        """It is the model's own checkpoint, with the formats its config states."""
        return isinstance(self.model, str)


@dataclass(frozen=True)
class Start:
    """Everything a command of one engine follows from."""

    problem: Problem
    layout: Layout
    checkpoint: Checkpoint
    order: Order
    """The order in which the engine numbers ranks."""
    kv: str | None
    """The engine's name of the KV format. None: the engine's own choice is the right one."""
    utilization: float | None
    """Share of memory, where the user chose one for this very engine."""
    slots: int | None = None
    """Sequences of one data rank, where they are not the engine's default."""
    step: int | None = None
    """Tokens of one step, likewise."""

    @property
    def length(self) -> int:
        """Longest request to expect, tokens."""
        return announced_length(self.problem)

    @property
    def nodes(self) -> int:
        """Nodes of one replica."""
        return int(Seating(self.layout, self.problem.gpu, self.order).nodes)

    @property
    def drafts(self) -> int:
        """Tokens drafted for every request and step; 0: none."""
        return self.problem.settings.drafts

    @property
    def drafts_itself(self) -> bool:
        """The model has layers that draft tokens; the plan counts on an EAGLE-3 head, a checkpoint of its own, where it
        has none."""
        return bool(self.problem.transformer.mtp)

    @property
    def copies(self) -> int:
        """Redundant experts of a layer; none where experts are not whole."""
        return self.problem.settings.redundant_experts if self.layout.expert > 1 else 0

    @property
    def dtype(self) -> str | None:
        """The 16- or 32-bit type, where it is not the checkpoint's: asked for, or all the GPU can do."""
        asked = {found.name for found in asked_formats(self.problem).values()} & (PLAIN.keys() - {"bf16"})
        halves = self.problem.precision.kv.name == "fp16" or "bf16" not in self.problem.gpu.peaks
        return PLAIN[min(asked)] if asked else "half" if halves else None


@dataclass(frozen=True)
class Dialect(ABC):
    """One engine's command line, at one version."""

    label: ClassVar[str]
    """The name people read."""
    version: str
    online: Mapping[str, str]
    """Formats the engine quantises 16-bit checkpoints to on loading, and its names of the methods."""
    kv: Mapping[str, str]
    """KV cache formats, and the engine's names of them."""

    @abstractmethod
    def refusal(self, problem: Problem, layout: Layout) -> str:
        """Why there are no flags for a layout; empty when there are."""

    @abstractmethod
    def commands(self, start: Start) -> tuple[str, ...]:
        """One command per node, or one for all."""

    @abstractmethod
    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Log lines of one data rank."""

    def config(self, start: Start) -> str:  # noqa: ARG002
        """A YAML file the commands name; most engines need none."""
        return ""


def written_gib(amount: Bytes) -> str:
    """GiB as logs write them."""
    return f"{float(gib(amount)):.2f}"


def more_than_one(size: Cuts) -> int | None:
    """A size that needs a flag; one is every engine's default."""
    return int(size) if int(size) > 1 else None


def announced_length(problem: Problem) -> int:
    """Tokens of the longest request to announce: as set, else the workload's, in whole cache blocks.

    Rounding stops at the length the model was made for, which engines refuse to exceed.
    """
    asked = problem.settings.max_length or problem.workload.length
    rounded = -(-asked // CACHE_BLOCK) * CACHE_BLOCK
    return max(asked, min(rounded, problem.transformer.context_length))


def asked_formats(problem: Problem) -> dict[Component, Format]:
    """Format of every component of matrix products the model has."""
    there = LINEAR & problem.transformer.components.keys()
    return {component: problem.precision.weights[component] for component in sorted(there)}


def checkpoint(problem: Problem, *, online: Mapping[str, str]) -> Checkpoint:
    """What to load so that the weights come out in the asked formats.

    The model's own checkpoint when it is published in them or the engine quantises it on loading; else a checkpoint
    the reader has to name.
    """
    name = problem.transformer.name
    asked = {component: found.name for component, found in asked_formats(problem).items()}
    native = {component: problem.transformer.native.get(component, "bf16") for component in asked}
    wanted, stored = set(asked.values()), set(native.values())
    plain = stored <= PLAIN.keys()
    model: Word = name if HUB_ID.fullmatch(name) else MODEL
    note = "" if isinstance(model, str) else "Set MODEL to the Hub id or the path of the model."
    if asked == native or (plain and wanted <= PLAIN.keys()):
        return Checkpoint(model, note=note)
    if plain and len(wanted) == 1 and wanted <= online.keys():
        return Checkpoint(model, quantization=online[wanted.pop()], note=note)
    return Checkpoint(
        MODEL,
        note=f"{name} is stored in {_listed(stored)}; set MODEL to a checkpoint of it in {_listed(wanted)}.",
    )


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))
