"""The groups of measurements whose predictions are furthest off, and why, as far as that is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parplan.calibration import Cause, Errors
from parplan.validate.report import Report, Row, explains

FEWEST = 3
"""Rows a group must have to be named among the worst."""
WORSE = 1.5
"""A group is named from this multiple of the median error over all rows."""


@dataclass(frozen=True)
class Group:
    """Measurements that share what they were run with."""

    name: str
    errors: Errors
    why: tuple[str, ...]
    """Known causes; empty where there is none."""


def groups(report: Report) -> Iterator[tuple[str, list[Row]]]:
    """Rows by deployment, then by every kind of group they belong to, with the group's name."""
    deployments: dict[str, list[Row]] = {}
    for row in report.rows:
        if row.group:
            name = "{model} in {precision} on {gpu}, {engine}".format(**row.group)
            deployments.setdefault(name, []).append(row)
    yield from deployments.items()
    for kind in report.kinds:
        title = "GPU" if kind == "gpu" else kind
        for value in sorted({row.group[kind] for row in report.rows if kind in row.group}):
            yield f"{title} {value}", report.grouped(kind, value)


def worst_groups(
    report: Report, column: str, *, causes: Sequence[Cause], most: int | None = None
) -> list[Group]:
    """The groups with the largest median error, the worst first.

    Small groups are left out, and so are those not much worse than all rows together. Of several groups of the same
    rows the first is named. A cause is named where it is about a quarter of a group's rows or more.

    Args:
        column: the measured column.
        most: groups named. None: all.
    """
    overall = report.errors(column)
    if overall is None:
        return []
    found: dict[frozenset[int], Group] = {}
    for name, rows in groups(report):
        errors = report.errors(column, rows=rows)
        if errors is None or errors.rows < FEWEST or errors.median < WORSE * overall.median:
            continue
        why = tuple(
            cause.why
            for cause in causes
            if 4 * sum(explains(cause, row, column=column) for row in rows) >= len(rows)
        )
        found.setdefault(frozenset(map(id, rows)), Group(name, errors, tuple(dict.fromkeys(why))))
    return sorted(found.values(), key=lambda group: -group.errors.median)[:most]


def written_group(group: Group) -> str:
    """A group on one line."""
    errors, why = group.errors, " ".join(group.why) or "Not known why."
    return f"{group.name}: {errors.median:.0%} ({errors.rows} rows, bias {errors.bias:+.0%}). {why}"
