"""Number formats: how weights, KV cache and activations are stored, and what arithmetic they run at."""

from typing import Literal, TypeAlias, get_args

from pydantic import Field

from parplan.provenance import Source, Value

Arithmetic: TypeAlias = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "fp4xfp8"]
"""What a tensor core multiplies; a GPU's peak is given per arithmetic. `fp4xfp8`: four-bit weights with eight-bit
inputs, at the rate of fp8, on GPUs that have fp4."""


class Format(Value):
    """How one number is stored, scales and zero points included."""

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    """Stable short name, as used in links."""
    label: str
    """The name people read."""
    bits: float = Field(gt=0, le=64)
    """Bits per element *including* its share of scales and zero points."""
    block: int = Field(default=1, ge=1)
    """Elements along one dimension that share a scale; a shard must hold whole blocks. 1: no blocks."""
    arithmetic: Arithmetic
    """The fastest arithmetic the format is meant to run at; weight-only formats name what they are expanded to."""
    kind: tuple[Literal["weights", "kv"], ...] = ("weights",)
    """What the format is used for."""
    note: str = ""
    sources: tuple[Source, ...] = Field(min_length=1)

    @property
    def bytes_per_element(self) -> float:
        """Stored bytes per element."""
        return self.bits / 8


Component: TypeAlias = Literal[
    "embedding",
    "attention",
    "attention_output",
    "indexer",
    "recurrent",
    "dense_ffn",
    "routed_experts",
    "shared_experts",
    "router",
    "norms",
    "other",
    "head",
    "vision",
    "mtp",
]
"""The parts of a model whose parameters are counted, stored and placed separately."""

COMPONENTS: tuple[Component, ...] = get_args(Component)
LINEAR: frozenset[Component] = frozenset(
    {"attention", "attention_output", "indexer", "recurrent", "dense_ffn", "routed_experts", "shared_experts"}
)
"""Components made of matrix products inside the layers: what a quantiser touches."""


class Precision(Value):
    """Which format each part of a model is stored in, and the format of its KV cache."""

    weights: dict[Component, Format]
    """One format per component; a checkpoint leaves some components unquantised."""
    kv: Format
    """KV cache elements. Recurrent states have their own width, see `mixers.Recurrent`."""

    def bytes_per_parameter(self, component: Component) -> float:
        """Stored bytes per parameter of a component, scales included."""
        return self.weights[component].bytes_per_element
