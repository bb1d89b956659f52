"""Words and options of a shell command, quoted."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Variable:
    """A shell variable the reader must set; the shell stops with an error while it is not."""

    name: str
    prefix: str = ""
    suffix: str = ""

    def __str__(self) -> str:
        """Written so that it expands, and stays one word.

        >>> str(Variable("HEAD", suffix=":20000"))
        '"${HEAD:?}:20000"'
        """
        return f'"{_inert(self.prefix)}${{{self.name}:?}}{_inert(self.suffix)}"'


Word: TypeAlias = str | Variable
Option: TypeAlias = str | int | float | bool | Variable | None
"""What stands behind a flag: True for a bare one; None and False leave it out."""
HEAD = Variable("HEAD")
MODEL = Variable("MODEL")


def command(words: Iterable[Word], options: Mapping[str, Option]) -> str:
    """A shell command from words and options; flags of options that are None or False are left out.

    >>> command(["vllm", "serve", "a; b"], {"--tensor-parallel-size": 2, "--enforce-eager": True, "--dtype": None})
    "vllm serve 'a; b' --tensor-parallel-size 2 --enforce-eager"
    """
    parts = [_quoted(word) for word in words]
    for flag, value in options.items():
        if value is not None and value is not False:
            parts += [flag] if value is True else [flag, _quoted(value)]
    return " ".join(parts)


def _inert(text: str) -> str:
    """A text as it stands between double quotes, where the shell reads four characters of its own."""
    return re.sub(r'[\\"$`]', r"\\\g<0>", text)


def _quoted(value: Option) -> str:
    return str(value) if isinstance(value, Variable) else shlex.quote(str(value))
