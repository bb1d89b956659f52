"""What a model's counts allow: heads, widths, blocks and experts, and the nearest sizes that do."""

import re
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from parplan.formats import Component
from parplan.mixers import GroupedQuery
from parplan.objections.case import Case, divisors, nearest, whole
from parplan.units import counted

VOCABULARY_PADDING = 64
"""Engines pad the vocabulary to a multiple of this before cutting it (vLLM DEFAULT_VOCAB_PADDING_SIZE)."""
WIDEST = 256
"""Largest tensor width a way out names: above the most attention heads of a catalogued model (232)."""
FINEST = 32
"""Smallest block vLLM refines the scales of experts to, where a shard is not whole blocks."""
PADDED = frozenset({"mxfp4"})
"""Formats whose shards engines pad to whole blocks (vLLM and SGLang mxfp4.py round a shard's width up)."""


def any_of(parts: Iterable[Any], *, like: Any) -> Any:
    """Where any part holds; nowhere when there is none."""
    return reduce(np.logical_or, parts, np.zeros_like(like, dtype=bool))


def heads(case: Case) -> list[int]:
    """Heads of every kind of layer, recurrent ones included."""
    return sorted({mixer.heads for mixer in case.transformer.mixers})


def kv_heads(case: Case) -> list[int]:
    """KV heads of every kind of attention that has some; a latent is no head."""
    return sorted({mixer.kv_heads for mixer in case.transformer.mixers if isinstance(mixer, GroupedQuery)})


def dense_widths(case: Case) -> list[int]:
    """Widths of the feed-forward parts tensor parallelism cuts: dense ones and shared experts."""
    dense = [b.dense.width for b in case.transformer.blocks if b.dense]
    shared = [b.experts.shared_width for b in case.transformer.blocks if b.experts and b.experts.shared_width]
    return sorted({*dense, *shared})


def expert_widths(case: Case) -> list[int]:
    """Widths of routed experts."""
    return sorted({b.experts.width for b in case.transformer.blocks if b.experts})


def vocabulary(case: Case) -> int:
    """Rows of the embedding, padding included."""
    return -(-case.transformer.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING


def block_of(case: Case, component: Component) -> int:
    """Elements a shard of a component must hold multiples of.

    vLLM pads experts it quantises to blocks on loading (PR 44763, June 2026), not those of a checkpoint in blocks.
    """
    stored = case.precision.weights[component]
    published = case.transformer.native.get(component, "bf16")
    padded = component == "routed_experts" and case.engine.name == "vllm" and published == "bf16"
    return 1 if stored.name in PADDED or (padded and stored.name == "fp8-block") else stored.block


def heads_uneven(case: Case, tensor: Any) -> Any:
    """Where heads do not divide over the ranks."""
    return any_of((count % tensor != 0 for count in heads(case)), like=tensor)


def kv_uneven(case: Case, tensor: Any) -> Any:
    """Where KV heads neither divide over the ranks nor repeat evenly on them."""
    return any_of(
        (np.asarray(k % tensor != 0) & np.asarray(tensor % k != 0) for k in kv_heads(case)), like=tensor
    )


def blocks_cut(widths: Iterable[int], *, ways: Any, block: int) -> Any:
    """Where a width cut so many ways leaves a part that is not whole quantisation blocks."""
    parts = (np.asarray(w % ways != 0) | np.asarray((w // np.maximum(ways, 1)) % block != 0) for w in widths)
    return any_of(parts, like=ways)


def experts_cut(case: Case) -> Any:
    """Where a GPU's part of an expert is not whole quantisation blocks."""
    return blocks_cut(
        expert_widths(case), ways=case.layout.expert_tensor, block=block_of(case, "routed_experts")
    )


def experts_refined(case: Case) -> Any:
    """Where vLLM cuts an expert inside a block all the same: it repeats the block's scale over finer ones.

    Source: vLLM fused_moe/oracle/fp8.py of 0.33, refine_fp8_moe_block_shape; earlier versions refuse to load.
    """
    ways, block = case.layout.expert_tensor, block_of(case, "routed_experts")
    if case.engine.name != "vllm" or case.precision.weights["routed_experts"].name != "fp8-block":
        return np.zeros_like(ways, dtype=bool)
    finer = np.gcd(block, case.transformer.hidden)
    parts = [(w % ways == 0) & (np.gcd(w // ways, finer) >= FINEST) for w in expert_widths(case)]
    return experts_cut(case) & np.all(parts, axis=0)


def dense_cut(case: Case, tensor: Any) -> Any:
    """Where a rank's part of a feed-forward width is not whole quantisation blocks."""
    return blocks_cut(dense_widths(case), ways=tensor, block=block_of(case, "dense_ffn"))


def legal_tensor(case: Case) -> list[int]:
    """Tensor widths that every head count, the vocabulary and every dense width allow."""
    width = np.arange(1, WIDEST + 1)
    uneven = heads_uneven(case, width) | kv_uneven(case, width) | (vocabulary(case) % width != 0)
    return [int(w) for w in width[~(uneven | dense_cut(case, width))]]


def nearest_tensor(case: Case) -> str:
    """The legal tensor widths around a layout's, in words."""
    return f"Use {nearest('TP', whole(case.layout.tensor), legal=legal_tensor(case))}."


def widest_tensor(case: Case, *, limit: int) -> int:
    """The largest legal tensor width up to a limit."""
    return max(w for w in [1, *legal_tensor(case)] if w <= limit)


def experts(case: Case) -> int:
    """Routed experts of a layer; 0 without."""
    return max((b.experts.count for b in case.transformer.blocks if b.experts), default=0)


def copies(case: Case) -> int:
    """Experts a layer holds, redundant ones included."""
    return experts(case) + case.settings.redundant_experts


def experts_uneven(case: Case) -> Any:
    """Where groups do not hold the same number of experts."""
    return (experts(case) > 0) & (case.layout.expert > 1) & (copies(case) % case.layout.expert != 0)


def even_experts(case: Case) -> bool:
    """Whether every group must hold the same number of experts."""
    return case.settings.redundant_experts > 0 or case.engine.family in ("sglang", "trtllm")


def mixes(case: Case) -> bool:
    """Whether the engine spreads experts over groups and cuts each within its group too.

    SGLang does where no all-to-all backend sends the tokens (PR 8590); copies of experts ask for one.
    """
    copied = case.engine.family == "sglang" and case.settings.redundant_experts > 0
    return case.engine.mixed_experts and not copied


def groups_allowed(case: Case) -> list[int]:
    """Expert groups the layout's engine, tensor width and experts go with.

    With engines that mix, groups divide the layout's GPUs; with others all of a layer's GPUs are one group each, so
    that their number changes with the groups.
    """
    tensor, width = whole(case.layout.tensor), whole(case.layout.width)
    if mixes(case):
        return divisors(width, limit=min(width, copies(case)))
    return list(range(tensor, copies(case) + 1, tensor))


def spread(case: Case, *, legal: Iterable[int]) -> str:
    """The nearest of some legal numbers of expert groups, in words; one group where none is."""
    found = nearest("EP", whole(case.layout.expert), legal=legal)
    if mixes(case):
        return found
    tensor = whole(case.layout.tensor)
    return re.sub(r"EP(\d+)", lambda m: f"DP{max(int(m[1]) // tensor, 1)} with EP{m[1]}", found)


def even_fix(case: Case) -> str:
    """Groups that divide the experts, or redundant experts that fill the groups."""
    even = [groups for groups in groups_allowed(case) if copies(case) % groups == 0]
    more = -experts(case) % whole(case.layout.expert)
    return f"Use {spread(case, legal=even)}, or {counted(more, 'redundant expert')}."


def ranks_fix(case: Case) -> str:
    """Groups that divide the layout's GPUs, and the experts where they must."""
    legal = [
        groups for groups in groups_allowed(case) if not even_experts(case) or copies(case) % groups == 0
    ]
    return f"Use {spread(case, legal=legal)}."


def fewer_groups(case: Case) -> str:
    """The most groups there are experts for."""
    return f"Use at most {spread(case, legal=groups_allowed(case)[-1:])}, or redundant experts."


def whole_experts_fix(case: Case) -> str:
    """Experts spread whole over the layout's GPUs, as far as there are experts."""
    width = whole(case.layout.width)
    return f"Keep experts whole: EP{width}." if width <= copies(case) else fewer_groups(case)
