"""What the cells of a measured row state: numbers with notes, or the reason they cannot be used."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from pydantic import ValidationError

Cells: TypeAlias = Mapping[str, str]


LONGEST_NUMBER = 40
"""Characters of a number."""


class RowError(Exception):
    """The row cannot be predicted; the message says why."""


class VersionError(RowError):
    """The row names a version no family of the engine can be told from."""


def reason_of(error: RowError | ValidationError) -> str:
    """Why a row is skipped, in words."""
    if isinstance(error, RowError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} is out of range: {first['msg']}"


NUMBER = re.compile(
    r"^[~<>=]*\s*(-?\d[\d,]*\.?\d*)\s*(?:\((?:est|default|new default|min of|sum|-?[\d.]+ )[^)]*\))?$",
    re.IGNORECASE,
)


def number(cell: str | None) -> float | None:
    """The number a cell states; a note in brackets may follow, as long as it does not change what is counted.

    >>> number("0.9 (default)"), number("16.46 (8.23 K + 8.23 V)"), number("715,072")
    (0.9, 16.46, 715072.0)
    >>> number("11.22 (weights+non-torch)") is None and number("0.80/0.93") is None and number("") is None
    True
    """
    match = NUMBER.match((cell or "").strip())
    return float(match[1].replace(",", "")) if match and len(match[1]) <= LONGEST_NUMBER else None


def stated(cells: Cells, column: str) -> float | None:
    """The number of a cell that may be empty, words and units before it aside.

    Raises:
        RowError: the cell is not empty, and not one number either.
    """
    cell = cells.get(column, "").strip()
    value = number(re.sub(r"^[A-Za-z][\w-]*\s+", "", cell))
    if cell and value is None:
        raise RowError(f"{column} is not one number")
    return value


def whole(cells: Cells, column: str, *, default: int) -> int:
    """A whole number at least one, or the default where the cell is empty."""
    value = stated(cells, column)
    if value is None:
        return default
    if value < 1 or value != int(value):
        raise RowError(f"{column} is not a whole number above zero")
    return int(value)
