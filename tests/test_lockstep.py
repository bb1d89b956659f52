"""Attention replicas that step together: limits, what bunching saves, and a chain of steps drawn at random."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.lockstep import beyond, excess, held, line
from parplan.serving import Prefill
from parplan.units import Count, Number, Seconds


def prompt(
    *, replicas: Count = 8, chunks: Count = 1.0, alone: Seconds = 0.2, one: Seconds = 0.4, most: Count = 4.0
) -> Prefill:
    """A prompt of made-up times."""
    return Prefill(
        chunks=chunks, latency=one, alone=alone, one=one, full=one + (most - 1) * 0.3, most=most, shared=0.0,
        replicas=replicas, stages=1, together=0.0,
    )  # fmt: skip


def even(replicas: int, *, cost: float, chunks: float = 1.0) -> Prefill:
    """A prompt whose chunks all cost the same, however many come together."""
    whole, most = replicas * cost, 200.0
    return Prefill(
        chunks=chunks, latency=whole, alone=cost, one=whole, full=most * whole, most=most, shared=0.0,
        replicas=replicas, stages=1, together=0.0,
    )  # fmt: skip


@given(st.integers(2, 64), st.floats(0.01, 0.8), st.floats(0.005, 0.1))
def test_where_every_prompt_costs_the_same_bunching_changes_nothing(
    replicas: int, busy: float, step: float
) -> None:
    """All prompts of a second then take `busy` of it, and decode steps the rest."""
    cost = 0.05
    found = held(busy / cost, step=step, prompt=even(replicas, cost=cost))
    assert found.mean == pytest.approx(step * busy / (1 - busy), rel=0.02)


@pytest.mark.parametrize("chunks", [1.0, 3.0])
def test_few_prompts_hold_up_one_step_per_chunk_each(chunks: float) -> None:
    one, rate, step = prompt(chunks=chunks), 1e-5, 0.03
    found = held(rate, step=step, prompt=one)
    assert found.often == pytest.approx(rate * chunks * step, rel=1e-3)
    assert found.longer == pytest.approx(one.alone, rel=1e-3)
    assert beyond(found.riders, prompt=one) == pytest.approx(0.0, abs=1e-6)


@given(st.floats(0.1, 8.0), st.integers(2, 32))
def test_bunched_prompts_hold_up_no_more_than_as_many_spread_over_the_steps(
    rate: float, replicas: int
) -> None:
    each, step = 0.02, 0.03
    one = prompt(replicas=replicas, alone=0.2, one=0.2 + each * (replicas - 1), most=50.0)
    one = replace(one, full=one.one + 49 * replicas * each)  # every further prompt costs the same
    found = held(rate, step=step, prompt=one)
    per_step = rate * float(step + found.mean) / replicas
    assert found.mean <= one.apart(per_step) * 1.02


@given(st.floats(0.1, 8.0), st.floats(1.01, 1.5))
def test_more_prompts_hold_up_more(rate: float, more: float) -> None:
    few, many = (held(rate * share, step=0.03, prompt=prompt()) for share in (1, more))
    assert few.mean < many.mean
    assert few.chance < many.chance
    assert beyond(few.riders, prompt=prompt()) <= beyond(many.riders, prompt=prompt())


@pytest.mark.parametrize("rate", [1.0, 4.0, 7.0])
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_chain_of_steps_drawn_at_random_agrees(rate: float, chunks: int) -> None:
    one, step, random = (
        prompt(chunks=chunks, most=4.0 if chunks == 1 else 1.0),
        0.03,
        np.random.default_rng(5),
    )
    rate /= chunks
    each, more = (one.one - one.alone) / 7, 0.3 / 8
    last, steps, longer, drawn = [0] * chunks, 0, 0.0, 400_000
    for draw in random.random(drawn):
        number = sum(last)
        adds = one.alone + (min(number, 8) - 1) * each + max(number - 8, 0) * more if number else 0.0
        steps, longer = steps + bool(number), longer + float(adds)
        last = [poisson(draw, mean=rate * float(step + adds)), *last[:-1]]
    found = held(rate, step=step, prompt=one)
    assert float(found.often) == pytest.approx(steps / drawn, rel=0.1)
    assert float(found.mean) == pytest.approx(longer / drawn, rel=0.1)


def poisson(draw: float, *, mean: float) -> int:
    """A Poisson number, by a draw between 0 and 1."""
    number, chance = 0, np.exp(-mean)
    while draw > chance and number < 1000:
        draw -= chance
        number += 1
        chance *= mean / number
    return number


@pytest.mark.parametrize("mean", [0.5, 2.0, 8.0, 20.0])
@pytest.mark.parametrize("limit", [1, 8])
def test_excess_is_near_that_of_a_poisson_number(mean: float, limit: int) -> None:
    drawn = np.maximum(np.random.default_rng(3).poisson(mean, 200_000) - limit, 0).mean()
    assert float(excess(mean, limit=limit)) == pytest.approx(float(drawn), abs=0.06 * np.sqrt(mean) + 0.05)


def test_a_single_line_waits_as_the_queue_with_constant_service() -> None:
    """Pollaczek and Khinchine: busy / (1 - busy) / 2 services, over all."""
    share, wait = line(0.8, time=1.0, replicas=1)
    assert float(share * wait) == pytest.approx(0.8 / 0.2 / 2)
    several: Number = line(6.4, time=1.0, replicas=8)[0]
    assert float(several) < float(share)
