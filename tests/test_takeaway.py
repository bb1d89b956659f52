"""The table one takes away, as a program reads it."""

import io
import json
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from parplan import Scenario, __version__, plan
from parplan.balance import balance
from parplan.choice import ranking
from parplan.export import answer_json
from parplan.links import from_query, parsed, share_url
from parplan.ui import layouts_tab, takeaway

DAY = date(2026, 11, 29)
SCENARIOS = [
    Scenario(),
    Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="h200-sxm", budget=8),
]


def read(scenario: Scenario) -> pd.DataFrame:
    """The file, without telling the reader anything about it."""
    written = takeaway.table(
        plan(scenario), link=share_url(scenario, base="https://example.org/"), written=DAY
    )
    return pd.read_csv(io.StringIO(written.to_csv(index=False)))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["few", "many"])
def test_rows_come_as_the_tab_has_them_the_recommended_first_and_impossible_ones_last(
    scenario: Scenario,
) -> None:
    found, result = read(scenario), plan(scenario).result
    assert found["Layout"].tolist() == [str(result.layout.one(index)) for index in ranking(result)]
    assert found["Status"][0] == "recommended"
    impossible = (found["Status"] == "impossible").tolist()
    assert impossible == sorted(impossible)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["few", "many"])
def test_every_row_says_with_what_when_and_for_which_scenario_it_was_made(scenario: Scenario) -> None:
    found = read(scenario)
    assert found.columns[-3:].tolist() == ["Version", "Date", "Link"]
    assert set(found["Version"]) == {__version__}
    assert set(found["Date"]) == {"2026-11-29"}
    (link,) = set(found["Link"])
    assert from_query(parsed(link)) == (scenario, [])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["few", "many"])
def test_tokens_of_the_cache_are_the_same_number_everywhere(scenario: Scenario) -> None:
    answer = plan(scenario)
    best = answer.advice.recommended
    assert best is not None
    tokens = balance(answer.result.problem, best).kv_tokens
    assert tokens == int(best.memory.kv_tokens)
    assert layouts_tab.table(answer.result, [best.index])["KV tokens"].tolist() == [tokens]
    assert json.loads(json.dumps(answer_json(answer)))["recommended"]["kv_tokens"] == tokens


def test_the_version_is_that_of_the_newest_changes() -> None:
    changes = (Path(__file__).parents[1] / "CHANGELOG.md").read_text("utf-8")
    assert changes.split("\n## ")[1].startswith(f"{__version__} ")
