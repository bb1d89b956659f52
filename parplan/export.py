"""Answers and models as plain data, for JSON and tables."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from parplan.comparison import TIME_TERMS
from parplan.formats import Precision
from parplan.ladder import Rung
from parplan.layout import Layout
from parplan.planner import Plan
from parplan.scenario import Answer
from parplan.transformer import Recurrent, Transformer
from parplan.units import MS, gib
from parplan.work import INDEX_BYTES

Json: TypeAlias = dict[str, Any]

WINDOW_FULL = 10**9
"""A length at which every window is full, tokens."""


def _number(value: Any) -> float | None:
    """A finite number, or None: JSON has no infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


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
                "reserve",
            )
        },
        "kv_tokens": _number(memory.kv_tokens),
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


def rung_json(rung: Rung) -> Json:
    """A step of the ladder, with what to buy."""
    return {
        "name": rung.name,
        "meaning": rung.meaning,
        "gpus": rung.gpus,
        "replicas": rung.replicas,
        "layout": rung.plan and layout_json(rung.plan.layout),
        "instances": [
            {
                "provider": purchase.instance.provider,
                "name": purchase.instance.name,
                "count": purchase.count,
                "gpus": purchase.gpus,
                "usd_per_hour": purchase.price,
                "priced": purchase.instance.priced and purchase.instance.priced.isoformat(),
            }
            for purchase in rung.purchases
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
        "verdict": advice.verdict,
        "shortfall": advice.shortfall,
        "recommended": advice.recommended and plan_json(advice.recommended),
        "reasons": list(advice.reasons),
        "runner_up": advice.runner_up
        and {"layout": str(advice.runner_up.plan.layout), "words": advice.runner_up.words},
        "alternatives": list(advice.alternatives),
        "smallest": rung_json(smallest)
        | {
            "napkin_gpus": advice.napkin.gpus,
            "napkin_weights_gib": gib(advice.napkin.weights),
            "napkin_kv_gib": gib(advice.napkin.kv),
            "note": advice.napkin_note,
        },
        "ladder": [rung_json(rung) for rung in advice.ladder],
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
