"""Prefill and decode on pools of their own: two layouts, rate-matched, with the cache sent from one to the other.

Every replica of either pool holds a full copy of the model. Prompts no longer interrupt decode steps; instead their
cache crosses the links. Shapes: prefill layouts [P, 1, 1], decode layouts [D, 1], batches [B]; results [P, D, B].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parplan.calibration import Engine
from parplan.collectives import NETWORK_HOP, hop_time, network_bandwidth, pair_bandwidth
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings, limits, memory
from parplan.placement import Placement
from parplan.serving import chunked
from parplan.step import Step, decode_step, prefill_step
from parplan.transformer import Transformer
from parplan.units import Array, Bytes, BytesPerSecond, Count, Number, Seconds, TokensPerSecond
from parplan.work import cache_bytes, cache_share
from parplan.workload import Workload

DEFAULTS = Settings()
SATURATED = 0.9
"""Share of its best rate from which a prefill step is full enough: more prompts would only wait for each other."""
SLACK = 0.1
"""Share by which the slower pool may fall behind the faster one."""
MOST_REPLICAS = 32
"""Most replicas of a pool that are tried to make the rates match."""


@dataclass(frozen=True)
class Prefilling:
    """What one prefill replica does, [P, 1, 1]."""

    prompts: Count
    """Prompts one attention replica packs into a step."""
    chunks: Count
    """Steps one prompt takes."""
    latency: Seconds
    """A prompt's way through when nothing waits before it."""
    rate: Number
    """Prompts per second."""


@dataclass(frozen=True)
class Pools:
    """One kind of deployment in two pools, at its smallest size with matching rates. Times are means; [P, D, B]."""

    prefill_replicas: Count
    """x of xPyD."""
    decode_replicas: Count
    """y of xPyD."""
    gpus: Count
    """GPUs of both pools."""
    prompts: Count
    """Prompts one attention replica packs into a prefill step."""
    running: Count
    """Requests one decode replica answers at once."""
    prefill: Seconds
    """A prompt's way through an idle prefill replica."""
    transfer: Seconds
    """Sending a prompt's cache, the part hidden behind the prefill of later chunks included."""
    exposed: Seconds
    """What of it delays the first token."""
    decode: Step
    """The decode step, for each token it yields to a request."""
    step: Seconds
    """The whole decode step, which brings the first token."""
    tpot: Seconds
    """Time per output token after the first: decode steps and nothing else."""
    prefill_rate: Number
    """Prompts per second all prefill replicas can do."""
    decode_rate: Number
    """Requests per second all decode replicas can do."""
    requests_per_s: Number
    tokens_per_s: TokensPerSecond
    """Output tokens of both pools together."""
    tokens_per_s_per_gpu: TokensPerSecond
    """Output tokens over all GPUs, those that prefill included."""
    prefill_memory: Memory
    """[P, 1, 1]"""
    decode_memory: Memory
    """[D, B]"""

    @property
    def ttft(self) -> Seconds:
        """Time to first token: prefill, what transfer cannot hide, and the first decode step."""
        return self.prefill + self.exposed + self.step

    @property
    def tokens_per_s_per_user(self) -> TokensPerSecond:
        """Output tokens one request sees after its first."""
        return 1 / self.tpot

    def best(
        self, *, ttft: Seconds = np.inf, tpot: Seconds = np.inf, allowed: Any = True
    ) -> tuple[int, ...] | None:
        """Where most tokens per second and GPU come out, of what fits and is in time, [P, D, B]; None: nothing is.

        Args:
            ttft, tpot: limits, seconds.
            allowed: pairs an engine can connect, whatever broadcasts to [P, D, B].
        """
        good = self.fits & (np.asarray(self.ttft) <= ttft) & (np.asarray(self.tpot) <= tpot) & allowed
        rate = np.where(good, self.tokens_per_s_per_gpu, -np.inf)
        if not good.any():
            return None
        return tuple(int(place) for place in np.unravel_index(rate.argmax(), rate.shape))

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Both engines come up, and hold the prompts of a step and a request."""
        prefills = self.prefill_memory.starts & (self.prefill_memory.capacity >= 1)
        decodes = self.decode_memory.starts & (self.decode_memory.capacity >= 1)
        return np.asarray(prefills & decodes)


def sent_bytes(transformer: Transformer, precision: Precision, *, layout: Layout, prompt: Count) -> Bytes:
    """Cache bytes of one prompt on the fullest rank of its attention replica: what that GPU sends or receives.

    all layers' cache x share of a tensor rank / pipeline stages
    """
    held = sum(
        count * cache_share(block.mixer, layout=layout) * cache_bytes(block.mixer, precision, length=prompt)
        for count, block in transformer.kinds
        if block.mixer
    )
    return np.asarray(held / np.asarray(layout.pipeline))


def transfer_time(
    sent: Bytes, *, received: Bytes, source: Gpu, target: Gpu, near: NDArray[np.bool_], engine: Engine
) -> Seconds:
    """Time to send one prompt's cache from a prefill to a decode replica, rank by rank at the same time.

        start + max(sent / source bandwidth, received / target bandwidth)

    Args:
        sent: bytes a prefill GPU sends.
        received: bytes a decode GPU receives.
        near: whether one replica of each pool shares a fast domain; else every GPU uses its network adapter.

    Source: rank-to-rank transfers are those of NIXL (vLLM, Dynamo, TensorRT-LLM) and Mooncake (SGLang).
    """

    def seconds(amount: Bytes, gpu: Gpu) -> Seconds:
        link: BytesPerSecond = engine.speed.link * pair_bandwidth(gpu)
        return amount / np.where(near, link, network_bandwidth(gpu=gpu, speed=engine.speed))

    start = np.where(near, 2 * hop_time(gpu=source, speed=engine.speed), NETWORK_HOP * engine.speed.latency)
    return start + np.maximum(seconds(sent, source), seconds(received, target))


def exposed_time(transfer: Seconds, *, prefill: Seconds, chunks: Count) -> Seconds:
    """What of a transfer delays the first token: chunks are sent while later ones are computed, the last is not.

        max(transfer / chunks, transfer - prefill (1 - 1 / chunks))

    >>> float(exposed_time(4.0, prefill=100.0, chunks=4)), float(exposed_time(4.0, prefill=100.0, chunks=1))
    (1.0, 4.0)
    """
    return np.maximum(transfer / chunks, transfer - prefill * (1 - 1 / np.asarray(chunks)))


def matched_replicas(
    prefill_rate: Number, *, decode_rate: Number, prefill_gpus: Count, decode_gpus: Count
) -> tuple[Array, Array]:
    """Prefill and decode replicas of the smallest pair of pools whose rates match within `SLACK`.

    For every number of replicas of one pool up to `MOST_REPLICAS`, the number of the other nearest to the same rate.
    Where none matches, the pair with the highest rate per GPU.

    >>> x, y = matched_replicas(10.0, decode_rate=5.2, prefill_gpus=4, decode_gpus=8)
    >>> float(x), float(y)
    (1.0, 2.0)
    """
    prompts, requests = np.asarray(prefill_rate)[..., None], np.asarray(decode_rate)[..., None]
    prompts, requests = np.broadcast_arrays(prompts, requests)
    one = np.arange(1.0, MOST_REPLICAS + 1)
    most = float(MOST_REPLICAS)
    others = (np.clip(np.round(one * ratio), 1.0, most) for ratio in (requests / prompts, prompts / requests))
    fewer, more = (np.broadcast_arrays(one, other) for other in others)
    x = np.concatenate([fewer[1], more[0]], axis=-1)
    y = np.concatenate([fewer[0], more[1]], axis=-1)
    rates = np.stack([x * prompts, y * requests])
    gpus = x * np.asarray(prefill_gpus)[..., None] + y * np.asarray(decode_gpus)[..., None]
    matches = rates.min(axis=0) >= (1 - SLACK) * rates.max(axis=0)
    best = rates.min(axis=0) / gpus
    smallest = np.where(matches, gpus, np.inf).argmin(axis=-1)
    chosen = np.where(matches.any(axis=-1), smallest, best.argmax(axis=-1))[..., None]
    return tuple(np.take_along_axis(count, chosen, axis=-1)[..., 0] for count in (x, y))  # type: ignore[return-value]


def prefilling(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Gpu,
    engine: Engine,
    workload: Workload,
    settings: Settings,
) -> Prefilling:
    """One prefill replica with prompts always waiting.

    It packs the fewest prompts to a step that reach `SATURATED` of the best rate: more would only wait for each other.
    Stages of a pipeline work on different steps.

        latency  step (1 + (chunks - 1) / stages)
        rate     data x prompts x stages / (chunks x step)

    Args:
        layout: [P, 1, 1].
    """
    told = limits(settings, profile=engine.memory, gpu=gpu, layout=layout, length=workload.length)
    cut = chunked(workload, step_tokens=told.batched_tokens)
    chunks, most = cut.chunks, max(1, told.batched_tokens // int(np.ceil(cut.new)))
    packs = np.unique(np.append(2 ** np.arange(int(most).bit_length()), most)).astype(float)
    stages = np.asarray(layout.pipeline)
    together = packs.reshape(-1, *layout.shape[1:], 1)
    done = prefill_step(
        transformer,
        at=Placement(precision, layout, gpu, engine),
        tokens=cut.tokens,
        prior=cut.prior,
        prompts=together,
    )
    step = np.asarray(done.total)
    rate = np.asarray(layout.data) * together * stages / (chunks * step)
    enough = (rate >= SATURATED * rate.max(axis=0)).argmax(axis=0)[None]
    taken, served = (np.take_along_axis(values, enough, axis=0)[0] for values in (step, rate))
    return Prefilling(
        prompts=packs[enough[0]],
        chunks=chunks,
        latency=taken * (1 + (chunks - 1) / stages),
        rate=served,
    )


def pools(
    transformer: Transformer,
    precision: Precision,
    *,
    prefill: Layout,
    decode: Layout,
    prefill_gpu: Gpu,
    decode_gpu: Gpu,
    engine: Engine,
    workload: Workload,
    concurrency: Count,
    settings: Settings = DEFAULTS,
) -> Pools:
    """Every prefill layout beside every decode layout at every batch, each pair in its smallest matching size.

        ttft  prefill + exposed transfer + decode step
        tpot  decode step / tokens it yields
        rate  min(x prefill replicas, y decode replicas), where a decode replica answers
              running / (transfer + step + (output - 1) tpot) requests per second

    Args:
        prefill: layouts of the prefill pool, [P].
        decode: layouts of the decode pool, [D].
        concurrency: requests in hand of one decode replica, [B] or a scalar.
    """
    firsts, seconds = prefill[...].column().column(), decode[...].column()
    first = prefilling(
        transformer, precision, layout=firsts, gpu=prefill_gpu, engine=engine, workload=workload,
        settings=settings,
    )  # fmt: skip
    asked = np.maximum(1.0, np.asarray(concurrency, dtype=float))
    alone = workload.model_copy(update={"output": 1})
    filling = memory(
        transformer, precision, layout=firsts, gpu=prefill_gpu, engine=engine, workload=alone,
        concurrency=first.prompts * np.asarray(firsts.data), settings=settings,
    )  # fmt: skip
    held = memory(
        transformer, precision, layout=seconds, gpu=decode_gpu, engine=engine, workload=workload,
        concurrency=asked, settings=settings,
    )  # fmt: skip
    running = np.maximum(1.0, np.minimum(asked, np.minimum(held.capacity, held.slots)))
    step = decode_step(
        transformer,
        at=Placement(precision, seconds, decode_gpu, engine),
        batch=running,
        length=workload.mean_length,
        draft=workload.draft,
    )
    tpot = step.total / workload.tokens_per_step
    near = (prefill_gpu == decode_gpu) & (firsts.gpus + seconds.gpus <= decode_gpu.domain)
    transfer = transfer_time(
        sent_bytes(transformer, precision, layout=firsts, prompt=workload.prompt),
        received=sent_bytes(transformer, precision, layout=seconds, prompt=workload.prompt),
        source=prefill_gpu, target=decode_gpu, near=np.asarray(near), engine=engine,
    )  # fmt: skip
    exposed = exposed_time(transfer, prefill=first.latency, chunks=first.chunks)
    decode_rate = running / (exposed + step.total + (workload.output - 1) * tpot)
    x, y = matched_replicas(
        first.rate, decode_rate=decode_rate, prefill_gpus=firsts.gpus, decode_gpus=seconds.gpus
    )
    gpus = x * firsts.gpus + y * seconds.gpus
    requests_per_s = np.minimum(x * first.rate, y * decode_rate)
    return Pools(
        prefill_replicas=x,
        decode_replicas=y,
        gpus=gpus,
        prompts=first.prompts,
        running=running,
        prefill=first.latency,
        transfer=transfer,
        exposed=exposed,
        decode=step.per(workload.tokens_per_step),
        step=step.total,
        tpot=tpot,
        prefill_rate=x * first.rate,
        decode_rate=y * decode_rate,
        requests_per_s=requests_per_s,
        tokens_per_s=requests_per_s * workload.output,
        tokens_per_s_per_gpu=requests_per_s * workload.output / gpus,
        prefill_memory=filling,
        decode_memory=held,
    )
