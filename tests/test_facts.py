"""Facts in links: an old link says which of them changed, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parplan import Scenario, catalog, facts
from parplan.links import FACTS_KEY, from_query, read, share_url, to_query
from parplan.scenario import SCHEMA

GPU = catalog.gpus()["h100-sxm"]
ENGINE = catalog.engines()["vllm"]


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A catalogue that may be changed: what was read of it is forgotten before and after."""

    def forget() -> None:
        for read_once in (facts._of_model, facts._of_gpu, facts._of_engine, facts._prices):
            read_once.cache_clear()

    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


def changed_gpu(**fields: Any) -> dict[str, Any]:
    return dict(catalog.gpus()) | {GPU.name: GPU.model_copy(update=fields)}


@pytest.mark.parametrize("name", catalog.model_files())
def test_a_link_of_today_says_nothing(name: str) -> None:
    assert (
        read({key: [value] for key, value in to_query(Scenario(model=name), full=True).items()}).changes == ()
    )


def test_marks_are_the_same_on_every_machine() -> None:
    """Sets have another order in every process."""
    told = (
        "from parplan import Scenario, catalog, facts\n"
        "for engine in catalog.engines():\n"
        "    for gpu in ('h100-sxm', 'mi300x'):\n"
        "        print(facts.marks(Scenario(engine=engine, gpu=gpu)))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", told], env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1]
    assert len(found[0].split()) == 2 * len(catalog.engines())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"memory": GPU.memory * 0.99}, "memory of H100 SXM 80 GB: 78.4 GiB today, read 20"),
        ({"bandwidth": 3e12}, "memory bandwidth of H100 SXM 80 GB: 3 TB/s today, read 20"),
        ({"peaks": GPU.peaks | {"fp8": 1e15}}, "arithmetic of H100 SXM 80 GB: read 20"),
        ({"network": 25e9}, "links of H100 SXM 80 GB: read 20"),
    ],
    ids=["memory", "bandwidth", "peaks", "links"],
)
def test_a_changed_gpu_is_named_with_what_changed(
    catalogue: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    since = facts.marks(Scenario())
    facts._of_gpu.cache_clear()
    after = changed_gpu(**fields)
    catalogue.setattr(catalog, "gpus", lambda: after)
    (change,) = facts.changed(Scenario(), since=since)
    assert change.startswith(said)
    assert facts.changed(Scenario(gpu="h200-sxm"), since=facts.marks(Scenario(gpu="h200-sxm"))) == ()


def test_a_changed_engine_and_changed_prices_are_named(catalogue: pytest.MonkeyPatch) -> None:
    since = facts.marks(Scenario())
    facts._of_engine.cache_clear()
    facts._prices.cache_clear()
    slower = ENGINE.model_copy(update={"speed": ENGINE.speed.model_copy(update={"bandwidth": 0.5})})
    engines = dict(catalog.engines()) | {ENGINE.name: slower}
    catalogue.setattr(catalog, "engines", lambda: engines)
    fewer = tuple(one for one in catalog.instances() if one.provider != "AWS")
    catalogue.setattr(catalog, "instances", lambda: fewer)
    first, second = facts.changed(Scenario(), since=since)
    assert first.startswith("speed constants of vLLM")
    assert second.startswith("list prices of H100 SXM 80 GB: newest of 20")
    assert len(facts.changed(Scenario(gpu_hour=2), since=since)) == 1  # prices of one's own do not change


def test_a_source_or_a_note_is_no_fact(catalogue: pytest.MonkeyPatch) -> None:
    since = facts.marks(Scenario())
    facts._of_gpu.cache_clear()
    after = changed_gpu(note="other words", year=2024, tdp=None)
    catalogue.setattr(catalog, "gpus", lambda: after)
    assert facts.changed(Scenario(), since=since) == ()


def test_a_link_changed_by_hand_is_compared_with_nothing() -> None:
    query = to_query(Scenario(), full=True) | {"gpu": "h200-sxm"}
    assert read({key: [value] for key, value in query.items()}).changes == ()


def test_what_the_link_holds_itself_has_no_mark() -> None:
    made_up = facts.marks(Scenario(model="size", gpu_hour=3))
    assert made_up.count(facts.NO_MARK) == 2
    assert len(made_up) == len(facts.marks(Scenario()))
    assert facts.readable(made_up)


@pytest.mark.parametrize("text", ["a", "<script>", "abc%20", "é" * 3, "ab~"])
def test_marks_that_say_nothing_are_reported(text: str) -> None:
    scenario, messages = from_query({FACTS_KEY: [text], "prompt": ["333"]})
    assert scenario == Scenario(prompt=333)
    assert len(messages) == 1
    assert "what has changed is not known" in messages[0]


def test_a_change_is_said_once_and_the_rest_of_the_link_is_used() -> None:
    query = to_query(Scenario(prompt=333), full=True)
    since = query[FACTS_KEY]
    bandwidth = slice(3 * facts.LETTERS, 4 * facts.LETTERS)
    query[FACTS_KEY] = since[: bandwidth.start] + "AAA" + since[bandwidth.stop :]
    scenario, messages = from_query({key: [value] for key, value in query.items()})
    assert scenario == Scenario(prompt=333)
    (message,) = messages
    assert message.startswith(
        "Changed since the link was made: memory bandwidth of H100 SXM 80 GB: 3.35 TB/s today"
    )


def test_names_that_end_like_a_number_stay_whole() -> None:
    scenario = Scenario(model="inclusionAI/Ling-mini-2.0", rate=2.0)
    link = share_url(scenario, base="")
    assert "Ling-mini-2.0&" in link
    assert "rate=2&" in link


def test_a_link_of_a_later_version_is_used_as_far_as_it_is_understood() -> None:
    found = read({"v": [str(SCHEMA + 1)], "prompt": ["333"]})
    assert found.scenario.prompt == 333
    assert "version" in str(found.complaints[0])
