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


class GpuError(RowError):
    """The row names no GPU the catalogue knows."""


def reason_of(error: RowError | ValidationError) -> str:
    """Why a row is skipped, in words."""
    if isinstance(error, RowError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} is out of range: {first['msg']}"


NUMBER = re.compile(
    r"^[~≈]?\s*(-?(?:\d[\d,]*)?\.?\d+)\s*(GiB|MiB|tokens|x)?\s*"
    r"(?:\((?:est|default|new default|min of|sum|-?[\d.]+ )[^)]*\))?$",
    re.IGNORECASE,
)
SCALE = {"mib": 1 / 1024}
"""Units of a number that are not its column's."""


def number(cell: str | None) -> float | None:
    """The number a cell states; a note in brackets may follow, as long as it does not change what is counted.

    Bounds (">=2") and ranges are not numbers. Mebibytes become the gibibytes columns of memory hold; GB may be either
    10^9 or 2^30 in logs, and is not read.

    >>> number("0.9 (default)"), number("16.46 (8.23 K + 8.23 V)"), number("715,072"), number("512 MiB")
    (0.9, 16.46, 715072.0, 0.5)
    >>> [number(cell) for cell in ("11.22 (weights+non-torch)", "0.80/0.93", ">=2", "15.1 GB", "")]
    [None, None, None, None, None]
    """
    match = NUMBER.match((cell or "").strip())
    if match is None or len(match[1]) > LONGEST_NUMBER:
        return None
    return float(match[1].replace(",", "")) * SCALE.get((match[2] or "").lower(), 1.0)


UNSTATED = re.compile(r"^(-|\?|n/?a|none|default|not stated|unknown)?$", re.IGNORECASE)
"""What stands in a cell that states nothing."""
NOTE = re.compile(r"\s*\([^()]*\)$")
"""A note after a setting says where it is from; the setting is what stands before it."""
MULTIPLES = {"k": 1e3, "K": 1024.0, "m": 1e6, "M": 1024.0**2}
"""As engines read them: 8k is 8,000 and 8K is 8,192 (vLLM vllm/engine/arg_utils.py, `human_readable_int`)."""


def setting(cell: str | None) -> str:
    """What a cell sets, small letters, without notes; empty where it says nothing.

    >>> setting("TRUE (forced)"), setting("n/a"), setting(" --enforce-eager ")
    ('true', '', '--enforce-eager')
    """
    plain = NOTE.sub("", (cell or "").strip())
    return "" if UNSTATED.match(plain) else plain.lower()


def stated(cells: Cells, column: str) -> float | None:
    """The number a cell sets, the name of the setting before it and a unit behind it aside; None: none is set.

    >>> cells = {"share": "gmu 95%", "length": "128K (YaRN)", "tp": "default", "gpus": "8x"}
    >>> [stated(cells, column) for column in cells]
    [0.95, 131072.0, None, 8.0]

    Raises:
        RowError: the cell is not empty, and not one number either.
    """
    cell = NOTE.sub("", cells.get(column, "").strip())
    if UNSTATED.match(cell):
        return None
    plain = re.sub(r"^[A-Za-z][\w-]*(?:\s+|\s*[=:]\s*)", "", cell)
    parts = re.match(r"^(.*\d)\s*(%|[kKmM]|gpus?|ranks?)?$", plain)
    value = number(parts[1] if parts else plain)
    if value is None:
        raise RowError(f"{column} is not one number")
    unit = (parts[2] if parts else None) or ""
    return value / 100 if unit == "%" else value * MULTIPLES.get(unit, 1.0)


def whole(cells: Cells, column: str, *, default: int) -> int:
    """A whole number at least one, or the default where the cell is empty.

    Raises:
        RowError: it is another one, or none.
    """
    value = stated(cells, column)
    if value is None:
        return default
    if value < 1 or value != int(value):
        raise RowError(f"{column} is not a whole number above zero")
    return int(value)


SWITCHED = {
    **dict.fromkeys(("true", "yes", "on", "1", "enabled"), True),
    **dict.fromkeys(("", "false", "no", "off", "0", "disabled"), False),
}


def switched(cells: Cells, column: str) -> bool:
    """Whether a cell switches something on; an empty one does not.

    >>> [switched({"ep": cell}, "ep") for cell in ("on", "no", "", "--ep")]
    [True, False, False, True]

    Raises:
        RowError: it does not say.
    """
    word = setting(cells.get(column)).lstrip("-").replace("-", "_").replace(column, "on")
    if word not in SWITCHED:
        raise RowError(f"{column} is neither on nor off")
    return SWITCHED[word]
