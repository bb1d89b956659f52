"""Tables: their buttons cover nothing, and a tick is kept."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

NewVisitor = Callable[..., Visitor]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
ROW = 35
"""Height of a table's rows and of its head, pixels."""
COVERED = """() => {
    const tools = [...document.querySelectorAll('[data-testid=stDataFrame] [data-testid=stElementToolbar]')];
    const main = document.querySelector('[data-testid=stMain]');
    const texts = [...main.querySelectorAll('p, h1, h2, h3, li, label, [role=tab], button')];
    const apart = (one, two) => one.right <= two.left || two.right <= one.left || one.bottom <= two.top
        || two.bottom <= one.top;
    const boxes = tools.map(tool => tool.getBoundingClientRect());
    return texts.filter(text => !text.closest('[data-testid=stDataFrame]') && text.innerText.trim()
        && boxes.some(box => box.width && !apart(box, text.getBoundingClientRect()))).map(text => text.innerText);
}"""
"""Texts that lie below the buttons of a table."""


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def title(page: Page) -> Locator:
    """Where the layout is named whose card is shown."""
    return page.get_by_test_id("stMain").locator("strong").first


def card(page: Page) -> str:
    """Title of the layout whose card is shown."""
    return title(page).inner_text()


def tick(visitor: Visitor, *, row: int) -> None:
    """Click the box of a row of the first table."""
    table = visitor.page.get_by_test_id("stDataFrame").first
    table.click(position={"x": 16, "y": row * ROW + ROW / 2})
    visitor.settle()


@pytest.mark.parametrize(
    "place", ["?view=Layouts", "?view=Hardware", "?view=Buy", "?view=Load&rate=10", "accuracy"]
)
def test_the_buttons_of_a_table_cover_nothing_on_a_phone(new_visitor: NewVisitor, place: str) -> None:
    visitor = new_visitor(**PHONE)
    page = visitor.open(place)
    expect(page.get_by_test_id("stElementToolbar").first).to_be_visible()
    assert page.evaluate(COVERED) == []
    visitor.assert_sound()


def test_a_tick_is_in_the_address(visitor: Visitor) -> None:
    page = visitor.open("?view=Layouts")
    start = card(page)
    tick(visitor, row=3)
    ticked = card(page)
    assert ticked != start
    assert ticked.startswith(query(page)["row"][0])
    page.reload()
    visitor.settle()
    assert card(page) == ticked
    page.go_back()
    visitor.settle()
    assert "row" not in query(page)
    assert card(page) == start
    page.go_forward()
    visitor.settle()
    assert card(page) == ticked
    tick(visitor, row=3)
    assert "row" not in query(page)
    assert card(page) == start
    visitor.assert_sound()


def test_a_row_is_ticked_with_the_keys_the_caption_names(visitor: Visitor) -> None:
    page = visitor.open("?view=Layouts")
    expect(page.get_by_text("keyboard: Shift and space bar")).to_be_visible()
    start = card(page)
    page.get_by_test_id("stDataFrame").first.click(position={"x": 120, "y": 3 * ROW + ROW / 2})
    page.keyboard.press("Shift+Space")
    expect(title(page)).not_to_have_text(start)
    visitor.settle()
    visitor.assert_sound()
