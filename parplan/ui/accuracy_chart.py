"""The picture of how wrong the numbers are: predicted against measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parplan.ui import marks
from parplan.ui.charts import Chart
from parplan.ui.theme import Theme

HEIGHT = 480
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star")
"""Markers of the groups, in order, so that colour is never the only difference."""
BAND = 1.25
"""Dotted lines: too high or too low by this factor."""


@dataclass(frozen=True)
class Point:
    """One measurement."""

    group: str
    words: str
    """What was measured."""
    measured: float
    predicted: float


def predicted_against_measured(points: Sequence[Point], *, unit: str, theme: Theme) -> Chart:
    """Both on logarithmic axes; on the diagonal the prediction is right.

    Args:
        points: one or more, all above zero.
        unit: what was measured, with its unit.
        theme: the colours.
    """
    low = min(min(point.measured, point.predicted) for point in points) / BAND
    high = max(max(point.measured, point.predicted) for point in points) * BAND
    groups = sorted({point.group for point in points})
    traces = [
        _points(
            [point for point in points if point.group == group],
            colour=theme.lines[place % len(theme.lines)],
            symbol=SYMBOLS[place % len(SYMBOLS)],
        )
        for place, group in enumerate(groups)
    ]
    lines = [
        _line(low, high, factor=factor, dash=dash, theme=theme)
        for factor, dash in ((1.0, "solid"), (BAND, "dot"), (1 / BAND, "dot"))
    ]
    axis = {"type": "log", "range": [float(np.log10(low)), float(np.log10(high))], **_ticks(low, high)}
    figure = marks.figure(
        data=[*lines, *traces],
        layout=theme.layout(
            height=HEIGHT, x=f"measured {unit}", y=f"predicted {unit}", xaxis=axis, yaxis=axis
        ),
    )
    near = sum(1 / BAND <= point.predicted / point.measured <= BAND for point in points)
    return Chart(
        figure,
        f"Predicted against measured {unit}: {near} of {len(points)} points lie within a factor of {BAND} of the "
        "diagonal.",
    )


def _ticks(low: float, high: float) -> dict[str, object]:
    """Ticks at 1, 2, 5 of each power of ten; powers alone where there would be many."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if len(powers) <= 5 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:,g}" if tick < 1 else f"{tick:,.0f}" for tick in ticks]}


def _line(low: float, high: float, *, factor: float, dash: str, theme: Theme) -> marks.Scatter:
    return marks.Scatter(
        x=[low, high],
        y=[low * factor, high * factor],
        mode="lines",
        line={"color": theme.text, "width": 1, "dash": dash},
        showlegend=False,
        hoverinfo="skip",
    )


def _points(points: Sequence[Point], *, colour: str, symbol: str) -> marks.Scatter:
    return marks.Scatter(
        name=points[0].group,
        x=np.array([point.measured for point in points]),
        y=np.array([point.predicted for point in points]),
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.7},
        text=[point.words for point in points],
        hovertemplate="%{text}<br>measured %{x:,.3g}, predicted %{y:,.3g}<extra></extra>",
    )
