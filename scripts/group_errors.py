"""Writes catalogs/engines/errors.csv: how far predictions are off for what was measured.

    python -m scripts.group_errors

Every row of catalogs/measurements/speed.csv is predicted as on the Accuracy page. A group's error is the median factor
by which its predictions are off, less one: a time half as long as measured is off by 1, as is one twice as long. Run it
after scripts.calibrate, and whenever a change of a formula moves times; the suite checks that it is current.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from parplan import catalog
from parplan.placement import scaled_by_blocks
from parplan.validate import SPEED_COLUMNS, Report, Row, comparable, relative_error, validation

MEASURED = catalog.ROOT / "measurements" / "speed.csv"
WRITTEN = catalog.ROOT / "engines" / "errors.csv"
SHARED = ("engine", "gpu", "model", "weights", "cut")
"""What the measurements of a group may share."""
CUTS = ("tensor", "data", "expert")
"""Columns of the layout."""
DIGITS = 4


def factor_off(error: float) -> float:
    """By how much a prediction is a factor too long or too short, less one.

    >>> factor_off(0.25), factor_off(-0.5)
    (0.25, 1.0)
    """
    return max(1 + error, 1 / (1 + error)) - 1


def alike_from(family: str, *, gpu: str, weights: str) -> str:
    """The engine whose constants predict a family's measurements: its own where newer versions are without some of
    its costs, which weights scaled by blocks have."""
    engines, newest = catalog.engines(), family.partition("-")[0]
    mended = engines[family].speed != engines[newest].speed
    blocks = scaled_by_blocks(catalog.formats()[weights], gpu=catalog.gpus()[gpu])
    return family if mended and blocks else newest


def groups(row: Row) -> Iterator[Mapping[str, str]]:
    """What a measurement shares with others, as far as a plan is compared with it."""
    family, gpu, model, weights = (row.group[name] for name in ("engine", "gpu", "model", "precision"))
    engine = family.partition("-")[0]
    constants = alike_from(family, gpu=gpu, weights=weights)
    yield {"engine": constants, "gpu": gpu, "model": model, "weights": weights}
    yield {"engine": constants, "model": model, "weights": weights}
    yield {"engine": engine, "gpu": gpu}
    yield from ({"engine": engine, "cut": cut} for cut in CUTS if row.cells[cut] != "1")


def group_errors(report: Report) -> list[dict[str, str]]:
    """Every group with its error, in order of name."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for column in SPEED_COLUMNS:
        for row in comparable(report, column).rows:
            error = relative_error(row, column)
            for group in groups(row) if error is not None else ():
                key = (*(group.get(name, "") for name in SHARED), column.removesuffix("_ms"))
                found[key].append(factor_off(error or 0.0))
    return [
        dict(zip((*SHARED, "time"), key, strict=True))
        | {"rows": str(len(off)), "off": f"{median(off):.{DIGITS}f}"}
        for key, off in sorted(found.items())
    ]


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """The groups as a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write(WRITTEN, group_errors(validation(MEASURED)))
