"""What one GPU of a pipeline stage holds: how it is divided, what requests are charged, and the worst of a replica."""

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from parplan.formats import Component
from parplan.memory.settings import Limits
from parplan.units import Array, Count
from parplan.work import Stages


@dataclass(frozen=True)
class Charges:
    """What an engine's allocator takes from one rank's pool, [..., stages]."""

    request: Array
    """Bytes one request of the workload's length keeps while it writes its answer."""
    request_ideal: Array
    """The same without blocks, padding and unused windows."""
    alone: Array
    """Bytes one request takes at most, with a prompt that fills every step."""
    shared: Array
    """Bytes the tokens in flight take in windows, whichever requests they belong to."""
    longest: Array
    """Bytes the engine wants free for one request of the longest length it is told to expect."""
    logged_token: Array
    """Bytes of the pool for every token the engine's log speaks of."""
    state: Array
    """Bytes of the pool for every recurrent state it can hold; 0 where that is no limit of its own."""

    def together(self, requests: Count) -> Array:
        """Bytes for so many requests at once: a step's tokens are theirs together, not each one's.

            min(requests x alone, requests x request + shared)

        Windows leave the pool at the next step (`allocate_slots` frees what is out of sight before it takes anew).

        Source: vLLM vllm/v1/core/kv_cache_manager.py, `allocate_slots`, and single_type_kv_cache_manager.py,
        `remove_skipped_blocks`; vllm-project/vllm#40946. Read 2026-11-30. Left out: 0.19 and 0.20 want the whole of a
        prompt free in windowed layers too before they let it in.
        """
        return np.asarray(np.minimum(requests * self.alone, requests * self.request + self.shared))

    def within(self, pool: Array) -> Array:
        """Requests a pool holds, not rounded: `together` the other way round; no limit where nothing is cached."""
        caching = self.request > 0
        request, alone = (np.where(caching, each, 1.0) for each in (self.request, self.alone))
        return np.where(
            caching, np.maximum(pool / alone, (pool - self.shared) / request), np.copysign(np.inf, pool)
        )


@dataclass(frozen=True)
class Budget:
    """How an engine divides one GPU when it starts, before any request, bytes."""

    usable: Array
    """What the driver reports."""
    weights_by_component: dict[Component, Array]
    activations: Array
    """Peak of one step's temporary tensors."""
    context: Array
    """Driver context and communicator set-up, there before the engine looks."""
    non_torch: Array
    """Communication buffers and libraries."""
    graphs: Array
    """Recorded CUDA graphs."""
    allowance: Array
    """What the engine may fill with weights, what it counts beside them, and cache."""
    counted: Array
    """What it counts against its allowance beside weights and cache: activations, buffers, graphs, by version."""
    looked_at: Array
    """The memory it takes its share of."""
    reserve: Array
    """What it leaves untouched of that: the share it was not given."""
    pool: Array
    """What it grants to the cache; negative when the rest does not fit into its allowance."""

    @property
    def weights(self) -> Array:
        """All weights."""
        return cast(Array, sum(self.weights_by_component.values()))

    @property
    def overhead(self) -> Array:
        """Context, communication buffers and CUDA graphs."""
        return self.context + self.non_torch + self.graphs

    @property
    def reserved(self) -> Array:
        """What the engine takes in the end, the whole pool included, asked for or not: what nvidia-smi shows."""
        return self.weights + self.activations + self.overhead + np.maximum(self.pool, 0.0)

    @property
    def excess(self) -> Array:
        """What the engine takes more than the GPU has, once the pool and the graphs are there; negative where it does
        not."""
        return self.reserved - self.usable

    @property
    def outside(self) -> Array:
        """What lies outside the part the engine may fill: the context, and whatever its version does not count."""
        return self.reserved - self.allowance

    @property
    def too_large_a_share(self) -> NDArray[np.bool_]:
        """Whether it overflows only because the engine was given too large a share: with less cache it would not."""
        return np.asarray(self.overflows & (self.pool > self.excess))

    @property
    def largest_share(self) -> Array:
        """Share of memory at which the engine no longer takes more than the GPU has; what it is given beyond that is
        cache.

            (looked at - reserve - excess) / looked at
        """
        return (self.looked_at - self.reserve - self.excess) / self.looked_at

    @property
    def overflows(self) -> NDArray[np.bool_]:
        """Whether the engine takes more than the GPU has, once the pool and the graphs are there."""
        return np.asarray(self.reserved > self.usable)


@dataclass(frozen=True)
class Division:
    """What an engine is told, how it divides the GPUs of pipeline stages, and what it charges for a request."""

    stages: Stages
    told: Limits
    budget: Budget
    charges: Charges


@dataclass(frozen=True)
class Rank(Budget):
    """Bytes on one GPU with the requests it serves, each at full length.

    usable = weights + activations + overhead + kv + free, always; `free` is negative when it does not load.
    What the workload needs is `needed`; what the engine takes for itself, whatever the workload, is `reserved`.
    """

    request: Array
    """What one request at full length keeps while it writes its answer."""
    request_ideal: Array
    """What one request at full length would take without blocks, padding and unused windows."""
    alone: Array
    """What one request takes at most, with a prompt that fills every step."""
    shared: Array
    """What the tokens in flight take in windows, whichever requests they belong to."""
    longest: Array
    """What the engine wants free for one request of the longest length it is told to expect."""
    kv: Array
    """What the requests that run use of the pool."""
    kv_needed: Array
    """What all concurrent requests would use."""
    kv_ideal: Array
    """What the running requests' cache would take without blocks, padding and unused windows."""
    kv_needed_ideal: Array
    """What all concurrent requests' cache would take without blocks, padding and unused windows."""

    @property
    def kv_in_flight(self) -> Array:
        """What the tokens of the steps in flight add to the cache of all concurrent requests in windows."""
        asking = self.kv_needed_ideal / np.where(self.request_ideal > 0, self.request_ideal, 1.0)
        return self.kv_needed - asking * self.request

    @property
    def kv_waiting(self) -> Array:
        """Cache of the requests that must wait: needed and not there."""
        return self.kv_needed - self.kv

    @property
    def needed(self) -> Array:
        """What the workload needs: weights, activations, overhead and the cache of all concurrent requests."""
        return self.weights + self.activations + self.overhead + self.kv_needed

    @property
    def free(self) -> Array:
        """What the running requests leave, reserve and unused cache included."""
        return self.usable - self.weights - self.activations - self.overhead - self.kv

    @property
    def starts(self) -> NDArray[np.bool_]:
        """Whether the engine comes up: one request of the longest length fits, and nothing overflows."""
        return np.asarray((self.pool > 0) & (self.pool >= self.longest) & ~self.overflows)


@dataclass(frozen=True)
class Memory(Rank):
    """The worst rank of a replica, [...], that of the pipeline stage whose cache is full first, and what all hold."""

    running: Array
    """Requests of the replica that run at once; the others wait for cache or for a sequence slot."""
    requests: Array
    """Requests of the workload's length the pools hold, not rounded. Negative when the weights do not fit."""
    longest_requests: Array
    """Requests of the longest length the engine expects, each at what it wants free for one, not rounded: the "maximum
    concurrency" of its log."""
    capacity: Array
    """Whole requests of the workload's length the pools hold at once."""
    slots: Array
    """Requests the replica's engines let run at once, cache or not."""
    kv_tokens: Array
    """Tokens the replica's pools hold, as the engine's log counts them."""
    states: Array
    """Recurrent states one rank's pool can hold, in whole ones; no limit where there are none. vLLM needs one for every
    sequence slot when it records graphs, and does not start otherwise (pull request 38270)."""
    stage: Array
    """Index of the worst pipeline stage."""


@dataclass(frozen=True)
class Ranks:
    """GPUs of one pipeline stage that hold the same."""

    stage: int
    gpus: int
    experts: float
    """Routed experts of one layer on each, in whole experts; 0 without experts."""
    each: Rank
    worst: bool
    """The fullest of the stage that decides for all."""
