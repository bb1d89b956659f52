"""Bands are those of the cross-validation that knew as much, and never narrower than what was measured of the plan."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from parplan import Scenario, catalog
from parplan.confidence import CUT_KINDS, FEWEST, Band, Time, confidence, unmeasured
from parplan.layout import Layout
from parplan.scenario import problem_of
from parplan.validate import SPEED_COLUMNS, UNUSED, Report, marks, relative_error, validation
from scripts import group_errors

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
GEMMA = "google/gemma-3-27b-it"
R1 = {"model": "nvidia/DeepSeek-V3.1-NVFP4", "gpu": "b200-sxm", "engine": "trtllm"}
KNOWN: Mapping[str, Mapping[str, str]] = {
    "pair": {"model": LLAMA, "gpu": "h100-sxm", "weights": "fp8"},
    "both apart": {"model": "Qwen/Qwen3-32B", "weights": "bf16", "gpu": "mi300x"},
    "gpu": {"model": GEMMA, "weights": "bf16", "gpu": "h100-sxm"},
    "model": {"model": LLAMA, "gpu": "l40s", "weights": "fp8"},
    "neither": {"model": GEMMA, "weights": "bf16", "gpu": "l40s"},
}
"""Deployments with vLLM by what was measured of their times per token."""
SAME = ["engine", "gpu", "model", "precision"]
TIMES: Mapping[Time, str] = {"tpot": "tpot_ms", "ttft": "ttft_ms"}


def bands(layout: Layout, **fields: str) -> dict[Time, Band]:
    found = confidence(problem_of(Scenario(**fields)), layout=layout)
    assert found is not None
    return {"tpot": found.tpot, "ttft": found.ttft}


def band(layout: Layout, **fields: str) -> tuple[float, float]:
    tpot, ttft = bands(layout, **fields).values()
    return tpot.relative, ttft.relative


@pytest.fixture(scope="module")
def report() -> Report:
    """Every published row with its prediction."""
    return validation(group_errors.MEASURED)


@pytest.fixture(scope="module")
def off(report: Report) -> pd.DataFrame:
    """By row: engine, GPU, model, format, layout, and by which factor each time that counts is off, less one."""

    def factor(error: float | None) -> float:
        return float("nan") if error is None else max(1 + error, 1 / (1 + error)) - 1

    return pd.DataFrame(
        dict(row.group)
        | {cut: int(row.cells[cut]) for cut in group_errors.CUTS}
        | {
            time: factor(None if marks(row) & set(UNUSED[column]) else relative_error(row, column))
            for time, column in TIMES.items()
        }
        for row in report.rows
    )


def test_the_errors_of_groups_are_those_of_today(report: Report, tmp_path: Path) -> None:
    """As written by `python -m scripts.group_errors`; constants of today, formulas of today."""
    group_errors.write(tmp_path / "errors.csv", group_errors.group_errors(report))
    keys = [*group_errors.SHARED, "time"]
    now, stated = (
        pd.read_csv(path, dtype=str, keep_default_na=False).set_index(keys).astype(float)
        for path in (tmp_path / "errors.csv", group_errors.WRITTEN)
    )
    assert (now["rows"] == stated["rows"]).all()
    assert now["off"].to_dict() == pytest.approx(stated["off"].to_dict(), rel=0.01, abs=0.0005)


@pytest.mark.parametrize("time", TIMES)
def test_half_of_what_counts_as_measured_lies_within_its_band(time: Time, off: pd.DataFrame) -> None:
    """Every model, GPU, engine and format with a time to compare, each row by the band of its own layout; versions of
    an engine together, unless newer ones are without costs that older ones measured."""
    rows = off.dropna(subset=[time]).copy()
    shown = {
        index: bands(
            Layout(**{cut: int(row[cut]) for cut in group_errors.CUTS}),
            model=row["model"],
            gpu=row["gpu"],
            engine=row["engine"],
            weights=row["precision"],
        )[time]
        for index, row in rows.drop_duplicates([*SAME, *group_errors.CUTS]).iterrows()
    }
    keys = rows.groupby([*SAME, *group_errors.CUTS], sort=False)
    rows["shown"] = keys["model"].transform(lambda one: one.index[0]).map(shown)
    rows = rows[rows["shown"].map(lambda one: "this model was measured on" in one.words)]
    within = rows[time] <= rows["shown"].map(lambda one: one.relative) + 1e-3
    versions = rows["engine"].where(rows["precision"] == "fp8-block", rows["engine"].str.partition("-")[0])
    found = within.groupby([versions, rows["gpu"], rows["model"], rows["precision"]]).mean()
    assert len(found) >= {"tpot": 25, "ttft": 17}[time]
    assert found.min() >= 0.5, found[found < 0.5]


def test_rows_that_do_not_count_are_no_measurement(off: pd.DataFrame) -> None:
    """TensorRT-LLM's times per token of DeepSeek in FP8 on B200 may all be of drafted tokens; no Qwen3-32B row states a
    first token."""
    drafted = (off["engine"] == "trtllm") & (off["gpu"] == "b200-sxm") & (off["precision"] == "fp8-block")
    assert drafted.any()
    assert not off[drafted]["tpot"].notna().any()
    trtllm = bands(Layout(tensor=8), model="deepseek-ai/DeepSeek-R1", gpu="b200-sxm", engine="trtllm")
    assert "but not in fp8-block" in trtllm["tpot"].words
    assert "this model was measured on B200" in trtllm["ttft"].words
    qwen = bands(Layout(tensor=2), model="Qwen/Qwen3-32B-FP8", gpu="h100-sxm", engine="trtllm")
    assert "this model was measured on H100" in qwen["tpot"].words
    assert "this model was measured" not in qwen["ttft"].words


def test_what_is_known_to_be_missed_says_so(off: pd.DataFrame) -> None:
    """DeepSeek-R1 in NVFP4 on B200 with TensorRT-LLM: six rows that count, four times as long as predicted."""
    rows = off[
        (off["model"] == "deepseek-ai/DeepSeek-R1") & (off["precision"] == "nvfp4") & off["tpot"].notna()
    ]
    assert len(rows) == 6
    for layout in (Layout(data=8, expert=8), Layout(tensor=8), Layout(tensor=4, expert=4)):
        shown = bands(layout, **R1)["tpot"]
        assert shown.relative == pytest.approx(rows["tpot"].median(), rel=0.01)
        assert "known to miss" in shown.words
        assert "6 measurements" in shown.words
        assert "factor of 4.1" in shown.words


@pytest.mark.parametrize(
    ("fields", "least"),
    [
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "engine": "vllm-0.16"}, 0.11),
        ({"model": LLAMA, "weights": "fp8", "engine": "trtllm"}, 0.11),
        ({"model": "meta-llama/Meta-Llama-3.1-8B", "weights": "fp8", "engine": "vllm"}, 0.9),
    ],
)
def test_a_group_worse_than_its_engine_has_its_own_band(fields: dict[str, str], least: float) -> None:
    shown = bands(Layout(tensor=2), gpu="h200-sxm", **fields)["tpot"]
    assert shown.relative >= least
    assert "of this model there" in shown.words


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_band_is_narrower_than_that_of_the_fit(engine: str) -> None:
    errors = catalog.engines()[engine].errors
    assert errors
    measured = {one.gpu for one in catalog.group_errors() if one.gpu and one.engine == engine}
    for gpu in measured | {"l4"}:
        for model, weights in ((LLAMA, "fp8"), (LLAMA, "native"), ("openai/gpt-oss-120b", "native")):
            tpot, ttft = band(Layout(tensor=4), model=model, weights=weights, gpu=gpu, engine=engine)
            assert tpot >= errors.tpot.fitted.median
            assert ttft >= errors.ttft.fitted.median


def test_less_was_measured_wider_is_the_band() -> None:
    found = {what: band(Layout(tensor=4), engine="vllm", **fields)[0] for what, fields in KNOWN.items()}
    assert found["pair"] < found["both apart"] <= min(found["gpu"], found["model"])
    assert max(found["gpu"], found["model"]) < found["neither"]
    few = {what: band(Layout(tensor=4), engine="vllm", **KNOWN[what])[1] for what in ("pair", "neither")}
    assert few["pair"] < few["neither"]


def test_each_band_is_that_of_its_kind() -> None:
    errors = catalog.engines()["vllm"].errors
    assert errors
    for what, kind in {"pair": "fitted", "both apart": "pairs"}.items():
        expected = max(errors.tpot.fitted.median, getattr(errors.tpot, kind).median)
        assert band(Layout(tensor=4), engine="vllm", **KNOWN[what])[0] == expected
    assert band(Layout(tensor=4), engine="vllm", **KNOWN["gpu"])[0] >= errors.tpot.models.median
    assert band(Layout(tensor=4), engine="vllm", **KNOWN["model"])[0] >= errors.tpot.gpus.median
    widest = max(getattr(errors.tpot, kind).p90 for kind in ("fitted", "pairs", "models", "gpus"))
    assert band(Layout(tensor=4), engine="vllm", **KNOWN["neither"])[0] == widest


def test_another_format_of_a_measured_model_is_less_well_known() -> None:
    """Llama-70B on H100 with vLLM was measured in FP8; int4 was measured with no model."""
    layout, deployed = Layout(tensor=4), {"model": LLAMA, "gpu": "h100-sxm", "engine": "vllm"}
    fp8, bf16, int4 = (
        bands(layout, weights=weights, **deployed)["tpot"] for weights in ("fp8", "bf16", "int4-g128")
    )
    assert fp8.relative < bf16.relative < int4.relative
    assert "not in bf16" in bf16.words
    assert "no time per token of weights in int4-g128" in int4.words


def test_what_newer_versions_no_longer_spend_was_not_measured_with_them() -> None:
    """Weights scaled by blocks were measured with vLLM 0.12, whose cost for them newer ones are without."""
    before, now = (
        bands(Layout(tensor=4), model="Qwen/Qwen3-235B-A22B-FP8", gpu="h200-sxm", engine=engine)["tpot"]
        for engine in ("vllm-0.16", "vllm")
    )
    assert "this model was measured" in before.words
    assert "no time per token of weights in fp8-block on these versions" in now.words
    assert before.relative < now.relative


def test_a_model_measured_a_few_times_does_not_count_as_measured() -> None:
    """DeepSeek-R1 on H200 with SGLang: two rows that contradict each other."""
    shown = bands(Layout(tensor=8), model="deepseek-ai/DeepSeek-R1", gpu="h200-sxm", engine="sglang")
    assert FEWEST > 2
    assert "only 2 times" in shown["tpot"].words
    assert "only" not in shown["ttft"].words


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("cut", ["pipeline", "context", "decode_context"])
def test_a_cut_nobody_published_is_as_uncertain_as_an_unseen_gpu(engine: str, cut: str) -> None:
    within, across = (
        band(layout, model=LLAMA, weights="fp8", gpu="h200-sxm", engine=engine)
        for layout in (Layout(tensor=2), Layout(tensor=2, **{cut: 2}))
    )
    assert across[0] > 2 * within[0]
    assert across == band(Layout(tensor=4), engine=engine, model=GEMMA, weights="bf16", gpu="l40s")


def test_cuts_are_known_by_engine() -> None:
    """Attention replicas were measured with TensorRT-LLM only."""
    replicas = Layout(data=8, expert=8)
    for time in TIMES:
        assert list(unmeasured(replicas, engine="trtllm", time=time)) == []
        assert CUT_KINDS["data"] in unmeasured(replicas, engine="vllm", time=time)
        assert list(unmeasured(Layout(tensor=8), engine="sglang", time=time)) == []


def test_attention_replicas_are_known_to_be_missed() -> None:
    """With TensorRT-LLM: first tokens of ten rows that count are off by a factor of three, three times by a sixth."""
    deployed = {"model": "openai/gpt-oss-120b", "gpu": "b200-sxm", "engine": "trtllm"}
    cut, spread = (band(layout, **deployed) for layout in (Layout(tensor=8), Layout(data=8, expert=8)))
    assert spread[0] > 2 * cut[0]
    assert spread[1] > 1 > cut[1]


def test_several_nodes_are_unmeasured() -> None:
    one, two = (
        band(
            Layout(tensor=8, data=data, expert=8),
            model="openai/gpt-oss-120b",
            gpu="b200-sxm",
            engine="trtllm",
        )
        for data in (1, 2)
    )
    assert two[0] > 2 * one[0]


def test_a_bound_has_no_band() -> None:
    assert confidence(problem_of(Scenario(engine="ideal")), layout=Layout()) is None


def test_version_families_share_the_band_of_their_speed_constants() -> None:
    now, before = (band(Layout(tensor=2), engine=engine) for engine in ("vllm", "vllm-0.17"))
    assert now == before


def test_columns_are_those_of_the_measurements() -> None:
    assert set(TIMES.values()) == set(SPEED_COLUMNS)
