"""One step of an engine: known rooflines, limits, scaling, monotony, conservation."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma

from parplan import catalog
from parplan.attention import attended, attended_in_total
from parplan.calibration import Engine, SpeedProfile
from parplan.collectives import all_to_all_time, forwarded_all_to_all_time
from parplan.formats import Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.matrices import expert_work, experts_touched
from parplan.mixers import Compressed, GroupedQuery, Recurrent
from parplan.placement import Placement
from parplan.problem import chosen_precision
from parplan.seating import Group
from parplan.step import BOUNDS, Step, decode_step, drafter, prefill_step, waiting_share
from parplan.transformer import Experts, Transformer
from parplan.work import all_stages, stage_weight_bytes

LLAMA = "meta-llama/Meta-Llama-3.1-70B"
DEEPSEEK = "deepseek-ai/DeepSeek-R1"
QWEN_MOE = "Qwen/Qwen3-235B-A22B"
GPT_OSS = "openai/gpt-oss-120b"
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
MODELS = (LLAMA, DEEPSEEK, QWEN_MOE, GPT_OSS, NEMOTRON)
ENGINES = ("vllm", "sglang", "trtllm", "ideal")
PARTS = (
    "linear",
    "attention",
    "experts",
    "all_reduce",
    "all_to_all",
    "send",
    "launch",
    "head",
    "engine",
    "bubble",
    "draft",
)
RATES = ("bandwidth", "link", "peer", "network")

batches = st.integers(min_value=1, max_value=2048)
lengths = st.integers(min_value=1, max_value=200_000)
layouts = st.builds(
    Layout,
    tensor=st.sampled_from([1, 2, 8, 16]),
    data=st.sampled_from([1, 4]),
    pipeline=st.sampled_from([1, 2]),
)


def model(name: str) -> Transformer:
    """A model of the catalogue."""
    return catalog.model(name).transformer


def stored(transformer: Transformer, *, weights: str | None = None, kv: str | None = None) -> Precision:
    """As published, or in one format."""
    known = catalog.formats()
    return chosen_precision(
        transformer,
        weights=known[weights] if weights else None,
        kv=known[kv] if kv else None,
        formats=known,
    )


def engine(name: str) -> Engine:
    """An engine of the catalogue."""
    return catalog.engines()[name]


def gpu(name: str = "h100-sxm", *, faster: float = 1.0) -> Gpu:
    """A GPU of the catalogue, all its rates multiplied."""
    known = catalog.gpus()[name]
    rates = {rate: getattr(known, rate) * faster for rate in RATES if getattr(known, rate)}
    peaks = {arithmetic: peak * faster for arithmetic, peak in known.peaks.items()}
    return known.model_copy(update=rates | {"peaks": peaks})


def running(speed: SpeedProfile) -> Engine:
    """An engine at some rates."""
    return engine("ideal").model_copy(update={"speed": speed})


def decode(
    name: str = LLAMA,
    *,
    on: Gpu | None = None,
    by: str = "vllm",
    layout: Layout | None = None,
    batch: Any = 16,
    length: Any = 1024,
    weights: str | None = None,
    draft: int = 0,
) -> Step:
    """A decode step of a model of the catalogue."""
    transformer = model(name)
    return decode_step(
        transformer,
        at=Placement(
            stored(transformer, weights=weights), layout or Layout(tensor=8), on or gpu(), engine(by)
        ),
        batch=batch,
        length=length,
        draft=draft,
    )


def prefill(
    name: str = LLAMA,
    *,
    on: Gpu | None = None,
    by: str = "vllm",
    layout: Layout | None = None,
    tokens: Any = 2048,
    prior: Any = 0,
    weights: str | None = None,
) -> Step:
    """A prefill step of a model of the catalogue."""
    transformer = model(name)
    return prefill_step(
        transformer,
        at=Placement(
            stored(transformer, weights=weights), layout or Layout(tensor=8), on or gpu(), engine(by)
        ),
        tokens=tokens,
        prior=prior,
    )


def test_one_token_of_an_ideal_engine_reads_the_weights_once() -> None:
    """The napkin: 70B in FP8 on one H200 take weight bytes / bandwidth, cache and embedding apart."""
    transformer = model(LLAMA)
    precision = stored(transformer, weights="fp8")
    stages = all_stages(transformer, layout=Layout())
    held = stage_weight_bytes(transformer, precision, layout=Layout(), stages=stages)
    read = sum(float(part.sum()) for component, part in held.items() if component != "embedding")
    seconds = decode(by="ideal", on=gpu("h200-sxm"), layout=Layout(), batch=1, length=1, weights="fp8").total
    assert seconds == pytest.approx(read / 4.8e12, rel=0.001)


def test_prefill_of_an_ideal_engine_is_two_flop_per_parameter_and_token() -> None:
    """A second derivation: 2 x layer parameters x tokens and causal attention, at the peak."""
    transformer = model(LLAMA)
    layers = transformer.total_parameters - 2 * transformer.vocabulary * transformer.hidden
    attention = 80 * 4 * 64 * 128 * 8192**2 / 2
    expected = (2 * layers * 8192 + attention) / 989.4e12
    seconds = prefill(by="ideal", layout=Layout(), tokens=8192, weights="bf16").total
    assert seconds == pytest.approx(expected, rel=0.002)


def test_an_a100_has_no_fp8_arithmetic() -> None:
    """FP8 weights save it memory traffic and nothing else."""
    a100 = gpu("a100-sxm-80")
    wide, narrow = (
        decode(by="ideal", on=a100, weights=name, batch=4096, length=1) for name in ("bf16", "fp8")
    )
    assert narrow.compute == pytest.approx(wide.compute)
    assert narrow.memory < wide.memory


def test_four_bits_on_hopper_compute_in_sixteen() -> None:
    at = Placement(stored(model(GPT_OSS)), Layout(), gpu("h100-sxm"), engine("vllm"))
    assert at.arithmetic("routed_experts") == "bf16"
    blackwell = Placement(stored(model(GPT_OSS)), Layout(), gpu("b200-sxm"), engine("vllm"))
    assert blackwell.arithmetic("routed_experts") == "fp8", "MXFP4 weights take inputs of eight bits"
    nvfp4 = Placement(stored(model(QWEN_MOE), weights="nvfp4"), Layout(), gpu("b200-sxm"), engine("vllm"))
    assert nvfp4.arithmetic("routed_experts") == "fp4"


def test_the_higher_the_peak_the_less_of_it_is_reached() -> None:
    """Medians over matrix products of 1024 tokens and more in bf16: 0.83, 0.76 and 0.65 of A100, H100 and B200
    (aiconfigurator 0.12.0 data, TensorRT-LLM, read 2026-11-29)."""
    speed = engine("ideal").speed.model_copy(
        update={"feeding": 1 / 7.0e15, "compute": dict.fromkeys(("bf16",), 0.87)}
    )
    for name, reached in (("a100-sxm-80", 0.83), ("h100-sxm", 0.76), ("b200-sxm", 0.65)):
        at = Placement(stored(model(LLAMA)), Layout(), gpu(name), running(speed))
        assert at.product_rate("attention") == pytest.approx(reached * gpu(name).peaks["bf16"], rel=0.015)
        assert at.attention_rate == pytest.approx(gpu(name).peaks["bf16"] * at.fed)


def test_experts_scaled_by_blocks_are_read_more_slowly() -> None:
    known = engine("ideal").speed
    slowed = known.model_copy(update={"block_experts": 0.5})

    def kept(component: Component, *, weights: str, on: str = "h200-sxm") -> float:
        precision = stored(model(QWEN_MOE), weights=weights)
        slow, fast = (
            Placement(precision, Layout(), gpu(on), running(speed)).weight_bandwidth(component)
            for speed in (slowed, known)
        )
        return float(slow / fast)

    assert kept("routed_experts", weights="fp8-block") == pytest.approx(0.5)
    assert kept("attention", weights="fp8-block") == 1
    assert kept("routed_experts", weights="fp8") == 1
    assert kept("routed_experts", weights="fp8-block", on="a100-sxm-80") == 1, (
        "expanded to 16 bits on the way in"
    )


def test_who_expands_four_bits() -> None:
    hopper, blackwell, ampere = gpu("h100-sxm"), gpu("b200-sxm"), gpu("a100-sxm-80")
    assert hopper.expands("fp4")
    assert hopper.expands("fp4xfp8")
    assert not hopper.expands("fp8")
    assert not blackwell.expands("fp4xfp8")
    assert ampere.expands("fp8")
    assert blackwell.peak("fp4xfp8") == blackwell.peak("fp8") == blackwell.peak("fp4") / 2


def test_scales_by_the_block_cost_the_same_in_a_graph_and_outside() -> None:
    """What is launched one by one takes longer to launch, not to scale."""
    known = engine("vllm").speed
    free, dear = (known.model_copy(update={"blocks": blocks}) for blocks in (0.0, 1e-3))
    transformer = model(DEEPSEEK)
    precision = stored(transformer)
    for step, load in (
        (decode_step, {"batch": 8, "length": 100}),
        (prefill_step, {"tokens": 100, "prior": 0}),
    ):
        slow, fast = (
            step(transformer, at=Placement(precision, Layout(tensor=8), gpu(), running(one)), **load).launch
            for one in (dear, free)
        )
        products = (
            3 * 61 + 2 * 3 + 2 * 58
        )  # attention of all layers, three dense ones, shared experts of the rest
        assert slow - fast == pytest.approx(products * 1e-3)


@given(
    name=st.sampled_from(MODELS), by=st.sampled_from(ENGINES), layout=layouts, batch=batches, more=batches,
    length=lengths, longer=lengths,
)  # fmt: skip
def test_a_token_never_gets_faster_with_more_requests_or_longer_ones(
    name: str, by: str, layout: Layout, batch: int, more: int, length: int, longer: int
) -> None:
    few = decode(name, by=by, layout=layout, batch=batch, length=length).total
    many = decode(name, by=by, layout=layout, batch=batch + more, length=length).total
    long = decode(name, by=by, layout=layout, batch=batch, length=length + longer).total
    assert few <= many * (1 + 1e-12)
    assert few <= long * (1 + 1e-12)


@given(
    name=st.sampled_from(MODELS), by=st.sampled_from(ENGINES), layout=layouts, batch=batches, length=lengths,
    faster=st.floats(min_value=1, max_value=4), rate=st.sampled_from(["all", "memory", "link"]),
)  # fmt: skip
def test_a_faster_gpu_is_never_slower(
    name: str, by: str, layout: Layout, batch: int, length: int, faster: float, rate: str
) -> None:
    known = gpu()
    quick = {
        "all": gpu(faster=faster),
        "memory": known.model_copy(update={"bandwidth": known.bandwidth * faster}),
        "link": known.model_copy(update={"link": known.link * faster}),
    }[rate]
    for step in (decode, prefill):
        load: dict[str, Any] = {"batch": batch, "length": length} if step is decode else {"tokens": batch}
        slow, fast = (step(name, on=one, by=by, layout=layout, **load).total for one in (known, quick))
        assert fast <= slow * (1 + 1e-12)


@given(name=st.sampled_from(MODELS), layout=layouts, batch=batches, length=lengths)
def test_without_overheads_double_rates_halve_the_time(
    name: str, layout: Layout, batch: int, length: int
) -> None:
    once, twice = (
        decode(name, on=gpu(faster=faster), by="ideal", layout=layout, batch=batch, length=length).total
        for faster in (1.0, 2.0)
    )
    assert twice == pytest.approx(once / 2)


@given(
    name=st.sampled_from(MODELS), by=st.sampled_from(ENGINES), layout=layouts, batch=batches, length=lengths
)
def test_parts_sum_to_the_total_between_its_bounds(
    name: str, by: str, layout: Layout, batch: int, length: int
) -> None:
    step = decode(name, by=by, layout=layout, batch=batch, length=length)
    assert step.total == pytest.approx(sum(getattr(step, part) for part in PARTS))
    assert {field.name for field in fields(Step)} == {*PARTS, "compute", "memory", "idle"}
    assert all(np.all(np.asarray(getattr(step, part)) >= 0) for part in PARTS)
    assert step.least <= step.total * (1 + 1e-9)
    assert step.total <= step.most * (1 + 1e-9)


def test_what_bounds_a_step() -> None:
    """Few requests wait for memory, many for arithmetic, a small model cut far for messages and launches."""
    assert BOUNDS[int(decode(by="ideal", batch=1).bound)] == "memory"
    assert BOUNDS[int(prefill(by="ideal", tokens=8192, layout=Layout()).bound)] == "compute"
    assert BOUNDS[int(decode("meta-llama/Meta-Llama-3.1-8B", batch=1).bound)] == "overhead"
    assert BOUNDS[int(decode(batch=1, layout=Layout(tensor=32)).bound)] == "communication"


@given(tokens=st.integers(min_value=1, max_value=10_000), expert=st.sampled_from([1, 4, 8, 128]))
def test_experts_touched(tokens: int, expert: int) -> None:
    """Never more than the group holds or than are chosen, all in the end, fewer when some are popular."""
    experts = Experts(count=128, chosen=8, inputs=1, width=1)
    layout = Layout(tensor=128, expert=expert)
    even, skewed = (
        float(experts_touched(experts, tokens=tokens, layout=layout, skew=skew)) for skew in (0.0, 2.0)
    )
    held = 128 / expert
    assert even == pytest.approx(held * (1 - (1 - 8 / 128) ** tokens))
    assert 0 < skewed <= even <= min(held, 8 * tokens / expert) + 1e-9
    assert float(experts_touched(experts, tokens=1e9, layout=layout, skew=0.0)) == pytest.approx(held)


@pytest.mark.parametrize("skew", [0.5, 2.97, 4.48])
@pytest.mark.parametrize("tokens", [1, 16, 300])
def test_experts_touched_are_a_mean_over_their_popularity(skew: float, tokens: int) -> None:
    """By quadrature over a gamma distribution, and as README.md writes it; little skew comes to the even one."""
    experts, alone = Experts(count=128, chosen=8, inputs=1, width=1), Layout()
    touched, least = (
        float(experts_touched(experts, tokens=tokens, layout=alone, skew=one)) for one in (skew, 1e-9)
    )
    x = -tokens * np.log(1 - 8 / 128)
    popular = gamma(1 / skew, scale=skew).ppf((np.arange(200_000) + 0.5) / 200_000)
    assert touched == pytest.approx(128 * float(np.mean(1 - np.exp(-x * popular))), rel=1e-3)
    assert touched == pytest.approx(128 * (1 - (1 + skew * x) ** (-1 / skew)))
    assert least == pytest.approx(128 * (1 - (1 - 8 / 128) ** tokens), rel=1e-5)


def test_experts_of_an_expert_parallel_group_are_read_once() -> None:
    """All ranks together read each expert once, however experts are laid out, when all are touched."""
    cut, spread = (
        decode(QWEN_MOE, by="ideal", layout=Layout(tensor=8, expert=expert), batch=4096).experts
        for expert in (1, 8)
    )
    assert cut == pytest.approx(spread, rel=0.01)


def test_latent_attention_turns_compute_bound() -> None:
    """128 heads share one latent, 242 FLOP per byte: at the rates reached arithmetic limits decode, not traffic."""
    step = decode(DEEPSEEK, layout=Layout(), batch=256, length=8192)
    flop = 61 * 256 * 8192 * 2 * 128 * (2 * 512 + 64)
    speed = engine("vllm").speed
    rate = 989.4e12 * speed.attention_compute / (1 + speed.feeding * 989.4e12)
    assert step.attention == pytest.approx(flop / rate, rel=0.001)


def test_tensor_parallelism_does_not_cut_a_latent() -> None:
    one, eight = (
        decode(DEEPSEEK, by="ideal", layout=Layout(tensor=tensor), batch=64, length=32_768).attention
        for tensor in (64, 128)
    )
    assert one == pytest.approx(eight)


def test_windows_stop_the_growth_of_attention() -> None:
    window = GroupedQuery(hidden=1, heads=1, kv_heads=1, head_dim=1, value_dim=1, window=128)
    assert [attended(window, length=length) for length in (64, 128, 1000)] == [64, 128, 128]
    sparse = window.model_copy(update={"window": None, "sparse_top_k": 2048})
    assert attended(sparse, length=100_000) == 2048


def test_folded_attention_reads_a_window_and_its_choices() -> None:
    mixer = Compressed(
        hidden=1, heads=1, head_dim=1, window=128, ratio=4, sparse_top_k=512, tensor_parameters=0,
        replicated_parameters=0,
    )  # fmt: skip
    assert [attended(mixer, length=length) for length in (64, 1024, 100_000)] == [80, 384, 640]


def test_recurrences_do_not_grow() -> None:
    transformer = model(NEMOTRON)
    recurrent = next(block.mixer for block in transformer.blocks if isinstance(block.mixer, Recurrent))
    assert attended(recurrent, length=10**6) == 0


@given(tokens=st.integers(min_value=1, max_value=5000), prior=st.integers(min_value=0, max_value=5000))
def test_causal_attention_of_a_chunk_counts_every_position_once(tokens: int, prior: int) -> None:
    """The sum over queries, done one by one."""
    window = GroupedQuery(hidden=1, heads=1, kv_heads=1, head_dim=1, value_dim=1, window=700)
    one_by_one = np.minimum(np.arange(prior, prior + tokens) + 0.5, 700).sum()
    assert float(attended_in_total(window, tokens=tokens, prior=prior)) == pytest.approx(one_by_one, abs=0.3)


def test_chunks_of_a_prompt_attend_to_as_much_as_the_whole() -> None:
    whole = prefill(by="ideal", tokens=8192).attention
    chunks = sum(prefill(by="ideal", tokens=2048, prior=prior).attention for prior in range(0, 8192, 2048))
    assert chunks == pytest.approx(whole)


def test_pipelines_do_not_shorten_a_token_and_keep_the_rest_busy() -> None:
    """One request: the same work, plus the sends. Many: each stage serves the other micro-batches meanwhile."""
    alone, staged = (
        decode(by="ideal", layout=Layout(tensor=4, pipeline=pipeline), batch=1) for pipeline in (1, 2)
    )
    assert staged.total == pytest.approx(alone.total + staged.send)
    assert alone.bubble == 0
    full = decode(by="ideal", layout=Layout(tensor=4, pipeline=4), batch=256)
    assert full.bubble == pytest.approx(0, abs=1e-12)


def test_the_fullest_stage_sets_the_pace() -> None:
    """61 layers on 4 stages are 15, 15, 16 and 15: four micro-batches take 4 x 16 layers' time."""
    share = waiting_share(model(DEEPSEEK), layout=Layout(pipeline=4), in_flight=np.asarray(4))
    assert float(share) == pytest.approx(4 * 16 / 61 - 1)
    assert float(waiting_share(model(DEEPSEEK), layout=Layout(pipeline=4), in_flight=np.asarray(1))) == 0


def test_attention_replicas_share_the_requests() -> None:
    tensor, data = (
        decode(DEEPSEEK, layout=layout, batch=256, length=4096, by="ideal").attention
        for layout in (Layout(tensor=8, expert=8), Layout(data=8, expert=8))
    )
    assert data <= tensor


def test_context_parallelism_shares_a_long_prompt() -> None:
    one, four = (
        prefill(by="ideal", layout=Layout(tensor=2, context=context), tokens=131_072) for context in (1, 4)
    )
    assert four.attention == pytest.approx(one.attention / 4)
    assert four.linear == pytest.approx(one.linear / 4, rel=0.001)
    assert four.send > one.send


def test_elementwise() -> None:
    """A grid is the same as point by point."""
    kinds = [Layout(tensor=8), Layout(tensor=2, data=4, expert=8), Layout(tensor=4, pipeline=2)]
    many = np.array([1, 7, 64, 500])
    grid = decode(QWEN_MOE, layout=Layout.stack(kinds).column(), batch=many)
    for row, layout in enumerate(kinds):
        for column, batch in enumerate(many):
            one = decode(QWEN_MOE, layout=layout, batch=int(batch)).total
            assert np.broadcast_to(grid.total, (3, 4))[row, column] == pytest.approx(float(one), rel=1e-12)


def test_an_engine_that_reaches_less_is_slower() -> None:
    """Every share of the ideal profile is one and every overhead nothing, so no engine beats it."""
    for name in ENGINES:
        assert decode(by="ideal").total <= decode(by=name).total
    assert isinstance(engine("ideal").speed, SpeedProfile)


# Drafted tokens


@given(
    name=st.sampled_from(MODELS), by=st.sampled_from(ENGINES), layout=layouts, batch=batches,
    drafted=st.integers(min_value=1, max_value=8),
)  # fmt: skip
def test_verifying_more_tokens_takes_longer_but_less_than_as_many_steps(
    name: str, by: str, layout: Layout, batch: int, drafted: int
) -> None:
    one, many = (decode(name, by=by, layout=layout, batch=batch, draft=draft) for draft in (0, drafted))
    verified = many.total - many.draft
    assert one.draft == 0
    assert np.all(many.draft > 0)
    assert one.total <= verified * (1 + 1e-12)
    assert verified <= (drafted + 1) * one.total * (1 + 1e-12)


def test_drafted_tokens_read_the_cache_and_the_weights_once() -> None:
    """One request: all traffic stays but logits and activations; attention arithmetic grows with the tokens."""
    one, four = (decode(LLAMA, by="ideal", batch=1, length=100_000, draft=draft) for draft in (0, 3))
    assert four.attention == pytest.approx(one.attention)
    assert four.linear == pytest.approx(one.linear)
    latent, more = (
        decode(DEEPSEEK, layout=Layout(), batch=256, length=8192, draft=draft) for draft in (0, 3)
    )
    assert more.attention == pytest.approx(4 * latent.attention)


def test_a_drafted_token_costs_a_layer_and_the_head() -> None:
    """DeepSeek-R1's MTP layer is its last layer with a projection: 11.61 of 684.5 billion parameters for 1 of 61."""
    transformer = model(DEEPSEEK)
    small = drafter(transformer)
    layer = sum(small.blocks[0].parameters().values())
    assert layer == pytest.approx(transformer.mtp, rel=1e-3)
    assert small.counts == (1,)
    step = decode(DEEPSEEK, by="ideal", batch=1, draft=1)
    assert step.draft < 3 * (step.total - step.draft - step.head) / 61 + step.head


def test_a_checkpoint_without_drafting_layers_takes_one_like_its_last() -> None:
    small = drafter(model(LLAMA))
    assert small.blocks == model(LLAMA).blocks
    assert small.sequence == (0,)


# Experts


def placed(speed: SpeedProfile) -> Placement:
    """Qwen3's numbers on one H100, at some rates."""
    return Placement(stored(model(QWEN_MOE)), Layout(), gpu(), running(speed))


def test_whole_experts_are_quicker_than_slices() -> None:
    """The same arithmetic on every GPU, in whole experts or in eighths of all."""
    speed = engine("vllm").speed
    even = speed.model_copy(update={"imbalance": 1.0})
    transformer = model(QWEN_MOE)
    whole, slices = (
        prefill_step(
            transformer,
            at=Placement(stored(transformer), Layout(tensor=8, expert=expert), gpu(), running(even)),
            tokens=8192,
            prior=0,
        )
        for expert in (8, 1)
    )
    assert whole.experts < slices.experts


@given(tokens=st.integers(min_value=1, max_value=100_000))
def test_no_more_is_computed_in_vain_than_is_wanted_or_fills_the_blocks(tokens: int) -> None:
    """The less the fewer tokens an expert has, and never more than one block of each: the smaller of both, or half."""
    experts = Experts(count=128, chosen=8, inputs=2048, width=768)
    known = engine("sglang").speed
    wanted, done = (
        float(np.squeeze(expert_work(experts, at=placed(speed), tokens=tokens).compute))
        for speed in (known.model_copy(update={"tile": 0.0}), known)
    )
    met = float(np.squeeze(experts_touched(experts, tokens=tokens, layout=Layout(), skew=known.skew)))
    least = min(1.0, known.tile * met / (8 * tokens))
    assert least / 2 - 1e-9 <= done / wanted - 1 <= least + 1e-9


def test_few_tokens_of_an_expert_do_not_keep_a_slow_gpu_from_its_memory() -> None:
    """Qwen3-Next in sixteen bits on four H20, 32 tokens a step: arithmetic would take eight times as long as reading if
    each expert filled a block, whatever it got."""
    transformer = model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    (experts,) = {block.experts for block in transformer.blocks if block.experts}
    at = Placement(stored(transformer), Layout(tensor=4), gpu("h20"), engine("sglang"))
    work = expert_work(experts, at=at, tokens=32)
    assert float(np.squeeze(work.compute)) < 1.5 * float(np.squeeze(work.memory))


def test_grouped_products_as_published() -> None:
    """DeepGEMM README of 2025-02, H800: four experts of 8192 tokens each, 1297 and 1099 TFLOP/s in their two products,
    together 1223; with 256 tokens each 932 and 815. What the fit to whole deployments makes of it is slower."""
    experts = Experts(count=4, chosen=1, inputs=7168, width=2048)
    at = Placement(stored(model(DEEPSEEK)), Layout(), gpu("h800-sxm"), engine("sglang"))
    for tokens, measured in ((8192, 1223e12), (256, 890e12)):
        work = expert_work(experts, at=at, tokens=4 * tokens)
        reached = 2 * 4 * tokens * experts.expert_parameters / float(np.squeeze(work.compute))
        assert 0.4 * measured <= reached <= 1.1 * measured


def test_tokens_cross_the_network_once_per_node_in_prefill() -> None:
    """32 GPUs on four nodes, eight experts: a token reaches 7.2 groups, but 2.7 of the three other nodes."""
    hopper, speed = gpu(), engine("ideal").speed
    group, node = Group(ranks=32, near=8), Group(ranks=8, near=8)
    message, crossing = 1e9 * 32 * (1 - (31 / 32) ** 8), 1e9 * 3 * (1 - (3 / 4) ** 8)
    once = forwarded_all_to_all_time(message, crossing=crossing, group=group, gpu=hopper, speed=speed)
    each = all_to_all_time(message, group=group, gpu=hopper, speed=speed)
    assert once == pytest.approx(crossing / 50e9)
    assert each == pytest.approx(message * 24 / 32 / 50e9)
    inside = forwarded_all_to_all_time(1e9, crossing=0.0, group=node, gpu=hopper, speed=speed)
    assert inside == pytest.approx(float(all_to_all_time(1e9, group=node, gpu=hopper, speed=speed)))


@pytest.mark.parametrize("expert", [1, 8])
def test_stages_inside_a_node_push_the_experts_apart(expert: int) -> None:
    """DP8 PP2 on two nodes: vLLM seats the stages of a data rank side by side, so that tokens cross to half of the
    experts; with stages outermost hidden states cross instead, which is less."""
    layout = Layout(data=8, pipeline=2, expert=expert)
    transformer, known = model(DEEPSEEK), engine("vllm")
    inside, across = (
        decode_step(
            transformer,
            at=Placement(stored(transformer), layout, gpu(), by),
            batch=512,
            length=2048,
        )
        for by in (known.model_copy(update={"name": "stages-outermost"}), known)
    )
    assert across.all_to_all > 1.3 * inside.all_to_all
    assert across.send < inside.send
    assert across.total > inside.total
    assert across.linear == inside.linear


def test_drafts_are_made_where_the_last_stage_sits() -> None:
    """The ranks of one stage are as far apart as those of the whole pipeline."""
    known = engine("vllm")
    transformer = model(DEEPSEEK)
    layout = Layout(data=8, pipeline=2, expert=8)
    far, near = (
        decode_step(
            transformer, at=Placement(stored(transformer), layout, gpu(), by), batch=512, length=2048, draft=1
        ).draft
        for by in (known, known.model_copy(update={"name": "stages-outermost"}))
    )
    assert far > near


def test_half_a_batch_hides_messages_between_nodes_only() -> None:
    known = engine("sglang").speed
    apart = known.model_copy(update={"overlap": 0.0})
    transformer = model(DEEPSEEK)
    for gpus, hides in ((8, False), (72, True)):
        layout = Layout(data=gpus, expert=gpus)
        hidden, shown = (
            decode_step(
                transformer,
                at=Placement(stored(transformer), layout, gpu(), running(speed)),
                batch=256 * gpus,
                length=2050,
            )
            for speed in (known, apart)
        )
        assert (hidden.all_to_all < shown.all_to_all) == hides
        assert hidden.linear == shown.linear
        assert shown.all_to_all - hidden.all_to_all <= shown.attention + shown.experts + shown.linear


@pytest.mark.parametrize(
    ("gpus", "each", "length", "seconds"), [(72, 256, 2050, 0.0919), (128, 128, 4096, 0.0551)]
)
def test_wide_expert_parallelism_as_published(gpus: int, each: int, length: int, seconds: float) -> None:
    """SGLang on 72 H100 (2785 tokens/s per GPU), and DeepSeek's profile on 128 H800 (2325), both as published on
    lmsys.org, 2025-05-05."""
    step = decode(
        "deepseek-ai/DeepSeek-V3",
        by="sglang",
        layout=Layout(data=gpus, expert=gpus),
        batch=each * gpus,
        length=length,
    )
    assert step.total == pytest.approx(seconds, rel=0.25)
