"""Both numbers of a GPU: what the workload needs and what the engine reserves, what that holds, and what is missing."""

import pytest

from parplan import Scenario, catalog, plan
from parplan.balance import KV, Balance, balance
from parplan.export import answer_json
from parplan.memory_explanation import BLOCKS, IN_FLIGHT, kv_cache
from parplan.units import GIB, written_bytes

GEMMA, HYBRID = "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"


def of(scenario: Scenario) -> Balance:
    """Of the recommended layout, or the first where nothing runs."""
    answer = plan(scenario)
    return balance(answer.result.problem, answer.advice.recommended or answer.result.plan(0))


SCENARIOS = [
    Scenario(),
    Scenario(model=GEMMA, engine="sglang", weights="native"),
    Scenario(model=HYBRID, weights="native", engine="vllm-0.17"),
    Scenario(model="deepseek-ai/DeepSeek-V3", weights="native", draft=1),
    Scenario(weights="bf16", budget=1),
    Scenario(concurrency=512, budget=2),
    Scenario(engine="ideal"),
    Scenario(engine="trtllm", model="openai/gpt-oss-120b", weights="native"),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.changed()))
def test_parts_add_up_and_differ_in_the_cache_alone(scenario: Scenario) -> None:
    both = of(scenario)
    for count in ("needed", "reserved"):
        parts = sum(getattr(entry, count) for entry in both.entries)
        assert parts == pytest.approx(getattr(both.together, count))
    assert all(entry.needed == entry.reserved for entry in both.entries if entry.name != KV)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.changed()))
def test_an_engine_never_allocates_less_than_the_model_defines(scenario: Scenario) -> None:
    both = of(scenario)
    allocated = next(entry.needed for entry in both.entries if entry.name == KV)
    assert allocated >= both.kv_ideal * (1 - 1e-9)


def test_windows_save_less_in_an_engine_than_in_the_model() -> None:
    """Gemma-3, 2,048 tokens, windows of 1,024: vLLM pads 62 layers to 70, keeps windows in whole blocks, and on top of
    all windows together the tokens of two steps: 1,024 blocks of ten layers in each of six groups, half of each on
    a GPU."""
    both = of(Scenario(model=GEMMA))
    allocated = next(entry.needed for entry in both.entries if entry.name == KV)
    assert allocated > 1.3 * both.kv_ideal
    assert both.kv_in_flight == 6 * 1024 * 10 * 16 * 4096
    assert (
        f"{written_bytes(both.kv_in_flight)} of it in windows for the tokens of steps in flight" in both.cache
    )
    assert "in flight" not in of(Scenario()).cache


def test_what_the_steps_in_flight_take_is_a_part_of_the_cache_that_is_explained() -> None:
    """Gemma-3-27B on one H200, 32 requests of 16,384 tokens: windows, every token, blocks, and two steps of 8,192."""
    answer = plan(
        Scenario(
            model="google/gemma-3-27b-it",
            gpu="h200-sxm",
            weights="bf16",
            prompt=15_360,
            output=1_024,
            concurrency=32,
        )
    )
    best = answer.advice.recommended
    assert best
    assert int(best.gpus) == 1
    explained = kv_cache(best.result.problem, best)
    assert sum(part.value for part in explained.parts) == pytest.approx(float(best.memory.kv))
    parts = {part.name: part.value for part in explained.parts}
    assert parts[IN_FLIGHT] == pytest.approx(6 * 1024 * 10 * 16 * 8192)
    assert parts[BLOCKS] > 0


def test_the_log_says_the_same() -> None:
    """Pool, tokens and concurrency are one figure: tokens are requests of the asked length."""
    both = of(Scenario())
    assert both.kv_tokens == pytest.approx(both.requests * both.length, rel=1e-3)
    assert f"maximum concurrency for 2,048 tokens per request: {both.requests:,.2f}x" in both.holds
    assert both.fit.length_alone == pytest.approx(both.kv_tokens, abs=16)


def test_what_is_missing_names_the_part_the_bytes_and_how_far_to_come_down() -> None:
    short = of(Scenario(concurrency=512, budget=2))
    assert f"At most {short.fit.requests:,} requests of 2,048 tokens fit" in short.missing
    assert f"512 at once can be at most {short.fit.length:,} tokens long" in short.missing
    assert "GiB more" in short.missing
    heavy = of(Scenario(weights="bf16", budget=1))
    assert heavy.missing.startswith("The weights take 131.4 GiB")
    assert heavy.missing.endswith("No request fits, however short.")
    assert "does not come up" in heavy.sums
    assert not heavy.holds
    assert not of(Scenario()).missing


def test_a_tower_whose_images_are_not_known_is_said_not_to_be_counted() -> None:
    assert "largest images" in of(Scenario(model="google/gemma-4-31B-it")).left_out
    assert "largest images" in of(Scenario(model=GEMMA, engine="vllm-0.16")).left_out
    assert not of(Scenario(model=GEMMA)).left_out
    assert not of(Scenario(model="google/gemma-4-31B-it", images=False)).left_out
    assert not of(Scenario()).left_out


def test_a_draft_is_said_to_verify_in_uncounted_buffers() -> None:
    assert "drafted" in of(Scenario(draft=2)).left_out


def test_what_a_step_over_a_compressed_cache_takes_is_said_not_to_be_counted() -> None:
    assert (
        "for every token of a step"
        in of(Scenario(model="deepseek-ai/DeepSeek-V4-Flash", gpu="h200-sxm")).left_out
    )


def test_every_engine_but_the_ideal_says_what_it_does_not_count_with_images() -> None:
    silent = {name for name, engine in catalog.engines().items() if "towers" not in engine.memory.uncounted}
    assert silent == {"ideal"}


def test_the_data_hold_both_numbers() -> None:
    answer = plan(Scenario())
    data, both = answer_json(answer), of(Scenario())
    assert data["memory"]["parts"]["Together"] == {
        "needed": both.together.needed / GIB,
        "reserved": both.together.reserved / GIB,
    }
    assert data["memory"]["longest_request"] == both.fit.length_alone
    assert data["recommended"]["memory"]["kv_needed_ideal"] == pytest.approx(both.kv_ideal / GIB)


def test_slots_that_are_set_too_low_are_not_taken_for_a_full_cache() -> None:
    """There is cache for 91 of 512: more slots let these run, however short requests are, and no more than these."""
    answer = plan(Scenario(model="Qwen/Qwen3-8B", concurrency=512, slots=47, prompt=4000))
    assert answer.advice.recommended
    missing = balance(answer.result.problem, answer.advice.recommended).missing
    assert missing.endswith("At most 47 requests run at once, however short.")
    assert "Set sequence slots to 91 (--max-num-seqs)" in answer.advice.shortfall
    assert "For the others use more GPUs" in answer.advice.shortfall
