"""Predicted times beside published ones: the errors the project states, and the bars it has to keep."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from parplan import Scenario, plan
from parplan.calibration import SpeedProfile
from parplan.layout import Layout
from parplan.memory import memory
from parplan.serving import serve
from parplan.units import MS
from parplan.workload import Workload
from scripts import calibrate

KINDS = ("tpot", "ttft")
LATER = "S"
"""First letter of rows that came in later: SGLang with its defaults, an H20, expert parallelism with TensorRT-LLM."""


@pytest.fixture(scope="module")
def stated() -> Any:
    """The file the constants and their errors are kept in."""
    return yaml.safe_load(calibrate.WRITTEN.read_text())


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    """Published rows with what is compared of each."""
    return calibrate.measurements()


@pytest.fixture(scope="module")
def found(stated: Any, measured: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of all rows under the constants of the catalogue."""
    parts = []
    for engine in calibrate.ENGINES:
        rows = measured[measured["engine"] == engine]
        speed = SpeedProfile.model_validate(stated[calibrate.WHOLE.get(engine, engine)]["profile"])
        parts.append(calibrate.errors(rows, calibrate.predicted(calibrate.curves(rows), speed)))
    return pd.concat(parts)


@pytest.fixture(scope="module")
def first(measured: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Errors of the rows there were from the start."""
    return found.loc[measured.index[~measured["id"].str.startswith(LATER)]]


@pytest.fixture(scope="module")
def later(measured: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Errors of those that came in later, with what they are of."""
    rows = measured[measured["id"].str.startswith(LATER)]
    return rows[["engine", "gpu", "model"]].join(found)


def test_every_published_row_is_predicted(
    measured: pd.DataFrame, found: pd.DataFrame, first: pd.DataFrame
) -> None:
    assert len(found) == len(measured) == 1380
    assert [len(first), *first[["tpot", "ttft"]].count()] == [1287, 993, 732]
    assert found["tpot"].count() == 1086
    assert found["ttft"].count() == 749


def test_time_per_token_overall(first: pd.DataFrame) -> None:
    assert first["tpot"].abs().median() <= 0.06
    assert first["tpot"].abs().quantile(0.9) <= 0.20
    assert abs(first["tpot"].median()) <= 0.02


def test_time_to_first_token_overall(first: pd.DataFrame) -> None:
    assert first["ttft"].abs().median() <= 0.25


@pytest.mark.parametrize(("engine", "median", "p90"), [("sglang", 0.27, 0.55), ("trtllm", 0.32, 0.40)])
def test_later_times_per_token(later: pd.DataFrame, engine: str, median: float, p90: float) -> None:
    """An engine with its defaults is slower than one that was tuned, which most rows are of; GLM-4.7 with expert
    parallelism is slower than other models, nobody knows why. Their bands say so."""
    own = later.loc[later["engine"] == engine, "tpot"]
    assert own.abs().median() <= median
    assert own.abs().quantile(0.9) <= p90
    assert own.median() < 0


def test_experts_on_a_gpu_of_little_arithmetic(later: pd.DataFrame) -> None:
    """DeepSeek-V3 on eight H20, eight requests: 23 ms; 60 ms were predicted."""
    (error,) = later.loc[later["gpu"] == "h20", "tpot"]
    assert abs(error) <= 0.20


@pytest.mark.parametrize(
    ("engine", "tpot", "ttft"), [("vllm", 0.06, 0.18), ("sglang", 0.06, 0.45), ("trtllm", 0.06, 0.20)]
)
def test_by_engine(
    measured: pd.DataFrame, first: pd.DataFrame, engine: str, tpot: float, ttft: float
) -> None:
    """SGLang's first tokens are of DeepSeek-R1 and one other model; most come too early, see causes.yaml."""
    own = first[measured.loc[first.index, "engine"] == engine].abs().median()
    assert own["tpot"] <= tpot
    assert own["ttft"] <= ttft


def test_the_stated_errors_are_those_of_the_stated_constants(
    stated: Any, measured: pd.DataFrame, found: pd.DataFrame
) -> None:
    for engine in calibrate.ENGINES:
        own = found.loc[measured.index[measured["engine"] == engine]]
        for kind in KINDS:
            errors = stated[engine]["errors"][kind]["fitted"]
            assert errors["rows"] == own[kind].count()
            assert errors["median"] == pytest.approx(float(own[kind].abs().median()), abs=0.003)
            assert errors["p90"] == pytest.approx(float(own[kind].abs().quantile(0.9)), abs=0.01)


@pytest.mark.parametrize(
    ("kind", "left_out", "median", "p90"),
    [
        ("tpot", "pairs", 0.10, 0.30),
        ("tpot", "models", 0.11, 0.35),
        ("tpot", "gpus", 0.10, 0.30),
        ("ttft", "pairs", 0.25, 0.65),
        ("ttft", "models", 0.25, 0.65),
        ("ttft", "gpus", 0.25, 0.65),
    ],
)
def test_what_was_left_out_of_the_fit(
    stated: Any, kind: str, left_out: str, median: float, p90: float
) -> None:
    """As the fit recorded them, engines weighted by rows; fitting again takes minutes."""
    errors = [stated[engine]["errors"][kind][left_out] for engine in calibrate.ENGINES]
    rows = sum(one["rows"] for one in errors)
    assert rows == {"tpot": 1086, "ttft": 749}[kind]
    assert sum(one["rows"] * one["median"] for one in errors) / rows <= median
    assert sum(one["rows"] * one["p90"] for one in errors) / rows <= p90


@pytest.mark.parametrize(("engine", "least", "most"), [("vllm", 0.75, 1.1), ("vllm-0.16", 0.3, 0.6)])
def test_newer_vllm_does_not_pay_for_blocks(engine: str, least: float, most: float) -> None:
    """896 tokens/s on four H100 with 8 requests at once (vLLM pull request 34924, 2026-02, before what it adds)."""
    scenario = Scenario(
        model="MiniMaxAI/MiniMax-M2.5", gpu="h100-sxm", engine=engine, concurrency=8, prompt=1024, output=512,
        tensor=4, data=1, pipeline=1, expert=1, budget=4,
    )  # fmt: skip
    recommended = plan(scenario).advice.recommended
    assert recommended
    assert least < float(recommended.serving.tokens_per_s) / 896.22 < most


def test_what_is_left_out_is_left_out(measured: pd.DataFrame) -> None:
    """Rows turned into nonsense change nothing about how they are predicted when their model is left out."""
    rows = measured[(measured["engine"] == "sglang") & measured["compare_tpot"]]
    times = calibrate.exactly(calibrate.curves(rows), engine="sglang")
    values = {name: one.start for name, one in (calibrate.CONSTANTS | calibrate.OWN["sglang"]).items()}
    one = rows["model"].str.contains("Qwen3-32B")
    assert 0 < one.sum() < len(rows)
    spoilt = rows.assign(tpot_ms=rows["tpot_ms"].where(~one, 1e4))
    honest, blind = (
        calibrate.left_out(table, times, engine="sglang", values=values)["models"].loc[
            rows.index[one], "tpot"
        ]
        for table in (rows, spoilt)
    )
    predicted, blindly = (1 + honest) * rows["tpot_ms"][one], (1 + blind) * 1e4
    assert np.allclose(predicted, blindly)


def test_near_the_fit_times_are_powers_of_the_constants(measured: pd.DataFrame) -> None:
    """Constants five percent elsewhere: what stands in while rows are left out is within a percent of the model."""
    rows = measured[(measured["engine"] == "sglang") & measured["gpu"].isin(["h100-sxm", "h20"])]
    times = calibrate.exactly(calibrate.curves(rows), engine="sglang")
    values = {name: one.start for name, one in (calibrate.CONSTANTS | calibrate.OWN["sglang"]).items()}
    near = calibrate.nearby(times, values=values)
    assert np.allclose(near(values), times(values))
    elsewhere = {name: value * 0.95 for name, value in values.items()}
    assert np.allclose(near(elsewhere), times(elsewhere), rtol=0.01)


def test_throughput_where_requests_queue(measured: pd.DataFrame) -> None:
    """The cache or the slots hold fewer requests than there are clients: what is finished per second counts."""
    queued = measured[measured["flags"].str.contains("QUEUED")]
    errors = []
    for curve in calibrate.curves(queued):
        for index in curve.rows:
            row: dict[str, Any] = dict(queued.loc[index])
            users, output = int(row["concurrency"]), int(row["output_tokens"])
            asked: dict[str, Any] = {
                "layout": Layout(**{cut: int(row[cut]) for cut in ("tensor", "data", "expert")}),
                "gpu": curve.gpu,
                "engine": curve.engine,
                "workload": Workload(prompt=int(row["prompt_tokens"]), output=output),
                "concurrency": users,
            }
            held = memory(curve.transformer, curve.precision, **asked)
            done = serve(curve.transformer, curve.precision, **asked, capacity=held.capacity)
            seconds = (row["ttft_ms"] + (output - 1) * row["tpot_ms"]) * MS
            errors.append(float(np.squeeze(done.requests_per_s)) * seconds / users - 1)
    assert np.median(np.abs(errors)) <= 0.20


def test_the_fit_finds_constants_it_was_given() -> None:
    """Rows made up from shifted constants: the fit predicts them far better than its start does."""
    table = calibrate.measurements()
    rows = table[(table["engine"] == "sglang") & table["compare_tpot"]]
    curves = calibrate.curves(rows)
    start = {name: one.start for name, one in (calibrate.CONSTANTS | calibrate.OWN["sglang"]).items()}
    fixed = calibrate.FIXED["sglang"]
    made = calibrate.predicted(curves, calibrate.profile(start | {"layer": 18e-6, "step": 1e-3} | fixed))
    rows = rows.assign(tpot_ms=made["tpot"], ttft_ms=made["ttft"])
    times = calibrate.exactly(curves, engine="sglang")
    again = calibrate.profile(calibrate.fit(rows, times, engine="sglang") | fixed)
    before, after = (
        calibrate.errors(rows, calibrate.predicted(curves, speed))["tpot"].abs().median()
        for speed in (calibrate.profile(start | fixed), again)
    )
    assert after < before / 5
