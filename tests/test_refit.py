"""Refitting to a user's rows: it finds factors it was given, leaves alone what it cannot know, and is quick."""

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parplan import Scenario, plan
from parplan.calibration import SCALE_LIMITS
from parplan.refit import FACTORS, curves_of, least_squares, refit
from parplan.scenario import problem_of
from parplan.units import MS
from parplan.validate import Cells

MEASURED = Path(__file__).parents[1] / "catalogs" / "measurements" / "speed.csv"


def published(**wanted: str) -> list[Cells]:
    """Rows of the published measurements with some cells as given."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return [
            row for row in csv.DictReader(file) if all(row[name] == value for name, value in wanted.items())
        ]


def made_up(rows: list[Cells], factors: dict[str, float]) -> list[Cells]:
    """The same rows with the times an engine with other constants would take."""
    (curve,), skipped = curves_of(rows)
    assert not skipped
    times = curve.times(factors)
    return [
        {**row, "flags": "", **{column: str(seconds[index] / MS) for column, seconds in times.items()}}
        for index, row in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def rows() -> list[Cells]:
    """One deployment at several layouts and loads."""
    found = published(model="meta-llama/Meta-Llama-3.1-70B", gpu="h200-sxm", engine="vllm")
    first = (found[0]["weights"], found[0]["kv"], found[0]["engine_version"])
    return [row for row in found if (row["weights"], row["kv"], row["engine_version"]) == first]


@pytest.mark.parametrize(
    "factors",
    [
        {"memory": 0.8, "compute": 1.0, "overhead": 1.0},
        {"memory": 1.0, "compute": 0.7, "overhead": 1.0},
        {"memory": 1.0, "compute": 1.0, "overhead": 2.0},
        {"memory": 0.9, "compute": 0.8, "overhead": 1.5},
    ],
)
def test_factors_that_were_put_in_are_found(rows: list[Cells], factors: dict[str, float]) -> None:
    assert len(rows) > 20
    found = refit(made_up(rows, factors))
    for name in FACTORS:
        assert getattr(found, name) == pytest.approx(factors[name], rel=0.08), name
    assert found.after["tpot_ms"].median < 0.01
    assert found.after["tpot_ms"].median < found.before["tpot_ms"].median / 4


def test_predictions_themselves_change_nothing(rows: list[Cells]) -> None:
    found = refit(made_up(rows, dict.fromkeys(FACTORS, 1.0)))
    assert [getattr(found, name) for name in FACTORS] == [1, 1, 1]
    assert found.before["tpot_ms"].median == pytest.approx(0, abs=1e-9)


def test_the_same_rows_give_the_same_factors(rows: list[Cells]) -> None:
    assert refit(rows) == refit(rows)


def test_one_odd_row_does_not_steer(rows: list[Cells]) -> None:
    factors = {"memory": 0.8, "compute": 1.0, "overhead": 1.0}
    made = made_up(rows, factors)
    odd = [{**made[0], "tpot_ms": str(100 * float(made[0]["tpot_ms"]))}, *made[1:]]
    assert refit(odd).memory == pytest.approx(0.8, rel=0.08)


def test_one_row_moves_little(rows: list[Cells]) -> None:
    """With a single time a third above the prediction, no factor runs away."""
    one = made_up(rows[:1], dict.fromkeys(FACTORS, 1.0))[0]
    found = refit([{**one, "tpot_ms": str(1.3 * float(one["tpot_ms"])), "ttft_ms": ""}])
    assert all(0.6 < getattr(found, name) < 1.7 for name in FACTORS)
    assert found.after["tpot_ms"].median < found.before["tpot_ms"].median


def test_published_rows_get_no_worse(rows: list[Cells]) -> None:
    """Large errors count for more than small ones, so that the 90th percentile falls, and the median need not."""
    found = refit(rows)
    low, high = SCALE_LIMITS
    assert all(low <= getattr(found, name) <= high for name in FACTORS)
    for column in ("tpot_ms", "ttft_ms"):
        assert found.after[column].p90 <= found.before[column].p90


def test_two_hundred_rows_in_under_two_seconds() -> None:
    """Of every engine, model and GPU in turn: more deployments than a user's file has."""
    some = published()[::6][:200]
    start = time.process_time()
    refit(some)
    assert time.process_time() - start < 4  # processor time; two on a quiet core


def test_rows_that_say_too_little_are_counted(rows: list[Cells]) -> None:
    found = refit([*rows, {**rows[0], "model": "nobody/knows-this"}, {**rows[0], "gpu": ""}])
    assert sum(found.skipped.values()) == 2
    assert any("nobody/knows-this" in reason for reason in found.skipped)


def test_nothing_to_compare_is_an_error(rows: list[Cells]) -> None:
    for bad in ([], [{**rows[0], "tpot_ms": "", "ttft_ms": ""}], [{**rows[0], "flags": "QUEUED"}]):
        with pytest.raises(ValueError, match="no row"):
            refit(bad)


@given(
    wanted=st.floats(min_value=-1, max_value=1),
    noise=st.lists(st.floats(min_value=-0.01, max_value=0.01), min_size=5, max_size=5),
)
@settings(max_examples=20)
def test_least_squares_finds_a_slope(wanted: float, noise: list[float]) -> None:
    """A straight line, and the bounds hold."""
    at = np.linspace(10, 100, 5)
    found = least_squares(
        lambda value: at * (value[0] - wanted) + np.array(noise),
        start=np.zeros(1),
        low=np.full(1, -0.5),
        high=np.full(1, 0.5),
    )
    assert found[0] == pytest.approx(np.clip(wanted, -0.5, 0.5), abs=0.02)


def test_factors_travel_in_the_scenario() -> None:
    slow = Scenario(memory_scale=0.5, overhead_scale=2)
    base, moved = problem_of(Scenario()).engine.speed, problem_of(slow).engine.speed
    assert moved.bandwidth == base.bandwidth / 2
    assert moved.step == base.step * 2
    assert moved.compute == base.compute
    quick, late = (
        plan(scenario.model_copy(update={"tensor": 4})).advice.recommended for scenario in (Scenario(), slow)
    )
    assert quick
    assert late
    assert late.serving.tpot > 1.5 * quick.serving.tpot


def test_no_share_exceeds_the_hardware() -> None:
    speed = problem_of(Scenario(memory_scale=5, compute_scale=5)).engine.speed
    assert speed.bandwidth == speed.cache_bandwidth == speed.attention_compute == 1
    assert max(speed.compute.values()) == 1
