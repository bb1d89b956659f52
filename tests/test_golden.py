"""Numbers never change silently: whole answers as they were, and the links of every released version.

A golden value says "unchanged", not "right". When one moves on purpose: `make golden`, read the difference, and write
into CHANGELOG.md what moved, by how much, and why.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from parplan import Scenario, plan
from parplan.links import parsed, read
from parplan.scenario import SCHEMA
from scripts.golden import (
    FOLDER,
    LINKS,
    SCHEMAS,
    answer,
    differ,
    digest,
    fields_of_links,
    file_of,
    leaves,
    moves,
    summary,
    with_fields_of_today,
)

CHANGES = (Path(__file__).parents[1] / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("name", LINKS)
def test_an_answer_is_what_it_was(name: str) -> None:
    now = answer(LINKS[name])
    found = moves(json.loads(file_of(name).read_text("utf-8")), now)
    assert not found, f"{len(found)} of {len(dict(leaves(now)))} moved:\n" + "\n".join(map(str, found[:20]))


def test_the_newest_changes_say_why_the_golden_answers_are_as_they_are() -> None:
    """`make golden` prints the line to write; who regenerates them without a word fails here."""
    newest = CHANGES.split("\n## ")[1]
    said = re.findall(rf"^- Golden answers {digest()}: (\S.{{20,}})", newest, re.MULTILINE)
    assert said, f"the newest section of CHANGELOG.md has no line '- Golden answers {digest()}: ...'"
    assert not said[0].startswith("what moved"), "say what moved, by how much and why"


def test_every_golden_file_has_its_link() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(LINKS)


def test_a_small_move_is_seen() -> None:
    assert differ(1.0, 1.00001)
    assert not differ(1.0, 1.0000001)
    assert differ(1.0, None)
    assert differ("TP2", "TP4")
    assert not differ(1, 1.0)


def test_a_layout_that_comes_in_between_moves_no_other() -> None:
    one, two = ({"layout": {"name": name}, "tpot_ms": time} for name, time in (("TP1", 30.0), ("TP2", 20.0)))
    faster = two | {"tpot_ms": 18.0}
    found = moves({"plans": [one, two]}, {"plans": [one, {"layout": {"name": "PP2"}}, faster]})
    assert [str(move) for move in found] == [
        "plans/TP2/tpot_ms: 20.0 -> 18.0 (-10.00%)",
        "plans/PP2/layout/name: 'absent' -> 'PP2'",
    ]
    assert "tpot_ms" in summary(found)
    assert "-10.00%" in summary(found)


# --- links of released versions

RELEASED: dict[str, Any] = json.loads(SCHEMAS.read_text("utf-8"))
LINKS_PASSED_ON = [
    pytest.param(one, id=f"v{v}-{n}") for v in RELEASED for n, one in enumerate(RELEASED[v]["links"])
]


def test_the_link_format_of_today_is_written_down() -> None:
    """A field that is renamed, gone or holds something else needs a new version; a new one, `make golden`."""
    assert RELEASED[str(SCHEMA)]["fields"] == fields_of_links()


def test_every_version_has_links_that_were_passed_on() -> None:
    assert [*RELEASED] == [str(version) for version in range(1, SCHEMA + 1)]
    assert all(released["links"] for released in RELEASED.values())


@pytest.mark.parametrize("one", LINKS_PASSED_ON)
def test_a_link_that_was_passed_on_still_means_the_same(one: dict[str, Any]) -> None:
    found = read(parsed(one["link"]))
    assert found.complaints == ()  # facts may have changed
    assert found.scenario.model_dump() == Scenario().model_dump() | one["means"]
    assert plan(found.scenario).advice.verdict


def test_a_field_that_goes_needs_a_new_version() -> None:
    was = {str(SCHEMA): {"fields": {"gpus": "int"}, "links": []}}
    with pytest.raises(SystemExit, match="gpus changed: raise SCHEMA"):
        with_fields_of_today(was)
