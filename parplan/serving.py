"""Serving at fixed concurrency: what users feel and what the replica delivers when decode and prefill share the GPUs."""

from dataclasses import dataclass

import numpy as np

from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import tier_value
from parplan.step import Step, decode_step, prefill_step
from parplan.transformer import Transformer
from parplan.units import Count, Number, Seconds, TokensPerSecond
from parplan.workload import Workload


@dataclass(frozen=True)
class Prefill:
    """One prompt's way through prefill."""

    latency: Seconds
    """Alone on an idle replica."""
    share: Seconds
    """What it adds to the decode steps it rides on."""
    chunks: Count
    """Steps it takes."""
    packed: Seconds
    """Its part of a step filled with as many such prompts as the engine's step size takes ..."""
    prompts: Count
    """... which is this many."""


@dataclass(frozen=True)
class Serving:
    """A replica with `concurrency` requests always in hand. Per-token times are means; [layouts, batches]."""

    running: Count
    """Requests decoding at once."""
    waiting: Count
    """Requests waiting for room in the cache or for a free slot."""
    ttft: Seconds
    """Time to first token."""
    burst: Seconds
    """What the mean request waits longer when all clients send their first prompt at the same moment."""
    tpot: Seconds
    """Time per output token after the first."""
    decode: Step
    """The decode step; its total and `prefill` sum to `tpot`."""
    prefill: Seconds
    """What the prefill of other requests adds to every output token."""
    requests_per_s: Number
    tokens_per_s: TokensPerSecond
    """Output tokens of the whole replica."""
    tokens_per_s_per_user: TokensPerSecond
    """Output tokens one running request sees after its first."""
    tokens_per_s_per_gpu: TokensPerSecond


def prefill(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    workload: Workload,
    decode: Step,
) -> Prefill:
    """One prompt's prefill in chunks of the engine's step size; what the prefix cache holds is skipped.

    Chunks of one prompt follow each other through the pipeline. Where the engine mixes prompt tokens into decode
    steps, the weights are read and the kernels launched once for both.

        latency  chunk time (1 + (chunks - 1) / stages)
        share    chunks (chunk time / stages - mixed x what the decode step has paid for)
    """
    speed, stages = engine.speed, np.asarray(layout.pipeline)
    new = np.maximum(1.0, workload.prompt * (1 - workload.prefix_hit))
    most = tier_value(engine.memory.batched_tokens, gpu=gpu)
    chunks, prompts = np.ceil(new / most), np.maximum(np.floor(most / new), 1.0)
    tokens = new / chunks
    one = prefill_step(
        transformer, precision, layout=layout, gpu=gpu, engine=engine,
        tokens=tokens, prior=workload.prompt - new + (new - tokens) / 2,
    )  # fmt: skip
    full = prefill_step(
        transformer, precision, layout=layout, gpu=gpu, engine=engine,
        tokens=tokens, prior=workload.prompt - new + (new - tokens) / 2, prompts=prompts,
    )  # fmt: skip
    paid = one.launch + speed.step + np.minimum(decode.linear, one.linear) + np.minimum(decode.experts, one.experts)
    return Prefill(
        latency=one.total * (1 + (chunks - 1) / stages),
        share=chunks * np.maximum(one.total - speed.mixed * paid, 0.0) / stages,
        chunks=chunks,
        packed=full.total * chunks / prompts / stages,
        prompts=prompts,
    )


def serve(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    workload: Workload,
    concurrency: Count,
    capacity: Count,
) -> Serving:
    """A closed loop: `concurrency` clients that each send the next request when the last one is answered.

    Of these, as many run as the KV pool and the engine's slots hold; the rest waits. While a request decodes, the
    prompts of the others pass through:

        tpot  decode step + (running / data - 1) x prefill share / output
        ttft  waiting + half a step + prefill + one decode step per chunk

    Args:
        concurrency: [batches].
        capacity: requests of full length the KV pool holds, [layouts, 1] or broadcastable; may be infinite.
    """
    slots = tier_value(engine.memory.sequences, gpu=gpu) * np.asarray(layout.data)
    running = np.maximum(1.0, np.minimum(concurrency, np.minimum(capacity, slots)))
    decode = decode_step(
        transformer, precision, layout=layout, gpu=gpu, engine=engine, batch=running, length=workload.mean_length
    )
    prompt = prefill(
        transformer, precision, layout=layout, gpu=gpu, engine=engine, workload=workload, decode=decode
    )
    others = np.maximum(np.ceil(running / np.asarray(layout.data)) - 1, 0.0)
    shared = others * prompt.share / workload.output
    tpot = decode.total + shared
    busy = np.minimum(1.0, others)
    first = prompt.latency + busy * (0.5 + prompt.chunks) * tpot
    cycle = first + (workload.output - 1) * tpot
    requests_per_s = running / cycle
    waiting = np.maximum(concurrency - running, 0.0)
    tokens_per_s = requests_per_s * workload.output
    return Serving(
        running=running,
        waiting=waiting,
        ttft=first + waiting / requests_per_s,
        burst=np.maximum((others + 1 + np.minimum(prompt.prompts, others + 1)) / 2 - 1, 0) * prompt.packed,
        tpot=tpot,
        decode=decode,
        prefill=shared,
        requests_per_s=requests_per_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_user=1 / tpot,
        tokens_per_s_per_gpu=tokens_per_s / layout.gpus,
    )


def ttft_with_burst(serving: Serving, *, waves: float) -> Seconds:
    """Mean time to first token of a benchmark that starts all clients at once and sends `waves` requests through each.

    The first wave's prompts queue behind each other, (running - 1) / 2 of them on average; later waves are spread out.
    """
    return serving.ttft + serving.burst / waves
