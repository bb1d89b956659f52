"""The page holds still, needs no mouse, and keeps nobody out."""

import struct
from collections.abc import Callable
from datetime import date
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, Route, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

NewVisitor = Callable[..., Visitor]
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
MOST_SHIFT = 0.01
"""Layout shift of a rerun, added up; a tenth of what web.dev calls good for a whole visit."""
MOST_TABS = 80
"""Presses of the Tab key within which anything is reached."""
WATCH = """() => {
    window.shifts = [];
    new PerformanceObserver(found => window.shifts.push(...found.getEntries().map(one => one.value)))
        .observe({type: 'layout-shift'});
}"""
FOCUSED = """() => {
    const at = document.activeElement;
    return [at.ariaLabel, at.type, at.getAttribute('role'), at.innerText.slice(0, 40)].filter(Boolean).join(' ');
}"""
TABS = ("Overview", "Layouts", "Curves", "What if", "Hardware", "Load", "Buy", "Why")
BEHIND = ("Share", "Save", "Exact numbers")
"""Buttons with something behind them."""


def serious(page: Page) -> list[str]:
    """Rules of axe that are broken seriously."""
    violations = Axe().run(page).response["violations"]
    return [broken["id"] for broken in violations if broken["impact"] in ("serious", "critical")]


def tab_to(page: Page, *words: str) -> None:
    """Press Tab until what has the focus is called so."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if all(word in page.evaluate(FOCUSED) for word in words):
            return
    pytest.fail(f"{words!r} is not reached with {MOST_TABS} presses of Tab")


@pytest.mark.parametrize("tab", TABS)
def test_the_page_holds_still_while_a_slider_moves(visitor: Visitor, tab: str) -> None:
    page = visitor.open()
    page.get_by_role("tab", name=tab, exact=True).click()
    visitor.settle()
    page.evaluate(WATCH)
    slider = page.get_by_role("slider", name="Concurrent requests")
    for key in ("ArrowRight",) * 4 + ("ArrowLeft",) * 4:
        slider.press(key)
        visitor.settle()
    assert sum(page.evaluate("window.shifts")) < MOST_SHIFT


def test_figures_have_their_place_before_they_are_drawn(visitor: Visitor) -> None:
    """What stands below a figure is where it will be while the script that draws it is still on its way."""
    waiting: list[Route] = []
    page = visitor.page
    page.route("**/BidiComponent.*.js", lambda route: waiting.append(route))
    page.goto(visitor.home)
    caption = page.get_by_text("Every point is a layout")
    caption.wait_for()
    expect(page.get_by_test_id("stMetric")).to_have_count(4)
    before = caption.bounding_box()
    for route in waiting:
        route.continue_()
    visitor.settle()
    assert waiting
    assert caption.bounding_box() == before


def test_a_line_below_the_verdict_builds_nothing_anew(visitor: Visitor) -> None:
    page = visitor.open("?concurrency=768&view=Hardware")
    page.locator(".js-plotly-plot").first.evaluate("one => { one.dataset.seen = 'before' }")
    slider = page.get_by_role("slider", name="Concurrent requests")
    slider.press("ArrowRight")
    visitor.settle()
    expect(page.get_by_test_id("stMain")).to_contain_text("holds 756 of 1,024")
    expect(page.locator(".js-plotly-plot").first).to_have_attribute("data-seen", "before")


def test_what_most_people_move_is_on_the_first_screen(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": DESK["width"], "height": DESK["height"]})
    page = visitor.open()
    for name in ("Model", "Weights", "KV cache", "GPU"):
        expect(page.get_by_role("combobox", name=name, exact=True)).to_be_in_viewport()
    for name in ("Concurrent requests", "Prompt tokens", "Output tokens"):
        expect(page.get_by_test_id("stSlider").filter(has_text=name)).to_be_in_viewport()
    expect(page.get_by_test_id("stMetric")).to_have_count(4)
    for figure in page.get_by_test_id("stMetric").all():
        expect(figure).to_be_in_viewport()


def test_a_phone_shows_the_verdict_first_and_the_settings_one_tap_away(new_visitor: NewVisitor) -> None:
    visitor = new_visitor(viewport=PHONE, has_touch=True)
    page = visitor.open()
    expect(page.get_by_test_id("stMain").get_by_role("heading", level=3).first).to_be_in_viewport()
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_test_id("stSlider").filter(has_text="Concurrent requests").scroll_into_view_if_needed()
    page.get_by_role("slider", name="Concurrent requests").press("ArrowRight")
    visitor.settle()
    assert parse_qs(urlsplit(page.url).query)["concurrency"] == ["96"]
    visitor.assert_sound()


def test_a_plan_is_made_and_shared_without_a_mouse(visitor: Visitor) -> None:
    page = visitor.open()
    tab_to(page, "Example: ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("menu")).to_be_focused()  # it is seen a moment before it hears keys
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    visitor.settle()
    expect(page.get_by_role("button", name="Example: 405B on one node")).to_be_visible()
    tab_to(page, "Concurrent requests", "range")
    page.keyboard.press("ArrowRight")
    visitor.settle()
    assert parse_qs(urlsplit(page.url).query)["concurrency"] == ["24"]
    tab_to(page, "Share")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("stCode")).to_contain_text("concurrency=24")
    tab_to(page, "Add to the comparison")
    page.keyboard.press("Escape")
    tab_to(page, "Overview")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    visitor.settle()
    expect(page.get_by_role("tab", name="Layouts", exact=True)).to_have_attribute("aria-selected", "true")
    visitor.assert_sound()


def test_the_link_is_one_click_from_the_clipboard(visitor: Visitor) -> None:
    page = visitor.open("?concurrency=61")
    page.get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stCode")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == link.inner_text().strip()
    assert parse_qs(urlsplit(copied).query)["concurrency"] == ["61"]
    visitor.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_opens_keeps_nobody_out(new_visitor: NewVisitor, scheme: str) -> None:
    visitor = new_visitor(color_scheme=scheme)
    page = visitor.open("?gpu=h1000&replicas=2&tpot=40&discount=10")
    found = {"a complaint": serious(page)}
    for name in BEHIND:
        page.get_by_role("button", name=name).click()
        visitor.settle()
        found[name] = serious(page)
        page.keyboard.press("Escape")
        visitor.settle()
    page.get_by_test_id("stMenuButton").get_by_role("button").click()
    expect(page.get_by_role("menu")).to_be_visible()
    found["examples"] = serious(page)
    assert {name: ids for name, ids in found.items() if ids} == {}
    visitor.assert_sound()


@pytest.mark.parametrize("look", [{}, {"viewport": PHONE, "has_touch": True}], ids=["desk", "phone"])
def test_explanations_keep_nobody_out(new_visitor: NewVisitor, look: dict[str, object]) -> None:
    visitor = new_visitor(**look)
    page = visitor.open()
    page.get_by_role("button", name="Explain", exact=True).click()
    dialog = page.get_by_role("dialog").first
    found = {}
    for name in ("Time per token", "Memory", "Smallest size"):
        dialog.get_by_role("radio", name=name).click()
        visitor.settle()
        dialog.get_by_text("Sources of the constants").click()
        visitor.settle()
        found[f"sources: {name}"] = serious(page)
        dialog.get_by_text("Sources of the constants").click()
        dialog.get_by_role("button", name="The formulas").click()
        visitor.settle()
        found[f"formulas: {name}"] = serious(page)
        page.keyboard.press("Escape")
        visitor.settle()
    assert {name: ids for name, ids in found.items() if ids} == {}
    visitor.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_keeps_nobody_out(new_visitor: NewVisitor, scheme: str) -> None:
    visitor = new_visitor(viewport=PHONE, has_touch=True, color_scheme=scheme)
    page = visitor.open()
    found = {"plan": serious(page)}
    page.get_by_test_id("stExpandSidebarButton").click()
    visitor.settle()
    found["settings"] = serious(page)
    assert {name: ids for name, ids in found.items() if ids} == {}
    visitor.assert_sound()


def size(picture: bytes) -> tuple[int, int]:
    """Width and height in the header of a PNG."""
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_a_figure_is_saved_as_a_picture(visitor: Visitor) -> None:
    page = visitor.open()
    button = page.locator(".js-plotly-plot").first.get_by_role("button", name="Download plot")
    expect(button).to_be_visible()
    with page.expect_download() as saved:
        button.click()
    assert saved.value.suggested_filename == "memory_bars.png"
    width, height = size(Path(saved.value.path()).read_bytes())
    figure = page.locator(".js-plotly-plot").first
    shown = figure.bounding_box()
    assert shown is not None
    assert width == 2 * round(shown["width"])
    assert height > 2 * round(shown["height"])  # a caption stands below
    for part in ("Llama-3.3-70B-Instruct", "H100 SXM", "64 requests", "parplan ", f"{date.today()}"):
        assert part in figure.evaluate("figure => figure.picture.caption")
    assert figure.evaluate("figure => figure.layout.title?.text ?? ''") == ""  # not on the page
    visitor.assert_sound()


def test_share_save_and_explain_stand_in_one_line(visitor: Visitor) -> None:
    page = visitor.open("?replicas=3")
    boxes = [page.get_by_role("button", name=name, exact=True).bounding_box() for name in ("Save", "Explain")]
    shared = page.get_by_role("button", name="Share").bounding_box()
    assert len({box["y"] for box in (*boxes, shared) if box}) == 1
    visitor.assert_sound()


def test_models_by_size_and_by_config_are_in_sight(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("combobox", name="Model", exact=True).click()
    for name in ("size", "config"):
        expect(page.get_by_role("option", name=name, exact=True)).to_be_in_viewport()
    page.get_by_role("option", name="size", exact=True).click()
    visitor.settle()
    assert parse_qs(urlsplit(page.url).query) == {"model": ["size"]}
    visitor.assert_sound()
