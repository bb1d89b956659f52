"""What a log decides of a scenario: model, formats, GPU, engine, settings, layout, measured overheads."""

import re
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from parplan import catalog
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout
from parplan.logs.quantities import LABELS
from parplan.logs.reading import LogFigures
from parplan.scenario import AUTO, NATIVE, Scenario
from parplan.transformer import Transformer
from parplan.units import gib
from parplan.validate import (
    RowError,
    engine_named,
    known_gpu,
    kv_format,
    published_in,
    transformer_named,
    weight_format,
)


def layout_of(figures: LogFigures) -> Layout:
    """The layout the log states, in parplan's terms; what it does not state is 1.

    vLLM cuts attention `tensor` ways and repeats it `data` times; expert parallelism spreads experts over all of
    them. SGLang counts all GPUs as `tp` and divides them when attention is data-parallel; so does TensorRT-LLM, all
    the way.
    """
    tensor, data = figures.count("tensor", default=1), figures.count("data", default=1)
    expert = figures.count("expert", default=1)
    match figures.engine:
        case "vllm":
            expert = tensor * data if figures.number("expert_parallel") else 1
        case "sglang":
            data = data if figures.number("attention_data") else 1
            tensor = max(tensor // data, 1)
        case "trtllm":
            tensor, data = (1, tensor) if figures.number("attention_data") else (tensor, 1)
    return Layout(
        tensor=tensor,
        data=data,
        pipeline=figures.count("pipeline", default=1),
        expert=expert,
        decode_context=figures.count("decode_context", default=1),
    )


DEVICE_NOISE = re.compile(r"^(NVIDIA|AMD)_|_HBM\d\w?|(?<=SXM)\d|\.json$")
"""What the driver's name of a GPU has and the catalogue's has not."""


def gpus_of(figures: LogFigures) -> tuple[Gpu, ...]:
    """GPUs of the catalogue that can be the log's: of its name, or within a hundredth of its memory."""
    named = known_gpu(DEVICE_NOISE.sub(" ", figures.word("gpu")).replace("_", " ").strip())
    total = figures.number("total")
    if named:
        return (named,)
    if total is None:
        return ()
    return tuple(gpu for gpu in catalog.gpus().values() if abs(gpu.memory - total) < 0.01 * total)


def scenario_from(figures: LogFigures) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a scenario the log decides, and what it leaves open, in words."""
    changes: dict[str, Any] = {}
    messages: list[str] = []
    model = _model_changes(figures, changes, messages)
    _gpu_changes(figures, changes, messages)
    try:
        changes["engine"] = engine_named(figures.engine, version=figures.word("version")).name
    except RowError as error:
        changes["engine"] = figures.engine
        messages.append(f"{LABELS[figures.engine]}: {error}; its present profile is used.")
    if not figures.word("version"):
        messages.append(f"The log does not state the version of {LABELS[figures.engine]}.")
    if (share := figures.number("utilization")) is not None:
        changes["utilization"] = round(100 * share, 4)
    for field, quantity in (
        ("slots", "max_num_seqs"),
        ("step_tokens", "max_batched_tokens"),
        ("draft", "drafts"),
    ):
        if (number := figures.number(quantity)) is not None:
            changes[field] = int(number)
    if figures.number("text_only"):
        changes["images"] = False
    if "tensor" in figures.found:
        _layout_changes(figures, changes, model=model)
    else:
        messages.append("The log does not say how the model is cut across GPUs.")
    return _valid(changes, messages), tuple(messages)


def _model_changes(figures: LogFigures, changes: dict[str, Any], messages: list[str]) -> Transformer | None:
    """Model, weight format and KV format; None when the catalogue has no such model."""
    name = figures.word("model")
    stated = figures.word("quantization") or figures.word("dtype")
    try:
        stored = weight_format(name, stated="" if stated == AUTO else stated)
    except RowError as error:
        stored = None
        messages.append(f"{error}; the weights are taken as published.")
    if cached := re.sub(r"^(float8|fp8)\w*", "fp8", figures.word("kv_dtype")):
        try:
            kv = kv_format(cached)
            changes["kv"] = kv.name if kv else AUTO
        except RowError as error:
            messages.append(f"{error}.")
    try:
        transformer = transformer_named(name, weights=stored)
    except RowError as error:
        reason = str(error) if name else "the log names no model"
        messages.append(f"{reason[0].upper()}{reason[1:]}; choose the model yourself.")
        return None
    changes["model"] = chosen = _own_name(name, transformer)
    as_published = stored is None or published_in(transformer, stored)
    changes["weights"] = NATIVE if stored is None or as_published else stored.name
    if chosen.lower() != name.lower():
        builds = stored is not None and stored.arithmetic == "fp4"
        differ = "; 4-bit float builds differ in what they leave wider" if builds else ""
        messages.append(f"{name} is taken as {transformer.name}, of the same architecture{differ}.")
    return transformer


def _own_name(name: str, transformer: Transformer) -> str:
    """What the log calls the model, where that is one of the names the catalogue has for it; else the file's."""
    try:
        same = catalog.model(name).name == transformer.name
    except catalog.UnknownNameError:
        return transformer.name
    return catalog.transformer(name).name if same else transformer.name


def _gpu_changes(figures: LogFigures, changes: dict[str, Any], messages: list[str]) -> None:
    candidates = gpus_of(figures)
    if len(candidates) == 1:
        changes["gpu"] = candidates[0].name
    elif candidates:
        total, names = figures.found["total"].written, ", ".join(gpu.label for gpu in candidates)
        messages.append(f"The log does not name the GPU; with {total} it can be one of these: {names}.")
    elif "total" in figures.found:
        messages.append(f"No GPU of the catalogue has {figures.found['total'].written}; choose it yourself.")
    else:
        messages.append("The log does not say which GPU it is; choose it yourself.")


def _layout_changes(figures: LogFigures, changes: dict[str, Any], *, model: Transformer | None) -> None:
    """Cuts; ranks that only repeat a whole dense model, or a whole SGLang server, are replicas."""
    layout, data = layout_of(figures), figures.count("data", default=1)
    copies = data if figures.engine == "sglang" and layout.data == 1 else 1
    if figures.engine == "vllm" and model is not None and not model.is_moe:
        copies, layout = data, replace(layout, data=1, expert=1)
    changes |= {name: getattr(layout, name) for name in CUT_NAMES}
    changes["replicas"] = copies


def _valid(changes: dict[str, Any], messages: list[str]) -> dict[str, Any]:
    """Changes a scenario takes; the others are reported and left out."""
    try:
        Scenario.model_validate(changes)
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            messages.append(f"{key}={changes.pop(key, None)} was not taken over: {problem['msg']}.")
    return changes


def measured_overheads(figures: LogFigures) -> dict[str, float]:
    """Logged overheads a scenario can take over, GiB per GPU: `non_torch`, `activations`, `graphs`.

    Only what the log states on its own; a sum it does not split is left out, and so is what would be negative.
    """
    names = ("non_torch", "activations", "graphs")
    stated = {name: figures.number(name) for name in names}
    return {
        name: round(float(gib(value)), 4)
        for name, value in stated.items()
        if value is not None and value >= 0
    }
