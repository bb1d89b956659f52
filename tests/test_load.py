"""Random arrivals: queueing theory's known results, limits, and a simulated engine that must agree."""

import heapq
import math
from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, plan
from parplan.layout import Layout
from parplan.load import (
    Load,
    admission_wait,
    found,
    knee_rate,
    load,
    prompts_per_step,
    queue,
    sustained_rate,
)
from parplan.planner import Result, picked
from parplan.serving import Serving
from parplan.step import Step
from parplan.units import Array, Number

LLAMA = Scenario(
    model="meta-llama/Llama-3.3-70B-Instruct",
    weights="fp8",
    kv="fp8",
    gpu="h100-sxm",
    engine="trtllm",
    tensor=2,
    prompt=5000,
    output=500,
)
"""Long prompts: slots run out, and prompts take most of the time."""
CHAT = LLAMA.model_copy(update={"engine": "sglang", "prompt": 500, "output": 200})
"""Short requests: hundreds of slots, many prompts to a step."""
MOE = Scenario(
    model="openai/gpt-oss-120b", weights="native", gpu="h200-sxm", tensor=1, prompt=1000, output=500
)
DEEPSEEK = Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="h200-sxm")

LARGE = Scenario(
    model="meta-llama/Meta-Llama-3.1-405B", weights="fp8", gpu="h100-sxm", tensor=8, prompt=4000, output=1000
)
"""Tens of slots: the KV cache is what runs out."""
SMALL = Scenario(model="Qwen/Qwen3-8B", weights="fp8", gpu="l4", tensor=1, prompt=2048, output=512)
"""A small GPU: two dozen slots."""
NARROW = SMALL.model_copy(update={"prompt": 8192})
"""The same with prompts of several steps: eight slots."""

CONCURRENCY = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def step_of(total: Array) -> Step:
    """A decode step about which only the total is known."""
    zero = 0.0 * total
    return Step(linear=total, attention=zero, experts=zero, all_reduce=zero, all_to_all=zero, send=zero,
                launch=zero, head=zero, engine=zero, idle=0.0,
        bubble=zero, compute=zero, memory=total)  # fmt: skip


def even(*, slots: float, stay: float, output: float = 100.0) -> Serving:
    """A replica on which every request takes the same time, whatever else runs, and prompts take none."""
    running = np.minimum(CONCURRENCY, slots)
    waiting, rate, tpot = CONCURRENCY - running, running / stay, np.full_like(running, stay / output)
    return Serving(
        running=running,
        waiting=waiting,
        ttft=waiting / rate,
        burst=0 * rate,
        tpot=tpot,
        decode=step_of(tpot),
        prefill=0 * rate,
        requests_per_s=rate,
        tokens_per_s=rate * output,
        tokens_per_s_per_user=1 / tpot,
        tokens_per_s_per_gpu=rate * output,
    )


@cache
def result_of(scenario: Scenario) -> Result:
    return plan(scenario).result


@dataclass(frozen=True)
class Replica:
    """One layout of a scenario, as `load` wants it."""

    serving: Serving
    layout: Layout
    packed: float

    def load(self, rate: Number, *, replicas: int = 1, variation: float = 1.0) -> Load:
        return load(
            rate,
            serving=self.serving,
            layout=self.layout,
            replicas=replicas,
            variation=variation,
            packed=self.packed,
        )

    def knee(self, variation: float) -> float:
        return float(knee_rate(queue(self.serving, layout=self.layout), variation=variation))


def replica_of(scenario: Scenario) -> Replica:
    """The smallest legal layout of a scenario."""
    result = result_of(scenario)
    problem, index = result.problem, int(np.flatnonzero(result.legal)[0])
    return Replica(
        serving=picked(result.serving, shape=result.shape, index=(index,)),
        layout=result.layout.one(index),
        packed=float(prompts_per_step(problem.engine, gpu=problem.gpu, workload=problem.workload)),
    )


def erlang_c(offered: float, *, servers: int) -> float:
    """Share of customers that wait in a queue with many exponential servers (Erlang, 1917)."""
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("servers", [1, 2, 5, 11, 40, 100])
@pytest.mark.parametrize("load_share", [0.05, 0.5, 0.8, 0.95])
def test_equal_servers_wait_as_erlang_says(servers: int, load_share: float) -> None:
    one = queue(even(slots=servers, stay=3.0), layout=Layout())
    rate = load_share * servers / 3.0
    chance, waiting = found(rate, queue=one, variation=1.0)
    expected = erlang_c(load_share * servers, servers=servers)
    assert float(chance.sum()) == pytest.approx(1)
    assert float(waiting) == pytest.approx(expected, rel=0.01, abs=1e-6)
    assert float(admission_wait(rate, queue=one, variation=1.0)) == pytest.approx(
        3.0 / servers / (1 - load_share)
    )


@given(st.floats(0.01, 0.9), st.integers(1, 128))
def test_equal_servers_hold_arrivals_times_stay(load_share: float, slots: int) -> None:
    rate, one = load_share * slots / 2.0, queue(even(slots=slots, stay=2.0), layout=Layout())
    chance, waiting = found(rate, queue=one, variation=1.0)
    running = float((chance * one.states).sum())
    wait = float(waiting * admission_wait(rate, queue=one, variation=1.0))
    assert running == pytest.approx(2.0 * rate, rel=5e-3)
    in_line = erlang_c(2.0 * rate, servers=slots) * load_share / (1 - load_share)
    assert running + rate * wait == pytest.approx(2.0 * rate + in_line, rel=1e-2)


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE])
@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_requests_in_hand_come_out_alike_from_states_and_from_stays(
    scenario: Scenario, variation: float
) -> None:
    replica = replica_of(scenario)
    one = queue(replica.serving, layout=replica.layout)
    for rate in replica.knee(variation) * np.array([0.1, 0.5, 0.9]):
        stays = replica.load(rate, variation=variation)
        states = float((found(rate, queue=one, variation=variation)[0] * one.states).sum())
        assert states + rate * float(stays.wait_mean) == pytest.approx(float(stays.in_hand), rel=0.1)


def test_one_server_is_the_textbook_queue() -> None:
    serving = even(slots=1, stay=1.0)
    for variation, wait in ((1.0, 1.0), (0.0, 0.5)):  # M/M/1 and M/D/1 at half load
        one = load(0.5, serving=serving, layout=Layout(), replicas=1, variation=variation, packed=8.0)
        assert float(one.in_hand) == pytest.approx(0.5 + 0.5 * wait, rel=5e-3)
        assert float(one.wait_mean) == pytest.approx(wait)


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE, DEEPSEEK])
def test_without_load_nothing_waits(scenario: Scenario) -> None:
    replica = replica_of(scenario)
    idle = replica.load(np.array([0.0, 1e-9]))
    alone = float(replica.serving.ttft[0])  # type: ignore[index]
    assert idle.in_hand == pytest.approx(0.0, abs=1e-6)
    assert idle.wait_mean == pytest.approx(0.0, abs=1e-9)
    assert idle.ttft_p50 == pytest.approx(alone, rel=1e-6)
    assert idle.ttft_p95 == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE, DEEPSEEK])
@pytest.mark.parametrize("variation", [0.0, 1.0, 2.0])
def test_waits_grow_without_bound_towards_the_sustained_rate(scenario: Scenario, variation: float) -> None:
    replica = replica_of(scenario)
    sustained = float(sustained_rate(replica.serving))
    near = replica.load(sustained * (1 - np.array([1e-4, 1e-5, 1e-6, 0.0, -0.5])), variation=variation)
    growth = near.wait_mean[1:3] / near.wait_mean[:2]  # type: ignore[index]
    assert growth == pytest.approx([10, 10], rel=0.1)
    for values in (near.in_hand, near.wait_mean, near.ttft_p50, near.ttft_p95):
        assert np.isinf(np.asarray(values)[3:]).all()
        assert (np.diff(np.asarray(values)[:3]) > 0).all()


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE, DEEPSEEK])
@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 2.0])
def test_more_requests_never_make_anything_faster(scenario: Scenario, variation: float) -> None:
    replica = replica_of(scenario)
    curve = replica.load(np.linspace(0.0, 0.999, 200) * sustained_rate(replica.serving), variation=variation)
    for values in (curve.utilisation, curve.in_hand, curve.wait_mean, curve.ttft_p50, curve.ttft_p95):
        assert (np.diff(values) >= -1e-7 * np.asarray(values)[1:]).all()  # percentiles are found by halving
    assert (np.asarray(curve.ttft_p95) >= curve.ttft_p50).all()


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE])
def test_lengths_that_vary_more_wait_longer(scenario: Scenario) -> None:
    replica = replica_of(scenario)
    rate = 0.97 * float(sustained_rate(replica.serving))
    scales = [
        float(admission_wait(rate, queue=queue(replica.serving, layout=replica.layout), variation=v))
        for v in (0.0, 0.5, 1.0, 2.0)
    ]
    assert scales == sorted(scales)


@pytest.mark.parametrize("scenario", [LLAMA, CHAT, MOE])
@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_at_the_knee_one_request_in_twenty_waits(scenario: Scenario, variation: float) -> None:
    replica = replica_of(scenario)
    one, knee = queue(replica.serving, layout=replica.layout), replica.knee(variation)
    assert float(found(knee, queue=one, variation=variation)[1]) == pytest.approx(0.05, rel=1e-4)
    before, at, beyond = (replica.load(share * knee, variation=variation) for share in (0.9, 1.0, 1.1))
    assert float(at.knee_rate) == pytest.approx(knee)
    assert float(before.ttft_p95 / at.ttft_p95) > 0.4
    assert float(beyond.ttft_p95 / at.ttft_p95) > 4


def test_more_slots_bring_the_knee_closer_to_full_load() -> None:
    counts = (1, 4, 16, 64)
    queues = [queue(even(slots=n, stay=1.0), layout=Layout()) for n in counts]
    knees = [float(knee_rate(one, variation=1.0)) / n for one, n in zip(queues, counts, strict=True)]
    assert knees == sorted(knees)
    assert 0.75 < knees[-1] < 1
    for n, one, knee in zip(counts[2:], queues[2:], knees[2:], strict=True):
        assert float(found(knee * n, queue=one, variation=1.0)[1]) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_few_slots_are_loaded_to_half_and_wait_no_longer_than_a_request_takes(slots: int) -> None:
    stay, serving = 3.0, even(slots=slots, stay=3.0)
    at = load(slots / stay / 2, serving=serving, layout=Layout(), replicas=1, variation=1.0, packed=8.0)
    assert float(at.knee_rate) == pytest.approx(slots / stay / 2)
    assert float(at.waiting) > 0.05
    exact = erlang_c(slots / 2, servers=slots) * stay / slots / 0.5
    assert float(at.wait_mean) == pytest.approx(exact)
    assert float(at.wait_mean) <= stay * (1 + 1e-9)
    assert (slots == 1) == (float(at.wait_mean) == pytest.approx(stay))


def test_replicas_share_requests_evenly_and_change_nothing_else() -> None:
    replica = replica_of(CHAT)
    one, five = replica.load(4.0), replica.load(20.0, replicas=5)
    for name in ("utilisation", "in_hand", "wait_mean", "ttft_p50", "ttft_p95"):
        assert getattr(five, name) == pytest.approx(getattr(one, name))
    assert float(five.knee_rate) == pytest.approx(5 * float(one.knee_rate))
    assert (five.arrival_rate, five.replicas, five.gpus) == (20.0, 5, 10)


def test_all_layouts_at_once_agree_with_one_at_a_time() -> None:
    result = result_of(DEEPSEEK)
    serving = picked(result.serving, shape=result.shape, index=(slice(None),))
    rates = 0.8 * np.asarray(sustained_rate(serving))
    together = load(rates, serving=serving, layout=result.layout, replicas=2, variation=0.5, packed=4.0)
    for index in np.flatnonzero(result.legal)[::5]:
        one = picked(result.serving, shape=result.shape, index=(int(index),))
        alone = load(
            rates[index],
            serving=one,
            layout=result.layout.one(int(index)),
            replicas=2,
            variation=0.5,
            packed=4.0,
        )
        for name in ("in_hand", "wait_mean", "ttft_p50", "ttft_p95", "knee_rate", "gpus"):
            assert np.asarray(getattr(together, name))[index] == pytest.approx(getattr(alone, name), rel=1e-6)


# A simulated engine


@dataclass(frozen=True)
class Simulated:
    in_hand: float
    wait_mean: float
    ttft_p50: float
    ttft_p95: float


def simulated(
    replica: Replica,
    *,
    rate: float,
    output: int,
    variation: float,
    requests: int,
    prompt: int = 0,
    pool: float = math.inf,
) -> Simulated:
    """A continuous-batching engine, step by step, under Poisson arrivals.

    At the start of a step, waiting requests are admitted in order while slots are free. A step decodes one token for
    every running request and takes prompts in order, whole or in part, up to the engine's step size; it lasts as long
    as a decode step of so many requests plus what the prompts add, both as `Serving` has them. A prompt's launches and
    weights, which a mixed step pays once, still count for the newcomer, as they do there. The first tenth of the
    requests is not counted.

    Args:
        variation: 0: all outputs alike, 1: geometrically distributed.
        prompt: tokens, where the pool counts.
        pool: tokens of the KV cache. A request is admitted when its prompt and its own output fit beside those of the
            others, however many that lets in; infinite: by slots.
    """
    serving, random = replica.serving, np.random.default_rng(7)
    running, waiting = np.asarray(serving.running), np.asarray(serving.waiting)
    slots, latency = int(running[-1]), float(np.asarray(serving.ttft)[0])
    crowd = slots if math.isinf(pool) else 3 * slots
    decode = straight(running[waiting == 0], np.asarray(serving.decode.total)[waiting == 0], upto=crowd)
    several = (waiting == 0) & (running > 1)
    added = np.asarray(serving.prefill)[several] * output / (running[several] - 1)
    adds = straight(running[several], added, upto=crowd)

    arrivals = np.cumsum(random.exponential(1 / rate, requests)).tolist()
    lengths = (random.geometric(1 / output, requests) if variation else np.full(requests, output)).tolist()
    first, seen, admitted, left = [0.0] * requests, [0.0] * requests, [0.0] * requests, [1.0] * requests
    ends, line, prompts = list[tuple[int, int]](), deque[int](), deque[int]()
    gone, held = np.zeros(requests), 0.0
    now, tokens, came, answered = 0.0, 0, 0, 0
    while answered < requests:
        while came < requests and arrivals[came] <= now:
            line.append(came)
            seen[came] = now
            came += 1
        while (
            line
            and len(ends) + len(prompts) < crowd
            and (math.isinf(pool) or held + prompt + lengths[line[0]] <= pool)
        ):
            held += prompt + lengths[line[0]]
            admitted[line[0]] = now
            prompts.append(line.popleft())
        decoding = len(ends)
        if not decoding and not prompts:
            now = arrivals[came]
            continue
        room, started = replica.packed, list[int]()
        while prompts and room > 1e-9:
            part = min(room, left[prompts[0]])
            left[prompts[0]] -= part
            room -= part
            if left[prompts[0]] > 1e-9:
                break
            started.append(prompts.popleft())
        alone = latency - adds[decoding]
        now += adds[decoding] * (replica.packed - room) + (decode[decoding] if decoding else alone)
        tokens += 1
        while ends and ends[0][0] <= tokens:
            done = heapq.heappop(ends)[1]
            gone[done] = now
            held -= prompt + lengths[done]
            answered += 1
        for request in started:
            first[request] = now - arrivals[request] + (alone if decoding else 0.0)
            heapq.heappush(ends, (tokens + max(lengths[request] - 1, 1), request))
    counted = slice(requests // 10, requests)
    ttft, waits = np.array(first)[counted], (np.array(admitted) - np.array(seen))[counted]
    stays = (gone - np.array(arrivals))[counted]
    return Simulated(
        in_hand=rate * float(stays.mean()),
        wait_mean=float(waits.mean()),
        ttft_p50=float(np.quantile(ttft, 0.5)),
        ttft_p95=float(np.quantile(ttft, 0.95)),
    )


def straight(knots: Array, values: Array, *, upto: int) -> list[float]:
    """Values at 0, 1, 2, ...: straight lines between knots, and on beyond the last."""
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    counts = np.arange(upto + 1)
    beyond = np.maximum(counts - knots[-1], 0)
    return (np.interp(counts, knots, values) + slope * beyond).tolist()


@pytest.mark.parametrize(
    "scenario", [LLAMA, CHAT, MOE, LARGE], ids=["long-prompts", "chat", "moe", "kv-limited"]
)
@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_below_the_knee_a_simulated_engine_agrees_within_ten_per_cent(
    scenario: Scenario, variation: float
) -> None:
    replica = replica_of(scenario)
    rates = replica.knee(variation) * np.array([0.1, 0.3, 0.5, 0.7, 0.8, 0.9])
    theory = replica.load(rates, variation=variation)
    for index, rate in enumerate(rates.tolist()):
        engine = simulated(replica, rate=rate, output=scenario.output, variation=variation, requests=20_000)
        for name in ("in_hand", "ttft_p50", "ttft_p95"):
            assert np.asarray(getattr(theory, name))[index] == pytest.approx(
                getattr(engine, name), rel=0.1
            ), (
                name,
                rate,
            )


@pytest.mark.parametrize(("scenario", "late"), [(SMALL, 0.1), (NARROW, 0.15)], ids=["two-dozen", "eight"])
@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_with_few_slots_a_simulated_engine_is_not_far(
    scenario: Scenario, variation: float, late: float
) -> None:
    replica = replica_of(scenario)
    assert np.asarray(replica.serving.running)[-1] < 32
    for rate in (replica.knee(variation) * np.array([0.5, 0.9])).tolist():
        theory = replica.load(rate, variation=variation)
        engine = simulated(replica, rate=rate, output=scenario.output, variation=variation, requests=8_000)
        for name, within in (("in_hand", 0.1), ("ttft_p50", 0.1), ("ttft_p95", late)):
            assert float(getattr(theory, name)) == pytest.approx(getattr(engine, name), rel=within), (
                name,
                rate,
            )


@pytest.mark.parametrize("scenario", [LLAMA, LARGE], ids=["dense", "large"])
def test_room_for_tokens_admits_as_slots_of_mean_length_do(scenario: Scenario) -> None:
    """Engines count tokens: a long answer takes more of the KV cache than a short one. With tens of requests in it,
    that evens out."""
    replica = replica_of(scenario)
    pool = float(np.asarray(replica.serving.running)[-1]) * (scenario.prompt + scenario.output)
    for rate in (replica.knee(1.0) * np.array([0.5, 0.9])).tolist():
        theory = replica.load(rate, variation=1.0)
        engine = simulated(
            replica,
            rate=rate,
            output=scenario.output,
            variation=1.0,
            requests=8_000,
            prompt=scenario.prompt,
            pool=pool,
        )
        for name in ("in_hand", "ttft_p50", "ttft_p95"):
            assert float(getattr(theory, name)) == pytest.approx(getattr(engine, name), rel=0.1), (name, rate)


@pytest.mark.parametrize("scenario", [LLAMA, MOE], ids=["dense", "moe"])
def test_where_prompts_are_nearly_all_the_work_a_simulated_engine_is_not_far(scenario: Scenario) -> None:
    scenario = scenario.model_copy(update={"prompt": 8000, "output": 100})
    replica = replica_of(scenario)
    for rate in (replica.knee(0.0) * np.array([0.3, 0.6, 0.9])).tolist():
        theory = replica.load(rate, variation=0.0)
        engine = simulated(replica, rate=rate, output=scenario.output, variation=0.0, requests=8000)
        assert float(theory.in_hand) == pytest.approx(engine.in_hand, rel=0.35)
        assert float(theory.ttft_p50) == pytest.approx(engine.ttft_p50, rel=0.15)
        assert float(theory.ttft_p95) == pytest.approx(engine.ttft_p95, rel=0.15)


@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_beyond_the_knee_a_simulated_engine_waits_as_long(variation: float) -> None:
    replica = replica_of(LLAMA)
    rate = 1.04 * replica.knee(variation)
    theory = replica.load(rate, variation=variation)
    engine = simulated(replica, rate=rate, output=LLAMA.output, variation=variation, requests=60_000)
    assert float(theory.in_hand) == pytest.approx(engine.in_hand, rel=0.1)
    assert float(theory.wait_mean) == pytest.approx(engine.wait_mean, rel=0.4)
    assert engine.wait_mean > 0.2


# NVIDIA NIM 1.8.0, Llama-3.3-70B-Instruct FP8, TP2 on 2x H100 80 GB, 5000 tokens in, 500 out: clients, time to first
# token and between tokens (ms), output tokens/s.
# Source: docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance, read 2026-11-29.
NIM = (
    (1, 406.77, 18.58, 51.67),
    (5, 546.70, 21.83, 218.48),
    (25, 688.69, 38.75, 623.40),
    (50, 834.51, 59.73, 814.37),
    (100, 7996.25, 92.91, 917.26),
    (150, 34794.22, 92.86, 920.90),
    (200, 61680.22, 93.06, 920.54),
    (250, 88605.32, 93.20, 920.12),
)


def test_the_published_table_obeys_littles_law() -> None:
    for clients, ttft, itl, tokens_per_s in NIM:
        stay = (ttft + 499 * itl) / 1000
        assert tokens_per_s / 500 * stay == pytest.approx(clients, rel=0.03)


def test_the_published_cliff_comes_where_the_slots_run_out() -> None:
    replica = replica_of(LLAMA)
    clients = np.asarray(replica.serving.running) + np.asarray(replica.serving.waiting)
    ttft = np.interp([row[0] for row in NIM], clients, np.asarray(replica.serving.ttft))
    published = np.array([row[1] for row in NIM]) / 1000
    assert (ttft[:4] < 1).all()
    assert (published[:4] < 1).all()
    assert ttft[4] > 4 * ttft[3]
    assert ttft[5:] == pytest.approx(published[5:], rel=0.2)
    quiet, plateau = NIM[2][3] / 500, NIM[-1][3] / 500
    for variation in (
        0.0,
        1.0,
    ):  # random arrivals wait before the slots are full on average, not at half as many
        assert quiet < replica.knee(variation) < plateau
        half, most = (replica.load(share * plateau, variation=variation) for share in (0.5, 0.95))
        assert half.ttft_p95 < 2
        assert most.ttft_p50 > 5
