"""The command line: figures as data, and clear words with exit status 2 for anything unknown."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parplan.__main__ import main
from parplan.links import share_url
from parplan.scenario import Scenario, plan

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(words) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_plan_prints_every_layout_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    answer = printed(capsys, "plan", "model=meta-llama/Llama-3.3-70B-Instruct", "gpu=h100-sxm", "--json")
    assert {"verdict", "recommended", "smallest", "plans"} <= set(answer)
    for one in answer["plans"]:
        assert {
            "layout", "gpus", "fits", "objections", "memory", "kv_tokens", "ttft_ms", "tpot_ms",
            "tokens_per_s_per_user", "tokens_per_s_per_gpu", "tpot_breakdown_ms",
        } <= set(one)  # fmt: skip
        memory = one["memory"]
        parts = ("weights", "kv", "activations", "overhead", "free")
        assert sum(memory[part] for part in parts) == pytest.approx(memory["usable"])
        if one["fits"]:
            assert sum(one["tpot_breakdown_ms"].values()) == pytest.approx(one["tpot_ms"])
    assert any(o["severity"] == "error" for one in answer["plans"] for o in one["objections"]) or all(
        one["fits"] for one in answer["plans"]
    )
    assert answer["recommended"]["layout"]["tensor"] == 2


def test_drafting_shows_in_the_breakdown_and_the_parts_still_add_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "plan",
        "model=deepseek-ai/DeepSeek-R1",
        "weights=native",
        "gpu=h200-sxm",
        "concurrency=8",
        "--json",
    )
    plain, drafted = (printed(capsys, *words, *more)["recommended"] for more in ((), ("draft=3",)))
    assert drafted["tpot_breakdown_ms"]["draft"] > 0 == plain["tpot_breakdown_ms"]["draft"]
    assert drafted["tpot_ms"] < plain["tpot_ms"]
    assert sum(drafted["tpot_breakdown_ms"].values()) == pytest.approx(drafted["tpot_ms"])


def test_plan_takes_a_whole_link(capsys: pytest.CaptureFixture[str]) -> None:
    link = share_url(Scenario(gpu="h200-sxm", concurrency=7), base="https://example.org/")
    assert (
        printed(capsys, "plan", link, "--json")["scenario"]
        == Scenario(gpu="h200-sxm", concurrency=7).model_dump()
    )


def test_fixed_cuts_give_that_layout_only(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "model=deepseek-ai/DeepSeek-V3.1", "weights=native", "gpu=h200-sxm", "tensor=8", "data=1",
             "pipeline=1", "expert=8", "context=1", "--json")  # fmt: skip
    plans = printed(capsys, *words)["plans"]
    assert {one["layout"]["tensor"] * one["layout"]["expert"] for one in plans} == {64}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "gpu=h100"), "h100-sxm"),
        (("plan", "model=llama"), "llama"),
        (("plan", "concurrency=lots"), "integer"),
        (("plan", "colour=red"), "not a setting"),
        (("plan", "h100-sxm"), "KEY=VALUE"),
        (("model", "meta-llama/Llama-3.3-70B-Instruc"), "meta-llama/Llama-3.3-70B-Instruct"),
        (("model", "/no/such/config.json"), "No such file"),
        (("validate", "/no/such.csv"), "No such file"),
    ],
)
def test_the_unknown_is_named_with_the_nearest_known(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in complaint(capsys, *words)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"hidden_size": -1}', "\x00\x01"])
def test_a_config_that_is_none_gets_a_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    assert "config.json" in complaint(capsys, "model", str(path), "--json")


def test_model_counts_a_config(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    one, other = printed(capsys, "model", str(path), "meta-llama/Llama-3.3-70B-Instruct", "--json")
    assert one["total_parameters"] == other["total_parameters"] == 70_553_706_496
    assert one["kv_bytes_per_token"] == one["kv_bytes_per_token_long"] == 327_680
    assert sum(one["components"].values()) == one["total_parameters"]
    assert one["layers"] == {"grouped-query": 80}


def test_windows_and_states_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """gpt-oss-120b: 36 layers at 2,048 bytes, half of them windowed; Qwen3-Next: 12 layers grow, 36 have a state."""
    oss, hybrid = printed(
        capsys, "model", "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct", "--json"
    )
    assert (oss["kv_bytes_per_token"], oss["kv_bytes_per_token_long"]) == (73_728, 36_864)
    assert hybrid["kv_bytes_per_token"] == 12 * 1024 * 2
    assert hybrid["kv_bytes_per_sequence"] == 36 * (524_288 * 4 + 32_768 * 2)


def test_a_plan_for_people_starts_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gpu=h100-sxm"]) == 0
    assert capsys.readouterr().out.startswith("Llama-3.3-70B-Instruct in FP8")


def test_link_prints_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", "prompt=512"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("?v=1&")
    assert "prompt=512" in out
    assert "concurrency=64" in out


def test_a_log_that_names_no_model_is_not_compared_with_some_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "start.log"
    file.write_text("INFO Model loading took 14.99 GiB memory\nINFO Available KV cache memory: 55.05 GiB\n")
    assert main(["log", str(file)]) == 0
    alone = capsys.readouterr().out
    assert "predicted" not in alone
    assert "No prediction: add model=... and gpu=..." in alone
    assert main(["log", str(file), "model=meta-llama/Meta-Llama-3.1-8B", "weights=bf16", "gpu=h100-sxm"]) == 0
    told = capsys.readouterr().out
    assert "14.99 GiB" in told
    assert "predicted" in told
    assert "TP1 (as recommended; the log names no layout)" in told
    assert "No prediction" not in told


def test_a_plan_for_people_counts_all_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "replicas=4", "concurrency=80"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "8 × H100 SXM 80 GB (4 × TP2) serve 320 requests at once" in first


def test_a_plan_for_people_says_what_a_rate_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rate=10", "peak=2"]) == 0
    answer, lines = plan(Scenario(rate=10, peak=2)), capsys.readouterr().out.splitlines()
    assert lines[1] == answer.load_words
    assert answer.traffic is not None
    assert f"Load: {answer.traffic.felt}" in lines
    cost = answer.bills(10)[0].cost
    assert any(f"{cost.per_million_output:,.2f} USD per million output tokens" in line for line in lines)
    assert main(["plan"]) == 0
    assert "Load:" not in capsys.readouterr().out


def test_plan_says_what_each_step_takes_and_where_nobody_sells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("plan", "model=Qwen/Qwen3-8B", "gpu=h20", "concurrency=4")) == 0
    lines = capsys.readouterr().out.splitlines()
    steps = [line for line in lines if line.startswith(("loads: ", "holds: ", "survives: "))]
    assert [line.partition(".")[0] for line in steps] == [
        "loads: 1 GPU: TP1",
        "holds: 1 GPU: TP1",
        "survives: 2 GPUs: 2 × TP1",
    ]
    assert all("Nobody in the catalogue sells this GPU." in line for line in steps)
    assert main(("plan", "model=Qwen/Qwen3-8B", "gpu=h20", "concurrency=4", "gpu_hour=2")) == 0
    assert "holds: 1 GPU: TP1; from 1 × yours 1-GPU machine at 2.00 USD/h." in capsys.readouterr().out
    assert main(("plan", "model=Qwen/Qwen3-8B", "gpu=h20", "concurrency=4", "output=1")) == 0
    assert " s per token" not in capsys.readouterr().out


def test_a_setting_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gpu is given 2 times" in complaint(capsys, "plan", "gpu=l4", "gpu=h100-sxm")
    assert "gpu is given 2 times" in complaint(capsys, "plan", "?gpu=l4&gpu=h100-sxm")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_config_may_be_in_any_encoding_of_unicode(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), encoding=encoding)
    assert printed(capsys, "model", str(file), "--json")[0]["total_parameters"] == 70_553_706_496


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_terminal_without_all_signs_gets_an_answer(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parplan", "plan", "budget=2"],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"H100 SXM 80 GB (TP2) serve 64 requests" in done.stdout
