"""The model: a stack of blocks, each with a token mixer (attention or recurrence) and a feed-forward part.

Variants are a union matched exhaustively. Every variant answers the same questions: how many parameters, cut how
(`Cut`); what one sequence leaves in the cache (`Cache`); how much arithmetic one query spends on one past position.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from pydantic import Field

from parplan.formats import Component
from parplan.provenance import Value


@dataclass(frozen=True)
class Cut:
    """Parameters by the way tensor parallelism cuts them."""

    tensor: int = 0
    """Divided by the tensor width."""
    kv: int = 0
    """Divided by min(tensor width, KV heads), repeated beyond."""
    replicated: int = 0
    """Whole on every rank."""

    @property
    def total(self) -> int:
        """All parameters, each counted once."""
        return self.tensor + self.kv + self.replicated


@dataclass(frozen=True)
class Cache:
    """What one layer keeps of one sequence, in elements. Windows cap the growth; states do not grow at all."""

    growing: float = 0
    """KV elements per token."""
    window: int | None = None
    """Tokens after which `growing` stops. None: never."""
    compressed: float = 0
    """Elements per token that keep growing beside a windowed part."""
    index: float = 0
    """Elements per token of a sparse-attention index."""
    state: float = 0
    """Elements per sequence of a recurrent state."""
    convolution: float = 0
    """Elements per sequence of a convolution's last inputs."""


class GroupedQuery(Value):
    """Softmax attention whose query heads share KV heads (multi-head and multi-query are its ends)."""

    kind: Literal["grouped-query"] = "grouped-query"
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    value_dim: int = Field(ge=1)
    """Width of one value head; usually equals `head_dim`."""
    window: int | None = Field(default=None, ge=1)
    """Tokens a query can see. None: all."""
    chunked: bool = False
    """The window is a fixed chunk (Llama 4), not a sliding one."""
    key_is_value: bool = False
    """One projection serves as key and value; the cache still keeps both unless an engine says otherwise."""
    shares_cache: bool = False
    """Reads an earlier layer's cache: no KV projections, no cache of its own."""
    gated: bool = False
    """The query projection also makes an output gate (twice as wide)."""
    sparse_top_k: int | None = None
    """Positions a query really attends to after the index has chosen. None: all in the window."""
    index_elements: int = 0
    """Elements per token of the index cache (sparse attention)."""
    index_heads: int = 0
    index_parameters: int = 0
    query_extra: int = 0
    """Biases, sinks and other parameters cut with the heads."""
    key_value_extra: int = 0
    """Biases cut with the KV heads."""
    replicated_extra: int = 0
    """Norms and output biases whole on every rank."""

    @property
    def cut(self) -> Cut:
        """Query and output projections follow the heads, key and value projections the KV heads."""
        query = self.hidden * self.heads * self.head_dim * (2 if self.gated else 1)
        output = self.heads * self.value_dim * self.hidden
        key = self.hidden * self.kv_heads * self.head_dim
        value = 0 if self.key_is_value else self.hidden * self.kv_heads * self.value_dim
        return Cut(
            tensor=query + output + self.query_extra,
            kv=self.key_value_extra + (0 if self.shares_cache else key + value),
            replicated=self.replicated_extra,
        )

    @property
    def cache(self) -> Cache:
        """Keys and values of every KV head."""
        if self.shares_cache:
            return Cache()
        return Cache(
            growing=self.kv_heads * (self.head_dim + self.value_dim),
            window=self.window,
            index=self.index_elements,
        )

    @property
    def flop_per_position(self) -> int:
        """Scores and weighted values of one query over one past position, all heads."""
        return 2 * self.heads * (self.head_dim + self.value_dim)

    @property
    def prefill_flop_per_position(self) -> int:
        """The same as in decode: keys and values are stored as they are used."""
        return self.flop_per_position

    @property
    def index_flop_per_position(self) -> int:
        """Scores of the sparse index."""
        return 2 * self.index_heads * self.index_elements


class Latent(Value):
    """Multi-head latent attention (MLA): one compressed latent per token serves every head."""

    kind: Literal["latent"] = "latent"
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    query_rank: int | None = Field(default=None, ge=1)
    """Rank of the compressed query. None: projected directly."""
    kv_rank: int = Field(ge=1)
    rope_dim: int = Field(ge=0)
    nope_dim: int = Field(ge=1)
    value_dim: int = Field(ge=1)
    sparse_top_k: int | None = None
    """Positions a query attends to after the index has chosen (DeepSeek sparse attention). None: all."""
    index_elements: int = 0
    index_heads: int = 0
    index_parameters: int = 0
    tensor_extra: int = 0
    """Parameters cut with the heads beyond the standard ones (biases, output gates)."""
    replicated_extra: int = 0
    """Norms of the latents."""

    @property
    def cut(self) -> Cut:
        """The down-projections make latents every rank needs whole; the rest follows the heads."""
        query_width = self.heads * (self.nope_dim + self.rope_dim)
        query_down = self.hidden * self.query_rank if self.query_rank else 0
        query_up = (self.query_rank or self.hidden) * query_width
        kv_down = self.hidden * (self.kv_rank + self.rope_dim)
        kv_up = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        output = self.heads * self.value_dim * self.hidden
        return Cut(
            tensor=query_up + kv_up + output + self.tensor_extra,
            replicated=query_down + kv_down + self.replicated_extra,
        )

    @property
    def kv_heads(self) -> int:
        """One latent: tensor parallelism cannot cut it."""
        return 1

    @property
    def cache(self) -> Cache:
        """The latent and the shared rotary key."""
        return Cache(growing=self.kv_rank + self.rope_dim, index=self.index_elements)

    @property
    def flop_per_position(self) -> int:
        """Decode works on the latent itself (absorbed projections): every head reads all of it twice."""
        return 2 * self.heads * (2 * self.kv_rank + self.rope_dim)

    @property
    def prefill_flop_per_position(self) -> int:
        """Prefill expands the latent to ordinary heads."""
        return 2 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim)

    @property
    def index_flop_per_position(self) -> int:
        """Scores of the sparse index."""
        return 2 * self.index_heads * self.index_elements


class Compressed(Value):
    """Attention over a short window plus a compressed copy of everything older (DeepSeek-V4 CSA and HCA)."""

    kind: Literal["compressed"] = "compressed"
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    window: int = Field(ge=1)
    ratio: int | None = Field(default=None, ge=1)
    """Tokens folded into one compressed entry. None: the window only."""
    sparse_top_k: int | None = None
    """Compressed entries a query attends to. None: all of them."""
    index_elements: int = 0
    """Index elements per compressed entry."""
    index_heads: int = 0
    index_parameters: int = 0
    tensor_parameters: int = Field(ge=0)
    replicated_parameters: int = Field(ge=0)

    @property
    def cut(self) -> Cut:
        """Counted from the checkpoint's tensors."""
        return Cut(tensor=self.tensor_parameters, replicated=self.replicated_parameters)

    @property
    def kv_heads(self) -> int:
        """One shared key-value head."""
        return 1

    @property
    def cache(self) -> Cache:
        """Key and value share storage: `head_dim` elements per token in the window, per `ratio` tokens beyond."""
        ratio = self.ratio or 0
        return Cache(
            growing=self.head_dim,
            window=self.window,
            compressed=self.head_dim / ratio if ratio else 0,
            index=self.index_elements / ratio if ratio else 0,
        )

    @property
    def flop_per_position(self) -> int:
        """Scores and weighted values over one stored entry, all heads."""
        return 4 * self.heads * self.head_dim

    @property
    def prefill_flop_per_position(self) -> int:
        """The same as in decode."""
        return self.flop_per_position

    @property
    def index_flop_per_position(self) -> float:
        """Scores of the sparse index, per original position."""
        return 2 * self.index_heads * self.index_elements / (self.ratio or 1)


class Recurrent(Value):
    """A mixer with a fixed-size state per sequence: Mamba, gated delta net, lightning attention, KDA."""

    kind: Literal["recurrent"] = "recurrent"
    variant: str
    """Its name in the field: mamba2, mamba1, gated-delta-net, kda, lightning."""
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    """Heads the state can be cut into."""
    tensor_parameters: int = Field(ge=0)
    replicated_parameters: int = Field(ge=0)
    state_elements: int = Field(ge=0)
    convolution_elements: int = Field(ge=0)
    state_bytes: float = Field(default=4.0, gt=0)
    """Bytes per element of the recurrent state (usually float32)."""

    @property
    def cut(self) -> Cut:
        """Projections follow the heads."""
        return Cut(tensor=self.tensor_parameters, replicated=self.replicated_parameters)

    @property
    def kv_heads(self) -> int:
        """The state is cut along its heads."""
        return self.heads

    @property
    def cache(self) -> Cache:
        """A state and the convolution's last inputs, whatever the length."""
        return Cache(state=self.state_elements, convolution=self.convolution_elements)

    @property
    def flop_per_position(self) -> int:
        """Nothing grows with the past."""
        return 0

    @property
    def prefill_flop_per_position(self) -> int:
        """Nothing grows with the past."""
        return 0

    @property
    def index_flop_per_position(self) -> int:
        """No index."""
        return 0

    @property
    def index_parameters(self) -> int:
        """No index."""
        return 0

    @property
    def flop_per_token(self) -> int:
        """Decay, update and read of the state: three multiply-adds per element."""
        return 6 * self.state_elements


Mixer: TypeAlias = GroupedQuery | Latent | Compressed | Recurrent


class Dense(Value):
    """A feed-forward part every token goes through."""

    inputs: int = Field(ge=1)
    width: int = Field(ge=1)
    gated: bool = True
    """Three matrices (SwiGLU and kin) instead of two."""
    biases: int = 0
    """Bias parameters, all of them."""

    @property
    def parameters(self) -> int:
        """All parameters."""
        return (3 if self.gated else 2) * self.inputs * self.width + self.biases


class Experts(Value):
    """A mixture of experts: a router picks `chosen` of `count` for every token; shared experts see them all."""

    count: int = Field(ge=1)
    chosen: int = Field(ge=1)
    """Experts a token uses (top-k)."""
    inputs: int = Field(ge=1)
    """Width of what a routed expert reads: the hidden size, or a latent."""
    width: int = Field(ge=1)
    gated: bool = True
    biases: int = 0
    """Bias parameters of one routed expert."""
    shared: int = 0
    """Number of shared experts."""
    shared_parameters: int = 0
    """Parameters of all shared experts, their gate and latent projections included."""
    shared_width: int = 0
    """Intermediate width of all shared experts together."""
    router: int = 0
    """Router parameters."""

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        return (3 if self.gated else 2) * self.inputs * self.width + self.biases


class Block(Value):
    """One kind of layer: a mixer, a dense feed-forward, experts; any of them may be missing."""

    mixer: Mixer | None = Field(default=None, discriminator="kind")
    dense: Dense | None = None
    experts: Experts | None = None
    norms: int = 0
    """Norm parameters."""
    other: int = 0
    """Other parameters, whole on every rank (hyper-connections, per-layer input gates)."""

    def parameters(self) -> dict[Component, int]:
        """Parameters of one such layer by component."""
        mixer: Component = "recurrent" if isinstance(self.mixer, Recurrent) else "attention"
        found: dict[Component, int] = {
            mixer: self.mixer.cut.total if self.mixer else 0,
            "indexer": self.mixer.index_parameters if self.mixer else 0,
            "dense_ffn": self.dense.parameters if self.dense else 0,
            "routed_experts": self.experts.count * self.experts.expert_parameters if self.experts else 0,
            "shared_experts": self.experts.shared_parameters if self.experts else 0,
            "router": self.experts.router if self.experts else 0,
            "norms": self.norms,
            "other": self.other,
        }
        return {component: count for component, count in found.items() if count}

    @property
    def inactive(self) -> int:
        """Parameters of the routed experts a token does not use."""
        if self.experts is None:
            return 0
        idle = self.experts.count - min(self.experts.chosen, self.experts.count)
        return idle * self.experts.expert_parameters


class Encoder(Value):
    """What makes tokens of images: the largest image its processor makes of any, and one of its layers."""

    tokens: int = Field(ge=1)
    """Tokens of the largest image."""
    patches: int = Field(ge=1)
    """Patches the encoder sees of it."""
    pixels: int = Field(ge=1)
    """Numbers it is given as."""
    hidden: int = Field(ge=1)
    """Width of a patch inside the encoder."""
    width: int = Field(ge=1)
    """Width of its feed-forward part."""
    products: int = Field(ge=2, le=3)
    """Tensors of that width alive at once: before and after the activation; of a gated one three."""
    output: int = Field(ge=1)
    """Width of a token it makes, all levels that enter the language model together."""


class Transformer(Value):
    """A language model's architecture: everything that can be counted from its config."""

    name: str
    """Hub-style id, or a description for a model planned by size."""
    family: str
    """Architecture name as its config states it."""
    hidden: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    context_length: int = Field(ge=1)
    """Longest sequence the model was made for, tokens."""
    blocks: tuple[Block, ...] = Field(min_length=1)
    """The distinct kinds of layer."""
    sequence: tuple[int, ...] = Field(min_length=1)
    """Index into `blocks`, one per layer, first to last."""
    embedding: int = Field(ge=0)
    """Parameters of the input embedding (positions included)."""
    lookup: int = 0
    """Part of `embedding` that is only looked up and never counts as active (per-layer embedding tables)."""
    head: int = Field(ge=0)
    """Parameters of the output head; 0 when it is the embedding again."""
    final_norm: int = 0
    other: int = 0
    """Parameters outside the layers that are none of these, whole on every rank that holds the embedding."""
    vision: int = 0
    """Parameters of vision or audio towers and projectors."""
    encoder: Encoder | None = None
    """Shape of the vision tower, where its largest image is known. None: it has none, or that is not known."""
    mtp: int = 0
    """Parameters of multi-token-prediction layers; not loaded unless asked for."""
    native: dict[Component, str] = Field(default_factory=dict)
    """Format the checkpoint is published in, by component; what is missing is bf16."""
    native_kv: str | None = None
    """KV cache format the checkpoint asks for. None: bf16."""
    assumed: tuple[str, ...] = ()
    """What the config did not say and was assumed, in words."""

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Layers of each kind, in the order of `blocks`."""
        return tuple(self.sequence.count(index) for index in range(len(self.blocks)))

    @cached_property
    def components(self) -> dict[Component, int]:
        """Parameters by component, of everything an engine loads to serve (no MTP layers)."""
        total: dict[Component, int] = {"embedding": self.embedding}
        for block, count in zip(self.blocks, self.counts, strict=True):
            for component, parameters in block.parameters().items():
                total[component] = total.get(component, 0) + count * parameters
        total["norms"] = total.get("norms", 0) + self.final_norm
        total["other"] = total.get("other", 0) + self.other
        total["head"] = self.head
        total["vision"] = self.vision
        return {component: count for component, count in total.items() if count}

    @property
    def total_parameters(self) -> int:
        """All parameters an engine loads to serve: the language model with its head, towers, no MTP layers."""
        return sum(self.components.values())

    @property
    def text_only(self) -> "Transformer":
        """The same without towers."""
        return self.model_copy(update={"vision": 0, "encoder": None})

    @property
    def language_parameters(self) -> int:
        """Total without vision and audio towers."""
        return self.total_parameters - self.vision

    @property
    def active_parameters(self) -> int:
        """Parameters one token uses: total less idle experts, towers and lookup tables."""
        idle = sum(count * block.inactive for block, count in zip(self.blocks, self.counts, strict=True))
        return self.language_parameters - idle - self.lookup

    @property
    def is_moe(self) -> bool:
        """Some layer has routed experts."""
        return any(block.experts for block in self.blocks)

    @property
    def main_component(self) -> Component:
        """The component with most of the weights."""
        return "routed_experts" if self.is_moe else "dense_ffn"

    @property
    def heads(self) -> tuple[int, ...]:
        """Query heads of every attention kind: tensor widths must divide each."""
        return tuple({b.mixer.heads for b in self.blocks if b.mixer and not isinstance(b.mixer, Recurrent)})

    @property
    def index_elements(self) -> float:
        """Elements per token of all sparse-attention indexes."""
        kinds = zip(self.blocks, self.counts, strict=True)
        return sum(count * block.mixer.cache.index for block, count in kinds if block.mixer)

    def cached_elements(self, length: int) -> float:
        """KV elements one sequence of `length` tokens keeps, states apart; windows as the model defines them."""
        return sum(
            count * _elements(block.mixer.cache, length)
            for block, count in zip(self.blocks, self.counts, strict=True)
            if block.mixer
        )


def _elements(cache: Cache, length: int) -> float:
    held = min(length, cache.window) if cache.window else length
    return cache.growing * held + (cache.compressed + cache.index) * length
