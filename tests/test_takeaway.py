"""The table one takes away, as a program reads it."""

import io
import json
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from parplan import Scenario, __version__, catalog, plan
from parplan.balance import balance
from parplan.choice import ranking
from parplan.export import answer_json
from parplan.links import from_query, parsed, share_url
from parplan.own_gpu import packed_gpu
from parplan.own_model import packed_model
from parplan.report import everything
from parplan.ui import layouts_tab, takeaway
from parplan.ui.own_hardware import copied

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
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


ASKED = {
    "as it comes": Scenario(),
    "much": Scenario(
        model="Qwen/Qwen3-8B", gpu="l4", concurrency=7, prefix=12.5, ttft=1500, tpot=40, draft=2, acceptance=61.5,
        engine="sglang", rate=0.25, peak=3, discount=7.5, images=False, tensor=2, objective="latency", slots=9,
    ),
    "by size": Scenario(model="size", size=400, active=17, gpu_hour=2.25, memory_scale=1.25, graphs=0.5),
    "own config": Scenario(model="config", config=packed_model(CONFIG), weights="bf16"),
    "own GPU": Scenario(gpu="own", own_gpu=packed_gpu(copied(catalog.gpus()["l40s"]))),
}  # fmt: skip


@pytest.mark.parametrize("scenario", ASKED.values(), ids=list(ASKED))
def test_every_setting_stands_in_every_row_and_makes_the_same_scenario_again(scenario: Scenario) -> None:
    found = read(scenario)
    for _, row in found.iterrows():
        settings = {name: [str(row[name])] for name in Scenario.model_fields if name in found}
        assert from_query(settings) == (scenario, [])
    assert found.columns.str.casefold().is_unique
    assert found.notna().all()[[name for name in Scenario.model_fields if name in found]].all()


def test_what_auto_came_to_and_what_is_assumed_travel_with_the_rows() -> None:
    found, problem = read(Scenario()), plan(Scenario()).result.problem
    assert set(found["KV cache used"]) == {problem.precision.kv.label}
    assert set(found["Engine used"]) == {f"{problem.engine.label} {problem.engine.versions}"}
    (assumed,) = set(found["Assumed"])
    assert "List prices" in assumed


def test_rows_of_two_files_can_be_put_together() -> None:
    both = pd.concat([read(one) for one in SCENARIOS])
    assert both.groupby(["model", "gpu"]).size().tolist() == [len(read(one)) for one in reversed(SCENARIOS)]


@pytest.mark.parametrize("scenario", ASKED.values(), ids=list(ASKED))
def test_the_data_say_with_what_when_and_for_which_scenario_they_were_made(scenario: Scenario) -> None:
    link = share_url(scenario, base="https://example.org/")
    found = json.loads(json.dumps(everything(plan(scenario), link=link, written=DAY), allow_nan=False))
    made = found["made"]
    assert (made["version"], made["date"], made["link"]) == (__version__, "2026-11-29", link)
    assert Scenario.model_validate(found["scenario"]) == scenario
    assert from_query(parsed(made["link"])) == (scenario, [])
    assert made["assumptions"]
    assert all(source["read"] for source in made["sources"])


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
