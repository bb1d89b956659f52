"""Reading a config: one reader that knows a field by all its spellings and believes nothing it has not checked."""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Raw: TypeAlias = Mapping[str, object]
"""A config, or a part of one, as parsed from JSON or YAML."""

LARGEST = 2**31
"""No width, count or length of a real model is larger; products of a few stay exact."""
LONGEST = 4096
"""No per-layer list of a real model is longer."""


class ConfigError(ValueError):
    """A config that is not one of a language model, or that contradicts itself; the message says where."""


def shown(value: object) -> str:
    """A value for a message: short whatever it is.

    >>> shown("x" * 1000)
    "'xxxxxxxxxxxx...xxxxxxxxxxxxx'"
    """
    try:
        return reprlib.repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a huge number"


@dataclass(frozen=True)
class Fields:
    """A config, or a part of one. Null counts as absent; the first spelling that is present wins."""

    raw: Raw
    notes: list[str] = field(default_factory=list)
    """What had to be assumed, in words; shared by all parts of one config."""

    @staticmethod
    def of(value: object, *, notes: list[str], where: str) -> "Fields":
        """The fields of a mapping."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a mapping of fields to values, not {shown(value)}")
        return Fields(value, notes)

    def assume(self, words: str) -> None:
        """Record, once, what the config did not say."""
        if words not in self.notes:
            self.notes.append(words)

    def found(self, *names: str) -> tuple[str, object] | None:
        """The first spelling that is present, with its value."""
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                return name, value
        return None

    def has(self, *names: str) -> bool:
        """Some spelling is present."""
        return self.found(*names) is not None

    def number(
        self, *names: str, least: int = 1, most: int = LARGEST, layer: int | None = None
    ) -> int | None:
        """A whole number, or None where no spelling is present.

        Args:
            names: spellings, best first.
            least: smallest value that makes sense.
            most: largest value that makes sense.
            layer: where the field may be a list with one entry per layer, the layer asked for.
        """
        hit = self.found(*names)
        if hit is None:
            return None
        name, value = hit
        if layer is not None and isinstance(value, list | tuple):
            if not value:
                raise ConfigError(f"{name} is an empty list")
            value = value[min(layer, len(value) - 1)]
            if value is None:
                return None
        return whole(value, name=name, least=least, most=most)

    def count(
        self,
        *names: str,
        default: int | None = None,
        least: int = 1,
        most: int = LARGEST,
        layer: int | None = None,
        what: str = "",
    ) -> int:
        """A whole number that must be there, unless a default is given.

        Raises:
            ConfigError: no spelling is present; the message names the thing (`what`) and all spellings.
        """
        value = self.number(*names, least=least, most=most, layer=layer)
        if value is None:
            value = default
        if value is None:
            raise ConfigError(f"no {what or names[0]}: looked for {', '.join(names)}")
        return value

    def real(self, *names: str) -> float | None:
        """A finite number, or None where no spelling is present."""
        hit = self.found(*names)
        if hit is None:
            return None
        name, value = hit
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{name} is {shown(value)}, not a finite number")
        if not 0 <= value <= LARGEST:
            raise ConfigError(f"{name} is {shown(value)}, outside 0 to {LARGEST}")
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """A yes or no."""
        hit = self.found(*names)
        if hit is None:
            return default
        name, value = hit
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {shown(value)}, not true or false")
        return value

    def text(self, *names: str) -> str:
        """A word, "" where no spelling is present."""
        hit = self.found(*names)
        if hit is None:
            return ""
        name, value = hit
        if not isinstance(value, str) or len(value) > LONGEST:
            raise ConfigError(f"{name} is {shown(value)}, not a word")
        return value

    def items(self, *names: str, most: int = LONGEST) -> tuple[object, ...] | None:
        """A list, or None where no spelling is present."""
        hit = self.found(*names)
        if hit is None:
            return None
        name, value = hit
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} is {shown(value)}, not a list")
        if len(value) > most:
            raise ConfigError(f"{name} has {len(value)} entries, more than {most}")
        return tuple(value)

    def words(self, *names: str, most: int = LONGEST) -> tuple[str, ...] | None:
        """A list of words, or None where no spelling is present."""
        listed = self.items(*names, most=most)
        if listed is None:
            return None
        for value in listed:
            if not isinstance(value, str):
                raise ConfigError(f"{names[0]} holds {shown(value)}, not a word")
        return tuple(str(value) for value in listed)

    def numbers(self, *names: str, least: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers, or None where no spelling is present."""
        listed = self.items(*names)
        if listed is None:
            return None
        return tuple(whole(value, name=names[0], least=least, most=LARGEST) for value in listed)

    def part(self, *names: str) -> "Fields":
        """A nested mapping; empty where no spelling is present."""
        hit = self.found(*names)
        return Fields({}, self.notes) if hit is None else Fields.of(hit[1], notes=self.notes, where=hit[0])


def whole(value: object, *, name: str, least: int, most: int) -> int:
    """A value as a whole number within limits.

    >>> whole(4096.0, name="hidden_size", least=1, most=10**6)
    4096
    >>> whole("4096", name="hidden_size", least=1, most=10**6)
    Traceback (most recent call last):
    ...
    parplan.hub.fields.ConfigError: hidden_size is '4096', not a whole number
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is {shown(value)}, not a whole number")
    if isinstance(value, float) and not value.is_integer():  # false for nan and infinities too
        raise ConfigError(f"{name} is {shown(value)}, not a whole number")
    if not least <= value <= most:
        raise ConfigError(f"{name} is {shown(int(value))}, outside {least} to {most}")
    return int(value)
