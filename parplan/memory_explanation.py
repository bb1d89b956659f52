"""How the memory of a plan's fullest GPU is made up, with the user's own numbers."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from parplan.allocator import charge, stores
from parplan.explanation import COMPONENT_NAMES, engine_sources
from parplan.memory import (
    Charges,
    Memory,
    draft_bytes,
    expert_padding,
    limits,
    loaded_weight_bytes,
    peak_with_images,
    profiled_encoder,
    profiled_images,
    rotary_table_bytes,
    shared_bytes,
    stage_activation_bytes,
    stage_graph_bytes,
)
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.products import Explanation, Factor, Part, Term, single
from parplan.provenance import Source
from parplan.units import Array, counted
from parplan.work import all_stages, stage_parameters

BLOCKS = "blocks, padding and windows as the engine keeps them"
IN_FLIGHT = "tokens of the steps in flight in windows, which all requests share"


def memory_parts(problem: Problem, plan: Plan) -> Explanation:
    """Everything on the fullest GPU: what is there adds up to what the driver reports."""
    memory = plan.memory
    images, more = _images(problem, plan)
    amounts: dict[str, tuple[Array | float, Callable[..., Any] | None]] = {
        "weights": (memory.weights, loaded_weight_bytes),
        "KV cache in use": (memory.kv, charge),
        "activations at their peak": (memory.activations - more, stage_activation_bytes),
        **({images: (more, peak_with_images)} if images else {}),
        "driver context": (memory.context, shared_bytes),
        "communication buffers and libraries": (memory.non_torch, shared_bytes),
        "CUDA graphs": (memory.graphs, stage_graph_bytes),
        "free, or kept in reserve": (memory.free, None),
    }
    parts = tuple(
        single(name, Term((Factor(float(amount), "B"),)), law=law) for name, (amount, law) in amounts.items()
    )
    return Explanation(
        "Memory of the fullest GPU", float(memory.usable), "B", parts, _memory_sources(problem)
    )


def _images(problem: Problem, plan: Plan) -> tuple[str, float]:
    """The images an engine encodes when it starts, in words, and the bytes its activation peak is higher for them; none
    where it encodes none, or the peak is that of a log."""
    profile, settings = problem.engine.memory, problem.settings
    encoder = profiled_encoder(problem.transformer, profile=profile)
    if encoder is None or settings.activations is not None:
        return "", 0.0
    length, layout = problem.workload.length, plan.layout
    told = limits(settings, profile=profile, gpu=problem.gpu, layout=layout, length=length)
    text, both = (
        stage_activation_bytes(
            transformer, problem.precision, profile=profile, layout=layout,
            stages=all_stages(problem.transformer, layout=layout), told=told,
        )[int(plan.memory.stage)]
        for transformer in (problem.transformer.text_only, problem.transformer)
    )  # fmt: skip
    count = int(profiled_images(encoder, told=told))
    name = f"more for {counted(count, 'image')} of {encoder.tokens:,} tokens, encoded at start"
    return name, float(both - text)


def weights(problem: Problem, plan: Plan) -> Explanation:
    """Weights of the fullest GPU, by component: what it holds of each, times the bytes of one parameter."""
    return Explanation(
        "Weights",
        float(plan.memory.weights),
        "B",
        tuple(part for part in _weight_parts(problem, plan) if part.value),
        _format_sources(problem),
    )


def _weight_parts(problem: Problem, plan: Plan) -> Iterator[Part]:
    transformer, precision, stage = problem.transformer, problem.precision, int(plan.memory.stage)
    profile = problem.engine.memory
    padding = float(expert_padding(transformer, precision, profile=profile, layout=plan.layout))
    for component, parameters in stage_parameters(
        transformer, layout=plan.layout, stages=all_stages(transformer, layout=plan.layout)
    ).items():
        here, all_of_it = float(parameters[stage]), transformer.components.get(component, 0)
        share = f", 1/{all_of_it / here:.3g} of the model's" if 0 < here < all_of_it else ""
        factors = (
            Factor(here, "parameters"),
            Factor(precision.bytes_per_parameter(component), "B"),
            *((Factor(padding, "for padding"),) if component == "routed_experts" and padding != 1 else ()),
        )
        yield single(f"{COMPONENT_NAMES[component]}{share}", Term(factors), law=stage_parameters)
    tables = float(rotary_table_bytes(transformer, profile=profile))
    yield single("tables of positions", Term((Factor(tables, "B"),)), law=rotary_table_bytes)
    drafting = float(plan.memory.weights_by_component.get("mtp", np.asarray(0.0)))
    name = COMPONENT_NAMES["mtp"] if transformer.mtp else "EAGLE head, of the size published ones have"
    yield single(name, Term((Factor(drafting, "B"),)), law=draft_bytes)


def kv_cache(problem: Problem, plan: Plan) -> Explanation:
    """Cache of the running requests on the fullest GPU, by kind of layer, and what the engine's blocks add."""
    memory = plan.memory
    kinds = tuple(_kind_parts(problem, plan))
    kept = _at_once(memory) * float(memory.request)
    amounts = (
        (BLOCKS, kept - sum(part.value for part in kinds), charge),
        (IN_FLIGHT, float(memory.kv) - kept, Charges.together),
    )
    rest = (
        single(name, Term((Factor(added, "B"),)), law=law) for name, added, law in amounts if abs(added) > 1
    )
    return Explanation(
        "KV cache",
        float(memory.kv),
        "B",
        (*kinds, *rest),
        (*problem.precision.kv.sources, *engine_sources(problem)),
    )


def _at_once(memory: Memory) -> float:
    """Requests the fullest GPU runs."""
    return float(memory.kv_ideal / memory.request_ideal) if memory.request_ideal else 0.0


def _kind_parts(problem: Problem, plan: Plan) -> Iterator[Part]:
    length, stage = problem.workload.length, int(plan.memory.stage)
    running = Factor(_at_once(plan.memory), "requests")
    for store in stores(
        problem.transformer,
        problem.precision,
        layout=plan.layout,
        stages=all_stages(problem.transformer, layout=plan.layout),
        drafts=problem.settings.drafts,
        packed=problem.gpu.each(problem.engine.memory.packs_latents),
    ):
        layers = Factor(float(np.broadcast_to(store.layers, (int(plan.layout.pipeline),))[stage]), "layers")
        kept = min(length, store.window) if store.window else length
        grows, fixed = float(store.per_token[..., 0]), float(store.state[..., 0])
        name = f"window of {store.window:,} tokens" if store.window else "every token" if grows else "states"
        terms = (
            Term((running, layers, Factor(kept, "tokens"), Factor(grows, "B"))),
            Term((running, layers, Factor(fixed, "B"))),
        )
        yield single(name, *(term for term in terms if term.value), law=stores)


def _format_sources(problem: Problem) -> tuple[Source, ...]:
    """Where the bytes of one parameter come from."""
    used = (problem.precision.weights[component] for component in problem.transformer.components)
    return tuple(dict.fromkeys(source for stored in used for source in stored.sources))


def _memory_sources(problem: Problem) -> tuple[Source, ...]:
    """Where the size of the GPU and the engine's overheads come from."""
    return tuple(dict.fromkeys((*problem.gpu.sources_of("memory"), *engine_sources(problem))))
