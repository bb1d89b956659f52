"""Requests run at once while there is cache and a sequence slot for each; slots follow the requests asked for."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parplan import Answer, Scenario, catalog, plan
from parplan.commands import DIALECTS, launch
from parplan.layout import Layout
from parplan.memory import Settings, limits
from parplan.objections import slots_flag
from parplan.planner import Plan, evaluate
from parplan.scenario import problem_of
from parplan.ways_out import ways_out
from parplan.whatif import sensitivity, winner, winner_map

LLAMA, HYBRID, DEEPSEEK = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3.5-35B-A3B", "deepseek-ai/DeepSeek-V3.1"
ENGINES = ("vllm", "vllm-0.17", "vllm-0.16", "sglang", "trtllm", "ideal")


def best(answer: Answer) -> Plan:
    """What is recommended; something is."""
    assert answer.advice.recommended
    return answer.advice.recommended


def told(answer: Answer, flag: str) -> int | None:
    """What the command of the recommended layout gives a flag. None: nothing."""
    found = best(answer)
    problem = answer.result.problem
    start = launch(problem, layout=found.layout, memory=found.memory, engine_name=problem.engine.name)
    values = re.findall(rf"{flag} (\d+)", start.commands[0])
    return int(values[0]) if values else None


@settings(deadline=None, max_examples=25)
@given(
    model=st.sampled_from([LLAMA, HYBRID, DEEPSEEK, "ai21labs/Jamba-v0.1"]),
    engine=st.sampled_from(ENGINES),
    gpu=st.sampled_from(["h100-sxm", "a100-sxm-80", "l4"]),
    concurrency=st.sampled_from([1, 64, 257, 1025, 4096]),
    slots=st.sampled_from([0, 16, 512]),
    objective=st.sampled_from(["cost", "throughput", "latency"]),
)
def test_what_is_said_to_hold_all_requests_lets_none_wait(
    model: str, engine: str, gpu: str, concurrency: int, slots: int, objective: str
) -> None:
    scenario = Scenario(
        model=model, engine=engine, gpu=gpu, concurrency=concurrency, slots=slots, objective=objective
    )
    result = plan(scenario).result
    waiting = result.grid(result.serving.waiting)
    np.testing.assert_array_equal(result.possible, result.legal[:, None] & (waiting == 0))
    np.testing.assert_array_equal(result.holds, result.legal & (result.at_asked(result.serving.waiting) == 0))
    short = result.legal & ~result.holds
    np.testing.assert_array_equal(short, result.legal & result.warnings["waits"])


@pytest.mark.parametrize("engine", DIALECTS)
@pytest.mark.parametrize(
    ("gpu", "concurrency"), [("h100-sxm", 4096), ("h200-sxm", 2049), ("a100-sxm-80", 257)]
)
def test_slots_are_never_what_is_short_where_nobody_set_them(engine: str, gpu: str, concurrency: int) -> None:
    """They are a flag away: the command sets as many as are asked for, and only where the default has fewer."""
    answer = plan(
        Scenario(model="meta-llama/Llama-3.2-1B-Instruct", engine=engine, gpu=gpu, concurrency=concurrency, kv="fp8")
    )  # fmt: skip
    found = best(answer)
    assert found.holds
    assert (answer.result.at_asked(answer.result.memory.slots)[answer.result.holds] >= concurrency).all()
    default = plan(answer.scenario.model_copy(update={"concurrency": 1})).result.memory.slots
    flag = slots_flag(answer.result.problem.engine).strip(" ()")
    assert flag
    assert told(answer, flag) == (concurrency if np.max(default) < concurrency else None)
    reasons = " ".join(answer.advice.reasons)
    assert (flag in reasons) == bool(told(answer, flag))


def test_slots_asked_for_are_spread_over_data_ranks() -> None:
    """DeepSeek on 16 GPUs as DP16 with 4,096 requests: 256 on each, which the default of 1,024 has."""
    problem = problem_of(Scenario(model=DEEPSEEK, gpu="h200-sxm", concurrency=4096))
    for data, slots in ((1, 4096), (2, 2048), (4, 1024), (16, 1024)):
        found = limits(
            problem.settings,
            profile=problem.engine.memory,
            gpu=problem.gpu,
            layout=Layout(data=data, expert=data),
            length=2048,
        )
        assert found.sequences == slots


def test_more_slots_take_memory_of_their_own() -> None:
    """What the sampler keeps grows with the slots, so asking for more never leaves more cache."""
    roomy = Scenario(model="meta-llama/Llama-3.2-1B-Instruct", gpu="h200-sxm", kv="fp8", tensor=4)
    found = [best(plan(roomy.model_copy(update={"concurrency": count}))) for count in (64, 1024, 2048, 4096)]
    assert all(one.holds for one in found)
    free = [float(one.memory.pool) for one in found]
    assert free[0] == free[1] > free[2] > free[3]


@pytest.mark.parametrize("gpu", ["a100-sxm-80", "l4"])
def test_vllm_is_never_told_more_slots_than_tokens_of_a_step(gpu: str) -> None:
    """It refuses to start so; 2,048 tokens are its default here."""
    answer = plan(
        Scenario(model="HuggingFaceTB/SmolLM2-135M", gpu=gpu, concurrency=3000, kv="fp8", budget=64)
    )
    assert told(answer, "--max-num-seqs") == 3000
    assert told(answer, "--max-num-batched-tokens") == 3000
    other = plan(answer.scenario.model_copy(update={"engine": "sglang"}))
    assert told(other, "--max-running-requests") == 3000
    assert told(other, "--chunked-prefill-size") is None
    both = plan(answer.scenario.model_copy(update={"slots": 512, "step_tokens": 256}))
    assert both.advice.recommended is None
    assert "refuses to start" in both.advice.shortfall


def test_a_step_the_user_set_bounds_the_slots_of_vllm() -> None:
    """By itself it lowers its default to the tokens of a step."""
    engines, gpu = catalog.engines(), catalog.gpus()["h100-sxm"]
    for name, slots in (("vllm", 300), ("sglang", 2048)):
        found = limits(
            Settings(max_batched_tokens=300, at_once=2000),
            profile=engines[name].memory,
            gpu=gpu,
            layout=Layout(),
            length=2048,
        )
        assert found.sequences == slots


@pytest.mark.parametrize("engine", DIALECTS)
def test_fewer_slots_than_requests_are_said_with_the_way_out(engine: str) -> None:
    answer = plan(Scenario(model=LLAMA, concurrency=64, slots=16, engine=engine))
    found = best(answer)
    assert found.most == 16
    assert "runs 16 of 64 requests at once" in answer.advice.verdict
    (waits,) = [one for one in found.objections if one.rule == "waits"]
    assert "16 of the 64" in waits.reason
    assert "room for all of them" in waits.reason
    flag = slots_flag(answer.result.problem.engine).strip(" ()")
    assert flag in waits.fix
    assert told(answer, flag) == 16
    assert not any("One GPU is enough" in reason for reason in answer.advice.reasons)
    way = next(way for way in ways_out(answer) if "sequences" in way.words)
    assert way.plan.holds
    assert told(plan(way.scenario), flag) == 64


def test_gpus_that_add_no_running_request_are_not_bought() -> None:
    """With 1,024 slots, 1,024 of 2,048 requests run on TP4 as on TP8."""
    few = best(plan(Scenario(model=LLAMA, concurrency=2048, slots=1024)))
    assert (few.gpus, few.most, float(few.serving.waiting)) == (4, 1024, 1024)


def test_where_the_cache_is_full_it_is_what_is_named() -> None:
    found = best(plan(Scenario(model=LLAMA, concurrency=2048, budget=2)))
    (waits,) = [one for one in found.objections if one.rule == "waits"]
    assert "KV cache holds" in waits.reason
    assert "slot" not in waits.reason + waits.fix


@pytest.mark.parametrize(
    ("gpu", "prompt", "objective"),
    [("a100-sxm-80", 1024, "cost"), ("l4", 256, "latency"), ("h100-sxm", 256, "throughput")],
)
def test_a_cell_of_the_map_is_what_one_gets_who_asks_for_it(gpu: str, prompt: int, objective: str) -> None:
    """Also beyond the slots of the engine as it is asked for."""
    scenario = Scenario(model=LLAMA, gpu=gpu, prompt=prompt, objective=objective)
    found = winner_map(problem_of(scenario), prompts=[prompt])
    for place, count in enumerate(found.concurrency.tolist()):
        if count in (256, 362, 1024, 1448, 4096):
            asked = plan(scenario.model_copy(update={"concurrency": count}))
            assert found.cells[0][place].name == winner(asked.result)
            assert not found.cells[0][place].waits.startswith("runs")


def test_what_if_there_were_twice_the_requests_gives_them_slots() -> None:
    scenario = Scenario(model="meta-llama/Llama-3.2-1B-Instruct", gpu="h200-sxm", concurrency=1000)
    (twice,) = [
        one for one in sensitivity(plan(scenario).result) if one.words.startswith("twice the requests")
    ]
    asked = plan(scenario.model_copy(update={"concurrency": 2000}))
    assert best(asked).holds
    assert twice.after == winner(asked.result)


def test_the_command_of_a_hybrid_model_has_a_state_for_every_slot() -> None:
    """vLLM records graphs only so; by itself it would ask for 256 where 152 fit, and not start."""
    answer = plan(Scenario(model=HYBRID, gpu="l40s", concurrency=8))
    found, problem = best(answer), answer.result.problem
    assert any(one.rule == "state-slots" for one in found.objections)
    slots = told(answer, "--max-num-seqs")
    assert slots
    applied = best(plan(answer.scenario.model_copy(update={"slots": slots})))
    assert applied.layout == found.layout
    assert applied.holds
    assert not any(one.rule == "state-slots" for one in applied.objections)
    start = launch(problem, layout=found.layout, memory=found.memory, engine_name="vllm")
    assert any(f"than the {slots:,} set here" in note for note in start.notes)
    assert f"{float(applied.memory.pool) / 2**30:.2f} GiB" in " ".join(start.expect)


@settings(deadline=None, max_examples=25)
@given(
    model=st.sampled_from([LLAMA, "meta-llama/Llama-3.3-70B-Instruct", DEEPSEEK, "Qwen/Qwen3-30B-A3B"]),
    engine=st.sampled_from(ENGINES),
    gpu=st.sampled_from(["h100-sxm", "a100-sxm-80", "l4", "b200-sxm"]),
    concurrency=st.sampled_from([300, 1100, 2048, 4096]),
    prompt=st.sampled_from([128, 1024]),
)
def test_no_more_slots_are_set_than_there_is_cache_for(
    model: str, engine: str, gpu: str, concurrency: int, prompt: int
) -> None:
    """Where not all requests fit, slots beyond those that do would only take room from them."""
    scenario = Scenario(model=model, engine=engine, gpu=gpu, concurrency=concurrency, prompt=prompt, budget=8)
    result, default = plan(scenario).result, plan(scenario.model_copy(update={"concurrency": 1})).result
    asked = problem_of(scenario)
    for index in np.flatnonzero(result.legal & ~result.holds).tolist():
        found, layout = result.plan(index), result.layout.one(index)
        by_itself = next(default.plan(i) for i in range(default.shape[0]) if default.layout.one(i) == layout)
        assert not found.short_of_slots
        assert found.memory.slots <= max(found.memory.capacity, by_itself.memory.slots)
        assert found.most >= by_itself.most or by_itself.memory.slots > by_itself.memory.capacity
        if found.memory.slots > by_itself.memory.slots:  # a few more would not fit
            more = (found.most + 3 + found.most // 100) // int(layout.data) + 1
            told = replace(asked, settings=asked.settings.model_copy(update={"max_num_seqs": more}))
            held, _ = evaluate(told, layout=layout, concurrency=np.asarray(concurrency))
            assert held.capacity < more * layout.data


def test_fewer_requests_are_as_many_as_fit_with_the_slots_they_need() -> None:
    scenario = Scenario(model=LLAMA, concurrency=2000, tensor=4, budget=4)
    answer = plan(scenario)
    way = next(way for way in ways_out(answer) if "in hand" in way.words)
    most = way.scenario.concurrency
    assert most == best(answer).most
    assert not best(plan(scenario.model_copy(update={"concurrency": most + 1}))).holds
