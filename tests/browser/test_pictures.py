"""What a click in a picture does, and that narrow screens leave pictures their room."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

SIX = "?model=deepseek-ai/DeepSeek-V3.1&weights=native&gpu=h200-sxm&concurrency=256&prompt=4096&budget=16&ttft=2000"
"""Six families of layouts, and a target."""
TABS = ("Overview", "Layouts", "Curves", "What if", "Hardware", "Load", "Buy", "Why")
PLOT = "figure => figure._fullLayout._size.h"

SLOWEST = """figure => {
    const lines = figure.data.filter(mark => mark.meta && mark.mode.includes("markers") && mark.x.length);
    const line = lines.sort((one, other) => other.y.at(-1) - one.y.at(-1))[0], at = figure._fullLayout;
    const [x, y] = [at.xaxis.d2p(line.x.at(-1)), at.yaxis.d2p(line.y.at(-1))];
    return [line.meta, x + at.xaxis._offset, y + at.yaxis._offset];
}"""
"""Layout and place of the highest point of all curves, which has none beside it."""

SLOWLY = """() => {
    const { react } = Plotly;
    Plotly.react = async (...all) => {
        await react(...all);
        await new Promise(drawn => setTimeout(drawn, 600));
        window.drawings = (window.drawings ?? 0) + 1;
    };
}"""
"""As a slow machine draws: the next change comes while figures are drawn."""
MARKS = """figures => figures.map(
    one => one._fullLayout && [...one.querySelectorAll("path")].map(path => path.getAttribute("d"))
)"""
"""Outlines of all figures; nothing of one that is not drawn."""


def click(visitor: Visitor, mark: Locator) -> None:
    """Click in the middle of a mark; what Plotly draws lies below what listens."""
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    visitor.page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
    visitor.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    visitor.settle()


def figure(page: Page, number: int) -> Locator:
    return page.locator(".js-plotly-plot").nth(number)


def show(visitor: Visitor, tab: str) -> None:
    visitor.page.get_by_role("tab", name=tab, exact=True).click()
    visitor.settle()


def test_a_click_on_a_bar_opens_its_card_and_the_layout_is_marked_until_unticked(visitor: Visitor) -> None:
    page = visitor.open()
    names = figure(page, 0).evaluate("figure => figure.data[0].customdata")
    at = next(place for place, name in enumerate(names) if name != "TP2")
    click(visitor, figure(page, 0).locator(".barlayer .trace").first.locator(".point").nth(at))
    expect(page.get_by_role("tab", name="Layouts")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_test_id("stMain").locator("strong").first).to_contain_text(f"{names[at]} on ")
    show(visitor, "Overview")
    assert f"<b>✓ {names[at]}" in " ".join(figure(page, 0).evaluate("figure => figure.data[0].y"))
    assert "Ticked" in figure(page, 1).evaluate("figure => figure.data.map(mark => mark.name)")
    show(visitor, "Curves")
    thick = "figure => figure.data.filter(mark => mark.line?.width > 2).map(mark => mark.meta)"
    assert set(figure(page, 0).evaluate(thick)) == {"TP2", names[at]}
    visitor.assert_sound()


def test_a_click_on_a_point_of_a_curve_opens_its_card(visitor: Visitor) -> None:
    page = visitor.open("?view=Curves")
    curves = figure(page, 0)
    name, x, y = curves.evaluate(SLOWEST)
    corner = curves.bounding_box()
    assert corner
    page.mouse.move(corner["x"] + x - 1, corner["y"] + y)
    page.mouse.click(corner["x"] + x, corner["y"] + y)
    visitor.settle()
    expect(page.get_by_test_id("stMain").locator("strong").first).to_contain_text(f"{name} on ")
    visitor.assert_sound()


def test_a_click_on_a_cell_of_the_map_asks_for_its_requests_and_prompt(visitor: Visitor) -> None:
    page = visitor.open("?view=What+if")
    cell = figure(page, 0).evaluate("figure => figure.data[0].customdata[2][3]")
    image = figure(page, 0).locator(".heatmaplayer image").bounding_box()
    assert image
    rows, columns = figure(page, 0).evaluate(
        "figure => [figure.data[0].z.length, figure.data[0].z[0].length]"
    )
    x = image["x"] + image["width"] * 3.5 / columns
    y = image["y"] + image["height"] * (1 - 2.5 / rows)
    page.mouse.move(x - 1, y)
    page.mouse.click(x, y)
    visitor.settle()
    asked = parse_qs(urlsplit(page.url).query)
    assert f"{asked['concurrency'][0]} {asked['prompt'][0]}" == cell
    visitor.assert_sound()


@pytest.mark.parametrize("width", [390, 768])
def test_a_legend_of_many_lines_leaves_the_plot_as_high_as_on_a_desk(
    new_visitor: Callable[..., Visitor], width: int
) -> None:
    desk, narrow = new_visitor(), new_visitor(viewport={"width": width, "height": 900})
    heights = [
        [figure(visitor.open(SIX), number).evaluate(PLOT) for number in (0, 1)] for visitor in (desk, narrow)
    ]
    assert heights[0] == pytest.approx(heights[1], abs=2)
    assert min(heights[0]) > 200
    narrow.page.set_viewport_size({"width": 1440, "height": 900})
    narrow.settle()
    assert figure(narrow.page, 1).evaluate(PLOT) == pytest.approx(heights[0][1], abs=2)
    boxes = [visitor.page.locator(".js-plotly-plot").nth(1).bounding_box() for visitor in (desk, narrow)]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["height"] == pytest.approx(boxes[1]["height"], abs=2)


def test_figures_overtaken_while_they_are_drawn_show_the_last_change(
    new_visitor: Callable[..., Visitor],
) -> None:
    visitor, fresh = new_visitor(), new_visitor()
    page = visitor.open()
    page.evaluate(SLOWLY)
    thumb = page.get_by_role("slider", name="Concurrent requests")
    thumb.focus()
    for _ in range(5):
        thumb.press("ArrowRight")
        page.wait_for_timeout(200)
    page.wait_for_timeout(3000)
    visitor.settle()
    drawn = page.evaluate("drawings")
    assert 2 * 2 <= drawn < 5 * 2  # two figures each; those overtaken are left out
    other = fresh.open(page.url)
    for one in (page, other):
        one.mouse.move(0, 0)
    assert page.locator(".js-plotly-plot").evaluate_all(MARKS) == other.locator(
        ".js-plotly-plot"
    ).evaluate_all(MARKS)
    page.set_viewport_size({"width": 1000, "height": 1000})
    page.wait_for_function(
        "[...document.querySelectorAll('.js-plotly-plot')].every(one => one._fullLayout.width === one.clientWidth)"
    )
    visitor.assert_sound()


def test_words_stand_in_for_a_figure_only_until_it_can_be_drawn(visitor: Visitor) -> None:
    page = visitor.page
    page.route("**/plotly-*.js", lambda route: route.abort())
    page.goto(visitor.home)
    expect(page.get_by_role("figure").first).to_contain_text("GiB weights")
    page.unroute("**/plotly-*.js")
    page.get_by_role("slider", name="Concurrent requests").press("ArrowRight")
    visitor.settle()
    assert "GiB weights" not in page.get_by_role("figure").first.inner_text()


PLACES = """figures => figures.map(one => {
    const place = one.closest("[data-testid=stElementContainer]");
    const high = [one.getBoundingClientRect(), place.getBoundingClientRect()].map(box => Math.round(box.height));
    const scrolls = place.scrollHeight > place.clientHeight;
    return { name: one.picture.filename, high, drawn: one._fullLayout.height, scrolls };
})"""
"""Heights of all figures, of their places, and of what is drawn there."""


@pytest.mark.parametrize("width", [390, 1024, 1280, 1440])
@pytest.mark.parametrize("link", ["", SIX], ids=["few families", "six families"])
def test_no_figure_is_cut(new_visitor: Callable[..., Visitor], link: str, width: int) -> None:
    """A figure grows with its legend, and its place with it; what comes below it stays below it."""
    visitor = new_visitor(viewport={"width": width, "height": 844})
    page, cut = visitor.open(link), {}
    for tab in TABS:
        show(visitor, tab)
        for seen in page.get_by_test_id("stMain").locator(".js-plotly-plot").evaluate_all(PLACES):
            if seen["scrolls"] or {*seen["high"]} != {seen["drawn"]}:
                cut[tab, seen["name"]] = seen
    assert cut == {}
    visitor.assert_sound()
