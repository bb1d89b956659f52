"""Two pools: rates that match, conservation, limits, monotony, and what is published about them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import catalog
from parplan.disaggregation import (
    MOST_REPLICAS,
    SLACK,
    Pools,
    exposed_time,
    matched_replicas,
    pools,
    sent_bytes,
    transfer_time,
)
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.problem import chosen_precision
from parplan.serving import Serving, serve
from parplan.transformer import Transformer
from parplan.workload import Workload

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
DEEPSEEK = "deepseek-ai/DeepSeek-V3.1"
MIXED = Workload(prompt=3000, output=150)
"""The lengths of Dynamo's guide on tuning disaggregated deployments."""

engines = st.sampled_from(["vllm", "sglang", "trtllm", "ideal"])
workloads = st.builds(
    Workload,
    prompt=st.integers(min_value=1, max_value=100_000),
    output=st.integers(min_value=1, max_value=5000),
    prefix_hit=st.sampled_from([0.0, 0.6]),
    draft=st.sampled_from([0, 2]),
    acceptance=st.just(0.8),
)
widths = st.sampled_from([1, 2, 4, 8])


def named(name: str, *, weights: str | None = "fp8") -> tuple[Transformer, Precision]:
    """A model of the catalogue."""
    transformer, known = catalog.model(name).transformer, catalog.formats()
    return transformer, chosen_precision(
        transformer, weights=known[weights] if weights else None, kv=None, formats=known
    )


def found(
    *,
    name: str = LLAMA,
    weights: str | None = "fp8",
    prefill: Layout | None = None,
    decode: Layout | None = None,
    on: str = "h200-sxm",
    by: str = "vllm",
    workload: Workload = MIXED,
    concurrency: Any = 64,
) -> Pools:
    """A model of the catalogue in two pools on one kind of GPU."""
    gpu = catalog.gpus()[on]
    return pools(
        *named(name, weights=weights),
        prefill=prefill or Layout(tensor=np.array([2])),
        decode=decode or Layout(tensor=np.array([4])),
        prefill_gpu=gpu,
        decode_gpu=gpu,
        engine=catalog.engines()[by],
        workload=workload,
        concurrency=concurrency,
    )


def together(layout: Layout, *, concurrency: Any, by: str = "vllm") -> Serving:
    """The same model in one pool, cache without limit."""
    return serve(
        *named(LLAMA),
        layout=layout,
        gpu=catalog.gpus()["h200-sxm"],
        engine=catalog.engines()[by],
        workload=MIXED,
        concurrency=concurrency,
        capacity=np.inf,
    )


@given(
    prompts=st.floats(min_value=0.01, max_value=1000), requests=st.floats(min_value=0.01, max_value=1000),
    first=widths, second=widths,
)  # fmt: skip
def test_the_smallest_pair_that_matches(prompts: float, requests: float, first: int, second: int) -> None:
    """Against every pair, one by one."""
    x, y = matched_replicas(prompts, decode_rate=requests, prefill_gpus=first, decode_gpus=second)
    assert float(x).is_integer()
    assert float(y).is_integer()
    matching = [
        i * first + j * second
        for i in range(1, MOST_REPLICAS + 1)
        for j in range(1, MOST_REPLICAS + 1)
        if min(i * prompts, j * requests) >= (1 - SLACK) * max(i * prompts, j * requests)
    ]
    if matching:
        assert x * first + y * second == min(matching)


def test_rates_that_never_match_take_the_best_per_gpu() -> None:
    x, y = matched_replicas(1000.0, decode_rate=1.0, prefill_gpus=1, decode_gpus=1)
    assert (float(x), float(y)) == (1, MOST_REPLICAS)


def test_what_chunks_hide() -> None:
    """One chunk hides nothing; many hide all but the last; a slow link shows what compute cannot hide."""
    assert exposed_time(3.0, prefill=1.0, chunks=1) == 3
    assert exposed_time(3.0, prefill=100.0, chunks=10) == pytest.approx(0.3)
    assert exposed_time(100.0, prefill=10.0, chunks=10) == pytest.approx(91)


def test_the_cache_of_a_prompt_as_known() -> None:
    """Llama-3.3-70B keeps 327,680 bytes per token in bf16, DeepSeek-V3.1's latent 70,272 on every tensor rank."""
    transformer, precision = named(LLAMA)
    whole = sent_bytes(transformer, precision, layout=Layout(), prompt=1000)
    assert float(whole) == 327_680 * 1000
    cut = sent_bytes(transformer, precision, layout=Layout(tensor=4, pipeline=2), prompt=1000)
    assert float(cut) == float(whole) / 8
    latent = sent_bytes(*named(DEEPSEEK), layout=Layout(tensor=8), prompt=1)
    assert float(latent) == 70_272


def test_transfers_take_the_adapter_or_the_fast_domain() -> None:
    gpu, ideal = catalog.gpus()["h200-sxm"], catalog.engines()["ideal"]
    apart, near = (
        float(
            transfer_time(50e9, received=10e9, source=gpu, target=gpu, near=np.asarray(close), engine=ideal)
        )
        for close in (False, True)
    )
    assert gpu.network
    assert apart == pytest.approx(50e9 / gpu.network)
    assert near == pytest.approx(50e9 / gpu.link)


@given(by=engines, workload=workloads, first=widths, second=widths, concurrency=st.integers(1, 512))
def test_conservation(by: str, workload: Workload, first: int, second: int, concurrency: int) -> None:
    """Replicas and GPUs add up, the slower pool sets the pace, parts make up the times, nothing interrupts a token."""
    one = found(
        by=by,
        workload=workload,
        prefill=Layout(tensor=np.array([first])),
        decode=Layout(tensor=np.array([second])),
        concurrency=np.array([concurrency]),
    )
    assert one.gpus == one.prefill_replicas * first + one.decode_replicas * second
    assert one.requests_per_s == np.minimum(one.prefill_rate, one.decode_rate)
    assert one.tokens_per_s == pytest.approx(one.requests_per_s * workload.output)
    assert one.tokens_per_s_per_gpu * one.gpus == pytest.approx(one.tokens_per_s)
    assert one.tpot == pytest.approx(one.decode.total)
    assert one.step == pytest.approx(one.tpot * workload.tokens_per_step)
    assert one.ttft == pytest.approx(one.prefill + one.exposed + one.step)
    assert np.all(one.exposed <= one.transfer)
    assert np.all(one.running <= concurrency)


@given(by=engines, workload=workloads, concurrency=st.integers(1, 512), more=st.integers(1, 512))
def test_more_requests_never_make_a_token_faster(
    by: str, workload: Workload, concurrency: int, more: int
) -> None:
    one = found(by=by, workload=workload, concurrency=np.array([concurrency, concurrency + more]))
    tpot = np.squeeze(one.tpot)
    assert tpot[0] <= tpot[1] * (1 + 1e-9)


def test_the_grid_is_point_by_point() -> None:
    tensor, users = np.array([1, 2, 8]), np.array([1, 16, 200])
    grid = found(prefill=Layout(tensor=tensor), decode=Layout(tensor=tensor[1:]), concurrency=users)
    assert np.shape(grid.ttft) == np.shape(grid.tokens_per_s_per_gpu) == (3, 2, 3)
    for p, first in enumerate(tensor):
        for d, second in enumerate(tensor[1:]):
            for b, user in enumerate(users):
                one = found(
                    prefill=Layout(tensor=np.array([first])),
                    decode=Layout(tensor=np.array([second])),
                    concurrency=np.array([user]),
                )
                for name in ("ttft", "gpus", "requests_per_s", "tokens_per_s_per_gpu", "fits"):
                    everywhere = np.broadcast_to(getattr(grid, name), (3, 2, 3))
                    assert everywhere[p, d, b] == pytest.approx(np.squeeze(getattr(one, name))), name


def test_each_role_holds_a_full_copy() -> None:
    """70B in FP8 fits one H200; a model that fits neither pool is said not to."""
    one = found(prefill=Layout(tensor=np.array([1, 2])), decode=Layout(tensor=np.array([1])))
    assert one.fits.ravel().tolist() == [True, True]
    assert one.prefill_memory.weights[1] == pytest.approx(one.prefill_memory.weights[0] / 2, rel=0.01)
    assert one.decode_memory.weights.ravel()[0] == pytest.approx(one.prefill_memory.weights.ravel()[0])
    large = found(
        name=DEEPSEEK, weights=None, prefill=Layout(tensor=np.array([4])), decode=Layout(tensor=np.array([8]))
    )
    assert not large.fits.any()


def test_no_gain_at_low_load_and_better_tokens_at_medium_load() -> None:
    """Dynamo's tuning guide: no gain at low load; at medium load a better time per token at as much throughput."""
    users = np.array([1, 64])
    one = found(concurrency=users)
    both = together(Layout(tensor=4), concurrency=users)
    apart, mixed = np.ravel(one.tpot), np.ravel(both.tpot)
    assert apart[0] == pytest.approx(mixed[0])
    assert apart[1] < mixed[1] / 2
    assert np.ravel(one.tokens_per_s_per_gpu)[1] > np.ravel(both.tokens_per_s_per_gpu)[1]


def test_the_best_pair_fits_and_is_in_time() -> None:
    one = found(
        prefill=Layout(tensor=np.array([1, 2, 4])),
        decode=Layout(tensor=np.array([1, 2, 4, 8])),
        concurrency=np.array([1, 8, 64, 256]),
    )
    fastest = one.best()
    assert fastest
    rates = np.where(one.fits, one.tokens_per_s_per_gpu, 0)
    assert rates[fastest] == rates.max()
    in_time = one.best(tpot=0.015, ttft=1.0)
    assert in_time
    assert np.broadcast_to(one.tpot, rates.shape)[in_time] <= 0.015
    assert rates[in_time] < rates[fastest]
    assert one.best(tpot=1e-6) is None


def test_few_prefill_replicas_where_answers_are_long() -> None:
    """The longer the answer over the prompt, the fewer GPUs prefill."""
    shares = []
    for workload in (Workload(prompt=8000, output=200), Workload(prompt=1000, output=4000)):
        one = found(workload=workload, concurrency=np.array([128]))
        shares.append(float(np.squeeze(one.prefill_replicas * 2 / one.gpus)))
    assert shares[1] < shares[0] / 3


def test_prompts_are_packed_no_more_than_pays() -> None:
    """Dynamo's guide: a prefill batch near one, the smallest that saturates. Short prompts need company for that."""
    long, short = (
        float(np.squeeze(found(workload=Workload(prompt=prompt, output=100)).prompts))
        for prompt in (3000, 100)
    )
    assert long == 1
    assert short > 4


def test_deepseeks_own_clusters() -> None:
    """DeepSeek, open-infra-index day 6 (2025-02-28): prefill on 32 GPUs, decode on 144; 73.7k tokens in per node and
    second, 56.3 % of them cached, and 14.8k out, at 20 to 22 tokens per second and user. On average 4,989 tokens lie in
    the cache for a token put out; 608 billion tokens in and 168 billion out in a day give the mean lengths.

    Its production load is an average over a day, ours is saturated; the batch follows from the two rates."""
    workload = Workload(prompt=4384, output=1211, prefix_hit=0.563)
    per_gpu = round(14_800 / 8 / 21)
    one = found(
        name=DEEPSEEK,
        weights=None,
        on="h800-sxm",
        by="sglang",
        prefill=Layout(data=np.array([32]), expert=np.array([32])),
        decode=Layout(data=np.array([144]), expert=np.array([144])),
        workload=workload,
        concurrency=np.array([per_gpu * 144]),
    )
    prompts = one.prefill_rate / one.prefill_replicas / 32 * 8 * workload.prompt
    answers = one.decode_rate / one.decode_replicas / 144 * 8 * workload.output
    assert one.fits.all()
    assert 73_700 / 1.7 <= float(np.squeeze(prompts)) <= 73_700 * 1.7
    assert float(np.squeeze(answers)) == pytest.approx(14_800, rel=0.25)
    assert float(np.squeeze(one.tokens_per_s_per_user)) == pytest.approx(21, rel=0.25)
