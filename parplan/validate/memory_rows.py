"""What an engine logged about its memory when it started, predicted."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import ValidationError

from parplan import catalog
from parplan.calibration import Engine, Exact, MemoryProfile
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings, loaded_weight_bytes, memory
from parplan.transformer import Transformer
from parplan.units import GIB, Number
from parplan.validate.cells import Cells, RowError, VersionError, reason_of, stated, whole
from parplan.validate.deployments import Deployment, deployment
from parplan.validate.names import gpu_named
from parplan.validate.report import Row
from parplan.work import distinct_stages
from parplan.workload import Workload

MEMORY_COLUMNS = (
    "weights_gib_per_gpu",
    "non_torch_gib",
    "activation_peak_gib",
    "kv_gib_per_gpu",
    "kv_tokens",
    "max_concurrency",
    "cudagraph_gib",
)


def memory_layout(cells: Cells) -> Layout:
    """The layout of a memory row; with one GPU it is clear, with more the row must say how they are used.

    Raises:
        RowError: several GPUs and no word on how the model is cut.
    """
    gpus = whole(cells, "n_gpus", default=1)
    if gpus > 1 and not cells["tp"].strip():
        raise RowError("layout not stated")
    tensor, data = whole(cells, "tp", default=1), whole(cells, "dp", default=1)
    spread = cells["ep"].strip().lower()
    expert = tensor * data if spread == "on" else whole(cells, "ep", default=1)
    context = re.search(r"(?:DCP=|decode-context-parallel )(\d{1,6})", cells["notes"])
    return Layout(
        tensor=tensor,
        data=data,
        pipeline=whole(cells, "pp", default=1),
        expert=expert,
        decode_context=int(context[1]) if context else 1,
    )


FIRST_VLLM = re.compile(r"\bV0\b|(?<![\d.])0\.[0-7](?!\d)")
WHOLE_PROMPTS = 32_768
"""The first vLLM (V0, the default before 0.8) ran prompts whole where none is longer than this, so that one step had
as many tokens as the longest prompt; beyond, it cut them into chunks (vLLM 0.7 vllm/engine/arg_utils.py)."""


BUILT = re.compile(r"0\.|20[12]\d")
"""Versions of TensorRT-LLM that build an engine before they serve, and years in which there were only those."""


def settings_of(cells: Cells, *, engine: Engine) -> Settings:
    """Engine settings a memory row states.

    Raises:
        RowError: a setting that is no number, or a version that divides memory in another way.
        ValidationError: a setting out of range.
    """
    version, share = cells["version"], stated(cells, "gpu_memory_utilization")
    if engine.name == "trtllm" and BUILT.match(version):
        raise RowError("TensorRT-LLM before 1.0 sized its buffers when the engine was built")
    if engine.name == "sglang" and share is None and re.match(r"0\.[0-4]\b", version):
        raise RowError("SGLang before 0.5 took another share by default")
    sequences = re.search(r"max_num_seqs[ =]*(\d{1,9})", cells["notes"])
    length, tokens = stated(cells, "max_model_len"), stated(cells, "max_num_batched_tokens")
    if engine.name == "vllm-0.16" and length and length <= WHOLE_PROMPTS and FIRST_VLLM.search(version):
        tokens = tokens or max(length, 2048)
    return Settings(
        utilization=share,
        max_num_seqs=int(sequences[1]) if sequences else None,
        max_batched_tokens=int(tokens) if tokens else None,
        max_length=int(length) if length else None,
        eager=cells["enforce_eager"].strip().lower() == "true",
        drafts=int(cells["model"].lower().endswith("mtp")),
    )


def verdict(held: Memory, *, length_stated: bool) -> str:
    """What the engine does with a deployment, in the words of a memory row.

    Without a stated length only the cache counts: whether any is left.
    """
    if held.pool <= 0:
        return "no-fit"
    if held.overflows:
        return "oom"
    return "kv-too-small" if length_stated and held.pool < held.longest else "ok"


def memory_run(cells: Cells) -> Deployment:
    """The names of a memory row, resolved.

    vLLM V0 had no windows: its layers keep every token.

    Raises:
        RowError: a name the catalogue does not know.
        VersionError: a version no family of the engine can be told from.
    """
    run = deployment(
        cells, weights="weight_quant", kv="kv_dtype", version="version", layout=memory_layout(cells)
    )
    if run.assumed_build:
        raise RowError(
            "4-bit float builds differ in what they leave wider, and this one is not in the catalogue"
        )
    if run.engine.name == "vllm-0.16" and FIRST_VLLM.search(cells["version"]):
        whole_layers = run.engine.memory.model_copy(update={"allocator": Exact(block=16, windows=False)})
        return replace(run, engine=run.engine.model_copy(update={"memory": whole_layers}))
    if run.engine.name == "trtllm" and BUILT.match(cells["version"]):
        return replace(run, transformer=with_own_head(run.transformer))
    return run


def with_own_head(transformer: Transformer) -> Transformer:
    """A model whose head is stored beside the embedding though it is the same: engines that TensorRT-LLM built before
    1.0 (examples, `--use_embedding_sharing`: off unless asked for)."""
    tied = transformer.embedding - transformer.lookup
    return transformer if transformer.head else transformer.model_copy(update={"head": tied})


def logged_weights(amounts: Mapping[str, Number], *, profile: MemoryProfile) -> Number:
    """What an engine's log says the weights take: with what it does not tell apart from them.

    Args:
        amounts: weights, and non-torch memory, by name.
    """
    return amounts["weights"] + sum(amounts[part] for part in sorted(profile.logged_with_weights))


def weights_only(cells: Cells, run: Deployment, *, reason: str) -> Row:
    """A row of which too little is known to predict more than the weights."""
    stages = loaded_weight_bytes(
        run.transformer,
        run.precision,
        layout=run.layout,
        stages=distinct_stages(run.transformer, layout=run.layout),
        profile=run.engine.memory,
        settings=Settings(),
    )
    company = run.engine.memory.non_torch
    amounts = {
        "weights": float(np.max(sum(stages.values()))),
        "non_torch": min(company.pair.values()) if run.layout.gpus > 1 else company.alone,
    }
    logged = float(logged_weights(amounts, profile=run.engine.memory))
    return Row(
        cells,
        predicted={"weights_gib_per_gpu": logged / GIB},
        group=run.group(gpu=cells["gpu"]),
        skipped=f"weights only: {reason}",
    )


def memory_row(cells: Cells) -> Row:
    """A memory row and its prediction; without a known GPU, budget or version only the weights.

    Raises:
        RowError: nothing can be predicted.
    """
    try:
        run = memory_run(cells)
    except VersionError as reason:
        return weights_only(cells, memory_run({**cells, "version": ""}), reason=str(reason))
    try:
        settings, gpu = settings_of(cells, engine=run.engine), memory_gpu(cells)
    except (RowError, ValidationError) as error:
        return weights_only(cells, run, reason=reason_of(error))
    length = settings.max_length or run.transformer.context_length
    held = memory(
        run.transformer,
        run.precision,
        layout=run.layout,
        gpu=gpu,
        engine=run.engine,
        workload=Workload(prompt=max(length - 1, 1), output=1),
        concurrency=1,
        settings=settings,
    )
    amounts = {"weights": held.weights, "non_torch": held.non_torch}
    predicted = {
        "weights_gib_per_gpu": logged_weights(amounts, profile=run.engine.memory) / GIB,
        "non_torch_gib": held.non_torch / GIB,
        "activation_peak_gib": held.activations / GIB,
        "kv_gib_per_gpu": held.pool / GIB,
        "kv_tokens": held.kv_tokens,
        "cudagraph_gib": held.graphs / GIB,
    } | ({"max_concurrency": held.requests} if settings.max_length else {})
    return Row(
        cells,
        predicted={column: float(value) for column, value in predicted.items()},
        verdict=verdict(held, length_stated=settings.max_length is not None),
        group=run.group(gpu=gpu.name),
    )


def memory_gpu(cells: Cells) -> Gpu:
    """The GPU of a memory row, with the size the driver reported; a round size is a name, not a report.

    Of a GPU that is alone and has no name the catalogue knows, the size says all there is to know about memory.

    Raises:
        RowError: none the catalogue knows, and no size or company.
    """
    size = re.fullmatch(r"\d+\.\d+", cells["gpu_mem_gb"].strip())
    reported = float(size[0]) * GIB if size else None
    try:
        return gpu_named(cells["gpu"], size=reported)
    except RowError:
        if reported is None or whole(cells, "n_gpus", default=2) > 1:
            raise
        alike = min(catalog.gpus().values(), key=lambda gpu: abs(gpu.memory - reported))
        return alike.model_copy(update={"name": cells["gpu"] or "not stated", "memory": reported})
