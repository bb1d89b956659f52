"""Traffic: what a replica bears, and how many of them a rate takes."""

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parplan.fleet import HIGHEST
from parplan.scenario import Scenario, plan
from parplan.traffic import Replica, replica_of, replicas_for, traffic
from parplan.units import written_time
from parplan.workload import OBJECTIVES, Objective

DENSE = Scenario()
EXPERTS = Scenario(model="deepseek-ai/DeepSeek-V3", weights="native", gpu="b200-sxm")


@cache
def replica(scenario: Scenario) -> Replica:
    """The recommended layout of a scenario."""
    answer = plan(scenario)
    assert answer.advice.recommended
    return replica_of(answer.result, answer.advice.recommended.index)


@pytest.mark.parametrize("scenario", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_requests_wait_before_all_that_can_be_sustained_is_asked(scenario: Scenario) -> None:
    one = replica(scenario)
    assert 0 < one.knee < one.sustained
    assert one.bearable == one.knee
    assert one.limit == "few wait for admission"


def test_what_a_replica_sustains_is_all_its_slots_over_the_time_of_a_request() -> None:
    """Little's law."""
    one = replica(DENSE)
    serving = one.serving
    first, later = np.broadcast_arrays(serving.ttft - serving.waiting / serving.requests_per_s, serving.tpot)
    stay = float(first[-1]) + (DENSE.output - 1) * float(later[-1])
    assert one.sustained * stay == pytest.approx(one.slots)


@pytest.mark.parametrize("target", ["ttft", "tpot"])
def test_a_tighter_target_bears_less_until_it_is_out_of_reach(target: str) -> None:
    best = replica(DENSE)
    easy = {"ttft": 1.05 * float(np.min(best.curve.ttft_p95)), "tpot": float(np.min(best.curve.tpot)) * 1.3}[
        target
    ]
    found = []
    for milliseconds in (1000 * 1000 * easy, 1000 * easy, 1000 * easy / 10):
        asked = best.workload.model_copy(update={target: milliseconds / 1000})
        one = Replica(layout=best.layout, serving=best.serving, packed=best.packed, workload=asked)
        found.append(one.bearable)
    loose, tight, impossible = found
    assert loose == best.knee
    assert 0 < tight < loose
    assert impossible == 0


def test_no_number_of_replicas_meets_a_target_that_one_request_misses() -> None:
    best = replica(DENSE)
    asked = best.workload.model_copy(update={"tpot": float(np.min(best.curve.tpot)) / 2})
    one = Replica(layout=best.layout, serving=best.serving, packed=best.packed, workload=asked)
    assert one.limit == "the target for each token"
    assert replicas_for(one, rate=1.0, peak=1.0) == 0


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(1.0, 10.0))
def test_as_few_replicas_as_bear_the_peak(rate: float, peak: float) -> None:
    one = replica(DENSE)
    needed = replicas_for(one, rate=rate, peak=peak)
    assert rate * peak <= needed * one.bearable * (1 + 1e-9)
    assert needed == 1 or rate * peak > (needed - 1) * one.bearable * (1 - 1e-9)


def test_replicas_of_a_single_slot_are_half_busy_where_nothing_else_is_asked() -> None:
    one = replica(DENSE.model_copy(update={"slots": 1, "concurrency": 1}))
    assert one.slots == 1
    assert one.bearable == pytest.approx(one.sustained / 2)
    assert "more than half busy" in one.words
    rate = 7.3 * one.sustained
    busy = traffic(one, rate=rate, peak=1.0, replicas=replicas_for(one, rate=rate, peak=1.0)).mean
    assert 0.4 < float(busy.utilisation) <= 0.5
    tight = Replica(
        layout=one.layout,
        serving=one.serving,
        packed=one.packed,
        workload=one.workload.model_copy(update={"ttft": 1.5 * float(np.min(one.curve.ttft_p50))}),
    )
    assert tight.limit == "the target for the first token"
    assert 0 < tight.bearable < one.bearable


def test_a_busier_time_is_busier_in_every_way() -> None:
    found = traffic(replica(DENSE), rate=10.0, peak=2.0, replicas=9)
    mean, busiest = found.mean, found.busiest
    assert busiest.utilisation == pytest.approx(2 * mean.utilisation)
    for name in ("in_hand", "wait_mean", "ttft_p50", "ttft_p95"):
        assert getattr(busiest, name) > getattr(mean, name)
    assert busiest.gpus == mean.gpus == 9 * found.replica.layout.gpus
    assert float(found.tpot) > float(mean.tpot)


def test_more_replicas_move_the_curve_to_the_right_and_leave_its_shape() -> None:
    one, five = (traffic(replica(DENSE), rate=1.0, peak=1.0, replicas=n).curve for n in (1, 5))
    assert five.arrival_rate == pytest.approx(5 * np.asarray(one.arrival_rate))
    assert five.ttft_p95 == pytest.approx(one.ttft_p95)
    assert np.max(five.arrival_rate) == pytest.approx(5 * HIGHEST * replica(DENSE).sustained)


def test_at_the_last_rate_before_the_first_token_target_is_missed_it_is_just_met() -> None:
    best = replica(DENSE)
    target = 2 * float(np.min(best.curve.ttft_p50))
    asked = best.workload.model_copy(update={"ttft": target})
    one = Replica(layout=best.layout, serving=best.serving, packed=best.packed, workload=asked)
    at, beyond = (float(one.load(one.bearable * share).ttft_p95) for share in (1.0, 1.03))
    assert at <= target < beyond


def test_time_per_token_grows_from_that_of_one_request_to_that_of_full_slots() -> None:
    one = replica(DENSE)
    found = np.asarray(one.load(np.linspace(0, 1, 50) * one.sustained).tpot)
    alone, full = np.asarray(one.serving.tpot)[[0, -1]]
    assert found[0] == pytest.approx(alone, rel=1e-6)
    assert (np.diff(found) > 0).all()
    assert found[-1] == pytest.approx(full, rel=0.1)


def test_five_in_a_hundred_come_later_than_the_time_that_95_stay_within() -> None:
    curve = replica(DENSE).curve
    for time, late in ((curve.ttft_p50, 0.5), (curve.ttft_p95, 0.05)):
        assert np.all(curve.later(time) <= late + 1e-6)
        assert np.all(curve.later(np.multiply(time, 1 - 1e-6)) >= late - 1e-6)
    jammed = replica(DENSE).load(2 * replica(DENSE).sustained)
    assert float(jammed.later(1e9)) == 1


@pytest.mark.parametrize(
    ("rate", "peak", "shown", "said"),
    [
        (1.0, 1.0, 1, r"^1 request per second: 1 replica, 2 GPUs; \d+ ms per token\.$"),
        (
            10.0,
            2.0,
            1,
            r"^10 requests per second \(peaks of 20\): 9 replicas, 18 GPUs; at the peak .* bears only 2\.34 ",
        ),
        (10.0, 2.0, 4, r"The 4 replicas shown here bear only 9\.37 per second\.$"),
        (10.0, 2.0, 9, r"per token\.$"),
        (10.0, 2.0, 12, r"The 12 replicas shown here suffice\.$"),
    ],
)
def test_it_is_said_what_a_rate_takes_and_whether_other_replicas_suffice(
    rate: float, peak: float, shown: int, said: str
) -> None:
    one = replica(DENSE)
    found = traffic(one, rate=rate, peak=peak, replicas=replicas_for(one, rate=rate, peak=peak))
    assert re.search(said, found.words(shown=shown)), found.words(shown=shown)
    assert "95 of 100" in found.felt
    assert ("on average" in found.felt) == (peak > 1)


def test_replicas_that_do_not_keep_up_are_said_not_to() -> None:
    assert "without end" in traffic(replica(DENSE), rate=1000.0, peak=1.0, replicas=1).felt


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_a_rate_the_answer_speaks_of_the_replicas_that_bear_it(objective: Objective) -> None:
    answer = plan(Scenario(rate=5, peak=2, objective=objective))
    found, best = answer.traffic, answer.advice.recommended
    assert found
    assert best
    assert answer.replicas == found.replicas
    assert f": {best.gpus * found.replicas} × " in answer.verdict
    assert " bear 5 requests per second (peaks of 10) " in answer.verdict
    assert written_time(float(found.busiest.ttft_p95)) in answer.verdict
    assert "shown here" not in answer.load_words


def test_replicas_somebody_asked_for_are_what_the_answer_speaks_of() -> None:
    """Whether they bear the rate is said beside the verdict."""
    answer = plan(Scenario(rate=5, replicas=2))
    assert (answer.replicas, answer.borne) == (2, None)
    assert "(2 × TP2) serve 128 requests at once" in answer.verdict
    assert "The 2 replicas shown here bear only" in answer.load_words


def test_a_rate_nothing_bears_leaves_the_verdict_about_requests_at_once() -> None:
    answer = plan(Scenario(rate=5, ttft=1))
    assert answer.borne is None
    assert answer.verdict == answer.advice.verdict
