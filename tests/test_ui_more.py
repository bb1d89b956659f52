"""The page without a browser: other hardware, real traffic, logs, accuracy and the catalogue."""

import csv
import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from parplan import catalog
from parplan.logs import LONGEST_LOG
from parplan.refit import Refit, refit
from parplan.scenario import Scenario, plan
from parplan.traffic import replica_of, replicas_for
from parplan.ui import accuracy_page, load_tab, log_page, prices
from parplan.ui.accuracy_chart import Point, predicted_against_measured
from parplan.ui.hardware_chart import (
    CHARACTER,
    LINE,
    MARKER,
    PLOT,
    VENDORS,
    Spot,
    cost_against_speed,
    label_sides,
)
from parplan.ui.hardware_tab import short_name
from parplan.ui.measured import METRICS, UNITS, quantities
from parplan.ui.theme import DARK, LIGHT, Theme
from parplan.ui.words import plain
from parplan.units import written_time
from parplan.validate import UNUSED, Cells, explains, marks, validation, worst_groups
from tests.drawn import drawn

APP = Path(__file__).parents[1] / "app.py"
LOGS = Path(__file__).parent / "data" / "logs"
EXPERTS = {"model": "deepseek-ai/DeepSeek-V3", "weights": "native", "gpu": "b200-sxm"}
BEACON = "![x](https://elsewhere.invalid/p.png)"


def run(page: AppTest) -> AppTest:
    page.run()
    assert [(failure.message, failure.stack_trace) for failure in page.exception] == []
    return page


def opened(tab: str, **query: str) -> AppTest:
    """A tab of the plan, as a link opens it."""
    page = AppTest.from_file(str(APP), default_timeout=30)
    page.query_params.update(query)
    page.session_state["view"] = tab
    return run(page)


def said(page: AppTest) -> str:
    return "\n".join(str(text.value) for text in page.text)


def whispered(page: AppTest) -> str:
    return "\n".join(str(caption.value) for caption in page.caption)


def chart(page: AppTest) -> dict[str, Any]:
    return drawn(page)[0].figure


def assert_described(page: AppTest) -> None:
    """Every figure and table says in words what it shows, and Plotly knows every property of the figures."""
    for one in drawn(page):
        go.Figure(one.figure)
    for alt in (*(one.alt for one in drawn(page)), *(table.proto.alt for table in page.dataframe)):
        assert len(alt) > 20


# --- hardware


def test_every_gpu_has_a_row_and_those_with_a_price_a_point() -> None:
    page = opened("Hardware")
    table = page.dataframe[0].value
    names = [short_name(gpu.label) for gpu in catalog.gpus().values()]
    assert sorted(table["GPU"]) == sorted(set(names)) == sorted(names)
    priced = table[table["USD/M output"].notna() & (table["Status"] != "requests wait")]
    points = sum(len(trace["text"]) for trace in chart(page)["data"] if trace["name"] in VENDORS)
    assert points == len(priced) > 10
    assert_described(page)


def test_gpus_that_do_the_job_come_first_and_the_cheapest_of_them_on_top() -> None:
    table = opened("Hardware", **EXPERTS).dataframe[0].value
    does = table["Status"] == "good"
    assert does.tolist() == sorted(does.tolist(), reverse=True)
    usd = table[does]["USD/M output"].dropna().tolist()
    assert usd == sorted(usd)
    cannot = table[table["Status"] == "does not run"]
    assert cannot["ms/token"].isna().all()
    assert cannot["In words"].str.contains("does not run").all()


def test_every_time_carries_its_error_unless_the_engine_is_a_bound() -> None:
    table = opened("Hardware").dataframe[0].value
    runs = table["ms/token"].notna()
    assert (table[runs]["± token"] > 0).all()
    assert (table[runs]["± first"] > 0).all()
    assert opened("Hardware", engine="ideal").dataframe[0].value["± token"].isna().all()


def test_old_prices_are_called_old() -> None:
    page = opened("Hardware")
    newest = max(found.priced for found in catalog.instances() if found.priced)
    if (date.today() - newest).days > 30:
        assert "prices are older than 30 days" in whispered(page)
        assert page.dataframe[0].value["Price of"].dropna().str.endswith(" d").all()


def test_only_the_vendors_and_providers_asked_for_are_shown() -> None:
    page = opened("Hardware")
    page.pills(key="_vendors").set_value(["AMD"])
    page.multiselect(key="_providers").set_value(["Crusoe"])
    table = run(page).dataframe[0].value
    amd = {short_name(gpu.label) for gpu in catalog.gpus().values() if gpu.vendor == "AMD"}
    assert set(table["GPU"]) == amd
    assert table["Machines"].dropna().str.endswith("Crusoe").all()
    assert table["Machines"].notna().any()


def test_an_own_price_beside_discounted_ones_says_so() -> None:
    words = whispered(opened("Hardware", gpu_hour="2.1", discount="25"))
    assert (
        plain("Your own price: 2.10 USD per GPU and hour; the discount of 25 % is for list prices") in words
    )
    assert plain("Other GPUs: 25 % off list prices") in words


def test_gpus_at_no_cost_are_named_and_not_drawn() -> None:
    """A logarithmic scale has no place for 0; nothing is drawn for want of a price alone."""
    page = opened("Hardware", discount="100")
    assert "at no cost" in said(page)
    assert "No GPU with a known price" not in said(page)
    assert len(drawn(page)) == 0
    page = opened("Hardware", discount="100", gpu_hour="2")
    assert "at no cost" in said(page)
    assert [one.alt.partition(".")[0] for one in drawn(page)] == ["Cost against speed on 1 GPU"]


def test_spare_gpus_that_stand_idle_are_paid_for() -> None:
    page = opened("Hardware", model="Qwen/Qwen2.5-7B-Instruct")
    busy = page.dataframe[0].value.set_index("GPU")["USD/M output"].dropna()
    page.segmented_control(key="_spare").set_value("stand idle")
    idle = run(page).dataframe[0].value.set_index("GPU")["USD/M output"].dropna()
    assert (idle >= busy[idle.index] * 0.999).all()
    assert (idle > busy[idle.index] * 1.5).any()  # sold as whole nodes only


@pytest.mark.parametrize(
    "query", [{"concurrency": "4096", "prompt": "131072"}, {"model": "deepseek-ai/DeepSeek-V3", "gpu": "t4"}]
)
def test_the_hardware_tab_is_never_empty(query: dict[str, str]) -> None:
    assert len(opened("Hardware", **query).dataframe[0].value) == len(catalog.gpus())


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_vendors_differ_by_colour_and_by_marker(theme: Theme) -> None:
    assert len({theme.lines[place] for place, _ in VENDORS.values()}) == len(VENDORS)
    assert len({symbol for _, symbol in VENDORS.values()}) == len(VENDORS)
    assert {gpu.vendor for gpu in catalog.gpus().values()} <= set(VENDORS)


def test_gpus_are_named_where_there_is_room_and_the_unbeaten_ones_first() -> None:
    """In one place not all of twelve names fit beside each other; apart all do."""
    near = [Spot(f"GPU {n}", "x" * 20, "NVIDIA", "", 20 - n / 1000, 1 + n / 1000) for n in range(12)]
    found = cost_against_speed(near[::-1], chosen="", theme=LIGHT)
    names = found.figure["data"][0]["text"]
    assert names[-1]
    assert not all(names)
    ringed = cost_against_speed(near[::-1], chosen="GPU 11", theme=LIGHT).figure["data"]
    assert ringed[0]["text"][0]
    assert (ringed[1]["name"], ringed[1]["x"]) == ("Chosen", [near[11].speed])
    far = [replace(spot, speed=10, usd=1.5**n) for n, spot in enumerate(near)]
    assert all(cost_against_speed(far, chosen="", theme=LIGHT).figure["data"][0]["text"])
    assert "Cheapest: GPU 0" in found.alt
    assert "Fastest: GPU 0" in found.alt


@given(
    st.lists(
        st.tuples(st.floats(0, PLOT[0]), st.floats(0, PLOT[1]), st.integers(1, 20)), min_size=1, max_size=20
    ),
    st.floats(1, 5),
)
def test_names_of_gpus_hide_no_point_and_no_other_name_however_wide_the_screen(
    points: list[tuple[float, float, int]], wider: float
) -> None:
    sides = label_sides(
        np.array([point[:2] for point in points]),
        ["x" * length for *_, length in points],
        order=range(len(points)),
    )
    boxes = []
    for (x, y, length), side in zip(points, sides, strict=True):
        if side:
            level, along = side.split()
            aside = MARKER if level == "middle" else 0
            width = CHARACTER * length
            left = x * wider + {"left": -width - aside, "center": -width / 2, "right": aside}[along]
            low = y + {"middle": -LINE / 2, "top": MARKER, "bottom": -MARKER - LINE}[level]
            boxes.append((left, left + width, low, low + LINE))
    hairsbreadth = 1e-6
    for one, other in itertools.combinations(boxes, 2):
        assert min(one[1], other[1]) <= max(one[0], other[0]) + hairsbreadth or (
            min(one[3], other[3]) <= max(one[2], other[2]) + hairsbreadth
        )
    for (left, right, low, high), (x, y, _) in itertools.product(boxes, points):
        assert not (
            left + hairsbreadth < x * wider < right - hairsbreadth
            and low + hairsbreadth < y < high - hairsbreadth
        )


# --- load


def figures(page: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def test_a_rate_takes_as_many_replicas_as_the_formula_says() -> None:
    page = opened("Load", rate="10", peak="2")
    answer = plan(Scenario(rate=10, peak=2))
    assert answer.advice.recommended
    replica = replica_of(answer.result, answer.advice.recommended.index)
    assert figures(page)["Replicas"] == str(replicas_for(replica, rate=10, peak=2))
    assert float(figures(page)["Busy at the peak"].rstrip(" %")) <= 100
    bill = page.dataframe[0].value
    assert bill["USD/hour"].tolist() == sorted(bill["USD/hour"])
    hourly, per_request = bill["USD/hour"][0], bill["USD/request"][0]
    assert per_request * 10 * 3600 == pytest.approx(hourly)
    assert_described(page)


def test_fully_loaded_tokens_cost_less_than_at_the_mean_rate() -> None:
    page = opened("Load", rate="10", peak="2")
    mean = page.dataframe[0].value
    page.segmented_control(key="_cost_at").set_value(load_tab.FULL_LOAD)
    full = run(page).dataframe[0].value
    assert full["USD/hour"].tolist() == mean["USD/hour"].tolist()
    bears = float(figures(page)["Requests/s they bear"].replace(",", ""))
    assert (mean["USD/M output"] / full["USD/M output"]).to_numpy() == pytest.approx(bears / 10, rel=0.01)


def test_without_a_rate_the_curve_and_what_a_replica_bears_are_shown() -> None:
    page = opened("Load")
    assert list(figures(page))[-2:] == ["Replicas", "Requests/s they bear"]
    assert len(page.dataframe) == 0
    assert "knee" in drawn(page)[0].alt


def test_the_rate_is_asked_for_on_the_tab_and_kept() -> None:
    page = opened("Load")
    page.number_input(key="_load_rate").set_value(25.0)
    run(page)
    assert page.session_state["rate"] == 25
    assert "25 requests per second" in said(page)
    page.session_state["view"] = "Why"
    run(page)
    page.session_state["view"] = "Load"
    assert run(page).number_input(key="_load_rate").value == 25


def test_limits_of_the_inputs_are_those_of_the_scenario() -> None:
    page = opened("Load")
    for name in load_tab.ASKED:
        shown = page.number_input(key=f"_load_{name}")
        Scenario.model_validate({name: shown.min})
        Scenario.model_validate({name: shown.max})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"tpot": "1", "rate": "5"}, "no number of replicas helps"),
        ({"model": "deepseek-ai/DeepSeek-V3", "gpu": "t4", "budget": "8"}, "nothing to load"),
        ({"rate": "100000", "peak": "100"}, "replicas, "),
        ({"rate": "0.001"}, "1 replica, "),
        ({"rate": "5", **EXPERTS}, "bears"),
    ],
    ids=["out of reach", "nothing runs", "huge", "tiny", "experts"],
)
def test_the_load_tab_answers_whatever_is_asked(query: dict[str, str], words: str) -> None:
    assert words in said(opened("Load", **query))


def test_the_verdict_says_what_the_rate_takes_on_every_tab() -> None:
    verdict = plan(Scenario(rate=10, peak=2)).verdict
    assert "18 × H100 SXM 80 GB (9 × TP2)" in verdict
    other = plan(Scenario(rate=10, peak=2, replicas=4)).load_words
    for tab in ("Why", "Buy"):
        page = opened(tab, rate="10", peak="2")
        assert plain(verdict) == page.subheader[0].value
        assert page.metric[0].value == "18"
        shown = [str(text.value) for text in opened(tab, rate="10", peak="2", replicas="4").markdown]
        assert plain(f"{other} See the tab Load.") in shown
    assert not any("See the tab Load" in str(text.value) for text in opened("Why").markdown)


def test_with_a_rate_the_figures_are_those_of_the_verdict_and_small_those_at_once() -> None:
    answer, page = plan(Scenario(rate=10, peak=2)), opened("Why", rate="10", peak="2")
    found, best = answer.borne, answer.advice.recommended
    assert found
    assert best
    _, tpot, ttft, rate = page.metric
    for figure, time in ((tpot, best.serving.tpot), (ttft, best.serving.ttft)):
        assert figure.value in answer.verdict
        assert figure.delta.startswith(f"{written_time(float(time))} ±")
        assert figure.delta.endswith(" at 64")
    assert rate.value == f"{20 * Scenario().output:,}"
    assert plain("small below them: with 64 requests at once") in whispered(page)
    one = opened("Why", rate="10", output="1")
    assert (one.metric[1].value, one.metric[1].delta) == ("none", "a request has one token")
    unknown = opened("Why", rate="10", engine="ideal").metric[1].delta
    assert "±" not in unknown
    assert "  " not in unknown


@pytest.mark.parametrize("tab", ["Load", "Hardware", "Buy"])
def test_prices_that_contain_the_whole_bill_each_are_said_to(tab: str) -> None:
    assert prices.SPREAD in whispered(opened(tab, rate="10")).replace("\\", "")


@pytest.mark.parametrize("tab", ["Layouts", "Load", "Hardware", "Buy"])
def test_an_empty_cell_is_empty(tab: str) -> None:
    tables = opened(tab, rate="10", budget="2").dataframe
    assert len(tables) > 0
    assert all(table.proto.HasField("placeholder") and not table.proto.placeholder for table in tables)


# --- logs


def read(log: str, **query: str) -> AppTest:
    """The page that reads logs, with a log pasted."""

    def page() -> None:
        import streamlit as st

        from parplan.ui import inputs, log_page

        st.set_page_config(layout="wide")
        inputs.open_link()
        inputs.sidebar()
        log_page.show()

    found = AppTest.from_function(page, default_timeout=30)
    found.query_params.update(query)
    run(found)
    found.text_area(key="_log").set_value(log)
    return run(found)


@pytest.mark.parametrize("file", sorted(LOGS.glob("*.log")), ids=lambda file: file.stem)
def test_every_kind_of_log_is_read_with_the_lines_it_was_read_from(file: Path) -> None:
    text = file.read_text("utf-8")
    page = read(text)
    found = page.dataframe[-1].value
    assert len(found) > 3
    assert found["Line"].between(1, text.count("\n") + 1).all()
    assert_described(page)


def test_predicted_stands_beside_logged() -> None:
    page = read((LOGS / "vllm-0.19-tp2.log").read_text("utf-8"))
    beside = page.dataframe[0].value.set_index("Quantity")
    assert beside.loc["weights", "Logged"] == "33.88 GiB"
    for name, most in (("weights", 0.02), ("KV cache", 0.05)):
        assert beside["Relative"].abs()[name] < most


@pytest.mark.parametrize(
    ("query", "whose"), [({}, "TP2 (as recommended; the log names no layout)"),
                         ({"tensor": "4"}, "TP4 (as fixed; the log names no layout)")]
)  # fmt: skip
def test_a_log_without_a_layout_is_held_against_the_plan_s(query: dict[str, str], whose: str) -> None:
    """The log of the placeholder is one of the default plan, on two GPUs."""
    page = read(log_page.PLACEHOLDER, **query)
    assert any(plain(whose) in one.value for one in page.main.caption)
    (table,) = [frame.value for frame in page.dataframe if "Predicted" in frame.value.columns]
    beside = table.set_index("Quantity")["Relative"]
    assert abs(beside["weights"]) < 0.04 if not query else beside["weights"] < -0.4


def test_what_a_log_says_is_taken_over_with_one_click() -> None:
    page = read((LOGS / "vllm-0.19-tp2.log").read_text("utf-8"), model="Qwen/Qwen3-32B", concurrency="7")
    button = next(button for button in page.main.button if button.label == "Plan with what the log says")
    button.click()
    run(page)
    state = page.session_state
    assert (state["model"], state["tensor"], state["utilization"]) == (
        "meta-llama/Llama-3.3-70B-Instruct",
        2,
        95,
    )
    assert state["concurrency"] == 7  # a start-up log does not say
    assert "already has every setting the log states" in said(page)


@pytest.mark.parametrize("text", ["hello", "\n" * 1000, "GET / HTTP/1.1 200", BEACON * 50])
def test_what_is_no_log_gets_a_message_that_names_the_lines(text: str) -> None:
    page = read(text)
    if text.strip():
        assert "Looked for" in said(page)
        assert "Model loading took" in said(page)
    assert len(page.dataframe) == 0


def test_text_of_a_log_is_never_markdown() -> None:
    log = (LOGS / "vllm-0.19-tp2.log").read_text("utf-8").replace("RedHatAI/Llama", f"a/{BEACON} Llama")
    page = read(f"{log}\nRuntimeError: {BEACON} No available memory for the cache blocks\n")
    assert "elsewhere.invalid" in page.code[0].value
    for shown in (page.markdown, page.caption, page.subheader, page.warning, page.error):
        assert not any("elsewhere.invalid" in str(element.value) for element in shown)


def test_the_box_takes_no_more_than_is_read() -> None:
    assert log_page.LONGEST == 1024 * 1024 <= LONGEST_LOG


# --- accuracy


def page_of(show: str) -> Callable[[], None]:
    """A page of its own."""

    def accuracy() -> None:
        from parplan.ui import accuracy_page

        accuracy_page.show()

    def catalogue() -> None:
        from parplan.ui import catalog_page

        catalog_page.show()

    return {"accuracy": accuracy, "catalogue": catalogue}[show]


def shown(show: str, **state: object) -> AppTest:
    page = AppTest.from_function(page_of(show), default_timeout=60)
    for key, value in state.items():
        page.session_state[key] = value
    return run(page)


@pytest.mark.parametrize("tab", ["Speed", "Memory", "Throughput"])
def test_errors_are_those_of_the_report(tab: str) -> None:
    page = shown("accuracy", _measured=tab)
    report = validation(accuracy_page.measurements()[tab])
    quantity = quantities(report)[0]
    rows = [row for row in report.rows if not marks(row) & set(UNUSED.get(quantity.column, ()))]
    errors = report.errors(quantity.column, rows=rows)
    assert errors
    assert page.selectbox[0].value == quantity.label
    assert figures(page)["Median error"] == f"{errors.median * 100:.1f} %"
    assert figures(page)["Points compared"] == f"{errors.rows:,}"
    assert page.dataframe[0].value["Rows"].sum() == errors.rows == len(page.dataframe[-1].value)
    assert page.dataframe[-1].value["Source"].str.len().gt(5).all()
    assert_described(page)


def test_every_measured_column_and_metric_has_words() -> None:
    for path in accuracy_page.measurements().values():
        report = validation(path)
        assert set(report.measured) - {"outcome"} <= set(UNITS)
        assert {row.group["metric"] for row in report.rows if "metric" in row.group} <= set(METRICS)


def test_figures_in_one_unit_can_be_looked_at_alone() -> None:
    page = shown("accuracy", _measured="Throughput", _quantity_Throughput="output tokens/s per GPU")
    assert set(page.dataframe[-1].value["Metric"]) == {"out_tok_s_per_gpu"}


def test_errors_of_what_was_left_out_of_the_fit_stand_beside_those_of_the_fit() -> None:
    table = shown("accuracy", _measured="Speed").dataframe[1].value
    assert list(table.columns) == ["Engine", *accuracy_page.UNSEEN.values()]
    for engine in (catalog.engines()[name] for name in ("vllm", "sglang", "trtllm")):
        assert engine.errors
        (row,) = table[table["Engine"] == engine.label].to_dict("records")
        for kind, words in accuracy_page.UNSEEN.items():
            errors = getattr(engine.errors.tpot, kind)
            assert row[words] == f"{errors.median * 100:.1f} % ({errors.p90 * 100:.0f} %)"


def test_only_the_open_tab_is_predicted() -> None:
    assert len(shown("accuracy", _measured="Yours").dataframe) == 0


def test_filters_leave_fewer_points() -> None:
    page = shown("accuracy", _measured="Speed")
    before = len(page.dataframe[-1].value)
    page.multiselect(key="_engine_Speed").set_value(["sglang"])
    run(page)
    points = page.dataframe[-1].value
    assert 0 < len(points) < before
    assert set(points["Engine"]) == {"sglang"}
    page.pills(key="_marks_Speed_tpot_ms").set_value([])
    assert len(run(page).dataframe[-1].value) >= len(points)


@pytest.mark.parametrize("kind", ["engine", "gpu", "model", "precision", "layout"])
def test_errors_by_any_group_come_worst_first(kind: str) -> None:
    table = shown("accuracy", _measured="Speed", _by_Speed=kind).dataframe[0].value
    errors = table["Median error"].tolist()
    assert errors == sorted(errors, reverse=True)
    assert len(errors) > 2


def test_the_worst_groups_are_named_and_are_worse_than_all_together() -> None:
    report = validation(accuracy_page.measurements()["Speed"])
    named = worst_groups(report, "tpot_ms", causes=catalog.causes())
    overall = report.errors("tpot_ms")
    assert named
    assert overall
    medians = [group.errors.median for group in named]
    assert medians == sorted(medians, reverse=True)
    assert medians[-1] > overall.median
    assert worst_groups(replace(report, rows=()), "tpot_ms", causes=()) == []


def test_every_cause_explains_rows_of_the_catalogue() -> None:
    """None is about nothing, and each is read where it belongs."""
    reports = [validation(path) for path in accuracy_page.measurements().values()]
    for cause in catalog.causes():
        assert any(
            explains(cause, row, column=column)
            for report in reports
            for row in report.rows
            for column in cause.columns
            if column in report.measured
        ), cause.why


def test_the_page_says_why_the_worst_groups_are() -> None:
    said = "\n".join(one.value for one in shown("accuracy", _measured="Speed").markdown)
    assert "The worst groups, and why" in said
    assert "prefix cache" in said


def test_the_example_file_is_read_as_it_is() -> None:
    found = accuracy_page.read(accuracy_page.example().encode())
    assert len(found.rows) == accuracy_page.EXAMPLE_ROWS
    assert all(row.predicted for row in found.rows)


def test_points_lead_to_where_they_were_read() -> None:
    table = shown("accuracy", _measured="Speed").dataframe[-1].value
    assert table["Link"].notna().mean() > 0.98
    assert table["Link"].dropna().str.startswith("https://").all()


def test_a_point_on_the_diagonal_is_right() -> None:
    points = [Point("a", "", 10.0, 10.0), Point("b", "", 100.0, 300.0)]
    found = predicted_against_measured(points, unit="ms", theme=LIGHT)
    assert "1 of 2 points" in found.alt
    assert [mark["name"] for mark in found.figure["data"] if mark["mode"] == "markers"] == ["a", "b"]


def test_ones_own_measurements_are_predicted() -> None:
    rows = validation(accuracy_page.measurements()["Speed"]).rows[:40]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0].cells))
    writer.writeheader()
    writer.writerows([dict(row.cells) for row in rows])
    report = accuracy_page.read(text.getvalue().encode())
    assert len(report.rows) == 40
    assert report.rows[0].predicted == rows[0].predicted


def test_an_uploaded_file_is_fitted_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = list[list[Cells]]()

    def counted(rows: list[Cells]) -> Refit:
        fits.append(rows)
        return refit(rows)

    monkeypatch.setattr(accuracy_page, "refit", counted)
    page = shown("accuracy", _measured=accuracy_page.YOURS)
    page.file_uploader(key="_yours").upload("mine.csv", accuracy_page.example().encode(), "text/csv")
    assert "after" in said(run(page))
    filtered = page.multiselect(key=f"_gpu_{accuracy_page.YOURS}")
    filtered.select(filtered.options[0])
    assert "after" in said(run(page))
    assert len(fits) == 1


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b"x" * 5000, b'"'])
def test_a_file_of_something_else_gets_a_reason(content: bytes) -> None:
    with pytest.raises((ValueError, csv.Error)):
        accuracy_page.read(content)


# --- catalogue


@pytest.mark.parametrize("tab", ["Models", "GPUs", "Instances", "Formats", "Engines"])
def test_every_fact_of_the_catalogue_has_a_source(tab: str) -> None:
    page = shown("catalogue", _facts=tab)
    facts = page.dataframe[0].value
    assert len(facts) > 3
    assert (facts["Source"].str.len() > 5).all()
    assert_described(page)


def test_models_are_found_by_name_family_kind_and_size() -> None:
    page = shown("catalogue")
    everything = len(page.dataframe[0].value)
    assert everything == len(catalog.model_files())
    page.text_input(key="_words").set_value("qwen3 sliding")
    assert "Nothing in the catalogue" in said(run(page))
    page.text_input(key="_words").set_value("DeepSeek latent")
    found = run(page).dataframe[0].value
    assert 0 < len(found) < everything
    assert found["Attention"].str.contains("latent").all()
    page.text_input(key="_words").set_value("")
    page.pills(key="_kind").set_value("mixture of experts")
    page.select_slider(key="_sizes").set_value((300, 3000))
    found = run(page).dataframe[0].value
    assert (found["Parameters, billion"] >= 300).all()
    assert (found["Active, billion"] < found["Parameters, billion"]).all()
    assert "deepseek-ai/DeepSeek-V3" in set(found["Model"])


def test_machines_of_one_provider() -> None:
    page = shown("catalogue", _facts="Instances")
    page.multiselect(key="_only_Provider").set_value(["AWS"])
    table = run(page).dataframe[0].value.set_index("Instance")
    assert set(table["Provider"]) == {"AWS"}
    assert (table.loc["p5.48xlarge", "vCPUs"], table.loc["p5.48xlarge", "RAM, GiB"]) == (192, 2048)


def test_hostile_words_find_nothing_and_break_nothing() -> None:
    page = shown("catalogue")
    page.text_input(key="_words").set_value("[(*" + BEACON)
    assert "Nothing in the catalogue" in said(run(page))


def test_ones_own_times_become_factors_of_the_scenario() -> None:
    def page() -> None:
        import csv as reader

        from parplan.ui import accuracy_page, inputs
        from parplan.validate import report_of

        inputs.open_link()
        inputs.sidebar()
        path = accuracy_page.measurements()["Speed"]
        lines = path.read_text("utf-8").splitlines()[:80]
        rows = [dict(row) for row in reader.DictReader(lines)]
        accuracy_page._fitted(accuracy_page.fit_to(report_of(rows, columns=list(rows[0]))))

    at = AppTest.from_function(page, default_timeout=60).run()
    assert not at.exception
    assert any("median error" in text.value for text in at.text)
    next(button for button in at.button if "factors" in button.label).click()
    at.run()
    scales = [at.session_state[name] for name in ("memory_scale", "compute_scale", "overhead_scale")]
    assert any(scale != 1 for scale in scales)
    assert not at.exception
