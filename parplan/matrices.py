"""Matrix products of a step: their arithmetic, the weights they read, and what starting their kernels takes.

Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

import numpy as np

from parplan.formats import Component
from parplan.layout import Layout
from parplan.mixers import Compressed, GroupedQuery, Latent, Recurrent
from parplan.placement import Placement, Roofline
from parplan.transformer import Block, Experts, Transformer
from parplan.units import Count, Number, Seconds, Tokens
from parplan.work import LOGIT_BYTES, block_share

LOGIT_PASSES = 4
"""Times sampling goes over the logits: conversion (read, write), softmax, pick. An assumption, not measured."""


def products_of(block: Block) -> dict[Component, int]:
    """Matrix products of one layer with weights of each component, after fusing what reads the same input.

    Two for grouped-query attention and recurrences (in, out), for a feed-forward part and for routed experts; latent
    attention in decode has both down-projections, query up and output.
    """
    found: dict[Component, int] = {}
    match block.mixer:
        case GroupedQuery():
            found["attention"] = 2
        case Recurrent():
            found["recurrent"] = 2
        case Latent():
            found |= {"attention": 2, "attention_output": 1}
        case Compressed():
            found["attention"] = 3
        case None:
            pass
    if block.mixer and block.mixer.index_parameters:
        found["indexer"] = 1
    if block.dense:
        found["dense_ffn"] = 2
    if block.experts:
        found["routed_experts"] = 2
        if block.experts.shared_parameters:
            found["shared_experts"] = 2
    return found


def launch_time(block: Block, *, at: Placement) -> Seconds:
    """Launch, ramp and tail of all kernels of one layer.

    Latent attention has two 16-bit products more, between the heads and the latent. Four-bit experts run in generated
    kernels that also choose, sort and sum (TensorRT-LLM's, which vLLM and SGLang call through FlashInfer); other
    experts pay for routing apart.
    """
    time = at.speed.layer + sum(
        number * at.product_start(component) for component, number in products_of(block).items()
    )
    if block.mixer:
        kernels = 1 + (block.mixer.index_parameters > 0)
        between = 2 if isinstance(block.mixer, Latent | Compressed) else 0
        time = time + kernels * at.speed.attention + between * at.speed.product
    if block.experts:
        wanted = at.precision.weights["routed_experts"].arithmetic
        four_bit = wanted in ("fp4", "fp4xfp8")
        time = time + at.gpu.each(
            lambda one: 0.0 if four_bit and not one.expands(wanted) else at.speed.routing
        )
    return time * at.slower


def scaling_time(block: Block, *, at: Placement) -> Seconds:
    """What products of one layer take longer because weights and inputs are scaled block by block."""
    times = (number * at.block_time(component) for component, number in products_of(block).items())
    return sum(times) * at.slower


def linear_work(transformer: Transformer, *, at: Placement, tokens: Tokens) -> list[Roofline]:
    """Matrix products with weights every token uses, of one rank of every stage: one roofline per format.

        compute  2 parameters x tokens / (peak x share)
        memory   parameters x bytes / (bandwidth x share)

    Products of one format turn from memory- to compute-bound at the same number of tokens, so that together they have
    the roofline of one product.

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    first: dict[str, Component] = {}
    held: dict[Component, Number] = {}
    for count, block in transformer.kinds:
        for component, parameters in block_share(block, layout=at.layout).items():
            if component != "routed_experts":
                alike = first.setdefault(at.precision.weights[component].name, component)
                held[alike] = held.get(alike, 0.0) + count * parameters
    return [
        Roofline(
            compute=(2 / at.product_rate(component) * parameters) * tokens,
            memory=at.precision.bytes_per_parameter(component) / at.weight_bandwidth(component) * parameters,
        )
        for component, parameters in held.items()
    ]


def experts_touched(experts: Experts, *, tokens: Tokens, layout: Layout, skew: float) -> Count:
    """Experts of one layer whose weights one expert group reads.

        held (1 - exp(-x)), x = -tokens log(1 - chosen / count)      all experts equally popular
        held (1 - (1 + skew x)^(-1 / skew))                          popularity gamma-distributed

    The first is held (1 - (1 - chosen / count)^tokens).

    Args:
        tokens: of the whole layer, all attention replicas together.
        skew: squared coefficient of variation of the experts' popularity.

    Source: expectation over a router that picks `chosen` different experts per token; a mixture of Poisson counts with
    gamma-distributed rates is negative binomial.

    >>> experts = Experts(count=128, chosen=8, inputs=1, width=1)
    >>> float(experts_touched(experts, tokens=1, layout=Layout(), skew=0.0))
    8.0
    """
    held = np.ceil(experts.count / np.asarray(layout.expert))
    picked = -np.log1p(-min(experts.chosen / experts.count, 1 - 1e-12)) * tokens
    met: Count = held * -np.expm1(-np.log1p(skew * picked) / skew if skew else -picked)
    return met


def expert_work(experts: Experts, *, at: Placement, tokens: Tokens) -> Roofline:
    """Routed experts of one layer on the busiest rank.

        compute  2 parameters x (tokens + in vain) / (peak x share x width / (width + narrow))
        in vain  1 / (1 / tokens + 1 / (tile x experts touched))

    Kernels compute rows by the block, and an expert's last block is not full. They choose smaller blocks where experts
    have few tokens: as much is in vain as is wanted there, and `tile` rows of every expert where it has many.

    Args:
        tokens: of the whole layer, all attention replicas together, [layouts, batches].

    Source: of blocks chosen for an H20, 16 rows up to 16 tokens an expert, 64 from 32 on (vLLM a0aaf7f
    fused_moe/configs/E=128,N=768,device_name=NVIDIA_H20.json). With `tile` rows in vain at any number, this GPU, whose
    arithmetic is slow for its memory, was predicted four times as slow as measured (SGLang pull request 10467).
    """
    parameters = experts.expert_parameters / np.asarray(at.layout.expert_tensor)
    groups = np.asarray(at.layout.expert, dtype=float)
    used = experts.chosen * np.minimum(at.speed.imbalance, groups) / groups
    touched = experts_touched(experts, tokens=tokens, layout=at.layout, skew=at.speed.skew)
    read = at.precision.bytes_per_parameter("routed_experts") / at.weight_bandwidth("routed_experts")
    width = experts.width / np.asarray(at.layout.expert_tensor)
    rate = at.product_rate("routed_experts") / (1 + at.speed.narrow / width)
    rows, blocks = used * tokens, at.speed.tile * touched
    return Roofline(
        compute=2 / rate * parameters * (rows + rows * blocks / (rows + blocks)),
        memory=read * parameters * touched,
    )


def head_work(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Roofline:
    """Output head and sampling.

    Args:
        tokens: positions that are sampled from, [layouts, batches].
    """
    parameters = transformer.vocabulary * transformer.hidden / at.tensor
    logits = transformer.vocabulary * LOGIT_BYTES * LOGIT_PASSES / at.bandwidth
    read = at.precision.bytes_per_parameter("head") / at.weight_bandwidth("head")
    return Roofline(
        compute=2 / at.product_rate("head") * parameters * tokens, memory=read * parameters + logits * tokens
    )
