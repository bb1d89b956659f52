"""What an engine logged about its memory when it started, predicted."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from parplan import catalog
from parplan.calibration import MemoryProfile
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Rank, Settings, loaded_weight_bytes, memory, replica_memory
from parplan.transformer import Transformer
from parplan.units import GIB, Number
from parplan.validate.cells import (
    Cells,
    GpuError,
    RowError,
    VersionError,
    reason_of,
    setting,
    stated,
    switched,
    whole,
)
from parplan.validate.deployments import Deployment, deployment
from parplan.validate.first_vllm import (
    SEQUENCES,
    as_first_cached,
    first_engine,
    is_first,
    profiled_sequences,
    step_tokens,
)
from parplan.validate.names import COUNT, gpu_named, released
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


CUT_COLUMNS = ("tp", "pp", "dp", "ep")
CUT = re.compile(r"(tp|pp|dp|ep)\s*=?\s*(\d{1,6})(?!\d)", re.IGNORECASE)
"""One cut of a layout written in words ("TP8 PP2", "tp=8,pp=2")."""


def cuts(cells: Cells) -> dict[str, str]:
    """The cells that cut a model; one cell may hold several cuts in words.

    Raises:
        RowError: a cut is stated twice, differently.
    """
    found = {name: cells[name].strip() for name in CUT_COLUMNS}
    for name in CUT_COLUMNS:
        if not re.sub(r"[\s,;/+x×]", "", CUT.sub("", cells[name])) and (told := CUT.findall(cells[name])):
            found[name] = "" if found[name] == cells[name].strip() else found[name]
            for cut, ranks in told:
                if found[cut.lower()] not in ("", ranks, cells[name].strip()):
                    raise RowError("the layout contradicts itself")
                found[cut.lower()] = ranks
    return found


def memory_layout(cells: Cells) -> Layout:
    """The layout of a memory row; with one GPU it is clear, with more the row must say how they are used.

    Raises:
        RowError: several GPUs and no word on how the model is cut, or a cut for another number of GPUs.
    """
    told = cuts(cells)
    counted = COUNT.search(cells["gpu"].strip())
    gpus = whole(cells, "n_gpus", default=int(next(filter(None, counted.groups()))) if counted else 1)
    tensor, pipeline, data = (whole(told, name, default=1) for name in ("tp", "pp", "dp"))
    if gpus > 1 and not setting(told["tp"]) and pipeline * data == 1:
        raise RowError("layout not stated")
    if stated(cells, "n_gpus") and gpus % (tensor * pipeline * data):
        raise RowError("the layout is for another number of GPUs")
    spread = setting(told["ep"])
    grouped = whole(told, "ep", default=1) if spread.isdigit() else tensor * data * switched(told, "ep")
    context = re.search(r"(?:\bDCP[= ]?|decode-context-parallel )(\d{1,6})", cells["notes"])
    return Layout(
        tensor=tensor,
        data=data,
        pipeline=pipeline,
        expert=max(grouped, 1),
        decode_context=int(context[1]) if context else 1,
    )


BUILT = re.compile(r"0\.|20[12]\d")
"""Versions of TensorRT-LLM that build an engine before they serve, and years in which there were only those."""


def settings_of(cells: Cells, run: Deployment) -> Settings:
    """Engine settings a memory row states.

    Raises:
        RowError: a setting that is no number, or a version that divides memory in another way.
        ValidationError: a setting out of range.
    """
    version, share = cells["version"], stated(cells, "gpu_memory_utilization")
    if run.engine.name == "trtllm" and BUILT.match(version):
        raise RowError("TensorRT-LLM before 1.0 sized its buffers when the engine was built")
    if run.engine.name == "sglang" and share is None and re.match(r"0\.[0-4]\b", version):
        share = first_share(version, layout=run.layout)
    told = re.search(r"max[-_]num[-_]seqs[ =:(]*(\d{1,9})", cells["notes"])
    sequences = int(told[1]) if told else None
    length, tokens = stated(cells, "max_model_len"), stated(cells, "max_num_batched_tokens")
    if run.engine.name == "vllm-0.16" and is_first(version):
        longest = run.transformer.context_length if length is None else length
        tokens = step_tokens(run.transformer, length=longest) if tokens is None else tokens
        sequences = min(sequences or SEQUENCES, profiled_sequences(run.transformer))
    return Settings(
        utilization=share,
        max_num_seqs=sequences,
        max_batched_tokens=None if tokens is None else int(tokens),
        max_length=None if length is None else int(length),
        eager=switched(cells, "enforce_eager"),
        drafts=int(cells["model"].lower().endswith("mtp")),
    )


SHARES = {1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81, 16: 0.79}
"""Share of free memory SGLang took by default until 0.4.9, by the tensor ranks from which it holds (python/sglang/srt/
server_args.py of those versions, read 2026-11-30; 0.83 with eight before 0.4). 0.4.9 still leaves 12 % of 22.39 GiB
(M158), and so does 0.3 of an MI300X (M157)."""


def first_share(version: str, *, layout: Layout) -> float:
    """SGLang's default share before 0.5, when it followed from the tensor ranks alone.

    Raises:
        RowError: a version that is not known to have had it.
    """
    if re.match(r"0\.4\.\d\d", version):
        raise RowError("SGLang's default share between 0.4.9 and 0.5 is not known")
    return max(((ranks, share) for ranks, share in SHARES.items() if ranks <= layout.tensor))[1]


def verdict(held: Memory, *, length_stated: bool, needs_states: bool) -> str:
    """What the engine does with a deployment, in the words of a memory row.

    Without a stated length only the cache counts: whether any is left.

    Args:
        needs_states: it starts only with a recurrent state for every sequence slot.
    """
    if held.pool <= 0:
        return "no-fit"
    if length_stated and held.pool < held.longest and not held.overflows:
        return "kv-too-small"
    if needs_states and held.states < held.slots:
        return "no-start"
    return "oom" if held.overflows else "ok"


WITH_STATES = 19
"""First minor version of vLLM that records no graphs with fewer recurrent states than sequence slots, and says so
("max_num_seqs (1024) exceeds available Mamba cache blocks (856)", pull request 38270 of March 2026)."""


def needs_states(cells: Cells, run: Deployment, settings: Settings) -> bool:
    """Whether the engine starts only with a recurrent state for every sequence slot."""
    minors, month = released(cells["version"])
    late = max(minors) >= WITH_STATES if minors else month == "" or month >= "2026-04"
    return run.engine.name.startswith("vllm") and late and not settings.eager


def memory_run(cells: Cells) -> Deployment:
    """The names of a memory row, resolved.

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
    if run.engine.name == "vllm-0.16" and is_first(cells["version"]):
        cached = as_first_cached(run.transformer, version=cells["version"])
        return replace(run, engine=first_engine(run.engine), transformer=cached)
    if run.engine.name == "vllm" and settles_steps(cells["version"]):
        settled = run.engine.memory.model_copy(update={"steps_in_flight": 1})
        return replace(run, engine=run.engine.model_copy(update={"memory": settled}))
    if run.engine.name == "trtllm" and BUILT.match(cells["version"]):
        return replace(run, transformer=with_own_head(run.transformer))
    return run


IN_FLIGHT = 26
"""First minor version of vLLM whose windows keep the blocks of steps in flight (pull request 47728, July 2026)."""


def settles_steps(version: str) -> bool:
    """Whether a version of vLLM frees the blocks that leave a window as soon as the next step is scheduled.

    >>> [settles_steps(version) for version in ("0.25.0", "0.26.1rc1", "2026-06", "2026-08", "")]
    [True, False, True, False, False]
    """
    minors, month = released(version)
    return max(minors) < IN_FLIGHT if minors else "" < month < "2026-08"


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
        settings, gpu = settings_of(cells, run), memory_gpu(cells)
    except (RowError, ValidationError) as error:
        return weights_only(cells, run, reason=reason_of(error))
    length = settings.max_length or run.transformer.context_length
    asked: dict[str, Any] = {
        "layout": run.layout,
        "gpu": gpu,
        "engine": run.engine,
        "workload": Workload(prompt=max(length - 1, 1), output=1),
        "concurrency": 1,
        "settings": settings,
    }
    held = memory(run.transformer, run.precision, **asked)
    rank: Rank = held
    if told := STAGE.search(cells["notes"]):
        ranks = replica_memory(run.transformer, run.precision, **asked)
        rank = next((each.each for each in ranks if each.stage == int(told[1])), held)
    amounts = {"weights": rank.weights, "non_torch": rank.non_torch}
    predicted = {
        "weights_gib_per_gpu": logged_weights(amounts, profile=run.engine.memory) / GIB,
        "non_torch_gib": rank.non_torch / GIB,
        "activation_peak_gib": rank.activations / GIB,
        "kv_gib_per_gpu": rank.pool / GIB,
        "kv_tokens": held.kv_tokens,
        "cudagraph_gib": rank.graphs / GIB,
    } | ({"max_concurrency": held.longest_requests} if settings.max_length else {})
    return Row(
        cells,
        predicted={column: float(value) for column, value in predicted.items()},
        verdict=verdict(
            held,
            length_stated=settings.max_length is not None,
            needs_states=needs_states(cells, run, settings),
        ),
        group=run.group(gpu=gpu.name),
    )


STAGE = re.compile(r"\b(?:rank|stage) (\d+) of \d+ stages")
"""The pipeline stage whose rank a row is about; else it is about the one that is full first."""


WITHOUT_NVLINK = re.compile(r"\b(rtx|gtx|geforce|titan|arc|pcie)\b", re.IGNORECASE)
"""Names of GPUs that are joined by PCIe; cards that can be bridged are taken not to be."""
UNIFIED = re.compile(r"\b(gb10|spark|jetson|unified|apu)\b", re.IGNORECASE)
"""Names of GPUs that share their memory with the system, whose pages an engine's profile counts as its own: on two GB10
13 GiB less are left to the cache than the logged parts explain (eugr/spark-vllm-docker#396)."""


def memory_gpu(cells: Cells) -> Gpu:
    """The GPU of a memory row, with the size the driver reported; a round size is a name, not a report.

    Of a GPU without a name the catalogue knows, the size says all there is to know about memory where it is alone or
    has no fast links.

    Raises:
        RowError: none the catalogue knows, and no size or company; or one of another size.
    """
    size = re.fullmatch(r"(\d+\.\d+)(?: ?GiB)?(?: *\([^()]*\))?", cells["gpu_mem_gb"].strip())
    reported = float(size[1]) * GIB if size else None
    try:
        return gpu_named(cells["gpu"], size=reported)
    except GpuError as unknown:
        if UNIFIED.search(cells["gpu"]):
            raise GpuError("the GPU's memory is the system's as well") from unknown
        alone = whole(cells, "n_gpus", default=2) == 1
        if reported is None or not (alone or WITHOUT_NVLINK.search(cells["gpu"])):
            raise
        alike = min(catalog.gpus().values(), key=lambda gpu: abs(gpu.memory - reported))
        return alike.model_copy(
            update={"name": cells["gpu"] or "not stated", "memory": reported, "fabric": "pcie"}
        )
