"""Start-up logs of engines against predictions: the bars hold on the rows whose engine came up."""

from pathlib import Path

import pytest

from parplan import catalog
from parplan.validate import Report, Row, measured_fit, validation, why_wrong
from scripts.fit_memory import LAWS, outcome

MEASURED = Path(__file__).parents[1] / "catalogs" / "measurements" / "memory.csv"

WRONG = {"M040", "M041", "M093", "M100", "M102"}
"""Rows whose verdict is known to be wrong; why is in catalogs/measurements/causes.yaml."""


@pytest.fixture(scope="module")
def report() -> Report:
    """All rows, predicted."""
    return validation(MEASURED)


def usable(report: Report) -> list[Row]:
    """Rows of engines that came up."""
    return [row for row in report.rows if row.predicted and measured_fit(row.cells["outcome"])]


@pytest.mark.parametrize(
    ("column", "median", "p90"),
    [
        ("weights_gib_per_gpu", 0.01, 0.04),
        ("kv_gib_per_gpu", 0.03, 0.12),
        ("kv_tokens", 0.03, 0.12),
        ("max_concurrency", 0.03, 0.12),
    ],
)
def test_the_error_stays_below_the_bar(report: Report, column: str, median: float, p90: float) -> None:
    errors = report.errors(column, rows=usable(report))
    assert errors
    assert errors.rows >= 15
    assert errors.median <= median
    assert errors.p90 <= p90
    assert abs(errors.bias) <= median


def test_nine_verdicts_of_ten_are_right(report: Report) -> None:
    assert len(report.verdicts) >= 25
    assert len(report.wrong_verdicts) <= 0.1 * len(report.verdicts) + 1
    assert {row.cells["id"] for row in report.wrong_verdicts} <= WRONG


def test_every_wrong_verdict_is_explained(report: Report) -> None:
    for row in report.wrong_verdicts:
        assert why_wrong(row, catalog.causes()) != why_wrong(row, ()), row.cells["id"]


def test_most_rows_state_enough(report: Report) -> None:
    assert sum(bool(row.predicted) for row in report.rows) >= 0.5 * len(report.rows)


def test_every_row_names_a_source(report: Report) -> None:
    assert all(row.cells["source"] and row.cells["id"] for row in report.rows)


@pytest.mark.parametrize("version", ["vllm", "vllm-0.17", "vllm-0.16"])
def test_every_version_family_is_measured(report: Report, version: str) -> None:
    assert any(row.group["engine"] == version for row in usable(report))


@pytest.mark.parametrize(
    ("name", "constant", "median", "p90"),
    [
        ("sampler copies, 0.17 to 0.20", catalog.engines()["vllm-0.17"].memory.sampler_copies, 0.02, 0.05),
        ("graphs, MiB per layer and size", 0.30, 0.08, 0.30),
        ("non-torch alone, GiB", 0.25, 0.05, 0.06),
        ("non-torch of two, GiB", 2.07, 0.03, 0.05),
        ("non-torch of four, GiB", 2.19, 0.03, 0.05),
    ],
)
def test_no_constant_rests_on_one_model(
    report: Report, name: str, constant: float, median: float, p90: float
) -> None:
    """Fitted without any one model the constant is within 4 % of the catalogue's, and predicts that model."""
    found = outcome(next(law for law in LAWS if law.name == name), [row.cells for row in report.rows])
    assert len(found.without) >= 3
    assert list(found.without.values()) == pytest.approx([constant] * len(found.without), rel=0.04)
    assert found.median <= median
    assert found.p90 <= p90
