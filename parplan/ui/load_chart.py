"""The picture of waiting: time to first token against the rate of requests."""

import numpy as np

from parplan.traffic import Traffic
from parplan.ui import marks
from parplan.ui.charts import Chart, left_margin
from parplan.ui.theme import Theme
from parplan.ui.words import significant
from parplan.units import MS, counted, written_time

HEIGHT = 400
TICKS = [ms * size for size in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000) for ms in (1, 2, 5)]
"""Milliseconds at which the logarithmic axis is ticked."""
SHOWN = 30.0
"""The curve is cut off at so many times its start."""


def first_token_against_rate(found: Traffic, *, theme: Theme) -> Chart:
    """Time to first token that half and 95 of 100 requests stay within, against requests per second; the knee, what
    was asked and the target are marked.

    Args:
        found: the replicas and what they are asked.
        theme: the colours.
    """
    curve, target = found.curve, found.replica.workload.ttft
    rates, median, late = (
        np.asarray(values) for values in (curve.arrival_rate, curve.ttft_p50, curve.ttft_p95)
    )
    lowest, highest = median[0], max(median[0] * SHOWN, 1.5 * (target or 0.0))
    shown = [tick for tick in TICKS if lowest * 0.7 <= tick * MS <= highest]
    lines = {"knee": (found.knee, theme.limit)}
    for name, load in (("asked", found.mean), ("peak", found.busiest)):
        if 0 < load.arrival_rate <= rates[-1] and load.arrival_rate not in [
            line[0] for line in lines.values()
        ]:
            lines[name] = float(load.arrival_rate), theme.text
    figure = marks.figure(
        data=[
            _line("half of the requests", rates, median, colour=theme.lines[0], dash="solid"),
            _line("95 of 100 requests", rates, late, colour=theme.lines[1], dash="dash"),
        ],
        layout=theme.layout(
            height=HEIGHT,
            x=f"requests per second, over {counted(found.replicas, 'replica')}",
            y="ms to first token, at most",
            xaxis={"range": [0, float(rates[-1]) * 1.02], "exponentformat": "none"},
            yaxis={
                "type": "log",
                "range": [float(np.log10(lowest * 0.7 / MS)), float(np.log10(highest / MS))],
                "tickvals": shown,
                "ticktext": [f"{tick:,}" for tick in shown],
            },
            margin={"l": left_margin(f"{tick:,}" for tick in shown)},
            shapes=[
                *(theme.upright(rate, colour=colour) for rate, colour in lines.values()),
                *([theme.level(target / MS)] if target else []),
            ],
            annotations=[
                *(
                    theme.note(rate, name, colour=colour, y=y, xanchor="right", yanchor="top")
                    | {"bgcolor": theme.background, "borderpad": 1, "xshift": -3}
                    for (name, (rate, colour)), y in zip(lines.items(), (1.0, 0.92, 0.84), strict=False)
                ),
                *(
                    [
                        theme.note(0, "target", y=0, xanchor="left", yanchor="bottom")
                        | {"yref": "y", "y": float(np.log10(target / MS))}
                    ]
                    if target
                    else []
                ),
            ],
        ),
    )
    return Chart(
        figure,
        f"Time to first token against requests per second. It starts at {written_time(float(median[0]))} and grows "
        f"without bound beyond the knee at {significant(found.knee)} requests per second.",
    )


def _line(name: str, rates: np.ndarray, times: np.ndarray, *, colour: str, dash: str) -> marks.Scatter:
    return marks.Scatter(
        name=name,
        x=rates,
        y=times / MS,
        mode="lines",
        line={"color": colour, "dash": dash, "width": 2.5},
        text=[significant(rate) for rate in rates],
        hovertemplate=f"{name}<br>%{{text}} requests/s: %{{y:,.0f}} ms<extra></extra>",
    )
