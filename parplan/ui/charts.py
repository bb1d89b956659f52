"""Figures: from results to Plotly, and nothing else. Every builder also says its takeaway in words, for `alt`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parplan.layout import Layout, families
from parplan.memory import Rank
from parplan.planner import Plan, Result
from parplan.ui import marks
from parplan.ui.ranks import Kind
from parplan.ui.theme import LEFT, MARKERS, Theme
from parplan.ui.words import significant
from parplan.units import GIB, MS, Array, Mask, counted, written_bytes, written_time
from parplan.workload import MOST_AT_ONCE

MEMORY_PARTS = {
    "weights": "Weights",
    "activations": "Activations",
    "overhead": "Overhead",
    "kv": "KV cache",
    "free": "Free",
    "kv_waiting": "Missing KV",
}
TIME_PARTS = {
    "linear": "Dense weights",
    "experts": "Experts",
    "attention": "Attention, KV",
    "head": "Output head",
    "communication": "Communication",
    "overhead": "Launch, engine",
    "prefill": "Prefill",
}
HEIGHT = 340
"""Height of a figure, pixels."""
FOURFOLD = 2 * np.log10(2)
"""Distance between two ticks of a logarithmic axis."""
MISSING = {"shape": "/", "fillmode": "overlay", "fgcolor": "#ffffff", "size": 7, "solidity": 0.3}
"""Hatching of memory that is not there."""
CHARACTER = 7.2
"""Width of one character of a label, pixels."""
OVERFLOW = 1.6
"""Bars longer than this many GPUs' memory are broken off."""
BREAK = "//"
"""Where a bar is broken off."""
AT_TOP = {"xref": "container", "x": 0, "yref": "container", "y": 1, "yanchor": "top", "maxheight": 1}
"""A legend with a place of its own, whatever the size of the plot."""
LATE = "First token late"
"""What a mark means that stands where the first token comes later than asked."""
BEATEN = 0.3
"""Opacity of points that another family beats."""
POINT = "%{text}<br>%{x:,.1f} tokens/s per user<br>%{y:,.0f} tokens/s per GPU<extra></extra>"
"""What a point of the frontier says when pointed at."""


@dataclass(frozen=True)
class Chart:
    """A figure, and its takeaway for those who cannot see it."""

    figure: marks.Figure
    alt: str


def left_margin(labels: Iterable[str]) -> float:
    """Pixels beside an axis with a title that its labels need.

    >>> left_margin(["1,000"]), left_margin(["1,000", "5,000,000"])
    (66, 86.8)
    """
    return max(LEFT, 22 + CHARACTER * max(map(len, labels), default=0))


def memory_bars(
    plans: Sequence[Plan], *, chosen: Layout | None, ticked: Layout | None = None, theme: Theme
) -> Chart:
    """Memory of the fullest GPU of each layout, stacked by part, with the capacity as a line.

    Args:
        plans: what to draw; a bar stands for its layout when clicked on.
        chosen: the layout in bold.
        ticked: the layout in bold with a tick.
        theme: the colours.
    """
    bars = {
        _named(plan, chosen=plan.layout == chosen, ticked=plan.layout == ticked): plan.memory
        for plan in plans
    }
    own = next((plan for plan in plans if plan.layout == chosen), plans[0])
    figure = _memory_stack(
        bars,
        height=max(HEIGHT, 190 + 38 * len(plans)),
        thickness=min(0.65, 0.16 * len(bars)),
        x="GiB on the fullest GPU",
        theme=theme,
        stands_for=[str(plan.layout) for plan in plans],
    )
    return Chart(figure, f"Memory per GPU of {counted(len(plans), 'layout')}. {memory_words(own)}")


def scenario_bars(plans: Mapping[str, Plan], *, theme: Theme) -> Chart:
    """Memory of the fullest GPU of one plan per scenario, each with its own GPU's capacity.

    Args:
        plans: by the name of the scenario.
    """
    bars = {f"{name}: {plan.layout}": plan.memory for name, plan in plans.items()}
    figure = _memory_stack(
        bars,
        height=max(HEIGHT - 60, 190 + 38 * len(plans)),
        thickness=0.55,
        x="GiB on the fullest GPU",
        theme=theme,
    )
    told = " ".join(f"{name} is {memory_words(plan)}" for name, plan in plans.items())
    return Chart(figure, f"Memory per GPU of {counted(len(plans), 'scenario')}. {told}")


def rank_bars(kinds: Sequence[Kind], *, theme: Theme) -> Chart:
    """Memory of every kind of GPU of one replica, those that stand for the worst rank in bold."""
    bars = {f"<b>{kind.words}</b>" if kind.worst else kind.words: kind.each for kind in kinds}
    figure = _memory_stack(bars, height=166 + 34 * len(kinds), thickness=0.65, x="GiB per GPU", theme=theme)
    worst = next(kind for kind in kinds if kind.worst)
    return Chart(
        figure,
        f"Memory of every GPU of a replica. The worst: {worst.words}, "
        f"{written_bytes(float(worst.each.needed))} needed.",
    )


def _memory_stack(
    bars: Mapping[str, Rank],
    *,
    height: int,
    thickness: float,
    x: str,
    theme: Theme,
    stands_for: Sequence[str] = (),
) -> marks.Figure:
    """One bar per name, stacked by part, and the capacity as a line. Bars too long to draw are broken off, and say how
    long they are.

    Args:
        height: of the figure, pixels.
        thickness: of a bar, as a share of the room it has.
        stands_for: what a click on each bar is about; empty where nothing happens.
    """
    capacities = [float(rank.usable) / GIB for rank in bars.values()]
    usable, alike = max(capacities), len(set(capacities)) == 1
    amounts = {
        part: [max(float(getattr(rank, part)) / GIB, 0.0) for rank in bars.values()] for part in MEMORY_PARTS
    }
    lengths = [sum(bar) for bar in zip(*amounts.values(), strict=True)]
    end = min(max(lengths) * 1.03, usable * OVERFLOW)
    return marks.figure(
        data=[
            marks.Bar(
                name=name,
                y=list(bars),
                x=amounts[part],
                orientation="h",
                width=thickness,
                marker={
                    "color": theme.memory[part],
                    "line": {"width": 0},
                    **({"pattern": MISSING} if part == "kv_waiting" else {}),
                },
                hovertemplate="%{y}<br>" + name + ": %{x:.1f} GiB<extra></extra>",
                **({"customdata": list(stands_for)} if stands_for else {}),
            )
            for part, name in MEMORY_PARTS.items()
        ],
        layout=theme.layout(
            height=height,
            x=x,
            barmode="stack",
            yaxis={"autorange": "reversed", "showgrid": False},
            xaxis={"range": [0, end]},
            legend={"traceorder": "normal", "entrywidth": 70, **AT_TOP},
            margin={
                "t": 84,
                "l": 14
                + CHARACTER * max(len(name.removeprefix("<b>").removesuffix("</b>")) for name in bars),
            },
            shapes=[theme.upright(usable, colour=theme.limit)]
            if alike
            else [
                theme.upright(size, colour=theme.limit)
                | {"yref": "y", "y0": place - 0.45, "y1": place + 0.45}
                for place, size in enumerate(capacities)
            ],
            annotations=[
                theme.note(
                    usable,
                    f"{usable:.1f} GiB usable" if alike else "usable",
                    colour=theme.limit,
                    y=1,
                    xanchor="right",
                    yanchor="bottom",
                ),
                *(
                    theme.note(
                        end,
                        f"<b>{BREAK}</b> {length:,.0f} GiB",
                        y=place,
                        yref="y",
                        xanchor="right",
                        bgcolor=theme.background,
                    )
                    for place, length in enumerate(lengths)
                    if length > end
                ),
            ],
        ),
    )


def _named(plan: Plan, *, chosen: bool, ticked: bool) -> str:
    name = f"{'✓ ' * ticked}{plan.layout}, {counted(plan.gpus, 'GPU')}"
    return f"<b>{name}</b>" if chosen or ticked else name


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
    figure = marks.figure(
        data=[
            marks.Bar(
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
            height=220,
            x="ms per output token",
            barmode="stack",
            yaxis={"showgrid": False, "showticklabels": False},
            legend={"traceorder": "normal", "entrywidth": 102, **AT_TOP},
            margin={"t": 92},
        ),
    )
    largest = max(parts, key=lambda part: parts[part])
    total, most = written_time(float(serving.tpot)), written_time(parts[largest])
    return Chart(figure, f"One token takes {total}; most of it, {most}, is {TIME_PARTS[largest].lower()}.")


def frontier(result: Result, *, chosen: int | None, ticked: int | None = None, theme: Theme) -> Chart:
    """Tokens/s per GPU over tokens/s per user: of each family what none of it beats on both, faint
    where another family does, hollow where the first token comes later than asked; and the target for the time per
    token.

    A family that is nowhere best is left to a click on its name in the legend.

    Args:
        result: what to draw; only legal layouts whose requests all run are.
        chosen: layout to ring, at the asked batch; a bar marks it where it holds no more requests.
        ticked: layout to frame at the asked batch, where it runs and is another one.
        theme: the colours.
    """
    alt = "Throughput per GPU against speed per user, best layouts of each family."
    best = set(zip(*(places.tolist() for places in result.frontier), strict=True))
    traces, late, missed = [], too_late(result), False
    for name in MARKERS:
        layouts, batches = result.frontiers[name]
        if len(layouts):
            hollow = late[layouts, batches]
            shown = [place in best for place in zip(layouts.tolist(), batches.tolist(), strict=True)]
            look = {
                "color": theme.family[name],
                "symbol": [f"{MARKERS[name]}{'-open' * bool(one)}" for one in hollow]
                if hollow.any()
                else MARKERS[name],
                "size": 7,
                "opacity": [1 if one else BEATEN for one in shown],
            }
            traces.append(_points(result, layouts, batches, name=name, mode="lines+markers", marker=look))
            traces[-1]["visible"] = True if any(shown) else "legendonly"
            missed |= bool(hollow.any())
    if missed:
        hollow_ring = {"symbol": "circle-open", "size": 7, "color": theme.text}
        traces.append(marks.Scatter(name=LATE, x=[None], y=[None], mode="markers", marker=hollow_ring))
    if chosen is not None:
        own = _chosen(result, chosen, theme=theme)
        traces += own
        alt += f" {result.layout.one(chosen)} gives {significant(own[0]['x'][0])} tokens/s per user."
    if ticked is not None and ticked != chosen and result.legal[ticked]:
        frame = {"color": theme.text, "symbol": "square-open", "size": 17, "line": {"width": 2.5}}
        place = np.array([ticked]), np.array([result.asked])
        traces.append(_points(result, *place, name="Ticked", mode="markers", marker=frame))
    axis = {"rangemode": "tozero", "tickformat": ","}
    limit = result.problem.workload.tpot
    layout = theme.layout(
        height=HEIGHT,
        x="tokens/s per user",
        y="tokens/s per GPU",
        xaxis=axis,
        yaxis=axis,
        shapes=[theme.upright(1 / limit, colour=theme.limit)] if limit else [],
        annotations=[_at_speed(limit, traces, theme)] if limit else [],
        legend={"entrywidth": 92, "font": {"size": 11}, **AT_TOP},
        margin={"t": 84},
    )
    return Chart(marks.figure(data=traces, layout=layout), alt)


def _at_speed(target: float, traces: Sequence[marks.Scatter], theme: Theme) -> dict[str, Any]:
    """What the upright line of a target stands for, on the side where there is more room."""
    fastest = max((speed for trace in traces for speed in trace["x"] if speed is not None), default=0)
    side = "left" if 1 / target < fastest / 2 else "right"
    words = f"target: {written_time(target)} per token"
    beside = {"xshift": 4 if side == "left" else -4}
    return theme.note(1 / target, words, colour=theme.limit, y=1, xanchor=side, yanchor="top") | beside


def too_late(result: Result) -> Mask:
    """Where the first token comes later than asked, [layouts, batches]; nowhere without a target."""
    target = result.problem.workload.ttft or np.inf
    return result.grid(result.serving.ttft) > target


def _chosen(result: Result, index: int, *, theme: Theme) -> list[marks.Scatter]:
    """A layout at the asked batch, and at the most requests it holds."""
    full = result.filled(index)
    pool = (
        full is not None
        and (result.grid(result.serving.running) >= result.grid(result.memory.capacity))[index, full]
    )
    ring = {"color": theme.text, "symbol": "circle-open", "size": 17, "line": {"width": 2.5}}
    bar = {"color": theme.text, "symbol": "line-ns-open", "size": 17, "line": {"width": 3}}
    places = (
        ("Recommended", ring, result.asked),
        ("Its KV cache full" if pool else "Its slots full", bar, full),
    )
    return [
        _points(result, np.array([index]), np.array([batch]), name=name, mode="markers", marker=look)
        for name, look, batch in places
        if batch is not None
    ]


def _points(
    result: Result, layouts: Any, batches: Any, *, name: str, mode: str, marker: dict[str, Any]
) -> marks.Scatter:
    """Some layouts at some batches."""
    per_user = result.grid(result.serving.tokens_per_s_per_user)[layouts, batches]
    per_gpu = result.grid(result.serving.tokens_per_s_per_gpu)[layouts, batches]
    names = [str(result.layout.one(layout)) for layout in layouts]
    named = zip(names, result.grid(result.serving.running)[layouts, batches], strict=True)
    return marks.Scatter(
        name=name,
        x=per_user,
        y=per_gpu,
        mode=mode,
        line={"color": marker["color"], "width": 1},
        marker=marker,
        text=[f"{layout}, {counted(int(requests), 'request')}" for layout, requests in named],
        customdata=names,
        hovertemplate=POINT,
    )


def curves(
    result: Result,
    *,
    values: Any,
    unit: str,
    layouts: Sequence[int],
    chosen: int,
    ticked: int | None = None,
    limit: float,
    theme: Theme,
) -> Chart:
    """A quantity against concurrent requests, one line per layout, dotted where requests wait for KV cache. A cross
    marks the first number of requests at which the first token comes later than asked.

    A line has the colour and marker of its family; those of one family differ by shade and by filled or open markers.

    Args:
        result: where the layouts and batches come from.
        values: [layouts, batches], in the unit shown.
        unit: the unit, title of the axis.
        layouts: indices of the layouts to draw.
        chosen: index of the layout to stress among them.
        ticked: index of another one to stress.
        limit: the target to draw, in the same unit; 0: none.
        theme: the colours.
    """
    drawn = [result.layout.one(index) for index in layouts]
    styles = looks(drawn, chosen=result.layout.one(chosen), theme=theme)
    traces = [
        trace
        for index, (colour, symbol) in zip(layouts, styles, strict=True)
        for trace in _curve(
            result,
            index,
            result.grid(values)[index],
            unit=unit,
            colour=colour,
            symbol=symbol,
            stress={ticked: "<b>{}</b>, ticked", chosen: "<b>{}</b>"}.get(index, ""),
        )
    ]
    traces += _first_late(result, layouts, values=result.grid(values), theme=theme)
    asked = int(result.concurrency[result.asked])
    figure = marks.figure(
        data=traces,
        layout=theme.layout(
            height=HEIGHT,
            x="concurrent requests per replica",
            y=unit,
            xaxis={"type": "log", "dtick": FOURFOLD, "tickformat": ",d"},
            yaxis={"rangemode": "tozero", "tickformat": ","},
            legend=AT_TOP,
            margin={"t": 92},
            shapes=[theme.upright(asked, colour=theme.text), *([theme.level(limit)] if limit else [])],
            annotations=[
                theme.note(np.log10(asked), f"{asked:,} asked", y=1, xanchor="center", yanchor="bottom"),
                *([_target(limit, unit, theme)] if limit else []),
            ],
        ),
    )
    at_once, layout = counted(asked, "request"), result.layout.one(chosen)
    now = f"{significant(result.at_asked(values)[chosen])} with {at_once} on {layout}"
    return Chart(figure, f"{unit} against concurrent requests: {now}.")


def _target(limit: float, unit: str, theme: Theme) -> dict[str, Any]:
    """What a level line stands for."""
    at = {"xref": "paper", "yref": "y", "xanchor": "left", "yanchor": "bottom"}
    return theme.note(0, f"target: {limit:,g} {unit}", y=limit, **at)


def looks(layouts: Sequence[Layout], *, chosen: Layout | None, theme: Theme) -> list[tuple[str, str]]:
    """Colour and marker of layouts drawn together: the family's, told apart by shade, and by filled or open markers;
    the chosen one has the family's own."""
    named = [(families(layout).item(), layout) for layout in layouts]
    found: dict[Layout, tuple[str, str]] = {}
    for family in MARKERS:
        kin = [layout for name, layout in named if name == family]
        own = kin.index(chosen) if chosen in kin else None
        shades = theme.shades(family, count=len(kin), own=own) if kin else ()
        for place, (layout, colour) in enumerate(zip(kin, shades, strict=True)):
            found[layout] = (colour, MARKERS[family] + "-open" * ((place - (own or 0)) % 2))
    return [found[layout] for layout in layouts]


def _requests(result: Result, index: int) -> Array:
    """Where the points of one layout's line stand: at the requests it runs, beyond a full cache at those asked for."""
    running = result.grid(result.serving.running)[index]
    return np.where(result.growing[index], running, result.concurrency)


def _first_late(
    result: Result, layouts: Sequence[int], *, values: Array, theme: Theme
) -> list[marks.Scatter]:
    """A cross on every line where the first token begins to come later than asked; nothing where none does."""
    late = too_late(result) & (result.concurrency <= MOST_AT_ONCE)
    places = [(index, int(late[index].argmax())) for index in layouts if late[index].any()]
    if not places:
        return []
    ttft = result.grid(result.serving.ttft)
    marker = {"symbol": "x-thin", "size": 10, "line": {"width": 2.5, "color": theme.limit}}
    names = [str(result.layout.one(index)) for index, _ in places]
    return [
        marks.Scatter(
            name=f"{LATE} from here",
            x=[float(_requests(result, index)[batch]) for index, batch in places],
            y=[float(values[place]) for place in places],
            mode="markers",
            marker=marker,
            text=[
                f"{name}<br>first token after {written_time(float(ttft[place]))}"
                for name, place in zip(names, places, strict=True)
            ],
            customdata=names,
            hovertemplate="%{text} with %{x:,} at once<extra></extra>",
        )
    ]


def _curve(
    result: Result, index: int, values: Array, *, unit: str, colour: str, symbol: str, stress: str
) -> tuple[marks.Scatter, marks.Scatter]:
    """One layout's line: solid while the KV cache holds every request, dotted from there on.

    Args:
        stress: its name in the legend, where it is one to stress, with a place for the layout's own; else empty.
    """
    layout = result.layout.one(index)
    name = (stress or "{}").format(layout)
    shown, requests = result.concurrency <= MOST_AT_ONCE, _requests(result, index)
    held = shown & result.growing[index]
    full = shown & (np.arange(held.size) >= max(held.sum() - 1, 0))

    def line(where: Any, *, dash: str, mode: str, named: bool) -> marks.Scatter:
        return marks.Scatter(
            name=name,
            x=requests[where],
            y=values[where],
            mode=mode,
            line={"color": colour, "dash": dash, "width": 4 if stress else 1.5},
            marker={"symbol": symbol, "size": 8 if stress else 6, "color": colour},
            legendgroup=name,
            showlegend=named,
            meta=str(layout),
            hovertemplate=f"{layout}<br>%{{x:,}} at once: %{{y:,.1f}} {unit}<extra></extra>",
        )

    return (
        line(held, dash="solid", mode="lines+markers", named=bool(held.any())),
        line(full, dash="dot", mode="lines", named=not held.any()),
    )
