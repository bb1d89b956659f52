"""A line an engine prints, written as it reads, and what it says when a log has it.

A wording has the name of a quantity in the place of its value.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from parplan.logs.quantities import QUANTITIES, EngineName
from parplan.units import GIB

REACH, NUMBER_REACH = 400, 60
"""Characters around its mark within which a wording is looked for; and before it, when it starts with a number."""
MOST_TRIES = 2
"""Places of one line at which a wording is looked for."""
NUMBER = r"-?\d[\d,]{0,17}(?:\.\d{1,17})?(?!\d)"
WORD = r"[\w./:+@-]{1,200}"
VALUE = {"word": rf"['\"]?{WORD}", "flag": "True|False"}
"""What the value of a quantity looks like, where it is not a number."""
GAP = ".{0,200}?"
PLACE = re.compile(r"<(\w+)(\+?)>|\.\.\.")
"""A place for a value, `<name>`; for one that is added to it, `<name+>`; or for anything short, `...`."""


@dataclass(frozen=True)
class Wording:
    """A line an engine prints."""

    engine: EngineName
    line: str
    """As it reads, with <quantity> in the place of a value and ... for what does not matter."""
    unit: float = GIB
    """Bytes of one unit of its quantities of memory."""
    keep: Literal["last", "largest"] = "last"
    """Which of the values one rank prints counts."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The quantities it states."""
        return tuple(place[1] for place in PLACE.finditer(self.line) if place[1] and not place[2])

    @cached_property
    def mark(self) -> str:
        """The longest literal piece: what a line is searched for first."""
        return max((piece.strip() for piece in re.split(r"<\w+\+?>|\.\.\.", self.line)), key=len)

    @property
    def shown(self) -> str:
        """As people read it."""
        return PLACE.sub("...", self.line)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The wording as an expression of bounded work: no part of it repeats without limit."""
        parts, end = [], 0
        for place in PLACE.finditer(self.line):
            parts.append(_literal(self.line[end : place.start()]))
            end = place.end()
            name = place[1]
            group = f"{name}_more" if place[2] else name
            parts.append(f"(?P<{group}>{VALUE.get(QUANTITIES[name].kind, NUMBER)})" if name else GAP)
        start = r"(?<![\w.])" if re.match(r"[\w<]", self.line) else ""
        return re.compile(start + "".join(parts) + _literal(self.line[end:]))

    @property
    def reach(self) -> int:
        """Characters before its mark within which it starts."""
        return NUMBER_REACH if self.line.startswith("<") else REACH

    def match(self, line: str) -> re.Match[str] | None:
        """What it reads in a line: the first few places that hold its mark are looked at."""
        at, mark = line.find(self.mark), self.mark
        for _ in range(MOST_TRIES):
            if at < 0:
                return None
            if found := self.pattern.search(line, max(0, at - self.reach), at + len(mark) + REACH):
                return found
            at = line.find(mark, at + 1)
        return None


def _literal(text: str) -> str:
    """Literal text, with spaces that may be missing or doubled."""
    return " {0,2}".join(re.escape(word) for word in text.split(" "))
