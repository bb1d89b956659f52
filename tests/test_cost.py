"""Cost of tokens."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import catalog
from parplan.cost import (
    Bill,
    Work,
    bought_for,
    cheapest,
    cost,
    cost_per_million_tokens,
    energy_per_token,
    replicas_held,
    stale,
)
from parplan.hardware import Instance
from parplan.instances import Purchase
from parplan.provenance import Source

SOURCE = Source.model_validate({"text": "made up for this test", "read": "2026-11-29"})
tokens = st.integers(min_value=1, max_value=10**6)
positive = st.floats(min_value=1e-3, max_value=1e6)


@given(positive, positive)
def test_cost_spent_equals_price_paid(price: float, rate: float) -> None:
    tokens_in_an_hour = rate * 3600
    assert cost_per_million_tokens(price, rate=rate) * tokens_in_an_hour / 1e6 == pytest.approx(price)


@given(positive, positive)
def test_twice_the_tokens_cost_half_each(price: float, rate: float) -> None:
    assert cost_per_million_tokens(price, rate=2 * rate) == pytest.approx(
        cost_per_million_tokens(price, rate=rate) / 2
    )


@given(positive, positive, tokens, tokens)
def test_one_bill_however_it_is_spread(price: float, rate: float, prompt: int, output: int) -> None:
    found = cost(price, work=Work(rate, prompt=prompt, output=output))
    assert found.per_request * rate * 3600 == pytest.approx(found.per_hour)
    assert found.per_million_output * output / 1e6 == pytest.approx(found.per_request)
    assert found.per_million_input * prompt / 1e6 == pytest.approx(found.per_request)
    shares = 1 / found.per_million_input + 1 / found.per_million_output
    assert 1 / found.per_million_tokens == pytest.approx(shares)


@given(positive, positive)
def test_power_drawn_is_energy_of_all_tokens(power: float, rate: float) -> None:
    assert energy_per_token(power, rate=rate) * rate == pytest.approx(power)


def test_an_h100_at_1000_tokens_a_second_takes_at_most_0_7_joules_each() -> None:
    """700 W, NVIDIA H100 datasheet."""
    tdp = catalog.gpus()["h100-sxm"].tdp
    assert tdp is not None
    assert energy_per_token(tdp, rate=1000.0) == pytest.approx(0.7)


def machine(gpus: int, *, price: float | None = 8.0) -> Instance:
    return Instance(provider="p", name="m", gpu="h100-sxm", gpus=gpus, price=price, sources=(SOURCE,))


@pytest.mark.parametrize(
    ("machine_gpus", "gpus", "held"), [(8, 2, 4), (8, 3, 2), (8, 8, 1), (8, 16, 1), (1, 1, 1)]
)
def test_spare_gpus_run_whole_replicas_only(machine_gpus: int, gpus: int, held: int) -> None:
    bought = Purchase(machine(machine_gpus), -(-gpus // machine_gpus))
    assert replicas_held(bought, gpus=gpus) == held
    assert held * gpus <= bought.gpus


@given(st.integers(1, 100), st.sampled_from([1, 2, 3, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8]))
def test_what_is_bought_for_replicas_holds_them(replicas: int, gpus: int, size: int) -> None:
    assert replicas_held(bought_for(machine(size), replicas=replicas, gpus=gpus), gpus=gpus) >= replicas


@given(st.integers(1, 100), st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8]))
def test_machines_bought_hold_all_replicas_and_one_less_does_not(replicas: int, gpus: int, size: int) -> None:
    bought = bought_for(machine(size), replicas=replicas, gpus=gpus)
    assert bought.gpus >= replicas * gpus
    per_machine = size // gpus
    assert (
        (bought.count - 1) * per_machine < replicas
        if per_machine
        else bought.count == replicas * gpus // size
    )


def test_the_cheapest_bill_costs_least_per_request() -> None:
    bills = [
        Bill(Purchase(machine(8), 1), held, work, cost(price, work=work))
        for price, held in ((10.0, 1), (16.0, 4), (30.0, 5))
        for work in [Work(held, prompt=1, output=1)]
    ]
    assert cheapest(bills) is bills[1]
    assert cheapest([]) is None


def test_prices_go_stale_after_thirty_days() -> None:
    today = date(2026, 11, 29)
    ages = [stale(today - timedelta(days=days), today=today) for days in (0, 30, 31)]
    assert ages == [False, False, True]
    assert stale(None, today=today)
