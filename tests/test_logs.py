"""Start-up logs: what real ones say is read from the right line, whatever the wording, and hostile ones cost little."""

import contextlib
import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parplan import plan
from parplan.layout import Layout
from parplan.logs import (
    LONGEST_LOG,
    PLACE,
    QUANTITIES,
    SETTINGS,
    WORDINGS,
    LogError,
    Wording,
    compared,
    laid_out,
    layout_decided,
    layout_of,
    log_figures,
    log_json,
    measured_overheads,
    predicted_memory,
    scenario_from,
    settings_from,
    written_log,
)
from parplan.scenario import Scenario
from parplan.units import GIB

LOGS = Path(__file__).parent / "data" / "logs"


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text("utf-8")


EXPECTED: dict[str, dict[str, float | str]] = {
    "vllm-0.19-tp2": {
        "version": "0.19.0", "model": "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", "tensor": 2, "pipeline": 1,
        "data": 1, "utilization": 0.95, "max_length": 8192, "max_num_seqs": 1024, "max_batched_tokens": 8192,
        "kv_dtype": "auto", "quantization": "compressed-tensors", "total": 79.19, "context": 1.53, "weights": 33.88,
        "activations": 1.96, "non_torch": 2.10, "graphs": 1.79, "graphs_estimated": 1.82, "kv": 37.28,
        "kv_tokens": 244_304, "concurrency": 29.82,
    },
    "vllm-0.19-failed": {"weights": 13.64, "activations": 2.87, "non_torch": 0.25, "graphs": 1.84, "kv": 58.47,
                         "kv_tokens": 1_277_184, "concurrency": 155.75, "utilization": 0.95, "total": 79.19},
    "vllm-2026-tp3": {"weights_and_non_torch": 64.50, "activations": 4.19, "graphs": 0.25, "kv": 17.73,
                      "kv_tokens": 2_143_243, "concurrency": 2.04, "max_length": 1_048_576, "utilization": 0.91},
    "vllm-0.7.3-v0": {"version": "0.7.3", "model": "Qwen/Qwen2.5-Math-1.5B", "weights": 2.88, "non_torch": 0.05,
                      "activations": 1.40, "kv": 15.52, "blocks": 36_332, "max_length": 4096, "concurrency": 141.92,
                      "total": 22.06, "utilization": 0.90},
    "vllm-0.6.4-v0": {"weights": 0.2389, "activations": 0.71 - 0.2389, "context_and_non_torch": 0.43, "kv": 5.99,
                      "blocks": 10_900, "concurrency": 85.16, "total": 7.92},
    "vllm-0.22": {"model": "google/gemma-4-E4B-it", "tensor": 1, "utilization": 0.9, "max_batched_tokens": 2048,
                  "max_length": 32_768, "encoder_tokens": 2496, "weights": 15.18, "graphs": 0.71,
                  "graphs_estimated": 0.79, "kv": 4.1, "kv_tokens": 224_353, "concurrency": 6.85},
    "vllm-0.22-mtp": {"version": "0.22.1rc1.dev26+g4721bb3aa", "model": "nvidia/Qwen3.6-35B-A3B-NVFP4",
                      "tensor": 1, "kv_dtype": "fp8", "drafts": 2, "prefix_caching": 1, "utilization": 0.85,
                      "max_length": 262_144, "weights": 21.93, "encoder_tokens": 16_384, "kv": 73.13,
                      "kv_tokens": 6_312_658, "concurrency": 24.08, "graphs": 0.32, "block_size": 2128},
    "vllm-0.21-docker": {"model": "RedHatAI/Qwen3.6-35B-A3B-NVFP4", "tensor": 1, "utilization": 0.9,
                         "max_length": 65_536, "encoder_tokens": 16_384, "weights": 21.86, "graphs": 0.73,
                         "graphs_estimated": 0.36, "kv": 2.95, "kv_tokens": 75_456, "block_size": 2096},
    "vllm-0.8-v1": {"weights": 7.9083, "graphs": 1.58, "kv_tokens": 28_704, "concurrency": 14.02, "max_length": 2048,
                    "encoder_tokens": 2048},
    "sglang-0.5-hybrid": {"free": 15.33, "weights": 1.52, "free_after_weights": 13.81, "free_after_pool": 2.43,
                          "kv": 5.42, "states": 4.88, "kv_tokens": 473_854, "kv_dtype": "bfloat16"},
    "sglang-0.4.4": {"model": "meta-llama/Meta-Llama-3.1-8B-Instruct", "utilization": 0.88, "free": 78.59,
                     "weights": 15.11, "kv": 54.04, "kv_tokens": 442_750, "max_length": 131_072, "max_num_seqs": 2049},
    "sglang-tp4": {"model": "Qwen/Qwen3-14B", "tensor": 4, "weights": 7.08, "kv": 11.38, "kv_tokens": 298_447,
                   "max_batched_tokens": 2048, "utilization": 0.8},
    "trtllm-1.1": {"version": "1.1.0rc3", "model": "openai/gpt-oss-120b", "weights": 63.52, "activations": 0.85,
                   "outside_torch": 49.28, "kv": 5.95, "kv_tokens": 86_720, "total": 119.70, "max_length": 86_720,
                   "max_num_seqs": 64, "block_size": 32, "utilization": 0.9},
    "trtllm-0.12": {"version": "0.12.0.dev2024073000", "weights": 6214 / 1024, "kv": 62.99, "kv_tokens": 294_848,
                    "blocks": 4607, "block_size": 64, "total": 79.10, "max_num_seqs": 4096,
                    "execution_context": 928.77 / 1024},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_real_logs_are_read(name: str) -> None:
    figures = log_figures(log(name))
    assert figures.engine == name.split("-")[0]
    for quantity, value in EXPECTED[name].items():
        if isinstance(value, str):
            assert figures.word(quantity) == value
        else:
            unit = GIB if QUANTITIES[quantity].kind == "bytes" else 1
            assert figures.number(quantity) == pytest.approx(value * unit, rel=1e-6), quantity


def digits(number: float) -> set[str]:
    return {f"{number:{form}}".rstrip("0").rstrip(".") for form in ("f", ",.2f", ".2f", ",.0f", ".4f", ".6f")}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure_names_a_line_that_says_it(name: str) -> None:
    lines = log(name).split("\n")
    for figure in log_figures(log(name)).found.values():
        line = lines[figure.line.number - 1]
        assert figure.line.text.strip("…") in line
        if (
            isinstance(figure.value, float)
            and not figure.derived
            and figure.name not in ("eager", "kv", "utilization")
        ):
            unit = {"bytes": GIB}.get(QUANTITIES[figure.name].kind, 1)
            mib = figure.value / 2**20
            assert any(d in line for d in digits(figure.value / unit) | digits(mib)), figure


@pytest.mark.parametrize("wording", WORDINGS + SETTINGS, ids=lambda w: f"{w.engine}: {w.shown}"[:70])
def test_every_wording_reads_what_it_is_made_of(wording: Wording) -> None:
    samples = {"word": "some-word", "flag": "True"}
    values = {name: samples.get(QUANTITIES[name].kind, f"{7 + i}.25") for i, name in enumerate(wording.names)}
    text = PLACE.sub(lambda place: values.get(place[1], "") if not place[2] else "1.00", wording.line)
    match = wording.match(f"(Worker_TP0 pid=1) INFO 04-22 {text}")
    assert match
    assert {name: match[name] for name in values} == values


@pytest.mark.parametrize(
    "line",
    [
        "Model loading took 33.88 GiB memory and 54.254199 seconds",
        "\x1b[36m(Worker_TP0 pid=444)\x1b[0;0m INFO 04-22 00:17:32 [a.py:1] Model loading took 33.88 GiB",
        "2026-04-22T00:17:32.123Z stderr F (EngineCore pid=1) INFO Model loading took 33.88 GiB memory\r",
        "vllm-1  | Model loading took 33.88GiB memory",
        "Capturing: 100%|████| 2/2\rINFO Model loading took  33.88 GiB memory",
    ],
)
def test_prefixes_colours_and_spaces_do_not_matter(line: str) -> None:
    assert log_figures(line).number("weights") == pytest.approx(33.88 * GIB)


def test_the_rank_with_least_memory_counts() -> None:
    figures = log_figures(log("vllm-2026-tp3"))
    assert figures.found["kv"].rank == "Worker_TP1_EP1 pid=1160"
    assert figures.number("kv") == pytest.approx(17.73 * GIB)
    heavy = "".join(
        f"(Worker_TP{i} pid={i}) Model loading took {g} GiB\n" for i, g in enumerate((4.26, 3.28, 4.20))
    )
    assert log_figures(heavy).number("weights") == pytest.approx(4.26 * GIB)


def test_of_one_rank_the_last_value_counts() -> None:
    twice = "(EngineCore pid=1) Available KV cache memory: {} GiB\n"
    assert log_figures(twice.format(40.0) + twice.format(38.0)).number("kv") == pytest.approx(38 * GIB)
    assert log_figures(twice.format(38.0) + twice.format(40.0)).number("kv") == pytest.approx(40 * GIB)


def test_drafts_and_looked_up_prompts_are_taken_from_the_log() -> None:
    """A recurrent state after each of two drafted tokens and one more for prefix caching: 136 blocks for a request."""
    figures = log_figures(log("vllm-0.22-mtp"))
    changes, _ = scenario_from(figures)
    assert changes["draft"] == 2
    predicted = predicted_memory(figures, Scenario(**changes | {"gpu": "rtx-pro-6000-server"}))
    rows = {row.name: row for row in compared(figures, predicted)}
    assert abs(rows["weights"].relative or 1) < 0.01
    pool, logged = float(predicted.pool), float(figures.number("kv") or 0)
    assert rows["concurrency"].predicted / pool * logged == pytest.approx(24.08, rel=0.02)


def test_a_build_of_another_hand_is_said_to_differ() -> None:
    _, messages = scenario_from(log_figures(log("vllm-0.21-docker")))
    assert any("RedHatAI/Qwen3.6-35B-A3B-NVFP4 is taken as" in m and "builds differ" in m for m in messages)
    _, messages = scenario_from(log_figures(log("vllm-0.19-tp2")))
    assert not any("builds differ" in message for message in messages)


def test_old_sglang_logs_the_pool_as_what_is_free_before_and_after_it() -> None:
    text = (
        "[2024-12-13 01:44:50 TP0] Load weight begin. avail mem=23.20 GB\n"
        "[2024-12-13 01:44:59 TP0] Load weight end. type=MistralForCausalLM, dtype=torch.bfloat16, avail mem=9.69 GB\n"
        "[2024-12-13 01:44:59 TP0] Memory pool end. avail mem=2.44 GB\n"
    )
    figures = log_figures(text)
    assert figures.number("weights") == pytest.approx(13.51 * GIB)
    assert figures.number("kv") == pytest.approx(7.25 * GIB)
    assert figures.found["kv"].derived


def test_one_rank_alone_is_not_cut_and_several_may_be_anyhow() -> None:
    line = (
        "INFO [parallel_state.py:1] rank 0 in world size {} is assigned as DP rank 0, PP rank 0, TP rank 0\n"
    )
    memory = "INFO Model loading took 14.99 GiB memory\n"
    assert log_figures(line.format(1) + memory).number("tensor") == 1
    assert log_figures(line.format(4) + memory).number("tensor") is None


def test_all_but_the_cache_is_compared_where_nothing_finer_is_logged() -> None:
    """TensorRT-LLM: (total - peak) x fraction is the pool: (139.81 - 91.46) x 0.85 = 41.10."""
    text = (
        "[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 91.46 GiB, available KV cache "
        "memory when calculating max tokens: 41.11 GiB, fraction is set 0.85, kv size per token is 35136. device total "
        "memory 139.81 GiB, temporary kv cache memory during profiling 0.00 GiB"
    )
    figures = log_figures(text)
    without, total, kv = (float(figures.number(name) or 0) for name in ("without_cache", "total", "kv"))
    assert (total - without) * 0.85 == pytest.approx(kv, rel=1e-3)
    names = [
        row.name for row in compared(figures, predicted_memory(figures, Scenario(engine="trtllm", budget=1)))
    ]
    assert names == ["total", "without_cache", "kv"]


def test_a_draft_model_does_not_replace_the_model() -> None:
    text = (
        "[2026-08-28 21:19:30] Load weight begin. avail mem=90.00 GB\n"
        "[2026-08-28 21:32:38] Load weight end. elapsed=787.55 s, type=A, avail mem=38.95 GB, mem usage=51.05 GB.\n"
        "[2026-08-28 21:32:39] Load weight begin. avail mem=38.90 GB\n"
        "[2026-08-28 21:34:13] Load weight end. elapsed=94.49 s, type=AMTP, avail mem=33.37 GB, mem usage=5.53 GB.\n"
        "[2026-08-28 21:34:15] Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, "
        "ssm_state size: 4.38GB \n"
        "[2026-08-28 21:34:15] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 9,000, K size: 7.63 GB, "
        "V size: 7.63 GB\n"
        "[2026-08-28 21:34:15] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9,000, K size: 2.38 GB, "
        "V size: 2.38 GB\n"
        "[2026-08-28 21:34:50] Capture cuda graph end. Time elapsed: 5.38 s. mem usage=0.60 GB. avail mem=9.00 GB.\n"
        "[2026-08-28 21:35:18] Capture piecewise CUDA graph end. Time elapsed: 18.18 s. mem usage=2.32 GB.\n"
    )
    figures = log_figures(text)
    measured = {
        name: (figures.number(name) or 0) / GIB for name in ("weights", "kv", "states", "graphs", "free")
    }
    expected = {"weights": 51.05, "kv": 15.26, "states": 4.48, "graphs": 2.92, "free": 90.0}
    assert measured == pytest.approx(expected)


def test_a_pool_for_windowed_layers_is_read_whole() -> None:
    text = (
        "[2026-06-01 10:00:00 TP0] KV Cache is allocated. #tokens: 612620, K size: 26.29 GB, V size: 26.29 GB\n"
        "[2026-06-01 10:00:00 TP0] KV Cache is allocated. #tokens: 765776, K size: 1.64 GB, V size: 1.64 GB\n"
        "[2026-06-01 10:00:00 TP0] SWAKVPool mem usage: 55.87 GB, swa size: 612620, full size: 765776\n"
    )
    figures = log_figures(text)
    assert figures.number("kv") == pytest.approx(55.87 * GIB)
    assert figures.number("kv_tokens") == 765_776


def test_parts_follow_from_a_sum_and_the_rest() -> None:
    text = log("vllm-2026-tp3") + "(Worker_TP1_EP1 pid=1160) Model loading took 62.00 GiB memory\n"
    figures = log_figures(text)
    assert figures.number("non_torch") == pytest.approx(2.5 * GIB)
    assert figures.found["non_torch"].derived


def test_a_failed_start_shows_its_last_words() -> None:
    figures = log_figures(log("vllm-0.19-failed"))
    assert [line.number for line in figures.failures] == [9, 10]
    assert "Tried to allocate 786.00 MiB" in figures.failures[0].text
    refused = (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
        "in KV cache (79392). Try increasing `gpu_memory_utilization`"
    )
    assert log_figures(refused).number("kv_tokens") == 79_392
    small = "ValueError: 3.19 GiB KV cache is needed, which is larger than the available KV cache memory (0.01 GiB)."
    assert log_figures(small).number("kv") == pytest.approx(0.01 * GIB)
    assert log_figures("Available KV cache memory: -2.14 GiB").number("kv") == pytest.approx(-2.14 * GIB)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello", "INFO: Application startup complete.", "\x00\xff", '{"a": 1}']
)
def test_what_is_no_log_gets_a_message_with_the_lines_looked_for(text: str) -> None:
    with pytest.raises(LogError, match=r"Model loading took \.\.\. GiB") as caught:
        log_figures(text)
    assert all(label in str(caught.value) for label in ("vLLM", "SGLang", "TensorRT-LLM"))


def test_what_a_log_does_not_say_is_reported() -> None:
    said = " ".join(log_figures("Available KV cache memory: 37.28 GiB").messages)
    assert "No activation peak" in said
    assert "... GiB for peak activation" in said
    assert "VLLM_LOGGING_LEVEL=DEBUG" in said
    assert "SGLang does not log activation peak." in log_figures(log("sglang-tp4")).messages
    assert log_figures(log("vllm-0.19-tp2")).messages == ()


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"]
)
def test_a_tuned_model_keeps_the_name_the_log_gives_it(name: str) -> None:
    """It shares its file with the base model; what is started is another checkpoint."""
    line = "Initializing a V1 LLM engine (v0.21.0) with config: model='{}', tensor_parallel_size=1, dtype=bfloat16\n"
    line += "Model loading took 14.99 GiB memory and 4.25 seconds"
    changes, messages = scenario_from(log_figures(line.format(name)))
    assert changes["model"] == name
    assert not [message for message in messages if "is taken as" in message]


# --- beside the prediction


def test_the_prediction_comes_close_to_the_log() -> None:
    """Tolerances are those the memory model is held to: 4 % of the weights, 12 % of the cache."""
    figures = log_figures(log("vllm-0.19-tp2"))
    changes, _ = scenario_from(figures)
    rows = {row.name: row for row in compared(figures, predicted_memory(figures, Scenario(**changes)))}
    assert set(rows) == {
        "total", "context", "weights", "activations", "non_torch", "graphs", "kv", "kv_tokens", "concurrency",
    }  # fmt: skip
    assert rows["weights"].relative == pytest.approx(0, abs=0.04)
    assert rows["kv"].relative == pytest.approx(0, abs=0.12)
    assert rows["concurrency"].relative == pytest.approx(0, abs=0.12)
    for row in rows.values():
        assert row.difference == pytest.approx(row.predicted - row.logged)


@pytest.mark.parametrize("name", ["vllm-0.19-tp2", "vllm-0.7.3-v0", "sglang-0.4.4"])
def test_a_log_that_says_what_was_predicted_differs_in_nothing(name: str) -> None:
    """Writing the prediction into a log and reading it back gives no difference."""
    figures = log_figures(log(name))
    changes, _ = scenario_from(figures)
    predicted = predicted_memory(figures, Scenario(**changes))
    text = log(name) + (
        f"(Worker pid=1) Model loading took {float(predicted.weights) / GIB:.6f} GiB memory\n"
        if name.startswith("vllm")
        else f"[2026-06-01 10:00:00 TP9] Load weight end. mem usage={float(predicted.weights) / GIB:.6f} GB.\n"
    )
    row = next(row for row in compared(log_figures(text), predicted) if row.name == "weights")
    lighter = predicted.weights < (figures.number("weights") or 0)
    assert row.logged == pytest.approx(
        figures.number("weights") if lighter else float(predicted.weights), rel=1e-5
    )


def test_the_layout_compared_with_is_the_log_s_or_the_plan_s() -> None:
    silent = "INFO Model loading took 33.88 GiB memory\nINFO Available KV cache memory: 37.28 GiB\n"
    best = plan(Scenario()).advice.recommended
    assert best is not None
    for asked, wanted, whose in (
        (Scenario(), best.layout, "as recommended; the log names no layout"),
        (Scenario(tensor=4), Layout(tensor=4), "as fixed; the log names no layout"),
    ):
        decided, words = laid_out(log_figures(silent), asked)
        assert (layout_decided(decided), words) == (wanted, whose)
    figures = log_figures(log("vllm-0.19-tp2"))
    said = Scenario(**scenario_from(figures)[0])
    assert laid_out(figures, said) == (said, "as the log says")
    nowhere = Scenario(gpu="l4", budget=1)
    assert laid_out(log_figures(silent), nowhere) == (nowhere, "the log names no layout, and none runs")


def test_copies_of_a_dense_model_are_compared_one_by_one() -> None:
    """vLLM logs the cache of each data rank; a dense model's are replicas, each with a cache of its own."""
    text = (
        "Initializing a V1 LLM engine (v0.21.0) with config: model='Qwen/Qwen3-8B', tensor_parallel_size=1, "
        "data_parallel_size={}\nGPU KV cache size: 350,000 tokens\n"
    )
    found = []
    for ranks in (1, 2):
        figures = log_figures(text.format(ranks))
        scenario = Scenario(**scenario_from(figures)[0])
        assert scenario.replicas == ranks
        predicted, layout = predicted_memory(figures, scenario), layout_decided(scenario)
        found += [one.predicted for one in compared(figures, predicted, layout=layout)]
    assert found[0] == found[1] > 0


def test_recurrent_states_belong_to_the_pool() -> None:
    text = log("sglang-0.4.4") + (
        "[2025-03-25 12:00:21 TP0] Mamba Cache is allocated. conv_state size: 1.00GB, ssm_state size: 2.00GB\n"
    )
    figures = log_figures(text)
    changes, _ = scenario_from(figures)
    row = next(r for r in compared(figures, predicted_memory(figures, Scenario(**changes))) if r.name == "kv")
    assert row.logged == pytest.approx((54.04 + 3) * GIB)
    assert "recurrent" in row.label


def test_overheads_are_what_the_log_states_alone() -> None:
    assert measured_overheads(log_figures(log("vllm-0.19-tp2"))) == {
        "non_torch": 2.1, "activations": 1.96, "graphs": 1.79,
    }  # fmt: skip
    assert measured_overheads(log_figures(log("sglang-0.4.4"))) == {}
    assert measured_overheads(log_figures(log("trtllm-1.1"))) == {"activations": 0.85}


# --- into a scenario


def test_a_scenario_is_taken_over() -> None:
    changes, messages = scenario_from(log_figures(log("vllm-0.19-tp2")))
    assert changes == {
        "model": "meta-llama/Llama-3.3-70B-Instruct", "weights": "fp8", "kv": "auto", "engine": "vllm-0.17",
        "utilization": 95.0,
        "slots": 1024, "step_tokens": 8192, "tensor": 2, "data": 1, "pipeline": 1, "expert": 1, "context": 1,
        "decode_context": 1, "replicas": 1,
    }  # fmt: skip
    assert any("H100 SXM" in message and "A100 SXM" in message for message in messages)
    assert any("RedHatAI" in message for message in messages)
    Scenario.model_validate(changes)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA_L40S", "l40s"),
        ("NVIDIA_H100_80GB_HBM3", "h100-sxm"),
        ("NVIDIA_A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA_GeForce_RTX_4090", "rtx-4090"),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition", "rtx-pro-6000-server"),
        ("AMD_Instinct_MI300X", "mi300x"),
    ],
)
def test_the_gpu_is_taken_from_its_name(name: str, gpu: str) -> None:
    for rest in (".json", ",dtype=fp8_w8a8.json"):
        line = f"Using default MoE config. Config file not found at configs/E=40,N=512,device_name={name}{rest}\n"
        assert scenario_from(log_figures(line + log("vllm-0.7.3-v0")))[0]["gpu"] == gpu


CONFIG = (
    "Initializing a V1 LLM engine (v0.21.0) with config: model='{model}', tensor_parallel_size=4, "
    "data_parallel_size=2, enable_expert_parallel=True\nAvailable KV cache memory: 10.0 GiB\n"
)


@pytest.mark.parametrize(
    ("text", "layout", "replicas"),
    [
        (CONFIG.format(model="deepseek-ai/DeepSeek-V3"), "TP4 DP2 EP8", 1),
        (CONFIG.format(model="Qwen/Qwen3-14B"), "TP4", 2),
        ("server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3', tp_size=8, dp_size=8, ep_size=8, "
         "enable_dp_attention=True)\nLoad weight end. mem usage=80.0 GB\n", "DP8 EP8", 1),
        ("server_args=ServerArgs(model_path='Qwen/Qwen3-14B', tp_size=2, dp_size=4, ep_size=1, "
         "enable_dp_attention=False)\nLoad weight end. mem usage=14.0 GB\n", "TP2", 4),
        ("LLM Args: model='deepseek-ai/DeepSeek-V3' tensor_parallel_size=8 pipeline_parallel_size=1 "
         "moe_expert_parallel_size=8 enable_attention_dp=True\nEstimated max memory in KV cache : 9.0 GiB\n",
         "DP8 EP8", 1),
    ],
)  # fmt: skip
def test_layouts_are_understood_in_each_engines_terms(text: str, layout: str, replicas: int) -> None:
    figures = log_figures(text)
    changes, _ = scenario_from(figures)
    cuts = {name: changes[name] for name in ("tensor", "data", "pipeline", "expert")}
    assert str(type(layout_of(figures))(**cuts)) == layout
    assert changes["replicas"] == replicas


def test_figures_out_of_range_are_left_out_and_reported() -> None:
    text = log("vllm-0.19-tp2").replace("tensor_parallel_size=2", "tensor_parallel_size=99999")
    text = text.replace("(util), 75.23", "(util), 1").replace("memory: 0.95", "memory: 7.5")
    figures = log_figures(text)
    changes, messages = scenario_from(figures)
    assert "tensor" not in changes
    assert "utilization" not in changes
    assert any(message.startswith("tensor=99999 was not taken over") for message in messages)
    assert "utilization" not in settings_from(figures)
    predicted_memory(figures, Scenario(**changes))


# --- shown


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_are_shown_as_data_and_as_text(name: str) -> None:
    figures = log_figures(log(name))
    changes, _ = scenario_from(figures)
    pairs = compared(figures, predicted_memory(figures, Scenario(**changes)))
    data = json.loads(json.dumps(log_json(figures, pairs), allow_nan=False))
    assert set(data["figures"]) == set(figures.found)
    kept = "kv" if "kv" in EXPECTED[name] else "kv_tokens"  # the first V1 of vLLM printed no bytes
    assert data["figures"][kept]["value"] == pytest.approx(EXPECTED[name][kept])
    assert data["figures"][kept]["unit"] == ("GiB" if kept == "kv" else "")
    assert len(data["compared"]) == len(pairs)
    text = written_log(figures, pairs)
    assert all(figure.written in text for figure in figures.found.values())
    assert all(message in text for message in figures.messages)


# --- hostile text

PIECES = [w.mark for w in WORDINGS + SETTINGS] + [
    "server_args=", "LLM engine (v", "1,1,1,1,", "9" * 30, "-", "GiB", "\x1b[", "(a pid=", "[ DP1 TP1 ", "\n", "'",
    "None",
]  # fmt: skip


@pytest.mark.parametrize("amount", ["0", "1", "9" * 30])
@pytest.mark.parametrize("wording", WORDINGS, ids=lambda w: f"{w.engine}: {w.shown}"[:70])
def test_an_amount_no_machine_has_is_told_and_compared_all_the_same(wording: Wording, amount: str) -> None:
    samples = {"word": "some-word", "flag": "True"}
    text = PLACE.sub(
        lambda place: samples.get(QUANTITIES[place[1]].kind, amount) if place[1] else "1", wording.line
    )
    try:
        figures = log_figures(f"{text}\nAvailable KV cache memory: 1 GiB")
    except LogError:
        return
    changes, _ = scenario_from(figures)
    pairs = compared(figures, predicted_memory(figures, Scenario(**changes)))
    json.dumps(log_json(figures, pairs), allow_nan=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=12), st.integers(1, 400))
def test_any_text_gives_figures_or_a_message(pieces: list[str], times: int) -> None:
    text = "".join(pieces) * times
    started = time.process_time()
    try:
        figures = log_figures(text)
    except LogError:
        figures = None
    assert time.process_time() - started < 1 + 1e-5 * len(text)
    if figures:
        numbers = [f.value for f in figures.found.values() if isinstance(f.value, float)]
        assert all(math.isfinite(number) for number in numbers)
        changes, _ = scenario_from(figures)
        Scenario.model_validate(changes)
        json.dumps(log_json(figures), allow_nan=False)


@pytest.mark.parametrize(
    "piece",
    [
        "\n",
        "1,",
        "Graph capturing finished in ",
        "Graph capturing finished in " * 4 + "\n",
        "1," * 30 + " GiB for weight,\n",
        " ".join(w.mark for w in WORDINGS) + "\n",
        "server_args=" + "model_path=" * 5000 + "\n",
        "(Worker pid=1) Model loading took 1.0 GiB\n",
    ],
    ids=lambda piece: repr(piece[:30]),
)
def test_megabytes_are_read_in_seconds(piece: str) -> None:
    started = time.process_time()
    with contextlib.suppress(LogError):
        log_figures(piece * (2_000_000 // len(piece)))
    assert time.process_time() - started < 10


def test_only_the_start_of_a_log_without_end_is_read() -> None:
    text = (
        "Available KV cache memory: 10.0 GiB\n" + "x" * LONGEST_LOG + "\nAvailable KV cache memory: 5.0 GiB\n"
    )
    figures = log_figures(text)
    assert figures.number("kv") == pytest.approx(10 * GIB)
    assert any("Only the first" in message for message in figures.messages)


def pool_of(scenario: Scenario) -> float:
    """GiB a GPU of the fixed layout grants to the cache."""
    return float(plan(scenario).result.plan(0).memory.pool) / GIB


def test_measured_overheads_taken_over_bring_the_pool_closer_to_the_log() -> None:
    figures = log_figures(log("vllm-0.19-tp2"))
    changes = scenario_from(figures)[0] | {"gpu": "h100-sxm"}
    logged = (figures.number("kv") or 0) / GIB
    predicted, told = pool_of(Scenario(**changes)), pool_of(Scenario(**changes | measured_overheads(figures)))
    assert told == pytest.approx(logged, abs=0.05)
    assert abs(told - logged) < abs(predicted - logged)


def test_a_text_of_two_engines_is_said_to_be() -> None:
    """Which one was read, and that the other was not; a log of one engine says nothing of the kind."""
    both = log_figures(log("vllm-0.22") + "\n" + log("sglang-tp4"))
    assert any("too: those of" in message for message in both.messages)
    assert not any(
        "too:" in message
        for name in LOGS.glob("*.log")
        for message in log_figures(name.read_text("utf-8")).messages
    )
