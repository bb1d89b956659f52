"""GPUs, the links between them, and the machines they are sold in."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from parplan.formats import Arithmetic
from parplan.provenance import Source, Value
from parplan.units import (
    BytesField,
    BytesPerSecondField,
    FlopPerSecondField,
    UsdPerHourField,
    WattsField,
)

FALLBACK: dict[Arithmetic, tuple[Arithmetic, ...]] = {
    "fp4": ("fp4", "bf16", "fp16", "fp32"),
    "fp4xfp8": ("bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "fp32": ("fp32",),
}
"""What a GPU without the wanted arithmetic computes in instead: weights are expanded on the way in (weight-only)."""


CAPABILITY = {
    "Volta": 7.0,
    "Turing": 7.5,
    "Ampere": 8.0,
    "Ada": 8.9,
    "Hopper": 9.0,
    "Blackwell": 10.0,
    "Blackwell Ultra": 10.3,
}
"""Least compute capability of an NVIDIA architecture (NVIDIA, list of CUDA GPUs)."""
WORKSTATION_BLACKWELL = 12.0
"""That of Blackwell on cards: other tensor cores, and kernels of their own."""


class Gpu(Value):
    """One GPU as an engine sees it. All rates are dense, all link speeds are one way, per GPU."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Stable short name, as used in links."""
    label: str
    """The name people read."""
    vendor: Literal["NVIDIA", "AMD", "Intel"]
    architecture: str
    memory: BytesField
    """Usable bytes: what the driver reports to an engine (torch `total capacity`), never the nameplate."""
    bandwidth: BytesPerSecondField
    """Memory bandwidth, as specified."""
    peaks: dict[Arithmetic, FlopPerSecondField]
    """Dense tensor-core peak per arithmetic, FLOP/s; what is missing the GPU cannot do."""
    fabric: Literal["nvlink", "xgmi", "pcie"]
    """What joins the GPUs of one domain."""
    link: BytesPerSecondField
    """One-way bandwidth of one GPU into its domain."""
    peer: BytesPerSecondField | None = None
    """One-way bandwidth to a single other GPU where that is less than `link` (xGMI mesh)."""
    domain: int = Field(ge=1)
    """GPUs one fast domain joins (8; 72 for NVL72). 1: no fast link, PCIe only."""
    node: int = Field(ge=1)
    """GPUs in the usual node; with fabric pcie these talk over PCIe."""
    network: BytesPerSecondField | None = None
    """One-way network bandwidth between nodes, per GPU, of the systems it is sold in. None: not sold with one."""
    pcie: BytesPerSecondField | None = None
    """One-way PCIe bandwidth of one GPU, where a node holds several domains that only PCIe joins."""
    tdp: WattsField | None = None
    year: int = Field(ge=2015, le=2030)
    note: str = ""
    sources: dict[str, Source]
    """One source per field (or group of fields, joined by commas); a second source is `<field> second`."""

    def sources_of(self, *fields: str) -> tuple[Source, ...]:
        """Where any of some fields were read."""
        return tuple(
            source
            for named, source in self.sources.items()
            if not {*re.split(r"[,\s]+", named)}.isdisjoint(fields)
        )

    @property
    def capability(self) -> float:
        """Least compute capability of its architecture; not a number where that is not known."""
        if self.architecture == "Blackwell" and self.fabric == "pcie":
            return WORKSTATION_BLACKWELL
        return CAPABILITY.get(self.architecture, np.nan)

    def arithmetic(self, wanted: Arithmetic) -> Arithmetic:
        """The arithmetic this GPU really runs, and has a peak for, when a format asks for `wanted`."""
        if wanted == "fp4xfp8" and "fp4" in self.peaks:
            wanted = "fp8"
        return next(candidate for candidate in FALLBACK[wanted] if candidate in self.peaks)

    def expands(self, wanted: Arithmetic) -> bool:
        """Whether weights meant for an arithmetic are expanded on the way in, because the GPU has none of it."""
        return ("fp4" if wanted == "fp4xfp8" else wanted) not in self.peaks

    def peak(self, wanted: Arithmetic) -> float:
        """Dense FLOP/s reached on paper when a format asks for `wanted`."""
        return self.peaks[self.arithmetic(wanted)]

    def each(self, value: Callable[["Gpu"], Any]) -> Any:
        """A quantity of this GPU."""
        return value(self)


@dataclass(frozen=True)
class Gpus:
    """Several types of GPU side by side, each with layouts of its own: every formula takes them in place of one."""

    types: tuple[Gpu, ...]
    layouts: tuple[int, ...]
    """Layouts of each type; they follow one another."""

    @cached_property
    def _which(self) -> NDArray[np.int64]:
        """Index of every layout's type, [layouts, 1]."""
        return np.repeat(np.arange(len(self.types)), self.layouts)[:, None]

    def each(self, value: Callable[[Gpu], Any]) -> Any:
        """A quantity of every layout's GPU, [layouts, 1].

        >>> small, large = Gpu.model_construct(node=4), Gpu.model_construct(node=8)
        >>> Gpus((small, large), layouts=(2, 1)).each(lambda gpu: gpu.node).ravel().tolist()
        [4, 4, 8]
        """
        return np.array([value(gpu) for gpu in self.types])[self._which]


Hardware: TypeAlias = Gpu | Gpus
"""What formulas ask for `each` of a GPU's numbers: one GPU for all layouts, or one for each of them."""


class Instance(Value):
    """A machine somebody rents out."""

    provider: str
    name: str
    gpu: str
    """Name of a GPU in the catalogue."""
    gpus: int = Field(ge=1)
    lot: int = Field(default=1, ge=1)
    """So many are sold together (18 trays of a rack)."""
    network: BytesPerSecondField | None = None
    """One-way network bandwidth to other nodes, per GPU. None: not published, or none."""
    vcpus: int | None = None
    """Virtual processors. None: not published."""
    ram: BytesField | None = None
    """Memory of the host. None: not published."""
    price: UsdPerHourField | None = None
    """List price on demand, USD per hour for the whole instance. None: not published."""
    region: str | None = None
    priced: date | None = None
    """The day the price was valid."""
    note: str = ""
    sources: tuple[Source, ...] = Field(min_length=1)
