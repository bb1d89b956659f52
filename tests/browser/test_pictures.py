"""Narrow screens leave pictures their room."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

SIX = "?model=deepseek-ai/DeepSeek-V3.1&weights=native&gpu=h200-sxm&concurrency=256&prompt=4096&budget=16&ttft=2000"
"""Six families of layouts, and a target."""
PLOT = "figure => figure._fullLayout._size.h"


def figure(page: Page, number: int) -> Locator:
    return page.locator(".js-plotly-plot").nth(number)


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
