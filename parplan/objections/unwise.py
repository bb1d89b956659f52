"""What starts, and is a poor choice or deserves a word."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parplan.fit import short_of_slots
from parplan.formats import LINEAR, Format
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout
from parplan.mixers import Latent
from parplan.objections.case import (
    Case,
    Rule,
    always,
    joined_gpus,
    listed,
    slots_flag,
    whole,
)
from parplan.objections.counts import (
    block_of,
    copies,
    even_experts,
    even_fix,
    expert_widths,
    experts,
    experts_refined,
    experts_uneven,
    whole_experts_fix,
    widest_tensor,
)
from parplan.seating import numbering
from parplan.units import Array, counted, written_share, written_time

CLEAR_GAIN = 0.10
"""Relative gain in tokens/s below which two layouts are not told apart: about the speed model's measured error."""
LEAST_GAIN = 0.01
"""Relative gain in tokens/s that is worth a word."""
STAGES_BEYOND = 0.13
"""Share by which eight pipeline stages exceed the predicted tokens/s, median of ten workloads: Llama-3.3-70B
on RTX PRO 6000 over PCIe, TensorRT-LLM perf-overview.md of 1.0; no others are in `catalogs/measurements`."""
UNQUANTISED_BITS = 16


def narrower_tensor(
    layout: Layout, *, tokens_per_s: Array, concurrency: NDArray[np.int64], asked: int
) -> NDArray[np.int64]:
    """Tensor width that, in replicas on as many GPUs, delivers clearly more than each layout; 0: none, [layouts].

    Of halves, quarters and so on of the width, the one whose replicas, with the requests spread over them, deliver
    the most; at least `CLEAR_GAIN` more.

    Args:
        layout: [layouts], all to compare with among them.
        tokens_per_s: output tokens of one replica, 0 where a layout is impossible, [layouts, batches].
        concurrency: requests in hand, ascending, [batches].
        asked: index of the asked concurrency.
    """
    most_replicas = int(concurrency[asked] // concurrency[0])
    if most_replicas < 2:
        return np.zeros(layout.shape, dtype=np.int64)
    cuts = {name: np.broadcast_to(getattr(layout, name), layout.shape) for name in CUT_NAMES}
    present = [np.unique(cut) for cut in cuts.values()]
    keys = _keys(cuts.values(), among=present)
    order = np.argsort(keys)
    best, most = np.zeros(layout.shape, dtype=np.int64), tokens_per_s[:, asked] * (1 + CLEAR_GAIN)
    whole = cuts["expert"] == layout.width
    for replicas in 2 ** np.arange(1, min(int(cuts["tensor"].max()), most_replicas).bit_length()):
        smaller = cuts | {
            "tensor": cuts["tensor"] // replicas,
            "expert": np.where(whole, np.maximum(cuts["expert"] // replicas, 1), cuts["expert"]),
            "decode_context": np.maximum(cuts["decode_context"] // replicas, 1),
        }
        wanted = _keys(smaller.values(), among=present)
        found = order[np.searchsorted(keys, wanted, sorter=order).clip(max=order.size - 1)]
        same = np.all([cut[found] == smaller[name] for name, cut in cuts.items()], axis=0)
        there = same & (cuts["tensor"] % replicas == 0)
        each = concurrency[asked] / replicas
        rate = replicas * _at_batch(tokens_per_s, concurrency=concurrency, batch=each)[found]
        better = there & (rate > most)
        best, most = np.where(better, smaller["tensor"], best), np.where(better, rate, most)
    return best


def _keys(cuts: Iterable[NDArray[np.int64]], *, among: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """One number per layout, the same for the same cuts, [layouts]; small however large the cuts are.

    Args:
        cuts: of one kind each, [layouts].
        among: the values there are of each kind, ascending; a cut that is not there takes the place of one that is.
    """
    places = [np.searchsorted(known, cut) for known, cut in zip(among, cuts, strict=True)]
    return np.ravel_multi_index(places, [known.size for known in among], mode="clip")


def _at_batch(values: Array, *, concurrency: NDArray[np.int64], batch: float) -> Array:
    """Values between two batches of a grid, [layouts, batches] -> [layouts]."""
    place = float(np.interp(batch, concurrency, np.arange(concurrency.size)))
    low, high = int(np.floor(place)), int(np.ceil(place))
    return np.asarray(values[:, low] + (values[:, high] - values[:, low]) * (place - low))


def _fits_one_node(case: Case) -> Any:
    """Where all weights and the cache of every request fit into one node, were they cut over it evenly."""
    shrunk = (case.memory.weights + case.memory.kv_needed) * (case.layout.gpus / case.gpu.node)
    room = case.memory.usable - case.memory.reserve - case.memory.activations - case.memory.overhead
    return shrunk <= room


def _needless(case: Case) -> Any:
    """Where stages reach over several nodes though one would do."""
    several = (case.layout.pipeline > 1) & (case.layout.gpus > joined_gpus(case.gpu)) & (case.gpu.domain > 1)
    return np.asarray(several) & _fits_one_node(case)


def _target(case: Case) -> float:
    """The tightest time target, seconds."""
    return min(case.workload.tpot or np.inf, case.workload.ttft or np.inf)


def _stages_inside(case: Case) -> Any:
    """Stages that one domain of fast links has room for, side by side as the engine numbers them."""
    order = numbering(case.engine.family)
    stage = prod(getattr(case.layout, cut) for cut in order[: order.index("pipeline")])
    return np.minimum(np.maximum(case.gpu.domain // stage, 1), case.layout.pipeline)


def _inside_reason(case: Case) -> str:
    """Why not stages inside a domain: what the formulas say of them, where they praise them, is borne out by nobody."""
    stages, together = whole(case.layout.pipeline), whole(_stages_inside(case))
    which = f"The {stages}" if stages == together else f"{together} of the {stages}"
    inside = f"{which} stages sit inside one fast domain"
    if case.staged_gain < LEAST_GAIN:
        return (
            f"{inside}: there tensor parallelism works on every token with all GPUs at once, while in stages a token "
            "waits for one after the other."
        )
    return (
        f"{inside}. The formulas put them {written_share(case.staged_gain)} ahead of the best layout without stages on "
        "as many GPUs, but no published measurement of stages in such a domain bears that out; on cards without fast "
        f"links eight stages delivered {written_share(STAGES_BEYOND)} more than the formulas say."
    )


def _inside_fix(case: Case) -> str:
    """The tensor width that replaces stages inside a domain, or replicas where none does."""
    tensor, domain = whole(case.layout.tensor), case.gpu.domain
    gpus = tensor * whole(case.layout.pipeline)
    widest = widest_tensor(case, limit=min(gpus, domain))
    left = -(-gpus // widest) if 2 * widest > domain else 1
    return f"Use TP{widest} and PP{left}." if widest > tensor else "Use PP1 and replicas."


def _slots(case: Case) -> int:
    """Sequence slots of one data rank."""
    return whole(np.asarray(case.memory.slots) / np.asarray(case.layout.data))


def _slots_full(case: Case) -> bool:
    """Whether it is sequence slots that requests wait for, while there is cache for more."""
    return short_of_slots(case.memory, case.settings, layout=case.layout)


def _waits_reason(case: Case) -> str:
    """How many requests run, and which of the two is full."""
    asked, held = case.workload.concurrency, np.floor(case.memory.capacity)
    if not _slots_full(case):
        return (
            f"The KV cache holds {whole(held):,} of the {asked:,} requests at full length; the others wait."
        )
    room = "all" if np.all(held >= asked) else f"{whole(held):,}"
    return (
        f"{case.engine.label} runs {whole(case.memory.slots):,} of the {asked:,} requests at once, one in each "
        f"sequence slot; the others wait, though the KV cache has room for {room} of them."
    )


def _waits_fix(case: Case) -> str:
    """More slots where these are full; more cache where that is."""
    if not _slots_full(case):
        return "Use more GPUs per replica, a smaller KV format, or replicas."
    asked = case.workload.concurrency
    held = whole(np.floor(np.minimum(case.memory.capacity, asked)))
    wanted = -(-held // whole(case.layout.data))
    step = case.settings.max_batched_tokens
    longer = case.engine.memory.slots_within_step and step and step < wanted
    also = ", and tokens of one step to as many" if longer else ""
    rest = (
        ""
        if held == asked
        else " For the others use more GPUs per replica, a smaller KV format, or replicas."
    )
    return f"Set sequence slots to {wanted:,}{slots_flag(case.engine)}{also}; each takes memory of its own.{rest}"


def _expanded(stored: Format, *, gpu: Gpu) -> bool:
    """Whether a GPU has no arithmetic for a quantised format and expands the weights on the way in."""
    return stored.bits < UNQUANTISED_BITS and gpu.expands(stored.arithmetic)


UNWISE: tuple[Rule, ...] = (
    Rule(
        "waits",
        "warning",
        lambda c: (
            (c.memory.capacity >= 1)
            & (np.minimum(c.memory.capacity, c.memory.slots) < c.workload.concurrency)
        ),
        _waits_reason,
        _waits_fix,
        "memory model",
    ),
    Rule(
        "tensor-spans",
        "warning",
        lambda c: c.layout.tensor > joined_gpus(c.gpu),
        lambda c: (
            f"TP{whole(c.layout.tensor)} reaches beyond the {joined_gpus(c.gpu)} GPUs of one node: "
            "every layer waits for all-reduces over the network."
        ),
        lambda c: (
            f"Use at most TP{widest_tensor(c, limit=joined_gpus(c.gpu))} and cut the rest by pipeline or experts."
        ),
        "vLLM parallelism_scaling.md: tensor parallel inside the node, pipeline parallel across nodes",
    ),
    Rule(
        "tensor-slow-link",
        "warning",
        lambda c: (c.layout.tensor > c.gpu.domain) & (c.layout.tensor <= c.gpu.node),
        lambda c: (
            f"{c.gpu.label} has {f'fast links to {c.gpu.domain - 1}' if c.gpu.domain > 1 else 'no fast link to any'} "
            f"other GPU: with TP{whole(c.layout.tensor)} every layer waits for all-reduces over PCIe."
        ),
        lambda c: (
            f"Compare with TP{widest_tensor(c, limit=c.gpu.domain)} and pipeline stages, which exchange far less, "
            "or with replicas."
        ),
        "vLLM parallelism_scaling.md: without NVLink prefer pipeline parallelism",
    ),
    Rule(
        "tensor-throughput",
        "warning",
        lambda c: np.asarray(c.narrower) > 0,
        lambda c: (
            f"TP{whole(c.layout.tensor)} shortens the time per token, not the work: "
            f"{whole(c.layout.tensor) // max(whole(c.narrower), 1)} replicas of TP{whole(c.narrower)} on as many GPUs "
            f"deliver at least {written_share(CLEAR_GAIN)} more tokens/s."
        ),
        lambda c: f"For throughput use replicas of TP{whole(c.narrower)}.",
        "step and serving models; vLLM optimization.md: replicas raise throughput",
    ),
    Rule(
        "pipeline-inside",
        "warning",
        lambda c: (_stages_inside(c) > 1) & ~_needless(c),
        _inside_reason,
        _inside_fix,
        "TensorRT-LLM deciding-model-sharding-strategy.md; measured stages: its perf-overview.md of 1.0",
    ),
    Rule(
        "pipeline-needless",
        "warning",
        _needless,
        lambda c: (
            f"With {whole(c.layout.pipeline)} stages it reaches over several nodes, but the model and the cache of all "
            f"{c.workload.concurrency:,} requests fit into one node of {c.gpu.node}."
        ),
        lambda c: (
            f"Use one node with TP{widest_tensor(c, limit=c.gpu.node)} and PP1, and replicas for more requests."
        ),
        "vLLM parallelism_scaling.md: one node with tensor parallelism where the model fits",
    ),
    Rule(
        "pipeline-latency",
        "warning",
        lambda c: (c.layout.pipeline > 1) & bool(np.isfinite(_target(c))),
        lambda c: (
            f"Targets down to {written_time(_target(c))} are set, and every token of a request crosses all "
            f"{whole(c.layout.pipeline)} stages one after the other: stages add room and throughput, not speed."
        ),
        always("To be faster, widen tensor parallelism within the node first."),
        "vLLM parallelism_scaling.md; Huang et al., GPipe (2019)",
    ),
    Rule(
        "bubble",
        "warning",
        lambda c: (c.layout.pipeline > 1) & (c.workload.concurrency < c.layout.pipeline * c.layout.data),
        lambda c: (
            f"{counted(c.workload.concurrency, 'request')} cannot keep "
            f"{whole(c.layout.pipeline)} stages{' of every data rank' * (whole(c.layout.data) > 1)} busy."
        ),
        always("Use fewer stages or more concurrent requests."),
        "Huang et al., GPipe (2019)",
    ),
    Rule(
        "data-idle",
        "warning",
        lambda c: (c.layout.data > 1) & (c.workload.concurrency < c.layout.data),
        lambda c: (
            f"{counted(c.workload.concurrency, 'request')} leave some of the "
            f"{whole(c.layout.data)} attention replicas without work."
        ),
        always("Use fewer data ranks or more concurrent requests."),
        "definition of attention data parallelism",
    ),
    Rule(
        "experts-uneven",
        "warning",
        lambda c: experts_uneven(c) & (not even_experts(c)) & (c.layout.expert <= max(copies(c), 1)),
        lambda c: (
            f"{copies(c)} experts over {whole(c.layout.expert)} groups: some GPUs hold "
            f"{-(-copies(c) // whole(c.layout.expert))} of a layer, others {copies(c) // whole(c.layout.expert)}, "
            "and the fuller ones set the pace."
        ),
        even_fix,
        "vLLM determine_expert_map: the remainder goes to the first ranks",
    ),
    Rule(
        "experts-refined",
        "warning",
        experts_refined,
        lambda c: (
            f"Experts of width {listed(expert_widths(c))} cut {whole(c.layout.expert_tensor)} ways are not whole "
            f"quantisation blocks of {block_of(c, 'routed_experts')}: vLLM 0.33 makes finer blocks, which only Triton "
            "kernels take; earlier versions refuse to load."
        ),
        whole_experts_fix,
        "vLLM fused_moe/oracle/fp8.py of 0.33; issue #25292 and PR #48173 for earlier ones",
    ),
    Rule(
        "copies-of-none",
        "warning",
        lambda c: (c.settings.redundant_experts > 0) & (experts(c) == 0),
        lambda c: (
            f"{c.transformer.name} has no experts, so {c.settings.redundant_experts} redundant ones do nothing."
        ),
        always("Ask for no redundant experts."),
        "definition of a mixture of experts",
    ),
    Rule(
        "kv-repeated",
        "warning",
        lambda c: c.layout.tensor > c.transformer.least_kv_heads * c.layout.decode_context,
        lambda c: (
            f"TP{whole(c.layout.tensor)} is wider than the KV heads: each part of the KV cache is kept "
            f"{whole(c.layout.tensor) / c.transformer.least_kv_heads / whole(c.layout.decode_context):g} times."
        ),
        always(
            "Use attention data parallelism, decode-context parallelism or a smaller tensor width for more KV."
        ),
        "vLLM context_parallel_deployment.md",
    ),
    Rule(
        "decode-context-sparse",
        "warning",
        lambda c: (
            (c.layout.decode_context > 1)
            & (c.engine.family == "vllm")
            & any(isinstance(b.mixer, Latent) and bool(b.mixer.sparse_top_k) for b in c.transformer.blocks)
        ),
        lambda c: (
            f"GLM-5.3 with DCP4 wrote random tokens on vLLM 0.29 and crashed on 0.28, after it had been right on 0.27; "
            f"{c.transformer.name} has the same kind of attention, and nobody has reported a mend."
        ),
        always("Compare its answers with those of DCP1 before you rely on them."),
        "vLLM issue 54300, open when read on 2026-11-30",
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
    Rule(
        "half-precision",
        "warning",
        lambda c: ("bf16" not in c.gpu.peaks) & any(f.name == "bf16" for f in c.precision.weights.values()),
        lambda c: (
            f"{c.gpu.label} has no bf16: engines run what is stored in bf16 in fp16, whose range is smaller."
        ),
        always(
            "Nothing to do for most models; some (Gemma 2 and 3) are run in fp32 instead, at twice the bytes."
        ),
        "vLLM config/model.py: falling back to float16 below compute capability 8.0; SGLang model_runner.py",
    ),
    Rule(
        "state-slots",
        "warning",
        lambda c: (
            c.engine.name in ("vllm", "vllm-0.17")
            and not c.settings.eager
            and (c.memory.pool > 0) & (c.memory.states * c.layout.data < c.memory.slots)
        ),
        lambda c: (
            f"{c.engine.label} records CUDA graphs only with a recurrent state for every sequence slot: "
            f"{_slots(c):,} slots, but {whole(c.memory.states):,} states fit. It does not start."
        ),
        lambda c: (
            f"Set sequence slots to {whole(c.memory.states):,} or fewer{slots_flag(c.engine)}"
            f"{'' if c.settings.max_num_seqs else ', as the launch command does'}; it also frees memory."
        ),
        "vLLM config/compilation.py, pull request 38270: max_num_seqs exceeds available Mamba cache blocks",
    ),
    Rule(
        "context-length",
        "warning",
        lambda c: c.workload.length > c.transformer.context_length,
        lambda c: (
            f"Requests of {c.workload.length:,} tokens exceed the {c.transformer.context_length:,} the model was "
            "made for; engines refuse them unless told otherwise."
        ),
        lambda c: (
            f"Keep prompt and output within {c.transformer.context_length:,} tokens, or stretch the positions."
        ),
        "vLLM config/model.py: max_model_len against max_position_embeddings",
    ),
)
"""What starts, and is a poor choice or deserves a word."""
