"""What is worth judging: layouts within the GPU budget, and numbers of requests in hand."""

from dataclasses import replace
from math import gcd

import numpy as np

from parplan.layout import Layout
from parplan.objections import divisors
from parplan.problem import Problem
from parplan.transformer import Transformer
from parplan.units import Counts
from parplan.workload import Workload

LONG_PROMPT = 32_768
"""Prompt tokens from which context parallelism is tried on its own account."""


def sizes(limit: int) -> Counts:
    """Group sizes worth trying up to a limit: powers of two, three and nine times them (nodes of 8, racks of 72).

    >>> sizes(24).tolist()
    [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24]
    """
    powers = 2 ** np.arange(int(limit).bit_length())
    found = np.unique(np.concatenate([powers, 3 * powers, 9 * powers]))
    return found[found <= limit]


def tensor_widths(transformer: Transformer, *, limit: int) -> Counts:
    """Tensor widths worth judging: powers of two, and every other width that divides all attention heads."""
    others = divisors(gcd(*transformer.heads), limit=limit)
    return np.union1d(2 ** np.arange(int(limit).bit_length()), others)


def data_sizes(problem: Problem) -> Counts:
    """How often attention may be repeated: besides the usual sizes what divides the experts with their copies, and
    what divides the budget (five nodes of eight are 40)."""
    limit, more = problem.budget, problem.settings.redundant_experts
    counts = {block.experts.count + more for block in problem.transformer.blocks if block.experts}
    even = [size for count in (*sorted(counts), limit) for size in divisors(count, limit=limit)]
    return np.union1d(sizes(limit), np.array(even, dtype=np.int64))


def stage_counts(problem: Problem) -> Counts:
    """Pipeline stages worth judging: besides the usual counts what divides the budget's nodes; at most the layers."""
    nodes = max(problem.budget // problem.gpu.node, 1)
    counts = np.union1d(sizes(problem.budget), divisors(nodes, limit=nodes))
    return counts[counts <= len(problem.transformer.sequence)]


def candidate_layouts(problem: Problem) -> Layout:
    """Every combination of cuts worth judging within the GPU budget, as one layout of arrays [layouts].

    Leaves out what only renames another layout: expert groups need experts, attention repeated `data` times without
    experts is a replica, decode-context parallelism needs ranks that repeat KV heads. Sizes are powers of two, three
    and nine times them, and what divides heads, experts with their copies, or the budget. Experts are cut by all GPUs
    or spread whole over all of them, and in between where the engine can. Context parallelism is tried for prompts of
    32,768 tokens and more. Legal or not is judged later, so that a reason can be shown. When what the user fixed needs
    more GPUs than the budget, the smallest such layouts are judged all the same.
    """
    limit, moe, one = problem.budget, problem.transformer.is_moe, np.array([1])
    choices = {
        "tensor": tensor_widths(problem.transformer, limit=limit),
        "data": data_sizes(problem) if moe else one,
        "pipeline": stage_counts(problem),
        "context": sizes(limit) if problem.workload.prompt >= LONG_PROMPT else one,
    } | {name: np.array([size]) for name, size in problem.fixed.items() if name != "expert"}
    axes = np.meshgrid(*choices.values(), indexing="ij")
    layout = Layout(**dict(zip(choices, (axis.ravel() for axis in axes), strict=True)))
    layout = layout[layout.gpus <= max(limit, np.min(layout.gpus))]
    layout = _with_experts(layout, problem)
    layout = _with_decode_context(layout, problem)
    keys = (layout.expert, layout.data, layout.pipeline, layout.tensor, layout.gpus)
    return layout[np.lexsort(np.stack([np.broadcast_to(key, layout.shape) for key in keys]))]


def _with_experts(layout: Layout, problem: Problem) -> Layout:
    """Layouts once for every way to spread experts."""
    if (fixed := problem.fixed.get("expert")) is not None:
        divided = layout[layout.width % fixed == 0] if problem.transformer.is_moe else layout
        return replace(divided if divided.shape[0] else layout, expert=np.asarray(fixed))
    if not problem.transformer.is_moe:
        return layout
    spread = [replace(layout, expert=np.asarray(1)), replace(layout, expert=layout.width)[layout.width > 1]]
    if problem.engine.mixed_experts:
        groups = (size for size in data_sizes(problem).tolist() if size > 1)
        spread += [
            replace(layout, expert=np.asarray(size))[(layout.width % size == 0) & (layout.width > size)]
            for size in groups
        ]
    return Layout.joined(spread)


def _with_decode_context(layout: Layout, problem: Problem) -> Layout:
    """Layouts with the cache cut along the sequence too, wherever ranks would repeat it and the engine can.

    It is cut as many ways as ranks repeat it, or, where these reach over nodes, as many as sit in one.
    """
    if "decode_context" in problem.fixed or "decode_context" not in problem.engine.cuts:
        return layout
    repeats = np.maximum(np.asarray(layout.tensor) // problem.transformer.least_kv_heads, 1)
    inside = np.gcd(repeats, problem.gpu.node)
    return Layout.joined(
        [
            layout,
            replace(layout, decode_context=repeats)[repeats > 1],
            replace(layout, decode_context=inside)[(inside > 1) & (inside < repeats)],
        ]
    )


def batches(workload: Workload, *, points: int = 32) -> Counts:
    """Concurrencies to plan for: powers of the square root of two from one up, with the asked one among them.

    >>> batches(Workload(concurrency=48), points=8).tolist()
    [1, 2, 3, 4, 6, 8, 11, 48]
    """
    grid = np.unique(np.round(2 ** (np.arange(2 * points) / 2)).astype(np.int64))[: points - 1]
    return np.unique(np.append(grid, workload.concurrency))


def deciding_batches(problem: Problem) -> Counts:
    """Batches a recommendation depends on: the asked one alone, unless the objective fills replicas up, or a rate finds
    them with any number of requests in hand."""
    if problem.objective == "throughput" or problem.counts_fleets:
        return batches(problem.workload)
    return np.array([problem.workload.concurrency])
