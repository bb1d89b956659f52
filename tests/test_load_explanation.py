"""How the figures of Load, Buy and Hardware are made: what is explained is what is shown, put together anew."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from parplan import Scenario, plan
from parplan.across import plans_across
from parplan.instances import bought
from parplan.load_explanation import (
    MEDIAN,
    MOST,
    bearable_rate,
    busy_share,
    first_token,
    in_hand,
    knee,
    replica_count,
    token_interval,
    wait,
)
from parplan.problem import Problem
from parplan.products import Applied, Explanation, described
from parplan.purchase_explanation import napkin_gpus, rung_machines
from parplan.scenario import Answer
from parplan.traffic import Traffic
from parplan.ui import buy_tab, hardware_tab, load_tab, method_page, prices
from parplan.ui.explain import EXPLAINED

EXPERTS = "deepseek-ai/DeepSeek-V3.1"
SCENARIOS = {
    "knee": Scenario(rate=10, peak=2),
    "targets": Scenario(rate=10, peak=2, ttft=2000, tpot=60, prompt=3000, output=500),
    "first token": Scenario(rate=3, ttft=400, prompt=6000, output=300),
    "experts": Scenario(model=EXPERTS, weights="native", gpu="h200-sxm", concurrency=128, rate=20, peak=1.5),
    "few slots": Scenario(model="Qwen/Qwen3-8B", gpu="l4", concurrency=8, rate=2, slots=8),
    "prefix, discount": Scenario(rate=30, prefix=60, discount=30, prompt=8000),
    "own price": Scenario(gpu_hour=2.5, rate=4),
    "lots": Scenario(gpu="gb200-nvl72", rate=40, model=EXPERTS, weights="native"),
    "nobody sells it": Scenario(gpu="rtx-5090", model="Qwen/Qwen3-8B", rate=1),
}


@pytest.fixture(scope="module", params=list(SCENARIOS.values()), ids=list(SCENARIOS))
def answer(request: pytest.FixtureRequest) -> Answer:
    return plan(request.param)


def traffic(answer: Answer) -> tuple[Problem, Traffic]:
    assert answer.traffic is not None
    assert answer.traffic.replica.bearable > 0
    return answer.result.problem, answer.traffic


def applied(explained: Explanation) -> Iterator[Applied]:
    """Every formula that was applied on the way to a figure."""

    def into(one: Applied) -> Iterator[Applied]:
        yield one
        for given in one.given.values():
            for before in given.by:
                yield from into(before)

    for part in explained.parts:
        for before in part.before:
            yield from into(before)


def assert_made(explained: Explanation | None, shown: float) -> None:
    """The parts add up to what is shown, and every formula, called again, returns what is said of it."""
    assert explained is not None
    assert explained.value == pytest.approx(shown, rel=1e-9)
    assert sum(part.value for part in explained.parts) == pytest.approx(shown, rel=1e-9), explained.figure
    for one in applied(explained):
        again = one.law(**{name: given.value for name, given in one.given.items()})
        assert float(again) == one.value, one.name
    for term in explained.terms:
        assert term.words, term
        assert term.what, term


def test_what_traffic_takes_and_feels_is_what_the_tab_shows(answer: Answer) -> None:
    problem, found = traffic(answer)
    asked, busiest, mean = answer.scenario, found.busiest, found.mean
    made = {
        found.replicas: replica_count(problem, found, rate=asked.rate, peak=asked.peak),
        found.bearable: bearable_rate(problem, found),
        found.knee: knee(problem, found),
        float(busiest.utilisation): busy_share(problem, found, at=busiest),
        float(mean.utilisation): busy_share(problem, found, at=mean),
        float(busiest.ttft_p50): first_token(problem, found, at=busiest, quantile=MEDIAN),
        float(busiest.ttft_p95): first_token(problem, found, at=busiest, quantile=MOST),
        float(busiest.wait_p50): wait(problem, found, at=busiest, quantile=MEDIAN),
        float(busiest.wait_p95): wait(problem, found, at=busiest, quantile=MOST),
        float(found.tpot): token_interval(problem, found),
        float(busiest.in_hand): in_hand(problem, found, at=busiest),
    }
    for shown, explained in made.items():
        assert_made(explained, shown)
        assert explained.sources


def test_the_dialog_of_the_tab_has_every_box(answer: Answer) -> None:
    _, found = traffic(answer)
    best = answer.advice.recommended
    assert best is not None
    figures = load_tab.explained(found, answer, best)
    assert {"Replicas", "GPUs", "Requests/s they bear", "Knee", "Busy at the peak", "Time per token"} <= set(
        figures
    )
    gpus = figures["GPUs"].made()
    assert_made(gpus, float(found.busiest.gpus))


def test_waits_are_part_of_the_time_to_first_token(answer: Answer) -> None:
    """A wait is no longer than the time with the prompt on top, and no shorter than that less the longest base."""
    _, found = traffic(answer)
    busiest, alone = found.busiest, found.busiest.newcomers.alone
    for waited, until_first in ((busiest.wait_p50, busiest.ttft_p50), (busiest.wait_p95, busiest.ttft_p95)):
        assert float(until_first) - alone.max() <= float(waited) + 1e-9
        assert float(waited) <= float(until_first) - alone.min() + 1e-9


def test_nobody_waits_for_half_of_the_requests_of_an_idle_replica() -> None:
    found = plan(Scenario(rate=0.01)).traffic
    assert found is not None
    assert float(found.busiest.wait_p50) == 0.0


def test_replicas_without_a_rate_are_those_planned() -> None:
    problem, found = traffic(plan(Scenario(replicas=3)))
    assert_made(replica_count(problem, found, rate=0, peak=1), 3)


def test_every_rung_explains_its_size_energy_and_bill(answer: Answer) -> None:
    gpu = answer.result.problem.gpu
    for rung in answer.advice.ladder:
        rows = {
            prices.machines(one.purchase): buy_tab._offer(rung, one, answer.scenario)
            for one in rung.offers
            if one.purchase.price is not None
        }
        opened = buy_tab.explained(rung, answer)
        assert set(opened) == (set(rows) or ({""} if rung.plan else set()))
        for machines, figures in opened.items():
            if rung.gpus is not None:
                assert_made(figures["GPUs"].made(), rung.gpus)
            if gpu.tdp is not None and rung.gpus is not None:
                assert_made(figures["J per token"].made(), gpu.tdp * rung.gpus / rung.tokens_per_s)
            for column, shown in rows.get(machines, {}).items():
                if column.startswith("USD"):
                    assert isinstance(shown, float)
                    assert_made(figures[column].made(), shown)
                    assert "Price of" in figures[column].note


def test_machines_are_as_many_as_the_formula_says_in_whole_lots(answer: Answer) -> None:
    for rung in answer.advice.ladder:
        for one in rung.purchases if rung.plan else ():
            assert rung.plan is not None
            needed = rung_machines(rung, one, gpus=rung.plan.gpus)
            assert bought(one.instance, count=int(needed.value)).count == one.count


def test_the_bill_of_a_rate_is_explained_at_the_mean_and_fully_loaded(answer: Answer) -> None:
    _, found = traffic(answer)
    for rate in (answer.scenario.rate, found.bearable):
        for paid in answer.bills(rate):
            opened = load_tab.bill_explained(paid, answer)
            for column, shown in load_tab._row(paid).items():
                if column.startswith("USD"):
                    assert isinstance(shown, float)
                    assert_made(opened[column].made(), shown)


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize(
    "scenario", [SCENARIOS["targets"], SCENARIOS["own price"]], ids=["targets", "own price"]
)
def test_every_row_of_the_hardware_is_explained(scenario: Scenario, *, filled: bool) -> None:
    answer = plan(scenario.model_copy(update={"replicas": 3}))
    seen = 0
    for found in plans_across(answer.scenario).values():
        option = hardware_tab.of(found, answer.offers, answer.scenario, filled=filled)
        row: dict[str, Any] = dict(hardware_tab._row(option))
        there = answer.scenario.on(found.gpu.name)
        for column, figure in hardware_tab.explained(option, scenario=there, filled=filled).items():
            if column in ("ms/token", "First token, ms"):
                assert_made(figure.made(), row[column] / 1000)
            else:
                assert_made(figure.made(), row[column])
            seen += column == "USD/M output"
    assert seen > 10


def test_the_napkin_comes_out_whole(answer: Answer) -> None:
    assert_made(napkin_gpus(answer.result.problem, answer.advice.napkin), answer.advice.napkin.gpus)


def test_every_formula_that_explains_a_figure_is_on_the_method_page(answer: Answer) -> None:
    _, found = traffic(answer)
    best = answer.advice.recommended
    assert best is not None
    opened = [load_tab.explained(found, answer, best)]
    for rung in answer.advice.ladder:
        opened += buy_tab.explained(rung, answer).values()
    figures = [figure.made() for figures in opened for figure in figures.values()]
    figures += [made(answer, best) for made in EXPLAINED.values()]
    listed = {one for chapter in method_page.CHAPTERS.values() for one in method_page.formulas(chapter)}
    for explained in figures:
        for law in explained.laws if explained else ():
            assert (law.__name__, inspect.getdoc(law)) in listed


def test_the_words_of_an_argument_are_those_of_the_documentation() -> None:
    def law(one: float, *, other: float) -> float:
        """A law.

        Args:
            one: the first, which takes
                two lines to say.
            other: the second, [..., batches].

        Source: nobody.
        """
        return one * other

    assert described(law, "one") == "the first, which takes two lines to say."
    assert described(law, "other") == "the second."
    assert described(law, "Source") == described(law, "third") == ""
