"""The page opens, in daylight and at night, at a desk and on a phone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

DESK = {"width": 1440, "height": 1000}
PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_the_page_opens(new_visitor: Callable[..., Visitor], viewport: dict[str, int], scheme: str) -> None:
    visitor = new_visitor(viewport=viewport, color_scheme=scheme)
    page = visitor.open()
    expect(page).to_have_title("parplan")
    expect(page.get_by_test_id("stMain")).to_be_visible()
    visitor.screenshot(f"first-{viewport['width']}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.assert_sound()


def test_a_request_to_another_machine_is_refused_and_kept(visitor: Visitor) -> None:
    page = visitor.open()
    page.evaluate("fetch('https://elsewhere.invalid/beacon').catch(() => null)")
    assert visitor.outside == ["https://elsewhere.invalid/beacon"]
