"""Laws of queues: textbook results, and samples that must agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.waiting import exceeded, parts, phases_of_prompt_wait, prompt_wait, quantile_beyond


@given(st.floats(0.01, 0.9), st.floats(0.01, 10))
def test_prompts_one_by_one_wait_as_pollaczek_and_khinchine_say(share: float, prompt: float) -> None:
    assert float(prompt_wait(share, prompt=prompt, packed=1)) == pytest.approx(
        share * prompt / 2 / (1 - share)
    )
    assert prompt_wait(share, prompt=prompt, packed=100) >= prompt_wait(share, prompt=prompt, packed=1)


@given(*[st.floats(0.0, 1.0)] * 2, *[st.floats(0.01, 10)] * 2, st.floats(1.0, 2.0))
def test_two_waits_exceed_a_time_as_often_as_a_sample_of_them(
    behind: float, waiting: float, short: float, long: float, phases: float
) -> None:
    random = np.random.default_rng(1)
    size = 40_000
    drawn = 1 + (random.random(size) < phases - 1)
    first = random.gamma(drawn, short / phases, size) * (random.random(size) < behind)
    second = random.exponential(long, size) * (random.random(size) < waiting)
    for time in (0.0, 0.5 * short, long, 2 * (short + long)):
        share = exceeded(time, shares=(behind, waiting), scales=(short, long), phases=phases)
        assert float(share) == pytest.approx(np.mean(first + second > time), abs=0.015)


@given(st.floats(0.1, 0.99), st.floats(0.0, 1.0), st.floats(0.01, 10))
def test_a_quantile_is_exceeded_by_the_rest(quantile: float, waiting: float, scale: float) -> None:
    bases, shares, scales = np.linspace(1, 2, 16), (0.3, waiting), (0.5, scale)
    time = quantile_beyond(bases, quantile=quantile, shares=shares, scales=scales, phases=1.5)
    over = np.mean(exceeded(np.asarray(time) + 1e-6 - bases, shares=shares, scales=scales, phases=1.5))
    under = np.mean(exceeded(np.asarray(time) - 1e-6 - bases, shares=shares, scales=scales, phases=1.5))
    assert over <= 1 - quantile + 1e-9
    assert under >= 1 - quantile - 1e-9


@given(st.floats(0.26, 0.99))
def test_the_wait_behind_prompts_varies_as_that_behind_constant_service(share: float) -> None:
    n = float(phases_of_prompt_wait(share, packed=1.0))
    assert 1 <= n <= 2
    assert (4 * n - 2) / n**2 - 1 == pytest.approx((1 + 2 * share) / 3)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_simulated_queue_of_constant_service_varies_as_much(share: float) -> None:
    """One server, prompts of length one, waits by Lindley's recursion."""
    random, wait, waits = np.random.default_rng(3), 0.0, []
    for gap in random.exponential(1 / share, 200_000):
        wait = max(wait + 1 - gap, 0.0)
        waits.append(wait)
    those = np.array([one for one in waits[1000:] if one > 0])
    assert those.var() / those.mean() ** 2 == pytest.approx((1 + 2 * share) / 3, rel=0.06)


@given(st.floats(0.0, 0.99), st.floats(0.1, 64.0))
def test_companions_make_the_wait_even_less_variable(share: float, packed: float) -> None:
    assert parts(packed) <= phases_of_prompt_wait(share, packed=packed) <= 2
