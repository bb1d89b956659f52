"""How many replicas a rate takes, and how many machines hold them."""

import numpy as np

from parplan.units import Count, Number

ROUNDING = 1e-12
"""Share by which a count may miss a whole number and still be it."""


def replicas_needed(arrival_rate: Number, *, sustained: Number, peak: Number, ceiling: Number) -> Count:
    """Replicas that carry an arrival rate at its peak and stay within a utilisation.

        ceil(arrival rate x peak / (ceiling x sustained)), at least one

    Args:
        arrival_rate: mean requests per second over all replicas.
        sustained: requests per second one replica answers with all slots taken.
        peak: busiest over mean arrival rate, one or more.
        ceiling: utilisation allowed at the peak, above 0 and below 1. Knee over sustained rate keeps waits rare.

    >>> float(replicas_needed(10.0, sustained=2.5, peak=1.5, ceiling=0.75))
    8.0
    """
    exact = arrival_rate * peak / (ceiling * sustained)
    return np.maximum(np.ceil(exact * (1 - ROUNDING)), 1.0)  # 3.0000000000000004 replicas are three


def instances_needed(replicas: Count, *, gpus: Count, instance: Count) -> Count:
    """Instances that hold the replicas: several in one where they fit, several for one where they do not.

    Args:
        replicas: how many.
        gpus: of one replica.
        instance: GPUs of one instance.

    >>> float(instances_needed(5, gpus=2, instance=8)), float(instances_needed(5, gpus=16, instance=8))
    (2.0, 10.0)
    """
    held, taken = np.floor(np.divide(instance, gpus)), np.ceil(np.divide(gpus, instance))
    return np.where(held >= 1, np.ceil(replicas / np.maximum(held, 1)), replicas * taken)[()]
