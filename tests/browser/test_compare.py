"""Plans side by side, a layout picked from a chart, and how a number is made."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from parplan.scenario import Scenario
from parplan.shortlist import PLACES, packed_scenario
from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

NewVisitor = Callable[..., Visitor]
DESK, PHONE = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}
PHONE_NAME = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/130.0 Mobile Safari/537.36"
THREE = [Scenario(), Scenario(gpu="h200-sxm"), Scenario(gpu="mi300x", weights="bf16", concurrency=256)]
QUERY = "compare?" + urlencode(dict(zip(PLACES, map(packed_scenario, THREE), strict=False)))


def tables(page: Page) -> list[str]:
    """Every table of the page as one line."""
    return [
        " ".join(text.split())
        for text in page.get_by_test_id("stMain").get_by_role("table").all_inner_texts()
    ]


def add(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Share").click()
    visitor.page.get_by_role("button", name="Add to the comparison").click()
    visitor.settle()
    visitor.page.keyboard.press("Escape")


def test_two_plans_are_added_compared_and_sent_in_one_link(new_visitor: NewVisitor) -> None:
    first = new_visitor()
    page = first.open()
    add(first)
    page.get_by_role("slider", name="Concurrent requests").press("ArrowRight")
    first.settle()
    add(first)
    page.get_by_role("link", name="Compare").click()
    first.settle()
    shown = tables(page)
    assert "Concurrent requests 64 96" in shown[0]
    page.get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stCode").inner_text().strip()
    assert len(link) < 2000
    assert list(parse_qs(urlsplit(link).query)) == ["a", "b"]
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Plan", exact=True).click()
    first.settle()
    page.get_by_role("link", name="Compare").click()
    first.settle()
    assert tables(page) == shown  # a look at another page loses nothing
    first.assert_sound()
    second = new_visitor()
    other = second.open(link)
    assert tables(other) == shown
    other.reload()
    second.settle()
    assert tables(other) == shown
    second.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_the_comparison_at_a_desk_and_on_a_phone(
    new_visitor: NewVisitor, viewport: dict[str, int], scheme: str
) -> None:
    visitor = new_visitor(viewport=viewport, color_scheme=scheme)
    page = visitor.open(QUERY)
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    expect(page.get_by_text("Changed since")).to_have_count(0)  # the link was made in another process
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    violations = Axe().run(page).response["violations"]
    assert [broken["id"] for broken in violations if broken["impact"] in ("serious", "critical")] == []
    visitor.screenshot(f"compare-{viewport['width']}-{scheme}")
    visitor.assert_sound()


def test_a_pasted_link_joins_the_comparison(visitor: Visitor) -> None:
    page = visitor.open(QUERY)
    box = page.get_by_role("textbox", name="Plan D")
    box.fill(f"{visitor.home}/?gpu=l40s&tpot=oops")
    box.press("Enter")
    visitor.settle()
    expect(page.get_by_text("was not used")).to_be_visible()
    assert "l40s" in tables(page)[0]
    assert "d" in parse_qs(urlsplit(page.url).query)
    visitor.assert_sound()


def point(page: Page, *, trace: int, number: int) -> tuple[float, float, str]:
    """Where a point of the frontier is on the screen, and the layout it stands for."""
    x, y, layout = page.evaluate(
        """([trace, number]) => {
            const plot = document.querySelectorAll('.js-plotly-plot')[1];
            const {_fullLayout: all, _fullData: data} = plot, box = plot.getBoundingClientRect();
            return [
                box.x + all._size.l + all.xaxis.d2p(data[trace].x[number]),
                box.y + all._size.t + all.yaxis.d2p(data[trace].y[number]),
                data[trace].customdata[number],
            ];
        }""",
        [trace, number],
    )
    return x, y, layout


def test_a_click_on_a_point_opens_the_card_of_its_layout(visitor: Visitor) -> None:
    page = visitor.open()
    x, y, layout = point(page, trace=0, number=2)
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    expect(page.get_by_role("tab", name="Layouts")).to_have_attribute("aria-selected", "true")
    visitor.settle()
    expect(page.get_by_test_id("stMain").get_by_text(f"{layout} on ", exact=False).first).to_be_visible()
    page.get_by_role("tab", name="Overview").click()
    visitor.settle()
    page.get_by_role("slider", name="Prompt tokens").press("ArrowRight")
    visitor.settle()
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")
    visitor.assert_sound()


def test_a_tap_on_a_point_opens_its_card_on_a_phone(new_visitor: NewVisitor) -> None:
    page = (
        visitor := new_visitor(viewport=PHONE, has_touch=True, is_mobile=True, user_agent=PHONE_NAME)
    ).open()
    page.locator(".js-plotly-plot").nth(1).scroll_into_view_if_needed()
    x, y, layout = point(page, trace=0, number=2)
    page.touchscreen.tap(x, y)
    expect(page.get_by_role("tab", name="Layouts")).to_have_attribute("aria-selected", "true")
    visitor.settle()
    expect(page.get_by_test_id("stMain").get_by_text(f"{layout} on ", exact=False).first).to_be_visible()
    visitor.assert_sound()


def test_a_finger_scrolls_past_the_charts_of_a_phone(new_visitor: NewVisitor) -> None:
    visitor = new_visitor(viewport=PHONE, has_touch=True, is_mobile=True, user_agent=PHONE_NAME)
    page = visitor.open()
    touch = visitor.context.new_cdp_session(page)
    main = page.get_by_test_id("stMain")
    for chart in page.locator(".js-plotly-plot").all():
        chart.scroll_into_view_if_needed()
        box, before = chart.bounding_box(), main.evaluate("found => found.scrollTop")
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        for step in range(1, 12):
            moved = [{"x": x, "y": y - 10 * step}]
            touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": moved})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_function(
            "before => document.querySelector('[data-testid=stMain]').scrollTop > before + 40", arg=before
        )


def test_a_figure_opens_its_formula_with_the_readers_numbers(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("button", name="Explain", exact=True).click()
    box = page.get_by_role("dialog")
    expect(box.get_by_text("weights: dense feed-forward")).to_be_visible()
    for figure, part in {
        "KV cache": "64 requests × 80 layers × 2,048 tokens × 2 KiB",
        "GPUs": "2 TP ranks",
        "Smallest size": "filled by weights",
        "Cost": "3,600 seconds an hour",
    }.items():
        box.get_by_role("radio", name=figure, exact=True).click()
        expect(box.get_by_text(part)).to_be_visible()
        visitor.settle()
    box.get_by_role("button", name="The formulas").click()
    expect(page.get_by_text("parplan.cost.cost_per_million_tokens")).to_be_visible()
    violations = Axe().run(page).response["violations"]
    assert [broken["id"] for broken in violations if broken["impact"] in ("serious", "critical")] == []
    visitor.screenshot("explained")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    visitor.assert_sound()


def test_load_and_buy_open_their_formulas_too(visitor: Visitor) -> None:
    page = visitor.open("?view=Load&rate=10")
    opened = {
        "Explain these figures": ("Knee", "parplan.load.knee_rate"),
        "Explain these costs": ("USD/request", "parplan.cost.cost_per_request"),
    }
    for button, (figure, formula) in opened.items():
        page.get_by_role("button", name=button).click()
        box = page.get_by_role("dialog")
        box.get_by_role("radio", name=figure, exact=True).click()
        visitor.settle()
        box.get_by_role("button", name="The formulas").click()
        expect(page.get_by_text(formula)).to_be_visible()
        violations = Axe().run(page).response["violations"]
        assert [broken["id"] for broken in violations if broken["impact"] in ("serious", "critical")] == []
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        expect(box).to_have_count(0)
    visitor.assert_sound()


def test_a_folded_setting_comes_back_with_the_browsers_history(visitor: Visitor) -> None:
    """Groups of settings that are closed and not in use are not on the page; the address still rules."""
    page = visitor.open()
    visitor.choose_example("405B on one node")
    assert parse_qs(urlsplit(page.url).query)["budget"] == ["8"]
    while "budget" in page.url:
        page.go_back()
        visitor.settle()
    while "budget" not in page.url:
        page.go_forward()
        visitor.settle()
    page.get_by_role("button", name="Share").click()
    link = page.get_by_test_id("stCode").inner_text().strip()
    assert parse_qs(urlsplit(link).query)["budget"] == ["8"]
    visitor.assert_sound()


def test_a_fifth_plan_asks_which_one_to_give_up(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("button", name="Share").click()
    for place in "ABCD":
        page.get_by_role("button", name="Add to the comparison").click()
        expect(page.get_by_text(f"Added as {place}.")).to_be_visible()
        visitor.settle()
    page.get_by_role("button", name="Add to the comparison, instead of").click()
    page.get_by_role("menuitem", name="B", exact=True).click()
    expect(page.get_by_text("Added as B.").last).to_be_visible()
    visitor.assert_sound()
