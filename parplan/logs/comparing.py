"""What a log states beside what was predicted, component by component."""

from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from parplan import catalog
from parplan.layout import CUT_NAMES, Layout
from parplan.logs.quantities import QUANTITIES
from parplan.logs.reading import Figure, LogFigures
from parplan.logs.taking import layout_of
from parplan.memory import Memory, Settings, memory
from parplan.scenario import Scenario, plan, problem_of
from parplan.workload import Workload


@dataclass(frozen=True)
class Pair:
    """One quantity, predicted and logged."""

    name: str
    label: str
    predicted: float
    """In the figure's base unit."""
    logged: float
    figure: Figure

    @property
    def difference(self) -> float:
        """Predicted less logged."""
        return self.predicted - self.logged

    @property
    def relative(self) -> float | None:
        """Predicted over logged, less one; None where nothing was logged to divide by."""
        return self.difference / self.logged if self.logged > 0 else None


def laid_out(figures: LogFigures, scenario: Scenario) -> tuple[Scenario, str]:
    """A scenario with every cut decided, and in words where from: the log, or the plan where the log names none.

    Args:
        figures: of a log.
        scenario: with what the log decides, see `scenario_from`.

    Raises:
        UnknownNameError: a name the catalogue does not know.
    """
    if "tensor" in figures.found:
        return scenario, "as the log says"
    best = plan(scenario).advice.recommended
    if best is None:
        return scenario, "the log names no layout, and none runs"
    whose = "fixed" if any(getattr(scenario, name) for name in CUT_NAMES) else "recommended"
    cuts = {name: int(getattr(best.layout, name)) for name in CUT_NAMES}
    return scenario.model_copy(update=cuts), f"as {whose}; the log names no layout"


def layout_decided(scenario: Scenario) -> Layout:
    """The layout of one replica; a cut the scenario leaves open is 1."""
    return Layout(**{name: getattr(scenario, name) or 1 for name in CUT_NAMES})


def compared(figures: LogFigures, predicted: Memory, *, layout: Layout | None = None) -> tuple[Pair, ...]:
    """Predicted beside logged, component by component, for whatever the log states.

    A log counts tokens and requests per data-parallel rank, so the prediction's are divided by the ranks. Sums are
    compared only where a part is not logged; engines that do not tell libraries from weights log both as weights, and
    SGLang logs what drafts tokens on lines of its own.

    Args:
        figures: of a log.
        predicted: of one layout at one concurrency (scalars), told what the log says; see `predicted_memory`.
        layout: the one predicted for. None: the one the log states.
    """
    m = predicted
    profile = catalog.engines()[figures.engine].memory
    beside = sum(getattr(m, part) for part in sorted(profile.logged_with_weights))
    apart = m.weights_by_component.get("mtp", np.asarray(0.0)) if figures.engine == "sglang" else 0.0
    values = {
        "total": np.asarray(m.usable),
        "context": m.context,
        "weights": m.weights + beside - apart,
        "activations": m.activations,
        "non_torch": m.non_torch,
        "context_and_non_torch": m.context + m.non_torch,
        "graphs": m.graphs,
        "outside_torch": m.context + m.non_torch + m.graphs,
        "without_cache": m.weights + m.activations + m.overhead,
        "kv": m.pool,
        "kv_tokens": np.floor(m.kv_tokens / (layout or layout_of(figures)).data),
        "concurrency": m.pool / np.where(m.longest > 0, m.longest, np.nan),
    }
    states = figures.number("states") or 0.0
    rows = []
    for name, value in values.items():
        logged = figures.number(name)
        if logged is not None and np.isfinite(value):
            label = QUANTITIES[name].label + (" and recurrent states" if name == "kv" and states else "")
            logged += states if name == "kv" else 0.0
            rows.append(Pair(name, label, float(value), logged, figures.found[name]))
    return tuple(rows)


def settings_from(figures: LogFigures) -> dict[str, float | int | bool]:
    """The settings the log states, as fields of `memory.Settings`; what that does not take is left out."""
    length, sequences = figures.number("max_length"), figures.number("max_num_seqs")
    tokens, share = figures.number("max_batched_tokens"), figures.number("utilization")
    drafts = figures.number("drafts")
    stated: dict[str, float | int | bool] = {
        name: value
        for name, value in {
            "utilization": share,
            "max_length": length and int(length),
            "max_num_seqs": sequences and int(sequences),
            "max_batched_tokens": tokens and int(tokens),
            "eager": bool(figures.number("eager")) or None,
            "drafts": drafts and int(drafts),
            "prefix_caching": bool(figures.number("prefix_caching")) or None,
        }.items()
        if value is not None
    }
    try:
        Settings.model_validate(stated)
    except ValidationError as error:
        for problem in error.errors():
            stated.pop(str(problem["loc"][0]), None)
    return stated


def predicted_memory(figures: LogFigures, scenario: Scenario) -> Memory:
    """What a scenario predicts when it is told everything the log states: settings, length, size of the GPU.

    Args:
        figures: of a log.
        scenario: with the model, GPU, engine and layout of the log, see `scenario_from`; a cut it leaves open is 1.

    Raises:
        UnknownNameError: a name the catalogue does not know.
    """
    problem = problem_of(scenario)
    told = settings_from(figures)
    length = int(told.get("max_length", problem.workload.length))
    total = figures.number("total") or problem.gpu.memory
    return memory(
        problem.transformer,
        problem.precision,
        layout=layout_decided(scenario),
        gpu=problem.gpu.model_copy(update={"memory": total}),
        engine=problem.engine,
        workload=Workload(prompt=max(length - 1, 1), output=1),
        concurrency=1,
        settings=problem.settings.model_copy(update=told),
    )
