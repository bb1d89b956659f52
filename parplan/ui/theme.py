"""How figures look, by day and by night: the one place of colours.

Colours are Okabe and Ito's colour-blind safe palette (2008): one per part of a GPU's memory, one per part of a step's
time, one per family of layouts, the same everywhere. Families also differ by marker, layouts of one family by shade.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW = (
    "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#f0e442",
)  # fmt: skip

INDIGO = "#332288"
"""Of Tol's muted palette (2021), which is colour-blind safe too: black would be a grey when faded or pale."""

Family: TypeAlias = Literal["TP", "TP with PP", "EP", "DP", "EP or DP with PP", "CP"]

MARKERS: dict[Family, str] = {
    "TP": "circle",
    "TP with PP": "square",
    "EP": "diamond",
    "DP": "triangle-up",
    "EP or DP with PP": "cross",
    "CP": "x",
}
"""Marker of each family, so that colour is never the only difference."""
PALEST, DEEPEST = 0.4, 0.45
"""How much of the background, or of the colour of text, is in the first and the last shade of a family."""
LEFT = 66
"""Pixels beside an axis with a title."""
FADED = 0.6
"""How much of the background is in what is faded."""


def mixed(colour: str, other: str, *, share: float) -> str:
    """A colour with a share of another one in it.

    >>> mixed("#000000", "#ffffff", share=0.5), mixed("#0072b2", "#ffffff", share=0)
    ('#808080', '#0072b2')
    """
    one, two = (np.array([*bytes.fromhex(name.removeprefix("#"))]) for name in (colour, other))
    return "#" + bytes(np.rint(one + share * (two - one)).astype(np.uint8)).hex()


@dataclass(frozen=True)
class Theme:
    """Everything a figure is coloured with."""

    text: str
    faint: str
    """Axes, grid and outlines."""
    background: str
    limit: str
    """What cannot be passed: the capacity of a GPU."""
    memory: dict[str, str]
    """Part of a GPU's memory -> colour."""
    time: dict[str, str]
    """Part of a step's time -> colour."""
    family: dict[Family, str]
    """Family of layouts -> colour."""
    lines: tuple[str, ...]
    """What is drawn side by side and is neither a part nor a family, in this order."""
    rest: str
    """Outlines and signs that stand back."""
    others: str
    """Layouts without a colour of their own."""

    def shades(self, family: Family, *, count: int, own: int | None = None) -> tuple[str, ...]:
        """Colours of so many layouts of one family, from pale to deep, the family's own among them.

        Args:
            own: place of the family's own colour. None: where it stands between pale and deep.
        """
        colour = self.family[family]
        deepest = DEEPEST if count > 2 and colour != self.text else 0.0
        shares = np.linspace(-PALEST, deepest, count)
        middle = int(np.abs(shares).argmin())
        shares = np.insert(np.delete(shares, middle), middle if own is None else own, 0.0)
        return tuple(
            mixed(colour, self.background if share < 0 else self.text, share=abs(share)) for share in shares
        )

    def faded(self, colour: str) -> str:
        """The colour of what counts less."""
        return mixed(colour, self.background, share=FADED)

    def layout(self, *, height: int, x: str, y: str = "", **layout: Any) -> dict[str, Any]:
        """Plotly layout of a small figure; further keys are merged over it.

        Args:
            height: pixels.
            x, y: titles of the axes.
        """
        axis: dict[str, Any] = {
            "gridcolor": self.faint,
            "zeroline": False,
            "linecolor": self.faint,
            "automargin": False,
            "fixedrange": True,
            "tickfont": {"size": 12},
        }
        base: dict[str, Any] = {
            "template": BLANK,
            "height": height,
            "margin": {"l": LEFT if y else 8, "r": 16, "t": 56, "b": 46},
            "font": {"color": self.text, "size": 13},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
            "hoverlabel": {
                "bgcolor": self.background,
                "font": {"color": self.text},
                "bordercolor": self.faint,
            },
            "xaxis": axis | {"title": {"text": x, **TITLE}},
            "yaxis": axis | {"title": {"text": y, **TITLE}},
            "dragmode": False,
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": self.rest, "activecolor": self.text},
        }
        for name in ("xaxis", "yaxis", "legend", "margin"):
            base[name] = base[name] | layout.pop(name, {})
        return base | layout

    def upright(self, x: float, *, colour: str) -> dict[str, Any]:
        """A dashed line from bottom to top."""
        line = {"color": colour, "width": 1.5, "dash": "dash"}
        return {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": x,
            "x1": x,
            "y0": 0,
            "y1": 1,
            "line": line,
        }

    def level(self, y: float) -> dict[str, Any]:
        """A dashed line from left to right."""
        line = {"color": self.text, "width": 1.5, "dash": "dash"}
        return {
            "type": "line",
            "xref": "paper",
            "yref": "y",
            "x0": 0,
            "x1": 1,
            "y0": y,
            "y1": y,
            "line": line,
        }

    def note(
        self, x: float, text: str, *, y: float, colour: str | None = None, **anchors: str
    ) -> dict[str, Any]:
        """Words at a line; `y` runs from 0 at the bottom to 1 at the top."""
        font = {"size": 12, "color": colour or self.text}
        return {"x": x, "y": y, "yref": "paper", "text": text, "showarrow": False, "font": font, **anchors}


TITLE: dict[str, Any] = {"standoff": 6, "font": {"size": 12}}
BLANK: dict[str, Any] = {}
"""No template: everything a figure needs is in its own small layout."""

LIGHT = Theme(
    text="#0e141b",
    faint="#d5dae1",
    background="#ffffff",
    limit=RED,
    memory={
        "weights": BLUE,
        "activations": GREEN,
        "overhead": "#7a828c",
        "kv": ORANGE,
        "kv_waiting": RED,
        "free": "#eceff3",
    },
    time={
        "linear": BLUE,
        "experts": SKY,
        "attention": ORANGE,
        "head": GREEN,
        "communication": RED,
        "overhead": "#7a828c",
        "prefill": PINK,
    },
    family={
        "TP": BLUE,
        "TP with PP": RED,
        "EP": GREEN,
        "DP": PINK,
        "EP or DP with PP": ORANGE,
        "CP": INDIGO,
    },
    lines=(BLUE, RED, GREEN, PINK, "#0e141b", ORANGE, SKY),
    rest="#7a828c",
    others="#868a8d",
)
DARK = Theme(
    text="#e8edf3",
    faint="#333d4a",
    background="#1a212b",
    limit="#ff8a4c",
    memory=LIGHT.memory | {"weights": SKY, "overhead": "#8d96a1", "free": "#232c38"},
    time=LIGHT.time | {"linear": SKY, "experts": BLUE, "overhead": "#8d96a1"},
    family=LIGHT.family | {"TP": SKY, "CP": YELLOW},
    lines=(SKY, ORANGE, GREEN, PINK, YELLOW, RED, BLUE),
    rest="#8d96a1",
    others="#8d939b",
)
