"""Laws of queues: textbook results, and samples that must agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.waiting import exceeded, prompt_wait, quantile_beyond


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
