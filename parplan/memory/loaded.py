"""Weights as an engine stores them: padded, repeated, with tables of positions and the layers that draft tokens."""

import numpy as np

from parplan.calibration import MemoryProfile
from parplan.drafting import EAGLE_BYTES, EAGLE_VOCABULARY, eagle_block, last_layer_parameters
from parplan.formats import Component, Precision
from parplan.layout import Layout
from parplan.memory.settings import Settings
from parplan.mixers import Latent, Recurrent
from parplan.transformer import Transformer
from parplan.units import Array, Bytes
from parplan.work import Stages, block_share, stage_weight_bytes


def expert_padding(
    transformer: Transformer, precision: Precision, *, profile: MemoryProfile, layout: Layout
) -> Array:
    """Stored size of the routed experts over their real size on each rank; 1 where nothing is rounded up.

    Source: vLLM mxfp4 experts, width to a multiple of 128 and inputs to one of 256; gpt-oss-20b on one H100 takes
    13.64 GiB for 12.81.
    """
    rounding = profile.expert_padding
    first = next((block.experts for block in transformer.blocks if block.experts), None)
    if rounding is None or first is None or not profile.pads(precision.weights["routed_experts"]):
        return np.asarray(1.0)
    width = first.width / np.asarray(layout.expert_tensor)
    wider = np.ceil(width / rounding.width) * rounding.width / width
    return np.asarray(wider * np.ceil(first.inputs / rounding.inputs) * rounding.inputs / first.inputs)


def rotary_table_bytes(transformer: Transformer, *, profile: MemoryProfile) -> Bytes:
    """Sines and cosines of every position, kept whole on every rank: one table for each width of rotated heads.

        positions x width x bytes of an entry

    Tables stretched for longer contexts than the config names (Gemma-3: eight times) are counted unstretched.

    Source: vLLM vllm/model_executor/layers/rotary_embedding/base.py, `_compute_cos_sin_cache`. Llama-4-Scout has
    10,485,760 positions of width 128: 2.50 GiB, and logs 53.12 GiB at TP4 where its parameters take 50.60.
    """
    widths = {
        mixer.rope_dim if isinstance(mixer, Latent) else mixer.head_dim
        for mixer in transformer.mixers
        if not isinstance(mixer, Recurrent)
    }
    return transformer.context_length * sum(widths) * profile.rotary_entry


def with_redundant_experts(transformer: Transformer, *, more: int) -> Transformer:
    """A model with so many more experts in each of its expert layers."""
    blocks = (
        block.model_copy(
            update={"experts": block.experts.model_copy(update={"count": block.experts.count + more})}
        )
        if block.experts
        else block
        for block in transformer.blocks
    )
    return transformer.model_copy(update={"blocks": tuple(blocks)}) if more else transformer


def draft_bytes(
    transformer: Transformer, served: Transformer, precision: Precision, *, layout: Layout
) -> Array:
    """What drafts tokens, on one rank: multi-token-prediction layers, cut as the model's last layer is, or an EAGLE
    head; with pipeline stages, a second embedding beside either.

    Args:
        served: the model with its redundant experts, which a draft has as well.

    Source: vLLM vllm/v1/spec_decode/eagle.py: without stages the draft shares the embedding of the model, and MTP its
    head. SGLang logs copies of both while it loads (5.53 GiB for Qwen3.8-27B: 0.79 of layers, 2 x 2.37) and gives them
    back.
    """
    tensor = np.asarray(layout.tensor)
    if transformer.mtp:
        held = sum(block_share(served.blocks[served.sequence[-1]], layout=layout).values())
        share = held / last_layer_parameters(transformer)
        own = transformer.mtp * precision.bytes_per_parameter("mtp") * share
    else:
        held = sum(block_share(eagle_block(transformer), layout=layout).values())
        own = EAGLE_BYTES * (held + EAGLE_VOCABULARY * transformer.hidden / tensor)
    embedding = transformer.embedding / tensor * precision.bytes_per_parameter("embedding")
    return np.asarray(own + np.where(np.asarray(layout.pipeline) > 1, embedding, 0.0))


def loaded_weight_bytes(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    stages: Stages,
    profile: MemoryProfile,
    settings: Settings,
) -> dict[Component, Array]:
    """Weights as the engine stores them on the fullest rank of stages, [..., stages]: experts padded and
    repeated, rotary tables on every stage, layers that draft tokens on the last one.
    """
    served = with_redundant_experts(transformer, more=settings.redundant_experts)
    weights = stage_weight_bytes(served, precision, layout=layout, stages=stages)
    if "routed_experts" in weights:
        padding = expert_padding(transformer, precision, profile=profile, layout=layout)
        weights["routed_experts"] = weights["routed_experts"] * padding[..., None]
    weights["other"] = weights["other"] + stages.there * rotary_table_bytes(transformer, profile=profile)
    if settings.drafts:
        weights["mtp"] = stages.last * draft_bytes(transformer, served, precision, layout=layout)[..., None]
    return weights


def with_expert_share(weights: dict[Component, Array], *, share: float) -> dict[Component, Array]:
    """Weights with a share of their routed experts."""
    return {part: amount * share if part == "routed_experts" else amount for part, amount in weights.items()}
