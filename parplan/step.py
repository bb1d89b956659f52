"""Time of one step of an engine: a decode step or a chunk of prefill, by what it is spent on.

Per operation a roofline: the longer of arithmetic and memory traffic, at the shares a calibrated engine reaches.
Around it what does not overlap: launch and ramp of kernels, messages between GPUs, and the engine itself.
Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from parplan.calibration import Engine, SpeedProfile
from parplan.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    forwarded_all_to_all_time,
    nodes_spanned,
    reduce_scatter_time,
    send_time,
)
from parplan.drafting import draft_layers, last_layer_parameters
from parplan.formats import Arithmetic, Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.transformer import (
    Block,
    Compressed,
    Experts,
    GroupedQuery,
    Latent,
    Mixer,
    Recurrent,
    Transformer,
)
from parplan.units import Array, Bytes, BytesPerSecond, Count, FlopPerSecond, Number, Seconds, Tokens
from parplan.work import INDEX_BYTES, block_share, cache_bytes, cache_share

ACTIVATION_BYTES = 2.0
"""Activations and messages between ranks are 16 bit in every engine modelled."""
LOGIT_BYTES = 4.0
"""Logits are sampled from in 32 bit."""
LOGIT_PASSES = 4
"""Times sampling goes over the logits: conversion (read, write), softmax, pick. An assumption, not measured."""

Bound: TypeAlias = Literal["compute", "memory", "communication", "overhead"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "communication", "overhead")


@dataclass(frozen=True)
class Placement:
    """A precision and a layout on a type of GPU, at an engine's rates: what every formula here depends on."""

    precision: Precision
    layout: Layout
    gpu: Gpu
    speed: SpeedProfile

    @cached_property
    def tensor(self) -> Array:
        """Tensor-parallel width."""
        return np.asarray(self.layout.tensor, dtype=float)

    @cached_property
    def slower(self) -> float:
        """Factor on all kernel times on this GPU's architecture."""
        return self.speed.slower.get(self.gpu.architecture, 1.0)

    @cached_property
    def bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which kernels stream activations and unquantised weights."""
        return self.gpu.bandwidth * self.speed.bandwidth / self.slower

    @cached_property
    def cache_bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which attention reads the cache."""
        return self.gpu.bandwidth * self.speed.cache_bandwidth / self.slower

    @cached_property
    def attention_rate(self) -> FlopPerSecond:
        """FLOP/s of attention kernels."""
        return self.gpu.peak("bf16") * self.speed.attention_compute / self.slower

    def arithmetic(self, component: Component) -> Arithmetic:
        """What the products of a component really run in.

        Four-bit weights on a GPU without four-bit tensor cores are expanded to 16 bits on the way in, not to 8.
        """
        wanted = self.precision.weights[component].arithmetic
        return self.gpu.arithmetic("bf16" if wanted == "fp4" and "fp4" not in self.gpu.peaks else wanted)

    def quantised(self, component: Component) -> bool:
        """Whether the inputs of a component's products are quantised too."""
        return self.arithmetic(component) in ("fp8", "fp4", "int8")

    def product_rate(self, component: Component) -> FlopPerSecond:
        """FLOP/s a large matrix product with a component's weights reaches."""
        run = self.arithmetic(component)
        share = self.speed.compute[run] * (self.speed.grouped if component == "routed_experts" else 1.0)
        return self.gpu.peaks[run] * share / self.slower

    def weight_bandwidth(self, component: Component) -> BytesPerSecond:
        """Bytes/s at which a large matrix product reads a component's weights."""
        expands = not self.quantised(component) and self.precision.weights[component].bits < 15
        return self.bandwidth * (self.speed.expanded if expands else 1.0)

    def product_start(self, component: Component) -> Seconds:
        """Seconds one matrix product with a component's weights takes besides its roofline."""
        speed, quantised = self.speed, self.quantised(component)
        blocks = component != "routed_experts" and self.precision.weights[component].block >= 128
        return (
            speed.product
            + (speed.quantise if quantised else 0.0)
            + (speed.blocks if quantised and blocks else 0.0)
        )


@dataclass(frozen=True)
class Roofline:
    """Seconds of an operation by what could bound it, at the rates really reached."""

    compute: Seconds = 0.0
    memory: Seconds = 0.0

    @property
    def time(self) -> Seconds:
        """The longer one: arithmetic and memory traffic of one kernel overlap."""
        return np.maximum(self.compute, self.memory)


@dataclass(frozen=True)
class Step:
    """Seconds of one step by part. It crosses all pipeline stages: every part is a sum over stages."""

    linear: Seconds
    """Matrix products with weights every token uses, and the activations between them."""
    attention: Seconds
    """Attention over the cache, and recurrences over their state."""
    experts: Seconds
    """Matrix products of routed experts."""
    all_reduce: Seconds
    """Tensor-parallel sums, logits and parts of sequences."""
    all_to_all: Seconds
    """Tokens to experts on other ranks and back."""
    send: Seconds
    """Between pipeline stages and context ranks."""
    launch: Seconds
    """Launch, ramp and tail of kernels, and the small kernels between the large ones."""
    head: Seconds
    """Output head and sampling."""
    engine: Seconds
    """Scheduling and input preparation."""
    bubble: Seconds
    """Waiting for the fullest pipeline stage."""
    compute: Seconds
    """Arithmetic of all of it."""
    memory: Seconds
    """Memory traffic of all of it."""
    idle: Seconds
    """How long arithmetic waits for weights: what tokens of other requests in the same step could use."""
    draft: Seconds = 0.0
    """Drafting the tokens the next step verifies."""

    def per(self, tokens: Tokens) -> "Step":
        """The same step's times for each of the tokens it yields."""
        return Step(**{field.name: getattr(self, field.name) / tokens for field in fields(self)})

    @cached_property
    def communication(self) -> Seconds:
        """Messages between GPUs."""
        return self.all_reduce + self.all_to_all + self.send

    @cached_property
    def overhead(self) -> Seconds:
        """What is neither arithmetic, memory traffic nor messages of the model itself."""
        return self.launch + self.engine + self.bubble + self.draft

    @cached_property
    def total(self) -> Seconds:
        """The whole step."""
        return self.linear + self.attention + self.experts + self.head + self.communication + self.overhead

    @property
    def least(self) -> Seconds:
        """Lower bound: arithmetic, memory traffic and messages overlap fully, nothing else takes time."""
        return np.maximum(np.maximum(self.compute, self.memory), self.communication)

    @property
    def most(self) -> Seconds:
        """Upper bound: nothing overlaps."""
        return self.compute + self.memory + self.communication + self.overhead

    @property
    def bound(self) -> Any:
        """Index into `BOUNDS` of what takes most time."""
        return np.argmax(np.stack(np.broadcast_arrays(*(getattr(self, name) for name in BOUNDS))), axis=0)


def kinds(transformer: Transformer) -> Iterator[tuple[int, Block]]:
    """Kinds of layer with the number of layers of each."""
    return zip(transformer.counts, transformer.blocks, strict=True)


def over_layers(transformer: Transformer, seconds: Callable[[Block], Number]) -> Number:
    """A quantity of one layer, summed over all layers."""
    return cast(Number, sum(count * seconds(block) for count, block in kinds(transformer)))


# Kernels


def mixer_start(mixer: Mixer, *, at: Placement) -> Seconds:
    """Launch and ramp of one layer's mixer.

    Products are counted after fusing what reads the same input: two for grouped-query attention and recurrences (in,
    out); latent attention in decode has both down-projections, query up and output, and two 16-bit ones between the
    heads and the latent.
    """
    start = at.product_start("recurrent" if isinstance(mixer, Recurrent) else "attention")
    indexer = at.product_start("indexer") + at.speed.attention if mixer.index_parameters else 0.0
    match mixer:
        case GroupedQuery() | Recurrent():
            return 2 * start + at.speed.attention + indexer
        case Latent() | Compressed():
            return 3 * start + 2 * at.speed.product + at.speed.attention + indexer


def launch_time(block: Block, *, at: Placement) -> Seconds:
    """Launch, ramp and tail of all kernels of one layer.

    Four-bit experts run in generated kernels that also choose, sort and sum (TensorRT-LLM's, which vLLM and SGLang
    call through FlashInfer); other experts pay for routing apart.
    """
    time = at.speed.layer + (mixer_start(block.mixer, at=at) if block.mixer else 0.0)
    if block.dense:
        time = time + 2 * at.product_start("dense_ffn")
    if block.experts:
        fused = at.arithmetic("routed_experts") == "fp4"
        time = time + 2 * at.product_start("routed_experts") + (0.0 if fused else at.speed.routing)
        time = time + (2 * at.product_start("shared_experts") if block.experts.shared_parameters else 0.0)
    return time * at.slower


def linear_work(transformer: Transformer, *, at: Placement, tokens: Tokens) -> list[Roofline]:
    """Matrix products with weights every token uses, of one rank of every stage: one roofline per format.

        compute  2 parameters x tokens / (peak x share)
        memory   parameters x bytes / (bandwidth x share)

    Products of one format turn from memory- to compute-bound at the same number of tokens, so that together they have
    the roofline of one product.

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    held: dict[tuple[FlopPerSecond, Seconds], Number] = {}
    for count, block in kinds(transformer):
        for component, parameters in block_share(block, layout=at.layout).items():
            if component != "routed_experts":
                read = at.precision.bytes_per_parameter(component) / at.weight_bandwidth(component)
                rates = (at.product_rate(component), read)
                held[rates] = held.get(rates, 0.0) + count * parameters
    return [
        Roofline(compute=(2 / rate * parameters) * tokens, memory=read * parameters)
        for (rate, read), parameters in held.items()
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

        compute  2 parameters x (tokens + tile x experts touched) / (peak x share x width / (width + narrow))

    Args:
        tokens: of the whole layer, all attention replicas together, [layouts, batches].
    """
    parameters = experts.expert_parameters / np.asarray(at.layout.expert_tensor)
    groups = np.asarray(at.layout.expert, dtype=float)
    used = experts.chosen * np.minimum(at.speed.imbalance, groups) / groups
    touched = experts_touched(experts, tokens=tokens, layout=at.layout, skew=at.speed.skew)
    read = at.precision.bytes_per_parameter("routed_experts") / at.weight_bandwidth("routed_experts")
    width = experts.width / np.asarray(at.layout.expert_tensor)
    rate = at.product_rate("routed_experts") / (1 + at.speed.narrow / width)
    return Roofline(
        compute=2 / rate * parameters * (used * tokens + at.speed.tile * touched),
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


# Attention


def attended(mixer: Mixer, *, length: Tokens) -> Tokens:
    """Stored positions one query attends to in a sequence of `length` tokens: windows and choices limit them."""
    match mixer:
        case GroupedQuery():
            return np.minimum(length, min(mixer.window or np.inf, mixer.sparse_top_k or np.inf))
        case Latent():
            return np.minimum(length, mixer.sparse_top_k or np.inf)
        case Compressed():
            folded = length / mixer.ratio if mixer.ratio else 0.0
            return np.minimum(length, mixer.window) + np.minimum(folded, mixer.sparse_top_k or np.inf)
        case Recurrent():
            return 0.0 * length


def attended_in_total(mixer: Mixer, *, tokens: Tokens, prior: Tokens) -> Tokens:
    """Positions all queries of a causal chunk attend to.

    The integral of min(position, most) from prior to prior + tokens; folded entries by their middle position.
    """
    if isinstance(mixer, Compressed | Recurrent):
        return tokens * attended(mixer, length=prior + tokens / 2)
    most = attended(mixer, length=1e18)

    def below(length: Tokens) -> Tokens:
        capped = np.minimum(length, most)
        return capped * (length - capped / 2)

    return below(prior + tokens) - below(prior)


def read_bytes(mixer: Mixer, precision: Precision, *, length: Tokens) -> Bytes:
    """Cache bytes of one layer one sequence's next token reads (states: and writes back), before any cut."""
    if isinstance(mixer, Recurrent):
        return 2 * cache_bytes(mixer, precision, length=length)
    chosen = mixer.cache.growing * precision.kv.bytes_per_element * attended(mixer, length=length)
    return chosen + mixer.cache.index * INDEX_BYTES * length


def decode_attention(mixer: Mixer, *, at: Placement, length: Tokens, queries: Count = 1) -> Roofline:
    """One layer's attention of one sequence for its new tokens, on one rank.

    Args:
        queries: tokens verified in the step; they read the cache, or what sparse attention chooses of it, once.
    """
    state = mixer.flop_per_token if isinstance(mixer, Recurrent) else 0
    flop = (mixer.flop_per_position * attended(mixer, length=length) + state) / at.tensor
    moved = cache_share(mixer, layout=at.layout) * read_bytes(mixer, at.precision, length=length)
    return Roofline(
        compute=queries * (flop + mixer.index_flop_per_position * length) / at.attention_rate,
        memory=moved / at.cache_bandwidth,
    )


def prefill_attention(mixer: Mixer, *, at: Placement, tokens: Tokens, prior: Tokens) -> Roofline:
    """One layer's attention of a chunk of one sequence, on one rank; context ranks share the queries."""
    state = mixer.flop_per_token * tokens if isinstance(mixer, Recurrent) else 0.0
    positions = attended_in_total(mixer, tokens=tokens, prior=prior)
    flop = (mixer.prefill_flop_per_position * positions + state) / at.tensor
    index = mixer.index_flop_per_position * tokens * (prior + tokens / 2)
    stored = cache_bytes(mixer, at.precision, length=prior + tokens)
    return Roofline(
        compute=(flop + index) / np.asarray(at.layout.context) / at.attention_rate,
        memory=cache_share(mixer, layout=at.layout) * stored / at.cache_bandwidth,
    )


def attention_work(parts: Sequence[tuple[int, Roofline]], *, sequences: Count) -> Roofline:
    """Attention of all layers for several sequences, arithmetic and traffic each summed over the kinds of layer."""
    return Roofline(
        compute=cast(Seconds, sum(count * part.compute for count, part in parts)) * sequences,
        memory=cast(Seconds, sum(count * part.memory for count, part in parts)) * sequences,
    )


# Messages


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
    return times * all_reduce_time(message, ranks=at.layout.tensor, gpu=at.gpu, speed=at.speed)


def expert_messages(transformer: Transformer, *, at: Placement, tokens: Tokens, forwarded: bool) -> Seconds:
    """Tokens to the experts that sit with other attention replicas, and results back, of all layers.

    With expert groups a token goes once to each group that holds one of its experts, in the arithmetic of the experts,
    and comes back in 16 bits; the ranks of one replica share its tokens. Without, all tokens go to all ranks
    (all-gather) and partial results are summed (reduce-scatter).

        groups reached  expert (1 - (1 - 1 / expert)^chosen), and nodes likewise

    Args:
        tokens: of one attention replica, [layouts, batches].
        forwarded: a token crosses the network once for a node and is passed on inside (prefill kernels); else once
            for every group, which starts sooner (decode kernels).
    """
    data, groups = np.asarray(at.layout.data), np.asarray(at.layout.expert, dtype=float)
    if not transformer.is_moe or np.max(data) == 1:
        return np.zeros(np.shape(data))
    there = 1.0 if at.quantised("routed_experts") else ACTIVATION_BYTES
    ranks, gpu, speed = np.asarray(at.layout.width), at.gpu, at.speed
    nodes = nodes_spanned(ranks, gpu=gpu)

    def one_way(experts: Experts, size: Bytes) -> Seconds:
        apart = groups * (1 - (1 - 1 / groups) ** experts.chosen)
        message = experts.inputs * apart / at.tensor * tokens * size
        if not forwarded:
            return all_to_all_time(message, ranks=ranks, gpu=gpu, speed=speed)
        away = (nodes - 1) * (1 - (1 - 1 / nodes) ** experts.chosen)
        crossing = experts.inputs * away / at.tensor * tokens * size
        return forwarded_all_to_all_time(message, crossing=crossing, ranks=ranks, gpu=gpu, speed=speed)

    def messages(block: Block) -> Seconds:
        if block.experts is None:
            return 0.0
        pair = one_way(block.experts, there) + one_way(block.experts, ACTIVATION_BYTES)
        whole = block.experts.inputs * ACTIVATION_BYTES * data * tokens
        everywhere = all_gather_time(whole, ranks=ranks, gpu=gpu, speed=speed) + reduce_scatter_time(
            whole, ranks=ranks, gpu=gpu, speed=speed
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
    apart = nodes_spanned(np.asarray(at.layout.width), gpu=at.gpu) > 1
    return np.where(apart, at.speed.overlap * np.minimum(sent, attention.time + arithmetic), 0.0)


def sequence_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Queries to, and partial results from, the ranks that hold other parts of a sequence's cache, of all layers."""
    ranks = np.asarray(at.layout.decode_context)
    if np.max(ranks) == 1:
        return np.zeros(np.shape(ranks))
    message = transformer.hidden * ACTIVATION_BYTES / at.tensor * ranks * tokens
    one_way = all_gather_time(message, ranks=ranks, gpu=at.gpu, speed=at.speed)
    return 2 * over_layers(transformer, lambda block: float(block.mixer is not None)) * one_way


def logit_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Logits from the ranks that share the vocabulary."""
    message = transformer.vocabulary * ACTIVATION_BYTES * tokens
    return all_gather_time(message, ranks=at.layout.tensor, gpu=at.gpu, speed=at.speed)


def stage_messages(transformer: Transformer, *, at: Placement, tokens: Tokens) -> Seconds:
    """Hidden state and residual from stage to stage."""
    message = 2 * transformer.hidden * ACTIVATION_BYTES * tokens
    distance = np.asarray(at.layout.width) * np.asarray(at.layout.context)
    hops = np.asarray(at.layout.pipeline) - 1
    return hops * send_time(message, distance=distance, gpu=at.gpu, speed=at.speed)


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
        return all_gather_time(message, ranks=ranks, gpu=at.gpu, speed=at.speed)

    return over_layers(transformer, gathered)


# Steps


def waiting_share(transformer: Transformer, *, layout: Layout, in_flight: Count) -> Number:
    """Time a token waits in a pipeline over its time in all stages: the fullest stage sets the pace.

    max(0, micro-batches in flight x layers of the fullest stage / layers - 1)
    """
    layers = len(transformer.sequence)
    fullest = np.ceil(layers / np.asarray(layout.pipeline))
    return np.maximum(0.0, in_flight * (fullest / layers) - 1)


def step_of(
    transformer: Transformer,
    *,
    at: Placement,
    tokens: Tokens,
    sampled: Tokens,
    attention: Roofline,
    launching: float,
    forwarded: bool,
    engine: Seconds,
    in_flight: Count,
) -> Step:
    """One pass of a micro-batch through all layers of all stages.

    Args:
        tokens: of one attention replica.
        sampled: positions the head is applied to.
        attention: of all layers, on one rank of every stage.
        launching: factor on the launch of kernels.
        forwarded: see `expert_messages`.
        engine: seconds the engine spends around the pass.
        in_flight: micro-batches in the pipeline.
    """
    products = linear_work(transformer, at=at, tokens=tokens)
    activations = len(transformer.sequence) * at.speed.passes * transformer.hidden * ACTIVATION_BYTES
    streamed = activations / at.bandwidth * tokens
    everyone = np.asarray(at.layout.data) * tokens
    routed = [
        (count, expert_work(block.experts, at=at, tokens=everyone))
        for count, block in kinds(transformer)
        if block.experts
    ]
    nothing = np.zeros(np.shape(at.layout.tensor))
    head = head_work(transformer, at=at, tokens=sampled)
    linear = cast(Seconds, sum((part.time for part in products), start=streamed))
    experts = cast(Seconds, sum((count * part.time for count, part in routed), start=nothing))
    reduced = layer_messages(transformer, at=at, tokens=tokens)
    sent = expert_messages(transformer, at=at, tokens=tokens, forwarded=forwarded)
    dispatched = sent - hidden_time(
        sent, attention=attention, products=[(1, p) for p in products] + routed, at=at
    )
    launch = launching * over_layers(transformer, lambda block: launch_time(block, at=at))
    in_layers = linear + attention.time + experts + reduced + dispatched + launch
    return Step(
        linear=linear,
        attention=attention.time,
        experts=experts,
        all_reduce=reduced
        + logit_messages(transformer, at=at, tokens=sampled)
        + sequence_messages(transformer, at=at, tokens=tokens),
        all_to_all=dispatched,
        send=stage_messages(transformer, at=at, tokens=tokens),
        launch=launch,
        head=head.time,
        engine=engine,
        bubble=in_layers * waiting_share(transformer, layout=at.layout, in_flight=in_flight),
        compute=sum(part.compute for part in products)
        + sum(count * part.compute for count, part in routed)
        + (attention.compute + head.compute),
        idle=sum(part.time - part.compute for part in products)
        + sum(count * (part.time - part.compute) for count, part in routed),
        memory=sum(part.memory for part in products)
        + sum(count * part.memory for count, part in routed)
        + (attention.memory + head.memory + streamed),
    )


def drafter(transformer: Transformer) -> Transformer:
    """What drafts one token: one layer like the model's last, and its head.

    A multi-token-prediction layer is that with a projection of the last hidden state and the embedding besides, which
    every rank keeps whole (vLLM deepseek_mtp.py, `eh_proj`). A model without one is taken to be drafted for by a head
    of one layer (EAGLE).
    """
    last = transformer.blocks[transformer.sequence[-1]]
    own = transformer.mtp / max(draft_layers(transformer), 1) - last_layer_parameters(transformer)
    block = last.model_copy(update={"other": last.other + max(round(own), 0)})
    same = {name: getattr(transformer, name) for name in Transformer.model_fields}
    return Transformer.model_construct(**same | {"blocks": (block,), "sequence": (0,)})


def draft_time(transformer: Transformer, *, at: Placement, requests: Count, length: Tokens) -> Seconds:
    """Seconds to draft one token for each of `requests`, on the ranks of the last pipeline stage.

    Layers that draft are stored in their own format, the head in the model's; launches and messages are as in the
    model. The engine's own work is part of the step.
    """
    one, weights = drafter(transformer), at.precision.weights
    stored = Precision(
        weights=dict.fromkeys(weights, weights["mtp"]) | {"head": weights["head"]}, kv=at.precision.kv
    )
    there = Placement(stored, replace(at.layout, pipeline=1), at.gpu, at.speed)
    mixer = one.blocks[0].mixer
    parts = [(1, decode_attention(mixer, at=there, length=length))] if mixer else []
    return step_of(
        one,
        at=there,
        tokens=requests,
        sampled=requests,
        attention=attention_work(parts, sequences=requests),
        launching=1.0,
        forwarded=False,
        engine=0.0,
        in_flight=1.0,
    ).total


def decode_step(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    batch: Count,
    length: Tokens,
    draft: int = 0,
) -> Step:
    """One new token, and `draft` drafted ones verified, for every one of `batch` running requests of one replica.

    Requests are spread evenly over the attention replicas and, with a pipeline, over as many micro-batches as stages;
    a token's step crosses all stages.

    Args:
        batch: running requests, [batches]; at least one.
        length: mean tokens in the cache of a request.
        draft: tokens drafted for every request and step; see `Workload.tokens_per_step` for how many it keeps.
    """
    at = Placement(precision, layout, gpu, engine.speed)
    stages = np.asarray(layout.pipeline)
    requests = np.maximum(1.0, np.asarray(batch) / np.asarray(layout.data))
    sequences = np.maximum(1.0, requests / stages)
    cached, queries = np.asarray(length, dtype=float), draft + 1
    parts = [
        (count, decode_attention(block.mixer, at=at, length=cached, queries=queries))
        for count, block in kinds(transformer)
        if block.mixer
    ]
    step = step_of(
        transformer,
        at=at,
        tokens=queries * sequences,
        sampled=queries * sequences,
        attention=attention_work(parts, sequences=sequences),
        launching=1.0,
        forwarded=False,
        engine=engine.speed.step + engine.speed.request * requests,
        in_flight=np.minimum(requests, stages),
    )
    if not draft:
        return step
    return replace(step, draft=draft * draft_time(transformer, at=at, requests=sequences, length=cached))


def prefill_step(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    tokens: Tokens,
    prior: Tokens,
    prompts: Count = 1,
) -> Step:
    """Chunks of `prompts` requests, each of `tokens` new tokens after `prior` cached ones, on every attention replica.

    Context ranks share the tokens, and gather every layer's new keys and values.

    Args:
        tokens: new tokens of one chunk.
        prior: tokens of the same request already in the cache.
        prompts: chunks in the step.
    """
    at = Placement(precision, layout, gpu, engine.speed)
    new, cached = np.asarray(tokens, dtype=float), np.asarray(prior, dtype=float)
    parts = [
        (count, prefill_attention(block.mixer, at=at, tokens=new, prior=cached))
        for count, block in kinds(transformer)
        if block.mixer
    ]
    done = step_of(
        transformer,
        at=at,
        tokens=new * prompts / np.asarray(layout.context),
        sampled=np.asarray(prompts, dtype=float),
        attention=attention_work(parts, sequences=prompts),
        launching=engine.speed.eager,
        forwarded=True,
        engine=np.asarray(engine.speed.step),
        in_flight=np.asarray(1.0),
    )
    gathered = prompts * context_messages(transformer, at=at, tokens=new)
    return replace(done, send=done.send + gathered)
