"""What an engine takes beside weights and cache: activations, communication buffers, CUDA graphs."""

import numpy as np

from parplan.calibration import MemoryProfile, Shared
from parplan.formats import Component, Precision
from parplan.hardware import Hardware
from parplan.layout import Layout
from parplan.memory.settings import Limits, Settings
from parplan.transformer import Block, Encoder, Transformer
from parplan.units import Array, Bytes, Count, Tokens
from parplan.work import ACTIVATION_BYTES, INDEX_BYTES, LOGIT_BYTES, Stages

KEPT_BITS = 8
"""Bits per weight from which expert kernels keep their workspace."""


def shared_bytes(shared: Shared, *, ranks: Count, gpu: Hardware, stages: Count = 1) -> Bytes:
    """Bytes a rank spends on its company: alone, or pair + doubling x log2(ranks / 2).

    Args:
        stages: pipeline stages beside it.
    """
    doublings = np.log2(np.maximum(ranks, 2) / 2)
    pair = gpu.each(lambda one: shared.pair[one.fabric])
    together = pair + gpu.each(lambda one: shared.doubling.get(one.fabric, 0.0)) * doublings
    staged = shared.alone if shared.staged is None else shared.staged
    alone = np.where(np.asarray(stages) > 1, staged, shared.alone)
    return np.where(np.asarray(ranks) > 1, together, alone)


def graph_sizes(largest: Count) -> Count:
    """Batch sizes recorded up to a largest one: 1, 2, 4, then every eighth up to 256, every sixteenth beyond.

    Source: vLLM, default `cudagraph_capture_sizes`, as the start-up log of 0.19 lists them.

    >>> int(graph_sizes(512))
    51
    >>> int(graph_sizes(0))
    0
    """
    most = np.asarray(largest)
    eighths, sixteenths = np.minimum(most, 256) // 8, np.maximum(most - 256, 0) // 16
    return np.asarray(np.minimum(most, 3) + eighths + sixteenths)


def block_activation_bytes(
    block: Block, *, hidden: int, tokens: Tokens, layout: Layout, states: float
) -> Array:
    """Temporary tensors of one layer's feed-forward part at its peak, the widest point of a layer.

        16-bit x tokens x (states x hidden + 3 width / tensor + expert workspace)

    Hidden states, the gate and up products, and their activated product live at once.
    """
    elements = states * hidden + 0 * np.asarray(layout.tensor)
    if block.dense:
        elements = elements + 3 * block.dense.width / np.asarray(layout.tensor)
    return np.asarray(
        ACTIVATION_BYTES * tokens * (elements + expert_workspace_elements(block, layout=layout))
    )


def expert_workspace_elements(block: Block, *, layout: Layout) -> Array:
    """Elements per token the expert kernels hold on to between layers; 0 without experts.

        chosen / expert x (max(2 width, inputs) + width)

    The first and the last product of an expert share one workspace, the product between them has another;
    each group of experts sees its share of the tokens' choices.
    """
    if block.experts is None:
        return np.asarray(0.0 * np.asarray(layout.tensor))
    width = block.experts.width / np.asarray(layout.expert_tensor)
    chosen = block.experts.chosen / np.asarray(layout.expert)
    return np.asarray(chosen * (np.maximum(2 * width, block.experts.inputs) + width))


def index_workspace_bytes(transformer: Transformer, *, profile: MemoryProfile, length: Tokens) -> Bytes:
    """Where sparse attention gathers the index keys of a prefill step: room for many requests of the longest length.

        requests x length x index bytes per token of one layer

    Source: vLLM vllm/v1/attention/backends/mla/indexer.py, `get_max_prefill_buffer_size` (40 lengths of 132 bytes).
    """
    elements = max((mixer.cache.index for mixer in transformer.mixers), default=0.0)
    return profile.index_lengths * length * elements * INDEX_BYTES


def profiled_encoder(transformer: Transformer, *, profile: MemoryProfile) -> Encoder | None:
    """The encoder an engine profiles itself with; None where it does not, or the encoder is not known."""
    return transformer.encoder if profile.profiles_images else None


def profiled_images(encoder: Encoder, *, told: Limits) -> Count:
    """Images of the largest size an engine encodes when it starts, [...]: as many as one step's tokens hold, at least
    one, and no more than all sequences may bring.

        min(max(step, tokens) / tokens, sequences x max(1, longest request / tokens))

    Source: vLLM vllm/v1/core/encoder_cache_manager.py, `compute_mm_encoder_budget`, and
    vllm/multimodal/encoder_budget.py, `_get_max_items`, read 2026-11-30.
    """
    brought = told.sequences * np.maximum(1, np.asarray(told.length) // encoder.tokens)
    return np.asarray(np.minimum(np.maximum(told.batched_tokens, encoder.tokens) // encoder.tokens, brought))


def kept_image_bytes(encoder: Encoder, *, images: Count) -> Array:
    """Images and what was made of them, whole on every rank: alive while the language model is profiled after them.

        16-bit x images x (pixels + tokens x output)

    Source: vLLM vllm/v1/worker/gpu_model_runner.py, `profile_run`, read 2026-11-30. Gemma-3-12B and 27B on H100 (M009,
    M010) take 0.20 and 0.23 GiB more than Gemma-2 does over the same law, and this is 0.20 and 0.23.
    """
    return np.asarray(ACTIVATION_BYTES * images * (encoder.pixels + encoder.tokens * encoder.output))


def encoder_peak_bytes(encoder: Encoder, *, images: Count, tensor: Count) -> Array:
    """All images on their way through one layer of the encoder, at its feed-forward part.

        16-bit x images x (pixels + patches x (4 hidden + products x width / tensor))

    The embedded patches, the layer's input, its residual and its normed input are whole on every rank; of the
    feed-forward part each rank holds its share.

    Assumes the encoder's weights are cut along the tensor ranks (vLLM's default) and its attention keeps no scores.
    Source: vLLM vllm/model_executor/models/qwen3_vl.py and mllama4.py, read 2026-11-30. Checked on little: Qwen3.6-35B
    with room for 4 sequences on a 5090 logs 4.88 GiB of cache, and this leaves 4.92.
    """
    inside = 4 * encoder.hidden + encoder.products * encoder.width / np.asarray(tensor)
    return np.asarray(ACTIVATION_BYTES * images * (encoder.pixels + encoder.patches * inside))


def peak_with_images(language: Array, encoder: Encoder, *, layout: Layout, told: Limits) -> Array:
    """Activation peak of an engine that encodes images and then runs the language model beside them, [..., stages].

        max(encoder, images + language model)

    Every stage runs the encoder (as in 0.19; a later runner does on the first stage only).

    Args:
        language: the language model's own peak, [..., stages].
    """
    images = profiled_images(encoder, told=told)
    encoding = encoder_peak_bytes(encoder, images=images, tensor=layout.tensor)
    kept = kept_image_bytes(encoder, images=images)
    return np.asarray(np.maximum(encoding[..., None], kept[..., None] + language))


def stage_activation_bytes(
    transformer: Transformer,
    precision: Precision,
    *,
    profile: MemoryProfile,
    layout: Layout,
    stages: Stages,
    told: Limits,
) -> Array:
    """Activation peak of pipeline stages, [..., stages]: a step's layers, or sampling on the last stage, beside the
    images an engine profiles itself with.

        sampling = copies x sequences x vocabulary x 32-bit + tokens x hidden x 16-bit + expert workspace

    The whole vocabulary is gathered on every rank, so tensor parallelism does not shrink it. The expert workspace is
    kept while sampling where experts have eight bits or more; kernels for fewer bits give it back.
    """
    tokens, blocks = told.batched_tokens, transformer.blocks
    held: Array = np.max([expert_workspace_elements(block, layout=layout) for block in blocks], axis=0)
    widest: Array = np.max(
        [
            block_activation_bytes(
                block,
                hidden=transformer.hidden,
                tokens=tokens,
                layout=layout,
                states=profile.layer_states,
            )
            for block in blocks
        ],
        axis=0,
    )
    kept = held if precision.weights["routed_experts"].bits >= KEPT_BITS else 0.0
    logits = profile.sampler_copies * told.sequences * transformer.vocabulary * LOGIT_BYTES
    states = ACTIVATION_BYTES * tokens * (transformer.hidden + kept)
    sampling = np.asarray(logits + profile.forward_copies * states)[..., None]
    handed_on = np.asarray(profile.passed_states * ACTIVATION_BYTES * tokens * transformer.hidden)[..., None]
    passed = np.where(stages.last > 0, 0.0, handed_on)
    layers = profile.forward_copies * (np.asarray(widest)[..., None] + passed)
    peak = np.where(stages.last > 0, np.maximum(layers, sampling), layers)
    index = index_workspace_bytes(transformer, profile=profile, length=np.asarray(told.length)[..., None])
    if encoder := profiled_encoder(transformer, profile=profile):
        peak = peak_with_images(peak, encoder, layout=layout, told=told)
    return np.where(stages.there, peak + index, 0.0)


def stage_transfer_bytes(
    transformer: Transformer,
    weights: dict[Component, Array],
    *,
    profile: MemoryProfile,
    stages: Stages,
    settings: Settings,
) -> Array:
    """Room for the experts that move between GPUs when their load is balanced, [..., stages]: all that a rank holds of
    one layer, redundant ones included.

    Args:
        weights: of every stage, as loaded.

    Source: vLLM vllm/distributed/eplb/rebalance_execute.py, `expert_buffer` ("one per weight tensor in a single
    layer"); SGLang python/sglang/srt/eplb/expert_location_updater.py, `create_temp_buffers`. Read 2026-11-30.
    """
    if not settings.redundant_experts or "routed_experts" not in weights:
        return np.zeros(1)
    spread = [index for index, block in enumerate(transformer.blocks) if block.experts]
    layers = stages.layers[..., spread].sum(axis=-1)
    return np.asarray(profile.transfer_layers * weights["routed_experts"] / np.maximum(layers, 1))


def stage_graph_bytes(
    transformer: Transformer, *, profile: MemoryProfile, stages: Stages, largest: Count
) -> Array:
    """CUDA graphs of pipeline stages, [..., stages].

    (bytes of every layer + the rest) x recorded batch sizes
    """
    size = [
        profile.graph_expert_size if block.experts else profile.graph_size for block in transformer.blocks
    ]
    rest = np.where(stages.there, profile.graph_layers * profile.graph_size, 0.0)
    return np.asarray((stages.layers @ np.array(size) + rest) * np.asarray(graph_sizes(largest))[..., None])
