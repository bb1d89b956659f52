"""Open-loop load: what users feel when requests come at their own pace, and how many replicas that takes.

`Serving` knows a replica that always has the same number of requests in hand. Here requests come at random
(Poisson), so the number varies, and what finds all slots taken waits for admission, first come first served.

Shapes: a serving is [..., batches]; rates, layouts and results are [...] or broadcast with it. One layout's curve:
serving [batches], rates [rates]. All layouts at one rate: serving [layouts, batches], the rate a number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from parplan.layout import Layout
from parplan.lockstep import beyond, held, line
from parplan.serving import Prefill, Serving
from parplan.units import Array, Count, Number, Seconds
from parplan.waiting import (
    HALVINGS,
    Waits,
    crowding,
    exceeded_beyond,
    parts,
    phases_of_prompt_wait,
    prompt_wait,
    prompt_wait_chance,
    quantile_beyond,
)

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
    stretch: Array
    """How many times longer prompts hold up those who decode than the next prompt in line, see `Prefill.stretch`,
    [..., states]."""
    latency: Seconds
    """Time to first token on an idle replica, [...]."""
    prompt: Array
    """What each newcomer's prompt, and those of the others' attention replicas that come meanwhile, add to the steps of
    its attention replica in a closed loop, [..., states]."""
    riding: Prefill
    """A prompt as others see it: times are [..., states], counts [...]."""
    apart: Number
    """Share of prompts that come to each of several attention replicas by itself; 0: there is one, [...]."""
    kept: Count
    """Tokens a decode step yields to a request, [...]."""
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


def prompts_per_step(serving: Serving) -> Number:
    """Prompts one step of an attention replica takes: the engine's step size over the tokens not in the prefix cache.

    Below one where a prompt takes several steps. [...]
    """
    return np.broadcast_to(serving.riding.most / serving.riding.chunks, np.shape(serving.running))[..., -1]


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
    running, waiting, rate, ttft, decode, prefill, tokens, kept = np.broadcast_arrays(
        serving.running,
        serving.waiting,
        serving.requests_per_s,
        serving.ttft,
        serving.decode.total * serving.kept,
        serving.prefill,
        serving.tokens_per_s,
        serving.kept,
    )
    concurrency = (running + waiting).reshape(-1, running.shape[-1])[0]
    slots, data = running[..., -1:], np.asarray(layout.data)
    grid = state_grid(int(slots.max()))
    states, one = np.minimum(grid, slots), np.ones_like(slots)

    def at(values: Array, number: Array) -> Array:
        right = np.clip(np.searchsorted(concurrency, number), 1, concurrency.size - 1)
        low, high = running[..., right - 1], running[..., right]
        part = np.clip((np.minimum(number, slots) - low) / np.maximum(high - low, 1.0), 0.0, 1.0)
        return values[..., right - 1] * (1 - part) + values[..., right] * part

    riding = prompt_of(serving, shape=running.shape)
    apart = np.where(data > 1, 1 - np.asarray(riding.together)[..., 0], 0.0)
    stay = running / rate
    if apart.any():
        stay = stay_at_random(
            stay, running=running, decode=decode, tokens=tokens / rate / kept, riding=riding
        )
    log_rate = np.log(np.maximum(states, 1.0) / at(stay, grid))
    gaps = np.diff(states, axis=-1)
    pieces = (gaps + 1) / 2 * log_rate[..., 1:] + (gaps - 1) / 2 * log_rate[..., :-1]
    around = np.concatenate([one, gaps, one], axis=-1)
    others = (running - 1) / data[..., None]
    per_prompt = prefill * tokens / rate / np.maximum(others, TINY)
    spent = {name: at(getattr(riding, name), grid + 1) for name in ("alone", "one", "full")}
    counts = {
        name: np.asarray(getattr(riding, name))[..., 0]
        for name in ("chunks", "most", "replicas", "stages", "together")
    }
    beside = others * riding.chunks / (tokens / rate / kept) / riding.stages
    return Queue(
        slots=slots[..., 0],
        sustained=rate[..., -1],
        data=data,
        stretch=at(np.asarray(riding.stretch(beside)), np.maximum(grid, 1) + 1),
        latency=ttft[..., 0],
        prompt=at(per_prompt, np.maximum(grid, 1) + 1),
        riding=replace(riding, **spent, **counts),
        apart=apart,
        kept=kept[..., -1],
        states=states,
        stands_for=(around[..., 1:] + around[..., :-1]) / 2,
        log_product=np.concatenate([0 * slots, np.cumsum(pieces, axis=-1)], axis=-1),
        output=tokens[..., -1] / rate[..., -1],
        decode=at(decode, grid + 1),
    )


def prompt_of(serving: Serving, *, shape: tuple[int, ...]) -> Prefill:
    """A prompt of a serving, every part of it spread over all concurrencies, [..., batches]."""
    spread = {one.name: np.broadcast_to(getattr(serving.riding, one.name), shape) for one in fields(Prefill)}
    return Prefill(**spread)


def stay_at_random(
    stay: Seconds, *, running: Count, decode: Seconds, tokens: Count, riding: Prefill
) -> Seconds:
    """Time of a request beside others where prompts come at random, from that in a closed loop.

    In a closed loop prompts come whenever a request ends, to one step like to another; at random they bunch in the long
    ones (`lockstep.held`) and hold up fewer. That matters to attention replicas that step together; elsewhere a prompt
    costs what it costs. A shorter stay lets more prompts come: half of the difference in its logarithm remains.

    Args:
        stay: in a closed loop, [..., batches], as everything here.
        running: requests.
        decode: the step.
        tokens: steps of a request after its first token.
        riding: a prompt.
    """
    rate, data = (running - 1) / stay, np.asarray(riding.replicas)
    even = riding.apart((running - 1) / data * riding.chunks / tokens / riding.stages)
    bunched = held(np.maximum(rate, TINY), step=decode, prompt=riding).mean
    less = (1 - riding.together) * tokens * np.where(data > 1, even - bunched, 0.0)
    return stay * np.sqrt(np.maximum(1 - less / stay, TINY))


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
    """Mean time between output tokens, over the time of the replica."""
    behind: Seconds
    """How much longer a request's decoding takes, for the prompts it finds in line when it begins."""


def newcomers(arrival_rate: Number, *, queue: Queue, chance: Array, packed: Number) -> Newcomers:
    """What newcomers meet at an arrival rate of one replica.

    Args:
        arrival_rate: of one replica.
        chance: of finding each state, [..., states].
        packed: prompts one step takes.
    """
    rate = np.clip(arrival_rate, TINY, queue.sustained)
    one = queued_behind(rate, queue=queue, chance=chance, packed=packed)
    if not np.any(queue.apart):
        return one
    other, apart = stepping_together(rate, queue=queue, chance=chance, packed=packed), np.asarray(queue.apart)
    return Newcomers(
        delayed=one.delayed + apart * (other.delayed - one.delayed),
        delay=one.delay + apart * (other.delay - one.delay),
        phases=one.phases + apart * (other.phases - one.phases),
        alone=one.alone + apart[..., None] * (other.alone - one.alone),
        token=one.token + apart * (other.token - one.token),
        behind=(1 - apart) * one.behind,
    )


def queued_behind(rate: Number, *, queue: Queue, chance: Array, packed: Number) -> Newcomers:
    """What newcomers meet where prompts queue up behind each other on one attention replica, or on all alike.

        alone   prompt on an idle replica + (rest of the running step + chunks) x decode step of what is found running
        delay   wait behind prompts + (1/2 + chunks) decode step x busy / (1 - busy)
        token   decode step / (1 - busy)
        behind  busy / (1 - busy) x (time to first token - rest of the running step, for companions) x (1 - mean step /
                step with prompts)

    Prompts go first: those that came since a newcomer did, `busy` of that time, are in line when it begins to decode,
    and hold it up together with those that come meanwhile. Those that ride with it are not. As many are in line at the
    end of a step with prompts; its own last step is like any step.

    In a pipeline prompts are in line for one stage (`Queue.stretch`) while they hold up others in all of them, and a
    newcomer meets that part of it that `Prefill.met` says. It waits out half of the way of a chunk that is under way:
    an engine that has put all it can into batches waits for the oldest (vLLM, v1/engine/core.py). Nobody is then
    `behind`: those in line have been let into the pipeline.

    Args:
        rate: of one replica, above zero.
    """
    prompts_per_s = rate / queue.data
    shared = np.where(queue.states > 0, queue.decode, 0.0)
    chunks, stages = np.ceil(np.divide(1, packed)), np.asarray(queue.riding.stages)
    costs = np.where(
        np.asarray(queue.apart)[..., None] > 0,
        chunks[..., None] * queue.riding.one / stages[..., None] * queue.stretch,
        queue.prompt,
    )
    step, added = (chance * shared).sum(axis=-1), (chance * costs).sum(axis=-1)
    prompt = (chance * costs / queue.stretch).sum(axis=-1) + step / stages / packed
    busy, share = (np.minimum(prompts_per_s * time, BUSIEST) for time in (added, prompt))
    passing = (1 - 1 / stages) * (chance * queue.riding.one).sum(axis=-1)
    longer = (1 + (chunks - 0.5) / stages) * step * busy / (1 - busy) * queue.riding.met + busy * passing / 2
    share = np.maximum(share, busy)
    met = np.maximum(prompt_wait_chance(share, per_step=prompts_per_s * step / stages, packed=packed), TINY)
    found_running = sampled(np.broadcast_to(shared, chance.shape), chance=chance)
    delay = np.maximum((prompt_wait(share, prompt=prompt, packed=packed) + longer) / met, TINY)
    alone = np.asarray(queue.latency)[..., None] + riding_along(chunks, stages=stages) * found_running
    mean = step / (1 - busy)
    per_step = np.minimum(prompts_per_s * mean / -np.expm1(-np.maximum(prompts_per_s * mean, TINY)), packed)
    longest = np.maximum(step + added * np.maximum(per_step, np.minimum(packed, 1.0)), TINY)
    since = alone.mean(axis=-1) + met * delay - (parts(packed) - 1) * longest / 2
    return Newcomers(
        delayed=met,
        phases=phases_of_prompt_wait(share, packed=packed),
        delay=delay,
        alone=alone,
        token=(chance * queue.decode).sum(axis=-1) / (1 - busy) / queue.kept,
        behind=(stages == 1)
        * busy
        / (1 - busy)
        * np.maximum(since, 0.0)
        * np.maximum(1 - mean / longest, 0.0),
    )


def riding_along(chunks: Array, *, stages: Array) -> Array:
    """Decode steps a sample of newcomers rides along with until the first token, from the rest of the running one on.

        moment / stages + 1 + (chunks - 1) / stages

    Args:
        chunks: steps of a prompt, [...].
        stages: of the pipeline; a newcomer rides on the next micro-batch, and a chunk a stage behind the last. [...]
    """
    return MOMENTS / stages[..., None] + (1 + (chunks - 1) / stages)[..., None]


def stepping_together(rate: Number, *, queue: Queue, chance: Array, packed: Number) -> Newcomers:
    """What newcomers meet where prompts come to each of several attention replicas by itself.

        alone   prompt with one on every replica + (rest of the running step + chunks) x decode step + beyond
        delay   half of what prompts add to the running step, where they do; and the line where none is free of prompts
        token   decode step + what prompts add to the mean step

    A prompt on another attention replica rides on the same steps as a newcomer's own, which is reckoned with one on
    every replica (`Serving`); it delays the newcomer no more than the step it falls into.

    Args:
        rate: of one replica, above zero.
    """
    spent = {name: (chance * getattr(queue.riding, name)).sum(axis=-1) for name in ("alone", "one", "full")}
    prompt = replace(queue.riding, **spent)
    step = (chance * queue.decode).sum(axis=-1)
    now = held(rate, step=step, prompt=prompt)
    chunks = np.ceil(np.divide(1, packed))
    stages = np.asarray(queue.riding.stages)
    passing = np.maximum(1 / packed, 1.0) * (step + now.longer) / stages
    waiting, wait = line(rate, time=passing, replicas=queue.data)
    waiting = np.where(np.divide(1, packed) > 1, waiting, 0.0)
    met = np.maximum(1 - (1 - now.chance) * (1 - waiting), TINY)
    shared = np.where(queue.states > 0, queue.decode, 0.0)
    found_running = sampled(np.broadcast_to(shared, chance.shape), chance=chance)
    idle = np.asarray(queue.latency) + beyond(now.riders, prompt=prompt)
    return Newcomers(
        delayed=met,
        phases=2.0,
        delay=np.maximum((now.chance * now.longer / 2 + waiting * wait) / met, TINY),
        alone=idle[..., None] + riding_along(chunks, stages=stages) * found_running,
        token=(step + now.mean) / queue.kept,
        behind=0.0,
    )


def token_time(token: Seconds, *, behind: Seconds, tokens: Count) -> Seconds:
    """Mean time per output token of a request after its first.

        token + behind / tokens

    Args:
        token: mean time between tokens, over the time of the replica.
        behind: how much longer decoding takes for the prompts that are in line when it begins.
        tokens: output tokens of a request after its first.

    >>> token_time(0.02, behind=1.0, tokens=100)
    0.03
    """
    return token + behind / tokens


def laws_of_newcomers(queue: Queue) -> tuple[Callable[..., Newcomers], ...]:
    """The formulas that say what newcomers to a replica meet."""
    laws = {queued_behind: np.any(np.less(queue.apart, 1)), stepping_together: np.any(queue.apart)}
    return tuple(law for law, applies in laws.items() if applies)


@dataclass(frozen=True)
class Load:
    """A deployment of replicas that are all alike under random arrivals; percentiles are looked for when somebody asks.
    [...]"""

    arrival_rate: Number
    """Requests per second over all replicas."""
    replicas: Count
    gpus: Count
    """GPUs of all replicas."""
    queue: Queue = field(repr=False)
    """One of them."""
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
        decoding = (self.queue.output - 1) * self.tpot
        return np.divide(self.arrival_rate, self.replicas) * (first + decoding)

    @property
    def tpot(self) -> Seconds:
        """Mean time per output token of a request after its first."""
        new = self.newcomers
        return token_time(new.token, behind=new.behind, tokens=np.maximum(self.queue.output - 1, 1.0))

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
    queue: Queue,
    variation: Number,
    packed: Number,
    replicas: Count = 1,
    gpus: Count = 0,
) -> Load:
    """What users feel when requests come at random to replicas that share them evenly.

        ttft     as in a closed loop with what is found running + delay by prompts + wait for admission
        in hand  arrival rate x (mean ttft + (output - 1) token time)   (Little)

    Assumes Poisson arrivals, prompts of one length, requests first come first served, a slot for each request of full
    length. In the tests, up to 90 % of the knee, within 10 % of a simulated engine for prompts up to ten times the
    output and tens of slots, also where room for tokens admits instead of slots; with eight slots, percentiles within
    15 %; for prompts of eighty to five hundred times the output, percentiles within 15 % and requests in hand within
    10 % up to 60 % of the knee, beyond within 20 %. Attention replicas: within 12 %, for prompts of several steps
    requests in hand within 15 %; where answers are so short that steps with a prompt on every replica do not keep up
    (9,000 tokens in, 300 out), only up to half of the knee. Beyond the knee waits have the right shape, but one per
    cent of capacity moves them by tens of per cent. Arrivals in bursts wait longer. Pipelines have not been simulated,
    nor what an engine does that admits requests before there is room for all of their tokens, and puts some off again.

    Args:
        arrival_rate: requests per second over all replicas, [...].
        queue: one replica in every state.
        variation: standard deviation over mean of the output length: 0 all alike, 1 exponential.
        packed: see `prompts_per_step`.
        replicas: how many share the requests.
        gpus: of all of them; 0: nobody asks.
    """
    rate = np.asarray(np.divide(arrival_rate, replicas))
    chance, waiting = found(rate, queue=queue, variation=variation)
    return Load(
        arrival_rate=arrival_rate,
        replicas=replicas,
        gpus=gpus,
        queue=queue,
        newcomers=newcomers(rate, queue=queue, chance=chance, packed=packed),
        waiting=waiting,
        wait=np.asarray(admission_wait(rate, queue=queue, variation=variation)),
    )
