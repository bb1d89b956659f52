"""What a plan follows from, with every name resolved, and the formats a model is stored in when a user picks one."""

from collections.abc import Mapping
from dataclasses import dataclass

from parplan.calibration import Engine
from parplan.formats import COMPONENTS, LINEAR, Component, Format, Precision
from parplan.hardware import Gpu
from parplan.memory import Settings
from parplan.transformer import Transformer
from parplan.workload import Objective, Workload

FEED_FORWARD: frozenset[Component] = frozenset({"dense_ffn", "routed_experts", "shared_experts"})


@dataclass(frozen=True)
class Problem:
    """Everything a plan follows from, names resolved."""

    transformer: Transformer
    precision: Precision
    gpu: Gpu
    engine: Engine
    workload: Workload
    settings: Settings
    budget: int
    """Most GPUs one replica may use."""
    fixed: Mapping[str, int]
    """Layout fields the user has fixed."""
    text_only: bool = False
    """The engine is told to take no images; `transformer` has no towers then."""
    objective: Objective = "cost"
    """What makes one layout better than another, of those that do the job."""
    replicas: int = 1
    """Copies of the layout; each has the whole workload, and none changes what another does."""
    busiest: float = 0.0
    """Requests per second at the busiest time, over all replicas, at random times. 0: not asked."""

    @property
    def requests(self) -> int:
        """Requests all replicas have in hand at once."""
        return self.workload.concurrency * self.replicas

    @property
    def weight_labels(self) -> tuple[str, ...]:
        """Formats the model's weights are stored in, as people read them."""
        weights = self.precision.weights
        return tuple(sorted({weights[part].label for part in self.transformer.components}))

    @property
    def counts_fleets(self) -> bool:
        """Whether layouts are compared by what the replicas for a rate cost, not by one replica."""
        return self.objective == "cost" and self.busiest > 0


def chosen_precision(
    transformer: Transformer, *, weights: Format | None, kv: Format | None, formats: Mapping[str, Format]
) -> Precision:
    """The precision of every component when a user picks one weight format.

    A checkpoint published in that format keeps its own list of exceptions. Otherwise the format covers the matrix
    products inside the layers; four-bit floating point on a mixture of experts covers its feed-forward parts only,
    as in NVIDIA's published NVFP4 checkpoints of DeepSeek, GLM, Kimi, MiniMax and Qwen (their exclude lists name
    `self_attn*`). Embedding, head, router and norms stay in bf16.

    Args:
        weights: None: as published.
        kv: None: as the checkpoint asks for, else bf16.
        formats: the catalogue of formats.
    """
    stored: dict[Component, Format] = dict.fromkeys(COMPONENTS, formats["bf16"])
    native = {component: formats[name] for component, name in transformer.native.items()}
    families = {name.split("-")[0] for name in transformer.native.values()}
    if weights is None or weights.name.split("-")[0] in families - {"bf16"}:
        stored |= native
    else:
        four_bit_moe = weights.arithmetic in ("fp4", "fp4xfp8") and transformer.is_moe
        stored |= dict.fromkeys(FEED_FORWARD if four_bit_moe else LINEAR, weights)
    return Precision(weights=stored, kv=kv or formats[transformer.native_kv or "bf16"])
