"""Open-loop load: what users feel when requests come at their own pace, and how many replicas that takes.

`Serving` knows a replica that always has the same number of requests in hand. Here requests come at random
(Poisson), so the number varies, and what finds all slots taken waits for admission, first come first served.

Shapes: a serving is [..., batches]; rates, layouts and results are [...] or broadcast with it. One layout's curve:
serving [batches], rates [rates]. All layouts at one rate: serving [layouts, batches], the rate a number.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from parplan.calibration import Engine
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import tier_value
from parplan.serving import Serving
from parplan.units import Array, Count, Number, Seconds
from parplan.waiting import (
    HALVINGS,
    Waits,
    crowding,
    exceeded_beyond,
    phases_of_prompt_wait,
    prompt_wait,
    prompt_wait_chance,
    quantile_beyond,
)
from parplan.workload import Workload

KNEE_WAITING = 0.05
"""Share of requests that wait for admission at the knee: what the 95th percentile begins to see."""
KNEE_LEAST = 0.5
"""Share of the sustained rate that the knee never lies below. With a single slot, where the share that waits is the
share that is busy, the mean wait is then about as long as a request takes; with more slots it is shorter."""
TINY = 1e-12
"""A rate that stands for none, and a share by which to stay below one."""
BUSIEST = 0.999
"""Most of a replica's time that prompts are taken to fill; beyond, an engine puts prompts off."""
RANKS = (np.arange(16) + 0.5) / 16
"""A sample of newcomers, by the rank of the state they find; evenly spread."""
MOMENTS = np.arange(16) * ((np.sqrt(5) - 1) / 2) % 1
"""When in the running step each of them comes; evenly spread too, out of order with the ranks (golden ratio)."""


@dataclass(frozen=True)
class Queue:
    """A replica as newcomers find it. A state is a number of running requests, from none to all slots."""

    slots: Count
    """Requests that run at once at most, [...]."""
    sustained: Number
    """Requests per second it answers with all slots taken, [...]."""
    data: Count
    """Attention replicas, [...]."""
    latency: Seconds
    """Time to first token on an idle replica, [...]."""
    prompt: Array
    """What each newcomer's prompt adds to the steps of its attention replica, [..., states]."""
    states: Array
    """Running requests, [..., states]; the last is all slots."""
    stands_for: Array
    """How many whole numbers of running requests each state stands for, [..., states]."""
    log_product: Array
    """Sum of the logarithms of requests per second with 1, 2, ... running, up to each state, [..., states]."""
    output: Number
    """Output tokens of a request, [...]."""
    decode: Array
    """The decode step of a newcomer to each state together with what it finds, [..., states]."""


def sustained_rate(serving: Serving) -> Number:
    """Requests per second one replica answers with all slots taken: the last concurrency of the grid, [...].

    Args:
        serving: of one replica, [..., batches], see `queue`.
    """
    return np.asarray(serving.requests_per_s)[..., -1]


def utilisation(arrival_rate: Number, *, sustained: Number) -> Number:
    """Share of the requests per second a replica can answer that it is asked for.

        arrival rate / sustained

    Args:
        arrival_rate: requests per second of one replica.
        sustained: requests per second it answers with all slots taken.

    >>> utilisation(0.5, sustained=2.0)
    0.25
    """
    return arrival_rate / sustained


def prompts_per_step(engine: Engine, *, gpu: Gpu, workload: Workload) -> Number:
    """Prompts one step of an attention replica takes: the engine's step size over the tokens not in the prefix cache.

    Below one where a prompt takes several steps.
    """
    return tier_value(engine.memory.batched_tokens, gpu=gpu) / workload.new_tokens


def state_grid(slots: int) -> Array:
    """Numbers of running requests to look at: every one up to 12, then in steps of about a third of their root.

    The number of requests a lightly loaded replica has in hand is Poisson distributed, its spread the square root of
    its mean; a sum over a bell curve needs no more than two points per spread.

    >>> state_grid(23).tolist()[-9:]
    [11.0, 12.0, 14.0, 15.0, 17.0, 18.0, 20.0, 21.0, 23.0]
    """
    roots = np.arange(6 * int(np.ceil(np.sqrt(slots))) + 1)
    return np.unique(np.minimum(np.round(roots**2 / 32), slots)).astype(float)


def queue(serving: Serving, *, layout: Layout) -> Queue:
    """A replica in every state, from its closed-loop serving at a grid of concurrencies.

    Times are linear in the number of running requests between two concurrencies of the grid. Sums over all whole
    numbers between two states are taken by Euler and Maclaurin's rule.

    Args:
        serving: [..., batches], at concurrencies 1, 2 and more, ascending, until all slots are taken.
        layout: [...].
    """
    running, waiting, rate, ttft, decode, prefill, tokens = np.broadcast_arrays(
        serving.running,
        serving.waiting,
        serving.requests_per_s,
        serving.ttft,
        serving.decode.total,
        serving.prefill,
        serving.tokens_per_s,
    )
    concurrency = (running + waiting).reshape(-1, running.shape[-1])[0]
    slots = running[..., -1:]
    grid = state_grid(int(slots.max()))
    states, one = np.minimum(grid, slots), np.ones_like(slots)

    def at(values: Array, number: Array) -> Array:
        right = np.clip(np.searchsorted(concurrency, number), 1, concurrency.size - 1)
        low, high = running[..., right - 1], running[..., right]
        part = np.clip((np.minimum(number, slots) - low) / np.maximum(high - low, 1.0), 0.0, 1.0)
        return values[..., right - 1] * (1 - part) + values[..., right] * part

    log_rate = np.log(np.maximum(states, 1.0) / at(running / rate, grid))
    gaps = np.diff(states, axis=-1)
    pieces = (gaps + 1) / 2 * log_rate[..., 1:] + (gaps - 1) / 2 * log_rate[..., :-1]
    around = np.concatenate([one, gaps, one], axis=-1)
    others = (running - 1) / np.asarray(layout.data)[..., None]
    per_prompt = prefill * tokens / rate / np.maximum(others, TINY)
    return Queue(
        slots=slots[..., 0],
        sustained=rate[..., -1],
        data=np.asarray(layout.data),
        latency=ttft[..., 0],
        prompt=at(per_prompt, np.maximum(grid, 1) + 1),
        states=states,
        stands_for=(around[..., 1:] + around[..., :-1]) / 2,
        log_product=np.concatenate([0 * slots, np.cumsum(pieces, axis=-1)], axis=-1),
        output=tokens[..., -1] / rate[..., -1],
        decode=at(decode, grid + 1),
    )


def found(arrival_rate: Number, *, queue: Queue, variation: Number) -> tuple[Array, Array]:
    """How likely a newcomer finds the replica in each state, and how likely with all slots taken.

    A birth-death chain: requests come at rate a, and leave at the rate X(n) the replica answers them with n running,
    X(slots) when more are in hand. Random arrivals see what an observer sees (PASTA).

        p(n)       p(0) (a^n / (X(1) ... X(n)))^(1 / crowding)
        all taken  p(slots) / (1 - (a / X(slots))^(1 / crowding))

    Where prompts take no time to speak of (crowding one) this is exact for exponential output lengths, and for any
    lengths while nothing waits, since running requests share the replica (processor sharing does not depend on them).
    With equal X(n) / n it is Erlang's C formula. Attention replicas count as one: no slot idles while requests wait.

    Args:
        arrival_rate: a, of one replica; from the sustained rate up all slots are taken.
        variation: standard deviation over mean of the output length.

    Returns:
        [..., states], the last with everything beyond it, and [...].

    Source: Cohen, The multiple phase service network with generalized processor sharing, Acta Informatica 12 (1979).
    """
    rate = np.clip(arrival_rate, TINY, queue.sustained * (1 - TINY))
    share = np.minimum(rate / queue.data * queue.prompt[..., -1], BUSIEST)
    power = 1 / np.asarray(crowding(share, variation=variation))
    log_weight = power[..., None] * (np.log(rate)[..., None] * queue.states - queue.log_product)
    log_weight = log_weight - log_weight.max(axis=-1, keepdims=True)
    weight = np.exp(log_weight) * queue.stands_for
    top = np.exp(log_weight[..., -1])
    full = top / (1 - utilisation(rate, sustained=queue.sustained) ** power)
    weight[..., -1] += full - top
    total = weight.sum(axis=-1)
    return weight / total[..., None], full / total


def admission_chance(arrival_rate: Number, *, queue: Queue, variation: Number) -> Number:
    """Share of the requests that find all slots taken and wait for admission, see `found`.

    Args:
        arrival_rate: requests per second of one replica.
        queue: the replica in every state.
        variation: standard deviation over mean of the output length.
    """
    return found(arrival_rate, queue=queue, variation=variation)[1]


def knee_rate(queue: Queue, *, variation: Number) -> Number:
    """Requests per second of one replica up to which few wait for admission, or none for long.

        the larger of the rate from which more than 5 of 100 requests wait and half of the sustained rate

    Of many slots, the first is close to the sustained rate: the 95th percentile of the time to first token is a wait
    from there on, and grows without bound. Of a few, some requests wait at any rate worth having a replica for; at half
    of the sustained rate the mean wait is at most about the time of one request (a single exponential server), and half
    of the replica is in use.

    Args:
        queue: the replica in every state.
        variation: standard deviation over mean of the output length.
    """
    low, high = KNEE_LEAST * np.asarray(queue.sustained), np.asarray(queue.sustained)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = admission_chance(middle, queue=queue, variation=variation) > KNEE_WAITING
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return low[()]


def admission_wait(arrival_rate: Number, *, queue: Queue, variation: Number) -> Seconds:
    """Mean wait for admission of the requests that wait; about exponentially distributed.

        (1 + v^2) / 2 / (sustained - a),   v = variation x (1 - share of prompts at full load)

    Exact for many exponential servers (v = 1), otherwise the two-moment approximation of Allen and Cunneen, best near
    full load. Prompts are the part of the work that does not vary.

    Args:
        arrival_rate: a, of one replica; from the sustained rate up the wait has no end.
        queue: the replica in every state.
        variation: standard deviation over mean of the output length.

    Source: Allen, Probability, Statistics, and Queueing Theory with Computer Science Applications (2nd ed., 1990).
    """
    varied = variation * (1 - queue.sustained / queue.data * queue.prompt[..., -1])
    room = queue.sustained - np.asarray(arrival_rate)
    return np.where(room > 0, (1 + varied**2) / 2 / np.where(room > 0, room, 1.0), np.inf)[()]


def sampled(values: Array, *, chance: Array) -> Array:
    """What a sample of newcomers finds, of values by state; the sample's ranks are `RANKS`, [..., sample].

    Args:
        values: [..., states].
        chance: of finding each state, [..., states].

    >>> sampled(np.array([1.0, 2.0]), chance=np.array([0.25, 0.75])).tolist().count(1.0) / 16
    0.25
    """
    below = (np.cumsum(chance, axis=-1)[..., None, :] < RANKS[:, None]).sum(axis=-1)
    return np.take_along_axis(values, np.minimum(below, chance.shape[-1] - 1), axis=-1)


@dataclass(frozen=True)
class Newcomers:
    """What newcomers meet on a replica at an arrival rate, slots apart. [...]"""

    delayed: Number
    """Share of them whose first token other newcomers' prompts delay."""
    delay: Seconds
    """Mean delay of those."""
    phases: Number
    """How little it varies, see `phases_of_prompt_wait`."""
    alone: Array
    """Time to first token of a sample of them without that delay, [..., sample]."""
    token: Seconds
    """Mean time between their output tokens."""


def newcomers(arrival_rate: Number, *, queue: Queue, chance: Array, packed: Number) -> Newcomers:
    """What newcomers meet at an arrival rate of one replica.

        alone  prompt on an idle replica + (rest of the running step + chunks) x decode step of what is found running
        delay  wait behind prompts + (1/2 + chunks) decode step x busy / (1 - busy)
        token  decode step / (1 - busy)

    Args:
        arrival_rate: of one replica.
        chance: of finding each state, [..., states].
        packed: prompts one step takes.
    """
    prompts_per_s = np.clip(arrival_rate, TINY, queue.sustained) / queue.data
    shared = np.where(queue.states > 0, queue.decode, 0.0)
    step, added = (chance * shared).sum(axis=-1), (chance * queue.prompt).sum(axis=-1)
    prompt, chunks = added + step / packed, np.ceil(np.divide(1, packed))
    busy, share = (np.minimum(prompts_per_s * time, BUSIEST) for time in (added, prompt))
    longer = (0.5 + chunks) * step * busy / (1 - busy)
    met = np.maximum(prompt_wait_chance(share, per_step=prompts_per_s * step, packed=packed), TINY)
    found_running = sampled(np.broadcast_to(shared, chance.shape), chance=chance)
    return Newcomers(
        delayed=met,
        phases=phases_of_prompt_wait(share, packed=packed),
        delay=np.maximum((prompt_wait(share, prompt=prompt, packed=packed) + longer) / met, TINY),
        alone=np.asarray(queue.latency)[..., None] + (MOMENTS + chunks[..., None]) * found_running,
        token=(chance * queue.decode).sum(axis=-1) / (1 - busy),
    )


@dataclass(frozen=True)
class Load:
    """A deployment of replicas that are all alike under random arrivals; percentiles and the knee are looked for when
    somebody asks. [...]"""

    arrival_rate: Number
    """Requests per second over all replicas."""
    replicas: Count
    gpus: Count
    """GPUs of all replicas."""
    queue: Queue = field(repr=False)
    """One of them."""
    variation: Number
    """Standard deviation over mean of the output length."""
    newcomers: Newcomers = field(repr=False)
    """What newcomers to one of them meet, slots apart."""
    waiting: Number
    """Share of requests that wait for admission."""
    wait: Seconds
    """Mean wait for admission of those."""

    @property
    def utilisation(self) -> Number:
        """Share of what the replicas can sustain; from one up the line grows without end."""
        return utilisation(np.divide(self.arrival_rate, self.replicas), sustained=self.queue.sustained)

    @property
    def in_hand(self) -> Count:
        """Mean requests one replica has in hand, running or waiting."""
        new = self.newcomers
        first = new.alone.mean(axis=-1) + new.delayed * new.delay + self.wait_mean
        return np.divide(self.arrival_rate, self.replicas) * (first + (self.queue.output - 1) * new.token)

    @property
    def wait_mean(self) -> Seconds:
        """Mean wait for admission, over all requests."""
        return self.waiting * self.wait

    @cached_property
    def ttft_p50(self) -> Seconds:
        """Time to first token that half of the requests stay within."""
        return self._ttft(0.5)

    @cached_property
    def ttft_p95(self) -> Seconds:
        """Time to first token that 95 of 100 requests stay within."""
        return self._ttft(0.95)

    @cached_property
    def wait_p50(self) -> Seconds:
        """Wait behind other newcomers' prompts and for admission that half of the requests stay within."""
        return self._wait(0.5)

    @cached_property
    def wait_p95(self) -> Seconds:
        """The same for 95 of 100 requests."""
        return self._wait(0.95)

    @cached_property
    def knee_rate(self) -> Number:
        """Requests per second over all replicas up to which few wait for admission, see `knee_rate`."""
        return self.replicas * knee_rate(self.queue, variation=self.variation)

    def later(self, time: Seconds) -> Number:
        """Share of requests whose first token takes longer than a time."""
        share = exceeded_beyond(time, bases=self.newcomers.alone, **self.waits)
        return np.where(np.isinf(self.wait), 1.0, share)[()]

    def _ttft(self, quantile: float) -> Seconds:
        return self._within(quantile, bases=self.newcomers.alone)

    def _wait(self, quantile: float) -> Seconds:
        return self._within(quantile, bases=np.zeros_like(self.newcomers.alone[..., :1]))

    def _within(self, quantile: float, *, bases: Array) -> Seconds:
        """Time that a share of the requests stays within, of base and waits; one without an end has none."""
        time = quantile_beyond(bases, quantile=quantile, **self.waits)
        return np.where(np.isinf(self.wait), np.inf, time)[()]

    @property
    def waits(self) -> Waits:
        """Both waits of a newcomer, behind prompts and for admission; one without an end is left to the caller."""
        new, wait = self.newcomers, np.where(np.isinf(self.wait), 1.0, self.wait)
        return {"shares": (new.delayed, self.waiting), "scales": (new.delay, wait), "phases": new.phases}


def load(
    arrival_rate: Number,
    *,
    serving: Serving,
    layout: Layout,
    replicas: Count,
    variation: Number,
    packed: Number,
) -> Load:
    """What users feel when requests come at random to replicas that share them evenly.

        ttft     as in a closed loop with what is found running + delay by prompts + wait for admission
        in hand  arrival rate x (mean ttft + (output - 1) token time)   (Little)

    Assumes Poisson arrivals, prompts of one length, requests first come first served, a slot for each request of full
    length. In the tests, up to 90 % of the knee, within 10 % of a simulated engine for prompts up to ten times the
    output and tens of slots, also where room for tokens admits instead of slots; with eight slots, the 95th
    percentile within 15 %; for prompts of eighty times the output, percentiles within 15 % and requests in hand
    within 30 %. Beyond the knee waits have the
    right shape, but one per cent of capacity moves them by tens of per cent. Arrivals in bursts wait longer. Pipelines
    and several attention replicas have not been simulated.

    Args:
        arrival_rate: requests per second over all replicas, [...].
        serving: of one replica, [..., batches], see `queue`.
        layout: of one replica, [...].
        replicas: how many share the requests.
        variation: standard deviation over mean of the output length: 0 all alike, 1 exponential.
        packed: see `prompts_per_step`.
    """
    one = queue(serving, layout=layout)
    rate = np.asarray(np.divide(arrival_rate, replicas))
    chance, waiting = found(rate, queue=one, variation=variation)
    return Load(
        arrival_rate=arrival_rate,
        replicas=replicas,
        gpus=replicas * layout.gpus,
        queue=one,
        variation=variation,
        newcomers=newcomers(rate, queue=one, chance=chance, packed=packed),
        waiting=waiting,
        wait=np.asarray(admission_wait(rate, queue=one, variation=variation)),
    )
