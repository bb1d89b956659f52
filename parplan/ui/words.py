"""Words and numbers for people: the last step before the page."""

import re
from collections.abc import Iterable

import numpy as np

from parplan.provenance import Source
from parplan.units import Number

MARKED_UP = re.compile(r"([!-/:-@\[-`{-~])")
"""Every ASCII sign that could mean something in Markdown."""
LINKED = re.compile(r"https?(?=:)|www(?=\.)|@", re.IGNORECASE)
"""What makes a link of an address that stands in a text, escaped or not."""
NO_FIGURE = "–"
"""Stands where there is no number."""
JOINER = "\u2060"
"""Keeps what stands beside it together, and is not seen."""


def plain(text: str) -> str:
    r"""Text that Markdown shows as it is, whatever it contains.

    >>> plain("a*b ![x](y)")
    'a\\*b \\!\\[x\\]\\(y\\)'
    """
    return MARKED_UP.sub(r"\\\1", LINKED.sub(rf"\g<0>{JOINER}", text))


def significant(value: Number) -> str:
    """Three significant figures, thousands separated, never an exponent.

    >>> significant(1234.5), significant(23.44), significant(4.5), significant(0)
    ('1,234', '23.4', '4.50', '0')
    >>> significant(0.12345), significant(0.0027431)
    ('0.123', '0.00274')
    """
    number = float(value)
    if number == 0 or not np.isfinite(number):
        return "0" if number == 0 else NO_FIGURE
    decimals = max(0, 2 - int(np.floor(np.log10(abs(number)))))
    return f"{number:,.{decimals}f}"


def count(number: float) -> str:
    """Parameters or tokens, short.

    >>> count(70.6e9), count(1536), count(12)
    ('70.6 billion', '1,536', '12')
    """
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= limit:
            return f"{significant(number / limit)} {word}"
    return f"{number:,.0f}"


def bullets(texts: Iterable[str]) -> str:
    """Texts as one Markdown list, shown as they are."""
    return "\n".join(f"- {plain(text)}" for text in texts)


def cited(sources: Iterable[Source]) -> str:
    """Sources as one line: what was read, when, and where it is."""
    found = (
        f"{source.text} ({source.read})" + (f" {source.url}" if source.url else "") for source in sources
    )
    return "; ".join(dict.fromkeys(found))


def sentence(text: str) -> str:
    """Text with a capital at its start and nothing else changed.

    >>> sentence("use L4 24 GB")
    'Use L4 24 GB'
    """
    return text[:1].upper() + text[1:]
