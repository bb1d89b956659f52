"""What one rank holds: shards sum to the whole, latents and routers are repeated, stages follow the engine's rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.formats import COMPONENTS, Component, Format, Precision
from parplan.layout import Layout, stage_bounds
from parplan.mixers import GroupedQuery, Latent, Recurrent
from parplan.provenance import Source
from parplan.transformer import Block, Dense, Experts, Transformer
from parplan.units import GIB, Array
from parplan.work import (
    all_stages,
    cache_bytes,
    cache_share,
    distinct_stages,
    experts_held,
    stage_parameters,
    stage_weight_bytes,
)

SOURCE = (Source.model_validate({"text": "test", "read": "2026-11-29"}),)
BF16 = Format(name="bf16", label="BF16", bits=16, arithmetic="bf16", kind=("weights", "kv"), sources=SOURCE)
FP8 = Format(name="fp8", label="FP8", bits=8, arithmetic="fp8", kind=("weights", "kv"), sources=SOURCE)
PLAIN = Precision(weights=dict.fromkeys(COMPONENTS, BF16), kv=BF16)

WIDTHS = st.sampled_from([1, 2, 4, 8])


def dense_model(*, layers: int = 32, kv_heads: int = 8, tied: bool = False) -> Transformer:
    """Llama-3.1-8B's shape."""
    mixer = GroupedQuery(hidden=4096, heads=32, kv_heads=kv_heads, head_dim=128, value_dim=128)
    block = Block(mixer=mixer, dense=Dense(inputs=4096, width=14336), norms=8192)
    embedding = 128256 * 4096
    return Transformer(
        name="dense",
        family="test",
        hidden=4096,
        vocabulary=128256,
        context_length=131072,
        blocks=(block,),
        sequence=(0,) * layers,
        embedding=embedding,
        head=0 if tied else embedding,
        final_norm=4096,
    )


def parameters_of(model: Transformer, *, layout: Layout) -> dict[Component, Array]:
    """On the fullest rank of every stage."""
    return stage_parameters(model, layout=layout, stages=all_stages(model, layout=layout))


def weights_of(model: Transformer, precision: Precision, *, layout: Layout) -> dict[Component, Array]:
    """The same in bytes."""
    return stage_weight_bytes(model, precision, layout=layout, stages=all_stages(model, layout=layout))


def mixture() -> Transformer:
    """A DeepSeek-V3-like stack: three dense layers, then experts, latent attention throughout."""
    latent = Latent(
        hidden=7168, heads=128, query_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128
    )
    experts = Experts(
        count=256,
        chosen=8,
        inputs=7168,
        width=2048,
        shared=1,
        shared_parameters=3 * 7168 * 2048,
        shared_width=2048,
        router=256 * 7168,
    )
    blocks = (
        Block(mixer=latent, dense=Dense(inputs=7168, width=18432), norms=2 * 7168),
        Block(mixer=latent, experts=experts, norms=2 * 7168),
    )
    return Transformer(
        name="mixture",
        family="test",
        hidden=7168,
        vocabulary=129280,
        context_length=163840,
        blocks=blocks,
        sequence=(0,) * 3 + (1,) * 58,
        embedding=129280 * 7168,
        head=129280 * 7168,
        final_norm=7168,
    )


@pytest.mark.parametrize(
    ("layers", "pipeline", "sizes"),
    [
        (61, 4, [15, 15, 16, 15]),
        (94, 4, [23, 24, 24, 23]),
        (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]),
        (80, 2, [40, 40]),
    ],
)
def test_stages_are_split_as_vllm_splits_them(layers: int, pipeline: int, sizes: list[int]) -> None:
    """vLLM get_pp_indices: the rest goes to the last stages but one, from the back."""
    assert np.diff(stage_bounds(layers, pipeline=pipeline)).tolist() == sizes


@given(tensor=WIDTHS, pipeline=WIDTHS)
def test_one_gpu_of_each_stage_and_rank_holds_the_whole_model(tensor: int, pipeline: int) -> None:
    model = dense_model()
    held = parameters_of(model, layout=Layout(tensor=tensor, pipeline=pipeline))
    for component, whole in model.components.items():
        ranks = 1 if component == "norms" else tensor
        assert held[component].sum() * ranks == pytest.approx(whole)


@given(pipeline=st.integers(1, 61))
def test_every_layer_is_on_one_stage(pipeline: int) -> None:
    model = mixture()
    layers = all_stages(model, layout=Layout(pipeline=pipeline)).layers
    assert layers.sum(axis=0).tolist() == [3, 58]
    assert layers.sum(axis=-1).max() - layers.sum(axis=-1).min() <= 1


@given(pipeline=st.integers(1, 61), tensor=WIDTHS)
def test_a_stage_of_each_kind_stands_for_all_of_them(pipeline: int, tensor: int) -> None:
    """What any stage holds, one of the distinct ones holds, and it is the first that does."""
    model, layout = mixture(), Layout(tensor=tensor, pipeline=pipeline)
    every, few = all_stages(model, layout=layout), distinct_stages(model, layout=layout)
    totals = [
        np.sum(list(stage_parameters(model, layout=layout, stages=found).values()), axis=0)
        for found in (every, few)
    ]
    assert set(totals[0].tolist()) == set(totals[1].tolist())
    assert few.index.size <= min(pipeline, 7)
    for index, total in zip(few.index, totals[1], strict=True):
        assert totals[0][int(index)] == total


def test_pipelines_of_several_depths_keep_their_own_ends() -> None:
    few = distinct_stages(mixture(), layout=Layout(pipeline=np.array([1, 2, 8])))
    assert few.first.any(axis=-1).all()
    assert few.last.any(axis=-1).all()
    assert few.there.all()


@given(tensor=WIDTHS, data=WIDTHS, spread=st.integers(0, 6))
def test_experts_of_all_ranks_sum_to_all_experts(tensor: int, data: int, spread: int) -> None:
    model = mixture()
    expert = min(2**spread, tensor * data)
    held = parameters_of(model, layout=Layout(tensor=tensor, data=data, expert=expert))
    assert held["routed_experts"].sum() * tensor * data == pytest.approx(model.components["routed_experts"])


def test_an_uneven_expert_count_rounds_up_on_the_fullest_rank() -> None:
    experts = Experts(count=160, chosen=8, inputs=1, width=1)
    assert experts_held(experts, layout=Layout(tensor=24, expert=24)) == 7.0


def test_kv_heads_repeat_beyond_one_per_rank() -> None:
    few = dense_model(kv_heads=2)
    mixer = few.blocks[0].mixer
    assert mixer
    held = [float(np.asarray(cache_share(mixer, layout=Layout(tensor=width)))) for width in (1, 2, 4, 8)]
    assert held == [1.0, 0.5, 0.5, 0.5]
    attention = [parameters_of(few, layout=Layout(tensor=width))["attention"].sum() for width in (2, 8)]
    keys = 32 * mixer.cut.kv
    assert attention[0] * 2 == pytest.approx(32 * mixer.cut.total)
    assert attention[1] * 8 == pytest.approx(32 * mixer.cut.total + 3 * keys)


def test_a_latent_is_not_cut_and_its_down_projections_are_on_every_rank() -> None:
    model = mixture()
    mixer = model.blocks[0].mixer
    assert mixer
    assert cache_share(mixer, layout=Layout(tensor=8)) == 1.0
    parts = (parameters_of(model, layout=Layout(tensor=width)) for width in (1, 8))
    alone, eighth = (part["attention"].sum() + part["attention_output"].sum() for part in parts)
    assert eighth > alone / 8
    assert eighth == pytest.approx(61 * (mixer.cut.tensor / 8 + mixer.cut.replicated))


def test_latent_cache_is_576_elements_per_layer() -> None:
    """DeepSeek-V3: 512 latent and 64 rotary elements, 1152 bytes in bf16 (70,272 over 61 layers)."""
    mixer = mixture().blocks[0].mixer
    assert mixer
    assert 61 * cache_bytes(mixer, PLAIN, length=1) == 70_272


def test_decode_context_parallelism_cuts_along_the_sequence() -> None:
    mixer = mixture().blocks[0].mixer
    assert mixer
    assert cache_share(mixer, layout=Layout(tensor=8, decode_context=8)) == 1 / 8


def test_states_are_cut_by_heads_but_not_along_the_sequence() -> None:
    mixer = Recurrent(
        variant="mamba2",
        hidden=8,
        heads=8,
        tensor_parameters=0,
        replicated_parameters=0,
        state_elements=64,
        convolution_elements=0,
    )
    assert cache_share(mixer, layout=Layout(tensor=4, decode_context=4)) == 0.25
    assert cache_bytes(mixer, PLAIN, length=1) == cache_bytes(mixer, PLAIN, length=100_000) == 256


def test_a_tied_head_is_stored_again_on_the_last_stage_only() -> None:
    model = dense_model(tied=True)
    alone = parameters_of(model, layout=Layout())
    split = parameters_of(model, layout=Layout(pipeline=4))
    assert alone["head"].sum() == 0
    assert split["embedding"].tolist() == [model.embedding, 0, 0, 0]
    assert split["head"].tolist() == [0, 0, 0, model.embedding]


def test_the_first_and_last_stage_are_the_heaviest() -> None:
    """Logged for Llama-8B in bf16 over four stages: 4.26, 3.28, 3.28 and 4.26 GiB."""
    stages = sum(weights_of(dense_model(), PLAIN, layout=Layout(pipeline=4)).values())
    assert stages / GIB == pytest.approx([4.26, 3.28, 3.28, 4.26], rel=0.01)


def test_bytes_are_parameters_in_their_own_format() -> None:
    model = mixture()
    mixed = Precision(weights=PLAIN.weights | {"routed_experts": FP8}, kv=BF16)
    plain, quantised = (weights_of(model, p, layout=Layout()) for p in (PLAIN, mixed))
    assert quantised["routed_experts"].sum() == plain["routed_experts"].sum() / 2
    assert quantised["attention"].sum() == plain["attention"].sum()


def test_many_layouts_at_once_are_the_same_as_one_by_one() -> None:
    model = mixture()
    layouts = [
        Layout(tensor=8),
        Layout(data=8, expert=8),
        Layout(tensor=4, pipeline=3),
        Layout(tensor=8, expert=8),
    ]
    together = parameters_of(model, layout=Layout.stack(layouts))
    for index, layout in enumerate(layouts):
        for component, parameters in parameters_of(model, layout=layout).items():
            stages = parameters.shape[-1]
            assert np.broadcast_to(together[component], (4, 3))[index, :stages] == pytest.approx(parameters)
            assert not np.broadcast_to(together[component], (4, 3))[index, stages:].any()
