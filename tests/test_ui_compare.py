"""The page Compare, the picture of the ranks, and how a number is made, without a browser."""

from pathlib import Path

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from parplan import Scenario, catalog, plan
from parplan.layout import Layout
from parplan.shortlist import packed_scenario
from parplan.ui import explain, topology
from parplan.ui.theme import DARK, LIGHT, Theme
from tests.drawn import drawn

APP = Path(__file__).parents[1] / "app.py"
ONE, TWO = Scenario(), Scenario(gpu="h200-sxm", concurrency=128)


def compare() -> None:
    from parplan.ui import compare_page, inputs

    inputs.open_link()
    inputs.sidebar()
    compare_page.show()


def compared(*texts: str) -> AppTest:
    page = AppTest.from_function(compare, default_timeout=60)
    for place, text in zip("abcd", texts, strict=False):
        page.query_params[place] = text
    return run(page)


def run(page: AppTest) -> AppTest:
    page.run()
    assert [(failure.message, failure.stack_trace) for failure in page.exception] == []
    return page


def table(page: AppTest, title: str) -> dict[str, list[str]]:
    found = next(table.value for table in page.main.table if table.value.columns[0] == title)
    return {
        row[0].replace("\\", ""): [cell.replace("\\", "") for cell in row[1:]] for row in found.to_numpy()
    }


def said(page: AppTest) -> str:
    return "\n".join(str(text.value) for text in page.main.text)


def number(cell: str) -> float:
    return float(cell.split(" ")[0].replace(",", ""))


def test_it_says_what_to_do_until_there_are_two() -> None:
    assert "two plans or more" in said(compared())
    assert "two plans or more" in said(compared(packed_scenario(ONE)))


def test_differences_come_first_then_verdicts_figures_and_memory() -> None:
    page = compared(packed_scenario(ONE), "?gpu=h200-sxm&concurrency=128")
    assert said(page).count("could not be used") == 0
    differing = table(page, "What differs")
    assert differing == {"GPU": ["h100-sxm", "h200-sxm"], "Concurrent requests": ["64", "128"]}
    verdicts = "\n".join(str(text.value) for text in page.main.markdown).replace("\\", "")
    for scenario in (ONE, TWO):
        assert plan(scenario).advice.verdict in verdicts
    figures = table(page, "Recommended layout")
    assert list(figures) == ["GPUs", "Replicas", "Time per token", "Time to first token", "Tokens per second",
                             "USD per hour", "USD per million output tokens"]  # fmt: skip
    assert all("±" in cell for name in ("Time per token", "Time to first token") for cell in figures[name])
    assert all("(" in second and "(" not in first for first, second in figures.values())
    (bars,) = drawn(page)
    assert "2 scenarios" in bars.alt


def test_verdicts_count_all_replicas() -> None:
    page = compared("?replicas=4&concurrency=80", packed_scenario(ONE))
    verdicts = "\n".join(str(text.value) for text in page.main.markdown).replace("\\", "")
    assert "8 × H100 SXM 80 GB (4 × TP2) serve 320 requests at once" in verdicts
    assert table(page, "Recommended layout")["GPUs"][0] == "8"


def test_what_one_plan_leaves_out_is_said_in_words() -> None:
    page = compared(packed_scenario(ONE), "?tpot=40&budget=8&slots=256&activations=2.5&gpu_hour=2")
    assert table(page, "What differs") == {
        "Target for each token, ms": ["none", "40"],
        "Most GPUs per replica": ["auto", "8"],
        "Sequences at once": ["auto", "256"],
        "Activations, GiB": ["auto", "2.5"],
        "Own price, USD per GPU and hour": ["list price", "2"],
    }


def test_terms_add_up_for_every_plan_speculative_ones_too() -> None:
    drafting = Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="b200-sxm", draft=3)
    page = compared(packed_scenario(ONE), packed_scenario(TWO), packed_scenario(drafting))
    for title in ("ms per output token", "GiB on the fullest GPU"):
        rows = table(page, title)
        together = rows.pop("together")
        for place, total in enumerate(together):
            parts = sum(number(values[place]) for values in rows.values())
            assert parts == pytest.approx(number(total), abs=0.006 * len(rows))


def test_bad_links_are_explained_and_the_rest_is_used() -> None:
    page = compared("gpu=h1000&output=512", "nonsense", packed_scenario(TWO))
    assert "'h1000' is not known" in said(page)
    assert "This is not a link to a plan" in said(page)
    assert table(page, "What differs")["Output tokens"] == ["512", "1,024"]


def test_a_comparison_does_not_disturb_the_plan_in_the_same_address() -> None:
    page = AppTest.from_file(str(APP), default_timeout=60)
    page.query_params.update({"a": packed_scenario(TWO), "gpu": "l40s"})
    run(page)
    assert said(page) == ""
    assert page.selectbox(key="gpu").value == "l40s"


def test_the_plan_on_the_left_takes_the_first_free_place() -> None:
    page = compared(packed_scenario(TWO))
    page.selectbox(key="gpu").set_value("l40s")
    run(page)
    next(button for button in page.main.button if button.label == "Add the current plan").click()
    run(page)
    assert table(page, "What differs")["GPU"] == ["h200-sxm", "l40s"]


def test_text_from_a_link_is_never_markdown() -> None:
    beacon = "![x](https://elsewhere.invalid/p.png)"
    page = compared(f"gpu={beacon}", packed_scenario(TWO))
    assert "elsewhere.invalid" in said(page)
    assert not any("elsewhere.invalid" in str(shown.value) for shown in (*page.markdown, *page.caption))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("layout", "gpu", "squares"),
    [
        (Layout(tensor=2), "h100-sxm", 2),
        (Layout(tensor=8, pipeline=2), "h100-sxm", 16),
        (Layout(data=64, expert=64), "h200-sxm", 64),
        (Layout(data=144, expert=144), "h200-sxm", 18),
        (Layout(tensor=4, pipeline=16), "l40s", 64),
        (Layout(tensor=8, data=9), "gb200-nvl72", 72),
    ],
)
def test_the_picture_has_a_square_per_gpu_or_per_node_where_there_are_many(
    layout: Layout, gpu: str, squares: int, theme: Theme
) -> None:
    shown = topology.picture(layout, gpu=catalog.gpus()[gpu], engine="vllm", theme=theme)
    figure = go.Figure(shown.figure)
    assert len(figure.data[0].x) == squares
    assert str(layout) in shown.alt
    assert figure.layout.height < 700


def test_every_figure_is_explained_and_its_table_ends_in_the_figure() -> None:
    answer = plan(ONE)
    best = answer.advice.recommended
    assert best is not None
    for name, made in explain.EXPLAINED.items():
        explained = made(answer, best)
        assert explained is not None, name
        rows = explain.table(explained)
        assert rows.iloc[-1, 0] == "together", name
        assert len(rows) > 1


def test_a_cost_without_a_price_is_not_made_up() -> None:
    answer = plan(Scenario(gpu="rtx-5090", model="Qwen/Qwen3-8B"))
    best = answer.advice.recommended
    assert best is not None
    assert explain.EXPLAINED["Cost"](answer, best) is None


@pytest.mark.parametrize("tab", ["Overview", "Why"])
def test_the_explanation_is_built_when_it_is_asked_for(tab: str) -> None:
    page = AppTest.from_file(str(APP), default_timeout=60)
    run(page)
    page.session_state["view"] = tab
    closed = len(run(page).table)
    page.session_state["_figure"] = "KV cache"
    page.button(key="_explain_all").click()
    opened = run(page).table
    assert len(opened) == closed + 1
    assert any("64 requests × 80 layers × 2\\,048 tokens × 2 KiB" in one.value.to_string() for one in opened)


@pytest.mark.parametrize(
    ("tab", "button", "figure", "words"),
    [
        ("Load", "_explain_load", "Knee", "knee of one replica"),
        ("Load", "_explain_load", "First token, 95 of 100", "share that waits for admission"),
        ("Load", "_explain_bill", "USD/M input", "1\\,024 prompt tokens each"),
        ("Buy", "_explain_napkin", "Napkin", "rounded up to whole GPUs"),
        ("Buy", "_explain_holds", "J per token", "2 GPUs × 700 W"),
        ("Buy", "_explain_survives", "USD/hour", "machines it takes"),
    ],
)
def test_each_tab_explains_its_figures_and_works_nothing_out_before(
    tab: str, button: str, figure: str, words: str
) -> None:
    page = AppTest.from_file(str(APP), default_timeout=60)
    page.query_params["rate"] = "10"
    run(page)
    page.session_state["view"] = tab
    closed = len(run(page).table)
    page.session_state[f"_figure{button}"] = figure
    page.button(key=button).click()
    opened = run(page).table
    assert len(opened) > closed
    assert any(words in one.value.to_string() for one in opened)


def test_the_first_view_has_one_button_that_explains() -> None:
    page = run(AppTest.from_file(str(APP), default_timeout=60))
    assert [one.key for one in page.button if str(one.key).startswith("_explain")] == ["_explain_all"]


def test_costs_are_those_of_the_replicas_and_a_rate_has_its_own_number_of_them() -> None:
    page = compared(
        packed_scenario(ONE), packed_scenario(ONE.model_copy(update={"replicas": 3, "rate": 10.0}))
    )
    figures = table(page, "Recommended layout")
    for name in ("GPUs", "Replicas", "Tokens per second", "USD per hour"):
        one, three = (number(cell) for cell in figures[name])
        assert three == pytest.approx(3 * one, rel=0.01)
    hour, million, tokens = (
        number(figures[name][0])
        for name in ("USD per hour", "USD per million output tokens", "Tokens per second")
    )
    assert million == pytest.approx(hour / 3600 / tokens * 1e6, rel=0.01)
    asked = plan(Scenario(replicas=3, rate=10)).traffic
    assert asked is not None
    assert figures["Replicas for its rate"] == ["–", str(asked.replicas)]


def test_with_a_rate_figures_are_those_of_the_verdicts_and_the_others_say_what_they_are_of() -> None:
    with_rate = Scenario(rate=5, peak=3)
    page, answer = compared(packed_scenario(ONE), packed_scenario(with_rate)), plan(with_rate)
    figures, borne = table(page, "Recommended layout"), answer.borne
    assert borne is not None
    alone, busiest = figures["Time per token, busiest time"]
    assert alone == "–"
    assert f"{busiest} per token" in answer.verdict
    assert f"within {figures['95 of 100 first tokens within, busiest time'][1]}" in answer.verdict
    assert figures["Tokens per second, busiest time"][1] == f"{15 * with_rate.output:,}"
    assert f"{figures['USD per million output tokens, mean rate'][1]} USD per million" in answer.fleet_words
    for name in (
        "Time per token",
        "Time to first token",
        "Tokens per second",
        "USD per million output tokens",
    ):
        assert name not in figures
        assert "–" not in figures[f"{name}, all requests at once"]
    assert "With all requests at once: " in said(page)


def test_a_gpu_nobody_sells_has_no_cost_and_a_bound_no_band() -> None:
    here = Scenario(model="Qwen/Qwen3-8B", gpu="rtx-5090", engine="ideal")
    figures = table(compared(packed_scenario(here), packed_scenario(here)), "Recommended layout")
    assert "USD per hour" not in figures
    assert "±" not in "".join(figures["Time per token"])
