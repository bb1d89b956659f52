"""Quantities: what is written is what is meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.units import GIB, PREFIXES, quantity, written_bytes, written_time


@given(st.floats(min_value=1e-3, max_value=1e6, allow_nan=False), st.sampled_from(sorted(PREFIXES)))
def test_a_written_quantity_is_number_times_prefix(number: float, prefix: str) -> None:
    assert quantity(f"{number!r} {prefix}B/s", unit="B/s") == number * PREFIXES[prefix]


@pytest.mark.parametrize("text", ["", "fast", "3.35 TB", "3.35 TiB/s/s", "1 000 GB/s", "--3 GB/s", "GB/s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity in B/s"):
        quantity(text, unit="B/s")


def test_gib_is_not_gb() -> None:
    """An H100's nameplate of 80 GB is 74.5 GiB; the driver reports 79.18 GiB."""
    assert quantity("80 GB", unit="B") / GIB == pytest.approx(74.506, abs=1e-3)
    assert written_bytes(quantity("79.18 GiB", unit="B")) == "79.2 GiB"


@given(st.floats(min_value=1e-7, max_value=1e7))
def test_written_times_are_short_and_carry_a_unit(seconds: float) -> None:
    number, unit = written_time(seconds).split()
    assert unit in {"µs", "ms", "s", "min", "h"}
    assert len(number) <= 5


def test_a_time_that_never_comes_says_so() -> None:
    assert written_time(float("inf")) == "never"
