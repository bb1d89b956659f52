"""Several scenarios in one link."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.links import share_url
from parplan.own_model import LONGEST_CONFIG, packed
from parplan.packing import packed_json
from parplan.scenario import Scenario
from parplan.shortlist import LONGEST, comparison_url, differences, packed_scenario, scenario_of
from tests.test_hostile import LLAMA

ODD = Scenario(gpu="mi300x", concurrency=61, tpot=12.5, prefix=33.3, tensor=4, replicas=3)


def test_a_scenario_survives_every_way_to_write_it() -> None:
    link = share_url(ODD, base="https://example.org/")
    for text in (packed_scenario(ODD), link, urlsplit(link).query, f"  {link}\n"):
        assert scenario_of(text) == (ODD, [])


def test_one_link_holds_four_scenarios_in_two_thousand_characters() -> None:
    four = [
        Scenario(),
        ODD,
        Scenario(gpu="l4"),
        Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native"),
    ]
    link = comparison_url(four, base="https://parplan.example.org/compare")
    assert len(link) < 2000
    texts = parse_qs(urlsplit(link).query)
    assert [scenario_of(texts[place][0])[0] for place in "abcd"] == four


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hello", "not a link"),
        ("", "not a link"),
        ("eNpdUt", "not a link"),
        (packed_json([1, 2]), "not a link"),
        ("x" * (LONGEST + 1), "longer than 32,768"),
        ("gpu=h1000", "'h1000' is not known"),
        ("https://example.org/?concurrency=-5", "concurrency='-5' was not used"),
        (packed_json({"gpu": "h1000"}), "'h1000' is not known"),
        (packed_json({"v": "99"}), "version '99'"),
    ],
)
def test_what_cannot_be_used_is_said(text: str, complaint: str) -> None:
    _, messages = scenario_of(text)
    assert any(complaint in message for message in messages)


def test_whatever_a_link_carries_can_be_compared() -> None:
    """2,000 layers, all different: the config fills half of what a link may carry of it."""
    widths = [64 * (1 + layer * 7919 % 16_384) for layer in range(2000)]
    config = packed(json.dumps(LLAMA | {"num_hidden_layers": 2000, "intermediate_size": widths}))
    assert len(config) > LONGEST_CONFIG / 4
    long = Scenario(model="config", config=config)
    assert scenario_of(packed_scenario(long)) == scenario_of(share_url(long, base="https://example.org/"))
    assert scenario_of(packed_scenario(long)) == (long, [])
    assert LONGEST > 4 / 3 * (LONGEST_CONFIG + 4000)  # and a GPU of one's own


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    scenario, messages = scenario_of(text)
    assert scenario is not None or messages


def test_a_bomb_is_not_unpacked() -> None:
    assert scenario_of(packed_json({"gpu": "h" * 10_000_000}))[0] is None


def test_only_what_differs_is_named() -> None:
    assert differences([Scenario(), Scenario()]) == {}
    assert differences([Scenario(), ODD, Scenario()])["gpu"] == ("h100-sxm", "mi300x", "h100-sxm")
    assert "model" not in differences([Scenario(), ODD])
