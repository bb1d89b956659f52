"""Answers and models as plain data, for JSON and tables."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from parplan.balance import Balance, balance
from parplan.comparison import TIME_TERMS
from parplan.cost import Work, bill, energy_per_token
from parplan.formats import Precision
from parplan.instances import Purchase
from parplan.ladder import Rung
from parplan.layout import Layout
from parplan.mixers import Recurrent
from parplan.planner import Plan
from parplan.scenario import Answer, Scenario
from parplan.transformer import Transformer
from parplan.units import MS, gib
from parplan.work import INDEX_BYTES

Json: TypeAlias = dict[str, Any]

FORMULA = frozenset("=+-@\t\r\n|")
"""What a formula begins with, in one spreadsheet or another."""
NUMBER = re.compile(r"[+-]?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?")
WINDOW_FULL = 10**9
"""A length at which every window is full, tokens."""


def _number(value: Any) -> float | None:
    """A finite number, or None: JSON has no infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def inert(cell: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula: a text that begins like one gets an apostrophe.

    >>> [inert(cell) for cell in ("=1+1", "-2.5", "- none", "TP2", "@SUM(A1)", "\\t=1")]
    ["'=1+1", '-2.5', "'- none", 'TP2', "'@SUM(A1)", "'\\t=1"]
    """
    return f"'{cell}" if cell[:1] in FORMULA and not NUMBER.fullmatch(cell) else cell


def layout_json(layout: Layout) -> Json:
    """Every cut by name, and the short name people use."""
    return {f.name: int(getattr(layout, f.name)) for f in fields(layout)} | {"name": str(layout)}


def plan_json(plan: Plan) -> Json:
    """One layout: memory in GiB on the worst rank, times in ms."""
    memory, serving = plan.memory, plan.serving
    parts = {part: _number(getattr(serving.decode, part) / MS) for part in TIME_TERMS}
    return {
        "layout": layout_json(plan.layout),
        "gpus": plan.gpus,
        "fits": plan.legal,
        "holds": plan.holds,
        "meets_targets": plan.in_time,
        "nearest": plan.nearest and layout_json(plan.nearest),
        "objections": [asdict(objection) for objection in plan.objections],
        "memory": {
            name: _number(gib(getattr(memory, name)))
            for name in (
                "weights",
                "kv",
                "activations",
                "overhead",
                "free",
                "usable",
                "pool",
                "kv_needed",
                "kv_needed_ideal",
                "kv_ideal",
                "needed",
                "reserved",
                "reserve",
            )
        },
        "kv_tokens": int(memory.kv_tokens),
        "max_requests": _number(memory.capacity),
        "running": _number(serving.running),
        "ttft_ms": _number(serving.ttft / MS),
        "tpot_ms": _number(serving.tpot / MS),
        "tokens_per_s": _number(serving.tokens_per_s),
        "tokens_per_s_per_user": _number(serving.tokens_per_s_per_user),
        "tokens_per_s_per_gpu": _number(serving.tokens_per_s_per_gpu),
        "requests_per_s": _number(serving.requests_per_s),
        "tpot_breakdown_ms": parts | {"prefill": _number(serving.prefill / MS)},
    }


def balance_json(both: Balance) -> Json:
    """What the workload needs beside what the engine reserves on the fullest GPU, GiB, and what its pools hold."""
    return {
        "parts": {
            entry.name: {"needed": gib(entry.needed), "reserved": gib(entry.reserved)}
            for entry in (*both.entries, both.together)
        },
        "kv_ideal": gib(both.kv_ideal),
        "kv_tokens": both.kv_tokens,
        "max_concurrency": _number(both.requests),
        "longest_request": both.fit.length_alone,
        "longest_of_all_requests": both.fit.length,
        "missing": both.missing,
        "not_counted": list(both.uncounted),
    }


def machines_json(purchase: Purchase) -> Json:
    """Machines that are bought together."""
    priced = purchase.instance.priced
    return {
        "provider": purchase.instance.provider,
        "name": purchase.instance.name,
        "count": purchase.count,
        "gpus": purchase.gpus,
        "usd_per_hour": purchase.price,
        "priced": priced and priced.isoformat(),
    }


def cost_json(purchase: Purchase, *, replicas: int, work: Work) -> Json | None:
    """What requests and tokens cost on machines, each figure all of the cost; None where no price is known."""
    found = bill(purchase, replicas=replicas, work=work)
    if found is None:
        return None
    return {
        "usd_per_request": _number(found.cost.per_request),
        "usd_per_million_output_tokens": _number(found.cost.per_million_output),
        "usd_per_million_input_tokens": _number(found.cost.per_million_input),
        "usd_per_million_tokens": _number(found.cost.per_million_tokens),
    }


def rung_json(rung: Rung, *, scenario: Scenario, tdp: float | None) -> Json:
    """A step of the ladder, with what to buy, and what tokens cost there while it is always busy.

    Args:
        tdp: of one GPU, watts. None: not known, and so is the energy.
    """
    return {
        "name": rung.name,
        "meaning": rung.meaning,
        "gpus": rung.gpus,
        "replicas": rung.replicas,
        "layout": rung.plan and layout_json(rung.plan.layout),
        "note": rung.note,
        "joules_per_output_token": None
        if tdp is None or rung.gpus is None
        else _number(energy_per_token(tdp * rung.gpus, rate=rung.tokens_per_s)),
        "instances": [
            machines_json(offer.purchase)
            | {
                "tpot_ms": _number(offer.plan.serving.tpot / MS),
                "ttft_ms": _number(offer.plan.serving.ttft / MS),
                "cost": cost_json(
                    offer.purchase,
                    replicas=rung.replicas,
                    work=scenario.work(rung.requests_per_s_of(offer.plan)),
                ),
            }
            for offer in rung.offers
        ],
    }


def load_json(answer: Answer) -> Json | None:
    """What the asked rate takes and costs, at its mean and fully loaded; None without a rate or a layout."""
    found, scenario = answer.traffic, answer.scenario
    if found is None or not scenario.rate:
        return None
    rates = {"cost_at_mean_rate": scenario.rate} | (
        {"cost_fully_loaded": found.bearable} if found.bearable else {}
    )
    return {
        "words": answer.load_words,
        "planned_replicas_suffice": found.replica.bearable > 0 and found.replicas <= scenario.replicas,
        "replicas": found.replicas,
        "gpus": _number(found.busiest.gpus),
        "bearable_requests_per_s": _number(found.bearable),
        "knee_requests_per_s": _number(found.knee),
        "gives_way_first": found.replica.limit,
        "utilisation_mean": _number(found.mean.utilisation),
        "utilisation_peak": _number(found.busiest.utilisation),
        "tpot_ms_peak": _number(found.tpot / MS),
        "ttft_p50_ms_peak": _number(found.busiest.ttft_p50 / MS),
        "ttft_p95_ms_peak": _number(found.busiest.ttft_p95 / MS),
        "wait_mean_ms_peak": _number(found.busiest.wait_mean / MS),
        "in_hand_peak": _number(found.busiest.in_hand),
        "instances": [
            machines_json(bought)
            | {
                name: cost_json(bought, replicas=found.replicas, work=scenario.work(rate))
                for name, rate in rates.items()
            }
            for bought in answer.purchases
        ],
    }


def precision_json(precision: Precision) -> Json:
    """Format names by component, and of the KV cache."""
    return {component: found.name for component, found in precision.weights.items()} | {
        "kv": precision.kv.name
    }


def answer_json(answer: Answer) -> Json:
    """Everything parplan says to a scenario."""
    advice, result = answer.advice, answer.result
    rungs = {rung.name: rung for rung in advice.ladder}
    smallest = rungs["holds"] if rungs["holds"].plan else rungs["loads"]
    return {
        "scenario": answer.scenario.model_dump(),
        "verdict": answer.verdict,
        "shortfall": advice.shortfall,
        "sharing": advice.sharing,
        "recommended": advice.recommended and plan_json(advice.recommended),
        "memory": advice.recommended and balance_json(balance(result.problem, advice.recommended)),
        "reasons": list(advice.reasons),
        "runner_up": advice.runner_up
        and {"layout": str(advice.runner_up.plan.layout), "words": advice.runner_up.words},
        "alternatives": list(advice.alternatives),
        "smallest": rung_json(smallest, scenario=answer.scenario, tdp=result.problem.gpu.tdp)
        | {
            "napkin_gpus": advice.napkin.gpus,
            "napkin_weights_gib": gib(advice.napkin.weights),
            "napkin_kv_gib": gib(advice.napkin.kv),
            "note": advice.napkin_note,
        },
        "ladder": [
            rung_json(rung, scenario=answer.scenario, tdp=result.problem.gpu.tdp) for rung in advice.ladder
        ],
        "load": load_json(answer),
        "precision": precision_json(result.problem.precision),
        "plans": [plan_json(result.plan(index)) for index in range(result.shape[0])],
    }


def layer_kinds(transformer: Transformer) -> Mapping[str, int]:
    """Layers by kind of mixer, in words: how many are full attention, windowed, latent, recurrent, none."""
    kinds: dict[str, int] = {}
    for block, count in zip(transformer.blocks, transformer.counts, strict=True):
        kind = (
            block.mixer.variant
            if isinstance(block.mixer, Recurrent)
            else block.mixer.kind
            if block.mixer
            else "none"
        )
        window = block.mixer.cache.window if block.mixer else None
        name = f"{kind}, window {window}" if window else kind
        name = f"{name}, no cache" if block.mixer and getattr(block.mixer, "shares_cache", False) else name
        kinds[name] = kinds.get(name, 0) + count
    return kinds


def model_json(transformer: Transformer) -> Json:
    """What can be counted of a model; KV bytes in bf16, those of a sparse index (FP8 with its scales) apart."""
    bf16_bytes = 2
    index = transformer.index_elements
    short, long = transformer.cached_elements(1) - index, transformer.cached_elements(WINDOW_FULL)
    growth = transformer.cached_elements(WINDOW_FULL + 1) - long - index
    return {
        "name": transformer.name,
        "family": transformer.family,
        "total_parameters": transformer.total_parameters,
        "active_parameters": transformer.active_parameters,
        "components": dict(transformer.components),
        "mtp_parameters": transformer.mtp,
        "context_length": transformer.context_length,
        "kv_bytes_per_token": short * bf16_bytes,
        "kv_bytes_per_token_long": growth * bf16_bytes,
        "index_bytes_per_token": index * INDEX_BYTES,
        "kv_bytes_per_sequence": state_bytes(transformer, convolution_bytes=bf16_bytes),
        "layers": dict(layer_kinds(transformer)),
        "native": dict(transformer.native),
        "native_kv": transformer.native_kv,
        "assumed": list(transformer.assumed),
    }


def state_bytes(transformer: Transformer, *, convolution_bytes: float) -> float:
    """Bytes one sequence takes whatever its length: recurrent states and convolution inputs."""
    return sum(
        count
        * (
            block.mixer.cache.state * block.mixer.state_bytes
            + block.mixer.cache.convolution * convolution_bytes
        )
        for block, count in zip(transformer.blocks, transformer.counts, strict=True)
        if isinstance(block.mixer, Recurrent)
    )
