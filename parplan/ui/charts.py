"""Figures: from results to Plotly, and nothing else. Every builder also says its takeaway in words, for `alt`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from parplan.layout import Layout
from parplan.planner import Plan, Result, families
from parplan.ui.theme import MARKERS, Theme
from parplan.ui.words import significant
from parplan.units import GIB, MS, Array, written_bytes, written_time

MEMORY_PARTS = {
    "weights": "Weights",
    "activations": "Activations",
    "overhead": "Engine overhead",
    "kv": "KV cache in use",
    "free": "Free",
    "kv_waiting": "KV cache that is missing",
}
TIME_PARTS = {
    "linear": "Dense weights",
    "experts": "Experts",
    "attention": "Attention and KV",
    "head": "Head and sampling",
    "communication": "Communication",
    "overhead": "Launch, engine, bubbles",
    "prefill": "Prefill of newcomers",
}
HEIGHT = 340
"""Height of a figure, pixels."""
MOST_REQUESTS = 4096
"""Curves end here, at the largest concurrency a scenario can ask for."""
FOURFOLD = 2 * np.log10(2)
"""Distance between two ticks of a logarithmic axis."""
MISSING = {"shape": "/", "fillmode": "overlay", "fgcolor": "#ffffff", "size": 7, "solidity": 0.3}
"""Hatching of memory that is not there."""
OVERFLOW = 1.6
"""Bars longer than this many GPUs' memory are cut off."""
POINT = "%{text}<br>%{x:,.1f} tokens/s per user<br>%{y:,.0f} tokens/s per GPU<extra></extra>"
"""What a point of the frontier says when pointed at."""


@dataclass(frozen=True)
class Chart:
    """A figure, and its takeaway for those who cannot see it."""

    figure: go.Figure
    alt: str


def memory_bars(plans: Sequence[Plan], *, chosen: Layout | None, theme: Theme) -> Chart:
    """Memory of the fullest GPU of each layout, stacked by part, with the capacity as a line."""
    usable = float(plans[0].memory.usable) / GIB
    names = [_named(plan, chosen=plan.layout == chosen) for plan in plans]
    amounts = {
        part: [max(float(getattr(plan.memory, part)) / GIB, 0.0) for plan in plans] for part in MEMORY_PARTS
    }
    longest = max(sum(bar) for bar in zip(*amounts.values(), strict=True))
    figure = go.Figure(
        data=[
            go.Bar(
                name=name,
                y=names,
                x=amounts[part],
                orientation="h",
                marker={
                    "color": theme.memory[part],
                    "line": {"width": 0},
                    "pattern": MISSING if part == "kv_waiting" else {},
                },
                hovertemplate="%{y}<br>" + name + ": %{x:.1f} GiB<extra></extra>",
            )
            for part, name in MEMORY_PARTS.items()
        ],
        layout=theme.layout(
            height=max(HEIGHT, 190 + 38 * len(plans)),
            x="GiB on the fullest GPU",
            barmode="stack",
            bargap=0.35,
            yaxis={"autorange": "reversed", "showgrid": False},
            xaxis={"range": [0, min(longest * 1.03, usable * OVERFLOW)]},
            legend={"traceorder": "normal", "y": 1.08},
            shapes=[theme.upright(usable, colour=theme.limit)],
            annotations=[
                theme.note(
                    usable,
                    f"{usable:.1f} GiB usable",
                    colour=theme.limit,
                    y=1,
                    xanchor="right",
                    yanchor="bottom",
                )
            ],
        ),
    )
    own = next((plan for plan in plans if plan.layout == chosen), plans[0])
    return Chart(figure, f"Memory per GPU of {len(plans)} layouts. {memory_words(own)}")


def _named(plan: Plan, *, chosen: bool) -> str:
    name = f"{plan.layout}, {plan.gpus} GPU{'s' if plan.gpus > 1 else ''}"
    return f"<b>{name}</b>" if chosen else name


def memory_words(plan: Plan) -> str:
    """Where the memory of the fullest GPU of a layout goes, as a sentence."""
    memory = plan.memory
    parts = (
        (memory.weights, "weights"),
        (memory.kv, "KV cache"),
        (memory.activations, "activations"),
        (memory.overhead, "overhead"),
        (abs(memory.free), "free" if memory.free >= 0 else "too much"),
    )
    listed = ", ".join(f"{written_bytes(float(amount))} {name}" for amount, name in parts)
    return f"{plan.layout}: {listed} of {written_bytes(float(memory.usable))}."


def time_bar(plan: Plan, *, theme: Theme) -> Chart:
    """What one output token's time is spent on."""
    step, serving = plan.serving.decode, plan.serving
    parts = {part: float(getattr(serving if part == "prefill" else step, part)) for part in TIME_PARTS}
    figure = go.Figure(
        data=[
            go.Bar(
                name=TIME_PARTS[part],
                y=[""],
                x=[seconds / MS],
                orientation="h",
                marker={"color": theme.time[part], "line": {"width": 0}},
                hovertemplate=f"{TIME_PARTS[part]}: {written_time(seconds)}<extra></extra>",
            )
            for part, seconds in parts.items()
            if seconds > 0
        ],
        layout=theme.layout(
            height=170,
            x="ms per output token",
            barmode="stack",
            yaxis={"showgrid": False, "showticklabels": False},
            legend={"traceorder": "normal"},
        ),
    )
    largest = max(parts, key=lambda part: parts[part])
    total, most = written_time(float(serving.tpot)), written_time(parts[largest])
    return Chart(figure, f"One token takes {total}; most of it, {most}, is {TIME_PARTS[largest].lower()}.")


def frontier(result: Result, *, chosen: int | None, theme: Theme) -> Chart:
    """Tokens/s per GPU over tokens/s per user: of each family the layouts and batches no other beats on both.

    Args:
        result: what to draw; only legal layouts whose requests all run are.
        chosen: layout to ring, at the asked batch.
        theme: the colours.
    """
    alt = "Throughput per GPU against speed per user, best layouts of each family."
    traces = []
    for name in MARKERS:
        layouts, batches = result.frontier(family=name)
        if len(layouts):
            look = {"color": theme.family[name], "symbol": MARKERS[name], "size": 7}
            traces.append(_points(result, layouts, batches, name=name, mode="lines+markers", marker=look))
    if chosen is not None:
        ring = {"color": theme.text, "symbol": "circle-open", "size": 17, "line": {"width": 2.5}}
        at = np.array([chosen]), np.array([result.asked])
        traces.append(_points(result, *at, name="Recommended", mode="markers", marker=ring))
        alt += f" {result.layout.one(chosen)} gives {significant(traces[-1].x[0])} tokens/s per user."
    axis = {"rangemode": "tozero"}
    layout = theme.layout(height=HEIGHT, x="tokens/s per user", y="tokens/s per GPU", xaxis=axis, yaxis=axis)
    return Chart(go.Figure(data=traces, layout=layout), alt)


def _points(
    result: Result, layouts: Any, batches: Any, *, name: str, mode: str, marker: dict[str, Any]
) -> go.Scatter:
    """Some layouts at some batches."""
    per_user = result.grid(result.serving.tokens_per_s_per_user)[layouts, batches]
    per_gpu = result.grid(result.serving.tokens_per_s_per_gpu)[layouts, batches]
    named = zip(layouts, result.concurrency[batches], strict=True)
    return go.Scatter(
        name=name,
        x=per_user,
        y=per_gpu,
        mode=mode,
        line={"color": marker["color"], "width": 1},
        marker=marker,
        text=[f"{result.layout.one(layout)}, {requests:,} requests" for layout, requests in named],
        hovertemplate=POINT,
    )


def curves(
    result: Result, *, values: Any, unit: str, layouts: Sequence[int], chosen: int, limit: float, theme: Theme
) -> Chart:
    """A quantity against concurrent requests, one line per layout, dotted where requests wait for KV cache.

    Args:
        result: where the layouts and batches come from.
        values: [layouts, batches], in the unit shown.
        unit: the unit, title of the axis.
        layouts: indices of the layouts to draw.
        chosen: index of the layout to stress among them.
        limit: the target to draw, in the same unit; 0: none.
        theme: the colours.
    """
    traces = [
        trace
        for index, colour in zip(layouts, theme.lines, strict=False)
        for trace in _curve(
            result, index, result.grid(values)[index], unit=unit, colour=colour, chosen=index == chosen
        )
    ]
    asked = int(result.concurrency[result.asked])
    figure = go.Figure(
        data=traces,
        layout=theme.layout(
            height=HEIGHT,
            x="concurrent requests per replica",
            y=unit,
            xaxis={"type": "log", "dtick": FOURFOLD, "tickformat": ",d"},
            yaxis={"rangemode": "tozero"},
            legend={"y": 1.08},
            shapes=[theme.upright(asked, colour=theme.text), *([theme.level(limit)] if limit else [])],
            annotations=[
                theme.note(np.log10(asked), f"{asked:,} asked", y=1, xanchor="center", yanchor="bottom")
            ],
        ),
    )
    now = f"{significant(result.at_asked(values)[chosen])} with {asked:,} requests on {result.layout.one(chosen)}"
    return Chart(figure, f"{unit} against concurrent requests: {now}.")


def _curve(
    result: Result, index: int, values: Array, *, unit: str, colour: str, chosen: bool
) -> tuple[go.Scatter, go.Scatter]:
    """One layout's line: solid while the KV cache holds every request, dotted from there on."""
    layout = result.layout.one(index)
    name = f"<b>{layout}</b>" if chosen else str(layout)
    shown = result.concurrency <= MOST_REQUESTS
    held = shown & (result.concurrency <= result.grid(result.memory.capacity)[index])
    full = shown & (np.arange(held.size) >= max(held.sum() - 1, 0))

    def line(where: Any, *, dash: str, mode: str, named: bool) -> go.Scatter:
        return go.Scatter(
            name=name,
            x=result.concurrency[where],
            y=values[where],
            mode=mode,
            line={"color": colour, "dash": dash, "width": 3 if chosen else 1.5},
            marker={"symbol": MARKERS[families(layout).item()], "size": 6},
            legendgroup=name,
            showlegend=named,
            hovertemplate=f"{layout}<br>%{{x:,}} requests: %{{y:,.1f}} {unit}<extra></extra>",
        )

    return (
        line(held, dash="solid", mode="lines+markers", named=bool(held.any())),
        line(full, dash="dot", mode="lines", named=not held.any()),
    )
