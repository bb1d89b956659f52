"""How well fitted memory constants hold for models they were not fitted on: `python -m scripts.fit_memory [FILE.csv]`.

Each constant of catalogs/engines/memory.yaml that was fitted is fitted again on the rows of a file (by default
catalogs/measurements/memory.csv): on all of them, and without those of each model in turn, which are then predicted.
Every row gives one value of the constant; a model's is their median, the fit the median over models.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from pydantic import ValidationError

from parplan.calibration import Fabric, Shared
from parplan.memory import memory
from parplan.units import GIB, MIB
from parplan.validate import (
    Cells,
    Deployment,
    RowError,
    deployment,
    memory_gpu,
    memory_layout,
    number,
    settings_of,
    validation,
)
from parplan.workload import Workload

MEASURED = Path(__file__).parents[1] / "catalogs" / "measurements" / "memory.csv"
FEWEST = 3
"""Models a law must have to be judged by leaving one out."""
FABRICS: tuple[Fabric, ...] = get_args(Fabric)


@dataclass(frozen=True)
class Law:
    """One fitted constant, and the rows that speak of it."""

    name: str
    engine: str
    column: str
    """What is measured."""
    part: str
    """What it is called in `memory`."""
    field: str
    values: tuple[object, object]
    """Two values of the field, `step` units of the constant apart, between which the part is linear."""
    start: float
    """The constant at the first value, in its unit."""
    step: float
    speaks: Callable[[Deployment], bool]


def _dense(run: Deployment) -> bool:
    return not run.transformer.is_moe


def _in_company(ranks: int) -> Callable[[Deployment], bool]:
    return lambda run: run.layout.width == ranks and run.layout.pipeline == 1


def _sampler(name: str, engine: str) -> Law:
    """Many copies: sampling is the peak, and the law is linear."""
    return Law(name, engine, "activation_peak_gib", "activations", "sampler_copies", (20.0, 40.0), 20, 20,
               lambda run: run.layout.pipeline == 1)  # fmt: skip


def _graphs(name: str, field: str, speaks: Callable[[Deployment], bool]) -> Law:
    return Law(name, "vllm-0.17", "cudagraph_gib", "graphs", field, (0.0, MIB), 0, 1, speaks)


def _non_torch(name: str, engine: str, ranks: int) -> Law:
    none, one = (Shared(alone=size, pair=dict.fromkeys(FABRICS, size)) for size in (0.0, GIB))
    return Law(name, engine, "non_torch_gib", "non_torch", "non_torch", (none, one), 0, 1, _in_company(ranks))


LAWS = (
    _sampler("sampler copies, 0.17 to 0.20", "vllm-0.17"),
    _sampler("sampler copies, before 0.17", "vllm-0.16"),
    _graphs("graphs, MiB per layer and size", "graph_size", _dense),
    _graphs("graphs with experts, MiB", "graph_expert_size", lambda run: run.transformer.is_moe),
    _non_torch("non-torch alone, GiB", "vllm-0.17", 1),
    _non_torch("non-torch of two, GiB", "vllm-0.17", 2),
    _non_torch("non-torch of four, GiB", "vllm-0.17", 4),
    _non_torch("non-torch alone, GiB, before 0.17", "vllm-0.16", 1),
)


@dataclass(frozen=True)
class Point:
    """One row: what is measured is `given` + constant x `slope`, bytes."""

    model: str
    measured: float
    given: float
    slope: float

    @property
    def constant(self) -> float:
        """The constant this row alone would give."""
        return (self.measured - self.given) / self.slope


@dataclass(frozen=True)
class Outcome:
    """A law fitted on all models, and without each."""

    rows: int
    fitted: float
    without: dict[str, float]
    """The constant without each model."""
    errors: tuple[float, ...]
    """Relative error of every row, predicted without its model."""

    @property
    def median(self) -> float:
        """Of the absolute errors."""
        return float(np.median(np.abs(self.errors)))

    @property
    def p90(self) -> float:
        """90th percentile of the absolute errors."""
        return float(np.percentile(np.abs(self.errors), 90))


def point(law: Law, cells: Cells) -> Point:
    """One row as the law sees it.

    Raises:
        RowError: it does not speak of the law's constant.
        ValidationError: a setting out of range.
    """
    run = deployment(
        cells, weights="weight_quant", kv="kv_dtype", version="version", layout=memory_layout(cells)
    )
    value = number(cells[law.column])
    if run.engine.name != law.engine or not value or not law.speaks(run):
        raise RowError(f"says nothing about {law.name}")
    settings, gpu = settings_of(cells, run), memory_gpu(cells)
    length = settings.max_length or run.transformer.context_length

    def amount(of: object) -> float:
        profile = run.engine.memory.model_copy(update={law.field: of})
        held = memory(
            run.transformer,
            run.precision,
            layout=run.layout,
            gpu=gpu,
            engine=run.engine.model_copy(update={"memory": profile}),
            workload=Workload(prompt=max(length - 1, 1), output=1),
            concurrency=1,
            settings=settings,
        )
        return float(getattr(held, law.part))

    first, second = map(amount, law.values)
    slope = (second - first) / law.step
    return Point(run.transformer.name, value * GIB, first - slope * law.start, slope)


def points(law: Law, rows: Iterable[Cells]) -> list[Point]:
    """All rows that speak of a law's constant."""
    found = []
    for cells in rows:
        try:
            found.append(point(law, cells))
        except (RowError, ValidationError):
            continue
    return found


def fitted(found: Iterable[Point]) -> float:
    """The median over models of each one's median constant."""
    by_model: dict[str, list[float]] = {}
    for one in found:
        by_model.setdefault(one.model, []).append(one.constant)
    return float(np.median([np.median(constants) for constants in by_model.values()]))


def outcome(law: Law, rows: Iterable[Cells]) -> Outcome:
    """A law fitted on all models and without each."""
    found = points(law, rows)
    without = {
        model: fitted(one for one in found if one.model != model)
        for model in sorted({one.model for one in found})
    }
    errors = ((one.given + one.slope * without[one.model]) / one.measured - 1 for one in found)
    return Outcome(rows=len(found), fitted=fitted(found), without=without, errors=tuple(errors))


def written_outcomes(rows: Iterable[Cells]) -> str:
    """The table, one law a line."""
    cells = list(rows)
    lines = [
        f"{'constant':<36}{'rows':>5}{'models':>8}{'fitted':>8}{'without one model':>20}{'median':>9}{'p90':>8}"
    ]
    for law in LAWS:
        if len({one.model for one in points(law, cells)}) < FEWEST:
            lines.append(f"{law.name:<36} fewer than {FEWEST} models")
            continue
        found = outcome(law, cells)
        span = f"{min(found.without.values()):.2f} to {max(found.without.values()):.2f}"
        lines.append(
            f"{law.name:<36}{found.rows:>5}{len(found.without):>8}{found.fitted:>8.2f}{span:>20}"
            f"{found.median:>9.1%}{found.p90:>8.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MEASURED
    sys.stdout.write(written_outcomes(row.cells for row in validation(path).rows) + "\n")


if __name__ == "__main__":
    main()
