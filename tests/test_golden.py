"""Numbers never change silently: whole answers as they were, and the links of every released version.

A golden value says "unchanged", not "right". When one moves on purpose: `make golden`, read the difference, and write
into CHANGELOG.md what moved, by how much, and why.
"""

import json
import math
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
    fields_of_links,
    file_of,
    leaves,
    with_fields_of_today,
)

TOLERANCE = 1e-6


def moved(before: Any, after: Any) -> bool:
    """Whether a figure is no longer what it was, or a word."""
    if isinstance(before, float) or isinstance(after, float):
        numbers = isinstance(before, int | float) and isinstance(after, int | float)
        return not (numbers and math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=1e-9))
    return bool(before != after)


@pytest.mark.parametrize("name", LINKS)
def test_an_answer_is_what_it_was(name: str) -> None:
    before = dict(leaves(json.loads(file_of(name).read_text("utf-8"))))
    after = dict(leaves(answer(LINKS[name])))
    changed = [
        f"{at}: {before.get(at, 'absent')!r} -> {after.get(at, 'absent')!r}"
        for at in dict.fromkeys((*before, *after))
        if at not in before or at not in after or moved(before[at], after[at])
    ]
    assert not changed, f"{len(changed)} of {len(after)} moved:\n" + "\n".join(changed[:20])


def test_every_golden_file_has_its_link() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(LINKS)


def test_a_small_move_is_seen() -> None:
    assert moved(1.0, 1.00001)
    assert not moved(1.0, 1.0000001)
    assert moved(1.0, None)
    assert moved("TP2", "TP4")
    assert not moved(1, 1.0)


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
