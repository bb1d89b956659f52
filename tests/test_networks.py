"""Layouts over several machines are as fast as the network of those machines."""

from dataclasses import replace

import numpy as np
import pytest

from parplan import Scenario, catalog, plan
from parplan.across import plans_across
from parplan.instances import Purchase
from parplan.networks import uses_network
from parplan.planner import Plan, evaluate
from parplan.ui import compare_page, hardware_tab
from parplan.units import written_time

DEEPSEEK = Scenario(model="deepseek-ai/DeepSeek-V3.1", gpu="h100-sxm", concurrency=256)


def over(found: Plan, network: float) -> float:
    """Seconds per token of a layout, worked out anew for GPUs with this network."""
    problem = found.result.problem
    gpu = problem.gpu.model_copy(update={"network": network})
    _, served = evaluate(replace(problem, gpu=gpu), layout=found.layout, concurrency=found.result.concurrency)
    return float(np.ravel(served.tpot)[found.result.asked])


def test_every_offer_of_several_nodes_has_the_speed_of_its_own_network() -> None:
    advice = plan(DEEPSEEK).advice
    assert advice.recommended
    assert advice.recommended.gpus == 16
    times = {}
    for offer in advice.offers:
        network = offer.purchase.instance.network
        assert network
        assert float(offer.plan.serving.tpot) == pytest.approx(over(advice.recommended, network))
        times[network] = float(offer.plan.serving.tpot)
    assert len(times) >= 3
    assert [times[network] for network in sorted(times)] == sorted(times.values(), reverse=True)
    slow = [offer for offer in advice.offers if offer.purchase.instance.name == "a3-highgpu-8g"]
    assert float(slow[0].plan.serving.tpot) > 1.1 * float(advice.recommended.serving.tpot)


def test_an_offer_is_costed_at_its_own_speed() -> None:
    rung = plan(DEEPSEEK).advice.ladder[1]
    assert rung.networked
    for offer in rung.offers:
        rate = float(offer.plan.serving.tokens_per_s)
        assert rung.tokens_per_s_of(offer.plan) == pytest.approx(rate * rung.busy)


def test_machines_too_slow_for_a_target_are_left_out_of_the_step_that_asks_for_it() -> None:
    """At 12.5 GB/s per GPU the layout takes 51 ms per token, at 50 GB/s 42 ms."""
    asked = DEEPSEEK.model_copy(update={"tpot": 45.0})
    advice = plan(asked).advice
    steps = {rung.name: rung for rung in advice.ladder}
    names = {name: {p.instance.name for p in rung.purchases} for name, rung in steps.items()}
    assert "a3-highgpu-8g" in names["holds"]
    assert "a3-highgpu-8g" not in names["meets targets"] | names["survives"]
    assert "GCP a3-highgpu-8g (12.5 GB/s per GPU" in steps["meets targets"].note
    assert "a3-highgpu-8g" not in {one.instance.name for one in advice.purchases}
    for rung in (steps["meets targets"], steps["survives"]):
        assert all(offer.plan.in_time for offer in rung.offers)


def test_within_one_machine_and_one_rack_no_network_counts() -> None:
    rung = plan(Scenario()).advice.ladder[1]
    assert rung.plan
    assert not rung.networked
    assert all(offer.plan is rung.plan for offer in rung.offers)
    tray = next(one for one in catalog.instances() if one.gpu == "gb200-nvl72" and one.gpus == 4)
    gpu = catalog.gpus()["gb200-nvl72"]
    assert not uses_network(Purchase(tray, 18), gpu=gpu, gpus=72)
    assert uses_network(Purchase(tray, 36), gpu=gpu, gpus=144)


def test_hardware_and_compare_show_machines_at_the_speed_of_their_network() -> None:
    """Of GCP there are only machines with 12.5 and 25 GB/s per GPU; the dearer bill per token is the slower one."""
    found = plans_across(DEEPSEEK)["h100-sxm"]
    assert found.plan
    gcp = [one for one in catalog.instances() if one.provider == "GCP"]
    for filled in (True, False):
        option = hardware_tab.of(found, gcp, DEEPSEEK, filled=filled)
        assert option.plan
        assert option.bill
        network = option.bill.purchase.instance.network
        assert network in (12.5e9, 25e9)
        assert float(option.plan.serving.tpot) == pytest.approx(over(found.plan, network))
        tokens = float(option.plan.serving.tokens_per_s) * 3600 / 1e6
        price = option.bill.purchase.price
        assert price
        assert float(option.bill.cost.per_million_output) * tokens == pytest.approx(price)
        row = hardware_tab.table([option]).iloc[0]
        assert row["ms/token"] == pytest.approx(1000 * over(found.plan, network))
        assert written_time(over(found.plan, network)) in row["In words"]
    timely = DEEPSEEK.model_copy(update={"tpot": 45.0})
    quick = hardware_tab.of(plans_across(timely)["h100-sxm"], gcp, timely, filled=True)
    assert quick.bill
    assert quick.bill.purchase.instance.network == 25e9


def test_a_comparison_bills_the_machines_with_their_own_speed() -> None:
    answer = plan(DEEPSEEK)
    paid = compare_page.paid(answer)
    assert paid
    costs = {
        offer.purchase.price / float(offer.plan.serving.requests_per_s) / 3600
        for offer in answer.advice.offers
        if offer.purchase.price
    }
    assert float(paid.cost.per_request) == pytest.approx(min(costs))
