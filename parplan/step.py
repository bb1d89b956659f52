"""Time of one step of an engine: a decode step or a chunk of prefill, by what it is spent on.

Per operation a roofline: the longer of arithmetic and memory traffic, at the shares a calibrated engine reaches.
Around it what does not overlap: launch and ramp of every kernel, messages between GPUs, and the engine itself.
Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from parplan.calibration import Engine, SpeedProfile
from parplan.collectives import all_gather_time, all_reduce_time, all_to_all_time, reduce_scatter_time, send_time
from parplan.formats import Arithmetic, Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.transformer import Block, Compressed, Experts, GroupedQuery, Latent, Mixer, Recurrent, Transformer
from parplan.units import Bytes, BytesPerSecond, Count, Flop, FlopPerSecond, Number, Seconds, Tokens
from parplan.work import INDEX_BYTES, block_share, cache_bytes, cache_share, layers_per_stage

ACTIVATION_BYTES = 2.0
"""Activations and messages between ranks are 16 bit in every engine modelled."""
LOGIT_BYTES = 4.0
"""Logits are sampled from in fp32."""
LOGIT_PASSES = 4
"""Times sampling goes over the logits: conversion, softmax, and the pick; each a read, the first with a write."""
PRODUCTS: dict[Component, int] = {"attention": 2, "recurrent": 2, "indexer": 1, "dense_ffn": 2, "shared_experts": 2,
                                  "routed_experts": 2}  # fmt: skip
"""Matrix products of one layer after fusing what reads the same input (QKV, gate with up)."""


@dataclass(frozen=True)
class Roofline:
    """An operation's seconds by what could bound it, at the rates really reached."""

    compute: Seconds = 0.0
    memory: Seconds = 0.0

    @property
    def time(self) -> Seconds:
        """The longer one: arithmetic and memory traffic of one kernel overlap."""
        return np.maximum(self.compute, self.memory)


@dataclass(frozen=True)
class Step:
    """Seconds of one step, by part. A token's step crosses every pipeline stage; all parts are sums over stages."""

    linear: Seconds
    """Matrix products with weights every token uses."""
    attention: Seconds
    """Attention over the cache, and recurrences over their state."""
    experts: Seconds
    """Matrix products of routed experts."""
    all_reduce: Seconds
    """Tensor-parallel sums."""
    all_to_all: Seconds
    """Tokens to experts on other ranks and back."""
    send: Seconds
    """Between pipeline stages."""
    launch: Seconds
    """Launch, ramp and tail of kernels, and small kernels between the large ones."""
    head: Seconds
    """Output head and sampling."""
    engine: Seconds
    """Scheduling and input preparation."""
    bubble: Seconds
    """Waiting for the fullest pipeline stage."""
    compute: Seconds
    """Arithmetic alone of everything above."""
    memory: Seconds
    """Memory traffic alone of everything above."""

    @cached_property
    def communication(self) -> Seconds:
        """All messages between GPUs."""
        return self.all_reduce + self.all_to_all + self.send

    @cached_property
    def overhead(self) -> Seconds:
        """What is neither arithmetic, memory traffic nor messages."""
        return self.launch + self.engine + self.bubble

    @cached_property
    def total(self) -> Seconds:
        """The whole step."""
        return self.linear + self.attention + self.experts + self.communication + self.head + self.overhead

    @property
    def least(self) -> Seconds:
        """Lower bound: arithmetic, memory traffic and messages overlap fully, nothing else costs time."""
        return np.maximum(np.maximum(self.compute, self.memory), self.communication)

    @property
    def most(self) -> Seconds:
        """Upper bound: nothing overlaps."""
        return self.compute + self.memory + self.communication + self.overhead

    @property
    def bound(self) -> Any:
        """Index into `BOUNDS` of what the step spends most time on."""
        return np.argmax(np.stack(np.broadcast_arrays(*(getattr(self, name) for name in BOUNDS))), axis=0)


Bound = Literal["compute", "memory", "communication", "overhead"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "communication", "overhead")


def arithmetic(component: Component, precision: Precision, *, gpu: Gpu) -> Arithmetic:
    """What the products of a component really run in: four-bit weights a GPU has no tensor cores for are expanded to
    16 bits on the way in (weight-only kernels), not to 8."""
    wanted = precision.weights[component].arithmetic
    return gpu.arithmetic("bf16" if wanted == "fp4" and "fp4" not in gpu.peaks else wanted)


def reached(component: Component, precision: Precision, *, gpu: Gpu, speed: SpeedProfile) -> FlopPerSecond:
    """FLOP/s a large matrix product with the weights of a component reaches."""
    run = arithmetic(component, precision, gpu=gpu)
    return gpu.peaks[run] * speed.compute[run] * (speed.grouped if component == "routed_experts" else 1.0)


def weight_rate(component: Component, precision: Precision, *, gpu: Gpu, speed: SpeedProfile) -> BytesPerSecond:
    """Bytes/s at which a large matrix product reads the weights of a component."""
    wide = arithmetic(component, precision, gpu=gpu) in ("bf16", "fp16", "fp32")
    narrow = precision.weights[component].bits < 15
    return gpu.bandwidth * speed.bandwidth * (speed.expanded if wide and narrow else 1.0)


def product_start(component: Component, precision: Precision, *, gpu: Gpu, speed: SpeedProfile) -> Seconds:
    """Seconds one matrix product takes besides its roofline; quantised inputs first need quantising."""
    quantised = arithmetic(component, precision, gpu=gpu) in ("fp8", "fp4", "int8")
    in_blocks = quantised and component != "routed_experts" and precision.weights[component].block >= 128
    return speed.product + (speed.quantise if quantised else 0.0) + (speed.blocks if in_blocks else 0.0)


def products(mixer: Mixer) -> int:
    """Matrix products of a mixer after fusing what reads the same input.

    Grouped-query attention and recurrences: one in, one out. Latent attention in decode: both down-projections, query
    up, query into the latent, latent out of the heads, output.
    """
    match mixer:
        case GroupedQuery() | Recurrent():
            return 2
        case Latent() | Compressed():
            return 5


def launch_time(block: Block, precision: Precision, *, gpu: Gpu, speed: SpeedProfile) -> Seconds:
    """Launch, ramp and tail of all kernels of one layer."""

    def start(component: Component) -> Seconds:
        return product_start(component, precision, gpu=gpu, speed=speed)

    time = speed.layer
    if block.mixer:
        name: Component = "recurrent" if isinstance(block.mixer, Recurrent) else "attention"
        time += products(block.mixer) * start(name) + speed.attention
        time += start("indexer") + speed.attention if block.mixer.index_parameters else 0.0
    if block.dense:
        time += 2 * start("dense_ffn")
    if block.experts:
        fused = arithmetic("routed_experts", precision, gpu=gpu) == "fp4"
        time += 2 * start("routed_experts") + (0.0 if fused else speed.routing)
        time += 2 * start("shared_experts") if block.experts.shared_parameters else 0.0
    return time


def linear_work(
    transformer: Transformer, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> list[Roofline]:
    """Matrix products with weights every token uses, of one rank of every stage, one roofline per format.

        compute  2 parameters x tokens / (peak x share)
        memory   parameters x bytes / (bandwidth x share)

    Products of one format cross from memory- to compute-bound at the same number of tokens, so that their sum has
    the roofline of one product.

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    held: dict[tuple[FlopPerSecond, Seconds], Number] = {}
    for block, count in zip(transformer.blocks, transformer.counts, strict=True):
        for component, parameters in block_share(block, layout=layout).items():
            if component != "routed_experts":
                rate = reached(component, precision, gpu=gpu, speed=speed)
                reading = weight_rate(component, precision, gpu=gpu, speed=speed)
                key = (rate, precision.bytes_per_parameter(component) / reading)
                held[key] = held.get(key, 0.0) + count * parameters
    return [
        Roofline(compute=(2 / rate * parameters) * tokens, memory=reading * parameters)
        for (rate, reading), parameters in held.items()
    ]


def experts_touched(experts: Experts, *, tokens: Tokens, layout: Layout, skew: float) -> Count:
    """Experts of one layer whose weights an expert group reads, on average.

        held (1 - (1 - chosen / count)^tokens)                    all experts equally popular
        held (1 - (1 + skew x)^(-1 / skew)), x = -tokens log(1 - chosen / count)   popularity gamma-distributed

    Args:
        tokens: of the whole layer, all attention replicas together.
        skew: squared coefficient of variation of the popularity.

    Source: expectation over a router that picks `chosen` different experts per token; the mixture of Poisson counts
    with a gamma-distributed rate is negative binomial.

    >>> experts = Experts(count=128, chosen=8, inputs=1, width=1)
    >>> float(experts_touched(experts, tokens=1, layout=Layout(), skew=0.0))
    8.0
    """
    held = np.ceil(experts.count / np.asarray(layout.expert))
    picked = -np.log1p(-min(experts.chosen / experts.count, 1 - 1e-12)) * tokens
    if skew:
        picked = np.log1p(skew * picked) / skew
    return held * -np.expm1(-picked)


def busy_share(*, layout: Layout, imbalance: float) -> Number:
    """Load of the busiest expert group over the mean: one group carries all and is the mean."""
    return np.minimum(imbalance, np.asarray(layout.expert, dtype=float))


def expert_work(
    experts: Experts, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> Roofline:
    """Routed experts of one layer on the busiest rank.

    Args:
        tokens: of the whole layer, all attention replicas together, [layouts, batches].
    """
    parameters = experts.expert_parameters / np.asarray(layout.expert_tensor)
    chosen = experts.chosen * busy_share(layout=layout, imbalance=speed.imbalance) / np.asarray(layout.expert)
    touched = experts_touched(experts, tokens=tokens, layout=layout, skew=speed.skew)
    width = precision.bytes_per_parameter("routed_experts")
    return Roofline(
        compute=2 * parameters * chosen / reached("routed_experts", precision, gpu=gpu, speed=speed) * tokens,
        memory=parameters * width / weight_rate("routed_experts", precision, gpu=gpu, speed=speed) * touched,
    )


def attended(mixer: Mixer, *, length: Tokens) -> Tokens:
    """Stored positions one query attends to in a sequence of `length` tokens."""
    match mixer:
        case GroupedQuery():
            return np.minimum(length, min(mixer.window or np.inf, mixer.sparse_top_k or np.inf))
        case Latent():
            return np.minimum(length, mixer.sparse_top_k or np.inf)
        case Compressed():
            folded = np.asarray(length) / mixer.ratio if mixer.ratio else 0.0
            return np.minimum(length, mixer.window) + np.minimum(folded, mixer.sparse_top_k or np.inf)
        case Recurrent():
            return 0.0 * np.asarray(length)


def attended_in_total(mixer: Mixer, *, tokens: Tokens, prior: Tokens) -> Tokens:
    """Positions all queries of a chunk attend to, causal: the integral of `attended` from prior to prior + tokens."""
    if isinstance(mixer, Compressed):
        return tokens * attended(mixer, length=np.asarray(prior) + np.asarray(tokens) / 2)
    most = attended(mixer, length=np.inf) if not isinstance(mixer, Recurrent) else 0.0

    def below(length: Tokens) -> Tokens:
        capped = np.minimum(length, most)
        return capped * capped / 2 + np.where(np.isinf(most), 0.0, capped) * np.maximum(length - capped, 0.0)

    return below(np.asarray(prior) + np.asarray(tokens)) - below(np.asarray(prior, dtype=float))


def read_bytes(mixer: Mixer, precision: Precision, *, length: Tokens) -> Bytes:
    """Cache bytes one decoded token of one sequence makes a layer read (and, for states, write back), before any cut."""
    if isinstance(mixer, Recurrent):
        return 2 * cache_bytes(mixer, precision, length=length)
    per_position = mixer.cache.growing * precision.kv.bytes_per_element
    index = mixer.cache.index * INDEX_BYTES * np.asarray(length)
    return per_position * attended(mixer, length=length) + index


def decode_attention(
    mixer: Mixer, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, length: Tokens
) -> Roofline:
    """One layer's attention of one sequence for one new token, on one rank."""
    tensor = np.asarray(layout.tensor)
    state = mixer.flop_per_token if isinstance(mixer, Recurrent) else 0
    flop = (mixer.flop_per_position * attended(mixer, length=length) + state) / tensor
    flop = flop + mixer.index_flop_per_position * np.asarray(length)
    moved = cache_share(mixer, layout=layout) * read_bytes(mixer, precision, length=length)
    return Roofline(
        compute=flop / (gpu.peak("bf16") * speed.attention_compute),
        memory=moved / (gpu.bandwidth * speed.cache_bandwidth),
    )


def prefill_attention(
    mixer: Mixer, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens, prior: Tokens
) -> Roofline:
    """One layer's attention of a chunk of one sequence, on one rank; context parallelism shares the queries."""
    tensor, context = np.asarray(layout.tensor), np.asarray(layout.context)
    state = mixer.flop_per_token * np.asarray(tokens) if isinstance(mixer, Recurrent) else 0.0
    index = mixer.index_flop_per_position * np.asarray(tokens) * (np.asarray(prior) + np.asarray(tokens) / 2)
    positions = attended_in_total(mixer, tokens=tokens, prior=prior)
    flop = (mixer.prefill_flop_per_position * positions + state) / tensor + index
    length = np.asarray(prior) + np.asarray(tokens)
    moved = cache_share(mixer, layout=layout) * cache_bytes(mixer, precision, length=length)
    return Roofline(
        compute=flop / context / (gpu.peak("bf16") * speed.attention_compute),
        memory=moved / (gpu.bandwidth * speed.cache_bandwidth),
    )


def layer_messages(
    transformer: Transformer, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> Seconds:
    """Tensor-parallel sums of all layers: one after every mixer and one after every feed-forward part.

    Experts spread over several attention replicas have messages of their own instead, see `expert_messages`.

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    mixers = sum(count for block, count in zip(transformer.blocks, transformer.counts, strict=True) if block.mixer)
    dense = sum(count for block, count in zip(transformer.blocks, transformer.counts, strict=True) if block.dense)
    experts = sum(count for block, count in zip(transformer.blocks, transformer.counts, strict=True) if block.experts)
    times = mixers + dense + np.where(np.asarray(layout.data) == 1, experts, 0)
    message = transformer.hidden * ACTIVATION_BYTES * tokens
    return times * all_reduce_time(message, ranks=np.asarray(layout.tensor), gpu=gpu, speed=speed)


def expert_messages(
    transformer: Transformer, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> Seconds:
    """Tokens to the experts that sit with other attention replicas, and results back, of all layers.

    With expert groups every token goes once to each group that holds one of its experts, in the arithmetic of the
    experts, and comes back in 16 bits; the ranks of one attention replica share its tokens. Without, all tokens go to
    all ranks (all-gather) and partial results are summed (reduce-scatter).

        groups reached  expert (1 - (1 - 1 / expert)^chosen)

    Args:
        tokens: of one attention replica, [layouts, batches].
    """
    if not transformer.is_moe or np.max(layout.data) == 1:
        return 0.0 * np.asarray(layout.data)
    width, groups = np.asarray(layout.width), np.asarray(layout.expert, dtype=float)
    run = arithmetic("routed_experts", precision, gpu=gpu)
    sent_bytes = 1.0 if run in ("fp8", "fp4", "int8") else ACTIVATION_BYTES
    time: Seconds = 0.0
    for block, count in zip(transformer.blocks, transformer.counts, strict=True):
        if block.experts:
            reached_groups = groups * (1 - (1 - 1 / groups) ** block.experts.chosen)
            message = block.experts.inputs * reached_groups / np.asarray(layout.tensor) * tokens
            there = all_to_all_time(message * sent_bytes, ranks=width, gpu=gpu, speed=speed)
            back = all_to_all_time(message * ACTIVATION_BYTES, ranks=width, gpu=gpu, speed=speed)
            whole = block.experts.inputs * ACTIVATION_BYTES * np.asarray(layout.data) * tokens
            gathered = all_gather_time(whole, ranks=width, gpu=gpu, speed=speed)
            gathered = gathered + reduce_scatter_time(whole, ranks=width, gpu=gpu, speed=speed)
            time = time + count * np.where(groups > 1, there + back, gathered)
    return np.where(np.asarray(layout.data) > 1, time, 0.0)


def sequence_messages(
    transformer: Transformer, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> Seconds:
    """Queries to, and partial results from, the ranks that hold other parts of a sequence's cache, of all layers."""
    mixers = sum(count for block, count in zip(transformer.blocks, transformer.counts, strict=True) if block.mixer)
    message = transformer.hidden * ACTIVATION_BYTES / np.asarray(layout.tensor) * tokens
    ranks = np.asarray(layout.decode_context)
    one_way = all_gather_time(message * ranks, ranks=ranks, gpu=gpu, speed=speed)
    return np.where(ranks > 1, 2 * mixers * one_way, 0.0)


def head_work(
    transformer: Transformer, precision: Precision, *, layout: Layout, gpu: Gpu, speed: SpeedProfile, tokens: Tokens
) -> tuple[Roofline, Seconds]:
    """Output head and sampling, and the gathering of the logits from the ranks that share the vocabulary.

    Args:
        tokens: positions that are sampled from, [layouts, batches].
    """
    tensor = np.asarray(layout.tensor)
    parameters = transformer.vocabulary * transformer.hidden / tensor
    weights = parameters * precision.bytes_per_parameter("head")
    logits = transformer.vocabulary * LOGIT_BYTES * LOGIT_PASSES * tokens
    work = Roofline(
        compute=2 * parameters / reached("head", precision, gpu=gpu, speed=speed) * tokens,
        memory=(weights + logits) / (gpu.bandwidth * speed.bandwidth),
    )
    message = transformer.vocabulary * ACTIVATION_BYTES * tokens
    return work, all_gather_time(message, ranks=tensor, gpu=gpu, speed=speed)


def pace(transformer: Transformer, *, layout: Layout, in_flight: Count) -> Number:
    """Time of a token through a pipeline over the sum of its stages: the fullest stage sets the pace.

        max(1, micro-batches in flight x layers of the fullest stage / layers)
    """
    stages = layers_per_stage(transformer, layout=layout).sum(axis=-1).max(axis=-1)
    return np.maximum(1.0, in_flight * (stages / len(transformer.sequence)))


def step(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    tokens: Tokens,
    attention: Roofline,
    sampled: Tokens,
    eager: float,
    fixed: Seconds,
    in_flight: Count,
) -> Step:
    """One pass of a micro-batch through all layers of all stages.

    Args:
        tokens: of one attention replica.
        attention: of all layers, on one rank of every stage.
        eager: factor on launches.
        sampled: positions the head is applied to.
        fixed: what the engine spends around the pass.
        in_flight: micro-batches in the pipeline.
    """
    speed = engine.speed
    common = {"layout": layout, "gpu": gpu, "speed": speed}
    linear = linear_work(transformer, precision, tokens=tokens, **common)
    activations = len(transformer.sequence) * speed.passes * transformer.hidden * ACTIVATION_BYTES
    moved = activations / (gpu.bandwidth * speed.bandwidth) * tokens
    experts = [
        (count, expert_work(block.experts, precision, tokens=np.asarray(layout.data) * tokens, **common))
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
        if block.experts
    ]
    head, gathering = head_work(transformer, precision, tokens=sampled, **common)
    all_reduce = layer_messages(transformer, tokens=tokens, **common) + gathering
    all_reduce = all_reduce + sequence_messages(transformer, tokens=tokens, **common)
    all_to_all = expert_messages(transformer, precision, tokens=tokens, **common)
    stages = np.asarray(layout.pipeline)
    handed = 2 * transformer.hidden * ACTIVATION_BYTES * tokens
    send = (stages - 1) * send_time(handed, distance=np.asarray(layout.width * layout.context), gpu=gpu, speed=speed)
    slower = speed.slower.get(gpu.architecture, 1.0)
    launch = slower * eager * sum(
        count * launch_time(block, precision, gpu=gpu, speed=speed)
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
    )
    linear_time = slower * sum((part.time for part in linear), start=moved)
    expert_time = slower * sum((count * part.time for count, part in experts), start=0.0 * stages)
    waiting = pace(transformer, layout=layout, in_flight=in_flight) - 1
    layers = linear_time + slower * attention.time + expert_time + all_reduce + all_to_all + launch
    return Step(
        linear=linear_time,
        attention=slower * attention.time,
        experts=expert_time,
        all_reduce=all_reduce,
        all_to_all=all_to_all,
        send=send,
        launch=launch,
        head=slower * head.time,
        engine=fixed,
        bubble=waiting * layers if np.max(stages) > 1 else 0.0 * stages,
        compute=sum(part.compute for part in linear) + attention.compute + head.compute
        + sum(count * part.compute for count, part in experts),
        memory=sum(part.memory for part in linear) + moved + attention.memory + head.memory
        + sum(count * part.memory for count, part in experts),
    )  # fmt: skip


def attention_sum(parts: list[tuple[int, Roofline]], *, times: Count) -> Roofline:
    """Attention of all layers: kinds add up; a kind that is bound by arithmetic does not hide another's traffic."""
    return Roofline(
        compute=sum(count * part.compute for count, part in parts) * np.asarray(times),
        memory=sum(count * part.memory for count, part in parts) * np.asarray(times),
    )


def decode_step(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    batch: Count,
    length: Tokens,
) -> Step:
    """One new token for every one of `batch` running requests of one replica.

    Requests are split over the attention replicas and, with a pipeline, into as many micro-batches as stages; a
    token's step crosses all stages.

    Args:
        batch: running requests, [batches].
        length: mean tokens in the cache of a request.
    """
    speed = engine.speed
    requests = np.ceil(np.asarray(batch) / np.asarray(layout.data))
    in_flight = np.minimum(requests, np.asarray(layout.pipeline))
    tokens = np.ceil(requests / np.asarray(layout.pipeline))
    parts = [
        (count, decode_attention(block.mixer, precision, layout=layout, gpu=gpu, speed=speed, length=length))
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
        if block.mixer
    ]
    return step(
        transformer, precision, layout=layout, gpu=gpu, engine=engine,
        tokens=tokens, attention=attention_sum(parts, times=tokens), sampled=tokens,
        eager=1.0, fixed=speed.step + speed.request * requests, in_flight=in_flight,
    )  # fmt: skip


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
    """One chunk of `tokens` new tokens of one request on every attention replica, after `prior` cached ones.

    Context parallelism shares the tokens among its ranks; every layer's new keys and values are gathered.

    Args:
        tokens: new tokens of the chunk.
        prior: tokens of the same request already in the cache.
        prompts: such requests packed into the step on every attention replica.
    """
    speed, context = engine.speed, np.asarray(layout.context)
    parts = [
        (count, prefill_attention(block.mixer, precision, layout=layout, gpu=gpu, speed=speed, tokens=tokens, prior=prior))
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
        if block.mixer
    ]
    done = step(
        transformer, precision, layout=layout, gpu=gpu, engine=engine,
        tokens=np.asarray(tokens) * prompts / context, attention=attention_sum(parts, times=prompts), sampled=np.asarray(prompts),
        eager=speed.eager, fixed=np.asarray(speed.step), in_flight=np.asarray(1),
    )  # fmt: skip
    if np.max(context) == 1:
        return done
    stored = sum(
        count * cache_share(block.mixer, layout=layout) * cache_bytes(block.mixer, precision, length=tokens)
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
        if block.mixer
    )
    return replace(done, send=done.send + all_gather_time(stored, ranks=context, gpu=gpu, speed=speed))
