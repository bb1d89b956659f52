"""The picture of a layout: which ranks sit on which GPU and node, and which link carries what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout
from parplan.topology import FABRICS, NETWORK, Seat, Traffic, seats, traffic
from parplan.ui import marks
from parplan.ui.charts import Chart
from parplan.ui.theme import Theme
from parplan.units import GB, counted

ROW = 8
"""Squares side by side."""
MOST_SQUARES = 72
"""One rack. Larger replicas are drawn with one square per node."""
MOST_BOXES = 64
"""Nodes drawn of those."""
GAP = 0.6
"""Room over the squares of a node, where its name is written, in squares."""
ROOM = 0.42
"""Room over the squares of a node inside a wider frame."""
INNER = 0.47
"""From the middle of a square to the frame of its node there."""
EDGE = 0.42
"""From the middle of a square to its side."""
PIXELS, LINE = 24, 9
"""Height of a row of squares, and what each line of words in them adds."""


@dataclass(frozen=True)
class Square:
    """A GPU, or a whole node."""

    x: float
    y: float
    words: tuple[str, ...]
    """Ranks, one kind a line."""
    about: str
    """What it says when pointed at."""
    place: int
    """Stage, or attention replica: squares of one place have one colour."""


def picture(layout: Layout, *, gpu: Gpu, engine: str, theme: Theme) -> Chart:
    """One square per GPU in frames that a fast link joins, and in finer ones where that joins several nodes; one per
    node where there are more than `MOST_SQUARES` GPUs.

    Squares of one pipeline stage, without stages of one attention replica, share a colour; a line under squares joins
    a tensor group.

    Args:
        engine: family of the engine that numbers the ranks.
    """
    taken = seats(layout, gpu=gpu, engine=engine)
    boxes, nodes = (_together(taken, by) for by in ("box", "node"))
    many = int(layout.gpus) > MOST_SQUARES
    inner = len(nodes) > len(boxes) and not many
    squares = _nodes(nodes, layout) if many else list(_gpus(boxes, layout))
    frames = [] if many else [_frame(box, squares, room=0.5, theme=theme) for box in boxes]
    frames += [_frame(node, squares, room=INNER, theme=theme) for node in nodes] if inner else []
    joined = [] if many else _tensor_lines(taken, squares, layout, theme=theme)
    names = [] if many else [_names(boxes, squares, gpu, layout, engine, theme)]
    names += [_node_names(nodes, squares, theme)] if inner else []
    across = max(square.x for square in squares) + 0.5
    down = max(square.y for square in squares) + 0.5
    figure = marks.figure(
        data=[_ranks(squares, theme), *names],
        layout=theme.layout(
            height=int(
                (PIXELS + LINE * max(len(square.words[:3]) for square in squares)) * (down + 0.6) + 12
            ),
            x="",
            shapes=[*frames, *(_shape(square, theme) for square in squares), *joined],
            showlegend=False,
            margin={"l": 4, "r": 4, "t": 4, "b": 4},
            xaxis={"visible": False, "range": [-0.55, max(across, ROW / 2)], "automargin": False},
            yaxis={"visible": False, "range": [down + 0.1, -0.5], "automargin": False},
        ),
    )
    return Chart(figure, words(layout, gpu=gpu, engine=engine))


def _together(taken: Sequence[Seat], by: str) -> list[tuple[Seat, ...]]:
    """The GPUs of every node, or of every box."""
    return [tuple(group) for _, group in groupby(taken, key=lambda seat: getattr(seat, by))]


def words(layout: Layout, *, gpu: Gpu, engine: str) -> str:
    """The picture as a sentence."""
    last = seats(layout, gpu=gpu, engine=engine)[-1]
    carried = "; ".join(
        f"{one.cut}{one.size} over {' and '.join(link for link, _ in one.links)}"
        for one in traffic(layout, gpu=gpu, engine=engine)
    )
    where = f"{layout}: {counted(int(layout.gpus), 'GPU')} in {counted(last.box + 1, box_noun(gpu))}"
    nodes = f", {counted(last.node + 1, 'node')}" if last.node > last.box else ""
    return f"{where}{nodes}. {carried or 'Nothing travels between GPUs'}."


def box_noun(gpu: Gpu) -> str:
    """What the GPUs of one frame have in common."""
    return "node" if gpu.fabric == "pcie" or gpu.domain == gpu.node else f"{FABRICS[gpu.fabric]} domain"


def carried(layout: Layout, *, gpu: Gpu, engine: str) -> list[tuple[str, str, str]]:
    """Cut, what it sends and over what, for the table under the picture."""
    return [
        (f"{one.cut}{one.size}", one.carries, _over(one)) for one in traffic(layout, gpu=gpu, engine=engine)
    ]


def _over(one: Traffic) -> str:
    """The links, each with its rate."""
    return "; ".join(
        f"{link}, {rate / GB:,.0f} GB/s per GPU" if rate else f"{link}, rate not known"
        for link, rate in one.links
    )


def _place(seat: Seat, layout: Layout) -> int:
    return seat.pipeline if int(layout.pipeline) > 1 else seat.data


def _gpus(boxes: Sequence[Sequence[Seat]], layout: Layout) -> Iterator[Square]:
    """One square per GPU, frame under frame; small nodes of one frame stand side by side under their names."""
    top = 0.0
    for box in boxes:
        nodes = _together(box, "node")
        abreast = max(ROW // len(nodes[0]), 1)
        for start in range(0, len(nodes), abreast):
            shown = nodes[start : start + abreast]
            top += GAP if len(nodes) == 1 or not start else ROOM
            top += ROOM if len(nodes) > 1 and not start else 0
            for place, node in enumerate(shown):
                for within, seat in enumerate(node):
                    ranks = seat.words(layout)
                    yield Square(
                        x=place * len(node) + within % ROW,
                        y=top + within // ROW,
                        words=ranks or ("GPU",),
                        about=f"GPU {seat.number}, node {seat.node + 1}: {', '.join(ranks) or 'the whole model'}",
                        place=_place(seat, layout),
                    )
            top += -(-len(shown[0]) // ROW)


def _nodes(nodes: Sequence[Sequence[Seat]], layout: Layout) -> list[Square]:
    """One square per node, for replicas of many."""
    return [
        Square(
            x=number % ROW,
            y=number // ROW,
            words=_ranges(node, layout)[:2],
            about=f"Node {number + 1}, {counted(len(node), 'GPU')}: {', '.join(_ranges(node, layout))}",
            place=_place(node[0], layout),
        )
        for number, node in enumerate(nodes[:MOST_BOXES])
    ]


def _ranges(box: Sequence[Seat], layout: Layout) -> tuple[str, ...]:
    """Ranks of every kind in one node; outermost first, whose ranks differ between nodes."""
    found = []
    for name in ("pipeline", "context", "data", "expert", "tensor"):
        if int(getattr(layout, name)) > 1:
            ranks = [getattr(seat, name) for seat in box]
            least, most = min(ranks), max(ranks)
            found.append(f"{CUT_NAMES[name]}{least}" + (f"-{most}" if most > least else ""))
    return tuple(found)


def _line(colour: str, *, width: float) -> dict[str, Any]:
    return {"color": colour, "width": width}


def _shape(square: Square, theme: Theme) -> dict[str, Any]:
    colour = theme.lines[square.place % len(theme.lines)]
    return {
        "type": "rect",
        "x0": square.x - EDGE,
        "x1": square.x + EDGE,
        "y0": square.y - EDGE,
        "y1": square.y + EDGE,
        "line": _line(colour, width=1.5),
        "fillcolor": colour,
        "opacity": 0.35,
        "layer": "below",
    }


def _frame(seated: Sequence[Seat], squares: Sequence[Square], *, room: float, theme: Theme) -> dict[str, Any]:
    """The edge of what a fast link joins, or of a node in it.

    Args:
        room: from the middle of a square to the edge, in squares.
    """
    inside = [squares[seat.number] for seat in seated]
    return {
        "type": "rect",
        "x0": min(square.x for square in inside) - room,
        "x1": max(square.x for square in inside) + room,
        "y0": inside[0].y - (room if room < 0.5 or len({seat.node for seat in seated}) == 1 else 0.5 + ROOM),
        "y1": inside[-1].y + room,
        "line": _line(theme.rest, width=1),
        "layer": "below",
    }


def _tensor_lines(
    taken: Sequence[Seat], squares: Sequence[Square], layout: Layout, *, theme: Theme
) -> list[dict[str, Any]]:
    """A line under the squares of every tensor group, row by row."""
    if int(layout.tensor) == 1:
        return []
    rows = groupby(taken, key=lambda seat: (seat.number // int(layout.tensor), squares[seat.number].y))
    lines = []
    for (_, y), group in rows:
        columns = [squares[seat.number].x for seat in group]
        ends = {"x0": min(columns) - EDGE, "x1": max(columns) + EDGE, "y0": y + 0.46, "y1": y + 0.46}
        lines.append({"type": "line", **ends, "line": _line(theme.text, width=2)})
    return lines


def _ranks(squares: Sequence[Square], theme: Theme) -> marks.Scatter:
    return marks.Scatter(
        x=[square.x for square in squares],
        y=[square.y for square in squares],
        text=["<br>".join(square.words[:3]) for square in squares],
        customdata=[square.about for square in squares],
        mode="text",
        textfont={"size": 10, "color": theme.text},
        hovertemplate="%{customdata}<extra></extra>",
    )


def _names(
    boxes: Sequence[Sequence[Seat]],
    squares: Sequence[Square],
    gpu: Gpu,
    layout: Layout,
    engine: str,
    theme: Theme,
) -> marks.Scatter:
    """Name of every frame, and what reaches it over the network."""
    far = ", ".join(f"{one.cut}{one.size}" for one in traffic(layout, gpu=gpu, engine=engine) if one.far)
    noun = box_noun(gpu)
    noun = noun[:1].upper() + noun[1:]
    over = f"; over {NETWORK}: {far}" if far else ""
    tops = [squares[box[0].number].y - 0.5 - (ROOM if box[0].node < box[-1].node else 0) for box in boxes]
    return _titles(
        [-0.5] * len(boxes), tops, [f"{noun} {place}{over}" for place in range(1, len(boxes) + 1)], theme
    )


def _node_names(nodes: Sequence[Sequence[Seat]], squares: Sequence[Square], theme: Theme) -> marks.Scatter:
    """Name of every node in a frame of several."""
    first = [squares[node[0].number] for node in nodes]
    named = [f"Node {place}" for place in range(1, len(nodes) + 1)]
    return _titles([one.x - INNER for one in first], [one.y - INNER for one in first], named, theme)


def _titles(x: Sequence[float], y: Sequence[float], text: Sequence[str], theme: Theme) -> marks.Scatter:
    """Words above the upper left corner of a frame."""
    return marks.Scatter(
        x=list(x),
        y=list(y),
        text=list(text),
        mode="text",
        textposition="top right",
        textfont={"size": 11, "color": theme.text},
        hoverinfo="skip",
        cliponaxis=False,
    )
