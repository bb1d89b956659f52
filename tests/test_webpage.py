"""The report as a web page: the same words, nothing that runs, nothing that is fetched."""

import re
from datetime import date
from html.parser import HTMLParser

import pytest

from parplan import Scenario, plan
from parplan.own_model import described, packed_model
from parplan.report import escaped, report
from parplan.webpage import webpage

LINK = "https://example.org/?v=1&gpu=h100-sxm"
EMPTY = {"meta", "br", "img", "link", "input"}


class Reader(HTMLParser):
    """Tags, attributes and words of a page; fails where tags do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def letters(text: str) -> str:
    """What is left of a text without signs and spaces."""
    return re.sub(r"[\W_]+", "", text)


@pytest.mark.parametrize(
    "scenario",
    [Scenario(), Scenario(tpot=1), Scenario(gpu="t4", budget=1), Scenario(model="size", size=400, active=17)],
)
def test_every_word_of_the_report_is_there(scenario: Scenario) -> None:
    text = report(plan(scenario), link=LINK, written=date(2026, 11, 29))
    read = Reader(webpage(text))
    shown = letters("".join(read.words))
    assert all(letters(line) in shown for line in text.splitlines())
    assert read.tags.count("h1") == 1
    assert read.tags.count("h2") == text.count("\n## ")
    assert read.tags.count("tr") == sum(line.startswith("|") for line in text.splitlines()) - text.count(
        "| --- |\n"
    )


def test_it_asks_nothing_of_anybody_and_links_only_addresses() -> None:
    read = Reader(webpage(report(plan(Scenario()), link=LINK, written=date(2026, 11, 29))))
    assert not {"script", "img", "link", "iframe", "form"} & set(read.tags)
    assert {name for name, _ in read.attributes} <= {"lang", "charset", "name", "content", "href"}
    links = [value or "" for name, value in read.attributes if name == "href"]
    assert LINK in links
    assert all(link.startswith("http") for link in links)


HOSTILE = '<img src=x onerror=alert(1)>|**bold** [x](javascript:alert(1)) & "quoted" \\'


def test_a_hostile_name_is_shown_as_it_is() -> None:
    config = {
        "hub_id": HOSTILE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 100, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    }  # fmt: skip
    assert described(config).name == HOSTILE
    scenario = Scenario(model="config", config=packed_model(config), weights="bf16")
    page = webpage(report(plan(scenario), link=LINK, written=date(2026, 11, 29)))
    read = Reader(page)
    assert "img" not in read.tags
    assert HOSTILE in read.words


@pytest.mark.parametrize("text", ["a|b", "\\", "<b>", "1 < 2 & 3 > 2", "`code` *x* _y_"])
def test_what_is_escaped_for_markdown_is_read_back(text: str) -> None:
    assert text in Reader(webpage(f"# t\n\n| {escaped('head')} |\n| --- |\n| {escaped(text)} |")).words
