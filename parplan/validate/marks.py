"""Marks that rows of measurements carry, and which of them say that a time cannot be compared."""

import re
from dataclasses import replace

from parplan.validate.report import Report, Row

MARKS = {
    "QUEUED": "the first token took more than 15 % of a request: the KV cache or the engine's slots held requests back",
    "MTP-POSSIBLE": "the source does not say whether tokens were drafted (multi-token prediction)",
    "KV-DTYPE-UNKNOWN": "the source does not say the format of the KV cache; bf16 is assumed",
    "DERIVED": "computed from other figures of the same source",
    "POLLED": "the engine was told to look for new requests every 10 or 30 steps only",
    "DEFAULTS": "the engine as it comes, with no kernels chosen for this model on this GPU",
    "MEAN": "the concurrency is the mean of the run, whose clients start all at once and send few requests each",
    "UNREVIEWED": "of a proposal that its project closed without taking it over",
}
"""Marks of rows, and what they mean."""
UNUSED = {"tpot_ms": ("QUEUED", "MTP-POSSIBLE"), "ttft_ms": ("QUEUED", "KV-DTYPE-UNKNOWN", "MEAN")}
"""Marks of rows whose time is not compared, by column: the batch is below the concurrency or tokens were guessed; the
first token holds queueing of unknown length, or for the most part that of the start."""


def marks(row: Row) -> set[str]:
    """The marks a row carries, numbers and notes in brackets aside."""
    return {re.sub(r"-\d+$|\(.*", "", mark) for mark in row.cells.get("flags", "").split(";") if mark}


def comparable(report: Report, column: str) -> Report:
    """A report without the rows whose marks say that a column cannot be compared."""
    unused = set(UNUSED.get(column, ()))
    return replace(report, rows=tuple(row for row in report.rows if not marks(row) & unused))
