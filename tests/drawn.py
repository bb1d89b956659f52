"""Figures of a page, as the browser is given them."""

import json
from dataclasses import dataclass
from typing import Any

from streamlit.testing.v1 import AppTest


@dataclass(frozen=True)
class Drawn:
    """A figure, and what it shows in words."""

    figure: dict[str, Any]
    alt: str


def drawn(page: AppTest) -> list[Drawn]:
    """All figures of a page, from the top."""
    mounted = (element.proto for element in page.get("bidi_component"))
    given = (json.loads(proto.json) for proto in mounted if proto.component_name == "figure")
    return [Drawn(json.loads(one["figure"]), one["alt"]) for one in given]
