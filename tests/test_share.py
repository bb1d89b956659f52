"""The share of memory an engine is given leaves room for what lies outside of it, the driver context above all."""

from dataclasses import replace

import numpy as np
import pytest

from parplan import Scenario, plan
from parplan.objections import largest_percent
from parplan.planner import judged
from parplan.scenario import problem_of
from parplan.search import candidate_layouts, deciding_batches
from parplan.ways_out import foremost, ways_out

LLAMA = "meta-llama/Meta-Llama-3.1-8B"
SMALL = Scenario(model=LLAMA, gpu="v100-sxm-16", concurrency=8)
"""15.8 GiB, of which vLLM fills 92 %; on NVLink 1.5 GiB of context are left no room."""
FULL = [
    Scenario(model=LLAMA, gpu=gpu, engine=engine, concurrency=8, utilization=100)
    for gpu in ("h100-sxm", "l4", "mi300x")
    for engine in ("vllm", "vllm-0.17", "vllm-0.16", "sglang")
]
NAMES = [f"{one.engine} {one.gpu}" for one in (SMALL, *FULL)]


@pytest.mark.parametrize("scenario", [SMALL, *FULL], ids=NAMES)
def test_the_share_named_is_the_largest_whole_percent_that_fits(scenario: Scenario) -> None:
    result = plan(scenario).result
    failing = np.flatnonzero(result.errors["share"])
    assert failing.size
    for index in failing[:: max(failing.size // 5, 1)].tolist():
        found = result.plan(index)
        percent, one = largest_percent(found.memory), result.layout[np.array([index])]
        for share, overflows in ((percent, False), (percent + 1, True)):
            settings = result.problem.settings.model_copy(update={"utilization": share / 100})
            told = replace(result.problem, settings=settings)
            again = judged(told, layout=one, concurrency=deciding_batches(told))
            assert bool(again.errors["share"].any()) == overflows
            assert bool(np.all(again.memory.pool > 0))


@pytest.mark.parametrize("scenario", [SMALL, *FULL], ids=NAMES)
def test_it_is_not_mistaken_for_weights_that_are_too_large(scenario: Scenario) -> None:
    answer = plan(scenario)
    result = answer.result
    assert not (result.errors["share"] & result.errors["weights"]).any()
    held = result.memory
    over = result.at_asked(held.overflows).astype(bool)
    fails = (result.at_asked(held.pool) <= 0) | over
    np.testing.assert_array_equal(fails, result.errors["share"] | result.errors["weights"])
    assert "does not start" in answer.advice.shortfall
    assert "GPUs per replica" not in answer.advice.shortfall
    fits = result.at_asked(held.weights + held.activations + held.overhead < held.usable).astype(bool)
    assert fits[result.errors["share"]].all()


def test_the_words_are_about_the_context_and_its_figures() -> None:
    answer = plan(SMALL)
    assert answer.advice.recommended is None
    assert "1.5 GiB lie outside" in answer.advice.shortfall
    assert "at most 90 % of each GPU" in answer.advice.shortfall


@pytest.mark.parametrize("scenario", [SMALL, *FULL], ids=NAMES)
def test_a_smaller_share_is_one_click_away_and_costs_nothing(scenario: Scenario) -> None:
    first = foremost(ways_out(plan(scenario)))[0]
    assert first.retold
    assert first.scenario.changed().keys() - scenario.changed().keys() <= {"utilization"}
    best = plan(first.scenario).advice.recommended
    assert best
    assert best.holds
    more = plan(first.scenario.model_copy(update={"utilization": 50})).advice.recommended
    assert more is None or more.gpus >= best.gpus


def test_weights_that_leave_nothing_are_still_the_weights() -> None:
    answer = plan(Scenario(weights="bf16", gpu="v100-sxm-16", concurrency=8, budget=8))
    assert answer.result.errors["weights"].all()
    assert "It does not load" in answer.advice.shortfall
    problem = problem_of(answer.scenario)
    assert (
        not judged(problem, layout=candidate_layouts(problem), concurrency=deciding_batches(problem))
        .errors["share"]
        .any()
    )


def test_what_a_share_leaves_and_what_lies_outside_add_up() -> None:
    """reserved = what the engine may fill + what lies outside; it fills its share of what it looks at."""
    for engine in ("vllm", "vllm-0.17", "sglang", "trtllm"):
        held = plan(Scenario(model=LLAMA, engine=engine)).result.memory
        np.testing.assert_allclose(held.outside + held.allowance, held.reserved)
        np.testing.assert_allclose(held.excess, held.reserved - held.usable)
        assert (held.looked_at >= held.reserve).all()
