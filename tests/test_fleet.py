"""Fleets for a rate: what each layout takes, which one is recommended, and that everything speaks of the same one."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Answer, Scenario, plan
from parplan.across import plans_across
from parplan.catalog import gpus
from parplan.choice import INDISTINCT
from parplan.fleet import Fleets, fleet_gpus
from parplan.instances import sizes_sold
from parplan.traffic import replica_of, replicas_for

H100 = gpus()["h100-sxm"]
DENSE = Scenario(rate=10)
EXPERTS = Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="h200-sxm", prompt=512, rate=100)
SMALL = Scenario(model="Qwen/Qwen3-8B", gpu="l4", rate=0.01)
TARGETS = Scenario(rate=20, ttft=1000, tpot=40)
EVERY = {"dense": DENSE, "experts": EXPERTS, "small": SMALL, "targets": TARGETS}


@cache
def answer_to(name: str) -> Answer:
    return plan(EVERY[name])


def fleets(answer: Answer) -> np.ndarray:
    """GPUs to buy for the rate, layout by layout, each as the traffic of that layout alone says; infinite where it does
    not do the job."""
    result, asked = answer.result, answer.scenario
    found = np.full(result.shape[0], np.inf)
    for index in np.flatnonzero(result.does_job).tolist():
        if enough := replicas_for(replica_of(result, index), rate=asked.rate, peak=asked.peak):
            found[index] = fleet_gpus(np.array([enough]), gpus=result.gpus[[index]], gpu=result.problem.gpu)[
                0
            ]
    return found


@pytest.mark.parametrize("name", EVERY)
def test_the_recommended_layout_has_the_smallest_fleet_of_the_wise_ones(name: str) -> None:
    answer = answer_to(name)
    best = answer.advice.recommended
    assert best is not None
    assert best.does_job
    assert answer.result.wise[best.index]
    alone = np.where(answer.result.wise, fleets(answer), np.inf)
    assert alone[best.index] <= alone.min() * (1 + INDISTINCT)


@pytest.mark.parametrize("name", EVERY)
def test_fleets_worked_out_together_are_those_worked_out_alone(name: str) -> None:
    """Those that were spared are larger than the smallest, and at least as large as said."""
    answer = answer_to(name)
    result, alone = answer.result, fleets(answer)
    said = result.fleets.sizes(among=result.does_job, within=INDISTINCT)
    known = ~np.isnan(result.fleets.replicas) & result.does_job
    assert said[known] == pytest.approx(alone[known])
    assert (said <= alone * (1 + 1e-9)).all()
    assert (said[~known] > said.min() * (1 + INDISTINCT)).all()
    assert said.min() == alone.min()


@pytest.mark.parametrize("name", EVERY)
def test_verdict_reasons_traffic_and_hardware_speak_of_the_same_fleet(name: str) -> None:
    answer = answer_to(name)
    best, found = answer.advice.recommended, answer.traffic
    assert best is not None
    assert found is not None
    assert found.replica.layout == best.layout
    assert str(best.layout) in answer.advice.verdict
    assert f"bear {found.rate_words} with the fewest GPUs" in answer.verdict
    assert f"{int(found.busiest.gpus)} × " in answer.verdict
    first = next(reason for reason in answer.advice.reasons if "busiest time" in reason)
    assert first.startswith(f"{found.replicas} × {best.layout} on {int(found.busiest.gpus)} × ")
    there = plans_across(answer.scenario)[answer.scenario.gpu]
    assert there.plan is not None
    assert (there.plan.layout, there.replicas, there.bears) == (best.layout, found.replicas, True)
    assert answer.purchases[0].gpus >= found.busiest.gpus


def test_a_rate_may_choose_another_layout_than_one_replica() -> None:
    """DeepSeek on H200: one replica is smallest as TP8, but a hundred requests per second take 17 of them."""
    answer, one = answer_to("experts"), plan(EXPERTS.model_copy(update={"rate": 0}))
    best, smallest, found = answer.advice.recommended, one.advice.recommended, answer.traffic
    assert best is not None
    assert smallest is not None
    assert found is not None
    assert best.gpus > smallest.gpus
    many = replicas_for(replica_of(answer.result, smallest.index), rate=100, peak=1)
    assert int(found.busiest.gpus) < many * smallest.gpus / 2
    assert any(f"{many} × {smallest.layout}" in reason for reason in answer.advice.reasons)


def test_a_smaller_fleet_that_is_passed_over_is_named_with_its_size_and_why() -> None:
    answer = plan(Scenario(rate=100, prompt=128, output=128, concurrency=1024))
    best, alone = answer.advice.recommended, fleets(answer)
    assert best is not None
    least = int(np.argmin(alone))
    assert not answer.result.wise[least]
    assert alone[least] < alone[best.index]
    said = next(reason for reason in answer.advice.reasons if "not recommended" in reason)
    assert f"{answer.result.layout.one(least)} on {alone[least]:.0f} × " in said
    assert "stages" in said
    assert "with the fewest GPUs without stages inside one fast domain: " in answer.verdict


@pytest.mark.parametrize("objective", ["cost", "throughput", "latency"])
def test_without_a_rate_or_for_other_objectives_no_fleet_is_worked_out(objective: str) -> None:
    asked = DENSE.model_copy(update={"objective": objective, "rate": 0 if objective == "cost" else 10})
    answer, plain = plan(asked), plan(asked.model_copy(update={"rate": 0}))
    assert np.isnan(answer.result.fleets.replicas).all()
    assert answer.advice.recommended == plain.advice.recommended
    assert answer.advice.reasons == plain.advice.reasons


@pytest.mark.parametrize("name", EVERY)
def test_a_higher_rate_never_takes_fewer_gpus(name: str) -> None:
    sizes = []
    for times in (1, 2, 5, 25):
        found = plan(EVERY[name].model_copy(update={"rate": EVERY[name].rate * times})).traffic
        assert found is not None
        sizes.append(float(found.busiest.gpus))
    assert all(more >= fewer / (1 + INDISTINCT) for fewer, more in pairwise(sizes))


def test_a_peak_counts_as_the_rate_it_reaches() -> None:
    peak, mean = plan(DENSE.model_copy(update={"rate": 5, "peak": 2})), answer_to("dense")
    assert peak.advice.recommended == mean.advice.recommended
    assert peak.traffic is not None
    assert mean.traffic is not None
    assert peak.traffic.replicas == mean.traffic.replicas


def test_where_no_number_of_replicas_bears_the_rate_one_replica_decides() -> None:
    """The first token is in time with one request at once, and not for 95 of 100 that come at random."""
    alone = plan(DENSE.model_copy(update={"concurrency": 1, "rate": 0})).result
    fastest = float(alone.at_asked(alone.serving.ttft)[alone.does_job].min())
    asked = DENSE.model_copy(update={"concurrency": 1, "ttft": fastest * 1000 * 1.0001})
    answer, plain = plan(asked), plan(asked.model_copy(update={"rate": 0}))
    assert answer.result.does_job.any()
    assert np.isinf(answer.result.fleets.sizes(among=answer.result.does_job, within=INDISTINCT)).all()
    assert answer.advice.recommended == plain.advice.recommended
    assert answer.fleet_words == answer.leaner_words == ""


def test_room_for_fewer_at_once_is_offered_where_it_takes_fewer_gpus() -> None:
    """A fifth of a request in hand needs no room for 64."""
    answer = answer_to("small")
    other, found = answer.leaner, answer.traffic
    assert other is not None
    assert found is not None
    assert other.traffic is not None
    assert other.scenario == SMALL.model_copy(update={"concurrency": found.at_once})
    assert found.busiest.in_hand < found.at_once < SMALL.concurrency
    assert other.traffic.busiest.gpus < found.busiest.gpus
    assert f"{found.at_once} the rate takes {other.traffic.replicas} × " in answer.leaner_words
    assert other.leaner is None
    unasked = plan(SMALL.model_copy(update={"rate": 0}))
    assert unasked.leaner_words == ""
    assert "traffic" not in vars(unasked), "traffic is not worked out for nobody"


@given(st.integers(1, 200), st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24]))
def test_a_fleet_is_bought_in_whole_machines_of_one_size(replicas: int, size: int) -> None:
    bought = float(fleet_gpus(np.array([float(replicas)]), gpus=np.array([size]), gpu=H100)[0])
    assert bought >= replicas * size
    if size & (size - 1) == 0:
        assert bought == replicas * size
    if size <= H100.node:
        assert any(bought % machine == 0 for machine in sizes_sold(H100) if machine >= size)
    else:
        assert bought % H100.node == 0


def test_infinitely_many_replicas_are_none() -> None:
    assert np.isinf(fleet_gpus(np.array([np.inf]), gpus=np.array([2]), gpu=H100)).all()
    assert isinstance(answer_to("dense").result.fleets, Fleets)


def test_of_fleets_alike_the_one_whose_gpus_do_most_is_taken() -> None:
    """Two replicas on one GPU each bear more than one on two, and are sold in smaller machines."""
    answer = plan(Scenario(model="Qwen/Qwen3-32B", gpu="a100-sxm-80", concurrency=16, rate=1.7))
    best = answer.advice.recommended
    assert best is not None
    assert (str(best.layout), answer.replicas) == ("TP1", 2)
