"""How figures are made: what is shown multiplies out and adds up to what the plan says, whatever the model."""

import pytest

from parplan import Scenario, plan
from parplan.explanation import (
    engine_sources,
    gpu_count,
    time_per_token,
    time_to_first_token,
    tokens_per_second,
    traits,
)
from parplan.memory_explanation import kv_cache, memory_parts, weights
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.products import Explanation, Factor, Term
from parplan.scenario import problem_of

EXPERTS = "deepseek-ai/DeepSeek-V3.1"
SCENARIOS = {
    "dense": Scenario(),
    "one GPU, bound": Scenario(model="Qwen/Qwen3-8B", gpu="l4", concurrency=8, budget=1, engine="ideal"),
    "stages": Scenario(model="meta-llama/Meta-Llama-3.1-405B", weights="bf16", tensor=8, pipeline=2),
    "latent, experts": Scenario(model=EXPERTS, weights="native", gpu="b200-sxm", concurrency=128),
    "repeated attention": Scenario(
        model=EXPERTS, weights="native", gpu="h200-sxm", data=16, expert=16, tensor=1, concurrency=512
    ),
    "drafting": Scenario(model=EXPERTS, weights="native", gpu="b200-sxm", draft=3, concurrency=32),
    "windows, four bits": Scenario(model="openai/gpt-oss-120b", weights="native", concurrency=250),
    "states": Scenario(model="Qwen/Qwen3-Next-80B-A3B-Instruct", gpu="h200-sxm"),
    "weight-only": Scenario(gpu="a100-sxm-80", weights="int4-g128"),
    "lengthwise": Scenario(model=EXPERTS, weights="native", gpu="b200-sxm", budget=4),
    "requests wait": Scenario(budget=2, prompt=8192, concurrency=256),
    "prefix": Scenario(prompt=30_000, prefix=60, replicas=3),
    "sglang": Scenario(engine="sglang", model="Qwen/Qwen3-30B-A3B"),
    "images": Scenario(model="google/gemma-3-27b-it"),
    "an image, few slots": Scenario(model="Qwen/Qwen3.5-27B", slots=4),
    "trtllm": Scenario(engine="trtllm", model="meta-llama/Llama-4-Scout-17B-16E-Instruct", gpu="h200-sxm"),
}


def best(scenario: Scenario) -> tuple[Problem, Plan]:
    answer = plan(scenario)
    assert answer.advice.recommended is not None
    return answer.result.problem, answer.advice.recommended


def explanations(scenario: Scenario) -> list[Explanation]:
    problem, found = best(scenario)
    many = scenario.replicas
    return [
        time_per_token(problem, found),
        time_to_first_token(problem, found),
        tokens_per_second(problem, found, replicas=many),
        gpu_count(found, replicas=many),
        memory_parts(problem, found),
        weights(problem, found),
        kv_cache(problem, found),
    ]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_parts_of_every_figure_add_up_to_it(scenario: Scenario) -> None:
    for explained in explanations(scenario):
        assert sum(part.value for part in explained.parts) == pytest.approx(explained.value, rel=1e-9), (
            explained.figure
        )


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_each_part_of_a_step_is_the_plans(scenario: Scenario) -> None:
    """Not only the sum: weights, attention, head, messages and overheads one by one."""
    problem, found = best(scenario)
    parts = time_per_token(problem, found).parts

    def of(*beginnings: str) -> float:
        return sum(part.value for part in parts if part.name.startswith(beginnings))

    step = found.serving.decode
    experts = of("weights: routed")
    assert experts == pytest.approx(float(step.experts), rel=1e-9)
    assert of("weights:", "activations") - experts == pytest.approx(float(step.linear), rel=1e-9)
    assert of("attention") == pytest.approx(float(step.attention), rel=1e-9)
    assert of("output head") == pytest.approx(float(step.head), rel=1e-9)
    assert of("sums", "logits", "parts of seq") == pytest.approx(float(step.all_reduce), rel=1e-9, abs=1e-12)
    assert of("starting", "scaling") == pytest.approx(float(step.launch), rel=1e-9)
    assert of("the engine") == pytest.approx(float(step.engine), rel=1e-9)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_no_rate_is_above_the_one_on_paper(scenario: Scenario) -> None:
    """Rates of experts and attention follow from their times: a wrong amount would show here."""
    for explained in explanations(scenario):
        for part in explained.parts:
            for terms in part.sides.values():
                for factor in (factor for term in terms for factor in term.factors if factor.of):
                    assert 0 < factor.value <= factor.of * (1 + 1e-9), (part.name, factor.words)


def test_the_products_are_the_textbooks() -> None:
    """A 70B model on two GPUs: half of each matrix is on each, a byte a parameter, read once per token."""
    problem, found = best(Scenario())
    parts = {part.name: part for part in weights(problem, found).parts}
    (term,) = parts["dense feed-forward, 1/2 of the model's"].sides[""]
    layers, hidden, width, bytes_each = 80, 8192, 28_672, 1
    assert term.value == layers * 3 * hidden * width / 2 * bytes_each
    (cache,) = kv_cache(problem, found).parts[0].sides[""]
    kv_heads, head_dim, cut, bf16 = 8, 128, 2, 2
    assert cache.value == 64 * 80 * 2048 * (2 * kv_heads // cut * head_dim * bf16)
    assert cache.words == "64 requests × 80 layers × 2,048 tokens × 2 KiB"


def test_every_part_of_a_time_shows_its_formula_and_the_constants_their_sources() -> None:
    problem, found = best(Scenario())
    for explained in (time_per_token(problem, found), time_to_first_token(problem, found)):
        assert all(part.formula for part in explained.parts)
        assert explained.sources


ABOUT = {
    "index": "indexer.py",
    "windows": "47728",
    "compressed": "deepseek_v4",
    "padding": "mxfp4",
    "images": "profile_run",
}
"""A word of what vLLM's constants for one trait were read from."""


@pytest.mark.parametrize(
    ("model", "traits"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", set()),
        ("deepseek-ai/DeepSeek-V3.1", set()),
        ("deepseek-ai/DeepSeek-V3.2", {"index"}),
        ("openai/gpt-oss-20b", {"windows", "padding"}),
        ("Qwen/Qwen3-VL-8B-Instruct", {"images"}),
    ],
)
def test_only_sources_a_plan_rests_on_are_cited(model: str, traits: set[str]) -> None:
    problem, found = best(Scenario(model=model, gpu="h200-sxm", concurrency=8))
    cited = [
        {source.text for source in explained.sources}
        for explained in (
            time_per_token(problem, found), memory_parts(problem, found), kv_cache(problem, found),
        )
    ]  # fmt: skip
    for texts in cited:
        said = {
            trait for trait, word in ABOUT.items() if any("vLLM" in text and word in text for text in texts)
        }
        assert said == traits


def test_a_compressed_cache_has_a_source_and_other_engines_have_their_own() -> None:
    deepseek = problem_of(Scenario(model="deepseek-ai/DeepSeek-V4-Flash"))
    assert "compressed" in set(traits(deepseek))
    assert any("deepseek_v4" in source.text for source in engine_sources(deepseek))
    elsewhere = problem_of(Scenario(model="deepseek-ai/DeepSeek-V4-Flash", engine="sglang"))
    assert engine_sources(elsewhere) == elsewhere.engine.sources
    packing = problem_of(Scenario(model="deepseek-ai/DeepSeek-V3.2", engine="sglang"))
    assert engine_sources(packing) == packing.engine.all_sources != packing.engine.sources


def test_the_side_that_bounds_is_named() -> None:
    problem, found = best(Scenario(concurrency=1))
    parts = {part.name: part for part in time_per_token(problem, found).parts}
    feed_forward = parts["weights: dense feed-forward"]
    assert feed_forward.bound == "reading"
    assert set(feed_forward.words(unit="s")) == {"reading", "arithmetic"}


def test_a_product_is_written_with_its_units() -> None:
    term = Term((Factor(2e9, "parameters"), Factor(1, "B"), Factor(2e12, "B/s", divides=True, of=4e12)))
    assert term.words == "2 billion parameters × 1 byte ÷ 2 TB/s (50 % of 4 TB/s)"
    assert term.value == 1e-3
