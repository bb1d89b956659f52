"""Both numbers of a plan's fullest GPU: what the workload needs, and what the engine reserves whatever is asked."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from parplan.calibration import Occasion
from parplan.fit import LONGEST, Fit, Shortfall, fit, shortfall
from parplan.memory import Memory, profiled_encoder
from parplan.mixers import Compressed
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.units import counted, written_bytes


@dataclass(frozen=True)
class Entry:
    """One part of the memory, by both counts."""

    name: str
    needed: float
    """Bytes for all asked requests, each at full length."""
    reserved: float
    """Bytes by the engine, before any request."""


@dataclass(frozen=True)
class Balance:
    """What the workload needs beside what the engine reserves, on the fullest GPU, and what that holds."""

    problem: Problem = field(repr=False)
    plan: Plan = field(repr=False)
    usable: float
    """Bytes the driver reports."""
    entries: tuple[Entry, ...]
    """Parts in the order an engine takes them; they add up to `together`."""
    together: Entry
    kv_ideal: float
    """Cache of all asked requests without blocks, padding and unused windows: a part of what is needed."""
    kv_in_flight: float
    """What the tokens of the steps in flight add to it in windows, whichever requests they belong to."""
    kv_tokens: int
    """Tokens the replica's pools hold, as the engine's log counts them."""
    requests: float
    """Largest concurrency of the longest requests the engine expects, not rounded, as a log prints it."""
    length: int
    """Tokens of a request."""
    concurrency: int
    """Asked requests."""
    uncounted: tuple[str, ...]
    """What the engine takes besides and nobody has measured well enough to count, in words."""

    @property
    def engine(self) -> str:
        """Its name as people read it."""
        return self.problem.engine.label

    @property
    def shortfall(self) -> Shortfall | None:
        """What is missing. None: every asked request fits."""
        return shortfall(self.plan.memory)

    @cached_property
    def fit(self) -> Fit:
        """What is missing, and the largest concurrency and lengths that do fit; looked for when somebody asks."""
        return fit(self.problem, layout=self.plan.layout, held=self.plan.memory)

    @property
    def starts(self) -> bool:
        """Whether the engine comes up with this layout, and holds a request."""
        return self.plan.legal

    @property
    def sums(self) -> str:
        """Both totals, as a sentence."""
        reserves = f"{self.engine} reserves {written_bytes(self.together.reserved)}"
        return (
            f"The workload needs {written_bytes(self.together.needed)} of {written_bytes(self.usable)} on each GPU; "
            f"{reserves if self.starts else f'{self.engine} does not come up'}."
        )

    @property
    def cache(self) -> str:
        """What the asked requests' cache takes as the model defines it and as the engine allocates it."""
        allocated = next(entry.needed for entry in self.entries if entry.name == KV)
        shared = (
            f", {written_bytes(self.kv_in_flight)} of it in windows for the tokens of steps in flight, which all share"
            if self.kv_in_flight > 1
            else ""
        )
        return (
            f"KV cache of all asked requests, per GPU: {written_bytes(self.kv_ideal)} ideal, "
            f"{written_bytes(allocated)} as allocated{shared}."
        )

    @property
    def holds(self) -> str:
        """What the pools hold, in the words of a log; empty where the engine does not come up."""
        if not self.starts:
            return ""
        longest = self.problem.settings.max_length or self.length
        return (
            f"KV cache size: {self.kv_tokens:,} tokens; maximum concurrency for {longest:,} tokens per request: "
            f"{self.requests:,.2f}x."
        )

    @property
    def longest(self) -> str:
        """How long a request may be, as a sentence; empty where the engine does not come up."""
        if not self.starts:
            return ""
        alone, together = (
            f"{'more than ' if most >= LONGEST else ''}{most:,} tokens"
            for most in (self.fit.length_alone, self.fit.length)
        )
        return f"Longest request alone: {alone}; of {self.concurrency:,} at once: {together}."

    @property
    def missing(self) -> str:
        """Which part is at fault, by how much, and how far requests must come down; empty where all fit."""
        if self.shortfall is None:
            return ""
        if not self.fit.length:
            return f"{self.shortfall.reason} No request fits, however short."
        most = self.fit.requests
        if self.plan.short_of_slots:
            return f"{self.shortfall.reason} At most {counted(most, 'request')} run at once, however short."
        requests = f"{most:,} requests of {self.length:,} tokens fit" if most > 1 else "one request fits"
        fewer = f"At most {requests}" if most else "None fits"
        return (
            f"{self.shortfall.reason} {fewer}; {self.concurrency:,} at once can be at most {self.fit.length:,} "
            "tokens long."
        )

    @property
    def left_out(self) -> str:
        """What is not counted, as a sentence; empty where nothing is known to be left out."""
        return f"Not counted: {'; '.join(self.uncounted)}." if self.uncounted else ""

    @property
    def words(self) -> tuple[str, ...]:
        """All there is to say, a sentence or two at a time."""
        said = (self.sums, self.cache, self.holds, self.longest, self.missing, self.left_out)
        return tuple(sentence for sentence in said if sentence)


KV = "KV cache"
NAMES = {
    "weights": "Weights",
    "activations": "Activations",
    "context": "Driver context",
    "non_torch": "Communication, libraries",
    "graphs": "CUDA graphs",
}


def entries(memory: Memory) -> tuple[Entry, ...]:
    """Parts of the memory by both counts; they differ in the cache alone."""
    fixed = ((name, float(getattr(memory, part))) for part, name in NAMES.items())
    return (
        *(Entry(name, amount, amount) for name, amount in fixed),
        Entry(KV, float(memory.kv_needed), max(float(memory.pool), 0.0)),
    )


def occasions(problem: Problem, plan: Plan) -> Iterator[Occasion]:
    """When an engine takes more, of what holds for a plan."""
    if problem.transformer.vision and not profiled_encoder(
        problem.transformer, profile=problem.engine.memory
    ):
        yield "towers"
    if problem.settings.drafts:
        yield "drafts"
    if problem.settings.redundant_experts:
        yield "transfer"
    if plan.gpus > 1:
        yield "company"
    if any(isinstance(mixer, Compressed) for mixer in problem.transformer.mixers):
        yield "compressed"
    yield "always"


def balance(problem: Problem, plan: Plan) -> Balance:
    """Both numbers of one plan."""
    memory, said = plan.memory, problem.engine.memory.uncounted
    return Balance(
        problem=problem,
        plan=plan,
        usable=float(memory.usable),
        entries=entries(memory),
        together=Entry("Together", float(memory.needed), float(memory.reserved)),
        kv_ideal=float(memory.kv_needed_ideal),
        kv_in_flight=float(memory.kv_in_flight),
        kv_tokens=int(memory.kv_tokens),
        requests=float(memory.longest_requests),
        length=problem.workload.length,
        concurrency=problem.workload.concurrency,
        uncounted=tuple(said[when] for when in occasions(problem, plan) if when in said),
    )
