"""Hard constraints: cases users reported, with the rule that must catch each; every way out is one."""

import csv
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from parplan import catalog
from parplan.arrays import picked
from parplan.commands import DIALECTS
from parplan.layout import Layout
from parplan.memory import Settings
from parplan.objections import RULES, Case, broken, divisors, narrower_tensor, nearest, objection, objections
from parplan.planner import case_of, evaluate
from parplan.problem import Problem, chosen_precision
from parplan.search import candidate_layouts
from parplan.validate import engine_named, published_in, transformer_named, weight_format
from parplan.workload import Workload

FORMATS = catalog.formats()
KERNELS = "decode-context-kernels"


def problem(
    model: str,
    weights: str = "native",
    gpu: str = "h100-sxm",
    engine: str = "vllm",
    redundant: int = 0,
    **workload: float,
) -> Problem:
    transformer = catalog.model(model).transformer
    wanted = None if weights == "native" else FORMATS[weights]
    return Problem(
        transformer=transformer,
        precision=chosen_precision(transformer, weights=wanted, kv=None, formats=FORMATS),
        gpu=catalog.gpus()[gpu],
        engine=catalog.engines()[engine],
        workload=Workload(**{"prompt": 512, "output": 512, "concurrency": 8} | workload),
        settings=Settings(redundant_experts=redundant),
        budget=64,
        fixed={},
    )


def case_for(of: Problem, layout: Layout) -> Case:
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(of.workload.concurrency))
    return replace(case_of(of, layout=layout, held=held), settings=of.settings)


def rules_broken(of: Problem, layout: Layout) -> dict[str, str]:
    return {one.rule: one.severity for one in objections(case_for(of, layout))}


@pytest.mark.parametrize(
    ("model", "weights", "layout", "rule"),
    [
        # 40 heads do not divide by 3 (vLLM issues #414, #2652)
        ("Qwen/Qwen2.5-14B-Instruct", "bf16", Layout(tensor=3), "heads"),
        # 40 heads divide by 5, 8 KV heads neither divide nor repeat
        ("Qwen/Qwen3-14B", "bf16", Layout(tensor=5), "kv-heads"),
        # nor does the vocabulary of 151,936 (llm-d-planner PR #205)
        ("Qwen/Qwen3-14B", "bf16", Layout(tensor=5), "vocabulary"),
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
    ("model", "tensor", "width"),
    [
        ("Qwen/Qwen3-30B-A3B-FP8", 4, 192),  # 768 / 4 (vLLM issue 25292)
        ("MiniMaxAI/MiniMax-M2.5", 8, 192),  # 1536 / 8 (vLLM PR 48173)
        ("Qwen/Qwen3-235B-A22B-FP8", 8, 192),
    ],
)
def test_experts_cut_inside_a_block(model: str, tensor: int, width: int) -> None:
    """128 does not divide 192, 64 does: vLLM 0.33 makes blocks of 64, earlier ones and other engines refuse."""
    assert width % 128 != 0 == width % 64
    for engine in ("vllm-0.17", "vllm-0.16", "sglang", "trtllm", "ideal"):
        assert rules_broken(problem(model, engine=engine), Layout(tensor=tensor))["expert-width"] == "error"
    newest = rules_broken(problem(model, engine="vllm"), Layout(tensor=tensor))
    assert newest["experts-refined"] == "warning"
    assert "expert-width" not in newest


def test_blocks_are_not_made_finer_than_32() -> None:
    """768 / 16 = 48 shares only 16 with a block of 128."""
    found = rules_broken(problem("Qwen/Qwen3-30B-A3B-FP8"), Layout(tensor=16))
    assert found["expert-width"] == "error"
    assert "experts-refined" not in found


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


@pytest.mark.parametrize(
    ("gpu", "layout", "inside"),
    [
        ("h100-sxm", Layout(tensor=4, pipeline=2), True),
        ("h100-sxm", Layout(tensor=8, pipeline=2), False),
        ("gb200-nvl72", Layout(tensor=2, pipeline=2), True),
        ("gb200-nvl72", Layout(tensor=4, pipeline=3), True),  # three trays of four, one NVLink domain
        ("gb200-nvl72", Layout(tensor=8, pipeline=9), True),
        ("gb200-nvl72", Layout(tensor=8, pipeline=10), False),  # needless
        ("l40s", Layout(tensor=2, pipeline=2), False),  # PCIe: no fast domain to be inside of
    ],
)
def test_stages_are_inside_wherever_several_have_room_among_fast_links(
    gpu: str, layout: Layout, *, inside: bool
) -> None:
    found = rules_broken(problem("meta-llama/Meta-Llama-3.1-405B", "fp8", gpu=gpu), layout)
    assert ("pipeline-inside" in found) == inside
    assert not {"pipeline-inside", "pipeline-needless"} <= found.keys()


@pytest.mark.parametrize(
    ("layout", "fix"),
    [
        (Layout(tensor=4, pipeline=4), "Use TP8 and PP2."),  # two of the four stages in each node
        (Layout(tensor=4, pipeline=3), "Use TP8 and PP2."),  # a node has room for two of the three
        (Layout(tensor=8, pipeline=2), ""),
    ],
    ids=str,
)
def test_stages_of_a_model_larger_than_a_node_are_as_wide_as_the_node(layout: Layout, fix: str) -> None:
    large = problem("meta-llama/Meta-Llama-3.1-405B", "bf16")
    found = [one for one in objections(case_for(large, layout)) if one.rule == "pipeline-inside"]
    assert [one.fix for one in found] == [fix] * bool(fix)
    if fix:
        assert found[0].reason.startswith(f"2 of the {layout.pipeline} stages sit inside one fast domain")


def test_fp8_on_a_gpu_without_fp8_is_weight_only() -> None:
    llama = problem("meta-llama/Llama-3.3-70B-Instruct", "fp8", gpu="a100-sxm-80")
    assert rules_broken(llama, Layout(tensor=4))["weight-only"] == "warning"


@pytest.mark.parametrize(
    ("engine", "gpu", "model", "weights", "rule"),
    [
        # Marlin expands FP8 on Ampere; SGLang's expert kernels do not (SGLang issues 12887, 18875)
        ("vllm", "a100-sxm-80", "Qwen/Qwen3-30B-A3B-FP8", "native", None),
        ("sglang", "a100-sxm-80", "Qwen/Qwen3-30B-A3B-FP8", "native", "weight-format"),
        ("sglang", "a100-sxm-80", "Qwen/Qwen3-30B-A3B", "fp8", "weight-format"),
        ("sglang", "a100-sxm-80", "meta-llama/Llama-3.3-70B-Instruct", "fp8", None),
        ("trtllm", "a100-sxm-80", "meta-llama/Llama-3.3-70B-Instruct", "fp8", "weight-format"),
        # Marlin reaches Turing since vLLM PR 29901, December 2025
        ("vllm-0.16", "t4", "meta-llama/Meta-Llama-3.1-8B-Instruct", "fp8", "weight-format"),
        ("vllm", "t4", "meta-llama/Meta-Llama-3.1-8B-Instruct", "fp8", None),
        ("vllm", "v100-sxm-32", "meta-llama/Meta-Llama-3.1-8B-Instruct", "fp8", "weight-format"),
        ("vllm", "t4", "openai/gpt-oss-20b", "native", "weight-format"),
        ("vllm", "h100-sxm", "openai/gpt-oss-20b", "native", None),
        ("vllm", "v100-sxm-32", "meta-llama/Meta-Llama-3.1-8B-Instruct", "int4-g128", None),
        ("sglang", "v100-sxm-32", "meta-llama/Meta-Llama-3.1-8B-Instruct", "bf16", "engine-gpu"),
        ("trtllm", "t4", "meta-llama/Meta-Llama-3.1-8B-Instruct", "bf16", "engine-gpu"),
        ("trtllm", "mi300x", "meta-llama/Meta-Llama-3.1-8B-Instruct", "bf16", "engine-gpu"),
        ("vllm", "mi300x", "meta-llama/Llama-3.3-70B-Instruct", "int4-g128", None),
        # NVFP4 has tensor cores on Blackwell only; vLLM and SGLang expand it elsewhere
        ("trtllm", "h100-sxm", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", "weight-format"),
        ("vllm", "h100-sxm", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", None),
        ("sglang", "h100-sxm", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", None),
        ("trtllm", "b200-sxm", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", None),
        # sparse attention has no kernels on Ampere (vLLM issue 40851)
        ("vllm", "a100-sxm-80", "deepseek-ai/DeepSeek-V3.2", "native", "sparse-attention-gpu"),
        ("vllm", "h200-sxm", "deepseek-ai/DeepSeek-V3.2", "native", None),
    ],
)
def test_engines_start_where_they_do(
    engine: str, gpu: str, model: str, weights: str, rule: str | None
) -> None:
    of = problem(model, weights, gpu=gpu, engine=engine)
    found = rules_broken(of, Layout(tensor=2))
    errors = {name for name, severity in found.items() if severity == "error"} - {"weights", "one-request"}
    assert errors == ({rule} if rule else set())


def test_bf16_runs_as_fp16_where_there_is_none() -> None:
    llama = "meta-llama/Meta-Llama-3.1-8B-Instruct"
    assert rules_broken(problem(llama, "bf16", gpu="v100-sxm-32"), Layout())["half-precision"] == "warning"
    assert "half-precision" not in rules_broken(problem(llama, "bf16"), Layout())


@pytest.mark.parametrize(
    ("engine", "redundant", "groups", "severity"),
    [
        ("vllm", 0, 24, "warning"),  # 256 over 24: some GPUs hold 11, others 10
        ("vllm", 0, 32, None),
        ("vllm", 32, 24, None),  # 288 / 24 = 12
        ("vllm", 32, 64, "error"),  # load balancing wants them even
        ("sglang", 0, 144, "error"),
        ("sglang", 32, 144, None),  # DeepSeek's own decode unit: two on each GPU
        ("trtllm", 0, 24, "error"),
        ("ideal", 0, 24, "warning"),
    ],
)
def test_experts_may_be_uneven_where_the_engine_lets_them(
    engine: str, redundant: int, groups: int, severity: str | None
) -> None:
    of = problem(
        "deepseek-ai/DeepSeek-V3", gpu="h200-sxm", engine=engine, redundant=redundant, concurrency=512
    )
    found = rules_broken(of, Layout(data=groups, expert=groups))
    assert (found.get("experts-even") or found.get("experts-uneven")) == severity


@pytest.mark.parametrize(
    ("engine", "model", "layout", "rule"),
    [
        # windows never, recurrent layers since 0.21, latent attention always (kv_cache_coordinator.py)
        ("vllm", "openai/gpt-oss-120b", Layout(tensor=16, decode_context=2), "decode-context-layers"),
        (
            "vllm",
            "deepseek-ai/DeepSeek-V4-Flash",
            Layout(tensor=8, decode_context=8),
            "decode-context-layers",
        ),
        (
            "vllm-0.17",
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            Layout(tensor=4, decode_context=2),
            "decode-context-layers",
        ),
        ("vllm", "Qwen/Qwen3-Next-80B-A3B-Instruct", Layout(tensor=4, decode_context=2), None),
        ("ideal", "openai/gpt-oss-120b", Layout(tensor=16, decode_context=2), None),
        ("vllm-0.17", "deepseek-ai/DeepSeek-V3", Layout(tensor=8, decode_context=8), None),
        # six queries share a KV head: four ranks cannot share them (config/model.py)
        ("vllm", "MiniMaxAI/MiniMax-M2.5", Layout(tensor=48, expert=48, decode_context=4), "decode-context"),
        ("vllm", "MiniMaxAI/MiniMax-M2.5", Layout(tensor=48, expert=48, decode_context=3), None),
    ],
)
def test_a_cache_is_cut_along_the_sequence_where_vllm_can(
    engine: str, model: str, layout: Layout, rule: str | None
) -> None:
    found = rules_broken(problem(model, gpu="h200-sxm", engine=engine), layout)
    assert {name for name in found if name.startswith("decode-context")} == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("engine", "gpu", "model", "layout", "rule"),
    [
        # ROCM_AITER_MLA_SPARSE is the only backend there, and cannot; issue 57228 is this very deployment
        ("vllm", "mi325x", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=4), KERNELS),
        ("vllm", "mi355x", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=2), KERNELS),
        # dense latent attention can on every GPU: TRITON_MLA, ROCM_AITER_MLA
        ("vllm", "mi300x", "deepseek-ai/DeepSeek-V3", Layout(tensor=8, decode_context=8), None),
        ("vllm-0.17", "mi300x", "deepseek-ai/DeepSeek-V3", Layout(tensor=8, decode_context=8), None),
        # no backend of AMD's for grouped queries can; FLASH_ATTN and FLASHINFER can, from Ampere on
        ("vllm", "mi300x", "Qwen/Qwen3-235B-A22B", Layout(tensor=8, decode_context=2), KERNELS),
        ("vllm", "a100-sxm-80", "Qwen/Qwen3-235B-A22B", Layout(tensor=8, decode_context=2), None),
        ("vllm", "v100-sxm-32", "Qwen/Qwen3-30B-A3B", Layout(tensor=8, decode_context=2), KERNELS),
        # FLASHINFER_MLA_SPARSE_SM120 cannot, FLASHMLA_SPARSE can since 0.21 at the earliest
        ("vllm", "rtx-pro-6000-server", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=8), KERNELS),
        ("vllm", "b200-sxm", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=8), None),
        ("vllm-0.17", "b200-sxm", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=8), KERNELS),
        # MINIMAX_M3_SPARSE cannot anywhere
        ("vllm", "h200-sxm", "MiniMaxAI/MiniMax-M3", Layout(tensor=8, decode_context=2), KERNELS),
        ("ideal", "mi325x", "zai-org/GLM-5.3-FP8", Layout(tensor=8, decode_context=4), None),
    ],
)  # fmt: skip
def test_a_cache_is_cut_along_the_sequence_where_kernels_can(
    engine: str, gpu: str, model: str, layout: Layout, rule: str | None
) -> None:
    """vLLM, table of attention backends, column DCP."""
    of = problem(model, gpu=gpu, engine=engine)
    found = {name for name, severity in rules_broken(of, layout).items() if severity == "error"}
    assert {name for name in found if name.startswith("decode-context")} == ({rule} if rule else set())
    whole_cache = replace(layout, decode_context=1)
    assert "decode-context-kernels" not in rules_broken(of, whole_cache)


def test_reports_of_wrong_answers_are_passed_on() -> None:
    """Sparse latent attention with a cut cache: vLLM issue 54300; dense has no such report."""
    cut = Layout(tensor=8, decode_context=4)
    for model, warned in (("zai-org/GLM-5.3-FP8", True), ("deepseek-ai/DeepSeek-V3", False)):
        found = rules_broken(problem(model, gpu="b200-sxm"), cut)
        assert found.get("decode-context-sparse") == ("warning" if warned else None)
        assert "decode-context-sparse" not in rules_broken(problem(model, gpu="b200-sxm"), Layout(tensor=8))


def test_copies_of_experts_need_whole_experts() -> None:
    of = problem("deepseek-ai/DeepSeek-V3", gpu="h200-sxm", redundant=32)
    assert rules_broken(of, Layout(tensor=16))["copies-whole"] == "error"
    assert "copies-whole" not in rules_broken(of, Layout(data=16, expert=16))
    assert "copies-whole" not in rules_broken(replace(of, settings=Settings()), Layout(tensor=16))
    llama = problem("meta-llama/Llama-3.3-70B-Instruct", "fp8", redundant=8)
    assert rules_broken(llama, Layout(tensor=2))["copies-of-none"] == "warning"


def test_with_copies_sglang_spreads_experts_over_all_gpus() -> None:
    """The all-to-all backend that copies need makes as many groups as GPUs."""
    for redundant, forbidden in ((0, False), (32, True)):
        of = problem("deepseek-ai/DeepSeek-R1", gpu="b300-sxm", engine="sglang", redundant=redundant)
        assert ("expert-groups" in rules_broken(of, Layout(tensor=8, expert=4))) == forbidden


def test_experts_quantised_on_loading_are_padded_by_vllm_and_a_checkpoint_in_blocks_is_not() -> None:
    for model, weights, engine, forbidden in (
        ("Qwen/Qwen3-30B-A3B", "fp8-block", "vllm", False),
        ("Qwen/Qwen3-30B-A3B", "fp8-block", "vllm-0.17", True),
        ("Qwen/Qwen3-30B-A3B", "fp8-block", "sglang", True),
        ("Qwen/Qwen3-30B-A3B-FP8", "native", "vllm-0.17", True),
    ):
        found = rules_broken(problem(model, weights, engine=engine), Layout(tensor=4))
        assert ("expert-width" in found) == forbidden


@pytest.mark.parametrize(
    ("kv", "gpu", "broken"),
    [("bf16", "h200-sxm", True), ("fp8", "h200-sxm", False), ("bf16", "b200-sxm", False),
     ("bf16", "rtx-pro-6000-server", True), ("bf16", "mi300x", False)],
)  # fmt: skip
def test_a_compressed_cache_is_fp8_where_vllm_has_no_other(kv: str, gpu: str, *, broken: bool) -> None:
    of = problem("deepseek-ai/DeepSeek-V4-Flash", gpu=gpu)
    of = replace(of, precision=of.precision.model_copy(update={"kv": FORMATS[kv]}))
    assert ("kv-format" in rules_broken(of, Layout(tensor=8))) == broken


def test_every_slot_needs_a_recurrent_state_where_graphs_are_recorded() -> None:
    """vLLM: "max_num_seqs (256) exceeds available Mamba cache blocks", as people report of such models on 48 GB."""
    of = problem("Qwen/Qwen3.5-35B-A3B", "fp8", gpu="l40s")
    found = next(one for one in objections(case_for(of, Layout())) if one.rule == "state-slots")
    assert "256 slots" in found.reason
    fewer = int(re.findall(r"[\d,]+", found.fix)[0].replace(",", ""))
    lowered = replace(of, settings=Settings(max_num_seqs=fewer))
    assert "state-slots" not in rules_broken(lowered, Layout())
    assert "state-slots" not in rules_broken(replace(of, settings=Settings(eager=True)), Layout())
    assert "state-slots" not in rules_broken(replace(of, engine=catalog.engines()["sglang"]), Layout())
    assert "state-slots" not in rules_broken(problem(LLAMA, gpu="l40s"), Layout())


@pytest.mark.parametrize(
    ("engine", "layout", "rule"),
    [
        ("trtllm", Layout(tensor=4, data=2, expert=8), "attention-groups"),
        ("vllm", Layout(tensor=4, data=2, expert=8), None),
        ("sglang", Layout(tensor=4, data=2, expert=8), None),
        ("trtllm", Layout(tensor=8, expert=4), None),  # each expert cut in two
        ("vllm", Layout(tensor=8, expert=4), "expert-groups"),
        ("sglang", Layout(tensor=8, expert=4), None),  # since 0.4.10 (PR 8590)
        ("sglang", Layout(tensor=8, expert=16), "expert-ranks"),  # more groups than GPUs
        ("trtllm", Layout(data=8, expert=16), "expert-ranks"),
        ("ideal", Layout(tensor=8, expert=3), "expert-ranks"),
        ("trtllm", Layout(tensor=8, context=2), "cut-missing"),
        ("vllm", Layout(tensor=8, context=2), "cut-missing"),
        ("sglang", Layout(tensor=8, decode_context=8), "cut-missing"),
        ("vllm", Layout(tensor=8, decode_context=8), None),
        ("vllm", Layout(tensor=8, decode_context=3), "decode-context"),
        ("ideal", Layout(tensor=8, context=2, decode_context=4), None),
        ("trtllm", Layout(tensor=4, pipeline=4), None),  # 61 layers: uneven stages start
        ("vllm", Layout(tensor=4, pipeline=4), None),
    ],
)
def test_engines_cut_as_they_can(engine: str, layout: Layout, rule: str | None) -> None:
    of = problem("deepseek-ai/DeepSeek-R1", gpu="b300-sxm", engine=engine)
    errors = {name for name, severity in rules_broken(of, layout).items() if severity == "error"}
    assert errors == ({rule} if rule else set())


LLAMA, BIG, DEEPSEEK, QWEN = (
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Meta-Llama-3.1-405B",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-30B-A3B-FP8",
)


@pytest.mark.parametrize(
    ("of", "layout", "rule"),
    [
        (problem(LLAMA, "fp8", gpu="l40s"), Layout(tensor=4), "tensor-slow-link"),
        (problem(LLAMA, "fp8", concurrency=64), Layout(tensor=8, pipeline=2), "pipeline-needless"),
        (problem(LLAMA, "fp8", tpot=0.05), Layout(tensor=2, pipeline=2), "pipeline-latency"),
        (problem(DEEPSEEK, gpu="h200-sxm", concurrency=4), Layout(data=8, expert=8), "data-idle"),
        (problem(LLAMA, "fp8", prompt=200_000), Layout(tensor=8), "context-length"),
        (problem(LLAMA, "fp8", concurrency=4096), Layout(tensor=2), "waits"),
        (problem("deepseek-ai/DeepSeek-R1", gpu="h200-sxm"), Layout(tensor=8), "kv-repeated"),
    ],
)
def test_what_deserves_a_word(of: Problem, layout: Layout, rule: str) -> None:
    assert rules_broken(of, layout)[rule] == "warning"


@pytest.mark.parametrize(
    ("of", "layout", "rule"),
    [
        (problem(LLAMA, "fp8", gpu="gb200-nvl72"), Layout(tensor=16), "tensor-spans"),  # a rack is one domain
        (problem(BIG, "bf16", concurrency=64), Layout(tensor=8, pipeline=2), "pipeline-needless"),
        (problem(LLAMA, "fp8", gpu="l40s"), Layout(pipeline=4), "pipeline-inside"),
        (problem(LLAMA, "fp8"), Layout(tensor=2, pipeline=2), "pipeline-latency"),  # no target
        (problem(DEEPSEEK, gpu="h200-sxm", concurrency=8), Layout(data=8, expert=8), "data-idle"),
        (problem("deepseek-ai/DeepSeek-R1"), Layout(tensor=8, decode_context=8), "kv-repeated"),
    ],
)
def test_what_deserves_none(of: Problem, layout: Layout, rule: str) -> None:
    assert rule not in rules_broken(of, layout)


def narrower(model: str, weights: str, concurrency: int) -> dict[str, int]:
    """Of every legal layout up to eight GPUs, the tensor width whose replicas deliver clearly more."""
    of = replace(problem(model, weights, prompt=1024, output=1024, concurrency=concurrency), budget=8)
    layout, batches = candidate_layouts(of), np.array([1, 8, 32, 64, 128, concurrency])
    held, served = evaluate(of, layout=layout.column(), concurrency=batches)
    shape = (*layout.shape, batches.size)
    case = case_of(of, layout=layout, held=picked(held, shape=shape, index=(slice(None), -1)))
    legal = ~np.logical_or.reduce(list(broken(case, severity="error").values()))
    rate = np.where(legal[:, None], np.broadcast_to(served.tokens_per_s, shape), 0.0)
    found = narrower_tensor(layout, tokens_per_s=rate, concurrency=batches, asked=batches.size - 1)
    warned = broken(replace(case, narrower=found), severity="warning")["tensor-throughput"]
    assert (warned == (found > 0)).all()
    return {str(layout.one(i)): int(found[i]) for i in np.flatnonzero(legal).tolist()}


def test_a_small_model_delivers_more_as_replicas() -> None:
    """8B in bf16 fits on one GPU: at 256 requests eight copies deliver more than TP8, and so do four and two."""
    found = narrower("meta-llama/Meta-Llama-3.1-8B-Instruct", "bf16", 256)
    assert found["TP1"] == 0
    assert found["TP2"] == found["TP4"] == 1
    assert found["TP8"] in (1, 2)


def test_a_large_model_needs_its_width() -> None:
    """70B in FP8 leaves one GPU no room for a busy batch: TP2 has nothing narrower that delivers more."""
    found = narrower(LLAMA, "fp8", 256)
    assert found["TP2"] == 0
    assert found["TP8"] in (2, 4)


def test_impossible_layouts_are_nobodys_rival() -> None:
    layout = Layout.stack([Layout(tensor=1), Layout(tensor=2)])
    rate = np.array([[100.0, 100.0], [1.0, 1.0]])
    concurrency = np.array([1, 2])
    assert narrower_tensor(layout, tokens_per_s=rate, concurrency=concurrency, asked=1).tolist() == [0, 1]
    rate[0] = 0
    assert narrower_tensor(layout, tokens_per_s=rate, concurrency=concurrency, asked=1).tolist() == [0, 0]
    assert narrower_tensor(layout[1:], tokens_per_s=rate[1:], concurrency=concurrency, asked=1).tolist() == [
        0
    ]


def test_cuts_of_any_size_are_told_apart() -> None:
    """More combinations of cuts than whole numbers of eight bytes: nothing overflows, and a half is still found."""
    wide = Layout(tensor=1000, data=1000, pipeline=1000, expert=10**6, context=1000, decode_context=1000)
    layout = Layout.stack([replace(wide, tensor=500, expert=500_000, decode_context=500), wide])
    rate = np.array([[100.0, 100.0], [1.0, 1.0]])
    found = narrower_tensor(layout, tokens_per_s=rate, concurrency=np.array([1, 2]), asked=1)
    assert found.tolist() == [0, 500]


def test_fewer_requests_than_replicas_are_no_reason_to_split() -> None:
    layout = Layout.stack([Layout(tensor=1), Layout(tensor=8)])
    rate = np.array([[100.0, 100.0], [1.0, 1.0]])
    assert narrower_tensor(layout, tokens_per_s=rate, concurrency=np.array([1, 4]), asked=1)[1] == 0


SIZES = {
    "TP": "tensor",
    "EP": "expert",
    "PP": "pipeline",
    "DP": "data",
    "DCP": "decode_context",
    "CP": "context",
}


def ways_named(fix: str, layout: Layout) -> list[Layout]:
    """The layouts a way out names; where it names no expert groups, experts stay whole or cut as they were."""
    found = []
    for clause in re.split(r"\bor\b", fix):
        named = {
            SIZES[name]: int(size) for name, size in re.findall(r"\b(TP|EP|PP|DP|DCP|CP)(\d+)\b", clause)
        }
        if named:
            changed = replace(layout, **named)
            whole = layout.expert == layout.width > 1
            groups = changed.width if whole else math.gcd(int(layout.expert), changed.width)
            found.append(changed if "expert" in named else replace(changed, expert=groups))
    return found


WIDE = [
    (problem("Qwen/Qwen2.5-14B-Instruct", "bf16"), "TP of 40 heads"),
    (problem("Qwen/Qwen3-14B", "bf16", gpu="l40s"), "PCIe"),
    (problem(QWEN), "narrow experts"),
    (problem("MiniMaxAI/MiniMax-M2.5"), "experts of 1536"),
    (problem(DEEPSEEK, gpu="h200-sxm", tpot=0.05), "latent attention"),
    (problem(DEEPSEEK, gpu="h200-sxm", engine="sglang", prompt=65_536), "SGLang"),
    (problem(DEEPSEEK, gpu="h200-sxm", engine="trtllm", prompt=65_536), "TensorRT-LLM"),
    (problem("Qwen/Qwen3-235B-A22B", "bf16", redundant=16), "redundant experts"),
    (problem(LLAMA, "fp8", concurrency=512), "dense"),
    (problem("Qwen/Qwen3-Next-80B-A3B-Instruct", "bf16"), "hybrid"),
]


@pytest.mark.parametrize("of", [one for one, _ in WIDE], ids=[name for _, name in WIDE])
def test_every_way_out_that_names_a_size_is_one(of: Problem) -> None:
    """A layout changed as the words say no longer breaks the rule."""
    layout = candidate_layouts(of)
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(of.workload.concurrency))
    case = replace(case_of(of, layout=layout, held=held), settings=of.settings)
    rules = {rule.name: rule for rule in RULES}
    for name, mask in ({**broken(case, severity="error"), **broken(case, severity="warning")}).items():
        for index in np.flatnonzero(mask)[:: max(1, int(mask.sum()) // 12)].tolist():
            one = layout.one(index)
            words = objection(name, case_for(of, one))
            for other in ways_named(words.fix, one):
                assert other.width % other.expert == 0, (str(one), words.fix)
                assert not np.all(rules[name].broken(case_for(of, other))), (str(one), words.fix)


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
    ("deepseek-ai/DeepSeek-V3-0324", "h20", "sglang", "", "fp8", "8", "1", "1"),  # likewise
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


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.16", "sglang", "trtllm"])
@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", LLAMA, "openai/gpt-oss-120b"])
def test_what_is_legal_has_a_launch_command(engine: str, model: str) -> None:
    """The rules and the flags of an engine agree on what it cannot do."""
    of = problem(model, "fp8" if model == LLAMA else "native", gpu="h200-sxm", engine=engine)
    layout = candidate_layouts(replace(of, budget=32))
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(of.workload.concurrency))
    masks = broken(case_of(of, layout=layout, held=held), severity="error").values()
    legal = np.flatnonzero(~np.logical_or.reduce(list(masks))).tolist()
    assert len(legal) > 5
    assert [str(layout.one(i)) for i in legal if DIALECTS[engine].refusal(of, layout.one(i))] == []


def test_more_groups_than_experts_stay_empty() -> None:
    found = rules_broken(problem("openai/gpt-oss-20b", concurrency=512), Layout(data=64, expert=64))
    assert found["experts-count"] == "error"  # 32 experts


def test_a_request_longer_than_the_pool_never_runs() -> None:
    """70B in FP8 on one H100 holds one short request and none of 100,000 tokens."""
    short, long = (problem(LLAMA, "fp8", prompt=prompt) for prompt in (512, 100_000))
    assert "one-request" not in rules_broken(short, Layout())
    assert rules_broken(long, Layout())["one-request"] == "error"


def test_every_number_in_words_is_the_users() -> None:
    """No reason speaks of a case that is not there: words can be written for every rule that is broken."""
    for of, _ in WIDE:
        for one in objections(case_for(of, Layout(tensor=3, pipeline=2))):
            assert one.reason.endswith(".")
            assert one.fix.endswith(".")
            assert one.source


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


def test_nearest_sizes_lie_on_both_sides() -> None:
    assert nearest("EP", 7, legal=[8, 2, 4]) == "EP4 or EP8"
    assert nearest("EP", 9, legal=[1, 2]) == "EP2"
