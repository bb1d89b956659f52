"""The ladder of sizes, over a grid of scenarios: every step implies the ones before it."""

import re
from functools import cache
from itertools import pairwise, product
from math import inf, isinf

import numpy as np
import pytest

from parplan import Answer, Scenario, plan
from parplan.ladder import Rung
from parplan.planner import judged

QWEN, LLAMA, OSS = "Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b"
DEEPSEEK = "deepseek-ai/DeepSeek-V3.1"
TARGETS: tuple[dict[str, float], ...] = (
    {},
    {"tpot": 30, "ttft": 500},
    {"tpot": 40, "ttft": 1000},
    {"tpot": 15},
)
SCENARIOS = [
    Scenario(model=model, gpu=gpu, concurrency=concurrency, **targets)
    for model, gpu, concurrency, targets in product(
        (QWEN, LLAMA, OSS), ("mi300x", "a100-sxm-80", "h100-sxm", "l40s"), (1, 40, 128, 500), TARGETS
    )
]

OFFLINE = Scenario(model="Qwen/Qwen3-30B-A3B", gpu="h200-sxm", concurrency=1024, prompt=2048, output=256)
"""An example of the page."""
CHEAPER = re.compile(r", from ([\d.,]+) USD per hour")


def dollars(said: re.Match[str]) -> float:
    """The price that was said."""
    return float(said[1].replace(",", ""))


@cache
def answer(scenario: Scenario) -> Answer:
    return plan(scenario)


def rungs(scenario: Scenario) -> dict[str, Rung]:
    return {rung.name: rung for rung in answer(scenario).advice.ladder}


def named(scenario: Scenario) -> str:
    return f"{scenario.model.split('/')[1]}-{scenario.gpu}-{scenario.concurrency}-{scenario.tpot:g}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_every_step_implies_those_before_it(scenario: Scenario) -> None:
    """GPUs never fall; the price falls only where more GPUs are sold in other machines, and the step then says so, with
    the cheapest there is."""
    steps = answer(scenario).advice.ladder
    for rung, later in pairwise(steps):
        if later.plan is None:
            continue
        assert rung.plan is not None
        assert (rung.gpus or 0) <= (later.gpus or 0)
        if later.price < rung.price:
            assert (rung.gpus or 0) < (later.gpus or 0)
            assert rung.plan.gpus != later.plan.gpus
            said = CHEAPER.search(rung.note)
            assert said is not None
            assert dollars(said) <= round(later.price, 2)


@pytest.mark.parametrize("scenario", [OFFLINE, *SCENARIOS], ids=named)
def test_ladder_and_verdict_name_the_same_cheapest_replicas(scenario: Scenario) -> None:
    """Three times one GPU do the offline job for 13.41 USD per hour: nothing below recommends four for 17.88."""
    found = answer(scenario).advice
    below, job = CHEAPER.search(found.sharing), found.ladder[-2]
    said = CHEAPER.search(job.note)
    least = round(job.price, 2) if said is None else dollars(said)
    assert below is None or least <= dollars(below)
    assert below is not None or scenario != OFFLINE


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_the_replicas_of_a_step_do_what_it_says(scenario: Scenario) -> None:
    for name, rung in rungs(scenario).items():
        if rung.plan is None or name == "loads":
            continue
        each, counted_on = rung.plan.result.problem.workload.concurrency, rung.replicas - rung.spare
        assert counted_on * each >= scenario.concurrency > (counted_on - 1) * each
        assert rung.plan.holds
        assert rung.busy == pytest.approx(scenario.concurrency / each)
        if name != "holds":
            assert rung.plan.in_time


@pytest.mark.parametrize("scenario", SCENARIOS[:: len(TARGETS) + 1], ids=named)
def test_no_layout_does_it_with_fewer_gpus_to_buy(scenario: Scenario) -> None:
    """A second derivation: every layout with every number of replicas, tried one by one."""
    result = answer(scenario).result
    shares = np.unique([-(-scenario.concurrency // count) for count in range(1, scenario.concurrency + 1)])
    every = judged(result.problem, layout=result.layout, concurrency=shares)
    fits = result.legal[:, None] & (every.grid(every.memory.capacity) >= shares)
    found = rungs(scenario)
    for name, does in {"holds": fits, "meets targets": fits & every.timely}.items():
        if name not in found:
            continue
        needed = np.where(does, -(-scenario.concurrency // shares), 10**6).min(axis=1)
        bought = needed * result.bought
        rung = found[name]
        assert (rung.plan is None) == (not does.any())
        if rung.plan is not None:
            assert rung.index is not None
            ours = (rung.replicas - rung.spare) * result.bought[rung.index]
            assert bought.min() <= ours <= bought[result.wise].min(initial=10**6)


def test_one_more_than_the_asked_replicas_is_never_dearer_than_the_answer_without() -> None:
    """Qwen3-32B on MI300X for 128 requests: two GPUs with 64 each meet 30 ms and 500 ms, three survive a loss."""
    found = rungs(Scenario(model=QWEN, gpu="mi300x", concurrency=128, tpot=30, ttft=500))
    assert [rung.size for rung in found.values()] == [
        "1 GPU: TP1",
        "1 GPU: TP1",
        "2 GPUs: 2 × TP1",
        "3 GPUs: 3 × TP1",
    ]
    assert found["survives"].price == pytest.approx(1.5 * found["meets targets"].price)


def test_where_a_machine_holds_several_replicas_the_loss_of_them_all_is_made_up_for() -> None:
    """Qwen3-VL as TP2 on H200 takes two replicas for 64 requests; in two machines of 8, either has to run two."""
    asked = Scenario(model="Qwen/Qwen3-VL-235B-A22B-Instruct", gpu="h200-sxm")
    last = rungs(asked)["survives"]
    assert (last.layout, last.spare) == ("3 × TP2", 1)
    assert (last.purchases[0].count, last.purchases[0].instance.gpus) == (2, 8)
    assert last.note.endswith("where one machine holds several: 4 in 2 machines of 8.")
    assert "whichever" not in rungs(Scenario())["survives"].note


def test_what_survives_a_loss_meets_the_targets_before_it() -> None:
    """Qwen3-32B on A100 for 256 requests: no single replica of up to eight GPUs is fast enough, several are."""
    asked = Scenario(model=QWEN, gpu="a100-sxm-80", concurrency=256, tpot=40, ttft=1000)
    assert not (answer(asked).result.holds & answer(asked).result.in_time).any()
    found = rungs(asked)
    assert found["meets targets"].plan
    assert found["meets targets"].replicas > 1
    assert "Replicas that share the requests do it" in answer(asked).advice.sharing


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_the_verdict_says_so_where_replicas_are_cheaper_than_its_one(scenario: Scenario) -> None:
    advice = answer(scenario).advice
    steps = [rung for rung in advice.ladder[1:-1] if rung.plan]
    if advice.recommended is None or not steps or len(steps) < len(advice.ladder) - 2:
        assert not advice.sharing
        return
    alone = next((float(p.price) for p in advice.purchases if p.price is not None), inf)
    does = advice.recommended.holds and advice.recommended.in_time
    job = steps[-1]
    if job.replicas > 1 and (not does or job.price < alone):
        assert advice.sharing
    if advice.sharing and does and not isinf(alone):
        assert f"instead of {alone:,.2f}" in advice.sharing
    if not advice.sharing:
        assert does
        assert alone <= job.price
