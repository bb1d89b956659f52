"""A figure taken apart: parts that add up to it, each multiplied out from factors with their units."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, log10, prod
from typing import Any

from parplan.provenance import Source
from parplan.units import GIB, KIB, MIB, written_share, written_time

SCALED = ("FLOP", "FLOP/s", "B/s")
"""Units written with decimal prefixes; bytes have binary ones, seconds their own words."""
BINARY = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
LARGE = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "))
SHARE, SHARE_IN_FULL = "share", 0.1
"""Stands for the unit of what is written in per cent; shares below have decimals."""
DESCRIBED = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
"""One entry below "Args:" in the documentation of a formula."""

PLURAL = re.compile(r"s\b")
"""The end of the noun a unit begins with."""
SHAPE = re.compile(r",? \[[\w., ]*\]")
"""Shape of an array: " [..., batches]"."""


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
    >>> written(16.36, unit="USD an hour"), written(1, unit="GPUs"), written(0.003, unit=SHARE)
    ('16.36 USD an hour', '1 GPU', '0.30 %')
    >>> written(1, unit="steps of 16 tokens"), written(1, unit="drafted tokens")
    ('1 step of 16 tokens', '1 drafted token')
    """
    if unit == "s":
        return written_time(value)
    if unit == SHARE:
        return written_share(value, decimals=0 if value >= SHARE_IN_FULL else 2)
    if unit == "B":
        alone = (1.0, "byte" if value == 1 else "bytes")
        size, name = next(((size, name) for size, name in BINARY if abs(value) >= size), alone)
        return f"{figures(value / size)} {name}"
    if unit.startswith("USD") and abs(value) >= 1:
        return f"{value:,.2f} {unit}"
    if value == 1 and "/" not in unit:
        return f"1 {PLURAL.sub('', unit, count=1)}".rstrip()
    scale = DECIMAL if unit in SCALED else LARGE
    size, name = next(((size, name) for size, name in scale if abs(value) >= size), (1.0, ""))
    return f"{figures(value / size)} {name}{unit}".rstrip()


def described(law: Callable[..., Any], name: str) -> str:
    """What the documentation of a formula says of one of the numbers it is given; empty where it says nothing.

    Args:
        law: the formula.
        name: of the number, in the code.

    >>> described(written, "unit"), described(described, "name")
    ('', 'of the number, in the code.')

    """
    _, _, listed = (inspect.getdoc(law) or "").partition("Args:\n")
    entries = dict(DESCRIBED.findall(listed.split("\n\n")[0]))
    return _unshaped(entries.get(name, ""))


def _unshaped(text: str) -> str:
    """Documentation as one line, without the shapes of arrays and without marks."""
    return SHAPE.sub("", " ".join(text.split())).replace("`", "")


def called(law: Callable[..., Any]) -> str:
    """A formula by its place in the code.

    >>> called(figures)
    'parplan.products.figures'
    """
    return f"{law.__module__}.{law.__qualname__}"


@dataclass(frozen=True)
class Given:
    """What a formula is given for one of the numbers it asks for."""

    value: Any
    """As the formula takes it: a number, some of them, or a value that holds several."""
    words: str
    """The same for people."""
    by: tuple["Applied", ...] = ()
    """The formulas it came out of."""
    described_by: Callable[..., Any] | None = None
    """The formula whose documentation says what it is, where it is passed on to another."""


@dataclass(frozen=True)
class Applied:
    """A formula with the user's own numbers put in, for what no product writes down; its value is what it returns."""

    name: str
    law: Callable[..., Any]
    given: Mapping[str, Given]
    """By the names the formula has for them."""
    unit: str
    beside: tuple[Callable[..., Any], ...] = ()
    """Other formulas whose documentation is needed to follow it."""

    @cached_property
    def value(self) -> float:
        """What the formula returns."""
        return float(self.law(**{name: one.value for name, one in self.given.items()}))

    @property
    def formula(self) -> str:
        """What the code that computes it says about it."""
        return inspect.getdoc(self.law) or ""

    @property
    def part(self) -> "Part":
        """A figure, or an addend of one, that is this and nothing else."""
        given = ", ".join(f"{_spaced(name)} {one.words}" for name, one in self.given.items())
        return single(
            self.name, Term((Factor(self.value, self.unit, by=(self,), of_what=given),)), law=self.law
        )

    def asks(self, depth: int) -> Iterator["Ingredient"]:
        """What goes in, and what goes into that."""
        for name, one in self.given.items():
            what = described(one.described_by or self.law, name)
            yield Ingredient(_spaced(name), one.words, what, depth)
            for before in one.by:
                yield from before.shown(depth + 1)

    def shown(self, depth: int) -> Iterator["Ingredient"]:
        """Itself as an ingredient of something else, then what goes into it."""
        says = self.formula.partition("\n\n")[0]
        yield Ingredient(self.name, written(self.value, unit=self.unit), _unshaped(says), depth)
        yield from self.asks(depth + 1)

    @property
    def laws(self) -> Iterator[Callable[..., Any]]:
        """The formula, and those its numbers came out of."""
        yield self.law
        yield from self.beside
        for one in self.given.values():
            for before in one.by:
                yield from before.laws


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def put(value: float, *, unit: str = "") -> Given:
    """A number as a formula is given it."""
    return Given(value, written(value, unit=unit))


def worked_out(applied: Applied) -> Given:
    """What one formula returns, put into another."""
    return Given(applied.value, written(applied.value, unit=applied.unit), by=(applied,))


@dataclass(frozen=True)
class Ingredient:
    """A term next to a figure: what goes into it."""

    name: str
    words: str
    """The user's number."""
    what: str
    """What it is, in the words of the formula's documentation."""
    depth: int = field(default=0, compare=False)
    """0: goes into the figure; 1: into what goes into it; and so on."""


@dataclass(frozen=True)
class Factor:
    """One number of a product."""

    value: float
    unit: str = ""
    """Base unit, or what is counted."""
    divides: bool = False
    of: float = 0.0
    """The value on paper of which this one is reached. 0: there is none."""
    by: tuple[Applied, ...] = ()
    """The formulas it came out of, where it is no plain fact."""
    of_what: str = ""
    """What a formula made it of, said instead of the number where that is the whole figure."""

    @property
    def words(self) -> str:
        """The number, and how much of the value on paper it is."""
        if self.of_what:
            return self.of_what
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

    @property
    def before(self) -> Iterator[Applied]:
        """Formulas its factors came out of."""
        for terms in self.sides.values():
            for term in terms:
                for factor in term.factors:
                    yield from factor.by

    def asks(self) -> Iterator[Ingredient]:
        """What its factors came out of."""
        for applied in self.before:
            yield from applied.asks(0) if applied.name == self.name else applied.shown(0)

    @property
    def laws(self) -> Iterator[Callable[..., Any]]:
        """The formula, and those its factors came out of."""
        if self.law:
            yield self.law
        for applied in self.before:
            yield from applied.laws


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

    @property
    def terms(self) -> tuple[Ingredient, ...]:
        """What goes into its parts, each once."""
        return tuple(dict.fromkeys(one for part in self.parts for one in part.asks()))

    @property
    def laws(self) -> tuple[Callable[..., Any], ...]:
        """The formulas behind it, each once."""
        return tuple(dict.fromkeys(law for part in self.parts for law in part.laws))
