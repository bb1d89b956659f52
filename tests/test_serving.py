"""Serving at fixed concurrency: conservation, limits, monotony, and the grid against point by point."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import catalog
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.problem import chosen_precision
from parplan.serving import Prefill, Serving, serve, ttft_of_benchmark
from parplan.transformer import Transformer
from parplan.workload import Workload

LLAMA = "meta-llama/Meta-Llama-3.1-70B"
QWEN_MOE = "Qwen/Qwen3-235B-A22B"
DEEPSEEK = "deepseek-ai/DeepSeek-V3.1"

engines = st.sampled_from(["vllm", "sglang", "trtllm", "ideal"])
models = st.sampled_from([LLAMA, QWEN_MOE, DEEPSEEK])
layouts = st.sampled_from(
    [
        Layout(tensor=8),
        Layout(tensor=4, pipeline=2),
        Layout(tensor=8, pipeline=2),
        Layout(data=8, expert=8),
        Layout(tensor=2, data=4, expert=8),
    ]
)
workloads = st.builds(
    Workload,
    prompt=st.integers(min_value=1, max_value=100_000),
    output=st.integers(min_value=1, max_value=10_000),
    prefix_hit=st.sampled_from([0.0, 0.5, 1.0]),
)
counts = st.integers(min_value=1, max_value=2000)
SATURATED = 1e-3
"""An engine without overheads, bound by arithmetic, does the same however many run; the wait for a step under way is
not overlapped then and costs up to 0.03 %."""


def named(name: str) -> tuple[Transformer, Precision]:
    """A model of the catalogue, its weights in FP8."""
    transformer, known = catalog.model(name).transformer, catalog.formats()
    return transformer, chosen_precision(transformer, weights=known["fp8"], kv=known["bf16"], formats=known)


def served(
    name: str = LLAMA,
    *,
    by: str = "vllm",
    on: str = "h200-sxm",
    layout: Layout | None = None,
    workload: Workload | None = None,
    concurrency: Any = 64,
    capacity: Any = np.inf,
) -> Serving:
    """A model of the catalogue, served."""
    return serve(
        *named(name),
        layout=layout or Layout(tensor=8),
        gpu=catalog.gpus()[on],
        engine=catalog.engines()[by],
        workload=workload or Workload(),
        concurrency=concurrency,
        capacity=capacity,
    )


@given(name=models, by=engines, layout=layouts, workload=workloads, concurrency=counts)
def test_conservation(name: str, by: str, layout: Layout, workload: Workload, concurrency: int) -> None:
    """Parts sum to the time per token; everyone runs or waits; Little's law."""
    found = served(name, by=by, layout=layout, workload=workload, concurrency=concurrency)
    assert found.tpot == pytest.approx(found.decode.total + found.prefill)
    assert found.running + found.waiting == pytest.approx(concurrency)
    latency = found.ttft + (workload.output - 1) * found.tpot
    assert found.requests_per_s * latency == pytest.approx(concurrency)
    assert found.tokens_per_s == pytest.approx(found.requests_per_s * workload.output)
    assert found.tokens_per_s_per_gpu * layout.gpus == pytest.approx(found.tokens_per_s)
    assert found.tokens_per_s_per_user == pytest.approx(1 / found.tpot)


@given(name=models, by=engines, layout=layouts, workload=workloads, concurrency=counts, more=counts)
def test_more_users_wait_longer_and_get_more_done(
    name: str, by: str, layout: Layout, workload: Workload, concurrency: int, more: int
) -> None:
    few, many = (
        served(name, by=by, layout=layout, workload=workload, concurrency=users)
        for users in (concurrency, concurrency + more)
    )
    assert few.tpot <= many.tpot * (1 + 1e-12)
    assert few.ttft <= many.ttft * (1 + 1e-12)
    assert few.requests_per_s <= many.requests_per_s * (1 + SATURATED)


@given(name=models, by=engines, layout=layouts, workload=workloads, room=counts, more=counts)
def test_relaxing_a_limit_never_costs_throughput(
    name: str, by: str, layout: Layout, workload: Workload, room: int, more: int
) -> None:
    tight, loose = (
        served(name, by=by, layout=layout, workload=workload, concurrency=2000, capacity=held)
        for held in (room, room + more)
    )
    assert tight.requests_per_s <= loose.requests_per_s * (1 + SATURATED)


@given(by=engines, layout=layouts, workload=workloads, concurrency=counts)
def test_no_more_is_done_than_decoding_allows(
    by: str, layout: Layout, workload: Workload, concurrency: int
) -> None:
    """Every token after the first takes a whole decode step, which all running requests share."""
    found = served(DEEPSEEK, by=by, layout=layout, workload=workload, concurrency=concurrency)
    assert found.requests_per_s * (workload.output - 1) * found.decode.total <= found.running


def test_a_lone_request_has_nobody_to_wait_for() -> None:
    lone = served(concurrency=1)
    assert lone.prefill == 0
    assert lone.burst == 0
    assert lone.waiting == 0


def test_the_cache_limits_who_runs() -> None:
    found = served(concurrency=64, capacity=16)
    assert found.running == 16
    assert found.waiting == 48
    assert found.tpot == pytest.approx(served(concurrency=16).tpot)
    assert found.ttft > served(concurrency=16).ttft


def test_what_the_prefix_cache_holds_is_skipped() -> None:
    asked = {"prompt": 8192, "output": 512}
    cold, warm = (served(workload=Workload(**asked, prefix_hit=hit)) for hit in (0.0, 0.9))
    assert warm.ttft < cold.ttft / 3
    assert warm.tpot < cold.tpot
    assert warm.decode.total == pytest.approx(cold.decode.total)


def test_two_nodes_trade_latency_for_throughput() -> None:
    """A mixture of experts over 16 GPUs: TP8 PP2 is quicker per user, EP16 with attention replicas does more."""
    staged, spread = Layout(tensor=8, pipeline=2), Layout(data=16, expert=16)
    few, many = 4, 2048
    assert (
        served(DEEPSEEK, layout=staged, concurrency=few).tpot
        < served(DEEPSEEK, layout=spread, concurrency=few).tpot
    )
    assert (
        served(DEEPSEEK, layout=staged, concurrency=many).tokens_per_s
        < served(DEEPSEEK, layout=spread, concurrency=many).tokens_per_s
    )


def test_a_benchmark_that_starts_at_once_sees_its_first_wave_queue() -> None:
    found = served(concurrency=64)
    assert ttft_of_benchmark(found, waves=np.inf) == found.ttft
    assert ttft_of_benchmark(found, waves=1) == pytest.approx(found.ttft + found.burst)
    twice = served(concurrency=128)
    assert twice.burst > 1.8 * found.burst


@given(
    name=models, by=engines, layout=layouts, workload=workloads, concurrency=counts,
    faster=st.floats(min_value=1, max_value=3),
)  # fmt: skip
def test_more_memory_bandwidth_never_slows_a_token(
    name: str, by: str, layout: Layout, workload: Workload, concurrency: int, faster: float
) -> None:
    known = catalog.gpus()["h200-sxm"]
    slow, fast = (
        serve(
            *named(name),
            layout=layout,
            gpu=known.model_copy(update={"bandwidth": known.bandwidth * factor}),
            engine=catalog.engines()[by],
            workload=workload,
            concurrency=concurrency,
            capacity=np.inf,
        )
        for factor in (1.0, faster)
    )
    assert fast.tpot <= slow.tpot * (1 + 1e-9)


# Prompts of newcomers


def passing(*, replicas: int, together: float, alone: float = 2.0, one: float = 3.0) -> Prefill:
    """Prefill steps of made-up times."""
    return Prefill(
        chunks=1, latency=one, alone=alone, one=one, full=5.0, most=3.0, shared=1.0, replicas=replicas, stages=1,
        together=together,
    )  # fmt: skip


@given(
    rate=st.floats(min_value=0, max_value=10), more=st.floats(min_value=0, max_value=10),
    replicas=st.integers(min_value=1, max_value=64), together=st.floats(min_value=0, max_value=1),
    alone=st.floats(min_value=0.1, max_value=1), one=st.floats(min_value=1, max_value=4),
)  # fmt: skip
def test_what_newcomers_cost(
    rate: float, more: float, replicas: int, together: float, alone: float, one: float
) -> None:
    """More never costs less; one by one they never cost less than all at once, nor more than each in its own step."""
    alone = max(alone, one / replicas)
    found = passing(replicas=replicas, together=together, alone=alone, one=one)
    held = found.held_up(beside=rate, everywhere=rate)
    assert held <= found.held_up(beside=rate, everywhere=rate + more) * (1 + 1e-9)
    assert held <= found.held_up(beside=rate + more, everywhere=rate + more) * (1 + 1e-9)
    assert found.saved(beside=rate, everywhere=rate) <= found.saved(
        beside=rate + more, everywhere=rate + more
    ) * (1 + 1e-9)
    assert found.time(rate) <= held + 1e-9
    assert held <= found.apart(rate) + 1e-9
    assert found.apart(rate) <= max(found.time(rate), rate * replicas * one) + 1e-9


def test_newcomers_of_one_replica_cost_their_own_steps() -> None:
    found = passing(replicas=1, together=0.0, alone=3.0)
    assert found.held_up(beside=0.25, everywhere=0.25) == pytest.approx(0.25 * 3.0)
    assert found.saved(beside=0.25, everywhere=0.25) == pytest.approx(0.25)
    assert found.held_up(beside=2.0, everywhere=2.0) == found.time(2.0) == pytest.approx(4.0)


def test_rare_newcomers_of_many_replicas_never_share_a_step() -> None:
    """Eight replicas, each with a chunk in one step of a thousand: eight steps of a thousand are long."""
    found = passing(replicas=8, together=0.0)
    assert found.apart(1e-3) == pytest.approx(8e-3 * 2.0, rel=0.01)
    assert found.time(1e-3) == pytest.approx(1e-3 * 3.0)


def test_prompts_on_other_replicas_count_for_one_that_has_none() -> None:
    """Eight requests on eight replicas: nobody shares a replica, yet everyone waits for the prompts of seven."""
    alone, eight = (served(DEEPSEEK, layout=Layout(data=8, expert=8), concurrency=users) for users in (1, 8))
    assert alone.prefill == 0
    assert eight.prefill > 0


def test_attention_replicas_slow_each_other() -> None:
    """The same prompts cost a user more time per token where they come to the replicas one by one."""
    known = catalog.engines()["vllm"]

    def tpot(together: float) -> float:
        speed = known.speed.model_copy(update={"together": together})
        return float(
            serve(
                *named(DEEPSEEK),
                layout=Layout(data=8, expert=8),
                gpu=catalog.gpus()["h200-sxm"],
                engine=known.model_copy(update={"speed": speed}),
                workload=Workload(prompt=1024, output=2048),
                concurrency=512,
                capacity=np.inf,
            ).tpot
        )

    assert tpot(1.0) < 0.95 * tpot(0.5) < 0.95**2 * tpot(0.0)


def test_an_engine_that_looks_rarely_keeps_newcomers_waiting() -> None:
    found = served(concurrency=64)
    every, rarely = (ttft_of_benchmark(found, waves=10, polled=steps) for steps in (1, 31))
    assert rarely - every == pytest.approx(15 * found.tpot)


def test_the_grid_is_point_by_point() -> None:
    kinds = [Layout(tensor=8), Layout(data=8, expert=8), Layout(tensor=4, pipeline=2)]
    users, room = np.array([1, 9, 100, 1000]), np.array([[50.0], [np.inf], [500.0]])
    grid = served(QWEN_MOE, layout=Layout.stack(kinds).column(), concurrency=users, capacity=room)
    for row, layout in enumerate(kinds):
        for column, count in enumerate(users):
            one = served(QWEN_MOE, layout=layout, concurrency=int(count), capacity=float(room[row, 0]))
            for field in ("ttft", "tpot", "running", "waiting", "tokens_per_s_per_gpu"):
                assert np.broadcast_to(getattr(grid, field), (3, 4))[row, column] == pytest.approx(
                    float(getattr(one, field))
                ), field


def test_a_thousand_layouts_at_32_batches_take_milliseconds() -> None:
    """Of processor time, so that others on the machine do not count."""
    sizes = [
        (t, d, p, e) for t in (1, 2, 4, 8) for d in (1, 2, 4, 8) for p in (1, 2, 4) for e in (1, 2, 4, 8)
    ]
    kinds = [Layout(tensor=t, data=d, pipeline=p, expert=e) for t, d, p, e in sizes if t * d % e == 0]
    many = Layout.stack((kinds * 8)[:1000]).column()
    taken = []
    for _ in range(5):
        start = time.process_time()
        served(DEEPSEEK, layout=many, concurrency=np.arange(1, 33) * 16)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.05


# Drafted tokens


@given(draft=st.integers(min_value=0, max_value=16), acceptance=st.floats(min_value=0, max_value=1))
def test_tokens_of_a_step(draft: int, acceptance: float) -> None:
    """Leviathan et al., equation 1, in closed form; one when nothing is accepted, all when everything is."""
    kept = Workload(draft=draft, acceptance=acceptance).tokens_per_step
    assert 1 <= kept <= draft + 1
    if acceptance < 0.999:
        assert kept == pytest.approx((1 - acceptance ** (draft + 1)) / (1 - acceptance))
    assert Workload(draft=draft, acceptance=0).tokens_per_step == 1
    assert Workload(draft=draft, acceptance=1).tokens_per_step == draft + 1


@given(
    name=models, by=engines, layout=layouts, workload=workloads, concurrency=counts,
    draft=st.integers(min_value=1, max_value=5), acceptance=st.floats(min_value=0, max_value=0.5),
)  # fmt: skip
def test_a_better_draft_never_slows_a_token(
    name: str, by: str, layout: Layout, workload: Workload, concurrency: int, draft: int, acceptance: float
) -> None:
    worse, better = (
        served(
            name,
            by=by,
            layout=layout,
            workload=workload.model_copy(update={"draft": draft, "acceptance": chance}),
            concurrency=concurrency,
        )
        for chance in (acceptance, acceptance + 0.5)
    )
    assert better.tpot <= worse.tpot * (1 + 1e-9)
    assert better.decode.total + better.prefill == pytest.approx(better.tpot)


def test_drafting_pays_for_few_requests_and_costs_when_nothing_is_accepted() -> None:
    asked = {"prompt": 1024, "output": 1024, "draft": 3}
    plain, drafted, refused = (
        served(DEEPSEEK, by="trtllm", workload=Workload(**changes), concurrency=1).tpot
        for changes in (asked | {"draft": 0}, asked | {"acceptance": 0.78}, asked)
    )
    assert drafted < plain / 1.8
    assert refused > plain


def test_drafting_gains_as_published() -> None:
    """DeepSeek-R1 in NVFP4 on 8 B200, TensorRT-LLM, one request, 1k in and 2k out: 111 tokens/s without drafting; with
    one to five drafted tokens a step keeps 1.92, 2.58, 2.82, 2.99 and 3.01 and 198, 250, 253, 245 and 239 tokens/s come
    out. Gains over none are predicted within an eighth, and level off where they did.

    Source: TensorRT-LLM tech blog 1 (@476ae55), read 2026-11-29.
    """
    transformer, known = catalog.model("deepseek-ai/DeepSeek-R1").transformer, catalog.formats()
    precision = chosen_precision(transformer, weights=known["nvfp4"], kv=None, formats=known)

    def tokens_per_s(draft: int, kept: float) -> float:
        chances = np.linspace(0, 1, 2001)
        steps = [Workload(draft=draft, acceptance=chance).tokens_per_step for chance in chances]
        chance = float(chances[np.searchsorted(steps, kept)]) if draft else 0.0
        return float(
            serve(
                transformer,
                precision,
                layout=Layout(tensor=8, expert=4),
                gpu=catalog.gpus()["b200-sxm"],
                engine=catalog.engines()["trtllm"],
                workload=Workload(prompt=1024, output=2048, draft=draft, acceptance=chance),
                concurrency=1,
                capacity=np.inf,
            ).tokens_per_s_per_user
        )

    published = ((1, 1.92, 198), (2, 2.58, 250), (3, 2.82, 253), (4, 2.99, 245), (5, 3.01, 239))
    alone = tokens_per_s(0, 1.0)
    gains = [tokens_per_s(draft, kept) / alone for draft, kept, _ in published]
    for gain, (_, _, measured) in zip(gains, published, strict=True):
        assert gain == pytest.approx(measured / 111, rel=0.125)
    assert gains[0] < gains[1] < gains[2]
    assert gains[4] < gains[3] == pytest.approx(gains[2], rel=0.05)


def test_nothing_drafted_changes_nothing() -> None:
    plain, idle = (served(workload=Workload(acceptance=chance)) for chance in (0.0, 0.9))
    assert plain.tpot == idle.tpot
    assert plain.ttft == idle.ttft
    assert plain.decode.draft == 0
