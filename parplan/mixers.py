"""Token mixers: attention and recurrences.

Variants are a union matched exhaustively. Every variant answers the same questions: how many parameters, cut how
(`Cut`); what one sequence leaves in the cache (`Cache`); how much arithmetic one query spends on one past position.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field

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


class Attention(Value, ABC):
    """What every kind of softmax attention has: query heads, and maybe an index that chooses what they attend to."""

    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    sparse_top_k: int | None = None
    """Stored positions, or compressed entries, a query attends to after the index has chosen (DeepSeek sparse
    attention). None: all it can see."""
    index_elements: int = 0
    """Elements of the index per stored position or compressed entry."""
    index_heads: int = 0
    index_parameters: int = 0

    @property
    def output_parameters(self) -> int:
        """Those of the output projection, cut with the heads, where checkpoints may store it in a format of its own; 0
        where it is stored as all of the mixer."""
        return 0

    @property
    @abstractmethod
    def flop_per_position(self) -> int:
        """Scores and weighted values of one query over one stored position in decode, all heads."""

    @property
    def prefill_flop_per_position(self) -> int:
        """The same in prefill: as in decode where keys and values are used as they are stored."""
        return self.flop_per_position

    @property
    def index_flop_per_position(self) -> float:
        """Scores of the sparse index, per original position."""
        return 2 * self.index_heads * self.index_elements


class GroupedQuery(Attention):
    """Softmax attention whose query heads share KV heads (multi-head and multi-query are its ends)."""

    kind: Literal["grouped-query"] = "grouped-query"
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


class Latent(Attention):
    """Multi-head latent attention (MLA): one compressed latent per token serves every head."""

    kind: Literal["latent"] = "latent"
    query_rank: int | None = Field(default=None, ge=1)
    """Rank of the compressed query. None: projected directly."""
    kv_rank: int = Field(ge=1)
    rope_dim: int = Field(ge=0)
    nope_dim: int = Field(ge=1)
    value_dim: int = Field(ge=1)
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
        return Cut(
            tensor=query_up + kv_up + self.output_parameters + self.tensor_extra,
            replicated=query_down + kv_down + self.replicated_extra,
        )

    @property
    def output_parameters(self) -> int:
        """Four-bit in NVIDIA's checkpoints of DeepSeek, where the rest is 16-bit."""
        return self.heads * self.value_dim * self.hidden

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


class Compressed(Attention):
    """Attention over a short window plus a compressed copy of everything older (DeepSeek-V4 CSA and HCA)."""

    kind: Literal["compressed"] = "compressed"
    head_dim: int = Field(ge=1)
    window: int = Field(ge=1)
    ratio: int | None = Field(default=None, ge=1)
    """Tokens folded into one compressed entry. None: the window only."""
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
    def output_parameters(self) -> int:
        """Stored as all of it."""
        return 0

    @property
    def flop_per_token(self) -> int:
        """Decay, update and read of the state: three multiply-adds per element."""
        return 6 * self.state_elements


Mixer: TypeAlias = GroupedQuery | Latent | Compressed | Recurrent
