"""An engine's speed constants moved to a user's own measurements: three factors, little when there is little to go by.

The measurements are rows in the columns of `catalogs/measurements/speed.csv`. Factors scale the memory rates, the
arithmetic rates and the fixed times the engine was fitted to; each is drawn to one, so that what the rows say nothing
about stays as it was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from parplan.calibration import SCALE_LIMITS, Engine, Errors
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import memory
from parplan.serving import serve, ttft_of_benchmark
from parplan.transformer import Transformer
from parplan.units import MS, Array
from parplan.validate.cells import Cells, RowError, number, reason_of
from parplan.validate.deployments import Deployment
from parplan.validate.marks import UNUSED
from parplan.validate.speed_rows import BENCHMARK_WAVES, SPEED_COLUMNS, speed_run, steps_between_looks
from parplan.workload import Workload

FACTORS = ("memory", "compute", "overhead")
SPREAD = {"tpot_ms": 0.10, "ttft_ms": 0.30}
"""Relative errors that count as one, as in the fit of the constants themselves."""
DRAWN = 0.3
"""How far, in logarithm, a factor may well be from one before a row has said anything."""
STEPS = 12
"""Most Gauss-Newton steps; three factors settle in five or so."""
NUDGE = 1e-3
"""Step in logarithm that slopes are taken over."""
STILL = 1e-4
"""Largest move, in logarithm, of a step that ends the fit."""


@dataclass(frozen=True)
class Curve:
    """Rows of one deployment at several layouts and loads; arrays are [rows]."""

    transformer: Transformer
    precision: Precision
    gpu: Gpu
    engine: Engine
    layout: Layout
    workload: Workload
    """Its fields are arrays."""
    concurrency: Array
    capacity: Array
    """Requests the cache holds."""
    polled: Array
    """Decode steps from one look for newcomers to the next."""
    measured: Mapping[str, Array]
    """Seconds by column of the file; NaN where there is nothing to compare."""

    def times(self, factors: Mapping[str, float]) -> dict[str, Array]:
        """Predicted times by column of the file, seconds."""
        served = serve(
            self.transformer,
            self.precision,
            layout=self.layout,
            gpu=self.gpu,
            engine=self.engine.scaled(**factors),
            workload=self.workload,
            concurrency=self.concurrency,
            capacity=self.capacity,
        )
        first = ttft_of_benchmark(served, waves=BENCHMARK_WAVES, polled=self.polled)
        shape = self.concurrency.shape
        return {"ttft_ms": np.broadcast_to(first, shape), "tpot_ms": np.broadcast_to(served.tpot, shape)}


@dataclass(frozen=True)
class Refit:
    """What measurements say about an engine's constants."""

    memory: float
    """Factor on the memory rates."""
    compute: float
    """Factor on the arithmetic rates."""
    overhead: float
    """Factor on launches, latencies and the engine's own work."""
    before: Mapping[str, Errors]
    """Errors by column with the constants as they were."""
    after: Mapping[str, Errors]
    """Errors by column with the factors."""
    skipped: Mapping[str, int]
    """Rows that could not be predicted, by reason."""


def measured_seconds(cells: Cells, column: str) -> float:
    """A time of a row in seconds; NaN where there is none to compare."""
    value = number(cells.get(column))
    if not value or value < 0 or any(flag in cells.get("flags", "") for flag in UNUSED[column]):
        return float("nan")
    return value * MS


def curve_of(rows: Sequence[tuple[Cells, Deployment, Gpu, Workload]]) -> Curve:
    """Rows of one deployment, side by side."""
    _, run, gpu, _ = rows[0]
    loads: dict[str, Any] = {
        name: np.array([getattr(load, name) for *_, load in rows], dtype=float)
        for name in ("prompt", "output")
    }
    layout, workload = Layout.stack([at.layout for _, at, _, _ in rows]), Workload.model_construct(**loads)
    concurrency = np.array([load.concurrency for *_, load in rows], dtype=float)
    held = memory(
        run.transformer,
        run.precision,
        layout=layout,
        gpu=gpu,
        engine=run.engine,
        workload=workload,
        concurrency=concurrency,
    )
    return Curve(
        transformer=run.transformer,
        precision=run.precision,
        gpu=gpu,
        engine=run.engine,
        layout=layout,
        workload=workload,
        concurrency=concurrency,
        capacity=np.broadcast_to(held.capacity, concurrency.shape),
        polled=np.array([steps_between_looks(cells.get("flags", "")) for cells, *_ in rows]),
        measured={
            column: np.array([measured_seconds(cells, column) for cells, *_ in rows])
            for column in SPEED_COLUMNS
        },
    )


def curves_of(rows: Iterable[Cells]) -> tuple[list[Curve], dict[str, int]]:
    """Rows by deployment, and those that name something unknown or too little, counted by reason."""
    found: dict[tuple[str, ...], list[tuple[Cells, Deployment, Gpu, Workload]]] = {}
    skipped: dict[str, int] = {}
    for cells in rows:
        try:
            run, gpu, load = speed_run(cells)
        except (RowError, ValidationError) as error:
            skipped[reason_of(error)] = skipped.get(reason_of(error), 0) + 1
        else:
            key = (*(cells[name] for name in ("model", "weights", "kv")), gpu.name, run.engine.name)
            found.setdefault(key, []).append((cells, run, gpu, load))
    return [curve_of(same) for same in found.values()], skipped


def ratios(curves: Sequence[Curve], factors: Mapping[str, float]) -> dict[str, Array]:
    """Predicted over measured time of every row that can be compared, by column."""
    times = [curve.times(factors) for curve in curves]
    found = {
        column: np.concatenate(
            [at[column] / curve.measured[column] for at, curve in zip(times, curves, strict=True)]
        )
        for column in SPEED_COLUMNS
    }
    return {column: ratio[np.isfinite(ratio)] for column, ratio in found.items()}


def least_squares(residuals: Callable[[Array], Array], *, start: Array, low: Array, high: Array) -> Array:
    """Where the soft-L1 loss of residuals is smallest within bounds, residuals of the draw to the start included.

    Gauss-Newton on residuals weighted by (1 + r^2)^(-1/2), so that a few odd rows do not steer the fit; a step that
    does not pay is halved.

    Args:
        residuals: of the rows, at values of the parameters.

    >>> one = np.ones(1)
    >>> least_squares(lambda at: 100 * (at - 0.5), start=0 * one, low=-one, high=one).round(3).tolist()
    [0.5]
    """

    def loss(at: Array, found: Array) -> float:
        return float(np.sum(np.sqrt(1 + found**2) - 1) + np.sum(((at - start) / DRAWN) ** 2) / 2)

    at = start
    here = residuals(at)
    for _ in range(STEPS):
        slopes = np.stack(
            [(residuals(at + NUDGE * unit) - here) / NUDGE for unit in np.eye(at.size)], axis=-1
        )
        weighted = slopes * (1 / np.sqrt(1 + here**2))[:, None]
        normal = weighted.T @ slopes + np.eye(at.size) / DRAWN**2
        step = np.linalg.solve(normal, -(weighted.T @ here + (at - start) / DRAWN**2))
        for _ in range(STEPS):
            there = np.clip(at + step, low, high)
            found = residuals(there)
            if loss(there, found) <= loss(at, here):
                break
            step = step / 2
        else:
            return at
        moved, at, here = np.abs(there - at).max(), there, found
        if moved < STILL:
            break
    return at


def refit(rows: Iterable[Cells]) -> Refit:
    """The factors that bring predictions nearest to measurements.

    Args:
        rows: of one file, in the columns of `catalogs/measurements/speed.csv`.

    Raises:
        ValueError: no row can be compared.
    """
    curves, skipped = curves_of(rows)
    if not any(np.isfinite(times).any() for curve in curves for times in curve.measured.values()):
        raise ValueError("no row has a time that can be compared")

    def residuals(at: Array) -> Array:
        found = ratios(curves, dict(zip(FACTORS, np.exp(at).tolist(), strict=True)))
        return np.concatenate([np.log(ratio) / SPREAD[column] for column, ratio in found.items()])

    start = np.zeros(len(FACTORS))
    low, high = (np.full(len(FACTORS), np.log(limit)) for limit in SCALE_LIMITS)
    found = np.exp(least_squares(residuals, start=start, low=low, high=high))
    factors = {name: float(f"{value:.3g}") for name, value in zip(FACTORS, found, strict=True)}
    before, after = (
        {column: Errors.of(ratio - 1) for column, ratio in ratios(curves, at).items() if ratio.size}
        for at in (dict.fromkeys(FACTORS, 1.0), factors)
    )
    return Refit(**factors, before=before, after=after, skipped=skipped)
