"""Figures and comparisons as plain data, and as a person reads them on a terminal."""

from collections.abc import Iterable
from dataclasses import replace

from parplan.export import Json
from parplan.logs.comparing import Pair
from parplan.logs.quantities import LABELS, QUANTITIES
from parplan.logs.reading import Figure, LogFigures
from parplan.logs.taking import measured_overheads
from parplan.units import gib


def log_json(figures: LogFigures, comparisons: Iterable[Pair] = ()) -> Json:
    """Figures and comparisons as plain data; memory in GiB."""
    return {
        "engine": figures.engine,
        "figures": {name: _figure_json(figure) for name, figure in figures.found.items()},
        "compared": [
            {
                "name": one.name,
                "label": one.label,
                "unit": _unit(one.name),
                "predicted": _plain(one.predicted, one.name),
                "logged": _plain(one.logged, one.name),
                "difference": _plain(one.difference, one.name),
                "relative": one.relative,
                "line": one.figure.line.number,
            }
            for one in comparisons
        ],
        "overheads_gib": measured_overheads(figures),
        "failures": [{"line": line.number, "text": line.text} for line in figures.failures],
        "messages": list(figures.messages),
    }


def _figure_json(figure: Figure) -> Json:
    value = figure.value if isinstance(figure.value, str) else _plain(figure.value, figure.name)
    return {
        "label": figure.label,
        "value": bool(value) if QUANTITIES[figure.name].kind == "flag" else value,
        "unit": _unit(figure.name),
        "line": figure.line.number,
        "text": figure.line.text,
        "rank": figure.rank,
        "derived": figure.derived,
    }


def _unit(name: str) -> str:
    return "GiB" if QUANTITIES[name].kind == "bytes" else ""


def _plain(value: float, name: str) -> float:
    return float(gib(value)) if QUANTITIES[name].kind == "bytes" else value


def written_log(figures: LogFigures, comparisons: Iterable[Pair] = ()) -> str:
    """Figures and comparisons as a person reads them on a terminal."""
    rows = [f"{LABELS[figures.engine]} {figures.word('version')}".strip(), ""]
    rows += [
        f"{figure.label:<44}{figure.written:>24}  line {figure.line.number}"
        + (f" ({figure.derived})" if figure.derived else "")
        for figure in figures.found.values()
    ]
    if pairs := list(comparisons):
        rows += ["", f"{'':<44}{'predicted':>16}{'logged':>16}{'difference':>16}{'':>10}"]
        rows += [_written_comparison(pair) for pair in pairs]
    for title, said in (
        ("It did not come up:", [f"line {line.number}: {line.text}" for line in figures.failures]),
        ("Not read:", list(figures.messages)),
    ):
        if said:
            rows += ["", title, *(f"  {one}" for one in said)]
    return "\n".join(rows)


def _written_comparison(pair: Pair) -> str:
    values = [
        replace(pair.figure, value=value).written for value in (pair.predicted, pair.logged, pair.difference)
    ]
    share = "" if pair.relative is None else f"{pair.relative:+.1%}"
    return f"{pair.label:<44}{values[0]:>16}{values[1]:>16}{values[2]:>16}{share:>10}"
