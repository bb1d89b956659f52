"""Cost of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.cost import cost_per_million_tokens

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
