"""What one rank holds: parameters and cache, by layer kind and pipeline stage, on the fullest rank.

Shapes: a layout's fields broadcast to [...]; functions that look at pipeline stages add one last axis,
[..., stages], as long as the deepest pipeline; stages a layout does not have are empty.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parplan.formats import Component, Precision
from parplan.layout import Layout, stage_bounds
from parplan.mixers import Cut, Mixer, Recurrent
from parplan.transformer import Block, Experts, Transformer
from parplan.units import Array, Bytes, Count, Number

ACTIVATION_BYTES = 2.0
"""Activations, and messages between ranks, are 16 bit in every engine modelled."""
LOGIT_BYTES = 4.0
"""Logits are sampled from in 32 bit."""
INDEX_BYTES = 132 / 128
"""Bytes per element of a sparse-attention index: 8-bit keys with one 32-bit scale per 128, whatever the KV
format (vLLM vllm/model_executor/models/deepseek_v2.py, `DeepseekV32IndexerCache`, read 2026-11-29)."""


@dataclass(frozen=True)
class Stages:
    """Pipeline stages of layouts, or one of each kind; those a layout does not have are empty."""

    index: NDArray[np.int64]
    """Which ones, counted from the first, [..., stages]."""
    layers: Array
    """Layers of each kind on each, [..., stages, kinds]."""
    pipeline: Array
    """Stages a layout has, [..., 1]."""

    @property
    def first(self) -> Array:
        """One on the first stage and zero elsewhere, [..., stages]."""
        return np.asarray(self.index == 0, dtype=float)

    @property
    def last(self) -> Array:
        """One on the last stage and zero elsewhere, [..., stages]."""
        return np.asarray(self.index == self.pipeline - 1, dtype=float)

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which ones a layout has, [..., stages]."""
        return np.asarray(self.index < self.pipeline)


def all_stages(transformer: Transformer, *, layout: Layout) -> Stages:
    """Every stage, as many as the deepest pipeline has; its layers sum to the model's."""
    depths, which = np.unique(layout.pipeline, return_inverse=True)
    index = np.broadcast_to(np.arange(depths.max(initial=1)), (depths.size, depths.max(initial=1)))
    return _picked(transformer, layout=layout, depths=depths, which=which, index=index)


def distinct_stages(transformer: Transformer, *, layout: Layout) -> Stages:
    """One stage of each kind, the first: stages alike hold the same, need the same and fill at the same time.

    Layouts with fewer kinds than others have their first stage again.
    """
    depths, which = np.unique(layout.pipeline, return_inverse=True)
    kinds = [_kinds_of_stage(transformer.sequence, int(depth)) for depth in depths]
    most = max(map(len, kinds))
    index = np.array([(*found, *found[:1] * (most - len(found))) for found in kinds])
    return _picked(transformer, layout=layout, depths=depths, which=which, index=index)


def _picked(
    transformer: Transformer,
    *,
    layout: Layout,
    depths: NDArray[np.int64],
    which: NDArray[np.int64],
    index: NDArray[np.int64],
) -> Stages:
    """Some stages of each depth of pipeline, [depths, stages], for every layout."""
    counted = np.take_along_axis(_layers(transformer.sequence, depths), index[..., None], axis=-2)
    which = which.reshape(np.shape(layout.pipeline))
    return Stages(index=index[which], layers=counted[which], pipeline=np.asarray(layout.pipeline)[..., None])


def _layers(sequence: tuple[int, ...], depths: NDArray[np.int64]) -> Array:
    """Layers of each kind on every stage of pipelines, [depths, stages, kinds]."""
    kinds = np.eye(max(sequence) + 1)[list(sequence)]
    before = np.concatenate([np.zeros((1, kinds.shape[1])), np.cumsum(kinds, axis=0)])
    return np.asarray(np.diff(before[stage_bounds(len(sequence), pipeline=depths)], axis=-2))


@lru_cache(maxsize=2048)
def _kinds_of_stage(sequence: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """The first stage of each kind of a pipeline: by its layers, and by being the first or the last one."""
    layers = _layers(sequence, np.array([depth]))[0]
    ends = np.arange(depth)[:, None] == (0, depth - 1)
    _, found = np.unique(np.concatenate([layers, ends], axis=1), axis=0, return_index=True)
    return tuple(sorted(found.tolist()))


def kv_copies_cut(mixer: Mixer, *, layout: Layout) -> Number:
    """Ways tensor parallelism really cuts the KV heads of a mixer; beyond one per rank they are repeated.

    heads / ceil(heads / tensor)
    """
    return mixer.kv_heads / np.ceil(mixer.kv_heads / np.asarray(layout.tensor))


def cut_share(cut: Cut, *, mixer: Mixer, layout: Layout) -> Count:
    """Parameters of one mixer on one rank."""
    return (
        cut.tensor / np.asarray(layout.tensor) + cut.kv / kv_copies_cut(mixer, layout=layout) + cut.replicated
    )


def experts_held(experts: Experts, *, layout: Layout) -> Count:
    """Whole-expert equivalents of one layer on the fullest rank: experts per group, each cut among its ranks.

        ceil(count / expert) / (tensor x data / expert)

    >>> experts = Experts(count=128, chosen=8, inputs=1, width=1)
    >>> float(experts_held(experts, layout=Layout(tensor=8, expert=8)))
    16.0
    """
    expert = np.asarray(layout.expert)
    return np.asarray(np.ceil(experts.count / expert) * expert / np.asarray(layout.width))


def block_share(block: Block, *, layout: Layout) -> dict[Component, Count]:
    """Parameters of one layer on the fullest rank, by component."""
    tensor = np.asarray(layout.tensor)
    share: dict[Component, Count] = {}
    if block.mixer:
        name: Component = "recurrent" if isinstance(block.mixer, Recurrent) else "attention"
        output = block.mixer.output_parameters / tensor
        share[name] = cut_share(block.mixer.cut, mixer=block.mixer, layout=layout) - output
        share["attention_output"] = output
        share["indexer"] = block.mixer.index_parameters
    if block.dense:
        share["dense_ffn"] = block.dense.parameters / tensor
    if block.experts:
        share["routed_experts"] = experts_held(block.experts, layout=layout) * block.experts.expert_parameters
        share["shared_experts"] = block.experts.shared_parameters / tensor
        share["router"] = block.experts.router
    return share | {"norms": block.norms, "other": block.other}


def stage_parameters(transformer: Transformer, *, layout: Layout, stages: Stages) -> dict[Component, Array]:
    """Parameters of every component on the fullest rank of pipeline stages, [..., stages].

    The embedding lives on the first stage, the head (or the tied embedding again) on the last, both cut along the
    vocabulary. Vision towers are on the first stage and cut like the layers (vLLM `mm_encoder_tp_mode` weights).
    """
    held: dict[Component, Array] = {}
    for kind, block in enumerate(transformer.blocks):
        for component, parameters in block_share(block, layout=layout).items():
            part = stages.layers[..., kind] * np.asarray(parameters)[..., None]
            held[component] = held.get(component, 0.0) + part
    first, last = stages.first, stages.last
    tensor = np.asarray(layout.tensor)[..., None]
    head = transformer.head or transformer.embedding - transformer.lookup
    held["embedding"] = first * transformer.embedding / tensor
    held["head"] = last * head / tensor * (1.0 if transformer.head else 1 - first)
    held["norms"] = held["norms"] + last * transformer.final_norm
    held["vision"] = first * transformer.vision / tensor
    held["other"] = held["other"] + first * transformer.other
    return held


def stage_weight_bytes(
    transformer: Transformer, precision: Precision, *, layout: Layout, stages: Stages
) -> dict[Component, Array]:
    """Weight bytes of every component on the fullest rank of pipeline stages, [..., stages]."""
    return {
        component: parameters * precision.bytes_per_parameter(component)
        for component, parameters in stage_parameters(transformer, layout=layout, stages=stages).items()
    }


def cache_share(mixer: Mixer, *, layout: Layout) -> Number:
    """Share of one layer's cache of one sequence that one rank of its attention group holds.

    KV heads are cut by tensor parallelism until each rank has one, then repeated; a latent (MLA) is one head,
    so every rank keeps all of it. Decode-context parallelism cuts along the sequence among ranks that repeat.
    """
    cut = kv_copies_cut(mixer, layout=layout)
    return 1 / cut if isinstance(mixer, Recurrent) else 1 / (cut * np.asarray(layout.decode_context))


def sequence_state_bytes(mixer: Recurrent, precision: Precision) -> Bytes:
    """Bytes one recurrent layer keeps of one sequence, whatever its length: the state, and a convolution's last inputs,
    which are as wide as the norms."""
    cache = mixer.cache
    return cache.state * mixer.state_bytes + cache.convolution * precision.bytes_per_parameter("norms")


def cache_bytes(mixer: Mixer, precision: Precision, *, length: Count) -> Bytes:
    """Bytes one layer's cache of one sequence takes as the model defines it, states included, before any cut.

    Args:
        length: tokens of the sequence, [...].
    """
    if isinstance(mixer, Recurrent):
        return sequence_state_bytes(mixer, precision) + 0.0 * np.asarray(length)
    cache, element = mixer.cache, precision.kv.bytes_per_element
    held = np.minimum(length, cache.window) if cache.window else np.asarray(length)
    growing = element * (cache.growing * held + cache.compressed * np.asarray(length))
    return growing + INDEX_BYTES * cache.index * np.asarray(length)
