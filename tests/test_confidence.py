"""Bands are wider the less was measured."""

import pytest

from parplan import Scenario
from parplan.confidence import confidence
from parplan.layout import Layout
from parplan.scenario import problem_of


def band(layout: Layout, **fields: str) -> tuple[float, float]:
    found = confidence(problem_of(Scenario(**fields)), layout=layout)
    assert found is not None
    assert found.tpot.words == found.ttft.words
    return found.tpot.relative, found.ttft.relative


@pytest.mark.parametrize(
    ("engine", "model"),
    [("vllm", "meta-llama/Llama-3.3-70B-Instruct"), ("trtllm", "meta-llama/Meta-Llama-3.1-8B")],
)
def test_measured_below_seen_gpu_below_unseen(engine: str, model: str) -> None:
    measured = band(Layout(tensor=4), model=model, gpu="h100-sxm", engine=engine)
    other = band(
        Layout(tensor=4), model="google/gemma-3-27b-it", weights="bf16", gpu="h100-sxm", engine=engine
    )
    unseen = band(Layout(tensor=4), model="google/gemma-3-27b-it", weights="bf16", gpu="l40s", engine=engine)
    assert measured[0] < other[0] < unseen[0]
    assert measured[1] < other[1] < unseen[1]
    assert 0.01 < measured[0] < 0.1


def test_a_cut_nobody_published_is_as_uncertain_as_an_unseen_gpu() -> None:
    within, across = (
        band(layout, model="meta-llama/Llama-3.3-70B-Instruct", gpu="h100-sxm", engine="vllm")
        for layout in (Layout(tensor=8), Layout(tensor=8, pipeline=2))
    )
    assert across[0] > 2 * within[0]


def test_a_bound_has_no_band() -> None:
    assert confidence(problem_of(Scenario(engine="ideal")), layout=Layout()) is None


def test_version_families_share_the_band_of_their_speed_constants() -> None:
    now, before = (band(Layout(tensor=2), engine=engine) for engine in ("vllm", "vllm-0.17"))
    assert now == before
