"""The grid of layouts and batches: complete, consistent with single evaluations, and physical."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog, plan
from parplan.arrays import picked
from parplan.layout import FAMILIES, Layout
from parplan.objections import objections
from parplan.planner import evaluate, solve
from parplan.problem import chosen_precision
from parplan.scenario import problem_of
from parplan.search import batches, candidate_layouts
from parplan.workload import Workload

LLAMA, DEEPSEEK, GPT_OSS = (
    "meta-llama/Llama-3.3-70B-Instruct",
    "deepseek-ai/DeepSeek-V3.1",
    "openai/gpt-oss-120b",
)
MODELS = (LLAMA, DEEPSEEK, GPT_OSS, "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct")
FORMATS = catalog.formats()


def test_candidates_are_distinct_and_within_the_budget() -> None:
    problem = problem_of(Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=64))
    layout = candidate_layouts(problem)
    rows = {tuple(int(x) for x in vars(layout.one(i)).values()) for i in range(layout.shape[0])}
    assert len(rows) == layout.shape[0] > 100
    assert layout.gpus.max() == 64
    assert (layout.width % layout.expert == 0).all()


def test_a_dense_model_is_never_cut_by_experts() -> None:
    layout = candidate_layouts(problem_of(Scenario(model=LLAMA, budget=16)))
    assert (np.asarray(layout.data) == 1).all()
    assert (np.asarray(layout.expert) == 1).all()


def tried(**fields: object) -> set[Layout]:
    problem = problem_of(Scenario(**{"weights": "native", "gpu": "h200-sxm"} | fields))
    layout = candidate_layouts(problem)
    return {layout.one(i) for i in range(layout.shape[0])}


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        ({"model": DEEPSEEK, "budget": 40}, Layout(data=40, expert=40)),  # five nodes
        ({"model": LLAMA, "budget": 40}, Layout(tensor=8, pipeline=5)),
        ({"model": LLAMA, "budget": 56}, Layout(tensor=8, pipeline=7)),
        ({"model": DEEPSEEK, "budget": 144}, Layout(data=144, expert=144)),
        ({"model": DEEPSEEK, "gpu": "gb200-nvl72", "budget": 72}, Layout(data=72, expert=72)),
        ({"model": LLAMA, "gpu": "gb200-nvl72", "budget": 72}, Layout(tensor=64)),
        ({"model": "zai-org/GLM-4.5", "budget": 40}, Layout(data=40, expert=40)),  # 160 experts
        ({"model": "zai-org/GLM-4.5", "budget": 64}, Layout(data=20, expert=20)),
        (
            {"model": "Qwen/Qwen2.5-14B-Instruct", "weights": "bf16", "budget": 8},
            Layout(tensor=5),
        ),  # 40 heads
        ({"model": DEEPSEEK, "budget": 16}, Layout(tensor=16, decode_context=16)),
        ({"model": DEEPSEEK, "budget": 16}, Layout(tensor=16, decode_context=8)),  # within a node
        ({"model": DEEPSEEK, "budget": 1152}, Layout(data=1152, expert=1)),
    ],
)
def test_sizes_are_not_only_powers_of_two(fields: dict[str, object], layout: Layout) -> None:
    assert layout in tried(**fields)


def test_a_budget_of_sixteen_racks_is_planned() -> None:
    result = solve(problem_of(Scenario(model=DEEPSEEK, weights="native", gpu="gb200-nvl72", budget=1152)))
    assert result.gpus.max() == 1152
    assert result.legal.sum() > 1000
    assert result.problem.budget == 1152


def test_fixed_cuts_are_kept_even_beyond_the_budget() -> None:
    layout = candidate_layouts(problem_of(Scenario(model=LLAMA, tensor=8, pipeline=4, budget=8)))
    assert layout.gpus.tolist() == [32]


def test_the_asked_batch_is_on_the_grid() -> None:
    assert 777 in batches(Workload(concurrency=777))
    assert batches(Workload(concurrency=64)).size in (31, 32)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "ideal"])
def test_the_grid_agrees_with_one_layout_at_a_time(model: str, engine: str) -> None:
    problem = problem_of(Scenario(model=model, weights="native", gpu="h200-sxm", engine=engine, budget=8))
    result = solve(problem)
    for index in range(0, result.shape[0], 3):
        layout, batch = result.layout.one(index), result.concurrency[::10]
        held, served = evaluate(problem, layout=layout, concurrency=batch)
        for one, grid in (
            (held.weights, result.memory.weights),
            (held.kv_tokens, result.memory.kv_tokens),
            (served.tpot, result.serving.tpot),
            (served.ttft, result.serving.ttft),
        ):
            np.testing.assert_allclose(
                np.broadcast_to(one, batch.shape), result.grid(grid)[index, ::10], rtol=1e-9
            )


@pytest.mark.parametrize("model", MODELS)
def test_every_part_of_memory_and_time_is_counted_once(model: str) -> None:
    result = plan(Scenario(model=model, weights="native", gpu="h200-sxm")).result
    for index in np.flatnonzero(result.legal):
        one = result.plan(int(index))
        memory, serving = one.memory, one.serving
        used = memory.weights + memory.activations + memory.overhead + memory.kv + memory.free
        assert float(used) == pytest.approx(memory.usable)
        assert float(serving.decode.total + serving.prefill) == pytest.approx(float(serving.tpot))
        assert float(serving.tokens_per_s_per_gpu) * one.gpus == pytest.approx(float(serving.tokens_per_s))
        assert float(serving.tokens_per_s_per_user) == pytest.approx(1 / float(serving.tpot))


@pytest.mark.parametrize("model", MODELS)
def test_time_per_token_never_falls_as_the_batch_grows(model: str) -> None:
    result = plan(Scenario(model=model, weights="native", gpu="h200-sxm")).result
    tpot = result.grid(result.serving.tpot)[result.legal]
    assert (np.diff(tpot, axis=1) >= -1e-12).all()


@given(
    prompt=st.integers(1, 60_000),
    output=st.integers(1, 4096),
    concurrency=st.integers(1, 512),
    model=st.sampled_from(MODELS),
)
def test_longer_requests_never_hold_more_nor_decode_faster(
    prompt: int, output: int, concurrency: int, model: str
) -> None:
    def at(length: int) -> tuple[np.ndarray, np.ndarray]:
        scenario = Scenario(
            model=model, weights="native", gpu="h200-sxm", prompt=length, output=output, concurrency=concurrency,
            context=1, budget=8,
        )  # fmt: skip
        result = solve(problem_of(scenario))
        return result.at_asked(result.memory.kv_tokens * 0 + result.memory.capacity), result.at_asked(
            result.serving.decode.total
        )

    capacity, decode = at(prompt)
    longer_capacity, longer_decode = at(prompt + 1000)
    assert (longer_capacity <= capacity).all()
    same = longer_capacity == capacity
    assert (longer_decode[same] >= decode[same] - 1e-12).all()


def test_replicas_change_requests_per_second_and_nothing_else() -> None:
    one, four = (plan(Scenario(replicas=n)).result for n in (1, 4))
    np.testing.assert_array_equal(one.grid(one.serving.tpot), four.grid(four.serving.tpot))
    np.testing.assert_array_equal(one.grid(one.serving.ttft), four.grid(four.serving.ttft))
    np.testing.assert_array_equal(one.at_asked(one.memory.weights), four.at_asked(four.memory.weights))


def test_a_published_mixed_checkpoint_keeps_its_exceptions() -> None:
    """gpt-oss: only the experts are in mxfp4; DeepSeek in NVFP4: attention stays in bf16."""
    oss = catalog.model(GPT_OSS).transformer
    native = chosen_precision(oss, weights=None, kv=None, formats=FORMATS).weights
    asked = chosen_precision(oss, weights=FORMATS["mxfp4"], kv=None, formats=FORMATS).weights
    assert native == asked
    assert (native["routed_experts"].name, native["attention"].name) == ("mxfp4", "bf16")
    deepseek = catalog.model(DEEPSEEK).transformer
    nvfp4 = chosen_precision(deepseek, weights=FORMATS["nvfp4"], kv=None, formats=FORMATS).weights
    assert (nvfp4["routed_experts"].name, nvfp4["attention"].name) == ("nvfp4", "bf16")


def test_embedding_and_head_stay_in_bf16() -> None:
    llama = catalog.model(LLAMA).transformer
    weights = chosen_precision(llama, weights=FORMATS["fp8"], kv=None, formats=FORMATS).weights
    assert weights["embedding"].name == weights["head"].name == weights["norms"].name == "bf16"
    assert weights["dense_ffn"].name == weights["attention"].name == "fp8"


def test_the_frontier_is_not_dominated() -> None:
    result = plan(Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=16)).result
    user = result.grid(result.serving.tokens_per_s_per_user)
    gpu = result.grid(result.serving.tokens_per_s_per_gpu)
    points = [(user[i, j], gpu[i, j]) for i, j in zip(*result.frontier, strict=True)]
    assert len(points) > 5
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in itertools.pairwise(points))
    possible = result.legal[:, None] & (result.grid(result.memory.capacity) >= 1)  # what is too many waits
    best_user, best_gpu = user[possible].max(), gpu[possible].max()
    assert points[0][0] == best_user
    assert points[-1][1] == best_gpu


def test_layout_families_name_their_cuts() -> None:
    result = plan(Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=16)).result
    index = next(i for i in range(result.shape[0]) if result.layout.one(i) == Layout(tensor=8, pipeline=2))
    assert result.families[index] == "TP with PP"
    assert set(result.families) <= set(FAMILIES)


def test_the_nearest_legal_layout_is_legal_and_near() -> None:
    """Qwen3-30B in block FP8 on TP4 leaves experts of 192: TP2, or TP4 with whole experts, is a step away."""
    scenario = Scenario(model="Qwen/Qwen3-30B-A3B-FP8", weights="native", engine="vllm-0.17", budget=8)
    result = plan(scenario).result
    index = next(i for i in range(result.shape[0]) if result.layout.one(i) == Layout(tensor=4))
    nearest = result.plan(index).nearest
    assert nearest in (
        Layout(tensor=2),
        Layout(tensor=4, expert=4),
        Layout(tensor=4, pipeline=2),
        Layout(tensor=8),
    )
    found = next(i for i in range(result.shape[0]) if result.layout.one(i) == nearest)
    assert result.legal[found]
    assert result.plan(found).nearest is None


def test_plans_are_equal_when_layout_memory_and_speed_are() -> None:
    first, second = plan(Scenario(budget=8)).result, plan(Scenario(budget=8)).result
    assert first.plan(0) == second.plan(0)
    assert first.plan(0) != first.plan(1)


@pytest.mark.parametrize("index", [(1, 2), (1, slice(None)), ([0, 2],), (slice(None), -1)])
def test_picking_takes_the_same_from_what_broadcasts_as_from_what_is_spread(index: tuple[Any, ...]) -> None:
    shape = (3, 4)
    for values in (
        2.5,
        np.arange(4.0),
        np.arange(3.0)[:, None],
        np.arange(12.0).reshape(shape),
        np.array(7.0),
    ):
        spread = np.broadcast_to(values, shape)[index]
        assert np.array_equal(picked(values, shape=shape, index=index), spread)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(model="Qwen/Qwen3-30B-A3B-FP8", weights="native", budget=16),
        Scenario(model="Qwen/Qwen3-14B", weights="bf16", gpu="l40s", budget=16),
        Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=32, concurrency=256),
        Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=32, engine="trtllm"),
        Scenario(model=DEEPSEEK, weights="native", gpu="h200-sxm", budget=32, engine="sglang", redundant=32),
        Scenario(model="meta-llama/Meta-Llama-3.1-405B", weights="bf16", budget=32),
        Scenario(model=LLAMA, gpu="rtx-4090", budget=32, prompt=30_000),
        Scenario(model="openai/gpt-oss-20b", weights="native", gpu="a100-sxm-80", budget=64),  # 32 experts
        Scenario(model=LLAMA, budget=16, engine="ideal", prompt=40_000),
    ],
    ids=lambda scenario: "&".join(f"{key}={value}" for key, value in scenario.changed().items()),
)
def test_every_impossible_layout_names_one_nearby_that_starts_and_fits(scenario: Scenario) -> None:
    result = plan(scenario).result
    index = {result.layout.one(i): i for i in range(result.shape[0])}
    impossible = np.flatnonzero(~result.legal)
    assert impossible.size
    assert result.legal.any()
    for one in impossible.tolist():
        near = result.nearest_legal(one)
        assert near
        there = index[near]
        assert result.legal[there]
        assert float(result.at_asked(result.memory.pool)[there]) > 0
        assert float(result.at_asked(result.memory.capacity)[there]) >= 1


def test_where_nothing_runs_nothing_is_near() -> None:
    result = plan(Scenario(gpu="t4", budget=1)).result
    assert result.plan(0).nearest is None


@pytest.mark.parametrize("model", MODELS)
def test_objections_from_the_grid_are_those_of_each_layout(model: str) -> None:
    result = plan(Scenario(model=model, weights="native", gpu="h200-sxm", budget=16, tpot=20)).result
    for index in range(0, result.shape[0], 2):
        assert result.objections(index) == objections(result.case(index))
