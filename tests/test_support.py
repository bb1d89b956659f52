"""Which formats an engine runs on which GPU: launch commands, objections, verdicts and ways out say the same of it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from parplan import Scenario, catalog, plan
from parplan.commands import DIALECTS, launch
from parplan.formats import Format
from parplan.layout import Layout
from parplan.links import from_query, parsed, share_url
from parplan.memory import Memory
from parplan.objections import BY_NAME, REFUSALS, objection
from parplan.planner import case_of, evaluate
from parplan.problem import Problem, chosen_precision
from parplan.scenario import problem_of
from parplan.support import Capabilities
from parplan.ways_out import ways_out

ENGINES, FORMATS = catalog.engines(), catalog.formats()
LLAMA, MIXTURE, LATENT = (
    "meta-llama/Meta-Llama-3.1-8B-Instruct",
    "openai/gpt-oss-20b",
    "deepseek-ai/DeepSeek-V2-Lite",
)
GENERATIONS = {(gpu.vendor, gpu.architecture, str(gpu.capability)): gpu for gpu in catalog.gpus().values()}
"""One GPU of each generation, cards of Blackwell apart from its servers."""
CHOICES = [*product(catalog.weight_formats().values(), catalog.kv_formats().values())]


def stored(of: Problem, *, weights: Format | None, kv: Format) -> Problem:
    precision = chosen_precision(of.transformer, weights=weights, kv=kv, formats=FORMATS)
    return replace(of, precision=precision)


def every(engine: str, model: str) -> Iterator[Problem]:
    """All combinations of weights, KV cache and GPU generation."""
    for gpu in GENERATIONS.values():
        of = problem_of(Scenario(model=model, engine=engine, gpu=gpu.name))
        yield from (stored(of, weights=weights, kv=kv) for weights, kv in CHOICES)


@cache
def held_by(model: str) -> Memory:
    """Some memory of a model: what is refused does not follow from it."""
    return evaluate(problem_of(Scenario(model=model)), layout=Layout(), concurrency=np.asarray(1))[0]


def refused(of: Problem, *, held: Memory) -> set[str]:
    """The rules by which the engine refuses a GPU or a format."""
    case = case_of(of, layout=Layout(), held=held)
    return {name for name in REFUSALS if BY_NAME[name].broken(case)}


@pytest.mark.parametrize("engine", DIALECTS)
@pytest.mark.parametrize("model", [LLAMA, LATENT])
def test_a_command_exists_exactly_where_nothing_is_refused(engine: str, model: str) -> None:
    held, counts = held_by(model), Counter[bool]()
    for of in every(engine, model):
        found, rules = launch(of, layout=Layout(), memory=held, engine_name=engine), refused(of, held=held)
        assert bool(found.commands) != bool(rules), (of.gpu.name, of.precision.kv.name, found.cannot, rules)
        assert not found.commands or of.precision.kv.name in {"fp16", *DIALECTS[engine].kv}, "it has no name"
        counts[bool(rules)] += 1
    assert counts[True]
    assert counts[False]


@pytest.mark.parametrize("engine", DIALECTS)
def test_every_refusal_has_words_a_source_and_the_nearest_format_that_runs(engine: str) -> None:
    seen = set[tuple[str, Format | None]]()
    for of in every(engine, LATENT):
        support, model = ENGINES[engine].support, of.transformer
        for refusal in support.refusals(model, precision=of.precision, gpu=of.gpu):
            if (of.gpu.name, refusal.stored) in seen:
                continue
            seen.add((of.gpu.name, refusal.stored))
            case = case_of(of, layout=Layout(), held=held_by(LATENT))
            rule = next(name for name, kind in REFUSALS.items() if kind == refusal.of)
            said = objection(rule, case)
            assert said.severity == "error"
            assert ENGINES[engine].label in said.reason
            assert "read 2026-" in said.source
            nearest = support.nearest(refusal, model, precision=of.precision, gpu=of.gpu)
            if refusal.of == "gpu" or nearest is None:
                assert said.fix.startswith("Use another engine")
                continue
            there = (
                replace(of, precision=of.precision.model_copy(update={"kv": nearest}))
                if refusal.of == "kv"
                else stored(of, weights=nearest, kv=of.precision.kv)
            )
            assert rule not in refused(there, held=held_by(LATENT))
    assert seen


def test_an_ideal_engine_refuses_nothing() -> None:
    assert not any(refused(of, held=held_by(LLAMA)) for of in every("ideal", LLAMA))


REFUSED = [
    # (scenario, rule, nearest)
    ({"weights": "q4_k_m"}, "weight-format", {"weights": "int4-g128"}),
    ({"weights": "bnb-nf4"}, "weight-format", {"weights": "int4-g128"}),
    ({"weights": "q8_0"}, "weight-format", {"weights": "fp8"}),
    ({"engine": "trtllm", "weights": "int8"}, "weight-format", {"weights": "fp8"}),
    ({"engine": "trtllm", "weights": "q4_k_m"}, "weight-format", {"weights": "int4-g128"}),
    ({"engine": "trtllm", "weights": "fp8-block", "gpu": "rtx-pro-6000-server"}, "weight-format", {"weights": "fp8"}),
    ({"engine": "vllm-0.16", "kv": "nvfp4", "gpu": "l4"}, "kv-format", {"kv": "fp8"}),
    ({"kv": "nvfp4", "gpu": "a100-sxm-80"}, "kv-format", {"kv": "fp8"}),
    ({"kv": "nvfp4", "gpu": "h100-sxm"}, "kv-format", {"kv": "fp8"}),
    ({"kv": "nvfp4", "gpu": "rtx-5090"}, "kv-format", {"kv": "fp8"}),
    ({"kv": "nvfp4", "gpu": "mi355x"}, "kv-format", {"kv": "fp8"}),
    ({"kv": "fp8", "gpu": "t4"}, "kv-format", {"kv": "bf16"}),
    ({"kv": "fp8", "gpu": "v100-sxm-32", "engine": "vllm-0.17"}, "kv-format", {"kv": "bf16"}),
    ({"weights": "int8", "gpu": "b200-sxm"}, "weight-format", {"weights": "fp8"}),
    ({"weights": "q4_k_m", "gpu": "mi300x", "engine": "sglang"}, "weight-format", {"weights": "int4-g128"}),
    ({"engine": "trtllm", "kv": "nvfp4", "gpu": "b200-sxm", "weights": "bf16"}, "kv-format", {"kv": "fp8"}),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "rule", "nearest"), REFUSED)
def test_a_refused_format_is_said_at_once(
    scenario: dict[str, str], rule: str, nearest: dict[str, str]
) -> None:
    asked = Scenario(model=LLAMA, **scenario)
    answer = plan(asked)
    assert answer.advice.recommended is None
    assert "does not run on" in answer.verdict
    assert ENGINES[asked.engine].label in answer.verdict
    assert "serve" not in answer.verdict
    ((part, name),) = nearest.items()
    assert f"({part}={name})" in answer.advice.shortfall
    for index in range(answer.result.layout.shape[0]):
        assert answer.result.plan(index).objections[0].rule == rule
    ways = ways_out(answer)
    assert any(getattr(way.scenario, part) == name for way in ways)
    assert all(way.plan.holds for way in ways)
    assert from_query(parsed(share_url(asked, base=""))) == (asked, [])


RUNS = [
    {"weights": "q4_k_m", "engine": "vllm-0.17"},
    {"weights": "q4_k_m", "engine": "sglang"},
    {"weights": "bnb-nf4", "engine": "vllm-0.16"},
    {"weights": "int8", "engine": "vllm"},
    {"kv": "nvfp4", "gpu": "b200-sxm"},
    {"kv": "nvfp4", "gpu": "rtx-5090", "engine": "sglang"},
    {"kv": "nvfp4", "gpu": "b300-sxm", "engine": "trtllm"},
    {"kv": "fp8", "gpu": "a100-sxm-80"},
    {"kv": "fp8", "gpu": "t4", "engine": "vllm-0.17"},
    {"weights": "int4-g128", "gpu": "mi300x"},
]


@pytest.mark.parametrize("scenario", RUNS)
def test_a_format_that_runs_is_planned(scenario: dict[str, str]) -> None:
    answer = plan(Scenario(model=LLAMA, concurrency=1, **scenario))
    assert answer.advice.recommended is not None
    assert "serve" in answer.verdict


def test_four_bits_of_bitsandbytes_are_made_on_loading() -> None:
    """Checkpoints that are stored so do not load with tensor ranks; 16 bits do (vLLM RFC 39583, PR 8434)."""
    of = problem_of(Scenario(model=LLAMA, weights="bnb-nf4", engine="vllm-0.17"))
    held, _ = evaluate(of, layout=Layout(tensor=2), concurrency=np.asarray(1))
    (command,) = launch(of, layout=Layout(tensor=2), memory=held, engine_name="vllm-0.17").commands
    assert f"vllm serve {LLAMA} " in command
    assert "--quantization bitsandbytes" in command


def test_a_refused_kv_cache_leaves_the_automatic_weights_alone() -> None:
    chosen = [problem_of(Scenario(kv=kv)).precision.weights["attention"].name for kv in ("auto", "nvfp4")]
    assert chosen == ["fp8", "fp8"]


def test_unknown_gpus_are_given_the_benefit_of_the_doubt() -> None:
    hopper = catalog.gpus()["h100-sxm"]
    newer = hopper.model_copy(update={"architecture": "Rubin"})
    assert np.isnan(newer.capability)
    assert newer.capability in Capabilities(least=10.0, below=12.0)
    of = replace(problem_of(Scenario(kv="nvfp4")), gpu=newer)
    assert not refused(of, held=held_by(LLAMA))


def test_cards_of_blackwell_have_another_capability_than_its_servers() -> None:
    assert [catalog.gpus()[name].capability for name in ("b200-sxm", "b300-sxm", "rtx-5090")] == [
        10.0,
        10.3,
        12.0,
    ]
