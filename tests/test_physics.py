"""What must hold of every model on every GPU under every engine, whatever the constants are."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parplan import Scenario, catalog, plan
from parplan.calibration import SCALE_LIMITS, Engine
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Settings, memory
from parplan.problem import chosen_precision
from parplan.serving import Serving, serve
from parplan.step import Step
from parplan.workload import Workload

MODELS = tuple(catalog.model_files())
RATES = ("bandwidth", "link", "peer", "network", "pcie")
PARTS = (
    "linear",
    "attention",
    "experts",
    "all_reduce",
    "all_to_all",
    "send",
    "launch",
    "head",
    "engine",
    "bubble",
    "draft",
)
ROUNDING = 1 + 1e-9
PRINTED = 1.001
"""Data sheets round the same rate differently (989.4 and 989 TFLOP/s)."""
SATURATED = 1e-3
"""An engine bound by arithmetic does the same however many run; the wait for a step under way is not overlapped then
and costs a little."""
WAITS_DIFFER = 0.1
"""Requests that wait for a slot and those that wait for room in the cache come in by different laws: with as many
running, the second deliver up to 2 % less, with pipeline stages up to a tenth."""

models = st.sampled_from(MODELS)
gpus = st.sampled_from(sorted(catalog.gpus()))
engines = st.sampled_from(sorted(catalog.engines()))
layouts = st.builds(
    lambda tensor, data, pipeline, spread, context, decode_context: Layout(
        tensor=tensor,
        data=data,
        pipeline=pipeline,
        expert=max(1, tensor * data // spread) if spread else 1,
        context=context,
        decode_context=min(decode_context, tensor),
    ),
    tensor=st.sampled_from([1, 2, 4, 8, 16]),
    data=st.sampled_from([1, 1, 2, 8, 32]),
    pipeline=st.sampled_from([1, 1, 2, 4]),
    spread=st.sampled_from([0, 1, 2]),
    context=st.sampled_from([1, 1, 1, 4]),
    decode_context=st.sampled_from([1, 1, 1, 2]),
)
workloads = st.builds(
    Workload,
    prompt=st.integers(min_value=1, max_value=100_000),
    output=st.integers(min_value=1, max_value=10_000),
    prefix_hit=st.sampled_from([0.0, 0.0, 0.7]),
    draft=st.sampled_from([0, 0, 1, 3]),
    acceptance=st.floats(min_value=0, max_value=1),
)
counts = st.integers(min_value=1, max_value=4000)
factors = st.floats(min_value=1, max_value=4)


def faster(gpu: Gpu, *, by: float) -> Gpu:
    """A GPU with all its rates multiplied."""
    rates = {name: getattr(gpu, name) * by for name in RATES if getattr(gpu, name)}
    return gpu.model_copy(update=rates | {"peaks": {run: peak * by for run, peak in gpu.peaks.items()}})


def served(
    model: str,
    *,
    on: Gpu,
    by: Engine,
    layout: Layout,
    workload: Workload,
    concurrency: Any,
    capacity: Any = np.inf,
    settings: Settings | None = None,
) -> Serving:
    """A model of the catalogue in its own formats, served."""
    transformer = catalog.model(model).transformer
    precision = chosen_precision(transformer, weights=None, kv=None, formats=catalog.formats())
    return serve(
        transformer,
        precision,
        layout=layout,
        gpu=on,
        engine=by,
        workload=workload,
        concurrency=concurrency,
        capacity=capacity,
        settings=settings or Settings(),
    )


def never_falls(values: Any) -> bool:
    """Whether no value is below the one before it."""
    return bool(np.all(np.diff(values) >= -(ROUNDING - 1) * np.abs(values[1:])))


@given(model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads)
def test_a_token_takes_no_less_time_with_more_requests(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload
) -> None:
    found = served(
        model,
        on=catalog.gpus()[gpu],
        by=catalog.engines()[engine],
        layout=layout,
        workload=workload,
        concurrency=np.unique(np.geomspace(1, 4096, 60).round()),
    )
    assert never_falls(np.asarray(found.tpot))
    assert never_falls(np.asarray(found.ttft))


@given(
    model=models,
    gpu=gpus,
    engine=engines,
    layout=layouts,
    workload=workloads,
    concurrency=counts,
    prompt=st.integers(min_value=16, max_value=100_000),
    step=st.sampled_from([512, 2048, 4096, 8192, 16_384]),
)
def test_times_never_fall_as_the_prompt_grows(
    model: str,
    gpu: str,
    engine: str,
    layout: Layout,
    workload: Workload,
    concurrency: int,
    prompt: int,
    step: int,
) -> None:
    """By one token at any length, across every border of a step, and by much."""
    lengths = [prompt, prompt + 1, *(step * full + over for full in (1, 2, 5) for over in (-1, 0, 1, 2))]
    found = [
        served(
            model,
            on=catalog.gpus()[gpu],
            by=catalog.engines()[engine],
            layout=layout,
            workload=workload.model_copy(update={"prompt": length, "prefix_hit": 0.0}),
            concurrency=concurrency,
            settings=Settings(max_batched_tokens=step),
        )
        for length in sorted(lengths)
    ]
    for time in (
        [one.decode.total for one in found],
        [one.tpot for one in found],
        [one.ttft for one in found],
    ):
        assert never_falls(np.array(time, dtype=float).ravel())


@given(
    model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads, concurrency=counts, by=factors
)
def test_a_gpu_with_higher_rates_is_never_slower(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload, concurrency: int, by: float
) -> None:
    slow, fast = (
        served(
            model,
            on=one,
            by=catalog.engines()[engine],
            layout=layout,
            workload=workload,
            concurrency=concurrency,
        )
        for one in (catalog.gpus()[gpu], faster(catalog.gpus()[gpu], by=by))
    )
    assert fast.tpot <= slow.tpot * ROUNDING
    assert fast.ttft <= slow.ttft * ROUNDING
    assert fast.tokens_per_s * ROUNDING >= slow.tokens_per_s


def dominates(fast: Gpu, slow: Gpu) -> bool:
    """Whether a GPU has all that another one has, and all rates at least as high, in the same architecture."""
    same = (fast.architecture, fast.fabric, fast.node) == (slow.architecture, slow.fabric, slow.node)
    rates = all(PRINTED * (getattr(fast, name) or 0) >= (getattr(slow, name) or 0) for name in RATES)
    peaks = all(PRINTED * fast.peaks.get(run, 0) >= peak for run, peak in slow.peaks.items())
    return same and rates and peaks and fast.domain >= slow.domain and fast.peaks.keys() == slow.peaks.keys()


BETTER = [
    (slow, fast)
    for slow, fast in permutations(catalog.gpus(), 2)
    if dominates(catalog.gpus()[fast], catalog.gpus()[slow])
]


def test_some_gpus_are_better_than_others() -> None:
    assert ("h100-sxm", "h200-sxm") in BETTER


@given(
    model=models, pair=st.sampled_from(BETTER), engine=engines, layout=layouts, workload=workloads,
    concurrency=counts,
)  # fmt: skip
def test_the_better_of_two_real_gpus_is_never_slower(
    model: str, pair: tuple[str, str], engine: str, layout: Layout, workload: Workload, concurrency: int
) -> None:
    """Settings given, as defaults differ by the size of a GPU."""
    slow, fast = (
        served(
            model,
            on=catalog.gpus()[name],
            by=catalog.engines()[engine],
            layout=layout,
            workload=workload,
            concurrency=concurrency,
            settings=Settings(max_num_seqs=256, max_batched_tokens=8192),
        )
        for name in pair
    )
    assert fast.tpot <= slow.tpot * PRINTED
    assert fast.ttft <= slow.ttft * PRINTED


@given(
    model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads, room=counts, slots=counts,
    more=counts,
)  # fmt: skip
def test_relaxing_a_limit_never_costs_throughput(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload, room: int, slots: int, more: int
) -> None:
    """Where a message to another node takes seconds, as on GPUs sold without a network, steps grow with every request
    and waiting for one costs more than company gains."""
    assume(layout.gpus <= catalog.gpus()[gpu].node or catalog.gpus()[gpu].network)
    tight, roomy, wide = (
        served(
            model,
            on=catalog.gpus()[gpu],
            by=catalog.engines()[engine],
            layout=layout,
            workload=workload,
            concurrency=4000,
            capacity=capacity,
            settings=Settings(max_num_seqs=number),
        ).tokens_per_s
        for capacity, number in ((room, slots), (room + more, slots), (room, slots + more))
    )
    assert roomy >= tight * (1 - SATURATED)
    assert wide >= tight * (1 - WAITS_DIFFER)


@given(model=models, gpu=gpus, layout=layouts, workload=workloads, concurrency=counts)
def test_without_overheads_double_rates_halve_every_time(
    model: str, gpu: str, layout: Layout, workload: Workload, concurrency: int
) -> None:
    known, ideal = catalog.gpus()[gpu], catalog.engines()["ideal"]
    known = known.model_copy(update={"network": known.network or known.pcie or known.link})
    once, twice = (
        served(model, on=one, by=ideal, layout=layout, workload=workload, concurrency=concurrency)
        for one in (known, faster(known, by=2.0))
    )
    assert twice.tpot == pytest.approx(once.tpot / 2)
    assert twice.ttft == pytest.approx(once.ttft / 2)
    assert twice.tokens_per_s == pytest.approx(once.tokens_per_s * 2)


@given(model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads, concurrency=counts)
def test_parts_make_up_the_whole(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload, concurrency: int
) -> None:
    found = served(
        model,
        on=catalog.gpus()[gpu],
        by=catalog.engines()[engine],
        layout=layout,
        workload=workload,
        concurrency=concurrency,
    )
    step: Step = found.decode
    parts = [np.squeeze(getattr(step, part)) for part in PARTS]
    assert all(part >= 0 for part in parts)
    assert found.prefill >= 0
    assert sum(parts) + found.prefill == pytest.approx(found.tpot)
    assert np.all(step.least <= step.total * ROUNDING)
    assert np.all(step.total <= step.most * ROUNDING)


@given(model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads, concurrency=counts)
def test_a_gpu_holds_its_parts(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload, concurrency: int
) -> None:
    transformer = catalog.model(model).transformer
    held = memory(
        transformer,
        chosen_precision(transformer, weights=None, kv=None, formats=catalog.formats()),
        layout=layout,
        gpu=catalog.gpus()[gpu],
        engine=catalog.engines()[engine],
        workload=workload,
        concurrency=concurrency,
    )
    assert held.weights + held.kv + held.activations + held.overhead + held.free == pytest.approx(held.usable)


@given(
    model=models, gpu=gpus, engine=engines, layout=layouts, workload=workloads, concurrency=counts,
    scale=st.floats(min_value=SCALE_LIMITS[0], max_value=1),
)  # fmt: skip
def test_an_engine_scaled_down_is_never_faster(
    model: str, gpu: str, engine: str, layout: Layout, workload: Workload, concurrency: int, scale: float
) -> None:
    known = catalog.engines()[engine]
    asked: dict[str, Any] = {
        "on": catalog.gpus()[gpu], "layout": layout, "workload": workload, "concurrency": concurrency,
    }  # fmt: skip
    base = served(model, by=known, **asked).decode.total
    for change in ({"memory": scale}, {"compute": scale}, {"overhead": 1 / scale}):
        assert served(model, by=known.scaled(**change), **asked).decode.total * ROUNDING >= base


@settings(max_examples=10)
@given(
    model=st.sampled_from(["meta-llama/Meta-Llama-3.1-8B", "openai/gpt-oss-20b"]),
    replicas=st.integers(min_value=2, max_value=50),
    engine=engines,
)
def test_replicas_change_nothing_inside_one(model: str, replicas: int, engine: str) -> None:
    one, many = (
        plan(Scenario(model=model, weights="native", engine=engine, replicas=number)).advice.recommended
        for number in (1, replicas)
    )
    assert (one is None) == (many is None)
    if one and many:
        assert one.layout == many.layout
        assert one.serving.tpot == many.serving.tpot
        assert one.memory.kv == many.memory.kv
