"""Messages of a step between the GPUs of a layout: which groups talk, how much, and what is hidden meanwhile.

Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from parplan.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    chain_send_time,
    forwarded_all_to_all_time,
    reduce_scatter_time,
)
from parplan.placement import Placement, Roofline, over_layers
from parplan.transformer import Block, Experts, Transformer
from parplan.units import Bytes, Seconds, Tokens
from parplan.work import ACTIVATION_BYTES, cache_bytes, cache_share


def layer_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Tensor-parallel sums of all layers: one after every mixer, one after every feed-forward part.

    Experts spread over several attention replicas have messages of their own, see `expert_messages`.

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    alone = np.asarray(at.layout.data) == 1
    times = over_layers(
        transformer,
        lambda block: (
            (block.mixer is not None) + (block.dense is not None) + alone * (block.experts is not None)
        ),
    )
    message = transformer.hidden * ACTIVATION_BYTES * tokens
    return times * all_reduce_time(message, group=at.seating.group("tensor"), gpu=at.gpu, speed=at.speed)


def expert_messages(transformer: Transformer, *, at: Placement, tokens: Tokens, forwarded: bool) -> Seconds:
    """Tokens to the experts that sit with other attention replicas, and results back, of all layers.

    With expert groups a token goes once to each group that holds one of its experts, in the arithmetic of the experts,
    and comes back in 16 bits; the ranks of one replica share its tokens. Without, all tokens go to all ranks
    (all-gather) and partial results are summed (reduce-scatter).

        groups reached  expert (1 - (1 - 1 / expert)^chosen), and fast domains likewise

    Args:
        tokens: of one attention replica, [layouts, batches].
        forwarded: a token crosses the network once for a domain and is passed on inside (prefill kernels); else once
            for every group, which starts sooner (decode kernels).
    """
    data, groups = np.asarray(at.layout.data), np.asarray(at.layout.expert, dtype=float)
    if not transformer.is_moe or np.max(data) == 1:
        return np.zeros(np.shape(data))
    there = np.where(at.quantised("routed_experts"), 1.0, ACTIVATION_BYTES)
    group, gpu, speed = at.seating.group("tensor", "data"), at.gpu, at.speed
    domains = group.domains

    def one_way(experts: Experts, size: Bytes) -> Seconds:
        apart = groups * (1 - (1 - 1 / groups) ** experts.chosen)
        message = experts.inputs * apart / at.tensor * tokens * size
        if not forwarded:
            return all_to_all_time(message, group=group, gpu=gpu, speed=speed)
        away = (domains - 1) * (1 - (1 - 1 / domains) ** experts.chosen)
        crossing = experts.inputs * away / at.tensor * tokens * size
        return forwarded_all_to_all_time(message, crossing=crossing, group=group, gpu=gpu, speed=speed)

    def messages(block: Block) -> Seconds:
        if block.experts is None:
            return 0.0
        pair = one_way(block.experts, there) + one_way(block.experts, ACTIVATION_BYTES)
        whole = block.experts.inputs * ACTIVATION_BYTES * data * tokens
        everywhere = all_gather_time(whole, group=group, gpu=gpu, speed=speed) + reduce_scatter_time(
            whole, group=group, gpu=gpu, speed=speed
        )
        return np.where(groups > 1, pair, everywhere)

    return np.where(data > 1, over_layers(transformer, messages), 0.0)


def hidden_time(
    sent: Seconds, *, attention: Roofline, products: Sequence[tuple[int, Roofline]], at: Placement
) -> Seconds:
    """What of the expert messages is hidden where an engine runs a batch in two halves, one computing while the other
    is on the network.

        overlap x min(messages, attention + arithmetic beyond the reading of weights)

    Only for expert groups of several nodes. Weights are read for each half again, so that reading them hides nothing.

    Args:
        sent: messages of all layers.
        attention: of all layers.
        products: of all layers, with their number.

    Source: SGLang two-batch overlap (lmsys.org, "Deploying DeepSeek with PD Disaggregation and Large-Scale Expert
    Parallelism on 96 H100 GPUs", 2025-05-05); DeepSeek open-infra-index, day 6.
    """
    if not at.speed.overlap or np.max(at.layout.data) == 1:
        return 0.0
    arithmetic = cast(Seconds, sum(count * (part.time - part.memory) for count, part in products))
    apart = at.seating.group("tensor", "data").domains > 1
    return np.where(apart, at.speed.overlap * np.minimum(sent, attention.time + arithmetic), 0.0)


def sequence_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Queries to, and partial results from, the ranks that hold other parts of a sequence's cache, of all layers."""
    ranks = np.asarray(at.layout.decode_context)
    if np.max(ranks) == 1:
        return np.zeros(np.shape(ranks))
    message = transformer.hidden * ACTIVATION_BYTES / at.tensor * ranks * tokens
    one_way = all_gather_time(message, group=at.seating.sequence_group(), gpu=at.gpu, speed=at.speed)
    return 2 * over_layers(transformer, lambda block: float(block.mixer is not None)) * one_way


def logit_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Logits from the ranks that share the vocabulary."""
    message = transformer.vocabulary * ACTIVATION_BYTES * tokens
    return all_gather_time(message, group=at.seating.group("tensor"), gpu=at.gpu, speed=at.speed)


def stage_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Hidden state and residual from stage to stage."""
    message = 2 * transformer.hidden * ACTIVATION_BYTES * tokens
    hops = np.asarray(at.layout.pipeline) - 1
    return hops * chain_send_time(message, group=at.seating.group("pipeline"), gpu=at.gpu, speed=at.speed)


def context_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """New keys and values of a chunk to all context ranks, of all layers."""
    ranks = np.asarray(at.layout.context)
    if np.max(ranks) == 1:
        return np.zeros(np.shape(ranks))

    def gathered(block: Block) -> Seconds:
        if block.mixer is None:
            return 0.0
        stored = cache_bytes(block.mixer, at.precision, length=tokens)
        message = cache_share(block.mixer, layout=at.layout) * stored
        return all_gather_time(message, group=at.seating.group("context"), gpu=at.gpu, speed=at.speed)

    return over_layers(transformer, gathered)
