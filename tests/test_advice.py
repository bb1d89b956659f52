"""The answers a good engineer would give, on the examples people argue about."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from parplan import Answer, Scenario, catalog, plan
from parplan.advice import per_token, reasons
from parplan.balance import balance
from parplan.choice import candidates, outdone_by, why_unwise
from parplan.layout import Layout
from parplan.planner import Plan
from parplan.units import GIB, written_time
from parplan.ways_out import ways_out
from parplan.work import experts_held
from parplan.workload import OBJECTIVES

LLAMA, BIG_LLAMA, DEEPSEEK = (
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Meta-Llama-3.1-405B",
    "deepseek-ai/DeepSeek-V3.1",
)


def found(answer: Answer, layout: Layout) -> Plan:
    result = answer.result
    return next(result.plan(i) for i in range(result.shape[0]) if result.layout.one(i) == layout)


class TestDense70B:
    """70B in FP8 is about 70 GB: one H100 holds it, two serve a busy batch, four are faster."""

    answer = plan(Scenario(model=LLAMA, weights="fp8", gpu="h100-sxm", concurrency=64))

    def test_one_gpu_loads_it_and_has_little_left(self) -> None:
        one = found(self.answer, Layout())
        assert one.legal
        assert not one.holds
        assert 65 < float(one.memory.weights) / GIB < 69
        assert float(one.memory.pool) < 0.1 * one.memory.usable

    def test_two_are_recommended_for_a_busy_batch(self) -> None:
        recommended = self.answer.advice.recommended
        assert recommended is not None
        assert recommended.layout == Layout(tensor=2)
        assert self.answer.advice.napkin.gpus == 2

    def test_four_give_more_kv_and_lower_latency(self) -> None:
        two, four = found(self.answer, Layout(tensor=2)), found(self.answer, Layout(tensor=4))
        assert float(four.memory.kv_tokens) > 2 * float(two.memory.kv_tokens)
        assert float(four.serving.tpot) < float(two.serving.tpot)
        assert any("TP4" in line for line in self.answer.advice.alternatives)

    def test_a_tighter_target_asks_for_four(self) -> None:
        two, four = (float(found(self.answer, Layout(tensor=t)).serving.tpot) * 1000 for t in (2, 4))
        asked = plan(Scenario(model=LLAMA, weights="fp8", gpu="h100-sxm", tpot=(two + four) / 2))
        assert asked.advice.recommended is not None
        assert asked.advice.recommended.layout == Layout(tensor=4)

    def test_pipeline_is_not_suggested_inside_one_node(self) -> None:
        for concurrency in (1, 8, 64, 256, 1024):
            answer = plan(
                Scenario(model=LLAMA, weights="fp8", gpu="h100-sxm", concurrency=concurrency, budget=8)
            )
            assert answer.advice.recommended is not None
            assert answer.advice.recommended.layout.pipeline == 1


class TestDense405B:
    """405B: one node in FP8, two nodes in BF16."""

    def test_fp8_fits_one_node_with_50_gb_each(self) -> None:
        answer = plan(Scenario(model=BIG_LLAMA, weights="fp8", gpu="h100-sxm", concurrency=16))
        recommended = answer.advice.recommended
        assert recommended is not None
        assert recommended.layout == Layout(tensor=8)
        assert float(recommended.memory.weights) / 1e9 == pytest.approx(51.3, abs=1.5)
        assert recommended.memory.pool > 0

    def test_bf16_is_tp8_times_pp2_and_the_stretched_tp16_has_its_price(self) -> None:
        answer = plan(Scenario(model=BIG_LLAMA, weights="bf16", gpu="h100-sxm", concurrency=16))
        recommended = answer.advice.recommended
        assert recommended is not None
        assert recommended.layout == Layout(tensor=8, pipeline=2)
        stretched = found(answer, Layout(tensor=16))
        assert any(o.rule == "tensor-spans" for o in stretched.objections)
        assert stretched.serving.decode.all_reduce > 2 * recommended.serving.decode.all_reduce
        assert any("TP16" in line for line in answer.advice.reasons)
        assert not found(answer, Layout(tensor=8)).legal


class TestDeepSeek:
    """671B in FP8 on B200: one cannot load it, four have no room for KV, eight are sensible."""

    answer = plan(
        Scenario(model=DEEPSEEK, weights="native", gpu="b200-sxm", concurrency=64, prompt=4096, output=1024)
    )

    def test_one_cannot_load_it(self) -> None:
        one = found(self.answer, Layout())
        assert [o.rule for o in one.objections if o.severity == "error"] == ["weights"]

    def test_four_hold_the_weights_but_no_useful_kv(self) -> None:
        for layout in (Layout(tensor=4), Layout(tensor=4, expert=4), Layout(data=4, expert=4)):
            four = found(self.answer, layout)
            assert float(four.memory.weights) < four.memory.usable
            assert not four.holds

    def test_eight_are_the_smallest_sensible_size(self) -> None:
        holds = {rung.name: rung for rung in self.answer.advice.ladder}["holds"]
        assert holds.plan is not None
        assert holds.plan.gpus == 8
        assert holds.purchases[0].gpus == 8


def test_128_experts_over_8_groups_are_16_whole_ones_each() -> None:
    experts = next(b.experts for b in catalog.model("Qwen/Qwen3-235B-A22B").transformer.blocks if b.experts)
    assert experts.count == 128
    assert float(experts_held(experts, layout=Layout(tensor=8, expert=8))) == 16
    assert (
        float(experts_held(experts, layout=Layout(tensor=8))) == 16
    )  # the same bytes, each expert cut 8 ways


def test_over_two_nodes_tp8pp2_is_faster_for_a_user_and_ep16_makes_more_tokens() -> None:
    answer = plan(Scenario(model=DEEPSEEK, weights="native", gpu="h100-sxm", concurrency=16, budget=16))
    result = answer.result
    index = {str(result.layout.one(i)): i for i in range(result.shape[0])}
    piped, spread = index["TP8 PP2"], index["DP16 EP16"]
    tpot, rate = result.grid(result.serving.tpot), result.grid(result.serving.tokens_per_s)
    low = result.concurrency <= 16
    assert (tpot[piped, low] < tpot[spread, low]).all()
    assert rate[spread].max() > rate[piped].max()
    assert any("TP8 PP2" in line and "DP16 EP16" in line for line in answer.advice.reasons)


def test_if_one_gpu_meets_the_targets_the_advice_is_to_stop() -> None:
    answer = plan(
        Scenario(model="meta-llama/Meta-Llama-3.1-8B", weights="bf16", concurrency=16, tpot=30, ttft=1000)
    )
    assert answer.advice.recommended is not None
    assert answer.advice.recommended.gpus == 1
    assert any("stop here" in line and "replicas" in line for line in answer.advice.reasons)


def test_targets_nothing_meets_are_said_to_be_missed() -> None:
    answer = plan(Scenario(model=LLAMA, tpot=0.1))
    assert answer.advice.recommended is not None
    assert not answer.advice.recommended.in_time
    assert "meets the targets" in answer.advice.verdict
    assert "100 µs per token is asked for" in answer.advice.shortfall
    assert [rung.name for rung in answer.advice.ladder if rung.plan is None] == ["meets targets", "survives"]


@pytest.mark.parametrize("objective", ["cost", "throughput", "latency"])
def test_a_way_out_is_what_one_finds_behind_it(objective: str) -> None:
    scenario = Scenario(
        model="openai/gpt-oss-120b", gpu="h100-sxm", budget=2, concurrency=2048, objective=objective
    )
    ways = ways_out(plan(scenario))
    assert ways
    for way in ways:
        recommended = plan(way.scenario).advice.recommended
        assert recommended
        assert recommended.layout == way.plan.layout


def test_nothing_is_a_dead_end() -> None:
    """405B in BF16 on one L4 node: it is said what is missing, and each way out really works."""
    scenario = Scenario(model=BIG_LLAMA, weights="bf16", gpu="l4", budget=8)
    answer = plan(scenario)
    assert answer.advice.recommended is None
    assert "does not run" in answer.advice.verdict
    assert "leave nothing for KV" in answer.advice.shortfall
    ways = ways_out(answer)
    assert ways
    for way in ways:
        recommended = plan(way.scenario).advice.recommended
        assert recommended is not None
        assert recommended.holds


LATE = [
    Scenario(tpot=5, ttft=50),
    Scenario(ttft=110),
    Scenario(model=BIG_LLAMA, weights="fp8", concurrency=16, budget=8, tpot=21),
    Scenario(tensor=2, tpot=15),
    Scenario(gpu="mi300x", tpot=0.1),
]


@pytest.mark.parametrize("scenario", LATE, ids=lambda scenario: str(scenario.changed()))
def test_a_missed_target_is_no_dead_end(scenario: Scenario) -> None:
    """Every way out meets the targets it has; one of them is what the nearest layout takes."""
    answer = plan(scenario)
    best = answer.advice.recommended
    assert best is not None
    assert best.holds
    assert not best.in_time
    ways = ways_out(answer)
    for way in ways:
        recommended = plan(way.scenario).advice.recommended
        assert recommended is not None
        assert recommended.does_job
        assert recommended.layout == way.plan.layout
    (looser,) = (way for way in ways if way.words.startswith("allow") and " ms " in way.words)
    for name in ("tpot", "ttft"):
        asked, allowed = getattr(scenario, name), getattr(looser.scenario, name)
        taken = float(getattr(best.serving, name)) * 1000
        missed = 0 < asked < taken
        assert missed == (allowed != asked)
        if missed:
            assert taken <= allowed <= 1.01 * taken
            assert f"{allowed:g} ms" in looser.words


def test_other_ways_to_be_in_time() -> None:
    """Fewer requests, four bits, more GPUs or quicker ones; drafts where the time per token is what is missed."""

    def words(scenario: Scenario) -> str:
        return " ".join(way.words for way in ways_out(plan(scenario)))

    first = words(LATE[1])
    assert "requests in hand" in first
    assert "4 bits" in first
    assert "up to 16 GPUs" in first
    assert "use H200" in first
    assert "draft" not in first
    assert "draft 3 tokens" in words(LATE[2])
    assert "draft" not in words(LATE[2].model_copy(update={"draft": 2}))


def test_a_fixed_cut_gives_way_to_one_in_time() -> None:
    scenario = Scenario(tensor=2, pipeline=1, tpot=25)
    (way,) = (way for way in ways_out(plan(scenario)) if "instead of TP2" in way.words)
    assert way.scenario.tensor > 2
    assert way.plan.does_job


def test_a_larger_request_count_is_never_offered_as_fewer() -> None:
    """Not where the recommended layout has room for more either, and does the job."""
    for scenario in (*LATE, Scenario()):
        assert all(way.scenario.concurrency <= scenario.concurrency for way in ways_out(plan(scenario)))


def test_the_candidates_to_draw_include_the_recommended_and_a_failing_one() -> None:
    answer = plan(Scenario(model=BIG_LLAMA, weights="fp8", gpu="h100-sxm", concurrency=16))
    drawn = candidates(answer.result)
    assert answer.advice.recommended is not None
    assert answer.advice.recommended.index in drawn
    assert np.any(~answer.result.legal[list(drawn)])
    assert len(drawn) <= 8


def test_the_ladder_never_goes_down() -> None:
    """What does more is never smaller; `test_ladder` has the whole law."""
    for model in (LLAMA, BIG_LLAMA, DEEPSEEK):
        answer = plan(Scenario(model=model, weights="fp8", gpu="h200-sxm", tpot=40, budget=64))
        sizes = [rung.gpus for rung in answer.advice.ladder if rung.gpus]
        assert sizes == sorted(sizes)


@pytest.mark.parametrize("targets", [{}, {"tpot": 40}], ids=["held", "in time"])
@pytest.mark.parametrize("model", [LLAMA, BIG_LLAMA, DEEPSEEK])
def test_a_lost_machine_leaves_enough(model: str, targets: dict[str, float]) -> None:
    """On every machine on offer: what is left without one of them still holds and serves every request in time."""
    answer = plan(Scenario(model=model, weights="fp8", gpu="h200-sxm", concurrency=192, **targets))
    rung = answer.advice.ladder[-1]
    assert rung.name == "survives"
    assert rung.plan
    assert rung.plan.in_time
    assert rung.gpus == rung.plan.gpus * rung.replicas
    on = rung.replicas - 1
    assert on * int(rung.plan.memory.capacity) >= 192
    assert rung.tokens_per_s == pytest.approx(on * float(rung.plan.serving.tokens_per_s))
    for bought in rung.purchases:
        size = bought.instance.gpus
        each = size // rung.plan.gpus
        left = (bought.count - 1) * each if each else (bought.count - 1) // -(-rung.plan.gpus // size)
        assert left >= on
        assert bought.gpus >= (rung.gpus or 0)


def test_a_spare_for_two_nodes_is_three_where_one_holds_half() -> None:
    """405B in FP8 needs two nodes for 256 requests at once, but one node holds 128: three of them survive a loss."""
    ladder = {r.name: r for r in plan(Scenario(model=BIG_LLAMA, concurrency=256)).advice.ladder}
    assert (ladder["holds"].gpus, ladder["survives"].gpus) == (16, 24)
    assert ladder["survives"].layout == "3 × TP8"


@pytest.mark.parametrize(
    ("scenario", "napkin", "full", "words"),
    [
        (
            Scenario(model="Qwen/Qwen3-4B", gpu="rtx-4090", concurrency=4),
            1,
            1,
            "1 GPU, as many as the full answer",
        ),
        (
            Scenario(ttft=500, tpot=30),
            2,
            4,
            "2 GPUs hold every request (TP2): 31 ms per token, 170 ms to the first: too slow for the targets. "
            "The full answer is 4.",
        ),
        (
            Scenario(model="openai/gpt-oss-120b", weights="native"),
            1,
            2,
            "On 1 GPU, TP1: it holds 24 of 64 requests (2.4 GiB for KV). Each GPU loses 11.4 GiB to activations",
        ),
        (
            Scenario(model=BIG_LLAMA, weights="bf16", concurrency=32, budget=16),
            10,
            16,
            "No cut into 10 is tried; the next is 12. 12 GPUs would do (TP4 PP3); sold in machines of 8, they are 16.",
        ),
        (Scenario(tpot=1), 2, 8, "2 GPUs hold every request; none that was tried meets the targets"),
    ],
    ids=["alike", "targets", "overhead", "whole machines", "no target met"],
)
def test_why_the_napkin_and_the_full_answer_differ(
    scenario: Scenario, napkin: int, full: int, words: str
) -> None:
    advice = plan(scenario).advice
    assert advice.recommended
    assert (advice.napkin.gpus, advice.recommended.gpus) == (napkin, full)
    assert words in advice.napkin_note


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (
            Scenario(gpu="t4", concurrency=4096, prompt=2_000_000),
            "171,796 GPUs, more than the 16 GPUs one replica may use.",
        ),
        (Scenario(tensor=3), "On 3 GPUs, TP3: 64 attention heads do not divide over 3 tensor ranks."),
        (Scenario(concurrency=120, budget=2), "On 2 GPUs, TP2: it holds 112 of 120 requests"),
    ],
    ids=["far too much", "impossible cut", "overhead"],
)
def test_the_napkin_is_answered_where_nothing_holds_all_requests(scenario: Scenario, words: str) -> None:
    assert words in plan(scenario).advice.napkin_note


@pytest.mark.parametrize("gpu", ["h100-sxm", "l40s", "mi300x"])
@pytest.mark.parametrize(
    "model",
    [LLAMA, DEEPSEEK, "openai/gpt-oss-120b", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"],
)
@pytest.mark.parametrize(
    "more", [{}, {"engine": "ideal", "concurrency": 300}, {"prompt": 30_000, "concurrency": 9}], ids=str
)
def test_no_layout_does_with_fewer_gpus_than_the_napkin_says(
    gpu: str, model: str, more: dict[str, object]
) -> None:
    answer = plan(Scenario(model=model, gpu=gpu, **more))
    assert (answer.result.gpus[answer.result.holds] >= answer.advice.napkin.gpus).all()


def test_a_size_of_the_ladder_says_that_fewer_would_do_where_machines_are_sold_whole() -> None:
    big = plan(Scenario(model=BIG_LLAMA, weights="bf16", concurrency=32, budget=16))
    notes = {rung.name: rung.note for rung in big.advice.ladder}
    assert notes["holds"] == "12 GPUs would do (TP4 PP3); sold in machines of 8, they are 16."
    assert found(big, Layout(tensor=4, pipeline=3)).holds
    assert not (big.result.holds & (big.result.gpus < 12)).any()
    split = plan(
        Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", concurrency=256, prompt=4096, budget=16)
    )
    notes = {rung.name: rung.note for rung in split.advice.ladder}
    assert notes["loads"].startswith("6 GPUs would do (")
    assert notes["loads"].endswith("; sold in machines of 1, 2, 4 or 8, they are 8.")
    assert not notes["holds"]
    assert not any(rung.note for rung in plan(Scenario()).advice.ladder)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(model="Qwen/Qwen3-VL-235B-A22B-Instruct", gpu="h200-sxm"),
        Scenario(
            model="moonshotai/Kimi-K3",
            gpu="gb200-nvl72",
            engine="trtllm",
            objective="throughput",
            concurrency=400,
        ),
    ],
    ids=["cost", "throughput"],
)
def test_a_better_layout_that_is_not_recommended_counts_the_same_way_everywhere(scenario: Scenario) -> None:
    """Two GPUs instead of four would do with stages, or twelve deliver more each than sixteen. What is recommended is
    the best only among layouts without; Why names the others with the objection, as the ladder does."""
    answer = plan(scenario)
    best = answer.advice.recommended
    assert best is not None
    better = outdone_by(answer.result, index=best.index)
    assert better is not None
    other = answer.result.plan(better)
    assert other.layout.pipeline > 1
    chosen = OBJECTIVES[answer.result.problem.objective]
    assert f"{chosen} without stages inside one fast domain: " in answer.verdict
    why = " ".join(answer.advice.reasons)
    assert re.search(rf"\b{other.layout} on |\({other.layout}\): ", why)
    assert f"not recommended. {why_unwise(other)}" in why
    assert "does not do" not in why
    assert any(f"not be recommended. {why_unwise(other)}" in rung.note for rung in answer.advice.ladder)


def test_where_not_one_request_fits_the_longest_that_does_is_said() -> None:
    scenario = Scenario(model=LLAMA, prompt=100_000, output=1, budget=1)
    answer = plan(scenario)
    assert answer.advice.recommended is None
    most = int(answer.advice.shortfall.partition("one of up to ")[2].split()[0].replace(",", ""))
    assert 1000 < most < 100_000
    fits, fails = (
        plan(scenario.model_copy(update={"prompt": length - 1, "concurrency": 1}))
        for length in (most, most + 1)
    )
    assert fits.advice.recommended
    assert fails.advice.recommended is None


def said(answer: Answer) -> str:
    return " ".join(answer.advice.reasons)


def test_one_gpu_is_only_praised_where_one_is_recommended() -> None:
    small = Scenario(model="meta-llama/Meta-Llama-3.1-8B", weights="bf16", concurrency=16)
    assert "stop here" in said(plan(small))
    assert "stop here" not in said(plan(small.model_copy(update={"tensor": 8})))
    assert "stop here" not in said(plan(Scenario(budget=1)))  # requests wait
    assert "stop here" not in said(plan(small.model_copy(update={"gpu": "l4", "tpot": 1})))  # too slow


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"concurrency": 80}, "8 × H100 SXM 80 GB (4 × TP2) serve 320 requests at once"),
        ({"concurrency": 80, "tensor": 2}, "8 × H100 SXM 80 GB (4 × TP2) serve 320 requests at once"),
        ({"model": "Qwen/Qwen3-8B"}, "4 × H100 SXM 80 GB (4 × TP1) serve 256 requests at once"),
        (
            {"concurrency": 80, "tpot": 1},
            "up to 8 GPUs per replica meets the targets; 32 × H100 SXM 80 GB (4 × TP8)",
        ),
    ],
    ids=["best", "fixed", "one GPU each", "too slow"],
)
def test_the_verdict_counts_all_replicas(asked: dict[str, Any], words: str) -> None:
    """Four copies are four times the GPUs and the requests, at the same times."""
    four, one = (plan(Scenario(**asked, replicas=copies)).advice for copies in (4, 1))
    assert words in four.verdict
    assert four.verdict.rpartition(": ")[2] == one.verdict.rpartition(": ")[2] or "tpot" in asked
    assert "4 × TP" not in one.verdict
    assert "per replica" not in f"{one.verdict} {one.shortfall} {' '.join(one.reasons + one.alternatives)}"


def test_replicas_that_hold_too_few_hold_as_much_each() -> None:
    small = Scenario(budget=2, concurrency=1000)
    four, one = plan(small.model_copy(update={"replicas": 4})), plan(small)
    best = one.advice.recommended
    assert best is not None
    each = int(best.memory.capacity)
    assert f"holds {each} of 1,000 requests" in one.advice.verdict
    assert f"8 × H100 SXM 80 GB (4 × {best.layout}) holds {4 * each} of 4,000 requests" in four.advice.verdict
    assert f"{-(-4000 // each)} replicas of {best.layout} hold them" in four.advice.shortfall


def test_load_is_for_replicas() -> None:
    """8B on eight GPUs by order: copies deliver more, and it is said; on the one it needs there is nothing to say."""
    small = Scenario(model="meta-llama/Meta-Llama-3.1-8B", weights="bf16", concurrency=256)
    wide = plan(small.model_copy(update={"objective": "latency"}))
    assert "replicas of TP" in said(wide)
    assert "does not raise throughput" in said(wide)
    assert "replicas of TP" not in said(plan(small.model_copy(update={"gpu": "b200-sxm"})))
    waiting = plan(small.model_copy(update={"budget": 1, "gpu": "l4", "concurrency": 64})).advice
    assert waiting.recommended
    held = int(waiting.recommended.memory.capacity)
    assert f"{-(-64 // held)} replicas of" in waiting.shortfall


def test_two_nodes_are_spoken_of_where_two_are_used() -> None:
    over = Scenario(model=DEEPSEEK, weights="native", gpu="h100-sxm", concurrency=16)
    assert "Over two nodes" in said(plan(over))
    assert "Over two nodes" not in said(plan(over.model_copy(update={"gpu": "b200-sxm", "budget": 64})))
    assert "Over two nodes" not in said(
        plan(Scenario(model=BIG_LLAMA, weights="bf16", concurrency=16))
    )  # dense
    small = Scenario(model="openai/gpt-oss-120b", weights="native", budget=64)
    assert "Over two nodes" not in said(plan(small))


def test_cut_attention_with_whole_experts_is_set_against_both_pure_cuts() -> None:
    asked = Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", engine="sglang", concurrency=256)
    answer = plan(asked)
    recommended = answer.advice.recommended
    assert recommended
    assert recommended.layout == Layout(tensor=8, expert=8)
    line = next(line for line in answer.advice.reasons if "attention cut, experts whole" in line)
    assert "TP8 gives" in line
    assert "DP8 EP8 gives" in line
    busy = plan(asked.model_copy(update={"concurrency": 1536}))
    assert busy.advice.recommended
    assert busy.advice.recommended.layout == Layout(data=8, expert=8)
    assert "experts whole" not in said(busy)
    assert "experts whole" not in said(plan(Scenario()))


def test_context_parallelism_is_explained_where_it_is_used() -> None:
    """It shortens the first token of a huge prompt; no engine of the catalogue has it yet, the bound has."""
    huge = Scenario(engine="ideal", prompt=120_000, output=64, concurrency=1, tensor=8, context=4, budget=32)
    answer = plan(huge)
    assert answer.advice.recommended
    assert answer.advice.recommended.layout.context == 4
    assert "cut 4 ways along the sequence" in said(answer)
    assert "along the sequence" not in said(plan(huge.model_copy(update={"context": 0, "prompt": 1024})))


def test_fixed_cuts_are_what_limits() -> None:
    fixed = plan(Scenario(tensor=2, tpot=10)).advice
    assert "with the cuts you fixed meets the targets" in fixed.verdict
    assert "with the cuts you fixed holds them all" in plan(Scenario(tensor=1, pipeline=1)).advice.shortfall


@pytest.mark.parametrize("budget", [1, 2], ids=["nothing runs", "one request held"])
def test_requests_longer_than_the_model_was_made_for_are_spoken_of_below_the_verdict(budget: int) -> None:
    words = "Requests of 131,073 tokens exceed the 131,072 the model was made for"
    asked = Scenario(model=LLAMA, prompt=130_049, concurrency=1, budget=budget)
    assert words in plan(asked).advice.shortfall
    assert "made for" not in plan(asked.model_copy(update={"prompt": 130_048})).advice.shortfall


def test_one_request_is_not_spoken_of_as_several() -> None:
    answer = plan(Scenario(model=LLAMA, prompt=200_000, concurrency=1))
    assert "hold 1 request of 201,024 tokens" in said(answer)


def test_the_layout_drawn_is_the_one_named_as_nearest() -> None:
    answer = plan(Scenario(model=LLAMA, tensor=3))
    (drawn,) = candidates(answer.result)
    nearest = answer.result.plan(drawn)
    assert f"{nearest.layout} comes nearest" in answer.advice.shortfall
    assert nearest.layout == Layout(tensor=3)
    shown = balance(answer.result.problem, nearest)
    assert "does not come up" in shown.sums
    assert not shown.holds


def test_stages_inside_a_rack_are_only_recommended_where_nothing_else_does_the_job() -> None:
    """Kimi-K3 on twelve GPUs of an NVL72 rack runs without stages too; with eight requests stages look faster."""
    answer = plan(Scenario(model="moonshotai/Kimi-K3", gpu="gb200-nvl72", concurrency=8))
    best, result = answer.advice.recommended, answer.result
    assert best
    assert (best.gpus, best.layout.pipeline) == (12, 1)
    flat = result.holds & (result.layout.pipeline == 1) & (result.gpus == best.gpus)
    assert flat.any()
    assert any("sit inside one fast domain" in reason for reason in answer.advice.reasons)


KIMI = "moonshotai/Kimi-K2-Instruct-0905"


def of_those_that_run(answer: Answer, sentence: str) -> None:
    """Every layout a sentence gives times of runs all requests, or the sentence says how many it runs."""
    result = answer.result
    asked = answer.scenario.concurrency
    for part in sentence.split(";"):
        named = [
            index for index in np.flatnonzero(result.legal).tolist()
            if re.search(rf"(?<![A-Z0-9] ){re.escape(str(result.layout.one(index)))}(?! [A-Z]+\d)", part)
        ]  # fmt: skip
        for index in named:
            plan_of = result.plan(index)
            said = f"{plan_of.most:,} of {asked:,} requests at once" in part
            assert said == (not plan_of.holds), part


@pytest.mark.parametrize(
    ("scenario", "begins"),
    [
        (Scenario(model=KIMI, gpu="h200-sxm"), "TP8 EP8 DCP8 gives"),
        (Scenario(model=DEEPSEEK, gpu="h200-sxm", concurrency=512, prompt=8000), "TP8 EP8 DCP8 gives"),
        (Scenario(model=DEEPSEEK, gpu="h100-sxm"), "Over two nodes"),
        (Scenario(model=KIMI, gpu="h100-sxm", engine="sglang"), "Stretching"),
        (Scenario(model=KIMI, gpu="h100-sxm", engine="trtllm", concurrency=1024), "Stretching"),
        (Scenario(model=BIG_LLAMA, weights="bf16", gpu="h100-sxm"), "Stretching"),
    ],
)
def test_times_of_layouts_that_run_only_some_requests_are_said_to_be_of_those(
    scenario: Scenario, begins: str
) -> None:
    answer = plan(scenario)
    (sentence,) = [one for one in answer.advice.reasons if one.startswith(begins)]
    of_those_that_run(answer, sentence)


def test_waiting_for_room_is_not_laid_at_a_layouts_door() -> None:
    """TP16 of Kimi-K2 on 16 H100 has room for 9 of the 64 requests: two minutes to the first are of the queue."""
    answer = plan(Scenario(model=KIMI, gpu="h100-sxm", engine="sglang"))
    stretched = found(answer, Layout(tensor=16))
    assert float(stretched.serving.queued) > 0.9 * float(stretched.serving.ttft) > 10
    sentence = next(one for one in answer.advice.reasons if one.startswith("Stretching"))
    assert "to the first" not in sentence
    assert "the others wait" in sentence


def test_what_a_cut_of_the_prompt_gains_is_held_against_the_prompt_alone() -> None:
    """Without waiting, which has to do with room."""
    answer = plan(
        Scenario(model=LLAMA, engine="ideal", prompt=100_000, output=500, concurrency=8, context=2, budget=16)
    )
    free = plan(answer.scenario.model_copy(update={"context": 0}))
    cut = next(
        free.result.plan(index)
        for index in np.flatnonzero(free.result.legal & (free.result.layout.context == 2)).tolist()
        if free.result.layout.one(index) == answer.advice.recommended.layout  # type: ignore[union-attr]
    )
    (sentence,) = [one for one in reasons(free.result, cut) if "along the sequence" in one]
    whole = found(free, dataclasses.replace(cut.layout, context=1))
    assert written_time(float(whole.serving.ttft - whole.serving.queued)) in sentence
    assert ("at once" in sentence) == (not whole.holds)


def test_the_next_sizes_say_how_many_they_run_where_that_is_not_all() -> None:
    answer = plan(Scenario(weights="bf16", concurrency=2000, budget=32))
    best = answer.advice.recommended
    assert best
    for sentence in answer.advice.alternatives:
        of_those_that_run(answer, sentence.rpartition("; holds")[0] or sentence)


@pytest.mark.parametrize("targets", [{}, {"tpot": 5}, {"ttft": 20_000, "tpot": 5}], ids=str)
def test_where_a_request_has_one_token_there_is_no_time_per_token(targets: dict[str, float]) -> None:
    """A target for the second token asks for nothing then."""
    answer = plan(Scenario(output=1, concurrency=8, **targets))
    best = answer.advice.recommended
    assert best
    assert best.in_time
    assert f"{written_time(float(best.serving.ttft))} to the only token" in answer.advice.verdict
    words = (answer.advice.verdict, *answer.advice.reasons, *answer.advice.alternatives)
    assert not any("per token" in line for line in words)
    assert per_token(best) == "none"
    assert "per token, " in plan(Scenario(output=2, concurrency=8)).advice.verdict


def test_one_gpu_holds_and_two_hold() -> None:
    one = plan(Scenario(model="Qwen/Qwen3-8B", concurrency=40, tpot=0.01)).advice.napkin_note
    assert "1 GPU holds every request; none" in one
    assert "2 GPUs hold every request; none" in plan(Scenario(tpot=1)).advice.napkin_note
