"""Why a layout is impossible or unwise: one rule each, with the user's own numbers, the source, and a way out.

A rule's `broken` judges all layouts at once; its words are written for one layout when somebody looks at it. A way
out that names a width names one the rule allows. What engines do not refuse has no rule: uneven pipeline stages (vLLM
spreads the remainder over the stages before the last, TensorRT-LLM over the first), 4-bit integers on AMD GPUs (vLLM
on ROCm reads AWQ and GPTQ), weights that attention data parallelism repeats (they are in the memory model).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parplan.calibration import Engine
from parplan.formats import LINEAR, Component, Format, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings
from parplan.transformer import Compressed, GroupedQuery, Latent, Recurrent, Transformer
from parplan.units import Array, gib, written_time
from parplan.workload import Workload

Mask: TypeAlias = NDArray[np.bool_]
UNQUANTISED_BITS = 16
PADDED = frozenset({"mxfp4"})
"""Formats whose shards engines pad to whole blocks (vLLM and SGLang mxfp4.py round a shard's width up)."""
VOCABULARY_PADDING = 64
"""Engines pad the vocabulary to a multiple of this before cutting it (vLLM DEFAULT_VOCAB_PADDING_SIZE)."""
WIDEST = 128
"""Largest tensor width a way out names: the most attention heads of a catalogued model."""
CLEAR_GAIN = 0.10
"""Relative gain in tokens/s below which layouts are not told apart: about the model's measured error."""
CAPABILITY = {
    "Volta": 7.0,
    "Turing": 7.5,
    "Ampere": 8.0,
    "Ada": 8.9,
    "Hopper": 9.0,
    "Blackwell": 10.0,
    "Blackwell Ultra": 10.3,
}
"""Least compute capability of an NVIDIA architecture (NVIDIA, CUDA GPU compute capability list)."""


@dataclass(frozen=True)
class Case:
    """Layouts to judge, with what they are made for. `layout` and `memory` are single or arrays [layouts]."""

    transformer: Transformer
    precision: Precision
    gpu: Gpu
    engine: Engine
    workload: Workload
    layout: Layout
    memory: Memory
    """At the asked concurrency, [layouts]."""
    settings: Settings = field(default_factory=Settings)
    narrower: Any = 0
    """Tensor width whose replicas deliver clearly more on as many GPUs, `narrower_tensor`; 0: none. [layouts]"""


@dataclass(frozen=True)
class Objection:
    """What is wrong with one layout, in words."""

    rule: str
    severity: Literal["error", "warning"]
    reason: str
    fix: str
    source: str


@dataclass(frozen=True)
class Rule:
    """A constraint: which layouts break it, and how to say so."""

    name: str
    severity: Literal["error", "warning"]
    broken: Callable[[Case], Any]
    """Case -> mask [layouts], or a scalar that holds for all."""
    reason: Callable[[Case], str]
    fix: Callable[[Case], str]
    source: str


def always(words: str) -> Callable[[Case], str]:
    """The same words for every layout."""
    return lambda _: words


def divisors(number: int, *, limit: int = 64) -> list[int]:
    """Divisors of a number up to a limit.

    >>> divisors(40, limit=16)
    [1, 2, 4, 5, 8, 10]
    """
    return [d for d in range(1, limit + 1) if number % d == 0]


def _nearest(number: int, *, legal: Iterable[int]) -> str:
    """The legal values around a number, in words."""
    values = sorted(legal)
    below = [v for v in values if v < number]
    above = [v for v in values if v > number]
    return " or ".join(str(v) for v in (below[-1:] + above[:1])) or "1"


def _attention(case: Case) -> list[int]:
    return sorted(
        {b.mixer.heads for b in case.transformer.blocks if b.mixer and not isinstance(b.mixer, Recurrent)}
    )


def _kv_heads(case: Case) -> list[int]:
    return sorted({b.mixer.kv_heads for b in case.transformer.blocks if isinstance(b.mixer, GroupedQuery)})


def _recurrent_heads(case: Case) -> list[int]:
    return sorted({b.mixer.heads for b in case.transformer.blocks if isinstance(b.mixer, Recurrent)})


def _experts(case: Case) -> int:
    return max((b.experts.count for b in case.transformer.blocks if b.experts), default=0)


def _any_not_divided(numbers: Iterable[int], by: Any) -> Any:
    """Where some number is not a multiple."""
    return np.any([np.asarray(n % by != 0) for n in numbers] or [np.asarray(by < 0)], axis=0)


def _tensor_fits_heads(case: Case, tensor: int) -> bool:
    return all(heads % tensor == 0 for heads in _attention(case) + _recurrent_heads(case))


def _legal_tensor(case: Case) -> list[int]:
    """Tensor widths every head count and the vocabulary allow."""
    return [t for t in range(1, 65) if _tensor_fits_heads(case, t) and not _kv_uneven(_kv_heads(case), t)]


def _kv_uneven(kv_heads: Iterable[int], tensor: Any) -> Any:
    """Where KV heads neither divide over the ranks nor repeat evenly on them."""
    parts = [(np.asarray(k % tensor) != 0) & (np.asarray(tensor % k) != 0) for k in kv_heads]
    return np.any(parts or [np.asarray(tensor < 0)], axis=0)


def _blocks_of(case: Case, component: Component) -> int:
    stored = case.precision.weights[component]
    return 1 if stored.name in PADDED else stored.block


def _dense_widths(case: Case) -> list[int]:
    dense = [b.dense.width for b in case.transformer.blocks if b.dense]
    shared = [b.experts.shared_width for b in case.transformer.blocks if b.experts and b.experts.shared_width]
    return sorted({*dense, *shared})


def _expert_widths(case: Case) -> list[int]:
    return sorted({b.experts.width for b in case.transformer.blocks if b.experts})


def _cut_blocks(widths: Iterable[int], *, ways: Any, block: int) -> Any:
    """Where a width cut so many ways leaves a part that is not whole quantisation blocks."""
    parts = [
        (np.asarray(w % ways) != 0) | (np.asarray((w // np.maximum(ways, 1)) % block) != 0) for w in widths
    ]
    return np.any(parts or [np.asarray(ways < 0)], axis=0)


def _expanded(stored: Format, *, gpu: Gpu) -> bool:
    """Whether a GPU has no arithmetic for a quantised format and expands the weights on the way in."""
    return stored.bits < UNQUANTISED_BITS and gpu.arithmetic(stored.arithmetic) != stored.arithmetic


def _int(value: Any) -> int:
    return int(np.asarray(value).reshape(-1)[0])


def _gib(value: Any) -> str:
    return f"{float(np.asarray(gib(value)).reshape(-1)[0]):,.1f} GiB"


RULES: tuple[Rule, ...] = (
    Rule(
        "heads",
        "error",
        lambda c: _any_not_divided(_attention(c) + _recurrent_heads(c), c.layout.tensor),
        lambda c: (
            f"{'/'.join(map(str, _attention(c) + _recurrent_heads(c)))} heads cannot be cut "
            f"{_int(c.layout.tensor)} ways."
        ),
        lambda c: f"Use TP{_nearest(_int(c.layout.tensor), legal=_legal_tensor(c))}.",
        "vLLM ModelConfig.verify_with_parallel_config",
    ),
    Rule(
        "kv-heads",
        "error",
        lambda c: _kv_uneven(_kv_heads(c), c.layout.tensor),
        lambda c: (
            f"{'/'.join(map(str, _kv_heads(c)))} KV heads neither divide over nor repeat evenly on "
            f"{_int(c.layout.tensor)} ranks."
        ),
        lambda c: f"Use TP{_nearest(_int(c.layout.tensor), legal=_legal_tensor(c))}.",
        "vLLM model sources (Llama, Qwen): total_num_kv_heads % tp_size or tp_size % total_num_kv_heads",
    ),
    Rule(
        "vocabulary",
        "error",
        lambda c: (
            (-(-c.transformer.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING) % c.layout.tensor != 0
        ),
        lambda c: (
            f"The padded vocabulary of {c.transformer.vocabulary:,} tokens cannot be cut "
            f"{_int(c.layout.tensor)} ways."
        ),
        lambda c: f"Use TP{_nearest(_int(c.layout.tensor), legal=[1, 2, 4, 8, 16, 32, 64])}.",
        "vLLM vocab_parallel_embedding.py",
    ),
    Rule(
        "dense-width",
        "error",
        lambda c: _cut_blocks(_dense_widths(c), ways=c.layout.tensor, block=_blocks_of(c, "dense_ffn")),
        lambda c: (
            f"A feed-forward width of {'/'.join(map(str, _dense_widths(c)))} cut {_int(c.layout.tensor)} ways "
            f"does not leave whole quantisation blocks of {_blocks_of(c, 'dense_ffn')}."
        ),
        always("Use a smaller tensor width."),
        "vLLM issue #25292, SGLang issue #3345",
    ),
    Rule(
        "expert-width",
        "error",
        lambda c: _cut_blocks(
            _expert_widths(c), ways=c.layout.expert_tensor, block=_blocks_of(c, "routed_experts")
        ),
        lambda c: (
            f"Experts of width {'/'.join(map(str, _expert_widths(c)))} cut {_int(c.layout.expert_tensor)} ways "
            f"do not leave whole quantisation blocks of {_blocks_of(c, 'routed_experts')}."
        ),
        lambda c: f"Keep experts whole: EP{_int(c.layout.width)}.",
        "vLLM issue #25292 and PR #48173",
    ),
    Rule(
        "experts-missing",
        "error",
        lambda c: (_experts(c) == 0) & ((c.layout.expert > 1) | (c.layout.data > 1)),
        always("A model without experts has nothing for expert groups or repeated attention to spread."),
        always("Use replicas instead."),
        "definition of expert parallelism",
    ),
    Rule(
        "experts-count",
        "error",
        lambda c: (_experts(c) > 0) & (c.layout.expert > max(_experts(c), 1)),
        lambda c: f"{_experts(c)} experts cannot fill {_int(c.layout.expert)} groups.",
        lambda c: f"Use at most EP{_experts(c)}.",
        "vLLM expert parallel deployment guide",
    ),
    Rule(
        "expert-groups",
        "error",
        lambda c: (c.layout.expert > 1) & (c.layout.expert != c.layout.width) & (not c.engine.mixed_experts),
        lambda c: (
            f"{c.engine.label} spreads whole experts over all {_int(c.layout.width)} GPUs of the group or none, "
            f"not over {_int(c.layout.expert)} groups."
        ),
        lambda c: f"Use EP{_int(c.layout.width)} or EP1.",
        "vLLM: EP size = TP x DP; SGLang: all-to-all backends need ep == tp",
    ),
    Rule(
        "stages",
        "error",
        lambda c: c.layout.pipeline > len(c.transformer.sequence),
        lambda c: f"{len(c.transformer.sequence)} layers cannot fill {_int(c.layout.pipeline)} stages.",
        lambda c: f"Use at most PP{len(c.transformer.sequence)}.",
        "definition of pipeline parallelism",
    ),
    Rule(
        "decode-context",
        "error",
        lambda c: (
            (c.layout.decode_context > 1)
            & (
                (c.layout.tensor % c.layout.decode_context != 0)
                | (c.layout.decode_context * min(_kv_heads(c) or [1]) > c.layout.tensor)
            )
        ),
        lambda c: (
            f"Decode-context parallelism of {_int(c.layout.decode_context)} needs as many ranks that repeat "
            f"the same KV head; TP{_int(c.layout.tensor)} over {min(_kv_heads(c) or [1])} KV heads has fewer."
        ),
        lambda c: f"Use at most DCP{max(_int(c.layout.tensor) // min(_kv_heads(c) or [1]), 1)}.",
        "vLLM context_parallel_deployment.md: dcp in [1, tp / kv_heads]",
    ),
    Rule(
        "network",
        "error",
        lambda c: (c.gpu.network is None) & (c.layout.gpus > c.gpu.node),
        lambda c: (
            f"{_int(c.layout.gpus)} GPUs are more than one node of {c.gpu.node}, and no network between nodes "
            f"is known for {c.gpu.label}."
        ),
        lambda c: f"Stay within {c.gpu.node} GPUs, or choose a GPU sold in clusters.",
        "catalogue: network",
    ),
    Rule(
        "block-fp8",
        "error",
        lambda c: any(
            f.name == "fp8-block" and "fp8" not in c.gpu.peaks for f in c.precision.weights.values()
        ),
        lambda c: f"Block-quantised FP8 needs FP8 tensor cores; {c.gpu.label} has none.",
        always("Use bf16 or a 4-bit integer format, or a newer GPU."),
        "SGLang issue #3345",
    ),
    Rule(
        "weights",
        "error",
        lambda c: (c.memory.pool <= 0) | c.memory.overflows,
        lambda c: (
            f"It does not load: {_gib(c.memory.weights)} of weights, {_gib(c.memory.activations)} of "
            f"activations and {_gib(c.memory.overhead)} of overhead on the fullest GPU leave nothing for KV of the "
            f"{_gib(c.memory.usable - c.memory.reserve)} the engine may use."
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
            f"{_gib(c.memory.request)} of KV and only {_gib(c.memory.pool)} is left."
        ),
        always("Use shorter requests, a smaller KV format, or more GPUs per replica."),
        "memory model",
    ),
    Rule(
        "waits",
        "warning",
        lambda c: (c.memory.capacity >= 1) & (c.memory.capacity < c.workload.concurrency),
        lambda c: (
            f"The KV cache holds {_int(np.floor(c.memory.capacity)):,} of the {c.workload.concurrency:,} requests "
            "at full length; the others wait."
        ),
        always("Use more GPUs per replica, a smaller KV format, or replicas."),
        "memory model",
    ),
    Rule(
        "tensor-spans",
        "warning",
        lambda c: c.layout.tensor > max(c.gpu.domain, c.gpu.node),
        lambda c: (
            f"TP{_int(c.layout.tensor)} reaches beyond the {max(c.gpu.domain, c.gpu.node)} GPUs of one node: "
            "every layer waits for all-reduces over the network."
        ),
        lambda c: f"Use at most TP{max(c.gpu.domain, c.gpu.node)} and cut the rest by pipeline or experts.",
        "vLLM parallelism_scaling.md: tensor parallel inside the node, pipeline parallel across nodes",
    ),
    Rule(
        "tensor-slow-link",
        "warning",
        lambda c: (c.layout.tensor > c.gpu.domain) & (c.layout.tensor <= c.gpu.node),
        lambda c: (
            f"TP{_int(c.layout.tensor)} reaches beyond the {c.gpu.domain} GPUs of one fast domain: every layer "
            "waits for all-reduces over PCIe."
        ),
        always("Compare with pipeline stages, which exchange far less, or with replicas."),
        "vLLM parallelism_scaling.md: without NVLink prefer pipeline parallelism",
    ),
    Rule(
        "pipeline-inside",
        "warning",
        lambda c: (c.layout.pipeline > 1) & (c.layout.gpus <= min(c.gpu.domain, c.gpu.node)),
        always(
            "Pipeline stages inside one fast domain never shorten the time per token; tensor parallelism does."
        ),
        lambda c: f"Use TP{_int(c.layout.tensor * c.layout.pipeline)}.",
        "TensorRT-LLM deciding-model-sharding-strategy.md",
    ),
    Rule(
        "bubble",
        "warning",
        lambda c: (c.layout.pipeline > 1) & (c.workload.concurrency < c.layout.pipeline * c.layout.data),
        lambda c: f"{c.workload.concurrency} requests cannot keep {_int(c.layout.pipeline)} stages busy.",
        always("Use fewer stages or more concurrent requests."),
        "Huang et al., GPipe (2019)",
    ),
    Rule(
        "kv-repeated",
        "warning",
        lambda c: (
            (c.layout.tensor > min((b.mixer.kv_heads for b in c.transformer.blocks if b.mixer), default=1))
            & (c.layout.decode_context == 1)
        ),
        lambda c: (
            f"TP{_int(c.layout.tensor)} is wider than the KV heads: every GPU repeats part of the KV cache."
        ),
        always(
            "Use attention data parallelism, decode-context parallelism or a smaller tensor width for more KV."
        ),
        "vLLM context_parallel_deployment.md",
    ),
    Rule(
        "weight-only",
        "warning",
        lambda c: any(_expanded(c.precision.weights[component], gpu=c.gpu) for component in LINEAR),
        lambda c: (
            f"{c.gpu.label} cannot compute in this weight format: weights are expanded on the way in, which "
            "saves memory but no arithmetic."
        ),
        always("Nothing to do where memory is the limit; otherwise use a format the GPU computes in."),
        "NVIDIA and AMD architecture documents: FP8 from Ada and MI300, FP4 from Blackwell and MI350",
    ),
)


def broken(case: Case, *, severity: Literal["error", "warning"]) -> Mapping[str, Mask]:
    """Which layouts break which rule: name -> mask [layouts]."""
    shape = case.layout.shape
    return {
        rule.name: np.broadcast_to(np.asarray(rule.broken(case), dtype=bool), shape)
        for rule in RULES
        if rule.severity == severity
    }


def objection(name: str, case: Case) -> Objection:
    """One rule's objection to a single layout that breaks it."""
    rule = next(rule for rule in RULES if rule.name == name)
    return Objection(rule.name, rule.severity, rule.reason(case), rule.fix(case), rule.source)


def objections(case: Case) -> tuple[Objection, ...]:
    """Everything wrong with a single layout, errors first."""
    found = [objection(rule.name, case) for rule in RULES if bool(np.all(rule.broken(case)))]
    return tuple(sorted(found, key=lambda one: one.severity != "error"))
