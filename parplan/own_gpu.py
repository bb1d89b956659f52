"""A GPU of one's own: described by the user, carried by the link, never looked up in the catalogue."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from parplan.formats import Arithmetic
from parplan.hardware import Gpu
from parplan.layout import MOST_GPUS
from parplan.packing import packed_json, unpacked_json
from parplan.provenance import Value
from parplan.units import (
    GIB,
    PREFIXES,
    BytesField,
    BytesPerSecondField,
    FlopPerSecondField,
    WattsField,
    quantity,
)

OWN = "own"
"""Stands for a GPU the scenario describes itself."""
LARGEST_GPU = 4096
"""Bytes a packed description may unpack to."""
QUANTITIES = {
    "memory": "B",
    "bandwidth": "B/s",
    "link": "B/s",
    "peer": "B/s",
    "network": "B/s",
    "pcie": "B/s",
    "tdp": "W",
}
"""Fields with a unit."""
PEAK_UNIT = "FLOP/s"
CUSTOMARY = {"B": ("Gi",), "W": ("",)}
"""Prefixes people use with a unit, where not all of them."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .+()/-]{0,39}$")]
Memory = Annotated[BytesField, Field(ge=GIB, le=2.0**44)]
Rate = Annotated[BytesPerSecondField, Field(ge=1e8, le=1e15)]
Peak = Annotated[FlopPerSecondField, Field(ge=1e9, le=1e18)]
Many = Annotated[int, Field(ge=1, le=MOST_GPUS)]


class OwnGpuError(ValueError):
    """A description of a GPU that cannot be used, with the reason."""


class OwnGpu(Value):
    """What a user says about a GPU: the fields of `Gpu` that plans follow from, within what is physically sensible."""

    label: Name
    """The name people read."""
    vendor: Literal["NVIDIA", "AMD", "Intel"]
    architecture: Name
    """Hopper, Blackwell, CDNA3, ...: decides which measured small-message times and engine defaults apply."""
    memory: Memory
    """What the driver reports to an engine, not the nameplate: 79.18 GiB."""
    bandwidth: Rate
    """Memory bandwidth: 3.35 TB/s."""
    peaks: dict[Arithmetic, Peak]
    """Dense peak per arithmetic: 989.4 TFLOP/s. What is left out the GPU cannot do and runs wider instead."""
    fabric: Literal["nvlink", "xgmi", "pcie"]
    """What joins the GPUs of one domain."""
    link: Rate
    """One way, of one GPU into its domain: 450 GB/s."""
    peer: Rate | None = None
    """One way, to a single other GPU, where there is no switch."""
    domain: Many
    """GPUs the fast link joins; 1: PCIe only."""
    node: Many
    """GPUs of one machine."""
    network: Rate | None = None
    """One way, per GPU, between machines. Left out: one machine only."""
    pcie: Rate | None = None
    """One way, of one GPU, where a machine holds several domains that only PCIe joins."""
    tdp: Annotated[WattsField, Field(ge=1, le=100_000)] | None = None
    """Power limit of one GPU: 700 W."""

    @field_validator("peaks")
    @classmethod
    def _has_the_widest(cls, peaks: dict[Arithmetic, float]) -> dict[Arithmetic, float]:
        if "fp32" not in peaks:
            raise ValueError("fp32 is needed: what a GPU cannot do otherwise it does in that")
        return peaks

    @property
    def gpu(self) -> Gpu:
        """The same as the planner knows GPUs; nothing is computed from the year."""
        return Gpu(name=OWN, year=date.today().year, sources={}, **self.model_dump())


def written_quantity(amount: float, *, unit: str) -> str:
    """A quantity as people write it, which parses to exactly the same number.

    >>> written_quantity(3.35e12, unit="B/s"), written_quantity(1200.0, unit="W")
    ('3.35 TB/s', '1200 W')
    """
    names = CUSTOMARY.get(unit, ("T", "G", "M", "k", ""))
    for name in names:
        text = f"{amount / PREFIXES[name]:.12g} {name}{unit}"
        if amount >= PREFIXES[name] and quantity(text, unit=unit) == amount:
            return text
    return f"{amount!r} {unit}"


def written_gpu(gpu: Gpu) -> dict[str, Any]:
    """A GPU as a user would describe it: what is known, quantities with their units."""
    found = {name: getattr(gpu, name) for name in OwnGpu.model_fields if getattr(gpu, name) is not None}
    written = {
        name: written_quantity(found[name], unit=unit) for name, unit in QUANTITIES.items() if name in found
    }
    peaks = {name: written_quantity(peak, unit=PEAK_UNIT) for name, peak in gpu.peaks.items()}
    return found | written | {"peaks": peaks}


def own_gpu(fields: Mapping[str, Any]) -> Gpu:
    """The GPU of a description.

    Raises:
        OwnGpuError: with the field and the reason.
    """
    try:
        return OwnGpu.model_validate(fields).gpu
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        raise OwnGpuError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def packed_gpu(fields: Mapping[str, Any]) -> str:
    """A description as a short string a link can carry.

    Raises:
        OwnGpuError: with the field and the reason.
    """
    own_gpu(fields)
    return packed_json(fields)


def unpacked_fields(text: str) -> Mapping[str, Any]:
    """The description in a packed string, not yet checked; at most `LARGEST_GPU` bytes are unpacked.

    Raises:
        OwnGpuError: the string is damaged, too large, or holds no JSON object.
    """
    if not text:
        raise OwnGpuError("no GPU is described")
    try:
        return unpacked_json(text, most=LARGEST_GPU)
    except ValueError as error:
        raise OwnGpuError(f"the packed description {error}") from error


def unpacked_gpu(text: str) -> Gpu:
    """The GPU of a packed string.

    Raises:
        OwnGpuError: the string is damaged, or describes no GPU.
    """
    return own_gpu(unpacked_fields(text))
