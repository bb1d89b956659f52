"""Hostile input: links, config.json, logs, CSV and GPU descriptions from anybody. Bounded, and never a traceback."""

import base64
import gc
import io
import json
import math
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from parplan import Scenario, plan
from parplan.__main__ import main
from parplan.export import answer_json
from parplan.hub import ConfigError
from parplan.layout import CUT_NAMES
from parplan.links import from_query, known_names, parsed, share_url
from parplan.logs import log_figures, scenario_from
from parplan.own_gpu import own_gpu, packed_gpu, written_gpu
from parplan.own_model import packed
from parplan.packing import packed_json
from parplan.units import MIB
from parplan.validate import validation, write_rows

APP = Path(__file__).parents[1] / "app.py"
LINK_SECONDS = 0.1
LINK_BYTES = 8 * MIB
"""Most memory that reading a link takes, beside the link itself."""
PLAN_SECONDS = 5.0
FILE_SECONDS = 3.0
SHOWN_CHARACTERS = 400
"""Longest message about one setting."""

MARKUP = (
    "<script>window.hacked = 1</script>",
    "<img src=https://elsewhere.invalid/a.png onerror=window.hacked=1>",
    "![x](https://elsewhere.invalid/b.png)",
    "[click](javascript:window.hacked=1)",
    "<style>body{display:none}</style>",
    ":material/home: :red-badge[x] $\\href{https://elsewhere.invalid}{x}$",
)
"""Texts that would do something if they were taken for markup."""
ODD = (
    *MARKUP,
    "",
    " ",
    "\x00",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\ud800",
    "=HYPERLINK(\"https://elsewhere.invalid\")",
    "@SUM(1+1)|cmd",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "https://169.254.169.254/latest/meta-data",
    "%00%ff%s%n{0.__class__}{{7*7}}${7*7}",
    "nan", "inf", "-inf", "1e999", "-0", "1_000", "٣", "0x40", "9" * 5000, "1e5000", "-1", "1e-320", "true", "None",
    "x" * 2**20,
    "[" * 2**20,
    "९" * 2**18,
    ("a" + "\u0301" * 100) * 1000,
)  # fmt: skip
"""Values nobody means well with."""


def deep(levels: int) -> str:
    """Lists inside lists, packed as a link carries them."""
    return squeezed(b"[" * levels + b"]" * levels)


def squeezed(content: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "quantization_config": {"quant_method": "fp8"},
}
PACKED = (
    deep(1000),
    deep(9000),
    deep(10**6),
    squeezed(b'{"a":"' + b"x" * (64 << 20) + b'"}'),
    squeezed(b'{"hidden_size":' + b"9" * 200_000 + b"}"),
    squeezed(b'{"hidden_size": NaN, "vocab_size": Infinity}'),
    squeezed(b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(20_000)) + b"}"),
    squeezed(json.dumps(LLAMA | {"num_hidden_layers": 10**9}).encode()),
    squeezed(json.dumps(LLAMA | {"architectures": list(MARKUP)}).encode()),
    squeezed(json.dumps({"label": MARKUP[1], "vendor": "NVIDIA", "memory": "1e400 GiB"}).encode()),
    squeezed(b"\xff\xfe\x00"),
    packed_json(LLAMA)[:-3],
    "*" * 20_000,
    "A" * 20_000,
)
"""Packed strings nobody means well with."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail when something takes longer, in processor time, without the collector that cleans up after other tests."""
    gc.disable()
    try:
        start = time.process_time()
        yield
        took = time.process_time() - start
    finally:
        gc.enable()
    assert took < seconds


def refusal(work: Callable[[], object]) -> str:
    """Why something was refused, in words; nothing if it was not."""
    try:
        work()
    except ValueError as error:
        return str(error) or pytest.fail("refused without a word")
    return ""


def planned(query: dict[str, str]) -> None:
    """Plan what a link asks for, if it can be had, as far as the last figure."""
    scenario, messages = from_query({key: [value] for key, value in query.items()})
    if not messages:
        json.dumps(answer_json(plan(scenario)), allow_nan=False)


def read_link(query: dict[str, list[str]]) -> list[str]:
    """What a link's reader says of it, after all that holds for every link was checked."""
    with at_most(LINK_SECONDS):
        scenario, messages = from_query(query)
    assert from_query(parsed(share_url(scenario, base="https://example.org/"))) == (scenario, [])
    for key, known in known_names().items():
        assert getattr(scenario, key) in known
    assert all(len(message) < SHOWN_CHARACTERS for message in messages)
    return messages


# --- links


@pytest.mark.parametrize("key", ["v", *Scenario.model_fields, "unknown", "<b>"])
def test_no_value_of_any_setting_does_harm(key: str) -> None:
    for value in (*ODD, *PACKED):
        read_link({key: [value]})


@pytest.mark.parametrize(("chooser", "key"), [("model", "config"), ("gpu", "own_gpu")])
def test_no_packed_string_does_harm(chooser: str, key: str) -> None:
    for value in (*ODD, *PACKED):
        read_link({chooser: ["config" if key == "config" else "own"], key: [value]})


@given(
    st.dictionaries(
        st.sampled_from([*Scenario.model_fields, "v"]), st.sampled_from((*ODD, *PACKED)), min_size=2
    )
)
def test_no_mix_of_them_does_harm(query: dict[str, str]) -> None:
    read_link({key: [value, value] for key, value in query.items()})


@given(st.text(max_size=2000))
def test_any_text_is_a_query_that_can_be_read(text: str) -> None:
    read_link(parsed(text))


def test_megabytes_of_settings_are_refused_in_time() -> None:
    for text in (
        "a=1&" * 300_000,
        "concurrency=1&" * 100_000,
        "?" + "&" * 2**20,
        "prompt=" + "%41" * 300_000,
    ):
        with at_most(LINK_SECONDS):
            assert len(from_query(parsed(text))[1]) <= 1000


@pytest.mark.parametrize("value", PACKED)
def test_reading_a_link_takes_little_memory(value: str) -> None:
    query = {"model": ["config"], "config": [value], "gpu": ["own"], "own_gpu": [value]}
    from_query(query)
    tracemalloc.start()
    try:
        from_query(query)
        assert tracemalloc.get_traced_memory()[1] < LINK_BYTES
    finally:
        tracemalloc.stop()


def test_the_largest_things_a_link_can_ask_for_are_planned_in_time() -> None:
    """Every slider at its end, and as many GPUs as there can be."""
    for model in ("deepseek-ai/DeepSeek-V3", "meta-llama/Meta-Llama-3.1-405B", "size"):
        for change in (
            {},
            {"concurrency": "4096", "prompt": "2000000", "output": "200000", "slots": "65536"},
        ):
            scenario, messages = from_query(
                {
                    key: [value]
                    for key, value in ({"model": model, "budget": "1152", "size": "2000"} | change).items()
                }
            )
            assert messages == []
            with at_most(PLAN_SECONDS):
                answer = plan(scenario)
            assert answer.advice.verdict


def test_targets_of_nothing_are_missed_in_words() -> None:
    for target in ("1e-320", "5e-324", "1e-12"):
        planned({"ttft": target, "tpot": target})


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "ideal"])
def test_cuts_far_too_wide_are_objected_to(engine: str) -> None:
    """More ranks, stages or groups than there is anything to cut: no layout runs, and a reason is given."""
    for cuts in (
        dict.fromkeys(CUT_NAMES, 1152),
        dict.fromkeys(CUT_NAMES, 1151),
        {"expert": 128},
        {"expert": 1152},
    ):
        answer = plan(Scenario(model="Qwen/Qwen3-235B-A22B", engine=engine, budget=8, **cuts))
        assert answer.advice.recommended is None
        assert answer.advice.shortfall
        json.dumps(answer_json(answer), allow_nan=False)


# --- the command line


@pytest.mark.parametrize("command", ["plan", "link", "model", "validate", "log"])
def test_the_command_line_answers_in_words(command: str) -> None:
    """Exit status 0 or 2 and a message, never an exception."""
    for value in (*ODD, "model=config", "a=1&" * 2000, "config=\udcff", "?gpu=own&own_gpu=" + PACKED[0]):
        if "\x00" in value or "\ud800" in value or len(value) > 10**5:
            continue  # no shell can pass these on
        said = io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            status = main([command, "--", value])
        assert status == 0 or (status == 2 and "parplan: " in said.getvalue())


# --- config.json


NUMBERS = (
    0,
    -1,
    1,
    3,
    7,
    2**31,
    2**63,
    10**30,
    10**400,
    1e308,
    5e-324,
    math.nan,
    math.inf,
    True,
    None,
    "64",
    [64] * 10**4,
    {"a": 1},
)


@pytest.mark.parametrize(
    "key", [*LLAMA, "head_dim", "sliding_window", "n_routed_experts", "kv_lora_rank", "layer_types"]
)
def test_no_value_in_a_config_does_harm(key: str) -> None:
    """A model that can be planned for, or a reason; in either case soon."""
    values: tuple[Any, ...] = (
        *NUMBERS,
        *(text for text in ODD if len(text) < 10_000),
        [[[]]] * 100,
        [*MARKUP],
    )
    for value in values:
        text = json.dumps(LLAMA | {key: value})
        with at_most(PLAN_SECONDS):
            said = refusal(partial(packed, text))
            assert len(said) < 1000
            if not said:
                planned({"model": "config", "config": packed(text), "budget": "8"})


@pytest.mark.parametrize(
    "text",
    ["[" * 2**20, '{"a":' * 10**5, "9" * 10**6, '"' + "x" * 2**20, "{}" * 10**5, "\ufeff{}", "NaN", "\ud800"],
)
def test_no_text_pasted_as_a_config_does_harm(text: str) -> None:
    with at_most(1.0), pytest.raises(ConfigError, match=r"\w"):
        packed(text)


# --- a GPU of one's own


GPU: dict[str, Any] = written_gpu(plan(Scenario()).result.problem.gpu)


@pytest.mark.parametrize("key", GPU)
def test_no_value_in_a_gpu_does_harm(key: str) -> None:
    values: tuple[Any, ...] = (
        *NUMBERS,
        *(f"{text} GB/s" for text in ODD),
        *ODD,
        [[]],
        {"fp32": "nan FLOP/s"},
    )
    for value in values:
        fields = GPU | {key: value}
        with at_most(PLAN_SECONDS):
            if not refusal(partial(own_gpu, fields)):
                planned({"gpu": "own", "own_gpu": packed_gpu(fields), "budget": "8"})


def test_the_name_of_a_gpu_is_never_markup() -> None:
    for text in MARKUP:
        with pytest.raises(ValueError, match="label"):
            own_gpu(GPU | {"label": text})


# --- logs


LINES = (
    "Model loading took {} GiB memory and 54.25 seconds",
    "Available KV cache memory: {} GiB",
    "GPU KV cache size: {} tokens",
    "LLM engine (v{}) with config: model='{}', tensor_parallel_size={}",
    "server_args=ServerArgs(model_path='{}', tp_size={})",
    "# GPU blocks: {}, # CPU blocks: {}",
)


@pytest.mark.parametrize("line", LINES)
def test_no_value_in_a_log_does_harm(line: str) -> None:
    with at_most(FILE_SECONDS):
        for value in (*ODD, *map(str, NUMBERS[:12])):
            text = "INFO vLLM API server version 0.11.0\n" + line.replace("{}", value[:5000])
            if not refusal(partial(log_figures, text)):
                changes, _ = scenario_from(log_figures(text))
                Scenario(**changes)


# --- CSV


HEAD = "engine,version,model,weight_quant,kv_dtype,gpu,gpu_mem_gb,n_gpus,tp,pp,dp,ep,gpu_memory_utilization," \
    "max_model_len,max_num_batched_tokens,enforce_eager,notes,weights_gib_per_gpu,kv_gib_per_gpu"  # fmt: skip
ROW = "vllm,0.11.0,Qwen/Qwen3-4B,bf16,auto,H100,80,1,1,1,1,1,0.9,8192,8192,False,,7.6,60"


def outcome(content: bytes | str, folder: Path) -> str:
    """What a file of measurements came to: how many rows, or why not."""
    file = folder / "rows.csv"
    file.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    with at_most(FILE_SECONDS):
        if refusal(partial(validation, file)):
            return "refused"
    report = validation(file)
    write_rows(report, folder / "out.csv")
    return f"{len(report.rows)} rows"


def test_a_good_row_is_read(tmp_path: Path) -> None:
    assert outcome(f"{HEAD}\n{ROW}\n", tmp_path) == "1 rows"


@pytest.mark.parametrize("column", range(HEAD.count(",") + 1), ids=HEAD.split(","))
def test_no_cell_does_harm(tmp_path: Path, column: int) -> None:
    notes = [f"{word}{'9' * 900}" for word in ("DCP=", "max_num_seqs ", "max_batch ", "num_requests=")]
    for value in (*ODD, *notes):
        cells = ROW.split(",")
        cells[column] = '"' + value.replace('"', '""')[:100_000] + '"'
        assert outcome(f"{HEAD}\n{','.join(cells)}\n", tmp_path) in ("1 rows", "refused")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00\x00",
        b"\x00" * 2**20,
        b'"' * (2**20 + 1),
        f"{HEAD}\n{'x' * 2**20}\n".encode(),
        (HEAD + ",a" * 50_000 + f"\n{ROW}\n").encode(),
        f"{HEAD}\n{ROW}{',1' * 10**5}\n".encode(),
        f"{HEAD}\n".encode() + b"\n" * 10**6,
        f"{HEAD},{HEAD}\n{ROW}\n".encode(),
        b"PK\x03\x04" + b"\x00" * 100,
    ],
)  # fmt: skip
def test_no_file_of_measurements_does_harm(tmp_path: Path, content: bytes) -> None:
    assert outcome(content, tmp_path)


# --- the page


PAGES = ("plan", "compare", "log", "catalogue", "accuracy", "method")


def at_page(page: AppTest, name: str) -> AppTest:
    """The same visit on another page."""
    page._page_hash = calc_hash("" if name == "plan" else name)
    page.run()
    assert [failure.message for failure in page.exception] == []
    return page


@pytest.mark.parametrize("name", PAGES)
def test_what_was_wrong_with_a_link_is_said_on_the_page_it_leads_to(name: str) -> None:
    page = AppTest.from_file(str(APP), default_timeout=60)
    page.query_params.update({"gpu": "h1000", "concurrency": "0"})
    said = "\n".join(str(found.value) for found in at_page(page, name).text)
    assert "gpu='h1000' is not known" in said
    assert "64 is used instead" in said


def test_what_was_pasted_is_there_after_a_look_at_another_page() -> None:
    page = at_page(AppTest.from_file(str(APP), default_timeout=60), "log")
    page.text_area(key="_log").set_value("hello")
    page.selectbox(key="model").set_value("config")
    page.run()
    page.text_area(key="_pasted").set_value('{"hidden_size": 64')
    page.run()
    page.selectbox(key="model").set_value("Qwen/Qwen3-8B")
    at_page(at_page(page, "plan"), "log")
    page.selectbox(key="model").set_value("config")
    page.run()
    assert page.text_area(key="_log").value == "hello"
    assert page.text_area(key="_pasted").value == '{"hidden_size": 64'


@pytest.mark.parametrize("text", [*MARKUP, "\u202egnp.exe", "x" * 1000])
def test_every_setting_of_a_link_is_shown_as_text_alone(text: str) -> None:
    """The page says what was wrong in plain text; nothing that reads markup holds the text unescaped."""
    page = AppTest.from_file(str(APP), default_timeout=30)
    page.query_params.update(dict.fromkeys([*Scenario.model_fields, "v", text[:100]], text))
    page.run()
    assert [failure.message for failure in page.exception] == []
    said = "\n".join(str(found.value) for found in page.text)
    assert repr(text[:40])[1:-1] in said
    marked = [
        *page.markdown,
        *page.caption,
        *page.subheader,
        *page.header,
        *page.title,
        *page.error,
        *page.warning,
    ]
    assert not any(text[:40] in str(found.value) for found in marked)
