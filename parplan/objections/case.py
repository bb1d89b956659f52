"""What a rule is, what it judges, and the words rules share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings
from parplan.transformer import Transformer
from parplan.units import written_bytes
from parplan.workload import Workload


@dataclass(frozen=True)
class Case:
    """Layouts to judge, with what they are made for. `layout` and `memory` are single or arrays [layouts]."""

    transformer: Transformer
    precision: Precision
    gpu: Gpu
    engine: Engine
    workload: Workload
    layout: Layout
    memory: Memory
    """At the asked concurrency, [layouts]."""
    settings: Settings = field(default_factory=Settings)
    narrower: Any = 0
    """Tensor width whose replicas deliver clearly more on as many GPUs, see `narrower_tensor`; 0: none. [layouts]"""
    staged_gain: float = 0.0
    """Tokens/s of a single layout over the most that one without stages delivers on as many GPUs, less one; 0: no such
    layout does the job."""


@dataclass(frozen=True)
class Objection:
    """What is wrong with one layout, in words."""

    rule: str
    severity: Literal["error", "warning"]
    reason: str
    fix: str
    source: str


@dataclass(frozen=True)
class Rule:
    """A constraint: which layouts break it, and how to say so."""

    name: str
    severity: Literal["error", "warning"]
    broken: Callable[[Case], Any]
    """Case -> mask [layouts], or a scalar that holds for all."""
    reason: Callable[[Case], str]
    fix: Callable[[Case], str]
    source: str | Callable[[Case], str]

    def cited(self, case: Case) -> str:
        """Where it was read."""
        return self.source if isinstance(self.source, str) else self.source(case)


def always(words: str) -> Callable[[Case], str]:
    """The same words for every layout."""
    return lambda _: words


def divisors(number: int, *, limit: int = 64) -> list[int]:
    """Divisors of a number up to a limit.

    >>> divisors(40, limit=16)
    [1, 2, 4, 5, 8, 10]
    """
    return [d for d in range(1, limit + 1) if number % d == 0]


def whole(value: Any) -> int:
    """A count of a single layout."""
    return int(np.asarray(value).reshape(-1)[0])


def size_words(value: Any) -> str:
    """Bytes of a single layout, in words."""
    return written_bytes(float(np.asarray(value).reshape(-1)[0]))


def listed(numbers: Iterable[int]) -> str:
    """Counts of several kinds of layer, in words."""
    return "/".join(map(str, numbers))


def nearest(name: str, size: int, *, legal: Iterable[int]) -> str:
    """The legal sizes of a cut around one that is not, in words.

    >>> nearest("TP", 3, legal=[1, 2, 4, 8])
    'TP2 or TP4'
    """
    values = sorted(legal)
    around = [v for v in values if v < size][-1:] + [v for v in values if v > size][:1]
    return " or ".join(f"{name}{v}" for v in around) or f"{name}1"


def joined_gpus(gpu: Gpu) -> int:
    """GPUs that reach each other without the network."""
    return max(gpu.domain, gpu.node)


SLOT_FLAGS = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests", "trtllm": "--max_batch_size"}
"""What sets the sequence slots of an engine, by family."""


def slots_flag(engine: Engine) -> str:
    """What sets the sequence slots of an engine, as words in brackets; empty for one that cannot be started."""
    flag = SLOT_FLAGS.get(engine.family)
    return f" ({flag})" if flag else ""
