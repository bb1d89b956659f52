"""How the figures of random traffic are made, with the user's own numbers: what each formula is given, and returns."""

import numpy as np

from parplan.explanation import speed_sources
from parplan.fleet import VARIATION
from parplan.load import (
    Load,
    admission_chance,
    admission_wait,
    knee_rate,
    laws_of_newcomers,
    load,
    sustained_rate,
    token_time,
    utilisation,
)
from parplan.load import found as states_found
from parplan.problem import Problem
from parplan.products import (
    SHARE,
    Applied,
    Explanation,
    Factor,
    Given,
    Part,
    Term,
    figures,
    put,
    single,
    worked_out,
)
from parplan.replicas import replicas_needed
from parplan.traffic import FEW_WAIT, FIRST_TARGET, Replica, Traffic, last_within
from parplan.units import Array, counted, written_rate, written_share, written_time
from parplan.waiting import exceeded, quantile_beyond

RATE = "requests/s"
MEDIAN, MOST = 0.5, 0.95
"""Shares of the requests that percentiles are about."""


def _of_one(replica: Replica) -> dict[str, Given]:
    """The replica as `found` and its like are given it."""
    words = f"{replica.slots:,} slots, {written_rate(replica.sustained)} {RATE} with all of them taken"
    return {"queue": Given(replica.queue, words), "variation": put(VARIATION)}


def _sustained(replica: Replica) -> Applied:
    words = f"up to {counted(replica.slots, 'request')} at once"
    return Applied("with all slots taken", sustained_rate, {"serving": Given(replica.serving, words)}, RATE)


def _limits(replica: Replica) -> dict[str, Applied]:
    """The rate of one replica up to which each thing is well, by what it is."""
    rates = np.asarray(replica.curve.arrival_rate)
    curve = Given(rates, f"{rates.size} rates up to {written_rate(rates[-1])} {RATE}")
    found = {
        FEW_WAIT: Applied("knee of one replica", knee_rate, _of_one(replica), RATE, beside=(states_found,))
    }
    for name, (values, most) in replica.rising.items():
        written = written_share if name == FIRST_TARGET else written_time
        given = {
            "values": Given(values, f"{written(values[0])} to {written(values[-1])}"),
            "rates": curve,
            "most": Given(most, written(most)),
        }
        found[name] = Applied(f"within {name}", last_within, given, RATE)
    return found


def replica_count(problem: Problem, found: Traffic, *, rate: float, peak: float) -> Explanation:
    """Replicas that bear a rate at its peak; without a rate, those that are planned.

    Args:
        problem: what is served.
        found: the replicas.
        rate: mean requests per second over all of them. 0: none is asked for.
        peak: busiest over mean rate.
    """
    replica = found.replica
    if not rate:
        part = single("as planned", Term((Factor(found.replicas, "replicas"),)))
        return Explanation("Replicas", found.replicas, "replicas", (part,), ())
    ceiling = Given(
        replica.bearable / replica.sustained,
        f"{written_share(replica.bearable / replica.sustained)}: {written_rate(replica.bearable)} of "
        f"{written_rate(replica.sustained)} {RATE}",
        by=tuple(_limits(replica).values()),
    )
    needed = Applied(
        "replicas that bear the peak",
        replicas_needed,
        {
            "arrival_rate": put(rate, unit=RATE),
            "sustained": worked_out(_sustained(replica)),
            "peak": put(peak),
            "ceiling": ceiling,
        },
        "replicas",
    )
    return Explanation("Replicas", found.replicas, "replicas", (needed.part,), speed_sources(problem))


def bearable_rate(problem: Problem, found: Traffic) -> Explanation:
    """Requests per second the replicas bear together: what gives way first, on each of them."""
    limits = _limits(found.replica)
    lowest = limits[found.replica.limit]
    factors = (
        Factor(found.replicas, f"replica{'s' * (found.replicas != 1)}"),
        Factor(lowest.value, RATE, by=(lowest, *(one for one in limits.values() if one is not lowest))),
    )
    part = single(f"what {found.replica.limit} allows", Term(factors), law=lowest.law)
    return Explanation("Requests/s they bear", found.bearable, RATE, (part,), speed_sources(problem))


def knee(problem: Problem, found: Traffic) -> Explanation:
    """Requests per second over all replicas up to which few wait for admission, or none for long."""
    one = _limits(found.replica)[FEW_WAIT]
    there = {"arrival_rate": worked_out(one), **_of_one(found.replica)}
    waiting = Applied("share that waits there", admission_chance, there, SHARE, beside=(states_found,))
    factors = (
        Factor(found.replicas, f"replica{'s' * (found.replicas != 1)}"),
        Factor(one.value, RATE, by=(one, waiting)),
    )
    part = single("knees of all replicas", Term(factors), law=knee_rate)
    return Explanation("Knee", found.knee, RATE, (part,), speed_sources(problem))


def _each(at: Load) -> Given:
    """The rate of one replica."""
    whole, count = float(at.arrival_rate), int(at.replicas)
    words = f"{written_rate(whole)} {RATE}"
    return Given(np.divide(at.arrival_rate, at.replicas), f"{words} over {count:,}" if count > 1 else words)


def busy_share(problem: Problem, found: Traffic, *, at: Load) -> Explanation:
    """How busy the replicas are at a rate."""
    given = {"arrival_rate": _each(at), "sustained": worked_out(_sustained(found.replica))}
    made = Applied("busy", utilisation, given, SHARE)
    return Explanation("Busy", float(at.utilisation), SHARE, (made.part,), speed_sources(problem))


def _waiting(found: Traffic, at: Load) -> tuple[Applied, Applied]:
    """How many requests wait for admission, and how long those do."""
    given = {"arrival_rate": _each(at), **_of_one(found.replica)}
    return (
        Applied("share that waits for admission", admission_chance, given, SHARE, beside=(states_found,)),
        Applied("mean wait for admission of those", admission_wait, given, "s"),
    )


def _quantile(found: Traffic, at: Load, *, quantile: float, bases: Array) -> Applied:
    """What a share of the requests stays within: of a base and both waits."""
    waits, waiting = at.waits, _waiting(found, at)
    behind, admission = (written_share(float(share), decimals=1) for share in waits["shares"])
    longest = " and ".join(written_time(float(scale)) for scale in waits["scales"])
    words = f"{behind} behind prompts, {admission} for admission"
    shares = Given(waits["shares"], words, by=waiting, described_by=exceeded)
    scales = Given(waits["scales"], longest, described_by=exceeded)
    low, high = written_time(float(bases.min())), written_time(float(bases.max()))
    given = {
        "bases": Given(bases, f"{low} to {high}" if bases.any() else "none"),
        "quantile": Given(quantile, written_share(quantile)),
        "shares": shares,
        "scales": scales,
        "phases": Given(waits["phases"], figures(float(waits["phases"])), described_by=exceeded),
    }
    name = f"{written_share(quantile)} of the requests stay within"
    return Applied(name, quantile_beyond, given, "s", beside=(exceeded, *laws_of_newcomers(at.queue)))


def first_token(problem: Problem, found: Traffic, *, at: Load, quantile: float) -> Explanation:
    """Time to first token that a share of the requests stays within."""
    made = _quantile(found, at, quantile=quantile, bases=at.newcomers.alone)
    shown = at.ttft_p50 if quantile == MEDIAN else at.ttft_p95
    return Explanation("Time to first token", float(shown), "s", (made.part,), speed_sources(problem))


def wait(problem: Problem, found: Traffic, *, at: Load, quantile: float) -> Explanation:
    """Wait behind other newcomers' prompts and for admission that a share of the requests stays within."""
    made = _quantile(found, at, quantile=quantile, bases=np.zeros(1))
    shown = at.wait_p50 if quantile == MEDIAN else at.wait_p95
    return Explanation("Wait", float(shown), "s", (made.part,), speed_sources(problem))


def _token_time(at: Load) -> Applied:
    """Time per output token of a request after its first."""
    new, tokens = at.newcomers, float(at.queue.output) - 1
    laws = laws_of_newcomers(at.queue)
    given = {
        "token": Given(float(new.token), written_time(float(new.token)), described_by=token_time),
        "behind": Given(float(new.behind), written_time(float(new.behind)), described_by=token_time),
        "tokens": put(max(tokens, 1.0)),
    }
    return Applied("at random arrivals", token_time, given, "s", beside=laws)


def token_interval(problem: Problem, found: Traffic) -> Explanation:
    """Time per output token at the busiest time."""
    made = _token_time(found.busiest)
    return Explanation("Time per token", float(found.tpot), "s", (made.part,), speed_sources(problem))


def in_hand(problem: Problem, found: Traffic, *, at: Load) -> Explanation:
    """Mean requests one replica has in hand: as many as come during the time one stays (Little)."""
    new, arrivals = at.newcomers, Factor(float(np.divide(at.arrival_rate, at.replicas)), RATE)
    share, mean_wait = _waiting(found, at)
    time = _token_time(at)

    def part(name: str, *factors: Factor) -> Part:
        return single(name, Term((arrivals, *factors)), law=load)

    parts = (
        part("until the first token, nobody in the way", Factor(float(new.alone.mean(axis=-1)), "s")),
        part(
            "behind other newcomers' prompts",
            Factor(float(new.delayed), SHARE),
            Factor(float(new.delay), "s"),
        ),
        part(
            "waiting for admission",
            Factor(share.value, SHARE, by=(share,)),
            Factor(mean_wait.value, "s", by=(mean_wait,)),
        ),
        part(
            "until the last token",
            Factor(float(at.queue.output) - 1, "tokens"),
            Factor(time.value, "s", by=(time,)),
        ),
    )
    return Explanation("Requests in hand", float(at.in_hand), "requests", parts, speed_sources(problem))
