"""A file of measurements with its predictions: errors over all rows and by group, as values and in print."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parplan.calibration import Cause, Errors
from parplan.export import inert
from parplan.validate.cells import Cells, number

GROUPS = ("engine", "gpu", "model", "precision", "layout")
"""Kinds of group every row belongs to."""
VERDICT = "outcome"
OK = re.compile(r"^(ok|load ok|memory ok|ready)\b", re.IGNORECASE)
FAILED = re.compile(r"^(oom|no-fit|no-start|kv-too-small)\b", re.IGNORECASE)


def measured_fit(outcome: str) -> bool | None:
    """Whether the engine came up; None where the row does not say.

    >>> measured_fit("ok"), measured_fit("kv-too-small: 1.0 GiB"), measured_fit("server slow")
    (True, False, None)
    """
    if OK.match(outcome):
        return True
    return False if FAILED.match(outcome) else None


@dataclass(frozen=True)
class Row:
    """One measured row and what was predicted for it."""

    cells: Cells
    predicted: Mapping[str, float] = field(default_factory=dict)
    """By measured column; only what could be predicted."""
    verdict: str = ""
    """Memory rows: "ok", or what goes wrong."""
    group: Mapping[str, str] = field(default_factory=dict)
    """The names the row was understood as, by kind of group."""
    skipped: str = ""
    """Why nothing, or only a part, was predicted."""


def relative_error(row: Row, column: str) -> float | None:
    """predicted / measured - 1; None where either is missing or the measured one is not above zero."""
    measured, predicted = number(row.cells.get(column)), row.predicted.get(column)
    return predicted / measured - 1 if measured and measured > 0 and predicted is not None else None


@dataclass(frozen=True)
class Report:
    """A file of measurements, predicted."""

    columns: tuple[str, ...]
    """Columns of the file."""
    measured: tuple[str, ...]
    """Those that are predicted."""
    rows: tuple[Row, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of group its rows belong to: those all rows have, then those of this file alone."""
        return tuple(dict.fromkeys([*GROUPS, *(kind for row in self.rows for kind in row.group)]))

    @property
    def skipped(self) -> dict[str, int]:
        """Rows without a prediction, by reason, the commonest first."""
        reasons = Counter(row.skipped for row in self.rows if not row.predicted)
        return dict(sorted(reasons.items(), key=lambda one: (-one[1], one[0])))

    def errors(self, column: str, *, rows: Sequence[Row] | None = None) -> Errors | None:
        """Errors of one column over the rows that state it, all or some; None when there is none."""
        within = self.rows if rows is None else rows
        found = [error for row in within if (error := relative_error(row, column)) is not None]
        return Errors.of(np.array(found)) if found else None

    def by_group(self, kind: str, column: str) -> dict[str, Errors]:
        """Errors of one column for every value of one kind of group."""
        values = sorted({row.group[kind] for row in self.rows if kind in row.group})
        found = {value: self.errors(column, rows=self.grouped(kind, value)) for value in values}
        return {value: errors for value, errors in found.items() if errors}

    def grouped(self, kind: str, value: str) -> list[Row]:
        """Rows of one group."""
        return [row for row in self.rows if row.group.get(kind) == value]

    @property
    def verdicts(self) -> list[Row]:
        """Rows whose measured outcome and predicted verdict can be compared."""
        return [
            row for row in self.rows if row.verdict and measured_fit(row.cells.get(VERDICT, "")) is not None
        ]

    @property
    def wrong_verdicts(self) -> list[Row]:
        """Rows whose predicted verdict is not what happened."""
        return [row for row in self.verdicts if (row.verdict == "ok") != measured_fit(row.cells[VERDICT])]


def explains(cause: Cause, row: Row, *, column: str) -> bool:
    """Whether a cause is about a row's measured column."""
    shared = all(row.group.get(kind) == value for kind, value in cause.of.items())
    return shared and column in cause.columns and cause.marked in row.cells.get("flags", "")


def why_wrong(row: Row, causes: Sequence[Cause]) -> str:
    """Why a row's verdict is wrong, as far as that is known."""
    known = [cause.why for cause in causes if explains(cause, row, column=VERDICT)]
    return " ".join(known) or "Not known why."


def write_rows(report: Report, path: Path) -> None:
    """Every row of the file with `predicted_<column>` for each measured one, and `skipped` with the reason; what a
    spreadsheet would take for a formula is made a text."""
    added = [f"predicted_{column}" for column in report.measured]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*report.columns, *added, "skipped"])
        writer.writerow({name: inert(name) for name in writer.fieldnames})
        for row in report.rows:
            predicted = {f"predicted_{column}": f"{value:.6g}" for column, value in row.predicted.items()}
            if VERDICT in report.measured:
                predicted[f"predicted_{VERDICT}"] = row.verdict
            found = (
                dict(row.cells) | {name: predicted.get(name, "") for name in added} | {"skipped": row.skipped}
            )
            writer.writerow({name: inert(cell) for name, cell in found.items()})


def errors_json(errors: Errors) -> dict[str, Any]:
    """Errors as the report states them."""
    return {"count": errors.rows, "median": errors.median, "p90": errors.p90, "bias": errors.bias}


def report_json(report: Report, *, causes: Sequence[Cause] = ()) -> dict[str, Any]:
    """A report as plain values.

    Args:
        causes: known ones, of which those of wrong verdicts are named.
    """
    columns = [column for column in report.measured if column != VERDICT]
    overall = {column: errors_json(errors) for column in columns if (errors := report.errors(column))}
    groups = {
        kind: {
            column: {name: errors_json(e) for name, e in report.by_group(kind, column).items()}
            for column in columns
        }
        for kind in report.kinds
    }
    found: dict[str, Any] = {
        "rows": len(report.rows),
        "predicted": sum(bool(row.predicted) for row in report.rows),
        "skipped": report.skipped,
        "errors": overall,
        "groups": groups,
    }
    if report.verdicts:
        found["verdicts"] = {
            "count": len(report.verdicts),
            "right": 1 - len(report.wrong_verdicts) / len(report.verdicts),
            "wrong": [
                {
                    "id": row.cells.get("id", ""),
                    "measured": row.cells[VERDICT],
                    "predicted": row.verdict,
                    "why": why_wrong(row, causes),
                }
                for row in report.wrong_verdicts
            ],
        }
    return found


def written_report(report: Report, *, causes: Sequence[Cause] = ()) -> str:
    """A report as a person reads it on a terminal.

    Args:
        causes: known ones, of which those of wrong verdicts are named.
    """
    predicted = sum(bool(row.predicted) for row in report.rows)
    lines = [f"{predicted} of {len(report.rows)} rows predicted, {len(report.rows) - predicted} skipped", ""]
    lines += [f"  {count:>5} {reason}" for reason, count in report.skipped.items()]
    columns = [column for column in report.measured if column != VERDICT]
    lines += ["", f"{'':<44}{'rows':>6}{'median':>9}{'p90':>9}{'bias':>9}", "overall"]
    lines += [written_errors(column, errors) for column in columns if (errors := report.errors(column))]
    for kind in report.kinds:
        for column in columns:
            found = report.by_group(kind, column)
            if len(found) > 1:
                lines += [
                    f"{column} by {kind}",
                    *(written_errors(name, errors) for name, errors in found.items()),
                ]
    if report.verdicts:
        right = len(report.verdicts) - len(report.wrong_verdicts)
        lines += ["", f"fits or not: {right} of {len(report.verdicts)} right; wrong:"]
        lines += [
            f"  {row.cells.get('id', '')}: {row.cells['model'] or 'model not stated'}: predicted {row.verdict}, was "
            f"{row.cells[VERDICT][:70]}\n    {why_wrong(row, causes)}"
            for row in report.wrong_verdicts
        ]
    return "\n".join(lines)


def written_errors(name: str, errors: Errors) -> str:
    """One line of the table."""
    return f"  {name[:41]:<42}{errors.rows:>6}{errors.median:>9.1%}{errors.p90:>9.1%}{errors.bias:>+9.1%}"
