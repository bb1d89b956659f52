"""Open-loop load: what users feel when requests come at their own pace, and how many replicas that takes.

`Serving` knows a replica that always has the same number of requests in hand. Here requests come at random
(Poisson), so that the number varies, and what finds all slots taken waits for admission, first come first served.

Shapes: `serving` is [..., batches] for one layout, many, or a grid; rates, layouts and results broadcast with [...].
One layout's curve: serving [batches], rates [rates]. All layouts at one rate: serving [layouts, batches], a scalar.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from parplan.layout import Layout
from parplan.serving import Serving
from parplan.units import Array, Count, Number, Seconds

KNEE_WAITING = 0.05
"""Share of requests that wait for admission at the knee: what the 95th percentile begins to see."""
LEAST_RATE = 1e-12
"""Requests per second that stand for none at all."""
HALVINGS = 40
"""Halvings of a bracket when a root is looked for: twelve digits."""


@dataclass(frozen=True)
class Queue:
    """A replica as its requests find it. A state is a number of running requests, 0 to `slots`. [..., states]"""

    slots: Count
    """Requests that run at once at most, [...]."""
    sustained: Number
    """Requests per second it answers with all slots taken, [...]."""
    states: Array
    """Running requests; the last is all slots."""
    stands_for: Array
    """Whole numbers of running requests each state stands for."""
    log_product: Array
    """Sum of the logarithms of requests per second over all states from one up to this one."""
    first: Array
    """Time to first token of a newcomer that finds this state, without waiting behind other newcomers."""
    step: Array
    """Time between two tokens of the others, which the newcomer waits out; none when it finds the replica idle."""
    prompt: Seconds
    """What one prompt adds to the steps of the attention replica it goes to, [...]."""
    data: Count
    """Attention replicas, [...]."""


@dataclass(frozen=True)
class Load:
    """A deployment under random arrivals, all replicas alike. [...]"""

    arrival_rate: Number
    """Requests per second over all replicas."""
    utilisation: Number
    """Share of what the replicas can sustain; one and more: the line grows without end."""
    in_hand: Count
    """Mean requests one replica has in hand, running or waiting."""
    wait_mean: Seconds
    """Mean wait for admission, of all requests."""
    ttft_p50: Seconds
    """Time to first token half of the requests stay within."""
    ttft_p95: Seconds
    """Time to first token 95 of 100 requests stay within."""
    knee_rate: Number
    """Requests per second over all replicas from which more than 5 of 100 requests wait for admission."""
    replicas: Count
    gpus: Count
    """GPUs of all replicas."""


def state_grid(slots: int) -> Array:
    """Numbers of running requests to look at: every one up to 16, then in steps of a quarter of their square root.

    The number of requests a lightly loaded replica has in hand is Poisson distributed, its spread the square root of
    its mean; a sum over a bell curve needs no more than two points per spread.

    >>> state_grid(23).tolist()[-6:]
    [16.0, 17.0, 18.0, 19.0, 21.0, 22.0]
    """
    roots = np.arange(8 * int(np.ceil(np.sqrt(slots))) + 1)
    return np.unique(np.minimum(np.round(roots**2 / 64), slots)).astype(float)


def queue(serving: Serving, *, layout: Layout) -> Queue:
    """A replica in every state, from its closed-loop serving at a grid of concurrencies.

    Between two concurrencies of the grid the time of a request is linear in the number of running ones.

    Args:
        serving: [..., batches], concurrencies ascending from one and, in the last column, all slots taken.
        layout: of shape [...].
    """
    running, waiting, rate, ttft, tpot = np.broadcast_arrays(
        serving.running, serving.waiting, serving.requests_per_s, serving.ttft, serving.tpot
    )
    concurrency = (running + waiting).reshape(-1, running.shape[-1])[0]
    slots = running[..., -1:]
    grid = state_grid(int(slots.max()))
    states = np.minimum(grid, slots)

    def at(values: Array, *, number: Array) -> Array:
        right = np.clip(np.searchsorted(concurrency, number), 1, concurrency.size - 1)
        low, high = running[..., right - 1], running[..., right]
        part = np.clip((np.minimum(number, slots) - low) / np.maximum(high - low, 1.0), 0.0, 1.0)
        return values[..., right - 1] * (1 - part) + values[..., right] * part

    log_rate = np.log(np.maximum(states, 1.0) / at(running / rate, number=grid))
    gaps = np.diff(states, axis=-1)
    pieces = (gaps + 1) / 2 * log_rate[..., 1:] + (gaps - 1) / 2 * log_rate[..., :-1]
    ends = np.pad(gaps, [(0, 0)] * (gaps.ndim - 1) + [(1, 1)], constant_values=1.0)
    others = np.maximum(np.ceil(slots[..., 0] / np.asarray(layout.data)) - 1, 0.0)
    output = np.asarray(serving.tokens_per_s / serving.requests_per_s)[..., -1]
    return Queue(
        slots=slots[..., 0],
        sustained=rate[..., -1],
        states=states,
        stands_for=(ends[..., 1:] + ends[..., :-1]) / 2,
        log_product=np.concatenate([np.zeros_like(slots), np.cumsum(pieces, axis=-1)], axis=-1),
        first=at(ttft - waiting / rate, number=grid + 1),
        step=np.where(states > 0, at(tpot, number=grid + 1), 0.0),
        prompt=np.asarray(serving.prefill)[..., -1] * output / np.maximum(others, 1.0),
        data=np.asarray(layout.data),
    )


def found(arrival_rate: Number, *, queue: Queue) -> tuple[Array, Array]:
    """How likely a newcomer finds the replica in every state, and all slots taken.

    A birth-death chain: requests come at rate a, and leave at the rate X(n) the replica answers them with n running,
    X(slots) when more are in hand. Random arrivals see what an observer sees (PASTA).

        p(n) = p(0) a^n / (X(1) ... X(n)),   p(all taken) = p(slots) / (1 - a / X(slots))

    Exact for output lengths that vary like an exponential; while nothing waits, for any lengths, since running
    requests share the replica (processor sharing is insensitive to them). With equal X(n) / n it is Erlang's C formula.

    Args:
        arrival_rate: a, of one replica; from the sustained rate up all slots are taken.

    Returns:
        [..., states], the last state with everything beyond it, and [...].

    Source: Cohen, "The multiple phase service network with generalized processor sharing", Acta Informatica 12 (1979).
    """
    rate = np.maximum(arrival_rate, LEAST_RATE)
    load = np.minimum(utilisation(rate, sustained=queue.sustained), 1 - LEAST_RATE)
    log_weight = np.log(rate)[..., None] * queue.states - queue.log_product
    log_weight = log_weight - log_weight.max(axis=-1, keepdims=True)
    weight = np.exp(log_weight) * queue.stands_for
    full = np.exp(log_weight[..., -1]) / (1 - load)
    weight[..., -1] += full * load
    total = weight.sum(axis=-1)
    return weight / total[..., None], full / total


def utilisation(arrival_rate: Number, *, sustained: Number) -> Number:
    """Share of the requests per second a replica can answer that it is asked for.

    >>> utilisation(0.5, sustained=2.0)
    0.25
    """
    return arrival_rate / sustained


def wait_scale(arrival_rate: Number, *, sustained: Number, variation: Number) -> Seconds:
    """Mean wait of those that find all slots taken; their waits are about exponentially distributed.

        (1 + variation^2) / 2 / (sustained - arrival rate)

    Exact for variation one (a queue of many servers with exponential service). For others the two-moment
    approximation of Allen and Cunneen, best near full load.

    Args:
        variation: standard deviation over mean of the output length: 0 all alike, 1 exponential.

    Source: Allen, Probability, Statistics and Queueing Theory (1990), section 5.2.

    >>> wait_scale(1.5, sustained=2.0, variation=1.0)
    2.0
    """
    room = np.asarray(sustained) - arrival_rate
    return np.where(room > 0, (1 + np.square(variation)) / 2 / np.where(room > 0, room, 1.0), np.inf)[()]


def prompt_wait_scale(prompts_per_s: Number, *, prompt: Seconds) -> Seconds:
    """Mean wait of those that meet another newcomer's prompt on their attention replica; prompts go in order.

        prompt / 2 / (1 - prompts per second x prompt)

    Args:
        prompts_per_s: of one attention replica.
        prompt: what a prompt adds to the replica's steps, all alike.

    Source: Pollaczek and Khinchine's formula for a queue with constant service (M/D/1).

    >>> prompt_wait_scale(1.0, prompt=0.5)
    0.5
    """
    return prompt / 2 / (1 - np.minimum(np.asarray(prompts_per_s) * prompt, 1 - LEAST_RATE))


def exceeded(time: Seconds, *, shares: tuple[Number, Number], scales: tuple[Seconds, Seconds]) -> Number:
    """Share of requests whose two waits together exceed a time.

    Each wait, independently, strikes a share of the requests and is then exponential with a mean (its scale).

    >>> exceeded(0.0, shares=(0.5, 0.5), scales=(1.0, 2.0))
    0.75
    """
    (one, two), (short, long) = shares, scales
    short = np.where(np.isclose(short, long, rtol=1e-6), np.asarray(long) * (1 - 1e-6), short)
    tail_short, tail_long = np.exp(-np.divide(time, short)), np.exp(-np.divide(time, long))
    both = (long * tail_long - short * tail_short) / (long - short)
    after = one * (1 - two) * tail_short + two * (1 - one) * tail_long + one * two * both
    return np.where(np.asarray(time) < 0, 1.0, after)[()]
