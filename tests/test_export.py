"""Answers as plain data: what machines, tokens and a rate cost, derived a second time from the figures beside them."""

from typing import Any

import pytest

from parplan import Scenario, catalog, plan
from parplan.export import answer_json

SECONDS_PER_HOUR, MILLION = 3600, 1e6
SCENARIO = Scenario(rate=10, peak=2, ttft=2000, tpot=60, prompt=3000, output=500)


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    return answer_json(plan(SCENARIO))


def assert_one_bill(usd_per_hour: float, cost: dict[str, float], *, requests_per_s: float) -> None:
    """An hour's work, counted by hand: requests, prompt tokens, output tokens, and both together."""
    requests = requests_per_s * SECONDS_PER_HOUR
    prompt, output = requests * SCENARIO.prompt / MILLION, requests * SCENARIO.output / MILLION
    for spread, amount in {
        "usd_per_request": requests,
        "usd_per_million_input_tokens": prompt,
        "usd_per_million_output_tokens": output,
        "usd_per_million_tokens": prompt + output,
    }.items():
        assert cost[spread] * amount == pytest.approx(usd_per_hour), spread


def test_every_price_of_the_ladder_comes_with_the_cost_of_its_work(answer: dict[str, Any]) -> None:
    plans = {found["layout"]["name"]: found for found in answer["plans"]}
    seen = 0
    for rung in answer["ladder"]:
        if rung["name"] == "survives":
            continue  # its replicas share the requests, so its rate is not among the plans
        rate = plans[rung["layout"]["name"]]["requests_per_s"]
        for machines in rung["instances"]:
            assert (machines["usd_per_hour"] is None) == (machines["cost"] is None)
            if machines["cost"]:
                assert_one_bill(machines["usd_per_hour"], machines["cost"], requests_per_s=rate)
                seen += 1
    assert seen > 20


def test_energy_is_what_all_gpus_may_draw_over_the_tokens(answer: dict[str, Any]) -> None:
    """700 W, NVIDIA H100 datasheet."""
    rung = next(rung for rung in answer["ladder"] if rung["name"] == "holds")
    rate = next(p for p in answer["plans"] if p["layout"]["name"] == rung["layout"]["name"])["tokens_per_s"]
    assert rung["joules_per_output_token"] * rate == pytest.approx(700 * rung["gpus"])
    unknown = answer_json(plan(Scenario(gpu="v100-sxm-16", weights="int4-g128")))
    assert catalog.gpus()["v100-sxm-16"].tdp is None
    assert all(rung["joules_per_output_token"] is None for rung in unknown["ladder"])


def test_a_rate_is_billed_at_its_mean_and_fully_loaded(answer: dict[str, Any]) -> None:
    load = answer["load"]
    assert load["bearable_requests_per_s"] >= SCENARIO.rate * SCENARIO.peak
    assert load["utilisation_peak"] == pytest.approx(2 * load["utilisation_mean"])
    assert load["gpus"] == load["replicas"] * answer["recommended"]["gpus"]
    assert load["ttft_p50_ms_peak"] < load["ttft_p95_ms_peak"] <= SCENARIO.ttft
    for machines in load["instances"]:
        if machines["usd_per_hour"] is not None:
            assert machines["gpus"] >= load["gpus"]
            for spread, rate in (
                ("cost_at_mean_rate", SCENARIO.rate),
                ("cost_fully_loaded", load["bearable_requests_per_s"]),
            ):
                assert_one_bill(machines["usd_per_hour"], machines[spread], requests_per_s=rate)


def test_without_a_rate_there_is_no_load() -> None:
    assert answer_json(plan(Scenario()))["load"] is None


def test_a_target_out_of_reach_has_no_full_load() -> None:
    load = answer_json(plan(Scenario(rate=5, tpot=1)))["load"]
    assert load["bearable_requests_per_s"] == 0
    assert all("cost_fully_loaded" not in machines for machines in load["instances"])


def test_the_data_say_what_the_rate_takes_and_whether_the_planned_replicas_suffice() -> None:
    found = plan(SCENARIO)
    load = answer_json(found)["load"]
    assert load["words"] == found.load_words
    assert not load["planned_replicas_suffice"]
    enough = answer_json(plan(SCENARIO.model_copy(update={"replicas": load["replicas"]})))["load"]
    assert enough["planned_replicas_suffice"]
    assert load["tpot_ms_peak"] <= SCENARIO.tpot
    assert not answer_json(plan(Scenario(rate=5, tpot=1)))["load"]["planned_replicas_suffice"]


def test_without_a_rate_no_traffic_is_looked_at() -> None:
    found = plan(Scenario())
    assert found.load_words == ""
    assert "traffic" not in vars(found)
