"""When a deployment does not fit: which part is at fault, by how much, and how far requests must come down."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parplan.layout import Layout
from parplan.memory import Memory, Settings, division, worst_rank
from parplan.problem import Problem
from parplan.units import Bytes, Count, written_bytes
from parplan.work import distinct_stages

Part: TypeAlias = Literal["weights", "activations", "overhead", "kv"]
SHORTEST, LONGEST = 2, 10_000_000
"""Tokens of a request: one in and one out, and more than any engine is asked for."""
TRIED = 217
"""Lengths tried at once."""


@dataclass(frozen=True)
class Shortfall:
    """What is missing on the worst rank of one layout."""

    part: Part
    """The part at fault: the first that no longer fits, taken in the order an engine fills a GPU."""
    missing: Bytes
    reason: str
    """In words, with the figures."""


@dataclass(frozen=True)
class Fit:
    """How far one layout can go."""

    shortfall: Shortfall | None
    """None: every asked request fits."""
    requests: int
    """Largest concurrency at the asked length."""
    length: int
    """Largest length at the asked concurrency, tokens; 0: none."""
    length_alone: int
    """Largest length of a request that is alone, tokens; 0: none."""


def shortfall(held: Memory) -> Shortfall | None:
    """What is missing for all concurrent requests of one layout; None when all of them fit.

    An engine takes its weights first, then what it counts beside them, then grants the rest to the cache:

        weights >= allowance                  the weights are at fault
        weights + counted >= allowance        the activations, or the overhead, whichever is more
        reserved > usable                     the overhead that nobody counted
        kv needed > pool                      the cache
    """
    weights, counted, allowance = float(held.weights), float(held.counted), float(held.allowance)
    beside: Part = "activations" if held.activations > held.overhead else "overhead"
    if weights >= allowance:
        missing = weights - allowance
        return Shortfall(
            "weights",
            missing,
            f"The weights take {written_bytes(weights)} of each GPU, {written_bytes(missing)} more than the "
            f"{written_bytes(allowance)} the engine may fill.",
        )
    if weights + counted >= allowance:
        missing = weights + counted - allowance
        return Shortfall(
            beside,
            missing,
            f"The weights fit, but the {beside} beside them ({written_bytes(float(getattr(held, beside)))}) take "
            f"{written_bytes(missing)} more than the {written_bytes(allowance)} the engine may fill.",
        )
    if held.overflows:
        missing = float(held.reserved - held.usable)
        return Shortfall(
            "overhead",
            missing,
            f"The engine takes {written_bytes(float(held.reserved))} in the end, {written_bytes(missing)} more than "
            "the GPU has: what lies outside its share does not fit beside it.",
        )
    if held.kv_needed > held.pool:
        missing = float(held.kv_needed - held.pool)
        return Shortfall(
            "kv",
            missing,
            f"The KV cache of all requests takes {written_bytes(float(held.kv_needed))}, {written_bytes(missing)} "
            f"more than the {written_bytes(float(held.pool))} that are left for it.",
        )
    return None


def runnable(held: Memory) -> Count:
    """Largest concurrency a layout runs at the asked length: what its pools hold and its engines let run, [...]."""
    return np.where(held.overflows, 0.0, np.minimum(held.capacity, held.slots))


def short_of_slots(held: Memory, settings: Settings, *, layout: Layout) -> bool:
    """Whether a single layout has cache for more requests than sequence slots, and is kept to these: they, or tokens of
    a step, were set."""
    step = settings.max_batched_tokens or np.inf
    kept = settings.max_num_seqs or settings.at_once is None or np.all(held.slots >= step * layout.data)
    return bool(kept and np.all(held.slots < held.capacity))


def most_requests(held: Memory) -> int:
    """The same of a single layout, a whole number."""
    return int(runnable(held))


def longest_request(problem: Problem, *, layout: Layout, concurrency: int) -> int:
    """Longest request, prompt and output together, of which one layout runs so many at once.

    The exact inverse of `memory`: one token more and fewer of them run. At most `LONGEST`; 0 when not even the
    shortest fits. Requests beyond the engine's sequence slots wait whatever their length, and are not counted.
    Many lengths are tried at once, then those between the last that fits and the first that does not.
    """
    stages = distinct_stages(problem.transformer, layout=layout)
    told = problem.settings.running(concurrency)

    def fits(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        divided = division(
            problem.transformer,
            problem.precision,
            layout=layout,
            stages=stages,
            gpu=problem.gpu,
            engine=problem.engine,
            length=lengths,
            settings=told,
        )
        held = worst_rank(divided, layout=layout, concurrency=concurrency)
        return np.asarray(runnable(held) >= np.minimum(concurrency, held.slots))

    shortest, longest = SHORTEST, LONGEST + 1
    if not fits(np.array([shortest]))[0]:
        return 0
    while longest - shortest > 1:
        tried = np.unique(np.linspace(shortest, longest, TRIED).astype(np.int64)[1:-1])
        tried = tried[tried > shortest]
        enough = int(np.count_nonzero(np.logical_and.accumulate(fits(tried))))
        shortest, longest = (
            int(tried[enough - 1]) if enough else shortest,
            int(tried[enough]) if enough < tried.size else longest,
        )
    return shortest


def fit(problem: Problem, *, layout: Layout, held: Memory) -> Fit:
    """What is missing for a problem's requests on one layout, and the largest requests and concurrency that do fit.

    Args:
        held: its memory at the asked concurrency.
    """
    together, alone = (
        longest_request(problem, layout=layout, concurrency=count)
        for count in (problem.workload.concurrency, 1)
    )
    return Fit(shortfall=shortfall(held), requests=int(runnable(held)), length=together, length_alone=alone)
