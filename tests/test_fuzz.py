"""Input nobody wrote: made up by the machine, in the shape of what the page takes. Bounded, and never a traceback.

`pytest tests/test_fuzz.py --hypothesis-profile=many` tries many more of each.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from parplan import Scenario, catalog
from parplan.export import FORMULA, NUMBER
from parplan.links import share_url
from parplan.logs import log_figures, scenario_from
from parplan.own_gpu import own_gpu, packed_gpu
from parplan.own_model import packed
from parplan.packing import packed_json
from parplan.shortlist import PLACES, differences, scenario_of
from parplan.ui.words import plain
from tests.test_hostile import (
    APP,
    GPU,
    HEAD,
    LINES,
    LINK_SECONDS,
    LLAMA,
    MARKUP,
    ODD,
    PACKED,
    PLAN_SECONDS,
    ROW,
    at_most,
    outcome,
    planned,
    read_link,
    refusal,
    squeezed,
)

slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
SHORT = [text for text in ODD if len(text) < 300]
texts = st.text(max_size=60) | st.sampled_from(SHORT)
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**30, 10**400, 1e308, 5e-324])
    | st.integers(1, 300_000)
)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(texts, inside, max_size=5),
    max_leaves=12,
)
"""Anything JSON can say."""
settings_of_links = st.sampled_from([*Scenario.model_fields, "v"])
KEYS = (
    *LLAMA, "head_dim", "sliding_window", "layer_types", "n_routed_experts", "num_local_experts", "num_experts_per_tok",
    "moe_intermediate_size", "first_k_dense_replace", "n_shared_experts", "kv_lora_rank", "q_lora_rank",
    "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "index_topk", "linear_num_key_heads", "mamba_d_state",
    "full_attention_interval", "attention_chunk_size", "num_nextn_predict_layers", "text_config", "vision_config",
    "quantization_config", "torch_dtype", "tie_word_embeddings", "hub_id", "hf_quant_config", "block_configs",
)  # fmt: skip
"""Keys a config.json may have."""
FAMILIES = (
    "llama", "deepseek_v3", "qwen3_next", "gpt_oss", "gemma3", "llama4", "mixtral", "glm4_moe", "nemotron_h", "jamba",
    "deepseek_v32", "minimax_m2", "kimi_k2", "qwen2_vl",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def started() -> None:
    """The catalogue is read before anybody comes, as when the page starts."""
    catalog.check()


@example({"config": "95.0", "own_gpu": "-0.0"})
@given(st.dictionaries(settings_of_links, texts | numbers.map(str), min_size=1))
def test_any_values_of_any_settings(query: dict[str, str]) -> None:
    read_link({key: [value] for key, value in query.items()})


@given(values, st.sampled_from([("model", "config", "config"), ("gpu", "own", "own_gpu")]))
def test_any_json_packed_into_a_link(value: Any, place: tuple[str, str, str]) -> None:
    chooser, choice, key = place
    read_link({chooser: [choice], key: [squeezed(json.dumps(value).encode())]})


@given(st.binary(max_size=300), st.sampled_from([("model", "config", "config"), ("gpu", "own", "own_gpu")]))
def test_any_bytes_packed_into_a_link(content: bytes, place: tuple[str, str, str]) -> None:
    chooser, choice, key = place
    read_link({chooser: [choice], key: [squeezed(content)]})


@slow
@given(
    st.fixed_dictionaries(
        LLAMA
        | {"model_type": st.sampled_from(FAMILIES), "hidden_size": st.sampled_from([64, 4096])}
        | {key: st.just(value) for key, value in LLAMA.items() if key not in ("model_type", "hidden_size")}
    ),
    st.dictionaries(st.sampled_from(KEYS), values | numbers, max_size=6),
)
def test_any_config(base: dict[str, Any], changes: dict[str, Any]) -> None:
    """A model that can be planned for, or a reason in words; in either case soon."""
    config = base | changes
    with at_most(PLAN_SECONDS):
        said = refusal(lambda: packed(json.dumps(config)))
        assert len(said) < 1000
        if not said:
            planned({"model": "config", "config": packed_json(config), "budget": "4"})


@slow
@given(st.dictionaries(st.sampled_from([*GPU]), values | texts.map(lambda text: f"{text} GB/s"), max_size=4))
def test_any_gpu(changes: dict[str, Any]) -> None:
    fields = GPU | changes
    with at_most(PLAN_SECONDS):
        if not refusal(lambda: own_gpu(fields)):
            planned({"gpu": "own", "own_gpu": packed_gpu(fields), "budget": "4"})


@given(st.lists(st.tuples(st.sampled_from([*LINES, "{}"]), texts | numbers.map(str)), max_size=12))
def test_any_log(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(line.replace("{}", value) for line, value in lines)
    with at_most(1.0):
        if not refusal(lambda: log_figures(text)):
            changes, _ = scenario_from(log_figures(text))
            Scenario(**changes)


@slow
@given(st.dictionaries(st.integers(0, HEAD.count(",")), texts | numbers.map(str), max_size=5))
def test_any_row_of_measurements(tmp_path: Path, changes: dict[int, str]) -> None:
    cells = [changes.get(place, cell) for place, cell in enumerate(ROW.split(","))]
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    assert outcome(f"{HEAD}\n{quoted}\n", tmp_path) in ("1 rows", "refused")


@slow
@given(st.lists(texts, min_size=1, max_size=2))
@example(['=HYPERLINK("https://elsewhere.invalid")', "\t=1+1"])
@example(["+cmd|'/c calc'!A0", "@SUM(1)"])
def test_no_file_to_take_away_holds_a_formula(tmp_path: Path, notes: list[str]) -> None:
    """Whatever the rows said of themselves, a spreadsheet reads the file with predictions as numbers and texts."""
    cells = ROW.split(",")
    rows = []
    for note in notes:
        cells[HEAD.split(",").index("notes")] = note
        rows.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cells))
    written = tmp_path / "out.csv"
    written.unlink(missing_ok=True)
    if outcome("\n".join([f"{HEAD},=1+1", *(f"{row},-" for row in rows), ""]), tmp_path) == "refused":
        return
    with written.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            assert not [cell for cell in row if cell[:1] in FORMULA and not NUMBER.fullmatch(cell)]


links = st.sampled_from(
    [share_url(Scenario(), base="https://example.org/"), "?gpu=h200-sxm", packed_json({"gpu": "l4"})]
)


@given(st.lists(texts | links | st.sampled_from(PACKED) | values.map(packed_json), max_size=len(PLACES)))
def test_any_links_to_compare(given: list[str]) -> None:
    with at_most(LINK_SECONDS * max(len(given), 1)):
        found = [scenario_of(text) for text in given]
    assert all(scenario is not None or messages for scenario, messages in found)
    differences([scenario for scenario, _ in found if scenario])


@given(texts)
def test_text_that_is_made_plain_holds_no_sign_that_means_something(text: str) -> None:
    """After every backslash is taken with its sign, nothing is left that Markdown or a colour directive starts with."""
    bare = plain(text)
    for sign in r"\`*_{}[]()#+-.!|<>~$:":
        bare = bare.replace(f"\\{sign}", "")
    assert not set(bare) & set("`*_[]<>$:|~#")


def compare() -> None:
    from parplan.ui import compare_page, inputs

    inputs.open_link()
    inputs.sidebar()
    compare_page.show()


@pytest.mark.parametrize("page", ["plan", "compare"])
@settings(
    max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # a page is too slow to shrink
@given(
    query=st.dictionaries(
        settings_of_links | st.sampled_from(PLACES), texts | st.sampled_from([*MARKUP, *PACKED]), min_size=3
    )
)
def test_the_page_takes_any_link(page: str, query: dict[str, str]) -> None:
    """No traceback, and whatever the link says is said as text."""
    given = {key: value for key, value in query.items() if "\ud800" not in value}
    app = AppTest.from_file(str(APP)) if page == "plan" else AppTest.from_function(compare)
    app.default_timeout = 120
    app.query_params.update(given)
    app.run()
    assert [failure.message for failure in app.exception] == []
    shown = [*app.markdown, *app.caption, *app.subheader, *app.header, *app.error, *app.warning]
    for text in (value for value in given.values() if value in MARKUP):
        assert not any(text[:40] in str(found.value) for found in shown)
