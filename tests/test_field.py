"""Deployments that makers of engines and models publish are legal, fit, and rank where their authors say.

Where parplan says otherwise the data names the cause, and the test asserts that it still does: a fix is noticed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from parplan.layout import MOST_GPUS, Layout
from parplan.memory import Memory
from parplan.objections import objections
from parplan.planner import case_of, evaluate
from parplan.problem import Problem
from parplan.scenario import Scenario, problem_of
from parplan.search import candidate_layouts
from parplan.serving import Serving
from parplan.units import GIB

FIELD = yaml.safe_load((Path(__file__).parent / "data" / "field.yaml").read_text("utf-8"))
DEPLOYMENTS: list[dict[str, Any]] = FIELD["deployments"]
METRICS: dict[str, Callable[[Memory, Serving, Layout], Any]] = {
    "tokens/s per user": lambda _, served, __: served.tokens_per_s_per_user,
    "tokens/s per GPU": lambda _, served, __: served.tokens_per_s_per_gpu,
    "requests per second and GPU": lambda _, served, layout: served.requests_per_s / layout.gpus,
    "decode steps per second": lambda _, served, __: 1 / served.decode.total,
    "decode tokens/s per GPU": lambda _, served, layout: served.running / served.decode.total / layout.gpus,
    "requests held": lambda held, _, __: held.requests,
    "maximum concurrency": lambda held, _, __: held.longest_requests,
    "KV tokens": lambda held, _, __: held.kv_tokens,
    "KV GiB": lambda held, _, layout: held.pool * layout.gpus / GIB,
}
DO_NOT_FIT = {"weights", "one-request"}


@dataclass(frozen=True)
class Deployment:
    """One published deployment, as parplan sees it."""

    problem: Problem
    layout: Layout

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Deployment":
        """An entry of the data, names resolved."""
        problem = problem_of(Scenario(**entry["scenario"]))
        changed: dict[str, Any] = {"concurrency": entry["requests"]} if "requests" in entry else {}
        redundant = {"redundant_experts": entry.get("redundant", 0)}
        problem = replace(
            problem,
            workload=problem.workload.model_copy(update=changed),
            settings=problem.settings.model_copy(update=redundant),
        )
        return cls(problem, Layout(**entry["layout"]))

    def evaluated(self) -> tuple[Memory, Serving]:
        """Memory and speed at its requests."""
        return evaluate(
            self.problem, layout=self.layout, concurrency=np.asarray(self.problem.workload.concurrency)
        )

    def rules(self) -> dict[str, str]:
        """Every rule it breaks, with the severity."""
        held, _ = self.evaluated()
        case = replace(case_of(self.problem, layout=self.layout, held=held), settings=self.problem.settings)
        return {one.rule: one.severity for one in objections(case)}

    def errors(self) -> set[str]:
        """Rules that make it impossible."""
        return {rule for rule, severity in self.rules().items() if severity == "error"}

    def metric(self, name: str) -> float:
        """One figure."""
        held, served = self.evaluated()
        return float(np.squeeze(METRICS[name](held, served, self.layout)))

    def experts(self) -> float:
        """Whole experts of a layer on each GPU."""
        count = max(block.experts.count for block in self.problem.transformer.blocks if block.experts)
        return float((count + self.problem.settings.redundant_experts) / self.layout.expert)


def says_the_same(deployment: Deployment, claim: dict[str, Any]) -> bool:
    """Whether parplan agrees with what is claimed."""
    match claim:
        case {"fits": True}:
            return not deployment.errors()
        case {"fits": False}:
            return bool(deployment.errors()) and deployment.errors() <= DO_NOT_FIT
        case {"holds": requests}:
            return float(deployment.evaluated()[0].capacity) >= float(requests)
        case {"experts": each}:
            return deployment.experts() == float(each)
        case {"breaks": rule}:
            return rule in deployment.rules()
        case {"free of": rule}:
            return rule not in deployment.rules()
        case {"metric": name, "above": other}:
            rival = replace(deployment, layout=Layout(**other))
            return deployment.metric(name) > claim.get("by", 1) * rival.metric(name)
        case {"metric": name, "is": value, "within": margin}:
            return abs(deployment.metric(name) / value - 1) <= float(margin)
        case {"metric": name, "at least": value}:
            return deployment.metric(name) >= float(value)
        case _:
            raise AssertionError(f"a claim nobody can check: {claim}")


def words(claim: dict[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in claim.items() if key != "disagrees")


CLAIMS = [
    pytest.param(entry, claim, id=f"{entry['name']}: {words(claim)}")
    for entry in DEPLOYMENTS
    for claim in entry["claims"]
]


@pytest.mark.parametrize(("entry", "claim"), CLAIMS)
def test_parplan_says_what_the_field_says(entry: dict[str, Any], claim: dict[str, Any]) -> None:
    agrees = says_the_same(Deployment.of(entry), claim)
    assert agrees == ("disagrees" not in claim)


@pytest.mark.parametrize("entry", DEPLOYMENTS, ids=lambda entry: str(entry["name"]))
def test_the_planner_tries_what_the_field_runs(entry: dict[str, Any]) -> None:
    """With a GPU budget that allows it, every published layout is among the candidates."""
    deployment = Deployment.of(entry)
    assert deployment.layout.gpus <= MOST_GPUS
    tried = candidate_layouts(replace(deployment.problem, budget=int(deployment.layout.gpus)))
    wanted = vars(deployment.layout)
    same = np.logical_and.reduce([getattr(tried, name) == size for name, size in wanted.items()])
    assert same.any() == ("untried" not in entry)


def test_every_deployment_names_its_source() -> None:
    names = [entry["name"] for entry in DEPLOYMENTS]
    assert len(set(names)) == len(names)
    assert {entry["source"] for entry in DEPLOYMENTS} == set(FIELD["sources"])


def test_a_claim_can_be_wrong() -> None:
    """The check fails where the field would be contradicted."""
    entry = next(entry for entry in DEPLOYMENTS if entry["name"] == "DeepSeek-V3 FP8 on 8x H200")
    one_gpu = replace(Deployment.of(entry), layout=Layout())
    assert not says_the_same(one_gpu, {"fits": True})
    assert says_the_same(one_gpu, {"fits": False})
    assert not says_the_same(one_gpu, {"holds": 1})
