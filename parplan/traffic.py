"""A layout in front of real traffic: how many requests per second it bears, and how many replicas a rate takes.

Requests come at random (Poisson). `load` says what users then feel; here it is asked of one layout of a result.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from parplan.arrays import picked
from parplan.fleet import LATE, VARIATION, rates
from parplan.layout import Layout
from parplan.load import KNEE_LEAST, Load, Queue, knee_rate, load, prompts_per_step, queue, sustained_rate
from parplan.planner import Result
from parplan.replicas import replicas_needed
from parplan.serving import Serving
from parplan.units import (
    Array,
    Number,
    Seconds,
    counted,
    written_rate,
    written_request_rate,
    written_share,
    written_time,
)
from parplan.workload import Workload

ASSUMED = (
    "Requests come at random (Poisson), output lengths vary as much as their mean (exponential), replicas share the "
    "load evenly. At the knee 5 of 100 requests begin to wait for room in the KV cache or for a free slot; where only "
    "a few run at once, it is where the replica is half busy, the mean wait being about as long as a request takes at "
    "most. Up to 90 % of the knee the figures agree within 10 % with a simulated engine for prompts up to ten times as "
    "long as the output (within 15 % where fewer than a dozen requests run at once, and with repeated attention; "
    "within 20 % for longer prompts; with repeated attention those can be off by more). With pipeline stages that "
    "holds up to 30 % of the knee for prompts of a whole step or more (the slowest first tokens within 35 %); "
    "later times are on the long side, up to twice as long. Where many prompts share a step they are too short from "
    "there on, with eight stages by a multiple: an engine that waits for its oldest batch lets micro-batches merge. "
    "Not simulated are pipeline stages together with repeated attention, traffic in bursts, which waits longer, and "
    "engines that let requests in before there is room for "
    "all of their tokens, as vLLM does: here each request has its full length reserved."
)
FEW_WAIT = "few wait for admission"
FIRST_TARGET, TOKEN_TARGET = "the target for the first token", "the target for each token"
"""What limits a rate."""


def last_within(values: Array, *, rates: Array, most: float) -> float:
    """The last rate of a curve up to which what rises with it stays within a limit; 0 where it never does.

    Args:
        values: what rises, at every rate.
        rates: requests per second of one replica, ascending.
        most: the limit.

    >>> last_within(np.array([1.0, 2.0, 9.0]), rates=np.array([10.0, 20.0, 30.0]), most=2.0)
    20.0
    """
    within = np.logical_and.accumulate(np.asarray(values) <= most)
    return float(np.asarray(rates)[within][-1]) if within.any() else 0.0


@dataclass(frozen=True)
class Replica:
    """One layout as traffic finds it."""

    layout: Layout
    serving: Serving
    """[batches]"""
    packed: float
    """Prompts one step takes."""
    workload: Workload

    @cached_property
    def queue(self) -> Queue:
        """It in every state."""
        return queue(self.serving, layout=self.layout)

    def load(self, rate: Number, *, replicas: int = 1) -> Load:
        """What users feel at an arrival rate that replicas share, requests per second over all of them."""
        return load(
            rate,
            queue=self.queue,
            variation=VARIATION,
            packed=self.packed,
            replicas=replicas,
            gpus=replicas * self.layout.gpus,
        )

    @cached_property
    def slots(self) -> int:
        """Requests that run at once at most: what the KV cache and the engine allow."""
        return int(np.max(self.serving.running))

    @cached_property
    def sustained(self) -> float:
        """Requests per second it answers with all slots taken."""
        return float(sustained_rate(self.serving))

    @cached_property
    def curve(self) -> Load:
        """What users feel from next to no traffic to next to all it sustains, [rates]."""
        return self.load(rates(self.sustained))

    @cached_property
    def knee(self) -> float:
        """Requests per second up to which few wait for admission, or none for long, see `load.knee_rate`."""
        return float(knee_rate(self.queue, variation=VARIATION))

    @cached_property
    def rising(self) -> dict[str, tuple[Array, float]]:
        """What rises along the curve and has a target, by the target's name: its values, [rates], and the most they may
        be: the share of first tokens that come late, and the time per token."""
        asked, found = self.workload, dict[str, tuple[Array, float]]()
        if asked.ttft:
            found[FIRST_TARGET] = np.asarray(self.curve.later(asked.ttft)), LATE
        if asked.tpot:
            found[TOKEN_TARGET] = np.asarray(self.curve.tpot), float(asked.tpot)
        return found

    @cached_property
    def limits(self) -> dict[str, float]:
        """Requests per second up to which all is well, by what is asked for; 0: never."""
        rates = np.asarray(self.curve.arrival_rate) if self.rising else np.zeros(0)
        return {FEW_WAIT: self.knee} | {
            name: last_within(values, rates=rates, most=most) for name, (values, most) in self.rising.items()
        }

    @cached_property
    def limit(self) -> str:
        """What gives way first."""
        return min(self.limits, key=lambda name: self.limits[name])

    @cached_property
    def bearable(self) -> float:
        """Requests per second up to which few requests wait for admission, 95 of 100 have their first token in the
        target time, and the mean time per token is within its target; 0: the targets are out of reach."""
        return min(self.limits.values())

    @property
    def words(self) -> str:
        """How much it bears, and what gives way first beyond."""
        if not self.bearable:
            return f"{self.layout} misses {self.limit} with next to no traffic already; no number of replicas helps."
        if self.limit != FEW_WAIT:
            beyond = f"{self.limit} is missed"
        elif self.knee > KNEE_LEAST * self.sustained:
            beyond = "requests begin to wait"
        else:
            beyond = "it is more than half busy, and waits grow long"
        return (
            f"One replica ({self.layout}) bears {written_rate(self.bearable)} requests per second; beyond, {beyond}. "
            f"With {f'all {self.slots:,} slots' if self.slots > 1 else 'its only slot'} taken it answers "
            f"{written_rate(self.sustained)}."
        )


def replica_of(result: Result, index: int) -> Replica:
    """One layout of a result, for any traffic."""
    serving = picked(result.serving, shape=result.shape, index=(index,))
    return Replica(
        layout=result.layout.one(index),
        serving=serving,
        packed=float(prompts_per_step(serving)),
        workload=result.problem.workload,
    )


@dataclass(frozen=True)
class Traffic:
    """A rate of requests, and the replicas that bear it."""

    replica: Replica
    replicas: int
    mean: Load
    """At the mean rate, over all replicas."""
    busiest: Load
    """At the peak."""

    @property
    def bearable(self) -> float:
        """Requests per second the replicas bear together, see `Replica.bearable`."""
        return self.replicas * self.replica.bearable

    @property
    def at_once(self) -> int:
        """Requests at once a replica needs room for at the peak: 98 of 100 times, no more are in hand (Poisson).

        mean + 2 sqrt(mean), rounded up
        """
        mean = float(self.busiest.in_hand)
        return max(int(np.ceil(mean + 2 * np.sqrt(mean))), 1) if np.isfinite(mean) else np.iinfo(np.int32).max

    @property
    def knee(self) -> float:
        """Requests per second over all replicas up to which few wait for admission, or none for long."""
        return self.replicas * self.replica.knee

    @property
    def tpot(self) -> Seconds:
        """Time per output token at the peak."""
        return self.busiest.tpot

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all requests at the peak."""
        return float(self.busiest.arrival_rate) * self.replica.workload.output

    @property
    def rate_words(self) -> str:
        """The rate, and its peaks, in words."""
        mean, peak = float(self.mean.arrival_rate), float(self.busiest.arrival_rate)
        peaks = f" (peaks of {written_rate(peak)})" if peak > mean else ""
        return f"{written_request_rate(mean)}{peaks}"

    @property
    def pace(self) -> str:
        """Both times at the peak, in words."""
        first = f"95 of 100 first tokens within {written_time(float(self.busiest.ttft_p95))}"
        if self.replica.workload.one_token:
            return first
        return f"{written_time(float(self.tpot))} per token, {first}"

    def words(self, *, shown: int) -> str:
        """What the rate takes, what users feel at the peak, and whether other replicas suffice.

        Args:
            shown: replicas the rest of the answer speaks of.
        """
        if not self.replica.bearable:
            return f"{self.rate_words}: {self.replica.words}"
        peak = self.busiest.arrival_rate > self.mean.arrival_rate
        return (
            f"{self.rate_words}: {counted(self.replicas, 'replica')}, {counted(int(self.busiest.gpus), 'GPU')}; "
            f"{'at the peak ' * peak}{written_time(float(self.tpot))} per token.{self._others(shown)}"
        )

    @property
    def felt(self) -> str:
        """How busy the replicas are, and how long users wait for their first token, as a sentence."""
        busiest = self.busiest
        if float(busiest.utilisation) >= 1:
            return "These replicas do not keep up: waits grow without end."
        mean = (
            f" ({written_share(self.mean.utilisation)} on average)"
            if busiest.utilisation > self.mean.utilisation
            else ""
        )
        in_hand = written_rate(float(busiest.in_hand))
        return (
            f"At the busiest time each replica is {written_share(busiest.utilisation)} busy{mean} and has "
            f"{in_hand} request{'s' * (in_hand != '1')} in hand; half of the first tokens come within "
            f"{written_time(float(busiest.ttft_p50))}, 95 of 100 within {written_time(float(busiest.ttft_p95))}."
        )

    def _others(self, shown: int) -> str:
        """Whether other replicas than these suffice; empty for as many."""
        which, s = ("one replica", "s") if shown == 1 else (f"{shown:,} replicas", "")
        if shown > self.replicas:
            return f" The {which} shown here suffice{s}."
        bear = f"bear{s} only {written_rate(shown * self.replica.bearable)}"
        return f" The {which} shown here {bear} per second." if shown < self.replicas else ""

    @property
    def curve(self) -> Load:
        """What users feel at any rate these replicas sustain, [rates]."""
        one = self.replica.curve
        return replace(
            one,
            arrival_rate=one.arrival_rate * self.replicas,
            replicas=self.replicas,
            gpus=one.gpus * self.replicas,
        )


def replicas_for(replica: Replica, *, rate: float, peak: float) -> int:
    """The fewest replicas that bear a rate at its peak; 0: no number does, the targets are out of reach.

    Args:
        replica: one of them.
        rate: mean requests per second.
        peak: busiest over mean rate.
    """
    if replica.bearable <= 0:
        return 0
    ceiling = replica.bearable / replica.sustained
    return int(replicas_needed(rate, sustained=replica.sustained, peak=peak, ceiling=ceiling))


def traffic(replica: Replica, *, rate: float, peak: float, replicas: int) -> Traffic:
    """A rate of requests spread evenly over replicas.

    Args:
        replica: one of them.
        rate: mean requests per second over all replicas.
        peak: busiest over mean rate.
        replicas: how many.
    """
    return Traffic(
        replica=replica,
        replicas=replicas,
        mean=replica.load(rate, replicas=replicas),
        busiest=replica.load(rate * peak, replicas=replicas),
    )


def traffic_asked_for(result: Result, index: int, *, rate: float, peak: float, replicas: int) -> Traffic:
    """A layout's traffic over as many replicas as the rate takes.

    Args:
        result: all layouts.
        index: of one of them.
        rate: mean requests per second over all replicas.
        peak: busiest over mean rate.
        replicas: how many where no rate is given, or no number of them bears it.
    """
    replica = replica_of(result, index)
    enough = replicas_for(replica, rate=rate, peak=peak) if rate else 0
    return traffic(replica, rate=rate, peak=peak, replicas=enough or replicas)
