"""What does not start, whatever the GPU can do: counts that do not divide, cuts an engine lacks, memory."""

from math import gcd
from typing import Any

import numpy as np

from parplan.memory import Memory
from parplan.mixers import Compressed, GroupedQuery, Recurrent
from parplan.objections.case import Case, Rule, always, divisors, listed, size_words, whole
from parplan.objections.counts import (
    any_of,
    block_of,
    copies,
    dense_cut,
    dense_widths,
    even_experts,
    even_fix,
    expert_widths,
    experts,
    experts_cut,
    experts_refined,
    experts_uneven,
    fewer_groups,
    heads,
    heads_uneven,
    kv_heads,
    kv_uneven,
    legal_tensor,
    mixes,
    nearest_tensor,
    ranks_fix,
    vocabulary,
    whole_experts_fix,
)
from parplan.units import counted

CUT_WORDS = {
    "tensor": "cut layers by tensor parallelism",
    "data": "repeat attention beside shared experts",
    "pipeline": "cut the model into pipeline stages",
    "expert": "spread whole experts",
    "context": "cut long prompts along the sequence",
    "decode_context": "cut the KV cache along the sequence",
}
"""What a layout field asks of an engine."""


def _groups_fix(case: Case) -> str:
    """The widths of expert parallelism an engine has, as far as there are experts."""
    width = whole(case.layout.width)
    return f"Use EP{width} or EP1." if width <= copies(case) else "Use EP1."


def _copies_fix(case: Case) -> str:
    """The layout's GPUs as expert groups, where they divide the experts and their copies."""
    width = whole(case.layout.width)
    even = width > 1 and copies(case) % width == 0
    return f"Use EP{width}." if even else "Use expert groups, or no redundant experts."


def _attention_fix(case: Case) -> str:
    """Attention repeated on all of a layer's GPUs, or cut over all of them where heads allow."""
    width = whole(case.layout.width)
    cut = f" or TP{width} with DP1" if width in legal_tensor(case) else ""
    return f"Use TP1 with DP{width}{cut}."


def _decode_context_wrong(case: Case) -> Any:
    size, tensor = case.layout.decode_context, case.layout.tensor
    return (size > 1) & (
        (tensor % size != 0) | (size * case.transformer.least_kv_heads > tensor) | _queries_uneven(case)
    )


def _queries_per_head(case: Case) -> list[int]:
    """Query heads that share a KV head, of every kind of attention that has such."""
    mixers = case.transformer.mixers
    return sorted({mixer.heads // mixer.kv_heads for mixer in mixers if isinstance(mixer, GroupedQuery)})


def _queries_uneven(case: Case) -> Any:
    """Where the queries of a KV head do not divide over the ranks that share it."""
    size = case.layout.decode_context
    return any_of((count % size != 0 for count in _queries_per_head(case)), like=size)


def _unshared_layers(case: Case) -> str:
    """Kinds of layer whose cache vLLM cannot cut along the sequence, in words; empty where it can cut all.

    Recurrent states are kept whole beside a cut cache in its newest version (0.33), and refused in 0.20.
    """
    mixers = case.transformer.mixers
    old = case.engine.name != "vllm"
    kinds = {
        "windowed": any(isinstance(m, GroupedQuery) and m.cache.window for m in mixers),
        "compressed": any(isinstance(m, Compressed) for m in mixers),
        "recurrent": old and any(isinstance(m, Recurrent) for m in mixers),
    }
    return " and ".join(kind for kind, there in kinds.items() if there)


def _decode_context_reason(case: Case) -> str:
    size, tensor, heads = (
        whole(case.layout.decode_context),
        whole(case.layout.tensor),
        case.transformer.least_kv_heads,
    )
    if tensor % size:
        return f"DCP{size} does not divide the {tensor} ranks of a tensor group."
    kept = max(tensor // heads, 1)
    if size <= kept:
        queries = listed(_queries_per_head(case))
        return f"The {queries} queries that share a KV head do not divide over DCP{size}."
    return (
        f"DCP{size} cuts the cache among ranks that keep the same KV head, and TP{tensor} over "
        f"{counted(heads, 'KV head')} keeps {f'{kept} copies' if kept > 1 else 'one copy'} of each."
    )


def _decode_context_fix(case: Case) -> str:
    tensor, queries = whole(case.layout.tensor), gcd(*_queries_per_head(case))
    sizes = divisors(tensor, limit=max(tensor // case.transformer.least_kv_heads, 1))
    most = max(size for size in sizes if queries % size == 0)
    return f"Use at most DCP{most}." if most > 1 else "Use DCP1, or a wider tensor group."


def largest_percent(held: Memory) -> int:
    """Largest whole percent of memory at which an engine takes no more than a GPU has, of a single layout."""
    return whole(np.floor(100 * np.asarray(held.largest_share) + 1e-9))


def _unknown_cuts(case: Case) -> list[str]:
    """Layout fields the engine has no setting for."""
    return [name for name in CUT_WORDS if name not in case.engine.cuts]


def _cut_missing(case: Case) -> Any:
    return any_of(
        (np.asarray(getattr(case.layout, name)) > 1 for name in _unknown_cuts(case)), like=case.layout.gpus
    )


def _cut_missing_reason(case: Case) -> str:
    found = [CUT_WORDS[n] for n in _unknown_cuts(case) if whole(getattr(case.layout, n)) > 1]
    return f"{case.engine.label} ({case.engine.versions}) cannot {' or '.join(found)}."


HARD: tuple[Rule, ...] = (
    Rule(
        "heads",
        "error",
        lambda c: heads_uneven(c, c.layout.tensor),
        lambda c: (
            f"{listed(heads(c))} attention heads do not divide over {whole(c.layout.tensor)} tensor ranks."
        ),
        nearest_tensor,
        "vLLM ModelConfig.verify_with_parallel_config",
    ),
    Rule(
        "kv-heads",
        "error",
        lambda c: kv_uneven(c, c.layout.tensor),
        lambda c: (
            f"{listed(kv_heads(c))} KV heads neither divide over nor repeat evenly on "
            f"{whole(c.layout.tensor)} tensor ranks."
        ),
        nearest_tensor,
        "vLLM model sources (Llama, Qwen): total_num_kv_heads % tp_size or tp_size % total_num_kv_heads",
    ),
    Rule(
        "vocabulary",
        "error",
        lambda c: vocabulary(c) % c.layout.tensor != 0,
        lambda c: (
            f"The vocabulary of {c.transformer.vocabulary:,} tokens, padded to {vocabulary(c):,}, cannot be cut "
            f"{whole(c.layout.tensor)} ways."
        ),
        nearest_tensor,
        "vLLM vocab_parallel_embedding.py",
    ),
    Rule(
        "dense-width",
        "error",
        lambda c: dense_cut(c, c.layout.tensor),
        lambda c: (
            f"A feed-forward width of {listed(dense_widths(c))} cut {whole(c.layout.tensor)} ways "
            f"does not leave whole quantisation blocks of {block_of(c, 'dense_ffn')}."
        ),
        nearest_tensor,
        "vLLM issue #25292, SGLang issue #3345",
    ),
    Rule(
        "expert-width",
        "error",
        lambda c: experts_cut(c) & ~experts_refined(c),
        lambda c: (
            f"Experts of width {listed(expert_widths(c))} cut {whole(c.layout.expert_tensor)} ways "
            f"do not leave whole quantisation blocks of {block_of(c, 'routed_experts')}."
        ),
        whole_experts_fix,
        "vLLM issue #25292 and PR #48173, TensorRT-LLM PR #14613",
    ),
    Rule(
        "experts-missing",
        "error",
        lambda c: (experts(c) == 0) & ((c.layout.expert > 1) | (c.layout.data > 1)),
        always("A model without experts has nothing for expert groups or repeated attention to spread."),
        always("Use replicas instead."),
        "definition of expert parallelism",
    ),
    Rule(
        "experts-count",
        "error",
        lambda c: (experts(c) > 0) & (c.layout.expert > max(copies(c), 1)),
        lambda c: f"{copies(c)} experts cannot fill {whole(c.layout.expert)} groups.",
        fewer_groups,
        "vLLM expert parallel deployment guide",
    ),
    Rule(
        "copies-whole",
        "error",
        lambda c: (experts(c) > 0) & (c.settings.redundant_experts > 0) & (c.layout.expert == 1),
        lambda c: (
            f"{c.settings.redundant_experts} redundant experts need whole experts to copy, and this layout cuts every "
            f"expert over {counted(whole(c.layout.width), 'GPU')}."
        ),
        _copies_fix,
        "vLLM config/parallel.py: enable_expert_parallel must be True to use EPLB",
    ),
    Rule(
        "experts-even",
        "error",
        lambda c: experts_uneven(c) & even_experts(c),
        lambda c: (
            f"{copies(c)} experts do not divide over {whole(c.layout.expert)} groups, as "
            f"{'load balancing' if c.settings.redundant_experts else c.engine.label} needs them to."
        ),
        even_fix,
        "vLLM EPLB: even distribution of experts across ranks; SGLang fused_moe_triton/layer.py: num_experts % "
        "moe_ep_size == 0; TensorRT-LLM mapping.py @05ebebb: ep_experts",
    ),
    Rule(
        "expert-groups",
        "error",
        lambda c: (c.layout.expert > 1) & (c.layout.expert != c.layout.width) & (not mixes(c)),
        lambda c: (
            f"{c.engine.label} spreads whole experts over all {whole(c.layout.width)} GPUs of the group or none, "
            f"not over {whole(c.layout.expert)} groups."
        ),
        _groups_fix,
        "vLLM: EP size = TP x DP; SGLang: all-to-all backends, which copies of experts need, set ep = tp",
    ),
    Rule(
        "expert-ranks",
        "error",
        lambda c: (experts(c) > 0) & mixes(c) & (c.layout.width % c.layout.expert != 0),
        lambda c: (
            f"{whole(c.layout.expert)} groups of experts do not divide the {counted(whole(c.layout.width), 'GPU')} "
            "that the experts of a layer are spread over."
        ),
        ranks_fix,
        "definition of expert parallelism",
    ),
    Rule(
        "attention-groups",
        "error",
        lambda c: (c.engine.family == "trtllm") & (c.layout.data > 1) & (c.layout.tensor > 1),
        lambda c: (
            f"TensorRT-LLM cuts attention over all {whole(c.layout.width)} GPUs of a layer or repeats it on each "
            f"(enable_attention_dp), not TP{whole(c.layout.tensor)} repeated {whole(c.layout.data)} times."
        ),
        _attention_fix,
        "TensorRT-LLM docs, Parallelism: attention TP or attention DP",
    ),
    Rule(
        "cut-missing",
        "error",
        _cut_missing,
        _cut_missing_reason,
        always("Use tensor or pipeline parallelism, or another engine."),
        "catalogue: cuts of the engine",
    ),
    Rule(
        "stages",
        "error",
        lambda c: c.layout.pipeline > len(c.transformer.sequence),
        lambda c: f"{len(c.transformer.sequence)} layers cannot fill {whole(c.layout.pipeline)} stages.",
        lambda c: f"Use at most PP{len(c.transformer.sequence)}.",
        "definition of pipeline parallelism",
    ),
    Rule(
        "decode-context",
        "error",
        _decode_context_wrong,
        _decode_context_reason,
        _decode_context_fix,
        "vLLM context_parallel_deployment.md: dcp in [1, tp / kv_heads]; config/model.py of 0.33: queries per KV head",
    ),
    Rule(
        "decode-context-layers",
        "error",
        lambda c: (c.layout.decode_context > 1) & (c.engine.family == "vllm") & bool(_unshared_layers(c)),
        lambda c: (
            f"vLLM cuts the cache along the sequence only where every layer keeps all of it; {c.transformer.name} has "
            f"{_unshared_layers(c)} layers."
        ),
        always("Use DCP1."),
        "vLLM kv_cache_coordinator.py of 0.33 (full attention, Mamba) and of 0.19 (no hybrid at all)",
    ),
    Rule(
        "network",
        "error",
        lambda c: (c.gpu.network is None) & (c.layout.gpus > c.gpu.node),
        lambda c: (
            f"{whole(c.layout.gpus)} GPUs are more than one node of {c.gpu.node}, and no network between nodes "
            f"is known for {c.gpu.label}."
        ),
        lambda c: f"Stay within {counted(c.gpu.node, 'GPU')}, or choose a GPU sold in clusters.",
        "catalogue: network",
    ),
    Rule(
        "slots-step",
        "error",
        lambda c: (
            c.engine.memory.slots_within_step
            and bool(c.settings.max_num_seqs and c.settings.max_batched_tokens)
            and (c.settings.max_num_seqs or 0) > (c.settings.max_batched_tokens or 0)
        ),
        lambda c: (
            f"{c.settings.max_num_seqs:,} sequence slots are more than the {c.settings.max_batched_tokens:,} tokens of "
            f"one step, and {c.engine.label} refuses to start so."
        ),
        lambda c: (
            f"Let a step have {c.settings.max_num_seqs:,} tokens, or leave one of the two to the engine."
        ),
        "vLLM config/scheduler.py: max_num_batched_tokens must be greater than or equal to max_num_seqs",
    ),
    Rule(
        "share",
        "error",
        lambda c: c.memory.too_large_a_share,
        lambda c: (
            f"{c.engine.label} does not start: of the {size_words(c.memory.usable)} of each GPU it is to fill "
            f"{size_words(c.memory.allowance)}, and {size_words(c.memory.outside)} lie outside of that, the driver "
            f"context above all: {size_words(c.memory.excess)} too much."
        ),
        lambda c: (
            f"Let it take at most {largest_percent(c.memory)} % of each GPU: what it gives up is cache."
        ),
        "memory model; vLLM v1/worker/utils.py, request_memory: free memory on startup is less than desired",
    ),
    Rule(
        "weights",
        "error",
        lambda c: (c.memory.pool <= 0) | (c.memory.overflows & ~c.memory.too_large_a_share),
        lambda c: (
            f"It does not load: {size_words(c.memory.weights)} of weights, {size_words(c.memory.activations)} of "
            f"activations and {size_words(c.memory.overhead)} of overhead on the fullest GPU leave nothing for KV "
            f"of the {size_words(c.memory.usable - c.memory.reserve)} the engine may use."
        ),
        always("Use more GPUs per replica, a smaller weight format, or a larger GPU."),
        "memory model",
    ),
    Rule(
        "one-request",
        "error",
        lambda c: (c.memory.pool > 0) & ~c.memory.overflows & (c.memory.capacity < 1),
        lambda c: (
            f"The weights load, but one request of {c.workload.length:,} tokens needs "
            f"{size_words(c.memory.alone)} of KV and only {size_words(c.memory.pool)} is left."
        ),
        always("Use shorter requests, a smaller KV format, or more GPUs per replica."),
        "memory model",
    ),
)
"""What does not start."""
