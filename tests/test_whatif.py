"""What flips the recommendation."""

from dataclasses import replace

import numpy as np
import pytest

from parplan import Scenario, plan
from parplan.choice import recommended_index
from parplan.layout import Layout
from parplan.planner import solve
from parplan.scenario import problem_of
from parplan.whatif import (
    UNHELD,
    UNMET,
    Change,
    apart,
    connected,
    flip_points,
    sensitivity,
    target_flips,
    winner,
    winner_map,
)

BUSY = Scenario(model="meta-llama/Llama-3.3-70B-Instruct", weights="fp8", gpu="h100-sxm")


def test_the_map_agrees_with_planning_each_cell() -> None:
    found = winner_map(problem_of(BUSY), prompts=(256, 8192))
    for row, prompt in enumerate(found.prompts):
        for batch in (0, 6, 12, 18):
            scenario = BUSY.model_copy(
                update={"prompt": prompt, "concurrency": int(found.concurrency[batch])}
            )
            assert found.cells[row][batch].name == winner(plan(scenario).result)


def test_the_map_says_what_its_winners_miss() -> None:
    """As each cell's own plan has it: targets missed, and how many requests are held."""
    limited = BUSY.model_copy(update={"ttft": 500.0, "tpot": 40.0})
    found = winner_map(problem_of(limited), prompts=(1024, 65536))
    for cells, prompt in zip(found.cells, found.prompts, strict=True):
        for batch in (0, 11, 17):
            update = {"prompt": prompt, "concurrency": int(found.concurrency[batch])}
            best = plan(limited.model_copy(update=update)).advice.recommended
            assert best is not None
            assert bool(cells[batch].waits) == (not best.holds)
            assert bool(cells[batch].misses) == (not best.in_time)
            assert not cells[batch].waits or f"holds {int(best.memory.capacity):,} of" in cells[batch].words
    assert not found.cells[0][11].words
    assert "to the first token, 500 ms asked for" in found.cells[1][0].words
    assert "per token, 40 ms" not in found.cells[1][0].words


def test_more_requests_need_more_gpus() -> None:
    """On H100 a 70B in FP8 goes from one GPU to two as the batch grows, and never back."""
    flips = flip_points(plan(BUSY).result)
    sizes = [int(name.split(", ")[1].split()[0]) for _, name in flips if "GPU" in name]
    assert len(flips) >= 2
    assert flips[0][0] == 1
    assert sizes[0] == 1
    assert sizes == sorted(sizes)


def test_a_tighter_target_flips_and_flips_come_first() -> None:
    changes = sensitivity(plan(BUSY).result)
    flips = [change.flips for change in changes]
    assert flips == sorted(flips, reverse=True)
    assert any(change.flips and "time per token" in change.words for change in changes)


def test_what_changes_nothing_is_not_tried() -> None:
    """Half of one request is one."""
    tried = [change.words for change in sensitivity(plan(Scenario(concurrency=1)).result)]
    assert "half the requests at once" not in tried
    assert "twice the requests at once" in tried


def test_rates_below_ten_tell_two_pools_from_one() -> None:
    found = apart(plan(BUSY).result)
    assert found is not None
    slow = replace(found, rate=2.72, together=3.14)
    assert "2.72 tokens/s per GPU" in slow.words
    assert "3.14 in one pool" in slow.words


LARGE_ON_ONE_NODE = Scenario(model="meta-llama/Meta-Llama-3.1-405B", weights="fp8", concurrency=16, budget=8)


@pytest.mark.parametrize(
    ("scenario", "name", "words"),
    [
        (Scenario(), "ttft", "a time to first token a third shorter than now"),
        (LARGE_ON_ONE_NODE, "tpot", "a time per token a third shorter than now"),
    ],
    ids=["opening", "405B"],
)
def test_a_change_after_which_nothing_does_the_job_names_no_layout(
    scenario: Scenario, name: str, words: str
) -> None:
    """As planning that target says."""
    result = plan(scenario).result
    index = recommended_index(result)
    assert index is not None
    target = float(result.at_asked(getattr(result.serving, name))[index]) / 1.5
    best = plan(scenario.model_copy(update={name: target * 1000})).advice.recommended
    assert best is not None
    assert not best.in_time
    change = next(one for one in sensitivity(result) if one.words == words)
    assert change.after == UNMET
    assert change.flips


def test_what_if_says_what_is_missing_and_which_change_mends_it() -> None:
    """Half as many requests again as one GPU holds are too many, half of those are not."""
    alone = BUSY.model_copy(update={"budget": 1})
    best = plan(alone).advice.recommended
    assert best is not None
    crowded = plan(alone.model_copy(update={"concurrency": int(1.5 * best.memory.capacity)})).result
    found = {one.words: one for one in sensitivity(crowded)}
    assert found["half the requests at once"] == Change("half the requests at once", UNHELD, "TP1, 1 GPU")
    assert not found["twice the requests at once"].flips
    late = sensitivity(plan(BUSY.model_copy(update={"tpot": 0.1})).result)
    assert {one.after for one in late} == {UNMET}
    assert not any(one.flips for one in late)


def test_as_requests_grow_no_layout_is_named_from_where_none_does_the_job() -> None:
    scenario = BUSY.model_copy(update={"tpot": 20.0, "budget": 8})
    for requests, name in flip_points(plan(scenario).result):
        best = plan(scenario.model_copy(update={"concurrency": requests})).advice.recommended
        assert best is not None
        assert best.does_job == (name not in (UNMET, UNHELD))
    assert {UNMET, UNHELD} <= {name for _, name in flip_points(plan(scenario).result)}


def test_as_the_target_tightens_more_gpus_are_recommended_and_each_step_is_the_answer_to_its_target() -> None:
    """70B on H100: TP2, TP4, TP8; each recommendation holds down to its own time per token."""
    found = target_flips(plan(BUSY).result)
    times = [reached for reached, _ in found]
    assert [name for _, name in found] == ["TP2, 2 GPUs", "TP4, 4 GPUs", "TP8, 8 GPUs"]
    assert times == sorted(times, reverse=True)
    for reached, name in found:
        scenario = BUSY.model_copy(update={"tpot": reached * 1000 * 1.001})
        assert winner(plan(scenario).result) == name
    assert target_flips(plan(BUSY.model_copy(update={"tpot": 0.1})).result) == ()
    fastest = target_flips(plan(BUSY.model_copy(update={"objective": "latency"})).result)
    assert [name for _, name in fastest] == ["TP8, 8 GPUs"]


def test_two_pools_keep_their_limits_and_never_mix_prefill_into_decode() -> None:
    for scenario in (
        BUSY,
        BUSY.model_copy(update={"prompt": 8192, "output": 512, "tpot": 25.0, "ttft": 2000.0}),
    ):
        result = plan(scenario).result
        found = apart(result)
        assert found is not None
        assert (
            found.gpus
            == found.prefill_replicas * found.prefill.gpus + found.decode_replicas * found.decode.gpus
        )
        assert found.tpot <= (scenario.tpot / 1000 or found.tpot)
        assert found.ttft <= (scenario.ttft / 1000 or found.ttft)
        assert found.rate > 0
        assert str(found.decode) in found.words


def test_two_pools_pay_where_prompts_would_hold_up_decode() -> None:
    """Long prompts, short answers and a tight time per token: one pool must stay far below its best batch."""
    tight = BUSY.model_copy(update={"prompt": 8192, "output": 512, "tpot": 25.0})
    found = apart(plan(tight).result)
    assert found is not None
    assert found.gain > 1


def test_two_pools_are_not_for_few_requests() -> None:
    """What two busy pools deliver is no use to those who cannot fill them; with enough replicas' worth it pays."""
    few = BUSY.model_copy(update={"prompt": 8192, "output": 512, "tpot": 25.0, "concurrency": 4})
    result = plan(few).result
    alone = apart(result)
    assert alone
    assert alone.asked == 4 < alone.busy
    assert alone.words.startswith("Not for 4 requests at once")
    many = apart(result, replicas=alone.busy)
    assert many
    assert many.words.startswith("It pays")
    # Little: requests in hand are the rate times the time each stays
    stay = many.ttft + 512 * many.tpot
    assert many.busy == pytest.approx(many.rate * many.gpus / 512 * stay, rel=0.02)


@pytest.mark.parametrize(("engine", "model", "same"), [
    ("sglang", "openai/gpt-oss-120b", True), ("vllm", "openai/gpt-oss-120b", False),
    ("sglang", "deepseek-ai/DeepSeek-V3.1", False), ("sglang", "meta-llama/Llama-3.3-70B-Instruct", False),
])  # fmt: skip
def test_sglang_deals_windowed_heads_anew_only_from_prefill_without_stages(
    engine: str, model: str, *, same: bool
) -> None:
    problem = problem_of(Scenario(model=model, weights="native", engine=engine, gpu="h200-sxm"))
    layout = Layout(tensor=np.array([1, 2, 4]), pipeline=np.array([1, 2, 2]))
    bound = [[True, True, True], [False, True, False], [False, False, True]]
    assert connected(problem, layout).tolist() == (bound if same else [[True] * 3] * 3)
    found = apart(solve(problem))
    if found and same:
        assert found.prefill.tensor == found.decode.tensor or found.prefill.pipeline == 1
