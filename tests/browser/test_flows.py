"""What people do with the page: move a slider, pass a link on, go back, use a phone."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

TABS = ("Overview", "Layouts", "Curves", "What if", "Hardware", "Load", "Buy", "Why")
PAGES = ("Read a log", "Catalogue", "Accuracy", "Method", "Plan")
PHONE = {"width": 390, "height": 844}
NewVisitor = Callable[..., Visitor]

FAR_AWAY = """(() => {
    const { addEventListener } = WebSocket.prototype;
    WebSocket.prototype.addEventListener = function (kind, hear, ...options) {
        const late = event => setTimeout(hear, 300, event);
        return addEventListener.call(this, kind, kind === "message" ? late : hear, ...options);
    };
})()"""
"""What the server says arrives 300 ms later."""


def verdict(page: Page) -> str:
    return page.get_by_test_id("stMain").get_by_role("heading", level=3).first.inner_text()


def figures(page: Page) -> list[str]:
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def outlines(page: Page) -> list[str]:
    """Outlines of all bars and points of the first chart, as they are this moment."""
    chart = page.locator(".js-plotly-plot").first
    chart.wait_for()
    shapes: list[str] = chart.locator("path").evaluate_all(
        "found => found.map(path => path.getAttribute('d'))"
    )
    return shapes


def bars(page: Page, *, other_than: list[str] | None = None) -> list[str]:
    """The same once they are drawn: the browser redraws a chart some time after the script is done.

    Args:
        other_than: an earlier drawing to wait for the end of, ten seconds at most.
    """
    before, shapes = None, outlines(page)
    for _ in range(40):
        if shapes and shapes == before and shapes != other_than:
            break
        page.wait_for_timeout(250)
        before, shapes = shapes, outlines(page)
    return shapes


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def slide(visitor: Visitor, name: str, *, steps: int) -> None:
    """Move a slider with the keyboard, to the right or, for negative steps, to the left."""
    thumb = visitor.page.get_by_role("slider", name=name)
    thumb.focus()
    for _ in range(abs(steps)):
        thumb.press("ArrowRight" if steps > 0 else "ArrowLeft")
    visitor.settle()


def fits_across(page: Page) -> bool:
    fits: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return fits


def test_a_figure_is_redrawn_where_it_is_and_as_wide_as_its_place(new_visitor: NewVisitor) -> None:
    visitor = new_visitor()
    page = visitor.open()
    drawn, chart = bars(page), page.locator(".js-plotly-plot").first
    chart.evaluate("one => { one.dataset.seen = 'before' }")
    slide(visitor, "Concurrent requests", steps=2)
    assert bars(page, other_than=drawn) != drawn
    assert chart.get_attribute("data-seen") == "before"
    page.set_viewport_size({"width": 1000, "height": 1000})
    page.wait_for_function(
        """() => {
            const figure = document.querySelector('.js-plotly-plot'), drawn = figure.querySelector('.main-svg');
            return figure.clientWidth < 500 && drawn.clientWidth === figure.clientWidth;
        }"""
    )
    visitor.assert_sound()


def test_the_scenario_comes_along_however_early_somebody_goes_on(new_visitor: NewVisitor) -> None:
    visitor = new_visitor()
    page = visitor.page
    page.goto(f"{visitor.home}/?gpu=h200-sxm&prompt=512&view=Why")
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Plans side by side")).to_be_visible()
    visitor.settle()
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.get_by_role("tab", name="Overview")).to_be_visible()
    visitor.settle()
    assert {key: query(page)[key] for key in ("gpu", "prompt")} == {"gpu": ["h200-sxm"], "prompt": ["512"]}
    assert "H200" in verdict(page)


def test_a_reload_shows_the_tab_that_was_open(new_visitor: NewVisitor) -> None:
    visitor = new_visitor()
    page = visitor.open("?gpu=h200-sxm")
    page.get_by_role("tab", name="Buy").click()
    visitor.settle()
    assert query(page) == {"gpu": ["h200-sxm"], "view": ["Buy"]}
    page.reload()
    visitor.settle()
    expect(page.get_by_role("tab", name="Buy")).to_have_attribute("aria-selected", "true")
    assert query(page) == {"gpu": ["h200-sxm"], "view": ["Buy"]}
    visitor.assert_sound()


def test_a_figure_that_cannot_be_drawn_says_what_it_shows(new_visitor: NewVisitor) -> None:
    visitor = new_visitor()
    visitor.page.route("**/plotly-*.js", lambda route: route.abort())
    visitor.page.goto(visitor.home)
    expect(visitor.page.get_by_role("figure").first).to_contain_text("GiB weights")


def test_a_slider_changes_the_verdict_and_a_chart_and_the_link_takes_it_along(
    new_visitor: NewVisitor,
) -> None:
    first = new_visitor()
    page = first.open()
    before, drawn = verdict(page), bars(page)
    slide(first, "Concurrent requests", steps=6)
    assert verdict(page) != before
    assert bars(page, other_than=drawn) != drawn
    assert query(page) == {"concurrency": ["512"]}
    second = new_visitor()
    other = second.open(page.url)
    assert verdict(other) == verdict(page)
    assert figures(other) == figures(page)
    assert bars(other) == bars(page)
    first.assert_sound()
    second.assert_sound()


def test_no_key_of_a_burst_is_lost(visitor: Visitor) -> None:
    """Twenty bursts from an example and back to it: keys pressed during a redraw count like any other."""
    page = visitor.open()
    slider = page.get_by_role("slider", name="Concurrent requests")
    for _ in range(10):
        for steps, end in ((6, "512"), (-6, "64")):
            slide(visitor, "Concurrent requests", steps=steps)
            assert slider.get_attribute("aria-valuetext") == end
    assert query(page) == {}
    slide(visitor, "Prompt tokens", steps=10)
    slide(visitor, "Prompt tokens", steps=-4)
    shown = page.get_by_role("slider", name="Prompt tokens").get_attribute("aria-valuetext")
    assert query(page)["prompt"] == [shown]
    visitor.assert_sound()


def test_back_and_forth_from_far_away(visitor: Visitor) -> None:
    """The second key comes while the answer to the first is on its way, and asks for what was shown three runs ago."""
    visitor.page.add_init_script(FAR_AWAY)
    page = visitor.open()
    slider = page.get_by_role("slider", name="Concurrent requests")
    slider.focus()
    for wait in range(100, 400, 50):
        slider.press("ArrowRight")
        slider.press("ArrowRight")
        visitor.settle(quiet=700)
        slider.press("ArrowLeft")
        page.wait_for_timeout(wait)
        slider.press("ArrowLeft")
        visitor.settle(quiet=700)
        assert slider.get_attribute("aria-valuetext") == "64"
    assert query(page) == {}
    visitor.assert_sound()


def test_the_share_link_opens_to_the_same_numbers(new_visitor: NewVisitor) -> None:
    first = new_visitor()
    page = first.open("?gpu=h200-sxm&concurrency=61&tpot=40")
    page.get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stCode").inner_text().strip()
    assert parse_qs(urlsplit(link).query)["concurrency"] == ["61"]
    second = new_visitor()
    other = second.open(link)
    assert verdict(other) == verdict(page)
    assert figures(other) == figures(page)
    second.assert_sound()


def test_a_bad_link_is_explained_and_cleaned(visitor: Visitor) -> None:
    page = visitor.open("?gpu=h1000&concurrency=-5&tpot=inf&output=512")
    for complaint in ("'h1000' is not known", "concurrency='-5' was not used", "tpot='inf' was not used"):
        expect(page.get_by_test_id("stMain")).to_contain_text(complaint)
    assert query(page) == {"output": ["512"]}
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_text("was not used")).to_have_count(0)
    visitor.assert_sound()


def test_back_and_reload_keep_the_state(visitor: Visitor) -> None:
    page = visitor.open("?concurrency=128")
    start = verdict(page)
    page.goto(f"{visitor.home}/?concurrency=16&gpu=h200-sxm")
    visitor.settle()
    changed = verdict(page)
    assert changed != start
    page.reload()
    visitor.settle()
    assert verdict(page) == changed
    page.go_back()
    visitor.settle()
    assert verdict(page) == start
    visitor.assert_sound()


def test_the_choice_survives_a_look_at_the_other_pages(visitor: Visitor) -> None:
    page = visitor.open("?gpu=h200-sxm&concurrency=61")
    start = verdict(page)
    for name in PAGES:
        page.get_by_role("link", name=name).click()
        visitor.settle()
        visitor.screenshot(f"page-{name.lower()}")
    assert verdict(page) == start
    visitor.assert_sound()


@pytest.mark.parametrize("address", ["compare", "log", "catalogue", "accuracy", "method"])
def test_a_page_opens_at_its_own_address(visitor: Visitor, address: str) -> None:
    page = visitor.open(f"{address}?gpu=h200-sxm")
    heading = page.get_by_test_id("stMain").get_by_role("heading", level=3).first.inner_text()
    page.get_by_role("link", name="Plan", exact=True).click()
    visitor.settle()
    assert "H200" in verdict(page)
    page.go_back()
    visitor.settle()
    page.reload()
    visitor.settle()
    assert page.get_by_test_id("stMain").get_by_role("heading", level=3).first.inner_text() == heading
    assert urlsplit(page.url).path == f"/{address}"
    visitor.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_at_a_desk(new_visitor: NewVisitor, scheme: str) -> None:
    visitor = new_visitor(color_scheme=scheme)
    page = visitor.open("?model=deepseek-ai/DeepSeek-V3&gpu=b200-sxm&weights=native")
    for tab in TABS:
        page.get_by_role("tab", name=tab, exact=True).click()
        visitor.settle()
        assert page.locator(".js-plotly-plot").count() <= 3
        assert fits_across(page)
        visitor.screenshot(f"desk-{scheme}-{tab.lower()}")
    visitor.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_on_a_phone(new_visitor: NewVisitor, scheme: str) -> None:
    visitor = new_visitor(viewport=PHONE, color_scheme=scheme, has_touch=True)
    page = visitor.open()
    for tab in TABS:
        page.get_by_role("tab", name=tab, exact=True).click()
        visitor.settle()
        assert fits_across(page)
        visitor.screenshot(f"phone-{scheme}-{tab.lower()}")
    visitor.assert_sound()


def test_a_ticked_layout_stays_ticked_when_rows_change_places(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("tab", name="Layouts", exact=True).click()
    visitor.settle()
    title = page.get_by_test_id("stMain").locator("strong").first
    expect(title).to_contain_text("TP2 on 2")
    table = page.get_by_test_id("stDataFrame").first.bounding_box()
    assert table
    page.mouse.click(table["x"] + 16, table["y"] + 6 * 35 + 17)  # rows are 35 pixels high, the head too
    visitor.settle()
    ticked = title.inner_text()
    assert "TP2 on 2" not in ticked
    before = verdict(page)
    slide(visitor, "Concurrent requests", steps=6)
    assert verdict(page) != before
    assert title.inner_text() == ticked
    visitor.assert_sound()


def test_an_example_is_one_choice_away_and_the_link_takes_it_along(new_visitor: NewVisitor) -> None:
    first = new_visitor()
    page = first.open()
    first.choose_example("DeepSeek on B200")
    first.settle()
    assert "DeepSeek-V3.1" in verdict(page)
    second = new_visitor()
    other = second.open(page.url)
    assert figures(other) == figures(page)
    expect(other.get_by_role("button", name="Example: DeepSeek on B200")).to_be_visible()
    first.assert_sound()
    second.assert_sound()


@pytest.mark.parametrize(
    "name", ["Report, Markdown", "Report, HTML", "Everything, JSON", "Table of layouts, CSV"]
)
def test_what_is_saved_holds_the_answer(visitor: Visitor, name: str) -> None:
    page = visitor.open("?concurrency=61")
    page.get_by_role("button", name="Save").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name=name).click()
    content = Path(saved.value.path()).read_text("utf-8")
    assert "TP2" in content
    assert "61" in content
    visitor.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out(new_visitor: NewVisitor, scheme: str) -> None:
    """No serious violation of the accessibility rules of axe, on any tab or page."""
    visitor = new_visitor(color_scheme=scheme)
    page = visitor.open()
    places = [("tab", name) for name in TABS] + [("link", name) for name in PAGES]
    found = {}
    for role, name in places:
        page.get_by_role(role, name=name, exact=True).click()  # type: ignore[arg-type]
        visitor.settle()
        violations = Axe().run(page).response["violations"]
        found[name] = [broken["id"] for broken in violations if broken["impact"] in ("serious", "critical")]
    assert {name: ids for name, ids in found.items() if ids} == {}


def test_a_ticked_layout_shows_its_card_and_can_be_kept(visitor: Visitor) -> None:
    page = visitor.open("?tensor=4")
    page.get_by_role("tab", name="Layouts").click()
    visitor.settle()
    expect(page.get_by_text("Fixed: TP4.")).to_be_visible()
    page.get_by_role("button", name="Try all layouts").click()
    visitor.settle()
    assert "tensor" not in query(page)
    page.get_by_role("button", name="Keep this layout").click()
    visitor.settle()
    assert query(page)["tensor"] == ["2"]
    visitor.assert_sound()


def test_every_chart_has_words_for_those_who_cannot_see_it(visitor: Visitor) -> None:
    page = visitor.open()
    figures = page.get_by_role("figure").all()
    assert len(figures) == 2
    assert all(len(figure.get_attribute("aria-label") or "") > 20 for figure in figures)


def test_inputs_are_reached_with_the_keyboard(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("slider", name="Concurrent requests").focus()
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText"))
    assert {"Prompt tokens", "Output tokens"} <= reached


def test_what_is_given_twice_is_the_same_after_a_reload(visitor: Visitor) -> None:
    page = visitor.open("?concurrency=64&concurrency=32")
    slider = page.get_by_role("slider", name="Concurrent requests")
    expect(page.get_by_text("concurrency is given 2 times")).to_be_visible()
    for _ in range(2):
        assert slider.get_attribute("aria-valuetext") == "32"
        assert query(page) == {"concurrency": ["32"]}
        page.reload()
        visitor.settle()
    visitor.assert_sound()
