"""The picture of the same workload on every GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parplan.planner import unbeaten
from parplan.ui import marks
from parplan.ui.charts import Chart
from parplan.ui.theme import Theme
from parplan.ui.words import significant

HEIGHT = 420
GAP = "\N{NO-BREAK SPACE}"
"""Between a marker and its name."""
ROOM = 0.7
"""Share of the width up to which a name has room on the right, where no point that beats its own can be."""
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
    """Short name, as it is chosen by; it has room in the picture."""
    vendor: str
    words: str
    """Layout and machines."""
    speed: float
    """Tokens/s per user."""
    usd: float
    """Per million output tokens."""


def cost_against_speed(spots: Sequence[Spot], *, chosen: str, theme: Theme) -> Chart:
    """USD per million output tokens over tokens/s per user, one point per GPU; named where no other beats it on both.

    Args:
        spots: one or more GPUs.
        chosen: label of the GPU to ring.
        theme: the colours.
    """
    speeds, usd = (np.array([getattr(spot, name) for spot in spots]) for name in ("speed", "usd"))
    best = {spots[index].gpu for index in unbeaten(speeds, -usd)}
    traces = [
        _points(
            [spot for spot in spots if spot.vendor == vendor],
            name=vendor,
            named=best - {chosen},
            middle=float(speeds.max()) * ROOM,
            theme=theme,
        )
        for vendor in VENDORS
        if any(spot.vendor == vendor for spot in spots)
    ]
    if own := [spot for spot in spots if spot.gpu == chosen]:
        ring = {"color": theme.text, "symbol": "circle-open", "size": 19, "line": {"width": 2.5}}
        traces.append(
            marks.Scatter(
                name="Chosen",
                x=[own[0].speed],
                y=[own[0].usd],
                mode="markers+text",
                marker=ring,
                text=[own[0].name],
                textposition="top center",
                textfont={"size": 11, "color": theme.text},
                hoverinfo="skip",
            )
        )
    figure = marks.figure(
        data=traces,
        layout=theme.layout(
            height=HEIGHT,
            x="tokens/s per user",
            y="USD per million output tokens",
            xaxis={"rangemode": "tozero", "range": [0, float(speeds.max()) * 1.08]},
            yaxis={"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}" for tick in TICKS]},
        ),
    )
    cheap, fast = spots[int(usd.argmin())], spots[int(speeds.argmax())]
    return Chart(
        figure,
        f"Cost against speed on {len(spots)} GPUs. Cheapest: {cheap.gpu}, {significant(cheap.usd)} USD per million "
        f"output tokens. Fastest: {fast.gpu}, {significant(fast.speed)} tokens/s per user.",
    )


def _points(
    spots: Sequence[Spot], *, name: str, named: set[str], middle: float, theme: Theme
) -> marks.Scatter:
    """One vendor's points; names stand on the side where there is more room."""
    place, symbol = VENDORS[name]
    marker: dict[str, Any] = {"color": theme.lines[place], "symbol": symbol, "size": 10}
    return marks.Scatter(
        name=name,
        x=[spot.speed for spot in spots],
        y=[spot.usd for spot in spots],
        mode="markers+text",
        marker=marker,
        text=[f"{GAP}{spot.name}{GAP}" if spot.gpu in named else "" for spot in spots],
        textposition=["middle left" if spot.speed > middle else "middle right" for spot in spots],
        textfont={"size": 11, "color": theme.text},
        customdata=[f"{spot.gpu}<br>{spot.words}" for spot in spots],
        hovertemplate=POINT,
    )
