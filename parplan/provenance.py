"""Where a fact comes from."""

from datetime import date

from pydantic import BaseModel, ConfigDict, Field


class Value(BaseModel):
    """Base of every value that crosses a boundary: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Source(Value):
    """A public place where a number was read, and when."""

    text: str = Field(min_length=3)
    """Title of the page, file or log, precise enough to find it again."""
    read: date
    """The day it was read."""
    url: str | None = None
    """Its address, where there is one."""
