"""Links and configs nobody means well with, in a real browser: text stays text, and nothing is fetched or run."""

import json
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from parplan import Scenario
from parplan.packing import packed_json
from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

PAYLOADS = (
    "<script>window.hacked=1</script>",
    "<img src=https://elsewhere.invalid/a.png onerror=window.hacked=1>",
    "![x](https://elsewhere.invalid/b.png)",
    "[click](https://elsewhere.invalid/c)",
    "<style>body{display:none}</style><form action=https://elsewhere.invalid><input></form>",
    "javascript:window.hacked=1//",
    ":red[x] :material/home: :smile:",
    r"$\frac{1}{2}$ **x** `x` :red-badge[x] ~x~",
    "# x\n- www.elsewhere.invalid\n| a | b |",
)
CONFIG = {
    "architectures": ["<img src=https://elsewhere.invalid/d.png onerror=window.hacked=1>ForCausalLM"],
    "model_type": "![x](https://elsewhere.invalid/e.png)",
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8,
    "vocab_size": 32000, "max_position_embeddings": 4096,
    "quantization_config": {"quant_method": "<script>window.hacked=1</script>"},
}  # fmt: skip
TABS = ("Overview", "Layouts", "Why")


def assert_nothing_happened(visitor: Visitor) -> None:
    """No script ran, no style was taken, nothing was asked of another machine, nothing leads there."""
    page = visitor.page
    assert page.evaluate("window.hacked") is None
    assert page.locator("[src*='elsewhere.invalid'], [href*='elsewhere.invalid'], form[action]").count() == 0
    assert (
        page.get_by_test_id("stMain").locator(".katex, .stMarkdownColoredText, strong:text-is('x')").count()
        == 0
    )
    expect(page.get_by_test_id("stMain")).to_be_visible()
    visitor.assert_sound()


def main_text(page: Page) -> str:
    return page.get_by_test_id("stMain").inner_text()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_every_setting_at_once_shows_as_text(visitor: Visitor, payload: str) -> None:
    query = dict.fromkeys([*Scenario.model_fields, "v", payload], payload)
    page = visitor.open(f"?{urlencode(query)}")
    assert repr(payload[:30])[1:-1] in main_text(page)
    assert_nothing_happened(visitor)


def test_a_packed_config_with_markup_is_planned_and_shown_as_text(visitor: Visitor) -> None:
    page = visitor.open(f"?model=config&weights=bf16&config={packed_json(CONFIG)}")
    for tab in TABS:
        page.get_by_role("tab", name=tab, exact=True).click()
        visitor.settle()
        assert_nothing_happened(visitor)


def test_a_pasted_config_with_markup_is_shown_as_text(visitor: Visitor) -> None:
    page = visitor.open()
    page.get_by_role("combobox", name="Model").fill("config")
    page.get_by_role("option", name="config", exact=True).click()
    visitor.settle()
    for text in (json.dumps(CONFIG), json.dumps({"model_type": PAYLOADS[1]}), PAYLOADS[0]):
        box = page.get_by_label("config.json", exact=True)
        box.fill(text)
        box.press("Control+Enter")
        visitor.settle()
        assert_nothing_happened(visitor)


@pytest.mark.parametrize(
    "path", [quote(PAYLOADS[0]), "%2e%2e/%2e%2e/etc/passwd", "app.py", ".streamlit/config.toml"]
)
def test_a_path_of_ones_own_serves_no_file(visitor: Visitor, path: str) -> None:
    answer = visitor.page.request.get(f"{visitor.home}/{path}")
    text = answer.text()
    assert "root:" not in text
    assert "import streamlit" not in text
    assert "[server]" not in text
    assert "window.hacked" not in text
