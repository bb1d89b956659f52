"""Attention replicas under random arrivals: they take every step together, and prompts come to each by itself.

A step that any of them has a prompt in is long for all; while it lasts, more prompts come and ride on the next one
together. So prompts bunch, and hold up fewer steps than where as many come at every step, as in a closed loop.
Newcomers go to the attention replica with the fewest requests in hand. Everything is elementwise.
"""

from dataclasses import dataclass

import numpy as np

from parplan.serving import Prefill
from parplan.units import Count, Number, Seconds

ROUNDS = 24
"""Rounds of the fixed point between how long steps with prompts are and how many prompts ride on them."""
LONGEST_RUN = 50.0
"""Chunks that come during a prompt, at which it is taken never to end; exp of it is still a number."""
SOFT = 0.576
"""Standard deviations over which `excess` bends: at a mean of the limit itself it is that of a bell curve."""


@dataclass(frozen=True)
class Held:
    """Steps of attention replicas, as far as prompts hold them up. [...]"""

    step: Seconds
    """Of a decode step by itself."""
    often: Number
    """Share of steps that prompts ride on."""
    longer: Seconds
    """How much longer than a decode step those are."""
    riders: Count
    """Chunks that come during the step a newcomer falls into."""

    @property
    def mean(self) -> Seconds:
        """How much longer the mean step is than a decode step."""
        return self.often * self.longer

    @property
    def chance(self) -> Number:
        """Share of newcomers that fall into a step with prompts."""
        return self.often * (self.step + self.longer) / (self.step + self.mean)


def excess(mean: Count, *, limit: Count) -> Count:
    """Mean of how far a Poisson number exceeds a limit, about.

    >>> [round(float(excess(mean, limit=8)), 3) for mean in (1.0, 8.0, 100.0)]
    [0.0, 1.129, 92.0]
    """
    spread = SOFT * np.sqrt(mean)
    return spread * np.logaddexp(0.0, (mean - limit) / spread)


def held(rate: Number, *, step: Seconds, prompt: Prefill) -> Held:
    """How prompts that come at random, to one attention replica at a time, hold up the steps of all.

        quiet   1 / (1 - exp(-rate step)), decode steps from one prompt's end to the next one's beginning
        busy    (exp(rate long chunks) - 1) / (1 - exp(-rate long)), steps until so many in a row bring no prompt
        often   busy / (quiet + busy)
        riders  rate x chunks x mean step / often, in each of the busy ones
        long    step + alone + (riders - 1) (one - alone) / (replicas - 1), as far as they are no more than the
                replicas; each further one costs (full - one) / (most - 1) / replicas, as in `Prefill.time`

    In a pipeline a step is one of every micro-batch, a prompt takes chunks + stages - 1 stages of it, and as many
    chunks as stages on each replica pass at once.

    Solved by repetition from the shortest `long` up.

    Args:
        rate: prompts per second, over all attention replicas, above zero.
        step: of a decode step, above zero.
        prompt: one of them; what its chunks spend together with the decode step is taken off.
    """
    stages = np.asarray(prompt.stages)
    replicas, chunks = np.asarray(prompt.replicas) * stages, (prompt.chunks + (stages - 1)) / stages
    each = (prompt.one - prompt.alone) / np.maximum(replicas - 1, 1)
    more = (prompt.full - prompt.one) / np.maximum(prompt.most - 1.0, 1.0) / replicas
    longer = prompt.alone + 0.0 * (rate * step)
    for _ in range(ROUNDS):
        often = _often(rate, step=step, longer=longer, chunks=chunks)
        riders = rate * chunks * (step / often + longer)
        over = excess(riders, limit=replicas)
        longer = np.minimum(prompt.alone + (riders - over - 1) * each + over * more, prompt.full)
    often = _often(rate, step=step, longer=longer, chunks=chunks)
    squares = (1 - often) * step**2 + often * (step + longer) ** 2
    return Held(
        step=step,
        often=often,
        longer=longer,
        riders=rate * chunks * squares / (step + often * longer),
    )


def _often(rate: Number, *, step: Seconds, longer: Seconds, chunks: Count) -> Number:
    """Share of steps with prompts, where those last so much longer, see `held`."""
    quiet, during = -1 / np.expm1(-rate * step), rate * (step + longer)
    busy = np.expm1(np.minimum(during * chunks, LONGEST_RUN)) / -np.expm1(-during)
    return busy / (quiet + busy)


def beyond(riders: Count, *, prompt: Prefill) -> Seconds:
    """What a newcomer's own steps take beyond those with a chunk on every attention replica, which it is reckoned with.

    Args:
        riders: chunks that come during a step, with a pipeline during one of every micro-batch.
        prompt: one of them.
    """
    more = (prompt.full - prompt.one) / np.maximum(prompt.most - 1.0, 1.0) / prompt.replicas
    riders = riders / prompt.stages
    over = excess(1.0 + riders, limit=prompt.replicas) - excess(1.0 + 0.0 * riders, limit=prompt.replicas)
    return more * np.maximum(over, 0.0)


def line(rate: Number, *, time: Seconds, replicas: Count) -> tuple[Number, Seconds]:
    """Share of newcomers that find a prompt on every attention replica, and the mean wait of those.

        busy^(sqrt(2 (replicas + 1)) - 1)   and   time / 2 / replicas / (1 - busy),   busy = rate time / replicas

    Args:
        rate: prompts per second, over all of them.
        time: of one prompt, all alike.
        replicas: they take prompts from one line, as newcomers go where the fewest requests are.

    Source: Sakasegawa, An approximation formula L_q = alpha rho^beta / (1 - rho), Ann. Inst. Stat. Math. 29 (1977).

    >>> float(line(0.5, time=1.0, replicas=1)[1])
    1.0
    """
    busy = np.minimum(rate * time / replicas, 0.999)
    return busy ** (np.sqrt(2 * (np.asarray(replicas) + 1)) - 1), time / 2 / replicas / (1 - busy)
