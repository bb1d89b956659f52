"""Why one layout beats another: the difference of two plans, term by term; the terms add up to the difference."""

from dataclasses import dataclass

from parplan.planner import Plan
from parplan.units import written_bytes, written_time

TIME_TERMS = {
    "linear": "weights every token uses",
    "experts": "expert weights",
    "attention": "reading the KV cache",
    "all_reduce": "sums between tensor ranks",
    "all_to_all": "tokens to experts and back",
    "send": "sending between stages",
    "bubble": "waiting for the fullest stage",
    "launch": "starting kernels",
    "head": "output head and sampling",
    "engine": "the engine's own work",
    "draft": "drafting",
}
"""Parts of a decode step, in words; with the share of other requests' prompts they make up the time per token."""


@dataclass(frozen=True)
class Term:
    """One part of a difference."""

    name: str
    """What it is, in words."""
    first: float
    second: float

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """Two plans, and the terms of their differences, largest first."""

    first: Plan
    second: Plan
    time: tuple[Term, ...]
    """Seconds per output token; sums to the difference in TPOT."""
    memory: tuple[Term, ...]
    """Bytes of the fullest GPU; all but the free part."""

    @property
    def words(self) -> str:
        """Who is faster, what makes it faster and what slower, and who has more room for the cache, in sentences."""
        return self.sentences(first=str(self.first.layout), second=str(self.second.layout))

    def sentences(self, *, first: str, second: str) -> str:
        """The same with names of one's own for the two plans."""
        gap = float(self.second.serving.tpot) - float(self.first.serving.tpot)
        faster, slower = (first, second) if gap >= 0 else (second, first)
        largest = [(term, term.difference if gap >= 0 else -term.difference) for term in self.time[:3]]
        gains = [f"{term.name} ({written_time(saved)} less)" for term, saved in largest if saved > 0]
        losses = [f"{term.name} ({written_time(-saved)} more)" for term, saved in largest if saved < 0]
        room = float(self.second.memory.pool) - float(self.first.memory.pool)
        said = (
            f"{faster} takes {written_time(abs(gap))} less per token than {slower}."
            if gap
            else f"{first} and {second} take equally long per token.",
            *(
                f"{name} {plan.runs}, and fewer at once are faster; the others wait."
                for name, plan in ((first, self.first), (second, self.second))
                if plan.legal and not plan.holds
            ),
            f"What makes {faster} faster: {', '.join(gains)}." if gains else "",
            f"What makes it slower: {', '.join(losses)}." if losses else "",
            f"{second if room > 0 else first} has {written_bytes(abs(room))} more room for KV on each GPU."
            if room
            else "Both have the same room for KV on each GPU.",
        )
        return " ".join(filter(None, said))


def time_terms(first: Plan, second: Plan) -> tuple[Term, ...]:
    """Terms of the difference in time per output token, largest first."""
    terms = [
        Term(words, float(getattr(first.serving.decode, part)), float(getattr(second.serving.decode, part)))
        for part, words in TIME_TERMS.items()
    ]
    prefill = Term("prompts of other requests", float(first.serving.prefill), float(second.serving.prefill))
    return tuple(sorted((*terms, prefill), key=lambda term: -abs(term.difference)))


def memory_terms(first: Plan, second: Plan) -> tuple[Term, ...]:
    """Terms of the difference in memory taken on the fullest GPU, largest first."""
    names = {
        "weights": "weights",
        "activations": "activations",
        "overhead": "engine overhead",
        "kv": "KV cache in use",
    }
    terms = [
        Term(words, float(getattr(first.memory, part)), float(getattr(second.memory, part)))
        for part, words in names.items()
    ]
    return tuple(sorted(terms, key=lambda term: -abs(term.difference)))


def compared(first: Plan, second: Plan) -> Comparison:
    """Two layouts of one scenario, or of two."""
    return Comparison(first, second, time_terms(first, second), memory_terms(first, second))
