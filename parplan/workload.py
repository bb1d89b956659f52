"""What users ask of one replica."""

from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from parplan.provenance import Value
from parplan.units import Seconds, Tokens

Objective: TypeAlias = Literal["cost", "throughput", "latency"]
OBJECTIVES: dict[Objective, str] = {
    "cost": "with the fewest GPUs",
    "throughput": "with the most tokens/s per GPU",
    "latency": "at the lowest latency",
}
"""What makes one layout better than another, of those that hold every request and meet the targets; in words."""
MOST_AT_ONCE = 4096
"""Most requests one replica may be asked to have in hand."""
Target = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Workload(Value):
    """Requests as they come: how long, how many at once, how fast they must be."""

    prompt: int = Field(default=1024, ge=1, le=10_000_000)
    """Prompt tokens of a mean request."""
    output: int = Field(default=1024, ge=1, le=1_000_000)
    """Output tokens of a mean request."""
    concurrency: int = Field(default=64, ge=1, le=65_536)
    """Requests one replica has in hand at once."""
    prefix_hit: float = Field(default=0.0, ge=0, le=1)
    """Share of prompt tokens found in the prefix cache."""
    draft: int = Field(default=0, ge=0, le=16)
    """Tokens drafted for every request and step, which the next step verifies (speculative decoding). 0: none."""
    acceptance: float = Field(default=0.0, ge=0, le=1)
    """Mean chance that a drafted token is accepted when those before it were."""
    ttft: Target | None = None
    """Target for the time to first token, seconds. None: no target."""
    tpot: Target | None = None
    """Target for the time per output token, seconds. None: no target."""

    @property
    def one_token(self) -> bool:
        """Whether a request ends with its first token: there is no time per token then, and no target for it."""
        return self.output == 1

    @property
    def length(self) -> int:
        """Tokens a request holds in the cache when it ends."""
        return self.prompt + self.output

    @property
    def new_tokens(self) -> Tokens:
        """Prompt tokens the prefix cache does not hold; the last one at least is always worked on.

        >>> float(Workload(prompt=1000, prefix_hit=0.75).new_tokens), float(Workload(prefix_hit=1.0).new_tokens)
        (250.0, 1.0)
        """
        return np.maximum(1.0, self.prompt * (1 - self.prefix_hit))

    def in_time(self, *, ttft: Seconds, tpot: Seconds) -> Any:
        """Whether times meet both targets; without targets all do, [...].

        >>> Workload(tpot=0.05).in_time(ttft=9.0, tpot=np.array([0.04, 0.06])).tolist()
        [True, False]
        """
        return (np.asarray(ttft) <= (self.ttft or np.inf)) & (np.asarray(tpot) <= (self.tpot or np.inf))

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens a decode step yields for a request: its own, and the drafted ones up to the first refused.

            1 + a + a^2 + ... + a^n = (1 - a^(n + 1)) / (1 - a)

        Source: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023,
        equation 1; it takes acceptances to be independent.

        >>> Workload(draft=3, acceptance=0.5).tokens_per_step
        1.875
        """
        return float(sum(self.acceptance**accepted for accepted in range(self.draft + 1)))

    @property
    def mean_length(self) -> float:
        """Tokens a request holds in the cache on average while it decodes."""
        return self.prompt + self.output / 2
