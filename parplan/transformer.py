"""The model: a stack of blocks, each with a token mixer (attention or recurrence) and a feed-forward part."""

from functools import cached_property

from pydantic import Field

from parplan.formats import Component
from parplan.mixers import Cache, Mixer, Recurrent
from parplan.provenance import Value


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
            mixer: self.mixer.cut.total - self.mixer.output_parameters if self.mixer else 0,
            "attention_output": self.mixer.output_parameters if self.mixer else 0,
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

    @property
    def kinds(self) -> tuple[tuple[int, Block], ...]:
        """Kinds of layer with the number of layers of each."""
        return tuple(zip(self.counts, self.blocks, strict=True))

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The token mixer of every kind of layer that has one."""
        return tuple(block.mixer for block in self.blocks if block.mixer)

    @property
    def least_kv_heads(self) -> int:
        """KV heads of the attention that tensor parallelism repeats first; a latent is one."""
        return min((mixer.kv_heads for mixer in self.mixers), default=1)

    @property
    def components(self) -> dict[Component, int]:
        """Parameters by component, of everything an engine loads to serve (no MTP layers)."""
        total: dict[Component, int] = {"embedding": self.embedding}
        for count, block in self.kinds:
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
        idle = sum(count * block.inactive for count, block in self.kinds)
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
        return tuple({mixer.heads for mixer in self.mixers if not isinstance(mixer, Recurrent)})

    @property
    def index_elements(self) -> float:
        """Elements per token of all sparse-attention indexes."""
        return sum(count * block.mixer.cache.index for count, block in self.kinds if block.mixer)

    def cached_elements(self, length: int) -> float:
        """KV elements one sequence of `length` tokens keeps, states apart; windows as the model defines them."""
        return sum(count * _elements(block.mixer.cache, length) for count, block in self.kinds if block.mixer)


def _elements(cache: Cache, length: int) -> float:
    held = min(length, cache.window) if cache.window else length
    return cache.growing * held + (cache.compressed + cache.index) * length
