"""Laws of queues: how numbers in hand swing, how long newcomers wait, and how often both waits exceed a time.

What a replica is, and which of these waits its requests meet, is said in `load`. Everything is elementwise.
"""

from typing import TypedDict, Unpack

import numpy as np

from parplan.units import Array, Number, Seconds

HALVINGS = 30
"""Halvings of a bracket when a root is looked for: nine digits."""
ALIKE = 1e-3
"""Relative difference between two rates that a formula with a pole where they meet is kept at."""


class Waits(TypedDict):
    """The two waits of `exceeded`."""

    shares: tuple[Number, Number]
    scales: tuple[Seconds, Seconds]
    phases: Number


def crowding(share: Number, *, variation: Number) -> Number:
    """Variance of the number of running requests over that of requests which share the replica evenly.

    Prompts go first: one more arrival takes a slot and holds up everyone's decoding besides, so numbers swing wider.

        (1 - v^2 / 2) / (1 - share) + v^2 / 2 (1 - share),   v = min(variation, 1)

    Derived here for decode steps of constant length. Even sharing has variance mean / (1 - share). Like lengths (v = 0)
    have that of the arrivals during one stay, which they prolong: mean / (1 - share)^2. Exponential ones (v = 1) have
    that of a diffusion with noise a / (1 - share)^2 from arrivals and a from departures: mean (1 / (1 - share)^2 + 1)
    / 2. In between, a straight line in v^2.

    Args:
        share: of the replica's time that prompts take, below one.
        variation: standard deviation over mean of the output length.

    >>> [float(crowding(share, variation=v)) for share, v in ((0.5, 0.0), (0.5, 1.0), (0.0, 0.3))]
    [2.0, 1.25, 1.0]
    """
    varied = np.square(np.minimum(variation, 1.0)) / 2
    return (1 - varied) / (1 - share) + varied * (1 - share)


def parts(packed: Number) -> Number:
    """Parts of the wait behind other newcomers' prompts: from 1, one prompt a step, to 2, many a step.

    One by one, a newcomer waits for the prompts before its own. When all that come during one step ride on the next
    and have their first token at its end, it waits out the rest of a step with prompts, and then its companions'
    prompts. In between, 2 - 1 / packed.

    Args:
        packed: prompts one step takes, see `prompts_per_step`.

    >>> [float(parts(packed)) for packed in (0.5, 1.0, 4.0)]
    [1.0, 1.0, 1.75]
    """
    return 2 - 1 / np.maximum(packed, 1.0)


def prompt_wait(share: Number, *, prompt: Seconds, packed: Number) -> Seconds:
    """Mean wait behind other newcomers' prompts, over all requests.

        share x prompt / 2 (1 + share x parts) / (1 - share^2)

    One prompt a step: the queue with constant service, share x prompt / 2 / (1 - share) (Pollaczek and Khinchine). Many
    a step: the step a newcomer falls into is longer than the mean one by prompt x share / (1 - share^2); it waits out
    half of it, and its companions' prompts are `share` of it.

    Args:
        share: of the replica's time that prompts take, below one.
        prompt: time of one prompt, all alike.
        packed: prompts one step takes.

    >>> float(prompt_wait(0.5, prompt=1.0, packed=1.0))
    0.5
    """
    return share * prompt / 2 * (1 + share * parts(packed)) / (1 - np.square(share))


def prompt_wait_chance(share: Number, *, per_step: Number, packed: Number) -> Number:
    """Share of newcomers that wait behind another newcomer's prompt.

        1 - (1 - share) exp(-per step x parts)

    The others come while no prompt is worked on, during a step in which nobody else comes; where many prompts share a
    step, a step free of prompts also needs one before it in which nobody came.

    Args:
        share: of the replica's time that prompts take.
        per_step: prompts that come during a decode step.
        packed: prompts one step takes.
    """
    return 1 - (1 - share) * np.exp(-per_step * parts(packed))


def phases_of_prompt_wait(share: Number, *, packed: Number) -> Number:
    """Mean number of exponentials, 1 to 2, whose sum varies as the wait of those who wait behind prompts does.

        n = (2 + sqrt(4 - 2 c)) / c, c = 1 + v^2, v^2 = (1 + 2 share) / 3, at least 1/2

    Where prompts are rare, the wait is what is left of one, anything up to a whole prompt alike (v^2 = 1/3); the busier
    the replica, the nearer to an exponential (v^2 = 1). At least `parts(packed)`: companions' prompts come on top.

    Args:
        share: of the replica's time that prompts take, below one.
        packed: prompts one step takes.

    Source: second moment of the queue with constant service (Pollaczek and Khinchine) over those that wait;
    a mixture of one and two exponentials of mean n / a has v^2 = (4 n - 2) / n^2 - 1.

    >>> [round(float(phases_of_prompt_wait(share, packed=1.0)), 9) for share in (0.1, 0.25, 1.0)]
    [2.0, 2.0, 1.0]
    """
    spread = 1 + np.maximum((1 + 2 * np.asarray(share)) / 3, 0.5)
    return np.maximum((2 + np.sqrt(4 - 2 * spread)) / spread, parts(packed))


def exceeded(
    time: Seconds, *, shares: tuple[Number, Number], scales: tuple[Seconds, Seconds], phases: Number
) -> Number:
    """Share of requests whose wait behind prompts and wait for admission together exceed a time.

    Each wait, independently of the other, strikes a share of the requests. The second then is exponential with rate
    b = 1 / scale. The first is an exponential of rate a = phases / scale, or, for phases - 1 of those it strikes, a sum
    of two such (Erlang). Sums of one or two and the other exceed t with, c = a - b,

        exp(-a t) + a / c (exp(-b t) - exp(-a t))
        exp(-a t) (1 + a t) + (a / c)^2 (exp(-b t) - exp(-a t) (1 + c t))

    Args:
        shares: struck by either wait.
        scales: mean of either wait where it strikes, above zero.
        phases: mean number of exponentials in the first, between 1 and 2.

    >>> round(float(exceeded(0.0, shares=(0.5, 0.5), scales=(1.0, 2.0), phases=1.5)), 12)
    0.75
    >>> round(float(exceeded(2.0, shares=(0.0, 1.0), scales=(1.0, 2.0), phases=1.0)), 6)
    0.367879
    """
    (behind, waiting), late, twice = shares, np.maximum(time, 0.0), np.asarray(phases) - 1
    a, b = phases / np.asarray(scales[0]), 1 / np.asarray(scales[1])
    a = np.where(np.abs(a - b) <= ALIKE * b, b * (1 + ALIKE), a)
    c, short, long = a - b, np.exp(-a * late), np.exp(-b * late)
    first = short * (1 + twice * a * late)
    both = (
        first + (1 - twice) * a / c * (long - short) + twice * (a / c) ** 2 * (long - short * (1 + c * late))
    )
    some = behind * (1 - waiting) * first + waiting * (1 - behind) * long + behind * waiting * both
    return np.where(np.asarray(time) < 0, 1.0, some)[()]


def exceeded_beyond(time: Seconds, *, bases: Array, **waits: Unpack[Waits]) -> Number:
    """Share of requests for which a base and the two waits of `exceeded` together exceed a time.

    Args:
        bases: equally likely times without the waits, [..., bases].

    >>> float(exceeded_beyond(0.5, bases=np.array([0.0, 1.0]), shares=(0, 0), scales=(1, 1), phases=1))
    0.5
    """
    (one, two), (first, second) = (
        [np.asarray(part)[..., None] for part in pair] for pair in (waits["shares"], waits["scales"])
    )
    over = exceeded(
        np.asarray(time)[..., None] - bases,
        shares=(one, two),
        scales=(first, second),
        phases=np.asarray(waits["phases"])[..., None],
    )
    return np.mean(over, axis=-1)[()]


def quantile_beyond(bases: Array, *, quantile: float, **waits: Unpack[Waits]) -> Seconds:
    """Time that a share of the requests stays within when the two waits of `exceeded` come on top of a base.

    Looked for by halving between the shortest base and a time that hardly any request exceeds; the shortest base itself
    where no more than the others wait.

    Args:
        bases: equally likely times without the waits, [..., bases].
        quantile: the share, above 0 and below 1.

    >>> round(float(quantile_beyond(np.array([1.0]), quantile=0.95, shares=(0.0, 0.5), scales=(1.0, 1.0), phases=1)), 6)
    3.302585
    """
    least = low = bases.min(axis=-1)
    high = bases.max(axis=-1) + 2 * sum(waits["scales"]) * np.log(2 / (1 - quantile))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        over = exceeded_beyond(middle, bases=bases, **waits)
        later = over > 1 - quantile
        low, high = np.where(later, middle, low), np.where(later, high, middle)
    return np.where(exceeded_beyond(least, bases=bases, **waits) > 1 - quantile, high, least)[()]
