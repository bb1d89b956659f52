"""Bands are those of the cross-validation that knew as much, and never narrower where less was measured."""

from collections.abc import Mapping

import pytest

from parplan import Scenario, catalog
from parplan.confidence import CUTS, confidence, unmeasured
from parplan.layout import Layout
from parplan.scenario import problem_of

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
GEMMA = "google/gemma-3-27b-it"
KNOWN: Mapping[str, Mapping[str, str]] = {
    "pair": {"model": LLAMA, "gpu": "h100-sxm"},
    "both apart": {"model": "Qwen/Qwen3-32B", "weights": "bf16", "gpu": "mi300x"},
    "gpu": {"model": GEMMA, "weights": "bf16", "gpu": "h100-sxm"},
    "model": {"model": LLAMA, "gpu": "l40s"},
    "neither": {"model": GEMMA, "weights": "bf16", "gpu": "l40s"},
}
"""Deployments with vLLM by what was measured of them."""


def band(layout: Layout, **fields: str) -> tuple[float, float]:
    found = confidence(problem_of(Scenario(**fields)), layout=layout)
    assert found is not None
    assert found.tpot.words == found.ttft.words
    return found.tpot.relative, found.ttft.relative


@pytest.mark.parametrize("time", [0, 1])
def test_less_was_measured_wider_is_the_band(time: int) -> None:
    bands = {what: band(Layout(tensor=4), engine="vllm", **fields)[time] for what, fields in KNOWN.items()}
    assert bands["pair"] < bands["both apart"] <= min(bands["gpu"], bands["model"])
    assert max(bands["gpu"], bands["model"]) < bands["neither"]


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


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("cut", ["pipeline", "context", "decode_context"])
def test_a_cut_nobody_published_is_as_uncertain_as_an_unseen_gpu(engine: str, cut: str) -> None:
    within, across = (
        band(layout, model=LLAMA, gpu="h200-sxm", engine=engine)
        for layout in (Layout(tensor=2), Layout(tensor=2, **{cut: 2}))
    )
    assert across[0] > 2 * within[0]
    assert across == band(Layout(tensor=4), engine=engine, model=GEMMA, weights="bf16", gpu="l40s")


def test_cuts_are_known_by_engine() -> None:
    """Attention replicas were measured with TensorRT-LLM only."""
    replicas = Layout(data=8, expert=8)
    assert list(unmeasured(replicas, engine="trtllm")) == []
    assert CUTS["data"] in unmeasured(replicas, engine="vllm")
    assert list(unmeasured(Layout(tensor=8), engine="sglang")) == []


def test_several_nodes_are_unmeasured() -> None:
    one, two = (
        band(
            Layout(tensor=8, data=data, expert=8 * data),
            model="deepseek-ai/DeepSeek-R1",
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
