"""Back and Forward: one press for one action, and the page shows what the address says."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

Shown = tuple[str, list[str], str, str]


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def entries(page: Page) -> int:
    """Entries of the browser's history."""
    found: int = page.evaluate("history.length")
    return found


def shown(page: Page) -> Shown:
    """What the page says of the scenario: verdict, figures, and two of the settings."""
    main = page.get_by_test_id("stMain")
    return (
        main.get_by_role("heading", level=3).first.inner_text(),
        page.get_by_test_id("stMetricValue").all_inner_texts(),
        page.get_by_test_id("stMenuButton").inner_text(),
        page.get_by_role("slider", name="Concurrent requests").get_attribute("aria-valuetext") or "",
    )


def assert_shown(page: Page, wanted: Shown) -> None:
    """The page says so in the end; a busy machine takes a while."""
    for _ in range(40):
        if shown(page) == wanted:
            return
        page.wait_for_timeout(250)
    assert shown(page) == wanted


def example(visitor: Visitor) -> None:
    visitor.choose_example("DeepSeek on B200")


def way_out(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("button", name="Store the weights in FP8").first.click()


def keep(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Keep this layout").click()


def exact(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("button", name="Exact numbers").click()
    for name, number in (("Concurrent requests", 61), ("Prompt tokens", 1000), ("Output tokens", 300)):
        page.get_by_role("spinbutton", name=name).fill(str(number))
    page.get_by_role("button", name="Use these").click()
    expect(page.get_by_role("slider", name="Concurrent requests")).to_have_attribute("aria-valuetext", "61")
    visitor.settle()
    page.keyboard.press("Escape")


def own_gpu(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_test_id("stSidebar").get_by_text("Own GPU", exact=True).click()
    visitor.settle()
    box = page.get_by_role("combobox", name="Start from")
    box.click()
    box.press_sequentially("h200")
    page.get_by_role("option", name="h200-sxm", exact=True).click()


@pytest.mark.parametrize(
    ("link", "act"),
    [
        pytest.param("", example, id="example"),
        pytest.param("?model=meta-llama/Meta-Llama-3.1-405B&weights=bf16&budget=8", way_out, id="way out"),
        pytest.param("?view=Layouts", keep, id="kept layout"),
        pytest.param("", exact, id="exact numbers"),
        pytest.param("", own_gpu, id="own GPU"),
    ],
)
def test_back_undoes_one_action_on_the_whole_page(
    visitor: Visitor, link: str, act: Callable[[Visitor], None]
) -> None:
    page = visitor.open(link)
    before, asked, length = shown(page), query(page), entries(page)
    start = page.url
    act(visitor)
    page.wait_for_url(lambda url: url != start)
    visitor.settle(quiet=1000)
    after, changed = shown(page), query(page)
    assert changed != asked
    assert entries(page) == length + 1
    page.go_back()
    visitor.settle()
    assert query(page) == asked
    assert_shown(page, before)
    page.go_forward()
    visitor.settle()
    assert query(page) == changed
    assert_shown(page, after)
    visitor.assert_sound()


def test_back_goes_through_the_examples_one_by_one(visitor: Visitor) -> None:
    page = visitor.open()
    seen = [shown(page)]
    for name in ("DeepSeek on B200", "8B on one small GPU", "405B on two nodes"):
        visitor.choose_example(name)
        seen.append(shown(page))
    for before in reversed(seen[:-1]):
        page.go_back()
        visitor.settle()
        assert_shown(page, before)
    expect(page.get_by_role("button", name="Example: 70B chat on H100")).to_be_visible()
    visitor.assert_sound()


def test_what_is_set_after_back_counts(visitor: Visitor) -> None:
    """A slider moved and an example chosen on a page gone back to are not undone by the address it had."""
    page = visitor.open()
    visitor.choose_example("DeepSeek on B200")
    page.go_back()
    visitor.settle()
    slider = page.get_by_role("slider", name="Concurrent requests")
    slider.press("ArrowRight")
    visitor.settle()
    assert query(page) == {"concurrency": ["96"]}
    visitor.choose_example("8B on one small GPU")
    expect(page.get_by_test_id("stMain").get_by_role("heading", level=3).first).to_contain_text("Qwen3-8B")
    page.go_back()
    visitor.settle()
    assert query(page) == {"concurrency": ["96"]}
    expect(slider).to_have_attribute("aria-valuetext", "96")
    visitor.assert_sound()


def test_a_click_right_after_another_undoes_nothing(visitor: Visitor) -> None:
    """The browser repeats what its settings said before the first click until it has heard of the new ones."""
    page = visitor.open("?model=meta-llama/Meta-Llama-3.1-405B&weights=bf16&budget=8")
    page.get_by_role("button", name="Store the weights in FP8").first.wait_for()
    visitor.settle()
    page.evaluate(
        """() => {
            const named = (kind, name) =>
                [...document.querySelectorAll(kind)].find(one => one.innerText.trim() === name);
            named('button', 'Store the weights in FP8').click();
            named('[role=tab]', 'Why').click();
        }"""
    )
    visitor.settle(quiet=1000)
    assert "FP8" in shown(page)[0]
    assert (query(page)["weights"], query(page)["view"]) == (["fp8"], ["Why"])
    visitor.assert_sound()


def test_back_from_another_page_is_one_press_to_the_tab_that_was_open(visitor: Visitor) -> None:
    page = visitor.open("?view=Buy&concurrency=32")
    length = entries(page)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare*")
    visitor.settle(quiet=1000)
    assert entries(page) == length + 1
    page.go_back()
    visitor.settle()
    assert query(page) == {"view": ["Buy"], "concurrency": ["32"]}
    expect(page.get_by_role("tab", name="Buy", exact=True)).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Overview", exact=True).click()
    visitor.settle(quiet=1000)
    assert query(page) == {"concurrency": ["32"]}
    page.go_back()
    visitor.settle()
    expect(page.get_by_role("tab", name="Buy", exact=True)).to_have_attribute("aria-selected", "true")
    visitor.assert_sound()
