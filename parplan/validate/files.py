"""A file of measurements is known by its columns and predicted row by row."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from parplan.validate.cells import Cells, RowError, reason_of
from parplan.validate.memory_rows import MEMORY_COLUMNS, memory_row
from parplan.validate.report import VERDICT, Report, Row
from parplan.validate.speed_rows import SPEED_COLUMNS, speed_row
from parplan.validate.throughput_rows import THROUGHPUT_COLUMNS, benchmark_row

KINDS: tuple[tuple[tuple[str, ...], Callable[[Cells], Row], frozenset[str]], ...] = (
    (
        MEMORY_COLUMNS,
        memory_row,
        frozenset({"engine", "version", "model", "weight_quant", "kv_dtype", "gpu", "gpu_mem_gb", "n_gpus", "tp", "pp",
                   "dp", "ep", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "enforce_eager",
                   "notes"}),
    ),
    (
        SPEED_COLUMNS,
        speed_row,
        frozenset({"engine", "engine_version", "model", "weights", "kv", "gpu", "tensor", "data", "expert",
                   "prompt_tokens", "output_tokens", "concurrency"}),
    ),
    (
        THROUGHPUT_COLUMNS,
        benchmark_row,
        frozenset({"model", "gpu", "n_gpus", "tp", "pp", "ep", "dp", "framework", "fw_version", "weight_dtype",
                   "kv_dtype", "isl", "osl", "concurrency_or_batch", "mode", "metric", "notes"}),
    ),
)  # fmt: skip
"""Measured columns, how a row is predicted, and the columns that needs."""
LONGEST_CELL = 1000
"""Characters of a cell that are read."""


def predicted_row(cells: Cells, *, predict: Callable[[Cells], Row]) -> Row:
    """A row with its prediction, or with the reason there is none."""
    if any(len(cell) > LONGEST_CELL for cell in cells.values()):
        return Row(cells, skipped=f"a cell has more than {LONGEST_CELL:,} characters")
    try:
        return predict(cells)
    except (RowError, ValidationError) as reason:
        return Row(cells, skipped=reason_of(reason))


def validation(path: Path) -> Report:
    """A file of measurements, predicted row by row.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no CSV file in one of the three sets of columns.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            columns = tuple(reader.fieldnames or ())
            rows = [{name: row.get(name) or "" for name in columns} for row in reader]
        except csv.Error as error:
            raise ValueError(f"no CSV file: {error}") from error
    return report_of(rows, columns=columns)


def report_of(rows: Iterable[Cells], *, columns: Sequence[str]) -> Report:
    """Rows in one of the three sets of columns, predicted.

    Raises:
        ValueError: the columns are of none of them.
    """
    for measured, predict, needed in KINDS:
        if needed <= set(columns) and set(measured) & set(columns):
            found = tuple(predicted_row(cells, predict=predict) for cells in rows)
            outcome = (VERDICT,) if VERDICT in columns and predict is memory_row else ()
            return Report(
                columns=tuple(columns),
                measured=tuple(name for name in measured if name in columns) + outcome,
                rows=found,
            )
    least = min((needed - set(columns) for _, _, needed in KINDS), key=len)
    raise ValueError(
        f"neither memory nor speed nor throughput measurements; the nearest set lacks {', '.join(sorted(least))}"
    )
