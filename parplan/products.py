"""A figure taken apart: parts that add up to it, each multiplied out from factors with their units."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, log10, prod
from typing import Any

from parplan.provenance import Source
from parplan.units import GIB, KIB, MIB, written_share, written_time

SCALED = ("FLOP", "FLOP/s", "B/s")
"""Units written with decimal prefixes; bytes have binary ones, seconds their own words."""
BINARY = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
LARGE = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "))


def figures(number: float) -> str:
    """A number with three or four figures, never an exponent.

    >>> figures(1234.5), figures(80), figures(12.34), figures(0.8125), figures(0.00042)
    ('1,234', '80', '12.3', '0.812', '0.00042')
    """
    if number == 0 or not isfinite(number):
        return "0" if number == 0 else "no limit"
    if number == round(number) and abs(number) < 1e6:
        return f"{number:,.0f}"
    decimals = max(0, 2 - int(log10(abs(number)) // 1))
    return f"{number:,.{decimals}f}" if decimals <= 3 else f"{number:.{decimals}f}".rstrip("0")


def written(value: float, *, unit: str) -> str:
    """A value with its unit, as people read it; a unit that is none of the base units is a noun.

    >>> written(3.35e12, unit="B/s"), written(33.9 * GIB, unit="B"), written(0.0236, unit="s")
    ('3.35 TB/s', '33.9 GiB', '24 ms')
    >>> written(70.6e9, unit="parameters"), written(80, unit="layers")
    ('70.6 billion parameters', '80 layers')
    """
    if unit == "s":
        return written_time(value)
    if unit == "B":
        alone = (1.0, "byte" if value == 1 else "bytes")
        size, name = next(((size, name) for size, name in BINARY if abs(value) >= size), alone)
        return f"{figures(value / size)} {name}"
    scale = DECIMAL if unit in SCALED else LARGE
    size, name = next(((size, name) for size, name in scale if abs(value) >= size), (1.0, ""))
    return f"{figures(value / size)} {name}{unit}".rstrip()


@dataclass(frozen=True)
class Factor:
    """One number of a product."""

    value: float
    unit: str = ""
    """Base unit, or what is counted."""
    divides: bool = False
    of: float = 0.0
    """The value on paper of which this one is reached. 0: there is none."""

    @property
    def words(self) -> str:
        """The number, and how much of the value on paper it is."""
        if not self.of:
            return written(self.value, unit=self.unit)
        reached = f"{written_share(self.value / self.of)} of {written(self.of, unit=self.unit)}"
        return f"{written(self.value, unit=self.unit)} ({reached})"


@dataclass(frozen=True)
class Term:
    """A product."""

    factors: tuple[Factor, ...]

    @property
    def value(self) -> float:
        """Multiplied out."""
        return prod(1 / factor.value if factor.divides else factor.value for factor in self.factors)

    @property
    def words(self) -> str:
        """The product as it is written: 64 layers × 2.0 ms ÷ 2."""
        signs = ("÷" if factor.divides else "×" for factor in self.factors)
        listed = (f"{sign} {factor.words}" for sign, factor in zip(signs, self.factors, strict=True))
        return " ".join(listed).removeprefix("× ")


@dataclass(frozen=True)
class Part:
    """One addend of a figure: the longest of its sides, each a sum of products."""

    name: str
    sides: Mapping[str, tuple[Term, ...]]
    """By what could bound it (reading, arithmetic); a single side has no name."""
    law: Callable[..., Any] | None = None
    """The formula: what it says is its documentation."""

    @property
    def value(self) -> float:
        """The longest side."""
        return max((self._sum(terms) for terms in self.sides.values()), default=0.0)

    @staticmethod
    def _sum(terms: tuple[Term, ...]) -> float:
        return sum(term.value for term in terms)

    @property
    def bound(self) -> str:
        """Name of the side that counts."""
        return max(self.sides, key=lambda name: self._sum(self.sides[name]), default="")

    @property
    def formula(self) -> str:
        """The law in the words of the code that computes it."""
        return inspect.getdoc(self.law) or "" if self.law else ""

    def words(self, *, unit: str) -> dict[str, str]:
        """Every side as it is written, with what it comes to where there are several."""
        return {
            name: " + ".join(term.words for term in terms)
            + (f" = {written(self._sum(terms), unit=unit)}" if len(self.sides) > 1 else "")
            for name, terms in self.sides.items()
        }


def single(name: str, *terms: Term, law: Callable[..., Any] | None = None) -> Part:
    """A part with nothing to choose between."""
    return Part(name, {"": terms}, law)


@dataclass(frozen=True)
class Explanation:
    """How one figure is made."""

    figure: str
    value: float
    """What the plan says."""
    unit: str
    parts: tuple[Part, ...]
    """What adds up to it."""
    sources: tuple[Source, ...]
    """Where its constants come from."""
