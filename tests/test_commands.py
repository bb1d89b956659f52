"""Launch commands: every flag is one the engine has, sizes add up to the layout, nothing reaches the shell unquoted."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog
from parplan.commands import CONFIG_FILE, DIALECTS, HUB_ID, Launch, announced_length, launch
from parplan.layout import Layout
from parplan.memory import Settings
from parplan.planner import evaluate
from parplan.problem import Problem
from parplan.scenario import problem_of
from parplan.search import candidate_layouts

LISTS = Path(__file__).parent / "data" / "engine_flags"
ENGINES = tuple(DIALECTS)
LLAMA, DEEPSEEK, GPT_OSS = (
    "meta-llama/Llama-3.3-70B-Instruct",
    "deepseek-ai/DeepSeek-V3.1",
    "openai/gpt-oss-120b",
)
PROGRAMS = {"vllm": ["vllm", "serve"], "sglang": ["sglang", "serve"], "trtllm": ["trtllm-serve"]}
SWITCH, VALUE = "switch", "value"


@dataclass(frozen=True)
class Flag:
    """One line of a recorded list."""

    kind: str
    choices: tuple[str, ...]


def recorded(engine: str) -> dict[str, Flag]:
    """The list of an engine's flags, as its source states them."""
    lines = (LISTS / f"{engine}.txt").read_text("utf-8").splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    return {name: Flag(kind, tuple(choices)) for name, kind, *choices in words}


FLAGS = {engine: recorded(engine) for engine in ENGINES}


def read(command: str, engine: str) -> dict[str, str]:
    """A command as the engine's parser reads it: flag -> value; the model stands under "model".

    Fails on a flag that is not recorded, a value that is missing or too much, and a choice that is none.
    """
    program = PROGRAMS[engine.split("-")[0]]
    words = shlex.split(command)
    at = words.index(program[0])
    assert words[at : at + len(program)] == program
    rest, found = words[at + len(program) :], {}
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            assert "model" not in found, f"{word} stands alone"
            found["model"] = word
            continue
        flag = FLAGS[engine][word]
        assert word not in found, f"{word} stands twice"
        found[word] = rest.pop(0) if flag.kind == VALUE else ""
        assert not found[word].startswith("--"), f"{word} has no value"
        assert not flag.choices or found[word] in flag.choices, f"{word} {found[word]}"
    return {"model": found.pop("--model-path", found.get("model", "")), **found}


def read_config(text: str, engine: str) -> dict[str, str]:
    """Keys of the YAML file with dots between, each checked against the recorded list."""
    found = dict(_keys(yaml.safe_load(text) or {}, ""))
    for key, value in found.items():
        choices = FLAGS[engine][key].choices
        assert not choices or value in choices, f"{key}: {value}"
    return found


def _keys(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value)


def problem(engine: str = "vllm", **scenario: Any) -> Problem:
    return problem_of(Scenario(**{"model": LLAMA, "weights": "native", "engine": engine} | scenario))


def launched(of: Problem, layout: Layout, *, engine: str | None = None) -> Launch:
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(of.workload.concurrency))
    return launch(of, layout=layout, memory=held, engine_name=engine or of.engine.name)


def one(of: Problem, layout: Layout, *, engine: str | None = None) -> dict[str, str]:
    """The only command of a launch, read."""
    found = launched(of, layout, engine=engine)
    (command,) = found.commands
    return read(command, found.engine)


# --- flags


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gpu", ["h200-sxm", "gb200-nvl72"])
@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK, GPT_OSS, "google/gemma-3-27b-it"])
def test_every_flag_is_one_the_engine_has_and_every_layout_is_started_or_refused(
    engine: str, gpu: str, model: str
) -> None:
    of = problem(engine, model=model, gpu=gpu, budget=32, prompt=40_000, prefix=30, utilization=85, kv="fp8")
    of = replace(
        of, settings=Settings(utilization=0.85, max_num_seqs=64, max_batched_tokens=4096, eager=True)
    )
    layouts = candidate_layouts(of)
    held, _ = evaluate(of, layout=Layout(), concurrency=np.asarray(8))
    started = 0
    for index in range(layouts.shape[0]):
        found = launch(of, layout=layouts.one(index), memory=held, engine_name=engine)
        assert bool(found.commands) != bool(found.cannot)
        started += bool(found.commands)
        for command in found.commands:
            flags = read(command, engine)
            assert ("--extra_llm_api_options" in flags) == bool(found.config)
        read_config(found.config, engine)
    assert started > 10


@pytest.mark.parametrize("engine", ENGINES)
def test_every_format_is_loaded_or_refused(engine: str) -> None:
    for weights, kv in product(catalog.weight_formats(), ["auto", *catalog.kv_formats()]):
        found = launched(problem(engine, weights=weights, kv=kv), Layout(tensor=4))
        assert bool(found.commands) != bool(found.cannot)
        for command in found.commands:
            read(command, engine)
        read_config(found.config, engine)


@pytest.mark.parametrize(
    "engine", [name for name in DIALECTS if name.startswith("vllm")] + ["sglang", "trtllm"]
)
def test_the_checkpoint_chosen_is_the_one_started(engine: str) -> None:
    """A tuned model shares its file with the base model, and is another checkpoint."""
    chosen = "meta-llama/Llama-3.1-8B-Instruct"
    (command,) = launched(problem(engine, model=chosen, weights="native"), Layout()).commands
    assert chosen in shlex.split(command)
    assert "Meta-Llama" not in command


def test_recorded_lists_name_their_source_and_date() -> None:
    for engine in ENGINES:
        first = (LISTS / f"{engine}.txt").read_text("utf-8")[:400]
        assert re.search(r"read 20\d\d-\d\d-\d\d", first)
        assert DIALECTS[engine].version in first
        assert len(FLAGS[engine]) > 50


# --- sizes


SIZES = {
    "vllm": ("--tensor-parallel-size", "--data-parallel-size", "--pipeline-parallel-size",
             "--prefill-context-parallel-size"),
    "sglang": ("--tp-size", "--pp-size"),
    "trtllm": ("--tp_size", "--pp_size"),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gpu", ["h100-sxm", "gb200-nvl72"])
def test_the_sizes_of_a_command_multiply_to_the_gpus_of_the_layout(engine: str, gpu: str) -> None:
    of = problem(engine, model=DEEPSEEK, gpu=gpu, budget=64)
    layouts = candidate_layouts(of)
    held, _ = evaluate(of, layout=Layout(), concurrency=np.asarray(8))
    for index in range(layouts.shape[0]):
        layout = layouts.one(index)
        for command in launch(of, layout=layout, memory=held, engine_name=engine).commands:
            flags = read(command, engine)
            assert prod(int(flags.get(name, 1)) for name in SIZES[engine.split("-")[0]]) == layout.gpus


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.17", "vllm-0.16"])
@pytest.mark.parametrize(
    "layout",
    [Layout(data=16, expert=16), Layout(tensor=4, data=8, expert=32), Layout(tensor=2, data=4, pipeline=2)],
)
def test_data_ranks_are_placed_once_each(engine: str, layout: Layout) -> None:
    """Ranks of the nodes follow one another without gap or overlap, and only the first node serves."""
    found = launched(problem(engine, model=DEEPSEEK, gpu="h200-sxm"), layout)
    nodes = [read(command, engine) for command in found.commands]
    starts = [int(node.get("--data-parallel-start-rank", 0)) for node in nodes]
    sizes = [int(node["--data-parallel-size-local"]) for node in nodes]
    assert len(nodes) == layout.gpus // 8
    assert starts == [sum(sizes[:index]) for index in range(len(sizes))]
    assert sum(sizes) == layout.data
    assert ["--headless" in node for node in nodes] == [False] + [True] * (len(nodes) - 1)
    assert len({node["--data-parallel-address"] for node in nodes}) == 1


@pytest.mark.parametrize(("engine", "address"), [("vllm", "--master-addr"), ("sglang", "--dist-init-addr")])
@pytest.mark.parametrize("layout", [Layout(tensor=8, pipeline=2), Layout(tensor=16)])
def test_ranks_that_span_nodes_get_one_command_per_node(engine: str, address: str, layout: Layout) -> None:
    found = launched(problem(engine, model="meta-llama/Meta-Llama-3.1-405B"), layout)
    nodes = [read(command, engine) for command in found.commands]
    assert [node["--node-rank"] for node in nodes] == ["0", "1"]
    assert {node["--nnodes"] for node in nodes} == {"2"}
    assert all("HEAD" in node[address] for node in nodes)


def test_slurm_starts_one_task_per_gpu() -> None:
    (command,) = launched(
        problem("trtllm", model=DEEPSEEK, gpu="gb200-nvl72"), Layout(tensor=16, expert=16)
    ).commands
    srun, _, serve = command.partition(" trtllm-llmapi-launch ")
    assert srun == "srun --mpi=pmix --nodes 4 --ntasks 16 --ntasks-per-node 4"
    assert read(serve, "trtllm") | {"--tp_size": "16", "--ep_size": "16"} == read(serve, "trtllm")


@pytest.mark.parametrize(
    ("layout", "nodes"), [(Layout(data=8, pipeline=3, expert=8), 4), (Layout(data=9, expert=9), 3)]
)
def test_every_node_starts_whole_data_ranks(layout: Layout, nodes: int) -> None:
    """24 GPUs in data ranks of three: four nodes of six. Three nodes of eight would cut data ranks in two."""
    found = launched(problem("vllm", model=DEEPSEEK, gpu="h200-sxm"), layout)
    local = [int(read(command, "vllm")["--data-parallel-size-local"]) for command in found.commands]
    assert local == [layout.data // nodes] * nodes


def test_the_stages_of_sglang_fill_nodes_evenly() -> None:
    """Its ranks of a node follow from --nnodes: whole stages, or equal parts of one."""
    found = launched(problem("sglang", model=DEEPSEEK, gpu="h200-sxm"), Layout(data=6, pipeline=4, expert=6))
    assert len(found.commands) == 4


def test_experts_whole_or_cut() -> None:
    vllm, sglang = (problem(engine, model=DEEPSEEK, gpu="h200-sxm") for engine in ("vllm", "sglang"))
    assert "--enable-expert-parallel" in one(vllm, Layout(tensor=8, expert=8))
    assert "--enable-expert-parallel" not in one(vllm, Layout(tensor=8))
    assert one(sglang, Layout(tensor=2, data=4, expert=8)) | {"--tp-size": "8", "--attn-dp-size": "4"} == one(
        sglang, Layout(tensor=2, data=4, expert=8)
    )
    assert one(sglang, Layout(tensor=8, expert=4))["--ep-size"] == "4"


def test_attention_data_parallelism_of_tensorrt_llm_stands_in_the_file() -> None:
    found = launched(problem("trtllm", model=DEEPSEEK, gpu="h200-sxm"), Layout(data=8, expert=8))
    assert read_config(found.config, "trtllm")["enable_attention_dp"] == "True"
    assert any(CONFIG_FILE in note for note in found.notes)


# --- what an engine cannot do


@pytest.mark.parametrize(
    ("engine", "scenario", "layout", "words"),
    [
        ("vllm", {"model": DEEPSEEK}, Layout(tensor=8, expert=4), "no flag for 4 groups"),
        ("vllm", {"model": DEEPSEEK}, Layout(tensor=8, context=2), "experts over the context ranks"),
        ("vllm", {}, Layout(tensor=4, context=2), "latent attention"),
        ("vllm-0.17", {}, Layout(tensor=4, context=2), "does not work yet"),
        ("sglang", {}, Layout(tensor=4, context=2), "context ranks out of the tensor ranks"),
        ("trtllm", {"model": DEEPSEEK}, Layout(tensor=2, data=4, expert=8), "TP2 repeated 4 times"),
        ("trtllm", {"model": DEEPSEEK}, Layout(tensor=8, decode_context=8), "Helix"),
        ("trtllm", {}, Layout(tensor=4, context=2), "context-parallel prefill"),
        ("trtllm", {"gpu": "mi300x"}, Layout(tensor=4), "runs on NVIDIA GPUs"),
        ("trtllm", {"weights": "int8"}, Layout(tensor=4), "INT8"),
        ("trtllm", {"weights": "q4_k_m"}, Layout(tensor=4), "GGUF"),
        ("vllm", {"weights": "bnb-nf4"}, Layout(tensor=4), "NF4"),
        ("vllm-0.17", {"kv": "nvfp4"}, Layout(tensor=4), "no KV cache in NVFP4"),
        ("ideal", {}, Layout(tensor=4), "not an engine one can start"),
    ],
)
def test_an_engine_that_cannot_says_why(
    engine: str, scenario: dict[str, str], layout: Layout, words: str
) -> None:
    found = launched(problem("vllm", **scenario), layout, engine=engine)
    assert words in found.cannot
    assert found.commands == found.expect == found.notes == ()


def test_decode_context_parallelism_where_it_exists() -> None:
    vllm, sglang = (problem(engine, model=DEEPSEEK, gpu="h200-sxm") for engine in ("vllm", "sglang"))
    assert one(vllm, Layout(tensor=8, decode_context=8))["--decode-context-parallel-size"] == "8"
    assert one(sglang, Layout(tensor=8, decode_context=8))["--dcp-size"] == "8"


# --- drafts


QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
VLLM = [name for name in DIALECTS if name.startswith("vllm")]


@pytest.mark.parametrize("engine", VLLM)
def test_vllm_drafts_with_the_layers_of_the_checkpoint_or_a_head_the_reader_names(engine: str) -> None:
    found = one(problem(engine, model=DEEPSEEK, gpu="h200-sxm", draft=3), Layout(tensor=8))
    assert json.loads(found["--speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 3}
    head = launched(problem(engine, draft=2), Layout(tensor=4))
    (command,) = head.commands
    told = subprocess.run(
        ["sh", "-c", f"vllm() {{ printf '%s\\n' \"$@\"; }}; DRAFTER=an/eagle; {command}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert json.loads(told[told.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "model": "an/eagle",
    }
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode != 0
    assert any("DRAFTER" in note and LLAMA in note for note in head.notes)


def test_sglang_drafts_one_chain_and_is_told_how_many_requests_run() -> None:
    """By itself it runs 48 requests where it drafts."""
    own = one(problem("sglang", model=DEEPSEEK, gpu="h200-sxm", draft=3), Layout(tensor=8))
    sizes = {
        "--speculative-num-steps": "3",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "4",
    }
    assert own | sizes | {"--speculative-algorithm": "NEXTN"} == own
    assert "--speculative-draft-model-path" not in own
    assert int(own["--max-running-requests"]) >= 64
    head = launched(problem("sglang", draft=3), Layout(tensor=4))
    flags = read(head.commands[0], "sglang")
    assert flags | sizes | {"--speculative-algorithm": "EAGLE3"} == flags
    assert "DRAFTER" in flags["--speculative-draft-model-path"]
    assert any("DRAFTER" in note for note in head.notes)
    assert "--max-running-requests" not in one(problem("sglang"), Layout(tensor=4))


def test_tensorrt_llm_drafts_as_its_file_says() -> None:
    own = launched(problem("trtllm", model=DEEPSEEK, gpu="h200-sxm", draft=3), Layout(tensor=8))
    asked = read_config(own.config, "trtllm")
    assert asked["speculative_config.decoding_type"] == "MTP"
    assert asked["speculative_config.max_draft_len"] == "3"
    assert "speculative_config.speculative_model" not in asked
    head = launched(problem("trtllm", draft=3), Layout(tensor=4))
    asked = read_config(head.config, "trtllm")
    assert asked["speculative_config.decoding_type"] == "Eagle3"
    assert asked["speculative_config.speculative_model"] == "DRAFTER"
    assert any("DRAFTER" in note for note in head.notes)
    assert "--extra_llm_api_options" in read(head.commands[0], "trtllm")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", [GPT_OSS, QWEN_NEXT])
def test_every_layout_that_drafts_is_started_so_or_refused(engine: str, model: str) -> None:
    of = problem(engine, model=model, gpu="h200-sxm", budget=16, draft=2)
    layouts = candidate_layouts(of)
    held, _ = evaluate(of, layout=Layout(), concurrency=np.asarray(8))
    for index in range(layouts.shape[0]):
        found = launch(of, layout=layouts.one(index), memory=held, engine_name=engine)
        assert bool(found.commands) != bool(found.cannot)
        read_config(found.config, engine)
        for command in found.commands:
            read(command, engine)
            assert "speculative" in command + found.config


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_said_of_drafts_where_none_are_made(engine: str) -> None:
    found = launched(problem(engine, model=DEEPSEEK, gpu="h200-sxm"), Layout(tensor=8))
    assert not re.search("specul|DRAFTER", " ".join((*found.commands, *found.notes, found.config)))


@pytest.mark.parametrize(
    ("engine", "cannot"),
    [("vllm", False), ("vllm-0.17", True), ("vllm-0.16", True), ("sglang", True), ("trtllm", False)],
)
def test_drafts_with_pipeline_stages_where_the_engine_makes_them(engine: str, *, cannot: bool) -> None:
    found = launched(problem(engine, draft=3), Layout(tensor=2, pipeline=2))
    assert ("draft" in found.cannot) == cannot
    assert bool(found.commands) != cannot
    assert launched(problem(engine), Layout(tensor=2, pipeline=2)).commands


def test_another_checkpoint_must_hold_what_drafts() -> None:
    of = problem("vllm", model=DEEPSEEK, weights="int4-g128", gpu="h200-sxm", draft=1)
    assert any("multi-token-prediction" in note for note in launched(of, Layout(tensor=8)).notes)


def test_vllm_drafts_with_every_layer_as_often() -> None:
    """Two layers that draft, in turn: two or four tokens, not three; one alone is fine."""
    of = problem("vllm", model=DEEPSEEK, gpu="h200-sxm", draft=3)
    twice = of.transformer.model_copy(update={"mtp": 2 * of.transformer.mtp})
    for drafts, refused in ((1, False), (2, False), (3, True), (4, False)):
        settings = of.settings.model_copy(update={"drafts": drafts})
        found = launched(replace(of, transformer=twice, settings=settings), Layout(tensor=8, pipeline=2))
        assert ("a multiple of 2 tokens, not 3" in found.cannot) == refused


# --- weights and cache


@pytest.mark.parametrize(
    ("engine", "method"),
    [("vllm", "fp8_per_tensor"), ("vllm-0.17", "fp8"), ("vllm-0.16", "fp8"), ("sglang", "fp8")],
)
def test_a_16_bit_checkpoint_is_quantised_to_fp8_on_loading(engine: str, method: str) -> None:
    """vLLM 0.33 refuses --quantization fp8 for 16-bit checkpoints and names fp8_per_tensor (its fp8.py)."""
    flags = one(problem(engine, weights="fp8"), Layout(tensor=2))
    assert (flags["model"], flags["--quantization"]) == (LLAMA, method)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("model", "weights"), [(DEEPSEEK, "native"), (DEEPSEEK, "fp8"), (GPT_OSS, "mxfp4")])
def test_a_checkpoint_published_as_asked_needs_no_flag(engine: str, model: str, weights: str) -> None:
    flags = one(problem(engine, model=model, weights=weights, gpu="h200-sxm"), Layout(tensor=8))
    assert flags["model"] == model
    assert "--quantization" not in flags


@pytest.mark.parametrize(
    ("engine", "model", "weights", "stored", "wanted"),
    [
        ("vllm", LLAMA, "int4-g128", "bf16", "int4-g128"),
        ("sglang", LLAMA, "nvfp4", "bf16", "nvfp4"),
        ("trtllm", LLAMA, "fp8", "bf16", "fp8"),
        ("vllm", DEEPSEEK, "bf16", "fp8-block", "bf16"),
    ],
)
def test_other_formats_need_another_checkpoint_and_say_so(
    engine: str, model: str, weights: str, stored: str, wanted: str
) -> None:
    found = launched(problem(engine, model=model, weights=weights, gpu="b200-sxm"), Layout(tensor=8))
    assert read(found.commands[0], engine)["model"] == "${MODEL:?}"
    assert found.notes[0] == f"{model} is stored in {stored}; set MODEL to a checkpoint of it in {wanted}."


def test_the_cache_format_is_told_only_where_the_engine_would_choose_another() -> None:
    assert one(problem(kv="fp8"), Layout(tensor=4))["--kv-cache-dtype"] == "fp8"
    assert one(problem("sglang", kv="fp8"), Layout(tensor=4))["--kv-cache-dtype"] == "fp8_e4m3"
    assert "--kv-cache-dtype" not in one(problem(kv="bf16"), Layout(tensor=4))
    found = launched(problem("trtllm", kv="fp8"), Layout(tensor=4))
    assert read_config(found.config, "trtllm") == {"kv_cache_config.dtype": "fp8"}
    of = problem(kv="bf16")
    asks_fp8 = replace(of, transformer=of.transformer.model_copy(update={"native_kv": "fp8"}))
    assert one(asks_fp8, Layout(tensor=4))["--kv-cache-dtype"] == "bfloat16"


def test_gpus_without_bf16_are_told_to_use_fp16() -> None:
    assert one(problem(model="meta-llama/Llama-3.2-1B-Instruct", gpu="t4"), Layout())["--dtype"] == "half"


# --- lengths and settings


@given(prompt=st.integers(1, 150_000), output=st.integers(1, 4000))
def test_the_announced_length_holds_a_request_and_is_rounded_within_the_models_own(
    prompt: int, output: int
) -> None:
    of = problem(prompt=prompt, output=output)
    length, asked, made_for = announced_length(of), prompt + output, of.transformer.context_length
    assert asked <= length < asked + 16
    assert length % 16 == 0 or length == made_for or asked > made_for


def test_lengths_beyond_the_model_are_pointed_out() -> None:
    notes = " ".join(launched(problem(prompt=200_000), Layout(tensor=8)).notes)
    assert "exceed the 131,072 the model was made for" in notes


def test_settings_reach_the_command() -> None:
    settings = Settings(
        utilization=0.8, max_num_seqs=32, max_batched_tokens=1024, max_length=4096, eager=True
    )
    of = replace(problem(prefix=20), settings=settings)
    flags = one(of, Layout(tensor=4))
    assert flags == {
        "model": LLAMA, "--tensor-parallel-size": "4", "--max-model-len": "4096", "--gpu-memory-utilization": "0.8",
        "--max-num-seqs": "32", "--max-num-batched-tokens": "1024", "--enable-prefix-caching": "",
        "--enforce-eager": "",
    }  # fmt: skip


def test_a_share_of_memory_means_something_else_to_every_engine() -> None:
    of = problem("vllm", utilization=80)
    assert "--mem-fraction-static" not in one(of, Layout(tensor=4), engine="sglang")
    assert one(problem("sglang", utilization=80), Layout(tensor=4))["--mem-fraction-static"] == "0.8"


# --- log lines


def number(form: str, line: str) -> float:
    """The number a log line of a given form states."""
    match = re.fullmatch(form, line)
    assert match, line
    return float(match[1].replace(",", ""))


@pytest.mark.parametrize(
    ("model", "weights", "layout", "tokens", "concurrency", "weights_gib"),
    [
        # RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic, vLLM 0.19.0, 2x H100, --max-model-len 8192, share 0.95
        (LLAMA, "fp8", Layout(tensor=2), 244_304, 29.82, 33.88),
        # google/gemma-3-27b-it, the same settings on one H100
        ("google/gemma-3-27b-it", "native", Layout(), 36_560, 4.46, 51.45),
    ],
)
def test_expected_lines_match_a_logged_start(
    model: str, weights: str, layout: Layout, tokens: int, concurrency: float, weights_gib: float
) -> None:
    of = problem("vllm-0.17", model=model, weights=weights, prompt=4096, output=4096, utilization=95)
    loading, pool, size, most = launched(of, layout).expect
    assert number(r"Model loading took ([\d.]+) GiB memory", loading) == pytest.approx(weights_gib, rel=0.01)
    assert pool.startswith("Available KV cache memory: ")
    assert number(r"GPU KV cache size: ([\d,]+) tokens", size) == pytest.approx(tokens, rel=0.03)
    most_at_once = number(r"Maximum concurrency for 8,192 tokens per request: ([\d.]+)x", most)
    assert most_at_once == pytest.approx(concurrency, rel=0.03)


@pytest.mark.parametrize(
    ("engine", "form"),
    [
        (
            "vllm",
            r"GPU KV cache size: [\d,]+ tokens, Maximum concurrency for 2,048 tokens per request: [\d.]+x",
        ),
        ("sglang", r"max_total_num_tokens=\d+"),
        ("trtllm", r"\[MemUsageChange\] Allocated [\d.]+ GiB for max tokens in paged KV cache \(\d+\)\."),
    ],
)
def test_expected_lines_are_in_the_engines_own_words(engine: str, form: str) -> None:
    assert re.fullmatch(form, launched(problem(engine), Layout(tensor=4)).expect[-1])


def test_every_data_rank_logs_its_own_cache() -> None:
    """One rank of eight holds what the replica holds, divided by eight."""
    of, layout = problem("sglang", model=DEEPSEEK, gpu="h200-sxm"), Layout(data=8, expert=8)
    held, _ = evaluate(of, layout=layout, concurrency=np.asarray(64))
    found = launch(of, layout=layout, memory=held, engine_name="sglang")
    assert int(found.expect[0].split("=")[1]) == int(held.kv_tokens / 8)
    assert any("8 data ranks" in note for note in found.notes)


def test_nothing_is_predicted_for_another_engine_or_a_model_that_does_not_load() -> None:
    assert launched(problem("vllm"), Layout(tensor=4), engine="sglang").expect == ()
    assert launched(problem("vllm"), Layout(tensor=1)).expect == ()


# --- the shell


@given(name=st.text(max_size=60), engine=st.sampled_from(ENGINES))
def test_a_name_is_one_word_of_a_hub_id_or_never_reaches_the_shell(name: str, engine: str) -> None:
    of = problem(engine)
    of = replace(of, transformer=of.transformer.model_copy(update={"name": name}))
    held, _ = evaluate(of, layout=Layout(tensor=4), concurrency=np.asarray(8))
    found = launch(of, layout=Layout(tensor=4), memory=held, engine_name=engine)
    assert read(found.commands[0], engine)["model"] == (name if HUB_ID.fullmatch(name) else "${MODEL:?}")
    assert not re.search(r"[;&|<>`\n()]", found.commands[0])


@pytest.mark.parametrize(
    "name", ["a/b; rm -rf ~", "a/b\n", "$(id)/b", "../b", "-a/b", "a/b/c", "config.json", "dense 70B"]
)
def test_names_that_are_no_hub_id(name: str) -> None:
    assert not HUB_ID.fullmatch(name)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_shell_stops_until_the_head_is_set(engine: str) -> None:
    command = launched(problem(engine), Layout(tensor=16)).commands[1]
    unset = subprocess.run(
        ["/bin/sh", "-c", f"echo {command}"], env={}, capture_output=True, text=True, check=False
    )
    assert unset.returncode != 0
    assert "HEAD" in unset.stderr
    told = subprocess.run(
        ["/bin/sh", "-c", f"echo {command}"],
        env={"HEAD": "10.0.0.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [word.replace("${HEAD:?}", "10.0.0.1") for word in shlex.split(command)]


def test_copies_of_experts_are_asked_for_where_experts_are_whole() -> None:
    """DeepSeek's 256 experts and 32 copies over 16 GPUs: 18 slots each."""
    layout = Layout(data=16, expert=16)
    of = {
        engine: problem(engine, model=DEEPSEEK, gpu="h200-sxm", redundant=32)
        for engine in ("vllm", "vllm-0.17", "vllm-0.16", "sglang", "trtllm")
    }
    for engine in ("vllm", "vllm-0.17", "vllm-0.16"):
        flags = read(launched(of[engine], layout).commands[0], engine)
        assert "--enable-eplb" in flags
        assert yaml.safe_load(flags["--eplb-config"]) == {"num_redundant_experts": 32}
        assert "--enable-eplb" not in read(launched(of[engine], Layout(tensor=16)).commands[0], engine)
    flags = read(launched(of["sglang"], layout).commands[0], "sglang")
    assert (flags["--ep-num-redundant-experts"], flags["--moe-a2a-backend"]) == ("32", "deepep")
    assert "--enable-eplb" in flags
    keys = read_config(launched(of["trtllm"], layout).config, "trtllm")
    assert keys["moe_config.load_balancer.num_slots"] == "288"
    assert keys["moe_config.backend"] == "WIDEEP"
    for engine in of:
        plain = launched(problem(engine, model=DEEPSEEK, gpu="h200-sxm"), layout)
        assert not re.search("eplb|redundant|load_balancer|deepep", f"{plain.commands}{plain.config}")


def test_the_cache_of_compressed_attention_is_always_named() -> None:
    """vLLM does not come to DeepSeek-V4's FP8 cache by itself on every GPU (PR 54233)."""
    of = problem("vllm", model="deepseek-ai/DeepSeek-V4-Flash", gpu="b200-sxm")
    assert one(of, Layout(tensor=8))["--kv-cache-dtype"] == "fp8"
