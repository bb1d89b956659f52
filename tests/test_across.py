"""The same scenario on every GPU of the catalogue."""

from dataclasses import replace

import numpy as np
import pytest

from parplan import catalog
from parplan.across import large_enough, plans_across
from parplan.planner import judged, judged_side_by_side, solve
from parplan.scenario import Scenario, plan, problem_of
from parplan.search import candidate_layouts

EXPERTS = Scenario(model="deepseek-ai/DeepSeek-V3", weights="native", concurrency=16)


@pytest.mark.parametrize("scenario", [Scenario(), EXPERTS], ids=["dense", "experts"])
def test_every_gpu_gets_the_answer_it_gets_alone(scenario: Scenario) -> None:
    found = plans_across(scenario)
    assert list(found) == list(catalog.gpus())
    for gpu in ("t4", "h100-sxm", "mi300x", "gb200-nvl72"):
        alone = plan(scenario.model_copy(update={"gpu": gpu})).advice
        assert found[gpu].words == f"{alone.verdict} {alone.shortfall}".strip()
        assert (found[gpu].plan is None) == (alone.recommended is None)
        if alone.recommended and (best := found[gpu].plan):
            assert best.layout == alone.recommended.layout
            assert best.serving.tpot == alone.recommended.serving.tpot


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "ideal"])
@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(),
        EXPERTS,
        Scenario(model="openai/gpt-oss-20b", draft=2),
        Scenario(model="google/gemma-3-27b-it"),
    ],
    ids=["dense", "experts", "drafts", "images"],
)
def test_gpus_side_by_side_are_each_planned_as_alone(scenario: Scenario, engine: str) -> None:
    asked = problem_of(scenario.model_copy(update={"engine": engine}))
    problems = [replace(asked, gpu=gpu, budget=16) for gpu in catalog.gpus().values()]
    layouts, batches = [candidate_layouts(one) for one in problems], np.array([1, asked.workload.concurrency])
    together = judged_side_by_side(problems, layouts=layouts, concurrency=batches)
    for problem, layout, result in zip(problems, layouts, together, strict=True):
        alone = judged(problem, layout=layout, concurrency=batches)
        assert np.array_equal(result.legal, alone.legal)
        assert all(result.plan(i) == alone.plan(i) for i in range(0, layout.shape[0], 9)), problem.gpu.name


def test_the_gpu_that_was_chosen_does_not_matter() -> None:
    here, there = (plans_across(Scenario(gpu=gpu)) for gpu in ("h100-sxm", "mi300x"))
    assert {name: found.words for name, found in here.items()} == {
        name: found.words for name, found in there.items()
    }


def test_what_the_user_fixed_stays_fixed_everywhere() -> None:
    found = plans_across(Scenario(tensor=4))
    assert all(one.plan.layout.tensor == 4 for one in found.values() if one.plan)


def test_a_gpu_with_twice_everything_is_never_slower() -> None:
    """B200 against H100: more memory, bandwidth, FLOP and links."""
    found = plans_across(Scenario(tensor=4, concurrency=16))
    b200, h100 = found["b200-sxm"].plan, found["h100-sxm"].plan
    assert b200
    assert h100
    assert b200.serving.tpot < h100.serving.tpot


@pytest.mark.parametrize("scenario", [Scenario(), EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("gpu", ["t4", "a10", "h100-sxm", "b300-sxm"])
def test_no_layout_that_starts_is_left_out(scenario: Scenario, gpu: str) -> None:
    result = solve(problem_of(scenario.model_copy(update={"gpu": gpu})))
    left = large_enough(result.problem, layout=result.layout)
    kept = {str(left.one(index)) for index in range(left.shape[0])}
    assert {str(result.layout.one(int(index))) for index in np.flatnonzero(result.legal)} <= kept
    assert len(kept) < result.shape[0] or not (scenario is EXPERTS and gpu == "t4")


def test_where_nothing_runs_the_words_say_what_comes_nearest() -> None:
    """An A10 is sold without a network: 16 GPUs are four machines that cannot talk."""
    found = plans_across(EXPERTS)["a10"]
    assert found.plan is None
    assert "does not run" in found.words
    assert "comes nearest" in found.words
