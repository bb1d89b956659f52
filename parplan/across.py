"""The same scenario on every GPU of the catalogue: the best layout of each, nothing more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from parplan import catalog
from parplan.advice import shortfall, verdict
from parplan.choice import recommended_index
from parplan.confidence import Confidence, confidence
from parplan.hardware import Gpu
from parplan.instances import weight_bytes
from parplan.layout import Layout
from parplan.planner import Plan, Result, judged_side_by_side
from parplan.problem import Problem
from parplan.scenario import TRIED_GPUS, Scenario, default_budget, precision_of, problem_of
from parplan.search import candidate_layouts, deciding_batches
from parplan.traffic import replica_of, replicas_for


@dataclass(frozen=True)
class Elsewhere:
    """A scenario on another GPU."""

    problem: Problem
    """What was planned there."""
    plan: Plan | None
    """The recommended layout. None: nothing runs."""
    confidence: Confidence | None
    """How far its times may be off. None: nothing runs, or the engine is a bound."""
    words: str
    """The answer in one sentence."""
    replicas: int
    """That run: as many as bear the rate at its peak; without a rate, or where no number bears it, those planned."""
    bears: bool
    """Whether they bear a rate that is asked for."""

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.problem.gpu


def plans_across(scenario: Scenario) -> Mapping[str, Elsewhere]:
    """The same scenario planned on every GPU of the catalogue, by GPU name.

    At most `TRIED_GPUS` GPUs per replica are tried, so that all of them take no longer than a person waits. Layouts
    are the same for all GPUs that may use as many in nodes of one size; GPUs for which the model is stored in the same
    formats are worked out together.

    Raises:
        UnknownNameError: a name the catalogue does not know.
    """
    asked = problem_of(scenario)
    gpus = {**catalog.gpus(), asked.gpu.name: asked.gpu}
    problems = [_on(gpu, asked, scenario=scenario) for gpu in gpus.values()]
    sizes = {(one.budget, one.gpu.node): one for one in problems}
    layouts = {size: candidate_layouts(one) for size, one in sizes.items()}
    alike: dict[tuple[str, ...], list[Problem]] = {}
    for one in problems:
        formats = (*one.precision.weights.values(), one.precision.kv)
        alike.setdefault(tuple(stored.name for stored in formats), []).append(one)
    found = {
        result.problem.gpu.name: _elsewhere(result, scenario)
        for same in alike.values()
        for result in judged_side_by_side(
            same,
            layouts=[large_enough(one, layout=layouts[one.budget, one.gpu.node]) for one in same],
            concurrency=deciding_batches(asked),
        )
    }
    return {name: found[name] for name in gpus}


def _on(gpu: Gpu, asked: Problem, *, scenario: Scenario) -> Problem:
    """The problem on another GPU."""
    precision = precision_of(scenario, transformer=asked.transformer, gpu=gpu, engine=asked.engine)
    budget = scenario.budget or default_budget(asked.transformer, precision, gpu=gpu)
    return replace(asked, gpu=gpu, precision=precision, budget=min(budget, TRIED_GPUS))


def _elsewhere(result: Result, scenario: Scenario) -> Elsewhere:
    """The answer for one GPU; where nothing runs, its words name the nearest layout with room for the weights."""
    index = recommended_index(result)
    best = None if index is None else result.plan(index)
    enough = 0
    if index is not None and scenario.rate:
        enough = replicas_for(replica_of(result, index), rate=scenario.rate, peak=scenario.peak)
    return Elsewhere(
        problem=result.problem,
        plan=best,
        confidence=None if best is None else confidence(result.problem, layout=best.layout),
        words=" ".join(filter(None, (verdict(result, best), shortfall(result, best)))),
        replicas=enough or scenario.replicas,
        bears=enough > 0,
    )


def large_enough(problem: Problem, *, layout: Layout) -> Layout:
    """The layouts with room for all weights, were they spread evenly; all of them where there is none.

    The fullest GPU holds at least the mean, so what is left out cannot start.
    """
    needed = weight_bytes(problem.transformer, problem.precision)
    possible = np.broadcast_to(layout.gpus * problem.gpu.memory >= needed, layout.shape)
    return layout[possible] if possible.any() else layout
