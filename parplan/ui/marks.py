"""Plotly's marks and figures as the plain dictionaries that the browser draws.

Plotly's own classes check every property whenever a figure is made, which takes as long as the plan it shows. Nothing
a visitor does adds a property, so the tests check the figures: `plotly.graph_objects.Figure(figure)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Figure: TypeAlias = dict[str, Any]
"""`data`, a list of marks, and `layout`: https://plotly.com/javascript/reference/ lists what they may hold."""


class Mark(dict[str, Any]):
    """Points, bars or cells: their properties, and what kind they are.

    >>> Bar(x=[1])
    {'type': 'bar', 'x': [1]}
    """

    def __init__(self, **properties: Any) -> None:
        super().__init__(type=type(self).__name__.lower(), **properties)


class Bar(Mark):
    """Bars."""


class Scatter(Mark):
    """Points, lines, or words at points."""


class Heatmap(Mark):
    """Coloured cells."""


def figure(*, data: Sequence[Mark], layout: Mapping[str, Any]) -> Figure:
    """Marks on axes."""
    return {"data": list(data), "layout": dict(layout)}
