"""Where one GPU's memory goes, on the rank that runs out first, and what cache that leaves room for.

Shapes: a layout's fields and the concurrency broadcast to [...]; what differs between pipeline stages has one
last axis, [..., stages]. The stage whose cache is full first decides for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from parplan.calibration import (
    Allocator,
    Engine,
    Exact,
    Grouped,
    MemoryProfile,
    Shared,
    Slack,
    Tier,
    TwoPools,
)
from parplan.formats import Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.provenance import Value
from parplan.transformer import Block, Compressed, GroupedQuery, Mixer, Recurrent, Transformer
from parplan.units import Array, Bytes, Count, Tokens
from parplan.work import INDEX_BYTES, cache_share, layers_per_stage, stage_weight_bytes
from parplan.workload import Workload

ACTIVATION_BYTES = 2.0
"""Activations between layers are 16-bit."""
KEPT_BITS = 8
"""Bits per weight from which expert kernels keep their workspace."""
WIDE = 4
"""Tensor ranks from which an engine may take the wider of its defaults (`Tier.wide`)."""
LOGIT_BYTES = 4.0
"""Samplers work on 32-bit logits."""


class Settings(Value):
    """Engine settings a user may override; what is None stays at the engine's default."""

    utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of memory the engine takes (vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`,
    TensorRT-LLM `--kv_cache_free_gpu_memory_fraction`)."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=65_536)
    """Sequences one data rank runs at once."""
    max_batched_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Tokens of one step."""
    max_length: int | None = Field(default=None, ge=1, le=100_000_000)
    """Longest request the engine is told to expect. None: just long enough for the workload."""
    eager: bool = False
    """Record no CUDA graphs."""


@dataclass(frozen=True)
class Limits:
    """What the engine is really told: settings, with its defaults for this GPU where they say nothing."""

    utilization: Array
    """Share of memory the engine takes, [...]."""
    sequences: int
    batched_tokens: int
    largest_graph: Array
    """Largest batch recorded as a CUDA graph, [...]; 0: none."""
    length: int
    """Longest request it is told to expect, tokens."""


@dataclass(frozen=True)
class Store:
    """Layers of one pipeline stage that cache in the same way, and what one of them keeps on one rank."""

    layers: Array
    """[..., stages]."""
    per_token: Array
    """Bytes per token that is kept, [..., 1]; 0 for a recurrent state."""
    state: Array
    """Bytes per sequence whatever its length, [..., 1]."""
    window: int | None = None
    """Tokens kept at most. None: all."""
    chunked: bool = False
    """The window is a fixed chunk, not a sliding one."""


@dataclass(frozen=True)
class Charge:
    """What an allocator takes from one rank's pool, [..., stages]."""

    request: Array
    """Bytes for one request of the asked length."""
    logged_token: Array
    """Bytes of the pool for every token the engine's log speaks of."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the worst rank, [...]: the rank of the pipeline stage whose cache is full first.

    usable = weights + activations + overhead + kv + free, always; `free` is negative when it does not load.
    """

    usable: float
    """What the driver reports."""
    weights_by_component: dict[Component, Array]
    activations: Array
    """Peak of one step's temporary tensors."""
    context: Array
    """Driver context and communicator set-up, there before the engine looks."""
    non_torch: Array
    """Communication buffers and libraries."""
    graphs: Array
    """Recorded CUDA graphs."""
    reserve: Array
    """What the engine leaves untouched of the memory it looks at: the share it was not given."""
    pool: Array
    """What the engine grants to the cache; negative when the rest does not fit into its share."""
    request: Array
    """What one request at full length is charged."""
    request_ideal: Array
    """What one request at full length would take without blocks, padding and unused windows."""
    kv: Array
    """What the requests that run use of the pool, each at full length."""
    kv_needed: Array
    """What all concurrent requests would use, each at full length."""
    running: Array
    """Requests of the replica that run at once; the others wait for cache or for a sequence slot."""
    requests: Array
    """Requests of the workload's length the pools hold, not rounded: the "maximum concurrency" of a log.
    Negative when the weights do not fit."""
    capacity: Array
    """Whole requests of the workload's length the pools hold at once."""
    kv_tokens: Array
    """Tokens the replica's pools hold, as the engine's log counts them."""
    longest: Array
    """What one request of the longest length the engine is told to expect is charged."""
    stage: Array
    """Index of the worst pipeline stage."""

    @property
    def weights(self) -> Array:
        """All weights."""
        return cast(Array, sum(self.weights_by_component.values()))

    @property
    def overhead(self) -> Array:
        """Context, communication buffers and CUDA graphs."""
        return self.context + self.non_torch + self.graphs

    @property
    def kv_ideal(self) -> Array:
        """What the running requests' cache would take without blocks, padding and unused windows."""
        return self.kv / np.where(self.request > 0, self.request, 1.0) * self.request_ideal

    @property
    def free(self) -> Array:
        """What is left, reserve and unused cache included."""
        return self.usable - self.weights - self.activations - self.overhead - self.kv

    @property
    def overflows(self) -> NDArray[np.bool_]:
        """Whether the engine takes more than the GPU has, once the pool and the graphs are there."""
        taken = self.weights + self.activations + self.overhead + np.maximum(self.pool, 0.0)
        return np.asarray(taken > self.usable)

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether the engine comes up: one request of the longest length fits, and nothing overflows."""
        return np.asarray((self.pool > 0) & (self.pool >= self.longest) & ~self.overflows)


def tier_of(tiers: Sequence[Tier], *, gpu: Gpu) -> Tier:
    """The highest tier a GPU reaches; a profile's lowest tier holds for every GPU."""
    reached = (
        tier for tier in tiers if tier.memory <= gpu.memory and gpu.architecture not in tier.exceptions
    )
    return max(reached, key=lambda tier: tier.memory)


def tier_value(tiers: Sequence[Tier], *, gpu: Gpu) -> int:
    """The default of the highest tier a GPU reaches."""
    return tier_of(tiers, gpu=gpu).value


def slack_bytes(
    slack: Slack, *, gpu: Gpu, layout: Layout, batched_tokens: Tokens, largest_graph: Count
) -> Bytes:
    """What an engine leaves free when it is not told its share.

    constant + per token x max(tokens, least) + per sequence x graph batch + per GPU x tensor x pipeline
    """
    left = (
        slack.constant
        + slack.per_batched_token * np.maximum(batched_tokens, slack.least_batched_tokens)
        + slack.per_graph_sequence * largest_graph
        + slack.per_gpu * np.asarray(layout.tensor) * np.asarray(layout.pipeline)
    )
    return np.asarray(np.maximum(left, slack.floor if gpu.memory >= slack.floor_from else 0.0))


def limits(
    settings: Settings, *, profile: MemoryProfile, gpu: Gpu, layout: Layout, workload: Workload
) -> Limits:
    """Settings with every None replaced by the engine's default for this GPU."""
    batched_tokens = settings.max_batched_tokens or tier_value(profile.batched_tokens, gpu=gpu)
    sequences = settings.max_num_seqs or tier_value(profile.sequences, gpu=gpu)
    graphs = tier_of(profile.largest_graph, gpu=gpu)
    recorded = np.where(np.asarray(layout.tensor) >= WIDE, graphs.wide or graphs.value, graphs.value)
    recorded = np.minimum(recorded, 2 * sequences).astype(float)
    share = settings.utilization or profile.utilization
    if share is None and profile.slack:
        left = slack_bytes(
            profile.slack, gpu=gpu, layout=layout, batched_tokens=batched_tokens, largest_graph=recorded
        )
        share = cast(float, np.maximum(1 - left / gpu.memory, 0.0))
    return Limits(
        utilization=np.asarray(share, dtype=float),
        sequences=sequences,
        batched_tokens=batched_tokens,
        largest_graph=np.zeros_like(recorded) if settings.eager else recorded,
        length=settings.max_length or workload.length,
    )


def shared_bytes(shared: Shared, *, ranks: Count, gpu: Gpu) -> Bytes:
    """Bytes a rank spends on its company: alone, or pair + doubling x log2(ranks / 2)."""
    together = shared.pair[gpu.fabric] + shared.doubling * np.log2(np.maximum(ranks, 2) / 2)
    return np.where(np.asarray(ranks) > 1, together, shared.alone)


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


def block_activation_bytes(block: Block, *, hidden: int, tokens: Tokens, layout: Layout) -> Array:
    """Temporary tensors of one layer's feed-forward part at its peak, the widest point of a layer.

        16-bit x tokens x (2 hidden + 3 width / tensor + expert workspace)

    The residual and the layer's input, the gate and up products, and their activated product live at once.
    """
    elements = 2.0 * hidden + 0 * np.asarray(layout.tensor)
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
    elements = max((block.mixer.cache.index for block in transformer.blocks if block.mixer), default=0.0)
    return profile.index_lengths * length * elements * INDEX_BYTES


def stage_activation_bytes(
    transformer: Transformer, precision: Precision, *, profile: MemoryProfile, layout: Layout, told: Limits
) -> Array:
    """Activation peak of every pipeline stage, [..., stages]: a step's layers, or sampling on the last stage.

        sampling = copies x sequences x vocabulary x 32-bit + tokens x hidden x 16-bit + expert workspace

    The whole vocabulary is gathered on every rank, so tensor parallelism does not shrink it. The expert workspace is
    kept while sampling where experts have eight bits or more; kernels for fewer bits give it back.
    """
    tokens, blocks = told.batched_tokens, transformer.blocks
    held: Array = np.max([expert_workspace_elements(block, layout=layout) for block in blocks], axis=0)
    widest: Array = np.max(
        [block_activation_bytes(b, hidden=transformer.hidden, tokens=tokens, layout=layout) for b in blocks],
        axis=0,
    )
    kept = held if precision.weights["routed_experts"].bits >= KEPT_BITS else 0.0
    logits = profile.sampler_copies * told.sequences * transformer.vocabulary * LOGIT_BYTES
    states = ACTIVATION_BYTES * tokens * (transformer.hidden + kept)
    sampling = np.asarray(logits + profile.forward_copies * states)[..., None]
    layers = np.asarray(profile.forward_copies * widest)[..., None]
    pipeline = np.asarray(layout.pipeline)[..., None]
    stage = np.arange(pipeline.max())
    peak = np.where(stage == pipeline - 1, np.maximum(layers, sampling), layers)
    index = index_workspace_bytes(transformer, profile=profile, length=told.length)
    return np.where(stage < pipeline, peak + index, 0.0)


def expert_padding(
    transformer: Transformer, precision: Precision, *, profile: MemoryProfile, layout: Layout
) -> Array:
    """Stored size of the routed experts over their real size on each rank; 1 where nothing is rounded up.

    Source: vLLM mxfp4 experts, width to a multiple of 128 and inputs to one of 256; gpt-oss-20b on one H100 takes
    13.64 GiB for 12.81.
    """
    rounding = profile.expert_padding
    first = next((block.experts for block in transformer.blocks if block.experts), None)
    if rounding is None or first is None or precision.weights["routed_experts"].name not in rounding.formats:
        return np.asarray(1.0)
    width = first.width / np.asarray(layout.expert_tensor)
    wider = np.ceil(width / rounding.width) * rounding.width / width
    return np.asarray(wider * np.ceil(first.inputs / rounding.inputs) * rounding.inputs / first.inputs)


def stage_graph_bytes(
    transformer: Transformer, *, profile: MemoryProfile, layout: Layout, largest: Count
) -> Array:
    """CUDA graphs of every pipeline stage, [..., stages].

    (bytes of every layer + the rest) x recorded batch sizes
    """
    layers = layers_per_stage(transformer, layout=layout)
    size = [
        profile.graph_expert_size if block.experts else profile.graph_size for block in transformer.blocks
    ]
    rest = np.where(layers.any(axis=-1), profile.graph_layers * profile.graph_size, 0.0)
    return np.asarray((layers @ np.array(size) + rest) * np.asarray(graph_sizes(largest))[..., None])


def stores(transformer: Transformer, precision: Precision, *, layout: Layout) -> tuple[Store, ...]:
    """The distinct kinds of cache a model keeps; layers that cache alike are counted together."""
    layers = layers_per_stage(transformer, layout=layout)
    found: dict[tuple[object, ...], Store] = {}
    for kind, block in enumerate(transformer.blocks):
        for store in mixer_stores(block.mixer, precision, layout=layout, layers=layers[..., kind]):
            key = (store.window, store.chunked, store.per_token.tobytes(), store.state.tobytes())
            same = found.get(key)
            found[key] = Store(
                layers=store.layers + (same.layers if same else 0.0),
                per_token=store.per_token,
                state=store.state,
                window=store.window,
                chunked=store.chunked,
            )
    return tuple(found.values())


def mixer_stores(
    mixer: Mixer | None, precision: Precision, *, layout: Layout, layers: Array
) -> tuple[Store, ...]:
    """What one mixer keeps on one rank: a growing or windowed part, a compressed part, or a state."""
    if mixer is None:
        return ()
    cache = mixer.cache
    share = np.asarray(cache_share(mixer, layout=layout), dtype=float)[..., None]
    element = precision.kv.bytes_per_element
    beside = cache.compressed * element + cache.index * INDEX_BYTES
    match mixer:
        case Recurrent():
            whole = cache.state * mixer.state_bytes + cache.convolution * precision.bytes_per_parameter(
                "norms"
            )
            return (Store(layers=layers, per_token=0 * share, state=share * whole),)
        case Compressed():
            grows = (Store(layers=layers, per_token=share * beside, state=0 * share),) if beside else ()
            per_token = share * cache.growing * element
            return (Store(layers=layers, per_token=per_token, state=0 * share, window=cache.window), *grows)
        case GroupedQuery() if not cache.growing:
            return ()
        case _:
            per_token = share * (cache.growing * element + beside)
            chunked = isinstance(mixer, GroupedQuery) and mixer.chunked
            return (
                Store(
                    layers=layers, per_token=per_token, state=0 * share, window=cache.window, chunked=chunked
                ),
            )


def exact_charge(kept: Sequence[Store], *, block: int, length: Tokens) -> Charge:
    """Every layer keeps what the model defines, in whole blocks."""
    request: Array = np.zeros(1)
    token: Array = np.zeros(1)
    for store in kept:
        tokens = np.minimum(length, store.window) if store.window else np.asarray(length)
        request = request + store.layers * (store.per_token * np.ceil(tokens / block) * block + store.state)
        token = token + store.layers * (store.per_token * tokens + store.state) / length
    return Charge(request=request, logged_token=token)


def two_pool_charge(kept: Sequence[Store], *, share: float, length: Tokens) -> Charge:
    """Windowed layers have their own pool, `share` times the tokens of the full one; the fuller pool decides.

    (full + share x windowed) x max(length, min(length, window) / share), plus states
    """
    full: Array = np.zeros(1)
    windowed: Array = np.zeros(1)
    states: Array = np.zeros(1)
    used: Tokens = 0.0
    for store in kept:
        states = states + store.layers * store.state
        if store.window:
            windowed = windowed + store.layers * store.per_token
            used = np.maximum(used, np.minimum(length, store.window))
        else:
            full = full + store.layers * store.per_token
    token = full + share * windowed
    request = token * np.maximum(length, np.asarray(used) / share) + states
    return Charge(request=request, logged_token=np.where(token > 0, token, request / length))


def grouped_charge(
    kept: Sequence[Store], *, allocator: Grouped, length: Tokens, batched_tokens: Tokens
) -> Charge:
    """Layers in padded groups that share pages of one size (vLLM's hybrid cache manager).

        request = page x layers of a group x sum over groups of their blocks

    Source: vLLM @001cabc vllm/v1/core/kv_cache_utils.py (`_get_kv_cache_groups_uniform_page_size`,
    `_max_memory_usage_bytes_from_groups`, `_report_kv_cache_config`).
    """
    if not any(store.window or store.state.any() for store in kept):
        return exact_charge(kept, block=allocator.block, length=length)
    grown = np.maximum.reduce([store.per_token for store in kept]) * allocator.block
    state = np.maximum.reduce([store.state for store in kept])
    page = np.where(
        grown > 0, grown * np.maximum(np.ceil(state / np.where(grown > 0, grown, 1.0)), 1.0), state
    )
    present = [np.where(store.layers > 0, store.layers, np.nan) for store in kept]
    least, most = np.fmin.reduce(present), np.fmax.reduce(present)
    size = np.nan_to_num(np.where(most < allocator.padded_up_to * least, most, least))
    groups: Array = np.zeros(1)
    blocks: Array = np.zeros(1)
    tokens_per_block: Array = np.full(1, np.inf)
    for store in kept:
        held = np.ceil(store.layers / np.where(size > 0, size, 1.0))
        block = page / np.where(store.per_token > 0, store.per_token, np.nan)
        groups = groups + held
        blocks = blocks + held * charged_blocks(
            store, block=block, length=length, batched_tokens=batched_tokens
        )
        tokens_per_block = np.fmin(tokens_per_block, np.where(store.layers > 0, block, np.nan))
    request = size * page * blocks
    per_block = size * page * groups / np.where(np.isfinite(tokens_per_block), tokens_per_block, 1.0)
    return Charge(request=request, logged_token=per_block if allocator.logs == "blocks" else request / length)


def charged_blocks(store: Store, *, block: Array, length: Tokens, batched_tokens: Tokens) -> Array:
    """Blocks of one layer one request is charged: one for a state, a step more than its window, or all."""
    if store.window is None:
        return np.where(np.isnan(block), 1.0, np.ceil(length / block))
    seen = store.window + batched_tokens - (0 if store.chunked else 1)
    edge = 0 if store.chunked else 1
    return np.ceil(np.minimum(seen, length) / block) + edge


def charge(kept: Sequence[Store], *, allocator: Allocator, length: Tokens, batched_tokens: Tokens) -> Charge:
    """What an engine's allocator takes from the pool, [..., stages]."""
    match allocator:
        case Exact():
            return exact_charge(kept, block=allocator.block, length=length)
        case TwoPools():
            return two_pool_charge(kept, share=allocator.share, length=length)
        case Grouped():
            return grouped_charge(kept, allocator=allocator, length=length, batched_tokens=batched_tokens)


def memory(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    workload: Workload,
    concurrency: Count | NDArray[np.int64],
    settings: Settings | None = None,
) -> Memory:
    """Where the memory of the worst rank goes, and what the replica holds.

        pool = share x basis - weights - what the engine counts inside its share

    Args:
        layout: one, or many with a trailing axis of one to broadcast against concurrency ([layouts, 1]).
        concurrency: requests the replica has in hand, [batches] or a scalar; spread over its data ranks.
        settings: engine settings; None: all at their defaults.
    """
    profile = engine.memory
    told = limits(settings or Settings(), profile=profile, gpu=gpu, layout=layout, workload=workload)
    weights = stage_weight_bytes(transformer, precision, layout=layout)
    padding = expert_padding(transformer, precision, profile=profile, layout=layout)[..., None]
    if "routed_experts" in weights:
        weights["routed_experts"] = weights["routed_experts"] * padding
    activations = stage_activation_bytes(transformer, precision, profile=profile, layout=layout, told=told)
    graphs = stage_graph_bytes(transformer, profile=profile, layout=layout, largest=told.largest_graph)
    context = np.asarray(shared_bytes(profile.context, ranks=np.asarray(layout.gpus), gpu=gpu))[..., None]
    team = np.asarray(layout.width) * np.asarray(layout.context)
    non_torch = np.asarray(shared_bytes(profile.non_torch, ranks=team, gpu=gpu))[..., None]

    parts = {"activations": activations, "non_torch": non_torch, "graphs": graphs}
    inside = cast(Array, sum(weights.values())) + sum(parts[name] for name in sorted(profile.inside))
    share = told.utilization[..., None]
    basis = {
        "total": np.asarray(gpu.memory),
        "free": gpu.memory - context,
        "rest": gpu.memory - context - inside,
    }[profile.share_of]
    pool = share * basis - (0.0 if profile.share_of == "rest" else inside)

    kept = stores(transformer, precision, layout=layout)
    asked = charge(
        kept, allocator=profile.allocator, length=workload.length, batched_tokens=told.batched_tokens
    )
    longest = charge(
        kept, allocator=profile.allocator, length=told.length, batched_tokens=told.batched_tokens
    )
    ideal = exact_charge(kept, block=1, length=workload.length)

    caching = asked.request > 0
    held = np.where(caching, pool / np.where(caching, asked.request, 1.0), np.copysign(np.inf, pool))
    stage = held.argmin(axis=-1)

    def worst(amount: Array) -> Array:
        everywhere = np.broadcast_to(amount, held.shape)
        return np.take_along_axis(everywhere, stage[..., None], axis=-1)[..., 0]

    data = np.asarray(layout.data, dtype=float)
    room = worst(held)
    whole = np.floor(np.maximum(room, 0.0))
    asking = np.ceil(np.asarray(concurrency) / data)
    running = np.minimum(asking, np.minimum(whole, told.sequences))
    request = worst(asked.request)
    logged = worst(longest.logged_token)
    return Memory(
        usable=gpu.memory,
        weights_by_component={component: worst(amount) for component, amount in weights.items()},
        activations=worst(activations),
        context=worst(context),
        non_torch=worst(non_torch),
        graphs=worst(graphs),
        reserve=worst((1 - share) * basis),
        pool=worst(pool),
        request=request,
        request_ideal=worst(ideal.request),
        kv=running * request,
        kv_needed=asking * request,
        running=np.minimum(running * data, np.asarray(concurrency)),
        requests=room * data,
        capacity=whole * data,
        kv_tokens=np.maximum(worst(pool), 0.0) / np.where(logged > 0, logged, 1.0) * data,
        longest=worst(longest.request),
        stage=stage,
    )
