"""What does not fit: the part at fault, the bytes missing, and the largest length and concurrency that do fit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parplan import catalog
from parplan.fit import LONGEST, Fit, fit, longest_request, runnable, shortfall
from parplan.layout import Layout
from parplan.memory import Memory, Settings, memory
from parplan.problem import Problem, chosen_precision
from parplan.scenario import Scenario, plan, problem_of
from parplan.units import GIB
from parplan.ways_out import could_hold, ways_out
from parplan.workload import Workload

LLAMA_8B, LLAMA_70B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.3-70B-Instruct"
GEMMA, DEEPSEEK = "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3"
ENGINES = ("vllm", "vllm-0.17", "vllm-0.16", "sglang", "trtllm", "ideal")


def asked(
    name: str = LLAMA_8B,
    *,
    weights: str | None = None,
    engine: str = "vllm",
    gpu: str = "h100-sxm",
    layout: Layout | None = None,
    told: Settings | None = None,
) -> dict[str, Any]:
    """A deployment, names resolved."""
    transformer, formats = catalog.model(name).transformer, catalog.formats()
    return {
        "transformer": transformer,
        "precision": chosen_precision(
            transformer, weights=formats[weights] if weights else None, kv=None, formats=formats
        ),
        "layout": layout or Layout(),
        "gpu": catalog.gpus()[gpu],
        "engine": catalog.engines()[engine],
        "settings": told,
    }


def held(deployment: dict[str, Any], *, length: int, concurrency: int) -> Memory:
    """Its memory."""
    workload = Workload(prompt=length - 1, output=1)
    return memory(**deployment, workload=workload, concurrency=concurrency)


def of(deployment: dict[str, Any], *, length: int = 2048, concurrency: int = 64) -> Fit:
    """How far it can go."""
    one = held(deployment, length=length, concurrency=concurrency)
    return fit(problem(deployment, concurrency=concurrency), layout=deployment["layout"], held=one)


def problem(deployment: dict[str, Any], *, concurrency: int = 1) -> Problem:
    """The same, asked for so many requests; the layout is no part of it."""
    parts = {name: part for name, part in deployment.items() if name not in ("layout", "settings")}
    return Problem(
        **parts,
        settings=deployment["settings"] or Settings(),
        workload=Workload(concurrency=concurrency),
        budget=1,
        fixed={},
    )


def longest(deployment: dict[str, Any], *, concurrency: int) -> int:
    """Tokens of its longest requests."""
    return longest_request(problem(deployment), layout=deployment["layout"], concurrency=concurrency)


# --- which part, and by how much


def test_what_fits_misses_nothing() -> None:
    found = of(asked(), concurrency=16)
    assert found.shortfall is None
    assert found.requests >= 16
    assert found.length >= 2048


@pytest.mark.parametrize(
    ("deployment", "length", "concurrency", "part"),
    [
        (asked(LLAMA_70B, weights="bf16"), 2048, 1, "weights"),
        (asked(LLAMA_70B, weights="fp8"), 8192, 64, "kv"),
        (asked("openai/gpt-oss-120b", engine="vllm-0.16"), 2048, 1, "activations"),
        (
            asked("openai/gpt-oss-20b", engine="vllm-0.17", told=Settings(utilization=0.995)),
            2048,
            1,
            "overhead",
        ),
    ],
)
def test_the_part_at_fault(deployment: dict[str, Any], length: int, concurrency: int, part: str) -> None:
    """gpt-oss-120b on one H100 before 0.17: 64 GiB of weights fit, 7.4 GiB of sampling beside them do not."""
    found = of(deployment, length=length, concurrency=concurrency).shortfall
    assert found
    assert (found.part, found.missing > 0) == (part, True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "layout"),
    [(LLAMA_70B, Layout()), (LLAMA_70B, Layout(tensor=2)), (DEEPSEEK, Layout(tensor=8)), (GEMMA, Layout())],
)
def test_a_gpu_larger_by_what_is_missing_has_room(engine: str, name: str, layout: Layout) -> None:
    """The figure is true: with so many bytes more for the engine, the part at fault no longer is."""
    told = Settings(utilization=0.9, max_num_seqs=256, max_batched_tokens=8192, eager=True)
    deployment = asked(name, engine=engine, layout=layout, told=told)
    one = held(deployment, length=4096, concurrency=256)
    found = shortfall(one)
    if found is None:
        return
    gpu = deployment["gpu"]
    larger = gpu.model_copy(update={"memory": gpu.memory + found.missing / 0.9 * (1 + 1e-9) + 1})
    again = shortfall(held(deployment | {"gpu": larger}, length=4096, concurrency=256))
    assert again is None or again.part != found.part


def test_the_words_name_the_bytes() -> None:
    found = of(asked(LLAMA_70B, weights="bf16")).shortfall
    assert found
    assert found.missing / GIB == pytest.approx(131.4 - 0.92 * 79.18, abs=0.2)
    assert f"{found.missing / GIB:.1f} GiB more" in found.reason


# --- how far requests must come down


@settings(deadline=None, max_examples=30)
@given(
    engine=st.sampled_from(ENGINES),
    name=st.sampled_from([LLAMA_8B, LLAMA_70B, GEMMA, DEEPSEEK, "Qwen/Qwen3-Next-80B-A3B-Instruct"]),
    tensor=st.sampled_from([1, 2, 8]),
    concurrency=st.integers(1, 3000),
)
def test_one_token_more_and_fewer_run(engine: str, name: str, tensor: int, concurrency: int) -> None:
    deployment = asked(name, engine=engine, layout=Layout(tensor=tensor), weights="fp8")
    most = longest(deployment, concurrency=concurrency)
    wanted = min(concurrency, float(held(deployment, length=2, concurrency=concurrency).slots))
    if most:
        assert runnable(held(deployment, length=most, concurrency=concurrency)) >= wanted
    if most < LONGEST:
        assert runnable(held(deployment, length=max(most, 1) + 1, concurrency=concurrency)) < wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_one_request_more_waits(engine: str) -> None:
    deployment = asked(engine=engine)
    most = of(deployment, length=4096).requests
    at_most, beyond = (held(deployment, length=4096, concurrency=count) for count in (most, most + 1))
    assert at_most.kv_waiting == 0
    assert at_most.running == most
    assert beyond.running == most
    assert beyond.kv_waiting == beyond.request


def test_slots_limit_what_the_cache_would_hold() -> None:
    found = of(asked(told=Settings(max_num_seqs=8)), length=128, concurrency=8)
    assert found.requests == 8
    assert found.shortfall is None


def test_what_does_not_load_holds_no_length() -> None:
    found = of(asked(LLAMA_70B, weights="bf16"))
    assert found.requests == found.length == found.length_alone == 0


@pytest.mark.parametrize(
    ("name", "weights", "layout", "pool", "tokens"),
    [
        ("Qwen/Qwen2.5-32B-Instruct", "int4-g128", Layout(), 0.58, 2368),
        ("MiniMaxAI/MiniMax-M2.7", "int4-g128", Layout(tensor=2), 22.5, 190_272),
    ],
)
def test_the_longest_request_is_the_one_vllm_estimates(
    name: str, weights: str, layout: Layout, pool: float, tokens: int
) -> None:
    """Logged (rows M150, M196): so many GiB are available, "the estimated maximum model length is" so many tokens."""
    told = Settings(utilization=0.9, max_num_seqs=256, max_batched_tokens=8192)
    deployment = asked(name, weights=weights, layout=layout, gpu="h200-sxm", told=told)
    gpu, one = deployment["gpu"], held(deployment, length=4096, concurrency=1)
    smaller = gpu.model_copy(update={"memory": gpu.memory - (float(one.pool) - pool * GIB) / 0.9})
    found = longest(deployment | {"gpu": smaller}, concurrency=1)
    assert found == pytest.approx(tokens, rel=1e-4)


def test_more_requests_must_be_shorter() -> None:
    lengths = [longest(asked(LLAMA_8B), concurrency=count) for count in (1, 2, 4, 8)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == pytest.approx(8 * lengths[3], rel=0.02)


# --- ways out


def holding(scenario: Scenario) -> bool:
    """Whether what is recommended holds every request."""
    best = plan(scenario).advice.recommended
    return bool(best and best.holds)


TOO_MUCH = [
    Scenario(concurrency=512, budget=2),
    Scenario(prompt=100_000, output=1000, concurrency=30, budget=2),
    Scenario(model=DEEPSEEK, weights="native", budget=8),
    Scenario(weights="bf16", budget=1, concurrency=4),
]


@pytest.mark.parametrize("scenario", TOO_MUCH, ids=lambda scenario: str(scenario.changed()))
def test_every_way_out_is_one_and_the_cheapest_comes_first(scenario: Scenario) -> None:
    assert not holding(scenario)
    ways = ways_out(plan(scenario))
    assert ways
    for way in ways:
        applied = plan(way.scenario).advice
        assert applied.recommended
        assert applied.recommended.holds
        assert way.verdict == applied.verdict
    assert [way.price for way in ways] == sorted(way.price for way in ways)


@settings(deadline=None, max_examples=15)
@given(
    model=st.sampled_from(
        [LLAMA_70B, DEEPSEEK, GEMMA, "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
    ),
    engine=st.sampled_from(ENGINES),
    gpu=st.sampled_from(["h100-sxm", "l40s"]),
    length=st.sampled_from([1000, 30_000, 200_000]),
    concurrency=st.sampled_from([1, 100, 2000]),
    budget=st.sampled_from([1, 8]),
)
def test_what_could_not_hold_does_not(
    model: str, engine: str, gpu: str, length: int, concurrency: int, budget: int
) -> None:
    """No way out is left out: where the bytes alone rule it out, no layout holds every request."""
    scenario = Scenario(
        model=model,
        weights="native",
        engine=engine,
        gpu=gpu,
        prompt=length,
        concurrency=concurrency,
        budget=budget,
    )
    problem = problem_of(scenario)
    assert could_hold(problem) or not holding(scenario)


def test_fewer_requests_are_as_many_as_fit() -> None:
    """One more than the way out says, on the same layout, and not all of them are held."""
    way = next(way for way in ways_out(plan(TOO_MUCH[0])) if "in hand" in way.words)
    best = way.plan
    cuts = {"tensor": int(best.layout.tensor), "pipeline": int(best.layout.pipeline)}
    beyond = way.scenario.model_copy(update=cuts | {"concurrency": way.scenario.concurrency + 1})
    assert holding(way.scenario.model_copy(update=cuts))
    assert not holding(beyond)


def test_shorter_requests_keep_the_shape_of_the_asked_ones() -> None:
    asked_for = TOO_MUCH[1]
    way = next(way.scenario for way in ways_out(plan(asked_for)) if "tokens" in way.words)
    assert way.prompt < asked_for.prompt
    assert way.prompt / way.output == pytest.approx(asked_for.prompt / asked_for.output, rel=0.05)


@pytest.mark.parametrize(
    ("fixed", "changes"),
    [
        ({"tensor": 3}, [{"tensor": 2}, {"tensor": 4}]),  # as the objection to TP3 says
        ({"tensor": 1, "pipeline": 1}, [{"tensor": 2}, {"pipeline": 2}]),
        ({"tensor": 1, "pipeline": 1, "concurrency": 500}, [{"tensor": 8}, {"pipeline": 6}]),
        (
            {"tensor": 3, "decode_context": 16},
            [{"tensor": 0, "decode_context": 0}],
        ),  # neither alone is enough
    ],
    ids=str,
)
def test_a_fixed_cut_is_changed_to_the_nearest_that_holds_every_request(
    fixed: dict[str, int], changes: list[dict[str, int]]
) -> None:
    scenario = Scenario(**fixed)
    assert not holding(scenario)
    ways = [way.scenario for way in ways_out(plan(scenario))]
    for change in changes:
        assert scenario.model_copy(update=change) in ways
        assert holding(scenario.model_copy(update=change))


def test_where_no_number_of_requests_of_that_length_fits_one_shorter_request_does() -> None:
    """4,096 requests of two million tokens on sixteen T4: fewer do not fit, and shorter ones only one by one."""
    (way,) = ways_out(plan(Scenario(gpu="t4", concurrency=4096, prompt=2_000_000)))
    assert way.scenario.concurrency == 1
    assert f"of up to {way.scenario.prompt + way.scenario.output:,} tokens" in way.words
    assert holding(way.scenario)
    assert not holding(way.scenario.model_copy(update={"prompt": way.scenario.prompt + 32}))
