"""The picture of the same workload on every GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parplan.arrays import unbeaten
from parplan.ui import marks
from parplan.ui.charts import Chart
from parplan.ui.theme import Theme
from parplan.ui.words import significant
from parplan.units import Array, counted

HEIGHT = 420
MARGIN = 0.08
"""Room over the dearest and under the cheapest point, in powers of ten."""
GAP = "\N{NO-BREAK SPACE}"
"""Between a marker and its name."""
PLOT = 270, 318
"""Least width of the plot, on a phone 390 pixels wide, and its height. Labels that keep apart there always do:
each touches its own marker, and markers only move away from each other sideways."""
CHARACTER, LINE, MARKER = 6.3, 14, 8
"""A label's width per character and height, and from the middle of a marker to its edge; pixels, at most."""
SIDES = {
    "middle right": (0.5, 0),
    "middle left": (-0.5, 0),
    "top center": (0, 0.5),
    "bottom center": (0, -0.5),
    "top right": (0.5, 0.5),
    "bottom right": (0.5, -0.5),
    "top left": (-0.5, 0.5),
    "bottom left": (-0.5, -0.5),
}
"""Where a label may stand, the best first: from the marker to its middle, in widths and heights of the label."""
VENDORS = {"NVIDIA": (2, "circle"), "AMD": (1, "diamond"), "Intel": (0, "square")}
"""Vendor -> its place among the theme's line colours, and its marker."""
TICKS = [usd * size for size in (0.01, 0.1, 1, 10, 100, 1000) for usd in (1, 2, 5)]
"""USD at which the logarithmic axis of costs is ticked."""
POINT = (
    "%{customdata}<br>%{x:,.1f} tokens/s per user<br>%{y:,.2f} USD per million output tokens<extra></extra>"
)


@dataclass(frozen=True)
class Spot:
    """One GPU with its best layout."""

    gpu: str
    """Label."""
    name: str
    """Short name; it has room in the picture."""
    vendor: str
    words: str
    """Layout and machines."""
    speed: float
    """Tokens/s per user."""
    usd: float
    """Per million output tokens."""


def cost_against_speed(spots: Sequence[Spot], *, chosen: str, theme: Theme) -> Chart:
    """USD per million output tokens over tokens/s per user, one point per GPU; named where there is room, those first
    that no other beats on both.

    Args:
        spots: one or more GPUs.
        chosen: label of the GPU to ring.
        theme: the colours.
    """
    speeds, usd = (np.array([getattr(spot, name) for spot in spots]) for name in ("speed", "usd"))
    best = {int(index) for index in unbeaten(speeds, -usd)}
    order = sorted(
        range(len(spots)), key=lambda index: (spots[index].gpu != chosen, index not in best, usd[index])
    )
    across = [0.0, float(speeds.max()) * 1.08]
    up = [float(np.log10(usd.min())) - MARGIN, float(np.log10(usd.max())) + MARGIN]
    at = np.column_stack(
        [np.interp(speeds, across, [0, PLOT[0]]), np.interp(np.log10(usd), up, [0, PLOT[1]])]
    )
    sides = label_sides(at, [spot.name for spot in spots], order=order)
    traces = [
        _points(
            [(spot, side) for spot, side in zip(spots, sides, strict=True) if spot.vendor == vendor],
            name=vendor,
            theme=theme,
        )
        for vendor in VENDORS
        if any(spot.vendor == vendor for spot in spots)
    ]
    if own := [spot for spot in spots if spot.gpu == chosen]:
        ring = {"color": theme.text, "symbol": "circle-open", "size": 15, "line": {"width": 2.5}}
        traces.append(
            marks.Scatter(
                name="Chosen", x=[own[0].speed], y=[own[0].usd], mode="markers", marker=ring, hoverinfo="skip"
            )
        )
    figure = marks.figure(
        data=traces,
        layout=theme.layout(
            height=HEIGHT,
            x="tokens/s per user",
            y="USD per million output tokens",
            xaxis={"range": across},
            yaxis={
                "type": "log",
                "range": up,
                "tickvals": TICKS,
                "ticktext": [f"{tick:g}" for tick in TICKS],
            },
        ),
    )
    cheap, fast = spots[int(usd.argmin())], spots[int(speeds.argmax())]
    return Chart(
        figure,
        f"Cost against speed on {counted(len(spots), 'GPU')}. Cheapest: {cheap.gpu}, {significant(cheap.usd)} USD per "
        f"million output tokens. Fastest: {fast.gpu}, {significant(fast.speed)} tokens/s per user.",
    )


def label_sides(at: Array, names: Sequence[str], *, order: Sequence[int]) -> list[str]:
    """Where the label of each point stands, so that no two overlap and none hides a point; empty: there is no room.

    Args:
        at: the points, [points, across and up], pixels.
        names: their labels.
        order: who chooses first.
    """
    boxes = [(*(point - MARKER), *(point + MARKER)) for point in at]
    sides = [""] * len(names)
    for index in order:
        size = np.array([CHARACTER * len(names[index] + GAP), LINE])
        taken = np.array([box for place, box in enumerate(boxes) if place != index]).reshape(-1, 4)
        for side, shift in SIDES.items():
            middle = at[index] + np.array(shift) * size + np.sign(shift) * MARKER
            low, high = middle - size / 2, middle + size / 2
            inside = (low >= 0).all() and (high <= PLOT).all()
            if inside and not ((taken[:, :2] < high) & (taken[:, 2:] > low)).all(axis=1).any():
                sides[index] = side
                boxes.append((*low, *high))
                break
    return sides


def _points(placed: Sequence[tuple[Spot, str]], *, name: str, theme: Theme) -> marks.Scatter:
    """One vendor's points, with the sides on which their names stand."""
    place, symbol = VENDORS[name]
    marker: dict[str, Any] = {"color": theme.lines[place], "symbol": symbol, "size": 10}
    return marks.Scatter(
        name=name,
        x=[spot.speed for spot, _ in placed],
        y=[spot.usd for spot, _ in placed],
        mode="markers+text",
        marker=marker,
        text=[f"{GAP}{spot.name}{GAP}" if side else "" for spot, side in placed],
        textposition=[side or "middle right" for _, side in placed],
        textfont={"size": 11, "color": theme.text},
        customdata=[f"{spot.gpu}<br>{spot.words}" for spot, _ in placed],
        hovertemplate=POINT,
    )
