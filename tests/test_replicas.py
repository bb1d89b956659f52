"""Replicas for a rate, and machines for replicas."""

import math

from hypothesis import given
from hypothesis import strategies as st

from parplan.replicas import instances_needed, replicas_needed


@given(st.floats(0.01, 1e4), st.floats(0.01, 100), st.floats(1, 5), st.floats(0.1, 0.99))
def test_replicas_are_enough_and_one_less_is_not(
    rate: float, sustained: float, peak: float, ceiling: float
) -> None:
    replicas = float(replicas_needed(rate, sustained=sustained, peak=peak, ceiling=ceiling))
    busiest = rate * peak / sustained
    assert busiest / replicas <= ceiling * (1 + 1e-9)
    assert replicas == 1 or busiest / (replicas - 1) > ceiling


@given(st.integers(1, 500), st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8, 72]))
def test_instances_hold_all_replicas_and_one_less_does_not(replicas: int, gpus: int, instance: int) -> None:
    instances = float(instances_needed(replicas, gpus=gpus, instance=instance))
    assert instances * instance >= replicas * gpus
    if gpus <= instance:
        assert (instances - 1) * (instance // gpus) < replicas
    else:
        assert instances == replicas * math.ceil(gpus / instance)
