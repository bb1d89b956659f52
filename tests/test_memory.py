"""Memory of the worst rank: parts sum to the whole, budgets follow each engine, caches what its allocator takes."""

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from parplan import catalog
from parplan.allocator import (
    Store,
    charge,
    exact_charge,
    grouped_charge,
    stores,
    tuples_of_block,
    two_pool_charge,
)
from parplan.calibration import Exact, Grouped, TwoPools
from parplan.formats import COMPONENTS, Precision
from parplan.hardware import Gpus
from parplan.layout import Layout
from parplan.memory import (
    Charges,
    Memory,
    Rank,
    Ranks,
    Settings,
    division,
    graph_sizes,
    memory,
    replica_memory,
    shared_bytes,
    worst_rank,
)
from parplan.problem import chosen_precision
from parplan.transformer import Transformer
from parplan.units import GIB
from parplan.work import all_stages, distinct_stages
from parplan.workload import Workload

LLAMA_8B = "meta-llama/Meta-Llama-3.1-8B"
LLAMA_70B = "meta-llama/Meta-Llama-3.1-70B"
GEMMA = "google/gemma-3-27b-it"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
ENGINES = ("vllm", "vllm-0.17", "vllm-0.16", "sglang", "trtllm", "ideal")


def model(name: str) -> Transformer:
    """A model of the catalogue."""
    return catalog.model(name).transformer


def plain(transformer: Transformer, *, weights: str = "bf16", kv: str = "bf16") -> Precision:
    """One format for all that a quantiser touches."""
    known = catalog.formats()
    return chosen_precision(transformer, weights=known[weights], kv=known[kv], formats=known)


def held(
    name: str = LLAMA_8B,
    *,
    engine: str = "vllm-0.17",
    gpu: str = "h100-sxm",
    layout: Layout | None = None,
    length: int = 8192,
    concurrency: int | NDArray[np.int64] = 16,
    weights: str = "bf16",
    kv: str = "bf16",
    told: Settings | None = None,
) -> Memory:
    """Memory of a model of the catalogue."""
    transformer = model(name)
    return memory(
        transformer,
        plain(transformer, weights=weights, kv=kv),
        layout=layout or Layout(),
        gpu=catalog.gpus()[gpu],
        engine=catalog.engines()[engine],
        workload=Workload(prompt=length - 1, output=1),
        concurrency=concurrency,
        settings=told,
    )


# --- conservation and budgets


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "layout", [Layout(), Layout(tensor=4), Layout(data=2), Layout(pipeline=4), Layout(tensor=2, pipeline=3)]
)
def test_the_parts_are_the_whole_gpu(engine: str, layout: Layout) -> None:
    one = held(engine=engine, layout=layout)
    parts = one.weights + one.activations + one.context + one.non_torch + one.graphs + one.kv + one.free
    assert parts == pytest.approx(one.usable)
    assert one.free >= 0
    assert 0 <= one.kv <= one.pool


@pytest.mark.parametrize(
    ("engine", "inside"),
    [
        ("vllm", ("weights", "activations", "non_torch", "graphs")),
        ("vllm-0.17", ("weights", "activations", "non_torch")),
        ("vllm-0.16", ("weights", "activations", "non_torch")),
    ],
)
def test_vllm_divides_a_share_of_the_whole(engine: str, inside: tuple[str, ...]) -> None:
    """Logged by 0.19: 19.53 = 75.23 - 51.45 - 3.99 - 0.26 GiB, and since 0.21 minus the graphs as well."""
    one = held(GEMMA, engine=engine)
    assert one.pool + sum(getattr(one, name) for name in inside) + one.reserve == pytest.approx(one.usable)
    share = catalog.engines()[engine].memory.utilization
    assert share
    assert one.reserve == pytest.approx((1 - share) * one.usable)


def test_sglang_keeps_a_share_of_what_is_free_and_grants_what_loading_left() -> None:
    """Logged: 63.72 GiB after loading of 78.81 before, mem_fraction_static 0.88: 63.72 - 0.12 x 78.81 = 54.26."""
    one = held(engine="sglang", told=Settings(utilization=0.88))
    before = one.usable - one.context
    after = before - one.weights - one.non_torch
    assert one.pool == pytest.approx(after - 0.12 * before)
    assert one.pool / GIB == pytest.approx(54.26, rel=0.01)


@pytest.mark.parametrize(("gpu", "share"), [("h100-sxm", 0.836), ("rtx-4090", 0.847)])
def test_sglang_reserves_by_what_it_runs(gpu: str, share: float) -> None:
    """The automatic fractions follow from 512 MiB + 1.5 MiB per prefill token + 2 MiB per graph sequence + ranks."""
    one = held(engine="sglang", gpu=gpu)
    left = one.reserve / (one.usable - one.context)
    assert 1 - left == pytest.approx(share, abs=0.005)


def test_tensorrt_llm_takes_a_share_of_what_is_left() -> None:
    """Logged: 17.83 GiB free after the engine, fraction 0.9: 16.05 GiB for the cache."""
    one = held(engine="trtllm")
    left = one.usable - one.overhead - one.weights - one.activations
    assert one.pool == pytest.approx(0.9 * left)


def test_the_ideal_engine_adds_nothing() -> None:
    one = held(engine="ideal")
    assert one.pool == pytest.approx(one.usable - one.weights)
    assert one.activations == one.overhead == one.reserve == 0
    assert one.kv == pytest.approx(one.kv_ideal)


def test_what_does_not_load_is_a_value() -> None:
    one = held(LLAMA_70B)
    assert one.pool < 0
    assert one.free < 0
    assert not one.starts
    assert one.kv == one.capacity == one.kv_tokens == 0
    assert one.kv_needed > 0


# --- the worst rank


def test_the_pool_is_what_the_fullest_stage_has() -> None:
    """The last stage samples: Llama-8B at PP2 has the pool of the last stage, 65.6 GiB, not the first one's 66.5."""
    two = held(layout=Layout(pipeline=2), told=Settings(utilization=0.95))
    assert two.stage == 1
    assert two.pool / GIB == pytest.approx(65.6, rel=0.005)


def test_each_stage_keeps_only_its_own_layers() -> None:
    one, four = held(LLAMA_70B, weights="fp8"), held(LLAMA_70B, weights="fp8", layout=Layout(pipeline=4))
    assert four.request == pytest.approx(one.request / 4)


def test_stages_a_layout_does_not_have_never_decide() -> None:
    mixed = held(layout=Layout.stack([Layout(), Layout(pipeline=8)]).column())
    assert mixed.stage[:, 0].tolist() == [0, 7]
    assert mixed.pool[0, 0] == pytest.approx(held().pool)


def test_a_latent_fills_every_tensor_rank_but_data_ranks_share_the_requests() -> None:
    """Logged on eight B200: 20.4 requests of a million tokens with TP8, 156.9 with DP8."""
    tensor = held(DEEPSEEK, layout=Layout(tensor=8), gpu="h200-sxm", weights="fp8-block")
    data = held(DEEPSEEK, layout=Layout(data=8, expert=8), gpu="h200-sxm", weights="fp8-block")
    assert data.request == pytest.approx(tensor.request)
    assert data.requests / tensor.requests == pytest.approx(8 * data.pool / tensor.pool)


def test_decode_context_multiplies_the_tokens() -> None:
    """Logged: 715,072 tokens with TP8, 5,721,088 with DCP8 beside it."""
    one, eight = (
        held(DEEPSEEK, layout=Layout(tensor=8, decode_context=cut), gpu="h200-sxm", weights="fp8-block")
        for cut in (1, 8)
    )
    assert eight.kv_tokens == pytest.approx(8 * one.kv_tokens)


def test_kv_heads_are_not_cut_below_one() -> None:
    four, eight, sixteen = (
        held(LLAMA_70B, layout=Layout(tensor=width), weights="fp8") for width in (4, 8, 16)
    )
    assert eight.request == pytest.approx(four.request / 2)
    assert sixteen.request == pytest.approx(eight.request)


# --- all GPUs of a replica


def replica(
    name: str, *, layout: Layout, engine: str = "vllm", told: Settings | None = None
) -> tuple[Ranks, ...]:
    """Every rank of a replica of a model in its own formats, on H200."""
    transformer, formats = model(name), catalog.formats()
    return replica_memory(
        transformer,
        chosen_precision(transformer, weights=None, kv=None, formats=formats),
        layout=layout,
        gpu=catalog.gpus()["h200-sxm"],
        engine=catalog.engines()[engine],
        workload=Workload(prompt=4000, output=96),
        concurrency=48,
        settings=told,
    )


LAYOUTS = [
    Layout(),
    Layout(tensor=8),
    Layout(tensor=8, expert=8),
    Layout(data=6, expert=6, pipeline=2),
    Layout(tensor=4, data=3, expert=12, pipeline=3),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_worst_rank_of_the_picture_is_the_one_all_else_speaks_of(engine: str, layout: Layout) -> None:
    ranks = replica(DEEPSEEK, layout=layout, engine=engine)
    (worst,) = (one for one in ranks if one.worst)
    transformer, formats = model(DEEPSEEK), catalog.formats()
    same = memory(
        transformer,
        chosen_precision(transformer, weights=None, kv=None, formats=formats),
        layout=layout,
        gpu=catalog.gpus()["h200-sxm"],
        engine=catalog.engines()[engine],
        workload=Workload(prompt=4000, output=96),
        concurrency=48,
    )
    assert worst.stage == same.stage
    for name in (
        "weights",
        "activations",
        "overhead",
        "reserve",
        "pool",
        "kv",
        "kv_needed",
        "free",
        "reserved",
    ):
        assert getattr(worst.each, name) == pytest.approx(float(getattr(same, name)), abs=1), name


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_gpu_is_in_the_picture_once_and_adds_up(layout: Layout) -> None:
    ranks = replica(DEEPSEEK, layout=layout)
    assert sum(one.gpus for one in ranks) == layout.gpus
    assert sum(one.worst for one in ranks) == 1
    for one in ranks:
        each = one.each
        assert each.weights + each.activations + each.overhead + each.kv + each.free == pytest.approx(
            each.usable
        )


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=str)
def test_all_experts_are_somewhere_once(layout: Layout) -> None:
    """Uneven or not: over the GPUs of every stage the routed experts sum to the model's."""
    transformer = model(DEEPSEEK)
    experts = next(block.experts for block in transformer.blocks if block.experts)
    ranks = replica(DEEPSEEK, layout=layout)
    for stage in range(int(layout.pipeline)):
        assert sum(one.gpus * one.experts for one in ranks if one.stage == stage) == pytest.approx(
            experts.count
        )
    held = sum(one.gpus * float(one.each.weights_by_component["routed_experts"]) for one in ranks)
    one = replica(DEEPSEEK, layout=Layout())[0].each.weights_by_component["routed_experts"]
    assert held == pytest.approx(float(one))


def test_uneven_experts_leave_room_on_the_emptier_ranks() -> None:
    """256 experts in six groups: four groups have 43, two have 42."""
    fuller, emptier = replica(DEEPSEEK, layout=Layout(data=6, expert=6))
    assert (fuller.experts, fuller.gpus, emptier.experts, emptier.gpus) == (43, 4, 42, 2)
    assert emptier.each.pool - fuller.each.pool == pytest.approx(
        float(fuller.each.weights - emptier.each.weights)
    )
    assert emptier.each.kv == fuller.each.kv


def test_even_stages_differ_by_embedding_and_head_only() -> None:
    """Llama-8B at PP4, logged: 4.26, 3.28, 3.28, 4.26 GiB of weights."""
    ranks = replica(LLAMA_8B, layout=Layout(pipeline=4))
    assert [float(one.each.weights) / GIB for one in ranks] == pytest.approx(
        [4.26, 3.28, 3.28, 4.26], rel=0.01
    )
    assert [one.worst for one in ranks] == [False, False, False, True]


# --- needs and reserves


def test_what_the_engine_reserves_does_not_depend_on_the_workload() -> None:
    few, many = held(concurrency=1), held(concurrency=500)
    assert few.reserved == many.reserved
    assert few.needed < few.reserved < few.usable
    assert many.needed - few.needed == pytest.approx(499 * float(few.request))


def test_reserved_is_what_nvidia_smi_shows() -> None:
    """At 0.95 on an H100 before 0.21: the share, the context before it and the graphs beside it, 77.6 of 79.2 GiB."""
    one = held(told=Settings(utilization=0.95))
    assert one.reserved == pytest.approx(0.95 * one.usable + one.context + one.graphs)
    assert one.reserved / GIB == pytest.approx(77.6, abs=1.0)


def test_waiting_requests_need_what_they_do_not_get() -> None:
    one = held(concurrency=np.array([16, 500]))
    assert one.kv_waiting[0] == 0
    assert one.kv_waiting[1] == pytest.approx((500 - one.running[1]) * float(one.request))
    assert one.kv + one.kv_waiting == pytest.approx(one.kv_needed)


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from([LLAMA_8B, DEEPSEEK, "Qwen/Qwen3-Next-80B-A3B-Instruct", "google/gemma-3-27b-it"]),
    engine=st.sampled_from(["vllm", "vllm-0.16", "sglang", "trtllm", "ideal"]),
    tensor=st.sampled_from([1, 8]),
    pipeline=st.integers(1, 30),
    draft=st.sampled_from([0, 1]),
)
def test_one_stage_of_each_kind_decides_as_all_do(
    name: str, engine: str, tensor: int, pipeline: int, draft: int
) -> None:
    transformer, layout = model(name), Layout(tensor=tensor, pipeline=pipeline)
    precision = chosen_precision(transformer, weights=None, kv=None, formats=catalog.formats())
    asked: dict[str, Any] = {
        "layout": layout,
        "gpu": catalog.gpus()["h200-sxm"],
        "engine": catalog.engines()[engine],
    }
    told = Settings(drafts=draft)
    few = memory(
        transformer,
        precision,
        workload=Workload(prompt=2000, output=48),
        concurrency=32,
        settings=told,
        **asked,
    )
    stages = all_stages(transformer, layout=layout)
    divided = division(transformer, precision, stages=stages, length=2048, settings=told, **asked)
    every = worst_rank(divided, layout=layout, concurrency=32)
    for part in (
        "weights",
        "activations",
        "overhead",
        "pool",
        "request",
        "requests",
        "capacity",
        "kv_tokens",
        "stage",
    ):
        assert getattr(few, part) == pytest.approx(getattr(every, part), nan_ok=True), part


@pytest.mark.parametrize("layout", [Layout(tensor=8), Layout(data=8, expert=8)], ids=str)
def test_attention_that_is_quantised_in_part_takes_what_its_matrices_do(layout: Layout) -> None:
    """DeepSeek-V3.1-NVFP4: per layer and GPU both down-projections whole and 16-bit, the heads' share of the others,
    and 4.5 bits for each value of the output projection."""
    hidden, heads, tensor = 7168, 128, int(layout.tensor)
    down = hidden * (1536 + 512 + 64) + 1536 + 512
    up = heads * (1536 * (128 + 64) + 512 * (128 + 128))
    output = heads * 128 * hidden
    held = loaded("nvidia/DeepSeek-V3.1-NVFP4", layout=layout).weights_by_component
    assert held["attention"] == pytest.approx(61 * 2 * (down + up / tensor))
    assert held["attention_output"] == pytest.approx(61 * 4.5 / 8 * output / tensor)


# --- drafts and redundant experts


def loaded(name: str, *, layout: Layout, **told: Any) -> Rank:
    """The worst rank."""
    return next(one for one in replica(name, layout=layout, told=Settings(**told)) if one.worst).each


def test_a_draft_costs_its_layers_and_their_cache() -> None:
    """SGLang logs 5.53 GiB for the draft of Qwen3.8-27B: its layers, and copies of embedding and head for a while."""
    name = "Qwen/Qwen3.5-27B"
    without, drafting = loaded(name, layout=Layout()), loaded(name, layout=Layout(), drafts=1)
    layers = float(drafting.weights - without.weights)
    copies = 2 * float(without.weights_by_component["embedding"])
    assert (layers + copies) / GIB == pytest.approx(5.53, abs=0.01)
    assert drafting.request > without.request


def test_a_draft_is_cut_as_the_last_layer_is() -> None:
    """DeepSeek-V4-Pro in FP8 on eight H200: SGLang starts from a share of 0.9113, with MTP from 0.9335 of 139.8 GiB."""
    name, layout = "sgl-project/DeepSeek-V4-Pro-FP8", Layout(tensor=8)
    more = loaded(name, layout=layout, drafts=1).weights - loaded(name, layout=layout).weights
    assert float(more) / GIB == pytest.approx((0.9335 - 0.9113) * 139.8, rel=0.05)


def test_drafts_are_on_the_last_stage() -> None:
    plain_ranks, drafting = (
        replica(DEEPSEEK, layout=Layout(tensor=8, pipeline=2), told=Settings(drafts=drafts))
        for drafts in (0, 1)
    )
    assert drafting[0].each.weights == plain_ranks[0].each.weights
    assert drafting[1].each.weights > plain_ranks[1].each.weights


def test_with_stages_a_draft_has_an_embedding_of_its_own() -> None:
    """vLLM shares the embedding between model and draft only where both are on one stage."""
    (one,) = replica(DEEPSEEK, layout=Layout(tensor=16), told=Settings(drafts=1))
    last = replica(DEEPSEEK, layout=Layout(tensor=16, pipeline=2), told=Settings(drafts=1))[1]
    more = last.each.weights_by_component["mtp"] - one.each.weights_by_component["mtp"]
    assert more == pytest.approx(float(one.each.weights_by_component["embedding"]))


def test_rotary_tables_are_whole_on_every_rank() -> None:
    """Llama-4-Scout at TP4, logged: 53.12 GiB of weights, 2.5 of them for 10,485,760 positions of width 128."""
    scout = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    four, eight = (held(scout, layout=Layout(tensor=width)) for width in (4, 8))
    assert four.weights / GIB == pytest.approx(53.12, rel=0.002)
    tables = 10_485_760 * 128 * 2
    assert four.weights_by_component["other"] == eight.weights_by_component["other"] >= tables


def test_a_model_without_mtp_layers_is_drafted_for_by_an_eagle_head() -> None:
    """EAGLE-3 head of Llama-3.1-8B, by the shapes of its config: 424.7 M parameters in 16 bits, one layer of cache."""
    hidden, width, kv = 4096, 14_336, 1024
    attention = 2 * hidden * (hidden + 2 * kv) + hidden * hidden
    parameters = attention + 3 * hidden * width + 3 * hidden * hidden + 32_000 * hidden + 4 * hidden
    without, drafting = (loaded(LLAMA_8B, layout=Layout(), drafts=drafts) for drafts in (0, 1))
    assert drafting.weights - without.weights == 2 * parameters
    assert drafting.request / without.request == pytest.approx(33 / 32)


def test_an_eagle_head_is_cut_but_for_what_merges_the_hidden_states() -> None:
    one, four = (
        float(loaded(LLAMA_8B, layout=Layout(tensor=width), drafts=1).weights_by_component["mtp"])
        for width in (1, 4)
    )
    whole = 2 * (3 * 4096 * 4096 + 4 * 4096)
    assert four == pytest.approx((one - whole) / 4 + whole)


def test_a_latent_model_is_drafted_for_with_plain_heads() -> None:
    """Kimi-K2's published head: 64 KV heads of 128, 32 KiB per token where a latent layer keeps 1,152 bytes."""
    kimi, told = "moonshotai/Kimi-K2-Instruct", Settings(utilization=0.95)
    without, drafting = (
        replica(kimi, layout=Layout(tensor=16), told=told.model_copy(update={"drafts": drafts}))[0].each
        for drafts in (0, 1)
    )
    more = float(drafting.request_ideal - without.request_ideal)
    assert more == pytest.approx(float(without.request_ideal) / (61 * 576 * 2) * (64 / 16 * 2 * 128 * 2))


def test_redundant_experts_are_weights() -> None:
    """32 copies over 32 GPUs: one more expert of 58 layers on each, 58 x 44 M parameters in FP8."""
    layout, experts = Layout(data=32, expert=32), next(b.experts for b in model(DEEPSEEK).blocks if b.experts)
    none, one_each = loaded(DEEPSEEK, layout=layout), loaded(DEEPSEEK, layout=layout, redundant_experts=32)
    more = float(one_each.weights - none.weights)
    assert more == pytest.approx(58 * experts.expert_parameters * (1 + 4 / 128**2), rel=1e-3)


@pytest.mark.parametrize(("engine", "layers"), [("vllm", 1), ("sglang", 1), ("trtllm", 0), ("ideal", 0)])
def test_moving_experts_takes_room_for_those_of_one_layer(engine: str, layers: int) -> None:
    """288 experts over 32 GPUs are nine on each, 44 M parameters in FP8: 0.37 GiB."""
    layout, experts = Layout(data=32, expert=32), next(b.experts for b in model(DEEPSEEK).blocks if b.experts)
    still, moving = (
        replica(DEEPSEEK, layout=layout, engine=engine, told=Settings(redundant_experts=more))[0].each
        for more in (0, 32)
    )
    nine = 9 * experts.expert_parameters * (1 + 4 / 128**2)
    assert moving.activations - still.activations == pytest.approx(layers * nine, rel=1e-3)


def test_a_request_keeps_a_recurrent_state_after_every_drafted_token() -> None:
    """vLLM 0.22 logged 24.08 requests of 262,144 tokens in 73.13 GiB for Qwen3.6-35B-A3B in NVFP4 with FP8 cache, MTP
    and prefix caching: 3276 blocks of 2,128 tokens, 136 a request: 124 of attention, four for each of three groups."""
    name, formats = "nvidia/Qwen3.6-35B-A3B-NVFP4", catalog.formats()
    precision = chosen_precision(model(name), weights=None, kv=formats["fp8"], formats=formats)
    plain, drafting, looking_up = (
        memory(
            model(name), precision, layout=Layout(), gpu=catalog.gpus()["h200-sxm"],
            engine=catalog.engines()["vllm"], workload=Workload(prompt=262_143, output=1), concurrency=1,
            settings=told,
        ).request
        for told in (Settings(), Settings(drafts=2), Settings(drafts=2, prefix_caching=True))
    )  # fmt: skip
    assert looking_up / GIB == pytest.approx(73.13 / 24.08, rel=0.02)
    per_group = float(looking_up - drafting)
    assert (
        float(drafting - plain) > 2 * per_group
    )  # two states more in every group, and a layer more of attention


# --- what a request is charged


def group(layers: float, per_token: float, *, window: int | None = None, state: float = 0.0) -> Store:
    """Layers of one kind on one stage."""
    return Store(
        layers=np.array([layers]), per_token=np.array([per_token]), state=np.array([state]), window=window
    )


UNIFORM = Grouped(padded_up_to=1.25, logs="blocks")
FULL, SLIDING = group(10, 8192), group(52, 8192, window=1024)


def test_groups_are_padded_to_equal_size() -> None:
    """Gemma-3-27B: 10 full and 52 sliding layers become seven groups of ten, 573,440 bytes per logged token."""
    charged = grouped_charge([FULL, SLIDING], allocator=UNIFORM, length=8192, in_flight=8192)
    assert charged.logged_token == pytest.approx(573_440)


def test_a_window_saves_nothing_while_a_step_is_as_long_as_the_request() -> None:
    """One block of 16 tokens more per windowed group: 3590 blocks of ten layers for Gemma-3-27B at 8192 tokens."""
    charged = grouped_charge([FULL, SLIDING], allocator=UNIFORM, length=8192, in_flight=8192)
    assert charged.alone == pytest.approx((512 + 6 * 513) * 10 * 16 * 8192)


def test_a_window_saves_when_requests_outgrow_it() -> None:
    long = grouped_charge([FULL, SLIDING], allocator=UNIFORM, length=131_072, in_flight=2048)
    ideal = exact_charge([FULL, SLIDING], block=1, length=131_072)
    whole = 62 * 8192 * 131_072
    assert ideal.request < long.request < whole / 3


def charges(kept: list[Store], **told: Any) -> Charges:
    """What requests are charged, alone and together."""
    found = grouped_charge(kept, allocator=UNIFORM, **told)
    zero = np.zeros(1)
    return Charges(
        request=found.request, request_ideal=exact_charge(kept, block=1, length=told["length"]).request,
        alone=found.alone, shared=found.shared, longest=found.alone, logged_token=zero, state=zero,
    )  # fmt: skip


@dataclass
class Scheduled:
    """A request of `scheduled_blocks`."""

    taken: int = 0
    """Tokens scheduled."""
    steps: tuple[int, ...] = (0,)
    """Tokens it had in the last steps, whose results may be missing; the newest last."""

    def blocks(self, *, window: int | None, block: int) -> int:
        """Blocks it holds of one layer: what it had out of sight before the steps in flight is free."""
        out_of_sight = max(self.taken - sum(self.steps) - window + 1, 0) if window else 0
        return -(-self.taken // block) - out_of_sight // block


def scheduled_blocks(
    *, requests: int, prompt: int, output: int, window: int, step: int, ahead: int, block: int
) -> int:
    """Most blocks of a full and a windowed layer that as many requests hold that are replaced as they end, by vLLM's
    rules: those that run go first, prompts are cut where a step's tokens end, and each frees what it no longer sees
    only when it is scheduled anew."""
    running, most = [Scheduled() for _ in range(requests)], 0
    for _ in range(6 * (requests * (prompt // step + 1) + output)):
        left = step
        running.sort(key=lambda one: -one.taken)
        for place, one in enumerate(running):
            if one.taken >= prompt + output:
                running[place] = one = Scheduled()
            new = min(left, max(prompt - one.taken, 1))
            left -= new
            if new:
                one.taken, one.steps = one.taken + new, (*one.steps, new)[-ahead:]
            most = max(
                most,
                sum(each.blocks(window=seen, block=block) for each in running for seen in (None, window)),
            )
    return most


@settings(deadline=None, max_examples=40)
@given(
    requests=st.integers(1, 8),
    prompt=st.integers(1, 900),
    output=st.integers(1, 40),
    window=st.integers(1, 300),
    step=st.integers(16, 500),
    ahead=st.sampled_from([1, 2]),
)
def test_requests_of_a_simulated_scheduler_never_hold_more_than_they_are_charged_together(
    requests: int, prompt: int, output: int, window: int, step: int, ahead: int
) -> None:
    found = charges(
        [group(1, 1), group(1, 1, window=window)], length=prompt + output, in_flight=ahead * step, own=ahead
    )
    most = scheduled_blocks(
        requests=requests, prompt=prompt, output=output, window=window, step=step, ahead=ahead, block=16
    )
    assert 16 * most <= float(found.together(np.asarray(requests))[0])


def test_a_simulated_scheduler_comes_close_to_what_requests_are_charged_together() -> None:
    """Eight requests of 4,000 tokens, one of which is at its prompt: within a tenth, where one step's tokens for each
    of them would be a third too much."""
    told = {"prompt": 3900, "output": 100, "window": 512}
    most = 16 * scheduled_blocks(requests=8, step=2048, ahead=1, block=16, **told)
    found = charges([group(1, 1), group(1, 1, window=512)], length=4000, in_flight=2048)
    assert most <= float(found.together(np.asarray(8))[0]) < 1.1 * most
    assert 8 * float(found.alone[0]) > 1.3 * most


@given(
    pool=st.floats(1.0, 1e6),
    length=st.integers(1, 5000),
    window=st.integers(1, 2000),
    step=st.integers(1, 9000),
)
def test_a_pool_holds_as_many_requests_as_take_it(pool: float, length: int, window: int, step: int) -> None:
    found = charges([group(2, 1), group(3, 1, window=window)], length=length, in_flight=step)
    held = found.within(np.array([pool]))
    assert found.together(held) == pytest.approx(np.array([pool]))
    assert found.together(np.ones(1)) == pytest.approx(found.alone)


def test_a_step_is_shared_by_all_requests_that_run() -> None:
    """Gemma-3-27B in groups of ten layers, 16,384 tokens: 1024 blocks of the full one and 65 of six windowed ones are
    1.73 GiB (1024 tokens are in sight), and 512 blocks for the 8,192 tokens of one step in each of the six 3.75 GiB."""
    found = charges([FULL, SLIDING], length=16_384, in_flight=8192)
    page = 10 * 16 * 8192
    assert found.request == (1024 + 6 * 65) * page
    assert found.request / GIB == pytest.approx(1.726, abs=0.001)
    assert found.alone == (1024 + 6 * 577) * page
    assert found.shared == 6 * 512 * page
    assert found.together(np.asarray(32.0)) == 32 * found.request + found.shared


def test_more_tokens_a_step_cost_a_pool_once() -> None:
    """Twice the tokens of a step take room for as many tokens more from the requests of one pool, not from each."""
    few, many = (
        held(GEMMA, engine="vllm", gpu="h200-sxm", length=16_384, told=Settings(max_batched_tokens=step))
        for step in (4096, 8192)
    )
    page = 10 * 16 * 8192
    assert many.shared - few.shared == 2 * 6 * 4096 / 16 * page
    assert few.capacity - many.capacity <= np.ceil(
        (few.pool - many.pool + many.shared - few.shared) / many.request
    )
    assert many.capacity > 2.5 * np.floor(many.pool / many.alone)


def test_nearly_equal_kinds_are_padded_to_the_larger_one() -> None:
    """gpt-oss-20b with a drafter: 13 full and 12 sliding layers are two groups of 13, not three of 12."""
    kept = [group(13, 2048), group(12, 2048, window=128)]
    charged = grouped_charge(kept, allocator=UNIFORM, length=1024, in_flight=8192)
    assert charged.logged_token == pytest.approx(2 * 13 * 2048)


def token_bytes(name: str, *, gpu: str, engine: str = "vllm", kv: str = "fp8", **told: Any) -> float:
    """Bytes of cache for a token of a long request."""
    transformer, known = model(name), catalog.formats()
    one = memory(
        transformer, chosen_precision(transformer, weights=None, kv=known[kv], formats=known),
        layout=Layout(tensor=8), gpu=catalog.gpus()[gpu], engine=catalog.engines()[engine],
        workload=Workload(prompt=16_383, output=1), concurrency=1, settings=Settings(**told),
    )  # fmt: skip
    return float(one.request) / 16_384


def test_sparse_latents_are_packed_where_the_kernels_take_them_so() -> None:
    """GLM-5.2: a fork of vLLM logs 54,728 bytes a token, 79 x 656 + 22 x 132 of index (local-inference-lab/vllm#82), of
    which its drafting layer has one each; DeepSeek-V3.2 has 61 layers with an index each."""
    glm, deepseek = "zai-org/GLM-5.2-FP8", "deepseek-ai/DeepSeek-V3.2"
    for gpu in ("h200-sxm", "rtx-pro-6000-server"):
        assert token_bytes(glm, gpu=gpu) + 656 + 132 == 54_728
    assert token_bytes(deepseek, gpu="h200-sxm") == 61 * (656 + 132)


@pytest.mark.parametrize(
    ("engine", "gpu", "latent"),
    [
        ("vllm", "h200-sxm", 656),
        ("vllm", "b200-sxm", 576),
        ("vllm", "mi355x", 576),
        ("vllm-0.17", "b200-sxm", 576),
        ("vllm-0.16", "b200-sxm", 656),
        ("sglang", "h100-sxm", 656),
        ("sglang", "b200-sxm", 576),
        ("ideal", "h200-sxm", 576),
    ],
)
def test_whose_latents_are_packed(engine: str, gpu: str, latent: int) -> None:
    """vLLM: FlashMLA's 656 bytes, FlashInfer's 576 by default on B200 since 0.18; SGLang: 576 from Blackwell up."""
    assert token_bytes("deepseek-ai/DeepSeek-V3.2", gpu=gpu, engine=engine) == 61 * (latent + 132)


def test_only_eight_bit_latents_of_sparse_attention_are_packed() -> None:
    assert token_bytes("deepseek-ai/DeepSeek-V3.2", gpu="h200-sxm", kv="bf16") == 61 * (2 * 576 + 132)
    assert token_bytes(DEEPSEEK, gpu="h200-sxm") == 61 * 576


def test_gpus_side_by_side_pack_latents_each_as_its_kernels_do() -> None:
    transformer, known = model("deepseek-ai/DeepSeek-V3.2"), catalog.gpus()
    precision = chosen_precision(
        transformer, weights=None, kv=catalog.formats()["fp8"], formats=catalog.formats()
    )
    both = memory(
        transformer, precision, layout=Layout.stack([Layout(tensor=8)] * 2).column(),
        gpu=Gpus((known["h200-sxm"], known["b200-sxm"]), layouts=(1, 1)), engine=catalog.engines()["vllm"],
        workload=Workload(prompt=16_383, output=1), concurrency=np.array([1, 2]),
    )  # fmt: skip
    assert (both.request[:, 0] / 16_384).tolist() == [61 * (656 + 132), 61 * (576 + 132)]


def test_pages_grow_until_a_state_fits() -> None:
    """Qwen3-Next at TP2: 544-token blocks; 12 attention layers of 1024 B and 36 state pages: 3.02 GiB at 262,144."""
    kept = [group(12, 1024), group(36, 0, state=548_864)]
    charged = grouped_charge(kept, allocator=UNIFORM, length=262_144, in_flight=8192)
    assert charged.request / GIB == pytest.approx(3.02, abs=0.01)


def compressing(*, full: int, fourfold: int, farther: int) -> list[Store]:
    """DeepSeek-V4's layers with an FP8 cache: windows only, four tokens an entry and an index, 128 tokens an entry."""
    window = group(full + fourfold + farther, 584, window=128)
    beyond = group(0, 0)
    return [
        window,
        replace(beyond, layers=np.array([float(fourfold)]), folded=4, entry=584.0, index=132.0),
        replace(beyond, layers=np.array([float(farther)]), folded=128, entry=584.0),
    ]


@pytest.mark.parametrize(
    ("length", "gib", "pages", "stay"), [(30_000, 6.66, 6800, 144), (13_528, 5.44, 5554, 79)]
)
def test_states_of_the_tokens_in_flight_dominate_a_compressed_cache(
    length: int, gib: float, pages: int, stay: int
) -> None:
    """DeepSeek-V4-Flash with 16,384 tokens a step: both figures of one log (vllm-project/vllm#44376). Of 30,000 tokens
    stay 118 pages of compressed entries, 2 x 3 of windows, 3 of states of four tokens and 17 of those of 128."""
    kept = compressing(full=2, fourfold=21, farther=20)
    charged = charge(kept, allocator=UNIFORM, length=length, in_flight=16_384)
    assert charged.alone / GIB == pytest.approx(gib, abs=0.005)
    assert charged.request / charged.alone == pytest.approx(stay / pages)
    assert charged.logged_token == pytest.approx(charged.alone / length)


def test_layers_of_a_compressed_cache_share_blocks_so_that_few_places_are_empty() -> None:
    """21, 43, 21 and 20 layers in blocks of 22 leave five places; in blocks of 21 they would leave 22."""
    kinds = [np.array([float(count)]) for count in (21, 43, 21, 20)]
    assert tuples_of_block(kinds[0], kinds=kinds) == 22


def test_a_compressed_cache_is_charged_by_its_whole_model() -> None:
    """The catalogue's DeepSeek-V4-Flash on two GH200 is charged what its layers are."""
    transformer = catalog.model("deepseek-ai/DeepSeek-V4-Flash").transformer
    precision = chosen_precision(transformer, weights=None, kv=None, formats=catalog.formats())
    layout = Layout(tensor=2, expert=2)
    kept = stores(transformer, precision, layout=layout, stages=distinct_stages(transformer, layout=layout))
    same = compressing(full=2, fourfold=21, farther=20)
    charged, expected = (
        charge(one, allocator=UNIFORM, length=30_000, in_flight=16_384).alone for one in (kept, same)
    )
    assert charged == pytest.approx(expected)


def test_windows_keep_the_blocks_of_steps_in_flight() -> None:
    """vLLM since 0.26 schedules a step before the last one is done: as if steps were twice as long, for windows."""
    profile = catalog.engines()["vllm"].memory
    assert profile.steps_in_flight == 2

    def longest(*, steps: int, tokens: int) -> float:
        engine = catalog.engines()["vllm"]
        waiting = engine.model_copy(update={"memory": profile.model_copy(update={"steps_in_flight": steps})})
        return float(
            memory(
                model(GEMMA), plain(model(GEMMA)), layout=Layout(tensor=2), gpu=catalog.gpus()["h100-sxm"],
                engine=waiting, workload=Workload(prompt=100_000, output=1), concurrency=1,
                settings=Settings(max_batched_tokens=tokens),
            ).longest
        )  # fmt: skip

    assert longest(steps=2, tokens=8192) == longest(steps=1, tokens=16_384) > longest(steps=1, tokens=8192)


def test_buffers_of_collectives_grow_with_the_ranks_on_fast_links_only() -> None:
    """vLLM 0.26 logs 0.95 GiB on each of four GPUs and 1.74 on each of eight; PCIe 0.20 to 0.36 with two to sixteen."""
    shared, known = catalog.engines()["vllm"].memory.non_torch, catalog.gpus()
    four, eight = (float(shared_bytes(shared, ranks=ranks, gpu=known["h200-sxm"])) / GIB for ranks in (4, 8))
    assert [four, eight] == pytest.approx([0.95, 1.74], rel=0.06)
    slow = [float(shared_bytes(shared, ranks=ranks, gpu=known["l40s"])) / GIB for ranks in (2, 4, 16)]
    assert slow == pytest.approx([0.3] * 3)
    assert float(shared_bytes(shared, ranks=1, gpu=known["l40s"], stages=3)) / GIB == pytest.approx(0.07)


def test_a_stage_that_passes_on_holds_what_it_passes() -> None:
    """The first of three stages of Qwen3-8B peaks at 0.96 GiB with 8,192 tokens a step (llm-d-planner#205)."""
    ranks = replica_memory(
        model("Qwen/Qwen3-8B"), plain(model("Qwen/Qwen3-8B")), layout=Layout(pipeline=3),
        gpu=catalog.gpus()["h100-sxm"], engine=catalog.engines()["vllm-0.17"],
        workload=Workload(prompt=8191, output=1), concurrency=1,
    )  # fmt: skip
    assert float(ranks[0].each.activations) / GIB == pytest.approx(0.96, rel=0.03)
    assert float(ranks[-1].each.activations) / GIB > 2


def test_without_windows_or_states_nothing_is_padded() -> None:
    kept = [group(30, 1024), group(1, 4096)]
    charged = grouped_charge(kept, allocator=UNIFORM, length=1600, in_flight=8192)
    assert charged.request == exact_charge(kept, block=16, length=1600).request == 1600 * (30 * 1024 + 4096)


@given(length=st.integers(1, 1_000_000), batched=st.integers(1, 65_536))
def test_no_allocator_takes_less_than_the_model_defines(length: int, batched: int) -> None:
    kept = [FULL, SLIDING, group(5, 0, state=1e6)]
    ideal = exact_charge(kept, block=1, length=length).request
    assert exact_charge(kept, block=16, length=length).request >= ideal
    assert two_pool_charge(kept, share=0.8, length=length).request >= ideal * (1 - 1e-12)
    assert grouped_charge(kept, allocator=UNIFORM, length=length, in_flight=batched).request >= ideal


def test_an_engine_that_is_not_told_of_windows_keeps_every_token() -> None:
    kept = [FULL, SLIDING, group(5, 0, state=1e6)]
    whole = charge(kept, allocator=Exact(block=32, windows=False), length=8192, in_flight=8192).request
    assert whole == pytest.approx(8192 * 8192 * 62 + 5e6)
    allocator = catalog.engines()["trtllm"].memory.allocator
    assert isinstance(allocator, Exact)
    assert not allocator.windows


def test_two_pools_hold_a_fixed_share_of_windowed_tokens() -> None:
    charged = two_pool_charge([FULL, SLIDING], share=0.8, length=8192)
    assert charged.request == pytest.approx(8192 * 8192 * (10 + 0.8 * 52))
    short = two_pool_charge([FULL, SLIDING], share=0.8, length=512)
    assert short.request == pytest.approx(8192 * 512 / 0.8 * (10 + 0.8 * 52))


@pytest.mark.parametrize(("engine", "kind"), [("vllm", Grouped), ("sglang", TwoPools), ("trtllm", Exact)])
def test_each_engine_has_its_allocator(engine: str, kind: type) -> None:
    assert isinstance(catalog.engines()[engine].memory.allocator, kind)


def test_a_cache_of_half_the_width_holds_twice_the_tokens() -> None:
    assert held(kv="fp8").kv_tokens == pytest.approx(2 * held().kv_tokens)


def test_allocated_is_at_least_ideal() -> None:
    for name in (LLAMA_8B, GEMMA):
        one = held(name)
        assert one.request >= one.request_ideal
        assert one.kv_ideal <= one.kv * (1 + 1e-12)


# --- settings


def test_the_sampler_shrinks_with_its_slots() -> None:
    """gpt-oss-120b on one H100: 1024 slots leave no cache before 0.17; fewer slots do, fewer step tokens do not."""
    name, told = "openai/gpt-oss-120b", {"utilization": 0.95}
    default, tokens, slots = (
        held(name, engine="vllm-0.16", weights="mxfp4", length=2, told=Settings.model_validate(told | more))
        for more in ({}, {"max_batched_tokens": 1024}, {"max_num_seqs": 128})
    )
    assert tokens.pool - default.pool < 1 * GIB
    assert slots.pool - default.pool > 5 * GIB


def test_eager_records_no_graphs() -> None:
    assert held(told=Settings(eager=True)).graphs == 0
    assert held().graphs > 0
    assert graph_sizes(16) < graph_sizes(512) == 51


def test_a_longer_limit_is_harder_to_start_with() -> None:
    assert held(told=Settings(utilization=0.25, max_length=2048)).starts
    assert not held(told=Settings(utilization=0.25, max_length=131_072)).starts


@pytest.mark.parametrize(
    "bad", [{"utilization": 0}, {"utilization": 1.1}, {"max_num_seqs": 0}, {"colour": "red"}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(bad)


# --- shape


@settings(deadline=None, max_examples=25)
@given(low=st.floats(0.3, 0.9), more=st.floats(0.01, 0.1), length=st.integers(2, 100_000))
def test_a_larger_share_never_holds_less(low: float, more: float, length: int) -> None:
    small, large = (held(length=length, told=Settings(utilization=share)) for share in (low, low + more))
    assert large.pool > small.pool
    assert large.requests >= small.requests
    assert held(length=length + 16).requests < held(length=length).requests


def test_more_requests_use_more_until_the_pool_is_full() -> None:
    one = held(concurrency=np.array([1, 8, 64, 512]))
    assert one.kv_needed.tolist() == [n * float(one.request) for n in (1, 8, 64, 512)]
    assert one.kv[0] < one.kv[1] < one.kv[2]
    assert one.kv[3] == one.capacity * one.request
    assert one.running.tolist() == [1, 8, min(64, one.capacity), one.capacity]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [LLAMA_8B, GEMMA, DEEPSEEK])
def test_many_layouts_at_once_are_the_same_as_one_by_one(engine: str, name: str) -> None:
    layouts = [
        Layout(),
        Layout(tensor=8),
        Layout(data=4),
        Layout(tensor=2, pipeline=3),
        Layout(pipeline=2, data=2),
    ]
    batches = np.array([1, 100])
    together = held(name, engine=engine, layout=Layout.stack(layouts).column(), concurrency=batches)
    for index, layout in enumerate(layouts):
        alone = held(name, engine=engine, layout=layout, concurrency=batches)
        for field in fields(Memory):
            if field.name not in ("usable", "weights_by_component", "stage"):
                every = np.broadcast_to(getattr(together, field.name), (5, 2))
                assert every[index] == pytest.approx(np.broadcast_to(getattr(alone, field.name), 2)), (
                    field.name
                )


def test_a_whole_grid_takes_milliseconds() -> None:
    layouts = Layout.stack(
        [
            Layout(tensor=t, data=d, pipeline=p)
            for t in (1, 2, 4, 8)
            for d in (1, 2, 4, 8)
            for p in range(1, 17)
        ]
    )
    transformer = model(DEEPSEEK)
    precision = Precision(
        weights=dict.fromkeys(COMPONENTS, catalog.formats()["fp8"]), kv=catalog.formats()["fp8"]
    )
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        memory(
            transformer,
            precision,
            layout=layouts.column(),
            gpu=catalog.gpus()["h100-sxm"],
            engine=catalog.engines()["vllm"],
            workload=Workload(),
            concurrency=np.arange(1, 33),
        )
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.05
