"""Quantities: base units inside, human units where facts come in and where people look.

Inside the program every quantity is a plain number (or numpy array) in its base unit: bytes, seconds, FLOP, FLOP/s,
bytes/s, tokens, USD, watts. The aliases below name them in signatures. Facts are written as their source prints
them ("3.35 TB/s") and parsed once, here.
"""

import re
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

Array: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Number: TypeAlias = float | NDArray[Any]
"""A number, or an array of them: every formula is elementwise."""

Bytes: TypeAlias = Number
Seconds: TypeAlias = Number
FlopPerSecond: TypeAlias = Number
BytesPerSecond: TypeAlias = Number
Tokens: TypeAlias = Number
TokensPerSecond: TypeAlias = Number
Count: TypeAlias = Number
Usd: TypeAlias = Number

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30
GB = 1e9
MS, US = 1e-3, 1e-6

PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
            "Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": 2.0**40}  # fmt: skip
QUANTITY = re.compile(r"^\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*$")


def quantity(text: str | float, *, unit: str) -> float:
    """The number a written quantity stands for, in its base unit.

    Args:
        text: number, prefix and unit as a source prints them; a bare number is taken to be in the base unit.
        unit: the base unit the text must carry: "B", "B/s", "FLOP/s", "s", "W", "USD/h", ...

    Raises:
        ValueError: the text is no number, or carries another unit.

    >>> quantity("3.35 TB/s", unit="B/s")
    3350000000000.0
    >>> quantity("79.19 GiB", unit="B") / GIB
    79.19
    >>> quantity("24 GiB", unit="B/s")
    Traceback (most recent call last):
    ...
    ValueError: '24 GiB' is not a quantity in B/s
    """
    if isinstance(text, int | float):
        return float(text)
    match = QUANTITY.match(text)
    if match:
        number, rest = match.groups()
        if rest == "":
            return float(number)
        if rest.endswith(unit) and rest.removesuffix(unit) in PREFIXES:
            return float(number) * PREFIXES[rest.removesuffix(unit)]
    raise ValueError(f"{text!r} is not a quantity in {unit}")


def _parsed(unit: str) -> Any:
    return BeforeValidator(lambda value: quantity(value, unit=unit) if isinstance(value, str) else value)


BytesField = Annotated[float, _parsed("B"), Field(gt=0, allow_inf_nan=False)]
BytesPerSecondField = Annotated[float, _parsed("B/s"), Field(gt=0, allow_inf_nan=False)]
FlopPerSecondField = Annotated[float, _parsed("FLOP/s"), Field(gt=0, allow_inf_nan=False)]
WattsField = Annotated[float, _parsed("W"), Field(gt=0, allow_inf_nan=False)]
UsdPerHourField = Annotated[float, _parsed("USD/h"), Field(gt=0, allow_inf_nan=False)]


def gib(amount: Bytes) -> Number:
    """Bytes as GiB (2^30), for people.

    >>> gib(2.0**31)
    2.0
    """
    return amount / GIB


def written_bytes(amount: float) -> str:
    """Bytes in GiB, as people read them.

    >>> written_bytes(79.19 * GIB)
    '79.2 GiB'
    """
    return f"{amount / GIB:,.1f} GiB"


def written_time(seconds: float) -> str:
    """A time with three figures at most, in the unit people use for it.

    >>> written_time(0.0236), written_time(0.00715), written_time(2.3), written_time(4000.0)
    ('24 ms', '7.2 ms', '2.3 s', '1.1 h')
    """
    if not np.isfinite(seconds):
        return "never"
    for limit, size, unit in ((1e-3, US, "µs"), (1.0, MS, "ms"), (120.0, 1.0, "s"), (3600.0, 60.0, "min")):
        if seconds < limit:
            return f"{_figures(seconds / size)} {unit}"
    return f"{_figures(seconds / 3600.0)} h"


def written_rate(per_second: float) -> str:
    """A rate of requests as people write it: three figures, no more than it takes.

    >>> written_rate(20.0), written_rate(3.0769), written_rate(1234.5)
    ('20', '3.08', '1,234')
    """
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def written_share(part: Number, *, decimals: int = 0) -> str:
    """A part of one, in per cent.

    >>> written_share(0.923), written_share(-0.0123, decimals=1)
    ('92 %', '-1.2 %')
    """
    return f"{float(part) * 100:,.{decimals}f} %"


def either_way(relative: float) -> str:
    """How far a figure may be off; from 100 % on by which factor, since no time is below zero.

    >>> either_way(0.0548), either_way(3.13)
    ('±5 %', '×/÷ 4.13')
    """
    return f"×/÷ {1 + relative:.3g}" if relative >= 1 else f"±{written_share(relative)}"


def written_request_rate(rate: float) -> str:
    """Requests per second.

    >>> written_request_rate(1), written_request_rate(2.5)
    ('1 request per second', '2.5 requests per second')
    """
    return f"{written_rate(rate)} request{'s' * (rate != 1)} per second"


def counted(number: int, noun: str) -> str:
    """A number and what it counts.

    >>> counted(1, "GPU"), counted(2048, "GPU")
    ('1 GPU', '2,048 GPUs')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _figures(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"
