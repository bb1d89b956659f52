"""Hard constraints: cases users reported, with the rule that must catch each."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from parplan import catalog
from parplan.layout import Layout
from parplan.memory import Settings
from parplan.objections import RULES, broken, divisors, objections
from parplan.planner import Problem, case_of, chosen_precision, evaluate
from parplan.validate import engine_named, published_in, transformer_named, weight_format
from parplan.workload import Workload

FORMATS = catalog.formats()


def problem(model: str, weights: str = "native", gpu: str = "h100-sxm", engine: str = "vllm") -> Problem:
    transformer = catalog.model(model).transformer
    wanted = None if weights == "native" else FORMATS[weights]
    return Problem(
        transformer=transformer,
        precision=chosen_precision(transformer, weights=wanted, kv=None, formats=FORMATS),
        gpu=catalog.gpus()[gpu],
        engine=catalog.engines()[engine],
        workload=Workload(prompt=512, output=512, concurrency=8),
        settings=Settings(),
        budget=64,
        fixed={},
    )


def rules_broken(of: Problem, layout: Layout) -> dict[str, str]:
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(of.workload.concurrency))
    return {one.rule: one.severity for one in objections(case_of(of, layout=layout, held=held))}


@pytest.mark.parametrize(
    ("model", "weights", "layout", "rule"),
    [
        # 40 heads do not divide by 3 (vLLM issues #414, #2652)
        ("Qwen/Qwen2.5-14B-Instruct", "bf16", Layout(tensor=3), "heads"),
        # 40 heads divide by 5, the vocabulary of 151,936 does not (llm-d-planner PR #205)
        ("Qwen/Qwen3-14B", "bf16", Layout(tensor=5), "vocabulary"),
        # experts of 768 cut 4 ways are 192 wide: not whole blocks of 128 (vLLM #25292)
        ("Qwen/Qwen3-30B-A3B-FP8", "native", Layout(tensor=4), "expert-width"),
        # 1536 / 8 = 192 (vLLM PR #48173, MiniMax-M2 and Qwen3-235B)
        ("MiniMaxAI/MiniMax-M2.5", "native", Layout(tensor=8), "expert-width"),
        ("Qwen/Qwen3-235B-A22B-FP8", "native", Layout(tensor=8), "expert-width"),
        # 18432 / 32 = 576 (SGLang #3345)
        ("deepseek-ai/DeepSeek-V3", "native", Layout(tensor=32), "dense-width"),
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", Layout(data=2), "experts-missing"),
        ("Qwen/Qwen3-30B-A3B", "bf16", Layout(tensor=8, expert=4), "expert-groups"),
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", Layout(pipeline=81), "stages"),
        # 8 KV heads over TP8: nobody repeats, so nothing to cut along the sequence
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", Layout(tensor=8, decode_context=2), "decode-context"),
        ("meta-llama/Meta-Llama-3.1-405B", "bf16", Layout(tensor=8), "weights"),
    ],
)
def test_what_does_not_start_is_an_error(model: str, weights: str, layout: Layout, rule: str) -> None:
    assert rules_broken(problem(model, weights), layout)[rule] == "error"


@pytest.mark.parametrize(
    ("model", "weights", "layout"),
    [
        (
            "MiniMaxAI/MiniMax-M2.5",
            "native",
            Layout(tensor=8, expert=8),
        ),  # whole experts avoid the width rule
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", Layout(tensor=8)),
        ("Qwen/Qwen3-235B-A22B-FP8", "native", Layout(tensor=8, expert=8)),  # 4 KV heads repeat on 8 ranks
        ("meta-llama/Meta-Llama-3.1-405B", "bf16", Layout(tensor=8, pipeline=2)),
    ],
)
def test_what_people_run_is_legal(model: str, weights: str, layout: Layout) -> None:
    assert "error" not in rules_broken(problem(model, weights), layout).values()


@pytest.mark.parametrize(
    ("model", "layout", "rule"),
    [
        ("meta-llama/Meta-Llama-3.1-405B", Layout(tensor=16), "tensor-spans"),
        ("meta-llama/Llama-3.3-70B-Instruct", Layout(tensor=2, pipeline=2), "pipeline-inside"),
        ("deepseek-ai/DeepSeek-V3", Layout(tensor=16), "kv-repeated"),
        ("meta-llama/Meta-Llama-3.1-405B", Layout(pipeline=16), "bubble"),
    ],
)
def test_what_is_unwise_is_a_warning(model: str, layout: Layout, rule: str) -> None:
    weights = "native" if "DeepSeek" in model else "fp8"
    assert rules_broken(problem(model, weights), layout)[rule] == "warning"


def test_fp8_on_a_gpu_without_fp8_is_weight_only_and_in_blocks_impossible() -> None:
    llama = problem("meta-llama/Llama-3.3-70B-Instruct", "fp8", gpu="a100-sxm-80")
    assert rules_broken(llama, Layout(tensor=4))["weight-only"] == "warning"
    qwen = problem("Qwen/Qwen3-30B-A3B-FP8", gpu="a100-sxm-80")
    assert rules_broken(qwen, Layout(tensor=2))["block-fp8"] == "error"


def test_no_network_no_second_node() -> None:
    cards = problem("meta-llama/Llama-3.3-70B-Instruct", "fp8", gpu="rtx-4090")
    gpu = replace_network(cards)
    assert rules_broken(gpu, Layout(tensor=8, pipeline=2))["network"] == "error"


def replace_network(of: Problem) -> Problem:
    return replace(of, gpu=of.gpu.model_copy(update={"network": None, "node": 8}))


def test_judging_many_layouts_agrees_with_judging_one() -> None:
    of = problem("Qwen/Qwen3-30B-A3B-FP8")
    single = [Layout(tensor=t, data=d, expert=e) for t in (1, 2, 4, 8) for d in (1, 2) for e in (1, t * d)]
    stacked = Layout.stack(single)
    held, _ = evaluate(of, layout=stacked, concurrency=np.asarray(of.workload.concurrency))
    masks = broken(case_of(of, layout=stacked, held=held), severity="error")
    for index, layout in enumerate(single):
        errors = {rule for rule, severity in rules_broken(of, layout).items() if severity == "error"}
        assert errors == {rule for rule, mask in masks.items() if mask[index]}


MEASURED = sorted(
    {
        tuple(
            row[k]
            for k in ("model", "gpu", "engine", "engine_version", "weights", "tensor", "data", "expert")
        )
        for row in csv.DictReader(
            (catalog.ROOT / "measurements" / "speed.csv").read_text("utf-8").splitlines()
        )
    }
)


UNSTATED = {
    ("Qwen/Qwen3-235B-A22B", "h200-sxm", "vllm", "0.12.0", "fp8", "1", "1", "1"),  # 220 GiB on one GPU of 140
    (
        "deepseek-ai/DeepSeek-R1",
        "b200-sxm",
        "sglang",
        "0.5.9",
        "fp8",
        "4",
        "1",
        "1",
    ),  # needs a share above the default
}
"""Runs whose layout or memory share cannot be what the row and the engine's defaults say."""


@pytest.mark.parametrize("run", [run for run in MEASURED if run not in UNSTATED], ids="-".join)
def test_a_layout_somebody_measured_is_legal(run: tuple[str, ...]) -> None:
    """Every published run starts, so no rule may forbid it."""
    model, gpu, engine, version, weights, *cuts = run
    stored = weight_format(model, stated=weights)
    transformer = transformer_named(model, weights=stored)
    of = replace(
        problem("openai/gpt-oss-20b", gpu=gpu),
        transformer=transformer,
        precision=chosen_precision(
            transformer,
            weights=None if stored is None or published_in(transformer, stored) else stored,
            kv=FORMATS["fp8"],
            formats=FORMATS,
        ),
        engine=engine_named(engine, version=version),
    )
    tensor, data, expert = map(int, cuts)
    errors = [
        r
        for r, s in rules_broken(of, Layout(tensor=tensor, data=data, expert=expert)).items()
        if s == "error"
    ]
    assert errors == []


def test_every_rule_names_its_source_and_a_way_out() -> None:
    for rule in RULES:
        assert rule.source
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
