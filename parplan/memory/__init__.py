"""Where one GPU's memory goes, on the rank that runs out first, and what cache that leaves room for.

Shapes: a layout's fields, its GPU's numbers (with the settings an engine derives from them) and the concurrency
broadcast to [...]; what differs between pipeline stages has one last axis, [..., stages]. The stage whose cache is
full first decides for all of them.

`settings` is what the engine is told, `loaded` its weights, `overheads` what it takes beside them, `results` what a GPU
then holds, `ranks` which one of a replica is full first.
"""

from parplan.memory.loaded import draft_bytes, expert_padding, loaded_weight_bytes, rotary_table_bytes
from parplan.memory.overheads import (
    encoder_peak_bytes,
    graph_sizes,
    kept_image_bytes,
    peak_with_images,
    profiled_encoder,
    profiled_images,
    shared_bytes,
    stage_activation_bytes,
    stage_graph_bytes,
)
from parplan.memory.ranks import division, memory, replica_memory, worst_rank
from parplan.memory.results import Charges, Memory, Rank, Ranks
from parplan.memory.settings import Limits, Settings, default_slots, limits, step_tokens, tier_value

__all__ = [
    "Charges",
    "Limits",
    "Memory",
    "Rank",
    "Ranks",
    "Settings",
    "default_slots",
    "division",
    "draft_bytes",
    "encoder_peak_bytes",
    "expert_padding",
    "graph_sizes",
    "kept_image_bytes",
    "limits",
    "loaded_weight_bytes",
    "memory",
    "peak_with_images",
    "profiled_encoder",
    "profiled_images",
    "replica_memory",
    "rotary_table_bytes",
    "shared_bytes",
    "stage_activation_bytes",
    "stage_graph_bytes",
    "step_tokens",
    "tier_value",
    "worst_rank",
]
