"""What an engine adds to physics: reached fractions, overheads, and how it budgets memory.

Every constant has a source or the measurement it was fitted to, recorded beside it in `catalogs/engines/`.
"""

from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from parplan.formats import Arithmetic, Format
from parplan.hardware import Gpu
from parplan.provenance import Source, Value
from parplan.support import Support
from parplan.units import Array, quantity

Fabric: TypeAlias = Literal["nvlink", "xgmi", "pcie"]
Amount = Annotated[float, BeforeValidator(lambda written: quantity(written, unit="B")), Field(ge=0)]
"""Bytes, zero allowed, as a source prints them."""


class Tier(Value):
    """A default that holds from some GPU size up."""

    memory: Amount
    """Usable bytes of the smallest GPU it holds for."""
    value: int = Field(ge=1)
    wide: int | None = Field(default=None, ge=1)
    """The default from four tensor ranks up, where it is another."""
    exceptions: tuple[str, ...] = ()
    """GPU architectures it does not hold for; they take the tier below."""


class Shared(Value):
    """Bytes one rank spends because of the company it is in."""

    alone: Amount
    """With one GPU."""
    pair: dict[Fabric, Amount]
    """With two, by the fabric between them."""
    doubling: dict[Fabric, Amount] = Field(default_factory=dict)
    """More for each doubling of the ranks beyond two, by the fabric. Absent: nothing."""
    staged: Amount | None = None
    """With pipeline stages of one GPU each. None: as alone."""


class Slack(Value):
    """What an engine leaves free when it is not told which share to take."""

    constant: Amount
    per_batched_token: Amount
    least_batched_tokens: int = 0
    per_graph_sequence: Amount
    per_gpu: Amount
    """For each GPU of a replica, its tensor and pipeline ranks."""
    floor: Amount
    """Never less than this ..."""
    floor_from: Amount
    """... on GPUs from this size up."""


class Padding(Value):
    """What an engine's kernels round the sizes of an expert up to, on each rank."""

    formats: tuple[str, ...]
    """Weight formats it holds for."""
    width: int = Field(ge=1)
    """The expert's own width is rounded up to a multiple of this."""
    inputs: int = Field(ge=1)
    """What the expert reads is rounded up to a multiple of this."""


class Exact(Value):
    """Every layer stores what the model defines: windows stop growing, states are kept once."""

    kind: Literal["exact"] = "exact"
    block: int = Field(default=1, ge=1)
    """Tokens of a block; the last block of a sequence is reserved whole."""
    windows: bool = True
    """False: windowed layers keep every token (vLLM V0)."""


class Grouped(Value):
    """vLLM's hybrid manager: all layers are sorted into groups of equal size that share pages of equal bytes.

    Groups that are not full are padded; on top of all windows come the tokens in flight, which all requests share,
    while the log reckons with one request that has them all, `window - 1 + tokens in flight`; a page grows until a
    recurrent state fits into it.
    """

    kind: Literal["grouped"] = "grouped"
    block: int = Field(default=16, ge=1)
    """Tokens of a block before pages are made equal."""
    padded_up_to: float = Field(gt=1)
    """Groups are as large as the largest layer kind while that is less than this multiple of the smallest."""
    prefix_states: int = Field(default=0, ge=0)
    """Recurrent states a request has more when prompts are looked up in the cache of earlier ones."""
    logs: Literal["blocks", "requests"]
    """The log counts tokens from blocks per group, or as largest concurrency times model length."""


class TwoPools(Value):
    """SGLang: windowed layers have a pool of their own, with a fixed share of the tokens of the full one."""

    kind: Literal["two-pools"] = "two-pools"
    share: float = Field(gt=0, le=1)
    """Tokens of the windowed pool per token of the full pool (`swa_full_tokens_ratio`)."""


Allocator: TypeAlias = Exact | Grouped | TwoPools


Occasion: TypeAlias = Literal["towers", "drafts", "transfer", "company", "compressed", "always"]
"""When an engine takes more memory: for images and sound, to draft tokens, to move experts, with several GPUs, for
attention over a compressed cache."""


Trait: TypeAlias = Literal["index", "latents", "windows", "compressed", "padding", "images"]
"""What only some plans have and some constants are about: attention that looks tokens up in an index, or their
latents, layers that keep a window of them, a compressed cache, experts that grow when they are loaded, images encoded
at start."""


class MemoryProfile(Value):
    """How an engine version family divides a GPU's memory."""

    utilization: float | None = Field(gt=0, le=1)
    """Default share the engine takes (vLLM `gpu_memory_utilization`). None: whatever `slack` leaves."""
    slack: Slack | None = None
    share_of: Literal["total", "free", "rest"]
    """What that share is a share of: the GPU's usable memory; what is free of it before weights are loaded;
    or what is left after everything but the cache."""
    inside: frozenset[Literal["activations", "non_torch", "graphs"]]
    """What the engine takes out of its share, beside the weights, before the cache gets the rest. All else
    lies in what the share leaves."""
    logged_with_weights: frozenset[Literal["non_torch"]] = frozenset()
    """What its log counts with the weights: it looks at free memory before and after it loads them."""
    context: Shared
    """Driver context and communicator set-up, there before the engine looks; never part of its share."""
    non_torch: Shared
    """Buffers of collectives and libraries that the engine's allocator does not see."""
    graph_size: Amount
    """Bytes of recorded CUDA graphs per layer and captured batch size."""
    graph_expert_size: Amount
    """The same for layers with experts, which record more kernels."""
    graph_layers: float = Field(default=0, ge=0)
    """Plain layers the rest of a graph (embedding, head, shared buffers) counts for."""
    largest_graph: tuple[Tier, ...]
    """Largest batch recorded."""
    sampler_copies: float = Field(ge=0)
    """Logits of every sequence slot, in 32-bit copies, alive when the profile run samples."""
    forward_copies: float = Field(ge=0)
    """1: the activations of one layer over one step's tokens; 0: none."""
    layer_states: float = Field(default=2, ge=0)
    """Hidden states alive at the widest point of a layer: the residual and its input."""
    passed_states: float = Field(default=0, ge=0)
    """Hidden states more on a stage that passes them on."""
    index_lengths: float = Field(default=0, ge=0)
    """Requests of the longest length whose sparse-index keys the prefill workspace holds."""
    packed_latents: dict[str, frozenset[Fabric]] = Field(default_factory=dict)
    """GPU architectures, and of these the GPUs by what joins them, on which it keeps 8-bit latents of sparse attention
    with scales and 16-bit rotary keys."""
    rotary_entry: float = Field(default=0, ge=0)
    """Bytes of one entry of the rotary tables every rank keeps; 0: not known, not counted."""
    expert_padding: Padding | None = None
    """How much larger the experts get when they are loaded. None: they keep their size."""
    transfer_layers: float = Field(default=0, ge=0)
    """Layers whose experts it keeps room for beside the weights while it moves experts to balance their load."""
    profiles_images: bool = False
    """Its activation peak holds the largest images the model takes; it encodes them when it starts."""
    text_only: bool = False
    """It can be told to take no images, and then loads no towers (`--language-model-only`)."""
    uncounted: dict[Occasion, str] = Field(default_factory=dict)
    """What it takes and nobody has measured well enough to count, in words, by when it does."""
    batched_tokens: tuple[Tier, ...]
    """Default tokens of one step (vLLM `max_num_batched_tokens`)."""
    sequences: tuple[Tier, ...]
    """Default sequence slots (vLLM `max_num_seqs`)."""
    slots_within_step: bool = False
    """It refuses to start with fewer tokens of a step than sequence slots."""
    steps_in_flight: int = Field(default=1, ge=1)
    """Steps scheduled before the first of them is done, whose tokens windows keep. With pipeline stages at least one
    for each."""
    allocator: Allocator = Field(discriminator="kind")

    def packs_latents(self, gpu: Gpu) -> bool:
        """Whether its kernels for sparse latent attention on a GPU take packed 8-bit latents."""
        return gpu.fabric in self.packed_latents.get(gpu.architecture, ())

    def pads(self, stored: Format) -> bool:
        """Whether experts in a format get larger when they are loaded."""
        return self.expert_padding is not None and stored.name in self.expert_padding.formats


SCALE_LIMITS = (0.2, 5.0)
"""How far a user's own measurements may move an engine's constants, as factors."""
MEMORY_SHARES = ("bandwidth", "cache_bandwidth")
"""Fields of a speed profile that are shares of the memory bandwidth."""
OVERHEADS = (
    "product", "quantise", "blocks", "attention", "layer", "routing", "latency", "all_to_all", "step", "request"
)  # fmt: skip
"""Fields of a speed profile that are fixed times, or factors on one."""


class SpeedProfile(Value):
    """How close an engine comes to a GPU's limits, and what every step costs besides. The ideal: all 1 and 0."""

    bandwidth: float = Field(gt=0, le=1)
    """Share of the memory bandwidth a large matrix product reaches while it reads its weights."""
    compute: dict[Arithmetic, float]
    """Share of the tensor-core peak a large matrix product would reach on a slow GPU, by arithmetic."""
    feeding: float = Field(default=0, ge=0)
    """Seconds per FLOP, in bf16, that feeding the tensor cores takes besides; what is lost grows with the peak."""
    grouped: float = Field(gt=0, le=1)
    """Share of that which grouped products of routed experts reach, however wide."""
    tile: float = Field(default=0, ge=0)
    """Tokens every expert with many computes in vain: products are done in tiles, and the last one is not full. One
    with few has smaller tiles (`matrices.expert_work`)."""
    narrow: float = Field(default=0, ge=0)
    """Width of an expert's slice at which grouped products reach half of that."""
    expanded: float = Field(gt=0, le=1)
    """Share of it weight-only products reach, which expand narrow weights on the way to wider arithmetic."""
    cache_bandwidth: float = Field(gt=0, le=1)
    """Share of the memory bandwidth decode attention reaches while it reads the KV cache."""
    attention_compute: float = Field(gt=0, le=1)
    """Share of the bf16 peak attention would reach on a slow GPU."""
    product: float = Field(ge=0)
    """Seconds until a matrix product runs at full rate and after it no longer does: launch, ramp and tail."""
    quantise: float = Field(ge=0)
    """Seconds to quantise the inputs of one matrix product that computes below 16 bits."""
    blocks: float = Field(ge=0)
    """Seconds more when weights and inputs have one scale per block of 128 (fp8-block)."""
    block_experts: float = Field(default=1, gt=0, le=1)
    """Share of the bandwidth at which grouped products of routed experts read weights scaled by blocks of 128."""
    attention: float = Field(ge=0)
    """Seconds one layer's decode attention takes besides reading the cache."""
    layer: float = Field(ge=0)
    """Seconds of small kernels (norms, rotations, activations) per layer."""
    routing: float = Field(ge=0)
    """Seconds per mixture-of-experts layer to choose experts, sort tokens and sum the results."""
    passes: float = Field(ge=0)
    """Times the activations of a layer (tokens x hidden, 16 bit) are read or written outside matrix products."""
    imbalance: float = Field(ge=1)
    """Tokens of the busiest expert group over the mean; matters with expert parallelism only."""
    skew: float = Field(ge=0)
    """Spread of the experts' popularity: squared coefficient of variation. 0: all are equally popular."""
    latency: float = Field(ge=0)
    """Latency of one hop over the fabric's measured one (`collectives.HOP`). 0: messages start at once."""
    hops: float = Field(ge=0)
    """Start of a one-shot all-reduce, in hops."""
    link: float = Field(gt=0, le=1)
    """Share of the link bandwidth a collective reaches inside a domain."""
    network: float = Field(gt=0, le=1)
    """Share of its network adapter's bandwidth a GPU reaches."""
    all_to_all: float = Field(ge=0)
    """Seconds one expert dispatch or combine takes before any byte moves."""
    overlap: float = Field(default=0, ge=0, le=1)
    """Share of expert messages over the network that the arithmetic of another half of the batch hides."""
    step: float = Field(ge=0)
    """Seconds between two steps: scheduling, input preparation, sampling, detokenising."""
    request: float = Field(ge=0)
    """Seconds a step takes longer for every running request."""
    slower: dict[str, float] = Field(default_factory=dict)
    """Factor on all kernel times on GPUs of an architecture; 1 where absent."""
    eager: float = Field(ge=1)
    """Factor on the launch of kernels in a step with prompt tokens: it leaves the captured CUDA graph."""
    together: float = Field(default=0, ge=0, le=1)
    """Share of prompts that come to all attention replicas in the same step; the others come to each by themselves."""
    mixed: float = Field(ge=0, le=1)
    """Share of what a prompt's step has in common with a decode step (weights, launches) that is spent once when the
    prompt rides on one."""

    def scaled(self, *, memory: float, compute: float, overhead: float) -> "SpeedProfile":
        """The same engine where other rates were measured; no share of a GPU's rate exceeds one.

        Args:
            memory: factor on the shares of the memory bandwidth.
            compute: factor on the shares of the tensor-core peak.
            overhead: factor on every fixed time: launches, latencies, the engine's own work.
        """
        shares = {name: min(1.0, getattr(self, name) * memory) for name in MEMORY_SHARES}
        times = {name: getattr(self, name) * overhead for name in OVERHEADS}
        peaks = {name: min(1.0, share * compute) for name, share in self.compute.items()}
        attention = min(1.0, self.attention_compute * compute)
        return self.model_copy(update=shares | times | {"compute": peaks, "attention_compute": attention})


class Errors(Value):
    """Relative errors of predictions against measurements: predicted / measured - 1."""

    rows: int = Field(ge=1)
    median: float = Field(ge=0)
    """Of the absolute error."""
    p90: float = Field(ge=0)
    """90th percentile of the absolute error."""
    bias: float
    """Median of the signed error."""

    @staticmethod
    def of(errors: Array) -> "Errors":
        """What errors of single rows come to.

        Args:
            errors: one or more, [rows].

        >>> found = Errors.of(np.array([-0.2, 0.1, 0.1]))
        >>> found.rows, found.median, found.bias
        (3, 0.1, 0.1)
        """
        size = np.abs(errors)
        return Errors(
            rows=size.size,
            median=float(np.median(size)),
            p90=float(np.percentile(size, 90)),
            bias=float(np.median(errors)),
        )


class Cause(Value):
    """Why predictions of some measurements are off, as far as that is known."""

    of: dict[str, str] = Field(min_length=1)
    """The groups its rows belong to, by kind: engine, gpu, model, precision, layout; for some also metric and mode."""
    columns: tuple[str, ...] = Field(min_length=1)
    """The measured columns it is about."""
    marked: str = ""
    """A mark its rows carry. Empty: any."""
    why: str = Field(min_length=10)
    """One sentence."""


class GroupError(Value):
    """How far predictions are off for measurements that share something; what they need not share is empty.

    Only measurements count whose time can be compared, see `parplan.validate.UNUSED`.
    """

    engine: str
    """All versions together; a family of them where newer ones are without costs its measurements had."""
    gpu: str
    model: str
    """By the name in the catalogue, and ..."""
    weights: str
    """... the format of most of its weights."""
    cut: str
    """A field of the layout that is above one."""
    time: Literal["tpot", "ttft"]
    rows: int = Field(ge=1)
    off: float = Field(ge=0)
    """0.1: in the median, predictions are a factor of 1.1 too long or too short."""


class TimeErrors(Value):
    """Errors of one kind of time under constants fitted to all rows, and in cross-validation."""

    fitted: Errors
    pairs: Errors
    """Every pair of model and GPU predicted by constants fitted without it ..."""
    models: Errors
    """... every model ..."""
    gpus: Errors
    """... and every GPU."""


class SpeedErrors(Value):
    """Errors of an engine's speed constants."""

    tpot: TimeErrors
    ttft: TimeErrors


class Engine(Value):
    """An inference engine, or `ideal`: pure roofline with nothing on top."""

    name: str = Field(pattern=r"^[a-z0-9._-]+$")
    """Stable short name, as used in links."""
    label: str
    """The name people read."""
    versions: str
    """Versions the constants hold for, in words."""
    cuts: tuple[str, ...] = ("tensor", "data", "pipeline", "expert")
    """Layout fields the engine can set."""
    mixed_experts: bool = False
    """It can spread experts over fewer groups than GPUs and cut each among the rest (hybrid expert tensor parallel)."""
    support: Support = Support()
    """Number formats it runs, and on which GPUs."""
    memory: MemoryProfile
    speed: SpeedProfile
    errors: SpeedErrors | None = None
    """How wrong the speed constants were found to be. None: they are a bound (`ideal`), not a prediction."""
    sources: tuple[Source, ...] = Field(min_length=1)
    """Where constants were read that every plan rests on."""
    sources_where: dict[Trait, tuple[Source, ...]] = Field(default_factory=dict)
    """Where those were read that only plans of some trait rest on."""

    @property
    def all_sources(self) -> tuple[Source, ...]:
        """Where all its constants were read."""
        return (*self.sources, *(source for listed in self.sources_where.values() for source in listed))

    @property
    def family(self) -> str:
        """Its name without the version: what shares a speed profile, and is named alike in measurements.

        >>> Engine.model_construct(name="vllm-0.17").family
        'vllm'
        """
        return self.name.partition("-")[0]

    def scaled(self, *, memory: float = 1.0, compute: float = 1.0, overhead: float = 1.0) -> "Engine":
        """The same engine with its speed constants moved, see `SpeedProfile.scaled`; with factors of one, itself."""
        if memory == compute == overhead == 1:
            return self
        speed = self.speed.scaled(memory=memory, compute=compute, overhead=overhead)
        return self.model_copy(update={"speed": speed})
