"""Pipelines: prompts hold up decoding as in an engine simulated batch by batch, at a concurrency and at a rate."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, plan
from parplan.arrays import picked
from parplan.layout import Layout
from parplan.load import Load, knee_rate, load, prompts_per_step, queue
from parplan.serving import Prefill, Serving
from parplan.units import Count, Number

DENSE = Scenario(model="meta-llama/Llama-3.3-70B-Instruct", weights="fp8", gpu="h100-sxm", concurrency=64)
SMALL = Scenario(model="HuggingFaceTB/SmolLM3-3B", gpu="h800-sxm", concurrency=64)
CLIENT = 1e-3
"""Seconds from an answer to the next request of its client: it misses the micro-batch its last token came with."""


@dataclass(frozen=True)
class Engine:
    """What its batches take in each stage."""

    stages: int
    decode: Callable[[int], float]
    """By the requests that decode, as if all micro-batches had as many."""
    prompts: Callable[[float], float]
    """How much longer a stage takes for so many chunks."""
    chunks: float
    """Of a prompt, which fills them all but for the last."""
    most: float
    """Chunks of a step."""
    slots: int
    """Requests that run at once."""
    own: float
    """What a prompt on an idle engine takes beyond that: others spend it together with their decode steps."""


@dataclass(frozen=True)
class Seen:
    """What requests met, the first quarter not counted."""

    tpot: float
    requests_per_s: float
    stay: float
    ttft: float
    ttft_p50: float
    ttft_p95: float


@dataclass
class Request:
    sent: float
    left: float
    tokens: int
    first: float = 0.0
    yielded: int = 0


class Simulation:
    """vLLM with pipeline stages, batch by batch: first in, first out in every stage, as many batches as stages.

    While fewer are in flight, a batch is put together of all that can go on: one token for every request whose last
    one is known, and prompts in order, whole or in part, up to the tokens of a step; a prompt's next chunk follows at
    once. Where nothing can go on, or the pipeline is full, the engine waits for the oldest batch. Outputs vary by 70 %
    to either side, evenly; prompts of clients by 40 %, at a rate they are alike, as `load` takes them.

    Args:
        clients: each sends its next request when the last one is answered; 0: they come at random.
        rate: requests per second, then.

    Source: vLLM, v1/engine/core.py (`step_with_batch_queue`) and config/vllm.py (`max_concurrent_batches`), read
    2026-11-30.
    """

    def __init__(self, engine: Engine, *, output: int, clients: int, rate: float) -> None:
        self.engine, self.output, self.clients, self.rate = engine, output, clients, rate
        self.random = np.random.default_rng(1)
        self.now, self.count, self.running, self.decodes = 0.0, 0, 0, 0
        self.free = [0.0] * engine.stages
        self.flying = deque[tuple[float, list[Request]]]()
        self.coming = list[tuple[float, int, Request]]()
        self.waiting, self.prompts = deque[Request](), deque[Request]()
        self.decoding, self.done = list[Request](), list[tuple[Request, float]]()
        for _ in range(clients):
            self.send(3 * engine.stages * engine.decode(1) * self.random.random())
        if not clients:
            self.send(0.0)

    def run(self, answers: int) -> None:
        while len(self.done) < answers:
            self.let_in()
            if len(self.flying) < self.engine.stages and (self.decoding or self.prompts):
                self.put_together()
            elif self.flying:
                self.take_out()
            else:
                self.now = self.coming[0][0]

    def send(self, at: float) -> None:
        spread = 0.4 if self.clients else 0.0
        one = Request(
            sent=at,
            left=self.engine.chunks * self.random.uniform(1 - spread, 1 + spread),
            tokens=max(2, round(self.output * self.random.uniform(0.3, 1.7))),
        )
        heapq.heappush(self.coming, (at, self.count, one))
        self.count += 1

    def let_in(self) -> None:
        """Requests that have come, as far as there are slots."""
        while self.coming and self.coming[0][0] <= self.now:
            at, _, one = heapq.heappop(self.coming)
            self.waiting.append(one)
            if not self.clients:
                self.send(at + self.random.exponential(1 / self.rate))
        while self.waiting and self.running < self.engine.slots:
            self.running += 1
            self.prompts.append(self.waiting.popleft())

    def put_together(self) -> None:
        """A batch, and its way through all stages."""
        batch, self.decoding, room = self.decoding, [], self.engine.most
        while self.prompts and room > 1e-9:
            part = min(room, self.prompts[0].left)
            self.prompts[0].left -= part
            room -= part
            if self.prompts[0].left > 1e-9:
                break
            batch.append(self.prompts.popleft())
        time = self.engine.decode(max(self.decodes, 1)) + self.engine.prompts(self.engine.most - room)
        end = self.now
        for stage, free in enumerate(self.free):
            end = self.free[stage] = max(end, free) + time
        self.flying.append((end, batch))

    def take_out(self) -> None:
        """The oldest batch, once it is through."""
        end, batch = self.flying.popleft()
        self.now = max(self.now, end)
        for one in batch:
            if not one.yielded:
                one.first = self.now
                self.decodes += 1
            one.yielded += 1
            if one.yielded < one.tokens:
                self.decoding.append(one)
                continue
            self.done.append((one, self.now))
            self.running -= 1
            self.decodes -= 1
            if self.clients:
                self.send(self.now + CLIENT)


def simulated(engine: Engine, *, output: int, answers: int, clients: int = 0, rate: float = 1.0) -> Seen:
    """What so many requests meet, the first quarter not counted; see `Simulation`."""
    simulation = Simulation(engine, output=output, clients=clients, rate=rate)
    simulation.run(answers)
    before, counted = simulation.done[: answers // 4], simulation.done[answers // 4 : answers]
    ttft = np.array([one.first - one.sent for one, _ in counted]) + engine.own
    decoded = sum(end - one.first for one, end in counted)
    return Seen(
        tpot=decoded / sum(one.tokens - 1 for one, _ in counted),
        requests_per_s=len(counted) / (counted[-1][1] - before[-1][1]),
        stay=float(np.mean([end - one.sent for one, end in counted])) + engine.own,
        ttft=float(ttft.mean()),
        ttft_p50=float(np.quantile(ttft, 0.5)),
        ttft_p95=float(np.quantile(ttft, 0.95)),
    )


@dataclass(frozen=True)
class Replica:
    """A layout of stages alone, at every concurrency."""

    serving: Serving
    layout: Layout

    def at(self, concurrency: int) -> int:
        """Where that concurrency stands."""
        asked = np.asarray(self.serving.running) + np.asarray(self.serving.waiting)
        return int(np.flatnonzero(asked == concurrency)[0])

    def engine(self, at: int) -> Engine:
        """One whose prompts take what they take at a place of the grid."""
        prompt, stages = self.serving.riding, int(self.layout.pipeline)
        running = np.asarray(self.serving.running)
        held = np.asarray(self.serving.waiting) == 0
        decode = np.asarray(self.serving.decode.total)[held]
        one, full, most, chunks = (
            float(np.broadcast_to(part, running.shape)[at])
            for part in (prompt.one, prompt.full, prompt.most, prompt.chunks)
        )
        each = (full - one) / max(most - 1, 1)
        idle = (one + float(decode[0])) * (1 + (chunks - 1) / stages)

        def taken(number: float) -> float:
            return (one * min(number, 1) + each * max(number - 1, 0)) / stages

        return Engine(
            stages=stages,
            decode=cache(lambda number: float(np.interp(number, running[held], decode)) / stages),
            prompts=taken,
            chunks=chunks,
            most=most,
            slots=round(float(running[-1])),
            own=float(np.asarray(self.serving.ttft)[0]) - idle,
        )

    def load(self, rate: Number) -> Load:
        return load(
            rate,
            queue=queue(self.serving, layout=self.layout),
            variation=0.4,
            packed=prompts_per_step(self.serving),
        )


@cache
def replica_of(scenario: Scenario, *, stages: int) -> Replica:
    result = plan(scenario.model_copy(update={"tensor": 1, "data": 1, "pipeline": stages})).result
    index = int(np.flatnonzero(np.asarray(result.layout.pipeline).ravel() == stages)[0])
    serving = picked(result.serving, shape=result.shape, index=(index,))
    return Replica(serving=serving, layout=result.layout.one(index))


def agrees(found: Number, seen: Number, *, under: float, over: float) -> None:
    """Not too little by more than a share, nor too much by more than another."""
    assert seen * (1 - under) <= float(found) <= seen * (1 + over)


ASKED = [(512, 64), (1024, 1024), (2048, 32), (8192, 512), (8192, 128), (32768, 512)]
"""Prompt and output: an eighth of a step to several, as long as the output to 64 times."""


@pytest.mark.parametrize(("prompt", "output"), ASKED)
@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("clients", [4, 16, 64])
def test_at_a_concurrency_a_simulated_pipeline_agrees_within_fifteen_per_cent(
    prompt: int, output: int, stages: int, clients: int
) -> None:
    """Where all requests fit; the time to the first token within a quarter, as others find the engine."""
    replica = replica_of(DENSE.model_copy(update={"prompt": prompt, "output": output}), stages=stages)
    serving = replica.serving
    if clients > np.asarray(serving.running)[-1]:
        return
    at = replica.at(clients)
    seen = simulated(replica.engine(at), output=output, clients=clients, answers=300 + 6 * clients)
    agrees(np.asarray(serving.tpot)[at], seen.tpot, under=0.15, over=0.15)
    agrees(np.asarray(serving.requests_per_s)[at], seen.requests_per_s, under=0.15, over=0.15)
    agrees(np.asarray(serving.ttft)[at], seen.ttft, under=0.25, over=0.25)


@pytest.mark.parametrize(("prompt", "output"), [(8192, 512), (8192, 128), (32768, 512)])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_at_a_rate_a_simulated_pipeline_is_met_or_feared(prompt: int, output: int, stages: int) -> None:
    """Within 15 % up to 30 % of the knee, percentiles at most 35 % too much; at 60 % not too little by more, nor twice
    as much."""
    replica = replica_of(DENSE.model_copy(update={"prompt": prompt, "output": output}), stages=stages)
    knee = float(knee_rate(queue(replica.serving, layout=replica.layout), variation=0.4))
    for share, over, late in ((0.1, 0.15, 0.35), (0.3, 0.15, 0.35), (0.6, 1.0, 1.0)):
        rate = share * knee
        theory = replica.load(rate)
        at = int(np.searchsorted(np.asarray(replica.serving.running), max(float(theory.in_hand), 2.0)))
        engine = replica.engine(at)
        seen = simulated(engine, output=output, rate=rate, answers=800)
        agrees(theory.in_hand, rate * seen.stay, under=0.15, over=over)
        agrees(theory.tpot, seen.tpot, under=0.15, over=over)
        agrees(theory.ttft_p50, seen.ttft_p50, under=0.15, over=late)
        agrees(theory.ttft_p95, seen.ttft_p95, under=0.15, over=late)


def prompt_of(*, stages: Count, chunks: Count = 1.0, most: Count = 1.0) -> Prefill:
    """A prompt of made-up times."""
    return Prefill(
        chunks=chunks, latency=1.0, alone=1.0, one=1.0, full=most, most=most, shared=0.0, replicas=1, stages=stages,
        together=0.0,
    )  # fmt: skip


@given(st.floats(0, 100), st.integers(1, 32), st.floats(1, 100))
def test_without_a_pipeline_nothing_is_stretched(rate: float, chunks: int, most: float) -> None:
    assert prompt_of(stages=1, chunks=chunks, most=most).paced(rate) == rate
    assert prompt_of(stages=1, chunks=chunks, most=most).met == 1


@given(st.integers(2, 32), st.integers(1, 32))
def test_a_rare_prompt_holds_up_others_from_its_first_chunk_in_the_first_stage_to_its_last_in_the_last(
    stages: int, chunks: int
) -> None:
    one = prompt_of(stages=stages, chunks=chunks)
    assert chunks * one.stretch(1e-9) == pytest.approx(chunks + stages - 1)


@given(st.integers(1, 32), st.integers(1, 32))
def test_where_every_step_has_a_chunk_one_stage_counts(stages: int, chunks: int) -> None:
    assert prompt_of(stages=stages, chunks=chunks).stretch(1.0) == 1


@given(st.integers(1, 32), st.integers(1, 32), st.floats(1, 64), st.floats(0, 100), st.floats(1e-6, 100))
def test_more_prompts_never_hold_up_less_and_less_than_one_by_one_in_all_stages(
    stages: int, chunks: int, most: float, rate: float, more: float
) -> None:
    one = prompt_of(stages=stages, chunks=chunks, most=most if chunks == 1 else 1.0)
    assert one.paced(rate) <= one.paced(rate + more) * (1 + 1e-9)
    assert rate <= one.paced(rate) <= rate * stages * (1 + 1e-9)


def test_eight_stages_do_not_make_tokens_of_a_small_model_fast() -> None:
    """One prompt of two chunks for every 26 tokens: 13 to 16 ms a token in a simulated pipeline, not 6."""
    asked = SMALL.model_copy(update={"prompt": 14611, "output": 26, "concurrency": 4, "engine": "vllm-0.17"})
    replica = replica_of(asked, stages=8)
    at = replica.at(4)
    seen = simulated(replica.engine(at), output=26, clients=4, answers=2000)
    agrees(np.asarray(replica.serving.tpot)[at], seen.tpot, under=0.1, over=0.1)
