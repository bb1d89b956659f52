"""Why a layout is impossible or unwise: one rule each, with the user's own numbers, the source, and a way out.

A rule's `broken` judges all layouts at once; its words are written for one layout when somebody looks at it. A way
out that names a width names one the rule allows. What engines do not refuse has no rule: uneven pipeline stages (vLLM
gives the remainder to the stages before the last, TensorRT-LLM to the first), 4-bit integers on AMD GPUs (vLLM on ROCm
reads AWQ and GPTQ), weights that attention data parallelism repeats (they are part of the memory model).
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from parplan.objections.case import Case, Objection, Rule, divisors, joined_gpus, nearest, slots_flag
from parplan.objections.formats import FORMATS, REFUSALS, starts
from parplan.objections.hard import HARD, largest_percent
from parplan.objections.hardware import HARDWARE
from parplan.objections.unwise import CLEAR_GAIN, UNWISE, narrower_tensor
from parplan.units import Mask

__all__ = [
    "BY_NAME",
    "CLEAR_GAIN",
    "REFUSALS",
    "RULES",
    "Case",
    "Objection",
    "Rule",
    "broken",
    "divisors",
    "joined_gpus",
    "largest_percent",
    "narrower_tensor",
    "nearest",
    "objection",
    "objections",
    "slots_flag",
    "starts",
]

RULES: tuple[Rule, ...] = (*FORMATS, *HARD, *HARDWARE, *UNWISE)


def broken(case: Case, *, severity: Literal["error", "warning"]) -> Mapping[str, Mask]:
    """Which layouts break which rule: name -> mask [layouts]."""
    rules = [rule for rule in RULES if rule.severity == severity]
    masks = np.empty((len(rules), *case.layout.shape), dtype=bool)
    for mask, rule in zip(masks, rules, strict=True):
        mask[...] = rule.broken(case)
    return {rule.name: mask for rule, mask in zip(rules, masks, strict=True)}


BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}


def objection(name: str, case: Case) -> Objection:
    """One rule's objection to a single layout that breaks it."""
    rule = BY_NAME[name]
    return Objection(rule.name, rule.severity, rule.reason(case), rule.fix(case), rule.cited(case))


def objections(case: Case) -> tuple[Objection, ...]:
    """Everything wrong with a single layout, errors first."""
    found = [objection(rule.name, case) for rule in RULES if bool(np.all(rule.broken(case)))]
    return tuple(sorted(found, key=lambda one: one.severity != "error"))
