"""Where one GPU's memory goes, on the rank that runs out first, and what cache that leaves room for.

Shapes: a layout's fields and the concurrency broadcast to [...]; what differs between pipeline stages has one
last axis, [..., stages]. The stage whose cache is full first decides for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from parplan.allocator import charge, exact_charge, stores
from parplan.calibration import Engine, MemoryProfile, Shared, Slack, Tier
from parplan.formats import Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.provenance import Value
from parplan.transformer import Block, Latent, Recurrent, Transformer
from parplan.units import Array, Bytes, Count, Tokens
from parplan.work import INDEX_BYTES, block_share, last_stage, layers_per_stage, stage_weight_bytes
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
    mtp: bool = False
    """Load the checkpoint's multi-token-prediction layers, to draft tokens with (speculative decoding)."""
    redundant_experts: int = Field(default=0, ge=0, le=4096)
    """Copies of busy experts beside the model's own, per layer (expert load balancing, vLLM `--eplb-config`)."""
    activations: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of the activation peak as a log states them. None: predicted."""
    non_torch: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of communication buffers and libraries as a log states them. None: predicted."""
    graphs: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of recorded CUDA graphs as a log states them. None: predicted."""

    @property
    def measured(self) -> dict[str, float]:
        """Overheads that were measured rather than predicted, bytes by name."""
        stated = {name: getattr(self, name) for name in ("activations", "non_torch", "graphs")}
        return {name: amount for name, amount in stated.items() if amount is not None}


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
    measured: dict[str, float]
    """Overheads taken from a log, bytes by name."""


@dataclass(frozen=True)
class Charges:
    """What an engine's allocator takes from one rank's pool, [..., stages]."""

    request: Array
    """Bytes for one request of the workload's length."""
    request_ideal: Array
    """The same without blocks, padding and unused windows."""
    longest: Array
    """Bytes for one request of the longest length the engine is told to expect."""
    logged_token: Array
    """Bytes of the pool for every token the engine's log speaks of."""


@dataclass(frozen=True)
class Budget:
    """How an engine divides one GPU when it starts, before any request, bytes."""

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
    allowance: Array
    """What the engine may fill with weights, what it counts beside them, and cache."""
    counted: Array
    """What it counts against its allowance beside weights and cache: activations, buffers, graphs, by version."""
    reserve: Array
    """What it leaves untouched of the memory it looks at: the share it was not given."""
    pool: Array
    """What it grants to the cache; negative when the rest does not fit into its allowance."""

    @property
    def weights(self) -> Array:
        """All weights."""
        return cast(Array, sum(self.weights_by_component.values()))

    @property
    def overhead(self) -> Array:
        """Context, communication buffers and CUDA graphs."""
        return self.context + self.non_torch + self.graphs

    @property
    def reserved(self) -> Array:
        """What the engine takes in the end, the whole pool included, asked for or not: what nvidia-smi shows."""
        return self.weights + self.activations + self.overhead + np.maximum(self.pool, 0.0)

    @property
    def overflows(self) -> NDArray[np.bool_]:
        """Whether the engine takes more than the GPU has, once the pool and the graphs are there."""
        return np.asarray(self.reserved > self.usable)


@dataclass(frozen=True)
class Rank(Budget):
    """Bytes on one GPU with the requests it serves, each at full length.

    usable = weights + activations + overhead + kv + free, always; `free` is negative when it does not load.
    What the workload needs is `needed`; what the engine takes for itself, whatever the workload, is `reserved`.
    """

    request: Array
    """What one request at full length is charged."""
    request_ideal: Array
    """What one request at full length would take without blocks, padding and unused windows."""
    longest: Array
    """What one request of the longest length the engine is told to expect is charged."""
    kv: Array
    """What the requests that run use of the pool."""
    kv_needed: Array
    """What all concurrent requests would use."""

    @property
    def kv_ideal(self) -> Array:
        """What the running requests' cache would take without blocks, padding and unused windows."""
        return self.kv / np.where(self.request > 0, self.request, 1.0) * self.request_ideal

    @property
    def kv_waiting(self) -> Array:
        """Cache of the requests that must wait: needed and not there."""
        return self.kv_needed - self.kv

    @property
    def needed(self) -> Array:
        """What the workload needs: weights, activations, overhead and the cache of all concurrent requests."""
        return self.weights + self.activations + self.overhead + self.kv_needed

    @property
    def free(self) -> Array:
        """What the running requests leave, reserve and unused cache included."""
        return self.usable - self.weights - self.activations - self.overhead - self.kv

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether the engine comes up: one request of the longest length fits, and nothing overflows."""
        return np.asarray((self.pool > 0) & (self.pool >= self.longest) & ~self.overflows)


@dataclass(frozen=True)
class Memory(Rank):
    """The worst rank of a replica, [...], that of the pipeline stage whose cache is full first, and what all hold."""

    running: Array
    """Requests of the replica that run at once; the others wait for cache or for a sequence slot."""
    requests: Array
    """Requests of the workload's length the pools hold, not rounded: the "maximum concurrency" of a log.
    Negative when the weights do not fit."""
    capacity: Array
    """Whole requests of the workload's length the pools hold at once."""
    slots: Array
    """Requests the replica's engines let run at once, cache or not."""
    kv_tokens: Array
    """Tokens the replica's pools hold, as the engine's log counts them."""
    stage: Array
    """Index of the worst pipeline stage."""


@dataclass(frozen=True)
class Ranks:
    """GPUs of one pipeline stage that hold the same."""

    stage: int
    gpus: int
    experts: float
    """Routed experts of one layer on each, in whole experts; 0 without experts."""
    each: Rank
    worst: bool
    """The fullest of the stage that decides for all."""


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
        measured=settings.measured,
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


def draft_layers(transformer: Transformer) -> int:
    """Multi-token-prediction layers of a checkpoint, told from their parameters: each is about one more last layer."""
    return max(round(transformer.mtp / last_layer_parameters(transformer)), 1) if transformer.mtp else 0


def last_layer_parameters(transformer: Transformer) -> int:
    """Parameters of a model's last layer."""
    return sum(transformer.blocks[transformer.sequence[-1]].parameters().values())


def rotary_table_bytes(transformer: Transformer, *, profile: MemoryProfile) -> Bytes:
    """Sines and cosines of every position, kept whole on every rank: one table for each width of rotated heads.

        positions x width x bytes of an entry

    Tables stretched for longer contexts than the config names (Gemma-3: eight times) are counted unstretched.

    Source: vLLM vllm/model_executor/layers/rotary_embedding/base.py, `_compute_cos_sin_cache`. Llama-4-Scout has
    10,485,760 positions of width 128: 2.50 GiB, and logs 53.12 GiB at TP4 where its parameters take 50.60.
    """
    widths = {
        mixer.rope_dim if isinstance(mixer, Latent) else mixer.head_dim
        for mixer in (block.mixer for block in transformer.blocks)
        if mixer and not isinstance(mixer, Recurrent)
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
    """Multi-token-prediction layers on one rank, cut as the model's last layer is; with pipeline stages, a second
    embedding beside them.

    Args:
        served: the model with its redundant experts, which a draft has as well.

    Source: vLLM vllm/v1/spec_decode/eagle.py: without stages the draft shares embedding and head of the model. SGLang
    logs copies of both while it loads (5.53 GiB for Qwen3.8-27B: 0.79 of layers, 2 x 2.37) and gives them back.
    """
    held = sum(block_share(served.blocks[served.sequence[-1]], layout=layout).values())
    share = held / last_layer_parameters(transformer)
    layers = transformer.mtp * precision.bytes_per_parameter("mtp") * share
    embedding = transformer.embedding / np.asarray(layout.tensor) * precision.bytes_per_parameter("embedding")
    return np.asarray(layers + np.where(np.asarray(layout.pipeline) > 1, embedding, 0.0))


def loaded_weight_bytes(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    profile: MemoryProfile,
    settings: Settings,
) -> dict[Component, Array]:
    """Weights as the engine stores them on the fullest rank of every stage, [..., stages]: experts padded and
    repeated, rotary tables on every stage, layers that draft tokens on the last one.
    """
    served = with_redundant_experts(transformer, more=settings.redundant_experts)
    weights = stage_weight_bytes(served, precision, layout=layout)
    if "routed_experts" in weights:
        padding = expert_padding(transformer, precision, profile=profile, layout=layout)
        weights["routed_experts"] = weights["routed_experts"] * padding[..., None]
    there = layers_per_stage(transformer, layout=layout).any(axis=-1)
    weights["other"] = weights["other"] + there * rotary_table_bytes(transformer, profile=profile)
    if settings.mtp and transformer.mtp:
        last = last_stage(layout, stages=there.shape[-1])
        weights["mtp"] = last * draft_bytes(transformer, served, precision, layout=layout)[..., None]
    return weights


def with_expert_share(weights: dict[Component, Array], *, share: float) -> dict[Component, Array]:
    """Weights with a share of their routed experts."""
    return {part: amount * share if part == "routed_experts" else amount for part, amount in weights.items()}


def stage_budgets(
    transformer: Transformer,
    precision: Precision,
    *,
    weights: dict[Component, Array],
    layout: Layout,
    gpu: Gpu,
    profile: MemoryProfile,
    told: Limits,
) -> Budget:
    """How an engine divides every pipeline stage's GPUs, [..., stages].

    pool = share x basis - weights - what the engine counts inside its share
    """
    context = np.asarray(shared_bytes(profile.context, ranks=np.asarray(layout.gpus), gpu=gpu))[..., None]
    team = np.asarray(layout.width) * np.asarray(layout.context)
    parts = {
        "activations": stage_activation_bytes(
            transformer, precision, profile=profile, layout=layout, told=told
        ),
        "non_torch": np.asarray(shared_bytes(profile.non_torch, ranks=team, gpu=gpu))[..., None],
        "graphs": stage_graph_bytes(transformer, profile=profile, layout=layout, largest=told.largest_graph),
    }
    parts |= {name: np.full_like(parts[name], amount) for name, amount in told.measured.items()}
    counted: Array = np.asarray(sum((parts[name] for name in sorted(profile.inside)), start=np.zeros(1)))
    held, share = cast(Array, sum(weights.values())), told.utilization[..., None]
    free = gpu.memory - context
    basis, allowance = {
        "total": (np.asarray(gpu.memory), share * gpu.memory),
        "free": (free, share * free),
        "rest": (free - held - counted, free),
    }[profile.share_of]
    return Budget(
        usable=gpu.memory,
        weights_by_component=weights,
        context=context,
        allowance=np.asarray(allowance),
        counted=counted,
        reserve=np.asarray((1 - share) * basis),
        pool=np.asarray(share * basis if profile.share_of == "rest" else allowance - held - counted),
        **parts,
    )


def stage_charges(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    profile: MemoryProfile,
    told: Limits,
    length: Tokens,
    drafts: int,
) -> Charges:
    """What every pipeline stage's pool is charged for one request, [..., stages]."""
    kept = stores(transformer, precision, layout=layout, drafts=drafts)
    asked, longest = (
        charge(kept, allocator=profile.allocator, length=tokens, batched_tokens=told.batched_tokens)
        for tokens in (length, told.length)
    )
    return Charges(
        request=asked.request,
        request_ideal=exact_charge(kept, block=1, length=length).request,
        longest=longest.request,
        logged_token=longest.logged_token,
    )


def pool_requests(budget: Budget, charges: Charges) -> Array:
    """Requests of the workload's length each stage's pool holds, not rounded; no limit where nothing is cached."""
    caching = charges.request > 0
    held = budget.pool / np.where(caching, charges.request, 1.0)
    return np.where(caching, held, np.copysign(np.inf, budget.pool))


def rank_at(
    budget: Budget, charges: Charges, *, at: Callable[[Array], Array], running: Count, asking: Count
) -> Rank:
    """One rank of every layout.

    Args:
        at: picks the rank's stage, [..., stages] -> [...].
        running: requests it runs, [...].
        asking: requests it is asked to run, [...].
    """
    amounts = {field.name: getattr(budget, field.name) for field in fields(Budget)}
    found = {name: at(amount) for name, amount in amounts.items() if isinstance(amount, np.ndarray)}
    request = at(charges.request)
    return Rank(
        usable=budget.usable,
        weights_by_component={part: at(amount) for part, amount in budget.weights_by_component.items()},
        **found,
        request=request,
        request_ideal=at(charges.request_ideal),
        longest=at(charges.longest),
        kv=np.asarray(running * request),
        kv_needed=np.asarray(asking * request),
    )


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

    Args:
        layout: one, or many with a trailing axis of one to broadcast against concurrency ([layouts, 1]).
        concurrency: requests the replica has in hand, [batches] or a scalar; spread over its data ranks.
        settings: engine settings; None: all at their defaults.
    """
    profile, settings = engine.memory, settings or Settings()
    told = limits(settings, profile=profile, gpu=gpu, layout=layout, workload=workload)
    budget = stage_budgets(
        transformer,
        precision,
        weights=loaded_weight_bytes(
            transformer, precision, layout=layout, profile=profile, settings=settings
        ),
        layout=layout,
        gpu=gpu,
        profile=profile,
        told=told,
    )
    charges = stage_charges(
        transformer,
        precision,
        layout=layout,
        profile=profile,
        told=told,
        length=workload.length,
        drafts=draft_layers(transformer) if settings.mtp else 0,
    )
    held = pool_requests(budget, charges)
    stage = held.argmin(axis=-1)

    def worst(amount: Array) -> Array:
        everywhere = np.broadcast_to(amount, held.shape)
        return np.take_along_axis(everywhere, stage[..., None], axis=-1)[..., 0]

    data = np.asarray(layout.data, dtype=float)
    room, logged = worst(held), worst(charges.logged_token)
    whole = np.floor(np.maximum(room, 0.0))
    asking = np.ceil(np.asarray(concurrency) / data)
    running = np.minimum(asking, np.minimum(whole, told.sequences))
    fullest = rank_at(budget, charges, at=worst, running=running, asking=asking)
    return Memory(
        **vars(fullest),
        running=np.minimum(running * data, np.asarray(concurrency)),
        requests=room * data,
        capacity=whole * data,
        slots=np.asarray(told.sequences * data),
        kv_tokens=np.maximum(fullest.pool, 0.0) / np.where(logged > 0, logged, 1.0) * data,
        stage=stage,
    )


def expert_ranks(transformer: Transformer, *, layout: Layout, more: int) -> tuple[tuple[int, int], ...]:
    """Whole experts of a group, and GPUs of one stage whose group holds as many: the fuller groups first.

    The first groups get one more where the experts do not divide evenly.

    Source: vLLM vllm/model_executor/layers/fused_moe/layer.py, `determine_expert_map`.
    """
    gpus, groups = int(layout.width * layout.context), int(layout.expert)
    count = next((block.experts.count + more for block in transformer.blocks if block.experts), 0)
    least, fuller = divmod(count, groups)
    sizes = ((least + 1, fuller), (least, groups - fuller))
    return tuple((experts, gpus * share // groups) for experts, share in sizes if share)


def replica_memory(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    workload: Workload,
    concurrency: int,
    settings: Settings | None = None,
) -> tuple[Ranks, ...]:
    """All GPUs of one layout's replica, stage by stage; of a stage, those that hold more experts before the others.

    Every stage runs as many requests as the worst one allows; of data ranks, those with one request more are shown.

    Args:
        layout: a single one.
    """
    profile, settings = engine.memory, settings or Settings()
    one = memory(
        transformer, precision, layout=layout, gpu=gpu, engine=engine, workload=workload,
        concurrency=concurrency, settings=settings,
    )  # fmt: skip
    told = limits(settings, profile=profile, gpu=gpu, layout=layout, workload=workload)
    charges = stage_charges(
        transformer, precision, layout=layout, profile=profile, told=told, length=workload.length,
        drafts=draft_layers(transformer) if settings.mtp else 0,
    )  # fmt: skip
    weights = loaded_weight_bytes(transformer, precision, layout=layout, profile=profile, settings=settings)
    groups = expert_ranks(transformer, layout=layout, more=settings.redundant_experts)
    budgets = [
        stage_budgets(
            transformer, precision, layout=layout, gpu=gpu, profile=profile, told=told,
            weights=with_expert_share(weights, share=experts / max(groups[0][0], 1)),
        )
        for experts, _ in groups
    ]  # fmt: skip
    asking, running = np.ceil(concurrency / layout.data), np.ceil(one.running / layout.data)

    def ranks(stage: int, group: int) -> Ranks:
        def at(amount: Array) -> Array:
            return np.broadcast_to(amount, (int(layout.pipeline),))[stage]

        experts, gpus = groups[group]
        return Ranks(
            stage=stage,
            gpus=gpus,
            experts=experts / float(layout.expert_tensor),
            each=rank_at(budgets[group], charges, at=at, running=running, asking=asking),
            worst=group == 0 and stage == int(one.stage),
        )

    return tuple(ranks(stage, group) for stage in range(int(layout.pipeline)) for group in range(len(groups)))
