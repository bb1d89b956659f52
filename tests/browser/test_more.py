"""Other hardware, real traffic, logs, accuracy and the catalogue, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Position, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

NewVisitor = Callable[..., Visitor]
PHONE = {"width": 390, "height": 844}
LOG = Path(__file__).parents[1] / "data" / "logs" / "vllm-0.19-tp2.log"
TICK: Position = {"x": 16, "y": 52}
"""Where the box of a table's first row is, pixels from the table's corner."""
LOOKS = [
    pytest.param(
        {"color_scheme": scheme, **({"viewport": PHONE, "has_touch": True} if phone else {})},
        id=f"{at}-{scheme}",
    )
    for phone, at in ((False, "desk"), (True, "phone"))
    for scheme in ("light", "dark")
]


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def open_tab(visitor: Visitor, name: str, *, link: str = "") -> Page:
    page = visitor.open(link)
    page.get_by_role("tab", name=name, exact=True).click()
    visitor.settle()
    return page


def open_page(visitor: Visitor, name: str) -> Page:
    """A page other than the plan, by its link at the top, or in the menu on a phone."""
    page = visitor.open()
    phone = page.viewport_size == PHONE
    if phone:
        page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_role("link", name=name).click()
    visitor.settle()
    if phone:
        page.get_by_test_id("stSidebarCollapseButton").get_by_role("button").click()
        visitor.settle()
    return page


def paste(visitor: Visitor, text: str) -> Page:
    page = open_page(visitor, "Read a log")
    box = page.get_by_role("textbox", name="Start-up log")
    box.fill(text)
    box.press("Control+Enter")
    visitor.settle()
    return page


def assert_fits(visitor: Visitor) -> None:
    assert visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.assert_sound()


def test_a_ticked_gpu_can_be_planned_on(visitor: Visitor) -> None:
    page = open_tab(visitor, "Hardware")
    page.get_by_test_id("stDataFrame").first.click(position=TICK)
    visitor.settle()
    page.get_by_role("button", name="Explain this row").click()
    box = page.get_by_role("dialog")
    expect(box.get_by_text("the whole bill over output tokens")).to_be_visible()
    box.get_by_role("radio", name="ms/token", exact=True).click()
    expect(box.get_by_text("weights: dense feed-forward")).to_be_visible()
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    button = page.get_by_role("button", name="Plan on ")
    gpu = button.inner_text().removeprefix("arrow_forward").strip().removeprefix("Plan on ")
    button.click()
    visitor.settle()
    assert query(page)["gpu"]
    expect(page.get_by_test_id("stMain").get_by_role("heading", level=3).first).to_contain_text(gpu)
    visitor.assert_sound()


def test_a_slider_moves_the_points_of_all_gpus(visitor: Visitor) -> None:
    page = open_tab(visitor, "Hardware")
    chart = page.locator(".js-plotly-plot").first
    chart.wait_for()
    before = chart.locator(".points path").evaluate_all(
        "found => found.map(path => path.getAttribute('transform'))"
    )
    page.get_by_role("slider", name="Output tokens").press("ArrowRight")
    visitor.settle()
    after = chart.locator(".points path").evaluate_all(
        "found => found.map(path => path.getAttribute('transform'))"
    )
    assert before != after
    visitor.assert_sound()


def test_a_rate_typed_on_the_tab_is_in_the_link(visitor: Visitor) -> None:
    page = open_tab(visitor, "Load")
    box = page.get_by_test_id("stMain").get_by_role("spinbutton", name="Requests per second")
    box.fill("25")
    box.press("Enter")
    visitor.settle()
    expect(page.get_by_test_id("stMain")).to_contain_text("25 requests per second")
    assert float(query(page)["rate"][0]) == 25
    visitor.assert_sound()


def test_a_log_is_read_and_taken_over(visitor: Visitor) -> None:
    page = paste(visitor, LOG.read_text("utf-8"))
    expect(page.get_by_test_id("stDataFrame")).to_have_count(2)
    page.get_by_role("button", name="Plan with what the log says").click()
    visitor.settle()
    page.get_by_role("link", name="Plan", exact=True).click()
    visitor.settle()
    assert query(page)["engine"] == ["vllm-0.17"]
    assert query(page)["tensor"] == ["2"]
    visitor.assert_sound()


def test_a_hostile_log_loads_nothing_from_elsewhere(visitor: Visitor) -> None:
    line = "Model loading took 33.88 GiB ![x](https://elsewhere.invalid/p.png) <img src=https://elsewhere.invalid/q.png>"
    page = paste(visitor, f"{line}\n" * 50)
    expect(page.get_by_test_id("stDataFrame").last).to_be_visible()
    visitor.assert_sound()


@pytest.mark.parametrize("look", LOOKS)
def test_tabs_in_every_look(
    new_visitor: NewVisitor, look: dict[str, object], request: pytest.FixtureRequest
) -> None:
    visitor = new_visitor(**look)
    for tab in ("Hardware", "Load"):
        page = open_tab(visitor, tab, link="?rate=10&peak=2&ttft=400")
        page.locator(".js-plotly-plot").first.wait_for()
        visitor.screenshot(f"{request.node.callspec.id}-{tab.lower()}")
        assert_fits(visitor)


@pytest.mark.parametrize("look", LOOKS)
def test_pages_in_every_look(
    new_visitor: NewVisitor, look: dict[str, object], request: pytest.FixtureRequest
) -> None:
    visitor = new_visitor(**look)
    for name in ("Catalogue", "Accuracy"):
        open_page(visitor, name)
        visitor.screenshot(f"{request.node.callspec.id}-{name.lower()}")
        assert_fits(visitor)
    paste(visitor, LOG.read_text("utf-8"))
    visitor.screenshot(f"{request.node.callspec.id}-log")
    assert_fits(visitor)


def test_accuracy_follows_its_filters(visitor: Visitor) -> None:
    page = open_page(visitor, "Accuracy")
    before = page.get_by_test_id("stMetricValue").all_inner_texts()
    page.get_by_test_id("stMain").get_by_role("button", name="QUEUED").click()
    visitor.settle()
    assert page.get_by_test_id("stMetricValue").all_inner_texts() != before
    page.get_by_role("tab", name="Memory").click()
    visitor.settle()
    expect(page.get_by_test_id("stMain")).to_contain_text("verdicts are right")
    visitor.assert_sound()
