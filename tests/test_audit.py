"""The audit finds what an advisory names, and says how old its advisories are."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.audit import affects, copied

TODAY = date(2026, 11, 30)
ADVISORY: dict[str, Any] = {
    "id": "PYSEC-2026-1",
    "modified": "2026-11-20T01:02:03Z",
    "affected": [
        {
            "package": {"name": "Typing_Extensions", "ecosystem": "PyPI"},
            "ranges": [
                {"type": "GIT", "events": [{"introduced": "0"}]},
                {
                    "type": "ECOSYSTEM",
                    "events": [
                        {"introduced": "2.0"},
                        {"fixed": "2.0.7"},
                        {"introduced": "0"},
                        {"fixed": "1.26.18"},
                    ],
                },
            ],
            "versions": ["1.0", "2004d"],
        }
    ],
}


def folder_of(tmp_path: Path, advisory: Mapping[str, Any]) -> Path:
    file = tmp_path / "vulns" / "typing_extensions" / "PYSEC-2026-1.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(advisory), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "hit"),
    [("1.26.17", True), ("1.26.18", False), ("2.0rc1", False), ("2.0.6", True), ("2.0.7", False), ("1.0.0", True)],
)  # fmt: skip
def test_versions_are_compared_as_versions_in_whatever_order_events_stand(version: str, *, hit: bool) -> None:
    assert affects(ADVISORY["affected"][0], version) is hit


def test_a_hole_is_found_under_any_spelling_of_the_name(tmp_path: Path) -> None:
    known = copied(
        folder_of(tmp_path, ADVISORY), {"typing-extensions": "2.0.1", "numpy": "2.4.6"}, today=TODAY
    )
    assert known.holes == ("typing-extensions 2.0.1: PYSEC-2026-1",)
    assert (known.looked_up, known.doubt) == (2, "")


def test_what_was_withdrawn_is_no_hole(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ADVISORY | {"withdrawn": "2026-11-21T00:00:00Z"})
    assert copied(folder, {"typing-extensions": "2.0.1"}, today=TODAY).holes == ()


def test_an_old_copy_is_not_the_last_word(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ADVISORY | {"modified": "2025-11-30T00:00:00Z"})
    known = copied(folder, {"typing-extensions": "3.0"}, today=TODAY)
    assert "2025-11-30, 365 days ago" in known.doubt


def test_an_empty_folder_looks_nothing_up(tmp_path: Path) -> None:
    known = copied(tmp_path, {"numpy": "2.4.6"}, today=TODAY)
    assert known.looked_up == 0
    assert "no advisories" in known.doubt
