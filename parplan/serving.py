"""Serving at fixed concurrency: what users feel and what a replica delivers when prompts and decoding share it.

With a pipeline, as many micro-batches as stages are under way, and none overtakes another: a chunk of a prompt holds up
all that come behind it, and those before it come round and catch up with it. A step below crosses all stages, and a
round of the pipeline is one step of every micro-batch.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.hardware import Hardware
from parplan.layout import Layout
from parplan.memory import Settings, limits
from parplan.placement import Placement
from parplan.step import Step, decode_step, prefill_step
from parplan.transformer import Transformer
from parplan.units import Count, Number, Seconds, Tokens, TokensPerSecond
from parplan.workload import Workload

DEFAULTS = Settings()
TINY = 1e-12
"""A share that stands for none where it divides."""


@dataclass(frozen=True)
class Prefill:
    """One prompt's way through prefill, on one attention replica, and what company costs it."""

    chunks: Count
    """Steps it fills; the last one may be filled in part."""
    latency: Seconds
    """All of them on an idle replica."""
    alone: Seconds
    """How much longer one chunk on one attention replica, and none on the others, makes a step ..."""
    one: Seconds
    """... one with a chunk on every one ..."""
    full: Seconds
    """... and one with as many on every one as the engine's step size holds ..."""
    most: Count
    """... which is this many, the last one in part."""
    shared: Seconds
    """What a chunk has in common with the decode step it rides on, and is spent once."""
    replicas: Count
    """Attention replicas; they take every step together."""
    stages: Count
    """Of the pipeline."""
    together: Number
    """Share of chunks that come to all of them in the same step."""

    def stretch(self, rate: Count) -> Number:
        """How many times longer a chunk holds up others than it takes in one stage; from 1 to the number of stages.

        No micro-batch overtakes another, so a round takes the longest way through steps and stages: with one step from
        stage to stage, or in one stage from step to step. Steps with a chunk are met in all stages where they are rare;
        where every step has one they overlap, and the time in one stage is what counts.

            1 + (stages - 1) / chunks x (1 - rate / most) / (1 + (stages - 1) prompts / sqrt(1 + prompts)),
            prompts = rate / chunks

        Derived here, held against a simulated pipeline in the tests. For prompts of one chunk, at most one in a step,
        it is the way that stays with a chunk through all stages and goes on behind it: stages / (1 + (stages - 1)
        rate). Chunks of a prompt follow each other and overlap; many prompts of a step swing by their square root.

        Args:
            rate: chunks per step.

        >>> one = Prefill(1, 0, 0, 1, 1, 1, 0, replicas=1, stages=8, together=0)
        >>> [round(float(one.stretch(rate)), 2) for rate in (0.0, 0.125, 1.0)]
        [8.0, 4.36, 1.0]
        """
        behind, prompts = (self.stages - 1) / self.chunks, rate / self.chunks
        free = np.maximum(1 - rate / self.most, 0.0)
        return 1 + behind * free / (1 + behind * rate / np.sqrt(1 + prompts))

    def time(self, chunks: Count) -> Seconds:
        """How much longer chunks make a step: packed into steps, between one and full in proportion.

        Args:
            chunks: for every attention replica.
        """
        packed = np.clip(chunks, 1.0, self.most)
        each = (self.full - self.one) / np.maximum(self.most - 1.0, 1.0)
        return (self.one + (packed - 1.0) * each) * (chunks / packed)

    def apart(self, rate: Count) -> Seconds:
        """How much longer a decode step takes, in the mean, where chunks come to each replica by itself.

        A step that one replica has a chunk in is long for all of them, however few others do. Below one chunk per step
        and replica

            often  1 - (1 - rate)^replicas, of steps have a chunk somewhere
            busy   rate x replicas / often, replicas that have one then
            time   often, paced x (alone + (busy - 1) / (replicas - 1) (one - alone))

        Args:
            rate: chunks per decode step and attention replica.
        """
        some = np.minimum(rate, 1.0)
        each = (self.one - self.alone) / np.maximum(self.replicas - 1, 1)
        often = self.often(rate)
        few = often * (self.alone - each) + some * self.replicas * each
        longer = np.minimum(self.stretch(often), 1 / np.maximum(often, TINY))
        more = self.time(np.maximum(self.paced(often), 1.0)) - self.one
        return np.where(rate < 1, few * longer + more, self.time(self.paced(rate)))

    @property
    def met(self) -> Number:
        """Of what others' prompts add to a decode step, the part that a newcomer waits for."""
        return 1 - (1 - 1 / np.asarray(self.stages)) / self.most

    def riding(self, *, steps: Count) -> "Prefill":
        """The same where what is spent once with the decode step is taken off, for all but a request's own first one.

        Args:
            steps: of a request.
        """
        once = (1 - 1 / steps) * self.shared
        return replace(self, alone=self.alone - once, one=self.one - once, full=self.full - once, shared=0.0)

    def often(self, rate: Count) -> Number:
        """Share of steps in which some replica has a chunk; `rate` as in `apart`."""
        return 1 - (1 - np.minimum(rate, 1.0)) ** self.replicas

    def paced(self, rate: Count) -> Count:
        """Chunks of the steps that set the pace of a pipeline, in the mean; `rate` as in `stretch`."""
        return rate * self.stretch(rate)

    def held_up(self, *, beside: Count, everywhere: Count) -> Seconds:
        """How much longer a decode step takes, in the mean, because chunks of other requests ride on it.

            together x time of those beside, paced + (1 - together) x time of all, apart

        Args:
            beside: chunks per decode step of a micro-batch, of requests on the same attention replica.
            everywhere: of requests on any, for each replica.
        """
        return self.together * self.time(self.paced(beside)) + (1 - self.together) * self.apart(everywhere)

    def saved(self, *, beside: Count, everywhere: Count) -> Seconds:
        """What a decode step and the chunks that ride on it spend once, in the mean; as in `held_up`."""
        often = np.minimum(self.paced(self.often(everywhere)), 1.0)
        share = self.together * np.minimum(self.paced(beside), 1.0) + (1 - self.together) * often
        return share * self.shared


@dataclass(frozen=True)
class Serving:
    """A replica with a fixed number of requests always in hand. Times are means; [layouts, batches]."""

    running: Count
    """Requests being answered at once."""
    waiting: Count
    """Requests waiting for room in the cache or for a free slot."""
    ttft: Seconds
    """Time to first token, waiting included."""
    tpot: Seconds
    """Time per output token after the first."""
    decode: Step
    """The decode step, for each token it yields to a request; its total and `prefill` sum to `tpot`."""
    prefill: Seconds
    """What other requests' prompts add to every output token."""
    burst: Seconds
    """How much longer the mean request waits when all clients send their first prompt at the same moment."""
    requests_per_s: Number
    tokens_per_s: TokensPerSecond
    """Output tokens of the whole replica."""
    tokens_per_s_per_user: TokensPerSecond
    """Output tokens one running request sees after its first."""
    tokens_per_s_per_gpu: TokensPerSecond
    kept: Count
    """Tokens a decode step yields to a request."""
    riding: Prefill
    """A prompt; its steps hold up others by what they do not spend together with the decode step they ride on."""

    @property
    def queued(self) -> Seconds:
        """Mean time a request waits for room in the cache or for a free slot, a part of `ttft`, by Little's law."""
        return self.waiting / self.requests_per_s


class Chunked(NamedTuple):
    """A prompt as an engine cuts it up."""

    new: Tokens
    """Tokens the prefix cache does not hold."""
    chunks: Count
    tokens: Tokens
    """Of one chunk."""
    prior: Tokens
    """In the cache already when a chunk comes, in the mean."""


def chunked(workload: Workload, *, step_tokens: Count) -> Chunked:
    """A prompt in chunks of a whole step's tokens, the last one a part of a chunk; the prefix cache's part is skipped.

    One token more than a step holds is a chunk more by one token's share, so that no time jumps, or falls, where a
    prompt grows beyond a step.
    """
    new = workload.new_tokens
    chunks = np.maximum(new / step_tokens, 1.0)
    tokens = new / chunks
    return Chunked(new, chunks, tokens, workload.prompt - new + (new - tokens) / 2)


def prefill(
    transformer: Transformer, *, at: Placement, workload: Workload, step_tokens: Tokens, decode: Step
) -> Prefill:
    """One prompt's prefill, in chunks of the engine's step size; what the prefix cache holds is skipped.

    A pipeline works on several chunks at once. Where the engine mixes prompts into decode steps, kernels are launched
    once for both and in time, and arithmetic that waits for weights in decode works on the prompt meanwhile.

        latency  step with one chunk x (1 + (chunks - 1) / stages) + what launching takes of the last step's empty part
        one      step with one chunk - mixed x what launching one by one adds
        shared   mixed x (launches + arithmetic idle in decode)

    Args:
        step_tokens: most tokens of one step.
        decode: the step its chunks ride on.
    """
    stages = np.asarray(at.layout.pipeline)
    cut = chunked(workload, step_tokens=step_tokens)
    chunks, most = cut.chunks, np.maximum(1.0, step_tokens / cut.new)
    data = np.asarray(at.layout.data)
    # [3, layouts, 1]: one chunk on every attention replica, as many as a step holds on every one, one on a single one
    step = prefill_step(
        transformer,
        at=at,
        tokens=cut.tokens,
        prior=cut.prior,
        prompts=np.stack(np.broadcast_arrays(1.0, most, 1.0 + 0 * data)),
        busy=np.stack([data, data, np.ones_like(data)]),
    )
    one, full, alone = np.asarray(step.total)
    mixed = at.speed.mixed
    eager = mixed * (step.launch - decode.launch)
    unfilled = (np.ceil(chunks) - chunks) * (step.launch + step.engine)
    hidden = np.minimum(decode.idle, np.asarray(step.linear + step.experts)[0])
    return Prefill(
        chunks=chunks,
        latency=one * (1 + (chunks - 1) / stages) + unfilled / stages,
        alone=alone - eager,
        one=one - eager,
        full=full - eager,
        most=most,
        shared=mixed * (hidden + decode.launch + step.engine),
        replicas=data,
        stages=stages,
        together=at.speed.together,
    )


def serve(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Hardware,
    engine: Engine,
    workload: Workload,
    concurrency: Count,
    capacity: Count,
    settings: Settings = DEFAULTS,
) -> Serving:
    """A closed loop: `concurrency` clients that each send the next request when the last one is answered.

    Of these, as many run as the KV pool and the engine's slots hold; the rest waits. While a request decodes, the
    prompts of the others pass through, on its attention replica and on those that step with it. A step yields t tokens
    to a request, more than one where tokens are drafted:

        s     1 + (output - 1) / t, steps of a request
        b     (running / data - 1) chunks / s / stages, chunks beside it per decode step of a micro-batch
        e     (running - 1) / data chunks / s / stages, chunks everywhere, for each replica
        tpot  (decode + held up by b, e - (1 - 1 / s) saved by b, e) / t
        ttft  waiting + prefill + (1 + (started chunks - 1/2) / stages) decode steps, as far as others decode + what
              their prompts add to a token x (1 - (1 - 1 / stages) / prompts a step takes, at least one)

    In a pipeline a newcomer rides on the next micro-batch. Prompts before it are a stage ahead of it in all stages;
    those that ride on the same step hold it up as long as others.

    Args:
        concurrency: [batches].
        capacity: requests of full length the KV pool holds, [layouts, 1] or broadcastable; may be infinite.
        settings: slots and tokens of a step, where the user sets them.
    """
    told = limits(settings, profile=engine.memory, gpu=gpu, layout=layout, length=workload.length)
    slots = told.sequences * np.asarray(layout.data)
    running = np.maximum(1.0, np.minimum(concurrency, np.minimum(capacity, slots)))
    at = Placement(precision, layout, gpu, engine)
    decode = decode_step(transformer, at=at, batch=running, length=workload.mean_length, draft=workload.draft)
    prompt = prefill(transformer, at=at, workload=workload, step_tokens=told.batched_tokens, decode=decode)
    others = np.maximum(running / np.asarray(layout.data) - 1, 0.0)
    kept = workload.tokens_per_step
    steps = 1 + (workload.output - 1) / kept
    stages = np.asarray(layout.pipeline)
    passing = {
        "beside": others * (prompt.chunks / steps) / stages,
        "everywhere": (running - 1) / np.asarray(layout.data) * (prompt.chunks / steps) / stages,
    }
    shared = prompt.held_up(**passing) - (1 - 1 / steps) * prompt.saved(**passing)
    tpot = (decode.total + shared) / kept
    after_first = (workload.output - 1) * decode.total / kept
    company = np.minimum(
        others / 2, others / (others + 1)
    )  # some of the replicas have two while others have one
    decoding = company * after_first / (prompt.latency + after_first)
    first = (
        prompt.latency
        + decoding * (1 + (np.ceil(prompt.chunks) - 0.5) / stages) * decode.total
        + shared * prompt.met
    )
    requests_per_s = running / (first + (workload.output - 1) * tpot)
    waiting = np.maximum(concurrency - running, 0.0)
    together = np.minimum(np.floor(prompt.most), others + 1)
    each = prompt.chunks * prompt.time(together) / together / stages
    tokens_per_s = requests_per_s * workload.output
    return Serving(
        running=running,
        waiting=waiting,
        ttft=first + waiting / requests_per_s,
        tpot=tpot,
        decode=decode if kept == 1 else decode.per(kept),
        prefill=shared / kept,
        burst=((others + 1 + together) / 2 - 1) * each,
        requests_per_s=requests_per_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_user=1 / tpot,
        tokens_per_s_per_gpu=tokens_per_s / layout.gpus,
        kept=kept,
        riding=prompt.riding(steps=steps),
    )


def ttft_of_benchmark(serving: Serving, *, waves: float, polled: Count = 1) -> Seconds:
    """Mean time to first token when a benchmark starts all its clients at once and sends `waves` requests through each.

        ttft + burst / waves + (polled - 1) / 2 x time per output token

    Prompts of the first wave queue behind each other; later ones are spread out. InferenceX and vLLM's benchmark
    script work like this (ten waves in InferenceX). Newcomers wait until the engine looks for them, half of the time
    from one look to the next, and queue behind those that came meanwhile, which is in the time per token.

    Args:
        polled: decode steps from one look to the next. 1: the engine looks in every step, as all do by default.

    Source: SGLang `--scheduler-recv-interval` (scheduler_recv_skipper.py: decode steps count one, a prompt ends the
    wait), read 2026-11-30.
    """
    return serving.ttft + serving.burst / waves + (polled - 1) / 2 * serving.tpot
