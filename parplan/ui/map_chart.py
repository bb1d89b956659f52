"""The picture of what would change the answer: the recommended layout over requests and prompt length."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parplan.ui import marks
from parplan.ui.charts import AT_TOP, Chart, left_margin, looks
from parplan.ui.theme import Theme
from parplan.units import counted
from parplan.whatif import NOTHING, Cell, WinnerMap

MOST_NAMED = 7
"""Layouts of a map with a colour of their own."""
OTHERS = "Other layouts"
"""Key of a map's layouts that have no colour of their own."""


@dataclass(frozen=True)
class Sign:
    """What marks some cells of a map."""

    words: str
    symbol: str
    looks: str


LATE = Sign("Misses a target", "line-ne-open", "with a stroke")
WAITS = Sign("Holds only some requests", "x-thin-open", "with a cross")


def prompts_against_requests(found: WinnerMap, *, asked: tuple[int, int], theme: Theme) -> Chart:
    """The recommended layout for every concurrency and prompt length, the widest-spread ones each in a shade of its
    family's colour; faded and marked where it misses a target or cannot hold the requests.

    Args:
        found: the map.
        asked: concurrency and prompt to mark.
        theme: the colours.
    """
    requests, cells = found.concurrency.tolist(), found.cells
    x, y = requests.index(asked[0]), found.prompts.index(asked[1])
    own = cells[y][x]
    colours = _colours(cells, always=own, theme=theme)
    keys = [
        _key(f"<b>{name}</b>" if name == own.name else name, colour=colour, theme=theme)
        for name, colour in colours.items()
    ]
    ring = {
        "symbol": "circle",
        "size": 12,
        "color": theme.background,
        "line": {"color": theme.text, "width": 3},
    }
    mark = marks.Scatter(name="Asked", x=[x], y=[y], mode="markers", marker=ring, hoverinfo="skip")
    late = _signs(cells, LATE, where=lambda cell: bool(cell.misses) and not cell.waits, theme=theme)
    waits = _signs(cells, WAITS, where=lambda cell: bool(cell.waits), theme=theme)
    figure = marks.figure(
        data=[
            _field(cells, requests=requests, prompts=found.prompts, colours=colours, theme=theme),
            *keys,
            *late,
            *waits,
            mark,
        ],
        layout=theme.layout(
            height=440,
            x="concurrent requests per replica",
            y="prompt tokens",
            xaxis=_places(requests, named=[4**power for power in range(7)]),
            yaxis=_places(found.prompts, named=found.prompts),
            legend=AT_TOP,
            margin={"t": 110, "l": left_margin(f"{prompt:,}" for prompt in found.prompts)},
        ),
    )
    failing = "".join(
        f" {sign.words}: {len(signs[0]['x'])} of {len(requests) * len(cells)} cells, marked {sign.looks}."
        for sign, signs in ((LATE, late), (WAITS, waits))
        if signs
    )
    alt = (
        f"Recommended layout over requests and prompt length, {len(colours)} in all; at {counted(asked[0], 'request')} "
        f"of {counted(asked[1], 'prompt token')}: {own.name}{f' ({own.words})' if own.words else ''}.{failing}"
    )
    return Chart(figure, alt)


def _colours(cells: Sequence[Sequence[Cell]], *, always: Cell, theme: Theme) -> dict[str, str]:
    """Name -> colour of everything on a map: its widest-spread layouts, the other ones, and where nothing fits."""
    layouts = {cell.name: cell.layout for row in cells for cell in row if cell.layout}
    names = [cell.name for row in cells for cell in row]
    widest = _widest(names, most=MOST_NAMED, always=always.name)
    order = sorted(widest, key=lambda name: (int(layouts[name].gpus), name))
    drawn = looks([layouts[name] for name in order], chosen=always.layout, theme=theme)
    colours = {name: colour for name, (colour, _) in zip(order, drawn, strict=True)}
    rest = {OTHERS: theme.others} if layouts.keys() - widest else {}
    return colours | rest | ({NOTHING: theme.background} if NOTHING in names else {})


def _field(
    cells: Sequence[Sequence[Cell]],
    *,
    requests: Sequence[int],
    prompts: Sequence[int],
    colours: Mapping[str, str],
    theme: Theme,
) -> marks.Heatmap:
    """One cell per prompt length and concurrency, in its layout's colour, faded where that does not do the job; it
    stands for its number of requests and its prompt, with a space between."""
    listed = {name: place for place, name in enumerate(colours)}
    bands = [*colours.values(), *(theme.faded(colour) for colour in colours.values())]
    return marks.Heatmap(
        z=[
            [listed.get(cell.name, listed.get(OTHERS, 0)) + len(listed) * bool(cell.words) for cell in row]
            for row in cells
        ],
        text=[
            [
                "<br>".join(
                    filter(
                        None,
                        (
                            cell.name,
                            cell.words,
                            f"{counted(prompt, 'prompt token')}, {counted(count, 'request')}",
                        ),
                    )
                )
                for count, cell in zip(requests, row, strict=True)
            ]
            for prompt, row in zip(prompts, cells, strict=True)
        ],
        customdata=[[f"{count} {prompt}" for count in requests] for prompt in prompts],
        hovertemplate="%{text}<extra></extra>",
        colorscale=[
            (edge / len(bands), colour) for place, colour in enumerate(bands) for edge in (place, place + 1)
        ],
        zmin=-0.5,
        zmax=len(bands) - 0.5,
        showscale=False,
        xgap=1,
        ygap=1,
    )


def _signs(
    cells: Sequence[Sequence[Cell]], sign: Sign, *, where: Callable[[Cell], bool], theme: Theme
) -> list[marks.Scatter]:
    """A sign on some cells of a map, with its key; nothing where there is no such cell."""
    places = [(x, y) for y, row in enumerate(cells) for x, cell in enumerate(row) if where(cell)]
    if not places:
        return []
    x, y = zip(*places, strict=True)
    marker = {
        "symbol": sign.symbol,
        "size": 8,
        "color": theme.text,
        "line": {"width": 1.5, "color": theme.text},
    }
    return [marks.Scatter(name=sign.words, x=x, y=y, mode="markers", marker=marker, hoverinfo="skip")]


def _widest(names: Sequence[str], *, most: int, always: str) -> set[str]:
    """The layouts that win in the most cells, and one that is always among them."""
    cells = Counter(name for name in names if name != NOTHING)
    widest = [name for name, _ in cells.most_common(most)]
    return {*widest[: most - 1], always} if always in cells and always not in widest else {*widest}


def _key(name: str, *, colour: str, theme: Theme) -> marks.Scatter:
    """An entry of the legend without points of its own."""
    marker = {"symbol": "square", "size": 11, "color": colour, "line": {"color": theme.rest, "width": 1}}
    return marks.Scatter(name=name, x=[None], y=[None], mode="markers", marker=marker, hoverinfo="skip")


def _places(values: Sequence[int], *, named: Sequence[int]) -> dict[str, Any]:
    """An axis with one place per value, some of them labelled."""
    ticks = {place: f"{value:,}" for place, value in enumerate(values) if value in named}
    return {
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "range": [-0.5, len(values) - 0.5],
        "showgrid": False,
    }
