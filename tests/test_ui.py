"""The page without a browser: what it says to good, odd and bad input."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from parplan.facts import LETTERS
from parplan.hub import DownloadError, Hub, ModelEntry
from parplan.ladder import UNLISTED
from parplan.links import FACTS_KEY, from_query, to_query
from parplan.provenance import Source
from parplan.scenario import OVERHEADS, Scenario, plan
from parplan.ui import method_page
from parplan.ui.inputs import EMPTY, FOLDED
from parplan.ui.presets import PRESETS
from parplan.ui.theme import DARK, LIGHT, MARKERS
from parplan.ui.words import plain
from parplan.units import either_way
from parplan.whatif import winner
from tests.drawn import drawn

APP = Path(__file__).parents[1] / "app.py"
TABS = {
    "Overview": 2, "Layouts": 3, "Curves": 2, "What if": 1, "Hardware": 1, "Load": 1, "Buy": 0, "Why": 1,
}  # fmt: skip
"""Tabs, and the charts each shows."""
FIGURES = ["GPUs", "Time per token", "Time to first token", "Tokens per second"]
DENSE = Scenario.model_fields["model"].default
EXPERTS = "deepseek-ai/DeepSeek-V3"
LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}


def opened(**query: str) -> AppTest:
    """The page of a link, run once."""
    page = AppTest.from_file(str(APP), default_timeout=30)
    page.query_params.update(query)
    return run(page)


def run(page: AppTest) -> AppTest:
    page.run()
    assert [(failure.message, failure.stack_trace) for failure in page.exception] == []
    return page


def show(page: AppTest, tab: str) -> AppTest:
    page.session_state["view"] = tab
    return run(page)


def verdict(page: AppTest) -> str:
    return str(page.subheader[0].value)


def figures(page: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def example(page: AppTest) -> str:
    """What the menu of examples says is in use."""
    return str(page.menu_button(key="_preset").label)


def said(page: AppTest) -> str:
    return "\n".join(str(text.value) for text in page.text)


def shared(page: AppTest) -> dict[str, list[str]]:
    page.session_state["_open_Share"] = True
    run(page)
    return parse_qs(urlsplit(page.code[0].value).query, keep_blank_values=True)


def chart(page: AppTest, number: int) -> dict[str, Any]:
    return drawn(page)[number].figure


def button(page: AppTest, label: str) -> Button:
    return next(found for found in page.main.button if found.label == label)


def show_engine(page: AppTest, name: str) -> AppTest:
    page.session_state["_engine_tab"] = name
    return run(page)


def codes(page: AppTest) -> str:
    return "\n".join(str(code.value) for code in page.code)


def marked(page: AppTest) -> str:
    return "\n".join(str(text.value) for text in page.markdown)


def test_the_first_paint_is_a_worked_example() -> None:
    page = opened()
    assert verdict(page) == plain(plan(Scenario()).advice.verdict)
    assert list(figures(page)) == FIGURES
    assert example(page) == "Example: 70B chat on H100"
    assert said(page) == ""  # nothing to complain about


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(
    "query",
    [
        {},
        {"model": EXPERTS, "gpu": "b200-sxm", "weights": "native"},
        {"model": EXPERTS, "gpu": "t4"},  # nothing runs
        {"concurrency": "4096", "prompt": "131072"},  # requests wait
        {"tpot": "1", "ttft": "1"},  # targets nobody meets
        {"tensor": "3"},  # no legal layout
    ],
    ids=["example", "experts", "nothing runs", "requests wait", "too slow", "illegal"],
)
def test_every_tab_shows_something_whatever_is_asked(query: dict[str, str], tab: str) -> None:
    page = show(opened(**query), tab)
    assert verdict(page)
    assert list(figures(page))[:4] == FIGURES
    charts = drawn(page)
    assert len(charts) <= TABS[tab]
    assert all(chart.alt for chart in charts)
    for chart in charts:
        go.Figure(chart.figure)  # raises for what Plotly does not know
    assert all(table.proto.alt for table in page.dataframe)


def test_only_the_open_tab_is_built() -> None:
    for tab, charts in TABS.items():
        assert len(drawn(show(opened(), tab))) == charts


def test_a_slider_changes_the_verdict_and_the_chart() -> None:
    page = opened()
    before, bars = verdict(page), chart(page, 0)
    page.select_slider(key="concurrency").set_value(512)
    run(page)
    assert verdict(page) != before
    assert chart(page, 0) != bars
    assert "512" in verdict(page)


def test_a_value_between_the_steps_of_a_slider_is_kept() -> None:
    page = opened(concurrency="61", prompt="1100", output="777")
    shown = {name: page.select_slider(key=name).value for name in ("concurrency", "prompt", "output")}
    assert shown == {"concurrency": 61, "prompt": 1100, "output": 777}
    assert said(page) == ""
    assert shared(page)["concurrency"] == ["61"]


def test_an_exact_number_moves_its_slider() -> None:
    page = opened()
    page.session_state["_open_Exact numbers"] = True
    run(page)
    page.number_input(key="_exact_prompt").set_value(3333)
    next(found for found in page.button if found.label == "Use these").click()
    run(page)
    assert page.select_slider(key="prompt").value == 3333
    assert shared(page)["prompt"] == ["3333"]
    assert shared(page)["output"] == ["1024"]


def test_what_a_browser_still_shows_of_earlier_values_moves_nothing_back() -> None:
    """A key pressed before the page is redrawn comes with the other widgets as they were before."""
    page = opened()
    page.session_state["_open_Exact numbers"] = True
    run(page)
    shown = {found.key: found.value for kind in (page.selectbox, page.number_input) for found in kind}
    page.select_slider(key="concurrency").set_value(96)
    run(page)
    for kind in (page.selectbox, page.number_input):
        for found in kind:
            found.set_value(shown[found.key])
    page.select_slider(key="concurrency").set_value(128)
    run(page)
    assert shared(page)["concurrency"] == ["128"]


def test_the_share_link_holds_every_field_and_opens_to_the_same_page() -> None:
    page = opened(model=EXPERTS, gpu="h200-sxm", concurrency="100", tpot="40", prefix="30", replicas="2")
    link = shared(page)
    assert set(link) == {"v", "facts", *Scenario.model_fields}
    again = opened(**{key: values[-1] for key, values in link.items()})
    assert verdict(again) == verdict(page)
    assert figures(again) == figures(page)
    assert shared(again) == link
    assert said(again) == ""


def test_an_old_link_says_which_facts_changed_until_dismissed() -> None:
    query = to_query(Scenario(gpu="h200-sxm", prompt=333), full=True)
    memory = slice(2 * LETTERS, 3 * LETTERS)
    query[FACTS_KEY] = query[FACTS_KEY][: memory.start] + "AAA" + query[FACTS_KEY][memory.stop :]
    page = opened(**query)
    assert "Memory of H200 SXM 141 GB: " in said(page)
    assert page.query_params[FACTS_KEY] == query[FACTS_KEY]  # a reload says it again
    assert verdict(page) == plain(plan(Scenario(gpu="h200-sxm", prompt=333)).advice.verdict)
    button(page, "Dismiss").click()
    assert said(run(page)) == ""


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"model": "meta-llama/Llama-3.3-70B-Instrukt"}, "meta-llama/Llama-3.3-70B-Instruct"),
        ({"gpu": "h1000"}, "h100-sxm"),
        ({"concurrency": "-5"}, "concurrency='-5'"),
        ({"concurrency": "999999"}, "concurrency='999999'"),
        ({"prompt": "nan"}, "prompt='nan'"),
        ({"prompt": ""}, "prompt=''"),
        ({"tpot": "inf"}, "tpot='inf'"),
        ({"colour": "blue"}, "'colour' is not a setting"),
        ({"v": "99"}, "version '99'"),
        ({"model": "config", "config": "%%%"}, "config"),
    ],
    ids=lambda value: "&".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_bad_link_says_what_was_wrong_and_the_rest_is_used(query: dict[str, str], complaint: str) -> None:
    page = opened(**query, output="512")
    assert complaint in said(page)
    scenario, _ = from_query({key: [value] for key, value in (query | {"output": "512"}).items()})
    assert verdict(page) == plain(plan(scenario).advice.verdict)
    page.button[0].click()
    run(page)
    assert said(page) == ""


def test_text_from_a_link_is_never_markdown() -> None:
    beacon = "![x](https://elsewhere.invalid/p.png)"
    page = opened(**{"gpu": beacon, beacon: "1"})
    assert "elsewhere.invalid" in said(page)
    for shown in (page.markdown, page.caption, page.subheader, page.warning, page.error):
        assert not any("elsewhere.invalid" in str(element.value) for element in shown)


def test_a_model_by_its_size_says_what_is_assumed() -> None:
    page = opened(model="size", size="40")
    assert page.select_slider(key="size").value == 40
    assert any("Assumed" in str(caption.value) for caption in page.caption)
    page.select_slider(key="active").set_value(5)
    run(page)
    assert shared(page)["active"] == ["5"]


def test_a_pasted_config_is_planned_and_travels_in_the_link() -> None:
    page = opened()
    page.selectbox(key="model").set_value("config")
    run(page)
    assert "Paste a config" in verdict(page)
    page.text_area(key="_pasted").set_value("no json")
    run(page)
    assert "Not used: this is not JSON" in said(page)
    page.text_area(key="_pasted").set_value(json.dumps(LLAMA_CONFIG))
    run(page)
    assert said(page) == ""
    assert figures(page)["GPUs"] == "1"
    again = opened(**{key: values[-1] for key, values in shared(page).items()})
    assert figures(again) == figures(page)


def test_when_requests_wait_a_way_out_is_one_click_away() -> None:
    page = opened(budget="1")
    assert "holds" in verdict(page)
    next(found for found in page.main.button if found.label != "Explain").click()
    run(page)
    assert shared(page) != shared(opened(budget="1"))


def test_a_layout_can_be_kept_and_let_go() -> None:
    page = show(opened(), "Layouts")
    button(page, "Keep this layout").click()
    run(page)
    assert shared(page)["tensor"] == ["2"]
    button(page, "Try all layouts").click()
    run(page)
    assert shared(page)["tensor"] == ["0"]


def test_a_kept_layout_is_kept_whole_decode_context_too() -> None:
    page = show(opened(model=EXPERTS, gpu="b200-sxm", weights="native", budget="4"), "Layouts")
    recommended = page.metric[0].delta
    assert "DCP4" in recommended
    button(page, "Keep this layout").click()
    run(page)
    assert shared(page)["decode_context"] == ["4"]
    assert [str(name) for name in page.dataframe[0].value["Layout"]] == [recommended]
    assert button(page, "Keep this layout").disabled


def test_the_card_says_how_to_start_a_layout_on_every_engine() -> None:
    page = show(opened(), "Layouts")
    commands = {name: codes(show_engine(page, name)) for name in ("vLLM", "SGLang", "TensorRT-LLM")}
    assert "vllm serve" in commands["vLLM"]
    assert "--tensor-parallel-size 2" in commands["vLLM"]
    assert "GPU KV cache size" in commands["vLLM"]  # the log line to expect, from the problem's own engine
    assert "sglang serve" in commands["SGLang"]
    assert "trtllm-serve" in commands["TensorRT-LLM"]
    assert "Cannot" in marked(show_engine(show(opened(gpu="mi300x"), "Layouts"), "TensorRT-LLM"))


def test_the_terms_of_a_comparison_add_up() -> None:
    page = show(opened(), "Layouts")
    page.session_state["_section"] = "Against another"
    run(page)
    assert page.main.selectbox[0].label == "Compare with"
    for table in (table.value for table in page.table if "Difference" in table.value):
        shown = table.iloc[:, 1:].map(lambda text: float(text.replace(",", "")))
        together, parts = shown.iloc[-1], shown.iloc[:-1]
        assert parts.sum().to_numpy() == pytest.approx(together.to_numpy(), abs=0.01 * len(parts))


def test_the_card_shows_every_kind_of_gpu_of_a_replica() -> None:
    page = show(opened(model=EXPERTS, gpu="h200-sxm", weights="native", tensor="8", pipeline="2"), "Layouts")
    spec = chart(page, 0)
    names = spec["data"][0]["y"]
    assert [name.strip("</b>").split(",")[0] for name in names] == ["Stage 1", "Stage 2"]
    assert sum("<b>" in name for name in names) == 1  # the worst one


def test_the_map_marks_what_was_asked_and_names_what_wins() -> None:
    page = show(opened(concurrency="48", prompt="3000"), "What if")
    spec = chart(page, 0)
    named = {trace.get("name") for trace in spec["data"]}
    assert "Asked" in named
    result = plan(Scenario(concurrency=48, prompt=3000)).result
    assert f"<b>{winner(result)}</b>" in named
    assert f"48 requests of 3,000 prompt tokens: {winner(result)}" in drawn(page)[0].alt
    assert "From 1 request at once" in marked(page)
    assert len(page.table[0].value) >= 8


@pytest.mark.parametrize("name", PRESETS)
def test_every_example_is_planned_and_holds(name: str) -> None:
    best = plan(PRESETS[name]).advice.recommended
    assert best is not None
    assert best.holds
    assert best.in_time


def test_an_example_moves_every_widget_and_own_settings_leave_it() -> None:
    page = opened(gpu="h200-sxm", tensor="4")
    assert example(page) == "Start from an example"
    page.menu_button(key="_preset").click("Chat for 1,000 users")
    run(page)
    assert example(page) == "Example: Chat for 1,000 users"
    assert page.selectbox(key="gpu").value == "h100-sxm"
    assert shared(page)["replicas"] == ["4"]
    assert shared(page)["tensor"] == ["0"]
    page.select_slider(key="output").set_value(512)
    run(page)
    assert example(page) == "Start from an example"
    assert shared(page)["replicas"] == ["4"]


def test_four_files_can_be_taken_away() -> None:
    page = opened()
    page.session_state["_open_Save"] = True
    names = [getattr(found, "label", "") for found in run(page).get("download_button")]
    assert names == ["Report, Markdown", "Report, HTML", "Everything, JSON", "Table of layouts, CSV"]


def test_times_carry_their_error_bands_and_a_bound_has_none() -> None:
    known = plan(Scenario()).confidence(plan(Scenario()).result.plan(0))
    page = opened()
    assert known is not None
    assert page.metric[1].delta.startswith(f"{either_way(known.tpot.relative)}, ")
    assert page.metric[2].delta.startswith(f"{either_way(known.ttft.relative)}, ")
    assert plain(known.tpot.words) in page.metric[1].help
    assert "±" not in opened(engine="ideal").metric[1].delta


def test_gpus_are_counted_in_english() -> None:
    page = opened(budget="1")
    assert "1 GPUs" not in verdict(page)
    assert "1 GPUs" not in str(chart(page, 0))
    assert verdict(opened(model="size", size="70")).startswith("Dense 70B in FP8")


def test_what_speaks_against_a_layout_stands_beside_its_status() -> None:
    names = list(show(opened(), "Layouts").dataframe[0].value)
    assert names.index("What speaks against it") == names.index("Status") + 1


def test_impossible_layouts_carry_their_reason() -> None:
    page = show(opened(model=EXPERTS, gpu="b200-sxm", weights="native"), "Layouts")
    table = page.dataframe[0].value
    impossible = table[table["Status"] == "impossible"]
    assert len(impossible) > 0
    assert (impossible["What speaks against it"].str.len() > 20).all()
    assert impossible["ms/token"].isna().all()


def method() -> None:
    from parplan.ui import method_page

    method_page.show()


@pytest.mark.parametrize("name", method_page.CHAPTERS)
def test_every_chapter_of_the_method_has_formulas(name: str) -> None:
    found = dict(method_page.formulas(method_page.CHAPTERS[name]))
    assert found
    if name == "Memory":  # a package: all of its modules are quoted
        assert {"loaded_weight_bytes", "stage_activation_bytes", "slack_bytes", "memory"} <= set(found)


def test_the_method_page_quotes_the_formulas() -> None:
    page = AppTest.from_function(method, default_timeout=60)
    page.session_state["_chapter"] = "Cost"
    assert any("price / 3600 / rate" in code.value for code in run(page).code)


def test_replicas_multiply_gpus_and_tokens_and_leave_times_alone() -> None:
    one, three = figures(opened()), figures(opened(replicas="3"))
    assert int(three["GPUs"]) == 3 * int(one["GPUs"])
    assert three["Time per token"] == one["Time per token"]
    assert three["Time to first token"] == one["Time to first token"]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_part_has_a_colour_of_its_own(theme: object) -> None:
    for parts in (theme.memory, theme.time, theme.family):  # type: ignore[attr-defined]
        assert len(set(parts.values())) == len(parts)
    assert len(set(MARKERS.values())) == len(MARKERS)


def test_every_field_of_the_scenario_has_its_widget() -> None:
    """A field without a widget would not be in the link of the address bar."""
    kept = {"config", "own_gpu"}  # packed texts have forms of their own, shown when they are asked for
    at = opened(model="google/gemma-3-27b-it")
    for title in FOLDED:  # groups that are closed and not in use are not built
        at.session_state[f"_fold_{title}"] = True
    run(at)
    kinds = ("number_input", "selectbox", "select_slider", "toggle")
    keys = {widget.key for kind in kinds for widget in at.get(kind)}
    asked = {name for name in Scenario.model_fields if name not in kept}
    assert asked - {"size", "active"} <= keys


def every_number(**query: str) -> AppTest:
    """The page with all groups of settings open."""
    page = opened(**query)
    for title in FOLDED:
        page.session_state[f"_fold_{title}"] = True
    return run(page)


def test_numbers_that_are_left_out_are_empty_fields_and_links_hold_what_they_did() -> None:
    page = every_number(**dict.fromkeys(OVERHEADS, "-1"), tpot="0", budget="0", gpu_hour="0", utilization="0")
    for name, words in EMPTY.items():
        field = page.number_input(key=name)
        assert (field.value, field.proto.placeholder) == (None, words)
    assert said(page) == ""
    link = shared(page)
    assert {name: float(link[name][0]) for name in EMPTY} == {
        name: Scenario.model_fields[name].default for name in EMPTY
    }


def test_a_number_typed_is_in_force_until_its_field_is_emptied() -> None:
    page = every_number()
    before = verdict(page)
    for name, value in (("tpot", 40.0), ("tensor", 4), ("activations", 3.5)):
        page.number_input(key=name).set_value(value)
        run(page)
        assert float(shared(page)[name][0]) == value
        page.number_input(key=name).set_value(None)
        run(page)
        assert float(shared(page)[name][0]) == Scenario.model_fields[name].default
        assert verdict(page) == before


@pytest.mark.parametrize(
    "query", [{"activations": "-0.5"}, {"activations": "-1", "ttft": "250", "tensor": "2"}]
)
def test_an_address_with_a_predicted_overhead_opens(query: dict[str, str]) -> None:
    page = every_number(**query)
    assert page.number_input(key="activations").value is None
    assert page.number_input(key="ttft").value == (250 if "ttft" in query else None)
    assert page.number_input(key="tensor").value == (2 if "tensor" in query else None)


def test_what_an_objective_means_stands_below_it() -> None:
    page = opened(objective="latency")
    assert any(plain("latency: the one at the lowest latency") in text.value for text in page.sidebar.caption)
    page.selectbox(key="objective").set_value("cost")
    run(page)
    assert any(plain("cost: the one with the fewest GPUs") in text.value for text in page.sidebar.caption)
    assert shared(page)["objective"] == ["cost"]


def test_images_are_asked_about_where_they_can_be_left_out() -> None:
    def asked(**query: str) -> list[str | None]:
        page = opened(**query)
        page.session_state["_fold_Engine settings"] = True
        return [toggle.key for toggle in run(page).toggle]

    assert asked(model="google/gemma-3-27b-it") == ["images"]
    assert asked(model="google/gemma-3-27b-it", engine="trtllm") == []
    assert asked() == []


def test_a_link_without_images_stays_one() -> None:
    page = opened(model="google/gemma-3-27b-it", images="false")
    assert page.toggle(key="images").value is False
    assert shared(page)["images"] == ["false"]
    assert not page.warning


def test_a_model_is_fetched_from_the_hub_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def entry(_: Hub, name: str) -> ModelEntry:
        asked.append(name)
        if "/" not in name:
            raise DownloadError(f"{name!r} is not an id of the form organisation/model")
        source = Source.model_validate({"text": "made up for this test", "read": "2026-11-29"})
        quantized = {"quantization": {"quant_algo": "FP8"}}
        return ModelEntry(name=name, source=source, config=LLAMA_CONFIG, quantization=quantized)

    monkeypatch.setattr(Hub, "entry", entry)
    page = opened()
    page.selectbox(key="model").set_value("config")
    run(page)
    page.text_input(key="_hub_id").set_value("nonsense")
    next(button for button in page.button if button.label == "Fetch").click()
    run(page)
    assert "not an id" in said(page)
    page.text_input(key="_hub_id").set_value("somebody/their-llama")
    next(button for button in page.button if button.label == "Fetch").click()
    run(page)
    assert asked == ["nonsense", "somebody/their-llama"]
    assert verdict(page).startswith(plain("their-llama in FP8"))
    scenario, messages = from_query(shared(page))
    assert messages == []
    assert plan(scenario).result.problem.transformer.name == "somebody/their-llama"
    assert plan(scenario).result.problem.transformer.native["dense_ffn"] == "fp8"


def test_a_format_that_does_not_run_is_kept_through_tabs_links_and_sliders() -> None:
    page = opened(weights="q4_k_m", kv="nvfp4")
    assert "does not run on H100" in verdict(page).replace("\\", "")
    for tab in TABS:
        show(page, tab)
    page.select_slider(key="concurrency").set_value(96)
    run(page)
    assert (shared(page)["weights"], shared(page)["kv"]) == (["q4_k_m"], ["nvfp4"])
    assert "does not run on H100" in verdict(page).replace("\\", "")


@pytest.mark.parametrize("tab", ["Overview", "Why"])
def test_a_missed_target_shows_ways_out_and_one_click_meets_it(tab: str) -> None:
    page = opened(tpot="5", ttft="50", view=tab)
    assert "meets the targets" in verdict(page)
    (way,) = (button for button in page.button if str(button.label).startswith("Allow"))
    way.click()
    run(page)
    assert "serve 64 requests at once" in verdict(page)
    assert not any(str(button.label).startswith("Allow") for button in page.button)


def test_the_smallest_sizes_say_where_nothing_does_it_and_what_nobody_sells() -> None:
    page = opened(tpot="5", ttft="50", view="Overview")
    (sizes,) = (table.value for table in page.table if "Cheapest machine" in table.value)
    assert sizes["Size"].iloc[-1] == "none of the sizes tried"
    assert list(sizes["Cheapest machine"])[-2:] == ["–", "–"]
    page = opened(gpu="rtx-pro-6000-workstation", model="Qwen/Qwen3-8B", concurrency="1", view="Overview")
    (sizes,) = (table.value for table in page.table if "Cheapest machine" in table.value)
    assert set(sizes["Cheapest machine"]) == {plain(UNLISTED)}
