"""Predictions beside published measurements: how wrong the numbers are, over all rows and by group.

Three kinds of file are known by their columns: what engines logged about their memory, times to first and per output
token at fixed concurrency, and one figure (throughput or a time) of a benchmark run. A row is predicted from what it
states; what it does not state takes the engine's default. A row that names something the catalogue does not know, or
too little, is skipped, and says why.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from parplan import catalog
from parplan.calibration import Engine
from parplan.formats import Component, Format, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings, limits, loaded_weight_bytes, memory
from parplan.planner import chosen_precision
from parplan.serving import Serving, serve, ttft_of_benchmark
from parplan.step import decode_step, prefill_step
from parplan.transformer import Transformer
from parplan.units import GIB, MS, Number, Seconds
from parplan.workload import Workload

Cells: TypeAlias = Mapping[str, str]

MEMORY_COLUMNS = (
    "weights_gib_per_gpu",
    "non_torch_gib",
    "activation_peak_gib",
    "kv_gib_per_gpu",
    "kv_tokens",
    "max_concurrency",
    "cudagraph_gib",
)
BENCHMARK_WAVES = 10
"""Requests a benchmark sends through each client, all clients starting at once (InferenceX: num_prompts = 10 x
concurrency, request rate infinite)."""
SPEED_COLUMNS = ("ttft_ms", "tpot_ms")
THROUGHPUT_COLUMNS = ("value",)
VERDICT = "outcome"
GROUPS = ("engine", "gpu", "model", "precision", "layout")
"""Kinds of group every row belongs to."""


class RowError(Exception):
    """The row cannot be predicted; the message says why."""


@dataclass(frozen=True)
class Row:
    """One measured row and what was predicted for it."""

    cells: Cells
    predicted: Mapping[str, float] = field(default_factory=dict)
    """By measured column; only what could be predicted."""
    verdict: str = ""
    """Memory rows: "ok", or what goes wrong."""
    group: Mapping[str, str] = field(default_factory=dict)
    """The names the row was understood as, by kind of group."""
    skipped: str = ""
    """Why nothing, or only a part, was predicted."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of one column: predicted / measured - 1."""

    count: int
    median: float
    """Of the absolute error."""
    p90: float
    """90th percentile of the absolute error."""
    bias: float
    """Median of the signed error."""


@dataclass(frozen=True)
class Report:
    """A file of measurements, predicted."""

    columns: tuple[str, ...]
    """Columns of the file."""
    measured: tuple[str, ...]
    """Those that are predicted."""
    rows: tuple[Row, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of group its rows belong to: those all rows have, then those of this file alone."""
        return tuple(dict.fromkeys([*GROUPS, *(kind for row in self.rows for kind in row.group)]))

    @property
    def skipped(self) -> dict[str, int]:
        """Rows without a prediction, by reason."""
        reasons = [row.skipped for row in self.rows if not row.predicted]
        return {
            reason: reasons.count(reason) for reason in sorted(set(reasons), key=reasons.count, reverse=True)
        }

    def errors(self, column: str, *, rows: Sequence[Row] | None = None) -> Errors | None:
        """Errors of one column over the rows that state it, all or some; None when there is none."""
        within = self.rows if rows is None else rows
        found = [error for row in within if (error := relative_error(row, column)) is not None]
        if not found:
            return None
        size = np.abs(found)
        return Errors(
            count=len(found),
            median=float(np.median(size)),
            p90=float(np.percentile(size, 90)),
            bias=float(np.median(found)),
        )

    def by_group(self, kind: str, column: str) -> dict[str, Errors]:
        """Errors of one column for every value of one kind of group."""
        values = sorted({row.group[kind] for row in self.rows if kind in row.group})
        found = {value: self.errors(column, rows=self.grouped(kind, value)) for value in values}
        return {value: errors for value, errors in found.items() if errors}

    def grouped(self, kind: str, value: str) -> list[Row]:
        """Rows of one group."""
        return [row for row in self.rows if row.group.get(kind) == value]

    @property
    def verdicts(self) -> list[Row]:
        """Rows whose measured outcome and predicted verdict can be compared."""
        return [
            row for row in self.rows if row.verdict and measured_fit(row.cells.get(VERDICT, "")) is not None
        ]

    @property
    def wrong_verdicts(self) -> list[Row]:
        """Rows whose predicted verdict is not what happened."""
        return [row for row in self.verdicts if (row.verdict == "ok") != measured_fit(row.cells[VERDICT])]


# --- reading cells

NUMBER = re.compile(
    r"^[~<>=]*\s*(-?\d[\d,]*\.?\d*)\s*(?:\((?:est|default|new default|min of|sum|-?[\d.]+ )[^)]*\))?$",
    re.IGNORECASE,
)


def number(cell: str | None) -> float | None:
    """The number a cell states; a note in brackets may follow, as long as it does not change what is counted.

    >>> number("0.9 (default)"), number("16.46 (8.23 K + 8.23 V)"), number("715,072")
    (0.9, 16.46, 715072.0)
    >>> number("11.22 (weights+non-torch)") is None and number("0.80/0.93") is None and number("") is None
    True
    """
    match = NUMBER.match((cell or "").strip())
    return float(match[1].replace(",", "")) if match else None


def stated(cells: Cells, column: str) -> float | None:
    """The number of a cell that may be empty, words and units before it aside.

    Raises:
        RowError: the cell is not empty, and not one number either.
    """
    cell = cells.get(column, "").strip()
    value = number(re.sub(r"^[A-Za-z][\w-]*\s+", "", cell))
    if cell and value is None:
        raise RowError(f"{column} is not one number")
    return value


def whole(cells: Cells, column: str, *, default: int) -> int:
    """A whole number at least one, or the default where the cell is empty."""
    value = stated(cells, column)
    if value is None:
        return default
    if value < 1 or value != int(value):
        raise RowError(f"{column} is not a whole number above zero")
    return int(value)


# --- names

NOTE = re.compile(r"\s*\([^()]*\)$|\s*\+ ?mtp$| (fine-tune|family)(?= |$)", re.IGNORECASE)
"""What people add to a model's name that does not change its architecture."""
UNNAMED_BITS = re.compile(r"\b\d-?bit\b", re.IGNORECASE)
"""A width without the name of a format: too little to tell the bytes from."""
QUANTISED = re.compile(
    r"[-._ ](quantized[-.]w\d+a\d+|w\d+a\d+|fp8[-_]dynamic|fp8[-_]static[-_]per[-_]tensor|fp8[-_]block|fp8|nvfp4|fp4"
    r"|mxfp4|int4[-_]awq|awq[-_]int4|awq|autoround|gptq[-_]int4|gptq[-_]int8|gptq|int4|int8|bf16|fp16"
    r"|(unsloth-)?bnb[-_]4bit)$"
)
VARIANT = re.compile(
    r"[-_](instruct|it|chat|hf|base|thinking|2[3-6](?:0[1-9]|1[0-2])|0[1-9][0-3]\d|v?1)(?=[-_]|$)"
)
SAME_ARCHITECTURE = {
    "kimi-dev-72b": "qwen2.5-72b",
    "qwq-32b": "qwen2.5-32b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-v2.5": "deepseek-v2",
    "deepseek-coder-v2": "deepseek-v2",
    "deepseek-coder-v2-lite": "deepseek-v2-lite",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "deepseek-r1-distill-qwen-7b": "qwen2.5-7b",
    "deepseek-r1-distill-qwen-14b": "qwen2.5-14b",
    "deepseek-r1-distill-qwen-32b": "qwen2.5-32b",
    "qwen2.5-math-1.5b": "qwen2.5-1.5b",
    "qwen2.5-math-7b": "qwen2.5-7b",
    "qwen3-reranker-0.6b": "qwen3-0.6b",
    "qwen3.6-27b": "qwen3.5-27b",
    "qwen3.8-27b": "qwen3.5-27b",
    "qwen3.6-35b-a3b": "qwen3.5-35b-a3b",
    "llama-3.1-nemotron-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-3.1-70b": "llama-3.3-70b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-4-scout": "llama-4-scout-17b-16e",
    "llama-4-maverick": "llama-4-maverick-17b-128e",
    "mistral-7b": "mistral-7b-v0.1",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
} | {f"qwen2.5-coder-{size}": f"qwen2.5-{size}" for size in ("0.5b", "1.5b", "3b", "7b", "14b", "32b")}
"""Models whose config has the sizes of another one, by base name: fine-tunes name it as their base, successors have the
same Hub fields and total (Qwen3.5, 3.6 and 3.8 of 27B: 27,781,427,952)."""


def base_name(name: str) -> str:
    """What names of one architecture share: no organisation, format, tuning or date.

    >>> base_name("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16")
    'llama-3.1-8b'
    >>> base_name("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8")
    'qwen3-235b-a22b'
    """
    base = name.split("/")[-1].lower().removeprefix("meta-").removesuffix(" ")
    while QUANTISED.search(base):
        base = QUANTISED.sub("", base)
    return VARIANT.sub("", base)


def plain_name(name: str) -> str:
    """A name without the notes people add.

    >>> plain_name("google/gemma-3-27b-it (inferred: 62 layers)"), plain_name("Qwen3.8-27B + MTP")
    ('google/gemma-3-27b-it', 'Qwen3.8-27B')
    """
    name = name.strip()
    while NOTE.search(name):
        name = NOTE.sub("", name)
    return name


@cache
def known_models() -> dict[str, tuple[str, ...]]:
    """Models of the catalogue by base name."""
    found: dict[str, tuple[str, ...]] = {}
    for name in catalog.model_files():
        found[base_name(name)] = (*found.get(base_name(name), ()), name)
    return found


def transformer_named(name: str, *, weights: Format | None) -> Transformer:
    """The catalogue's model of a name, or one of the same base name; one published in the stated format comes first.

    Raises:
        RowError: no name, or none the catalogue knows.
    """
    plain = plain_name(name)
    if not plain:
        raise RowError("no model stated")
    base, models = base_name(plain), known_models()
    same = models.get(base) or models.get(SAME_ARCHITECTURE.get(base, ""))
    if not same:
        raise RowError(f"model {name!r} is not in the catalogue")

    def distance(candidate: str) -> tuple[bool, bool, int]:
        other = weights is not None and not published_in(catalog.model(candidate).transformer, weights)
        return other, candidate.lower() != plain.lower(), len(candidate)

    return catalog.model(min(same, key=distance)).transformer


def published_in(transformer: Transformer, weights: Format) -> bool:
    """Whether a model's checkpoint stores most of its weights in a format, blocks and groups aside; of a mixed
    checkpoint (DeepSeek-V4: FP8 with experts in FP4) any of its formats will do."""
    main = transformer.native.get(main_component(transformer), "bf16")
    families = {native.split("-")[0] for native in (main, *transformer.native.values())}
    return weights.name.split("-")[0] in families


def main_component(transformer: Transformer) -> Component:
    """The component with most of the weights."""
    return "routed_experts" if transformer.is_moe else "dense_ffn"


def gpu_named(name: str, *, size: float | None) -> Gpu:
    """The catalogue's GPU of a name; without a form factor it is the SXM one, where there is one.

    A name that leaves several open ("A10/A10G 24GB") will do when the row states the size: the first known one.

    Args:
        size: bytes the row states the driver reports; replaces the catalogue's.

    Raises:
        RowError: no name, or none the catalogue knows.
    """
    parts = [part for part in re.split(r"[/:()]", name.lower()) if part.strip()]
    for part in parts if size else [part for part in parts[:1] if "/" not in name]:
        if known := known_gpu(part):
            return known.model_copy(update={"memory": size}) if size else known
    raise RowError(f"GPU {name!r} is not in the catalogue" if name else "no GPU stated")


def known_gpu(name: str) -> Gpu | None:
    """The catalogue's GPU of one name, without vendor, class and nominal size.

    >>> known_gpu("H100-80GB-SXM").name, known_gpu("NVIDIA RTX 5090").name, known_gpu("24 GB GPU")
    ('h100-sxm', 'rtx-5090', None)
    """
    text = re.sub(r"^(nvidia|amd|instinct|geforce)[ -]+", "", name.strip().lower())
    nominal = re.search(r"(\d+) ?gb\b", text)
    plain = re.sub(r"\b(blackwell|class|edition)\b|\b\d+ ?gb\b", " ", text.replace("-", " "))
    base = "-".join(plain.split())
    sizes = [f"-{nominal[1]}", ""] if nominal else ["", "-80"]
    tries = (f"{base}{form}{size}" for form in ("", "-sxm", "-server", "-nvl72") for size in sizes)
    return next((catalog.gpus()[found] for found in tries if base and found in catalog.gpus()), None)


WEIGHT_WORDS: tuple[tuple[str, str | None], ...] = (
    (r"^(bfloat16|bf16|float16|fp16)$", "bf16"),
    (r"w8a8", "int8"),
    (r"nvfp4|modelopt_fp4|^fp4$", "nvfp4"),
    (r"mxfp4|^native|fp4/fp8", None),
    (r"w4a16|awq|gptq|^int4\b", "int4-g128"),
    (r"^fp8|fp8[-_]dynamic|-fp8$", "fp8"),
    (r"^int8$", "int8"),
)
"""Words that name a weight format -> its name in the catalogue; None: the format the model is published in."""


def weight_format(name: str, *, stated: str) -> Format | None:
    """The format a row's weights are in; None: as the model is published.

    Raises:
        RowError: words no rule knows, or none, and the model's name does not say it either.
    """
    texts = [stated.strip().lower(), name.split("/")[-1].lower()]
    for text in texts if stated not in ("compressed-tensors", "") else reversed(texts):
        for pattern, found in WEIGHT_WORDS:
            if re.search(pattern, text):
                return catalog.formats()[found] if found else None
    if stated or UNNAMED_BITS.search(name):
        raise RowError(f"weight format {stated or name!r} is not known")
    return None


def kv_format(stated: str) -> Format | None:
    """The format of a row's KV cache; None: as the checkpoint asks for.

    Raises:
        RowError: a word no rule knows.
    """
    word = re.sub(r"\s*\(.*\)$", "", stated.strip().lower())
    if word in ("", "auto"):
        return None
    name = {"float16": "bf16", "fp16": "bf16", "bfloat16": "bf16", "fp8_e4m3": "fp8"}.get(word, word)
    found = catalog.formats().get(name)
    if found is None or "kv" not in found.kind:
        raise RowError(f"KV format {stated!r} is not known")
    return found


VLLM_FAMILIES = ((21, "2026-05", "vllm"), (17, "2026-03", "vllm-0.17"), (0, "2000-01", "vllm-0.16"))
"""First minor version of a family, the month it came out, and its engine."""
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}


def engine_named(name: str, *, version: str) -> Engine:
    """The engine of a name and version; for vLLM the family of the version, or of its date, or the current one.

    Raises:
        RowError: another engine, or a version no family can be told from.
    """
    engine = ENGINES.get(name.strip().lower())
    if engine is None:
        raise RowError(f"engine {name!r} is not modelled")
    if engine == "vllm" and version.strip():
        minor = re.search(r"(?<![\d.])0\.(\d+)", version)
        month = re.search(r"20\d\d-\d\d|202[0-5]", version)  # before 2026 the year alone tells the family
        if not (minor or month):
            raise RowError(f"no version can be told from {version!r}")
        engine = next(
            family
            for first, since, family in VLLM_FAMILIES
            if (int(minor[1]) >= first if minor else month and month[0] >= since)
        )
    return catalog.engines()[engine]


# --- rows

OK = re.compile(r"^(ok|load ok|memory ok|ready)\b", re.IGNORECASE)
FAILED = re.compile(r"^(oom|no-fit|no-start|kv-too-small)\b", re.IGNORECASE)


def measured_fit(outcome: str) -> bool | None:
    """Whether the engine came up; None where the row does not say.

    >>> measured_fit("ok"), measured_fit("kv-too-small: 1.0 GiB"), measured_fit("server slow")
    (True, False, None)
    """
    if OK.match(outcome):
        return True
    return False if FAILED.match(outcome) else None


@dataclass(frozen=True)
class Deployment:
    """What a row says was run."""

    transformer: Transformer
    precision: Precision
    engine: Engine
    layout: Layout
    assumed_build: bool
    """The row is of a 4-bit float build that is not in the catalogue; builds differ in what they leave wider."""

    def group(self, *, gpu: str) -> dict[str, str]:
        """The groups it belongs to."""
        return {
            "engine": self.engine.name,
            "gpu": gpu,
            "model": self.transformer.name,
            "precision": self.precision.weights[main_component(self.transformer)].name,
            "layout": str(self.layout),
        }


def deployment(cells: Cells, *, weights: str, kv: str, version: str, layout: Layout) -> Deployment:
    """The names of a row, resolved.

    Raises:
        RowError: a name the catalogue does not know.
    """
    stored = weight_format(cells["model"], stated=cells[weights])
    transformer = transformer_named(cells["model"].strip(), weights=stored)
    precision = chosen_precision(
        transformer,
        weights=None if stored is None or published_in(transformer, stored) else stored,
        kv=kv_format(cells[kv]),
        formats=catalog.formats(),
    )
    engine = engine_named(cells["engine"], version=cells[version])
    return Deployment(
        transformer=transformer,
        precision=precision,
        engine=engine,
        layout=layout,
        assumed_build=bool(stored and stored.arithmetic == "fp4" and not published_in(transformer, stored)),
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
    context = re.search(r"(?:DCP=|decode-context-parallel )(\d+)", cells["notes"])
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


def settings_of(cells: Cells, *, engine: Engine) -> Settings:
    """Engine settings a memory row states.

    Raises:
        RowError: a setting that is no number, or a version that divides memory in another way.
        ValidationError: a setting out of range.
    """
    version, share = cells["version"], stated(cells, "gpu_memory_utilization")
    if engine.name == "trtllm" and re.match(r"0\.|20[12]\d", version):
        raise RowError("TensorRT-LLM before 1.0 sized its buffers when the engine was built")
    if engine.name == "sglang" and share is None and re.match(r"0\.[0-4]\b", version):
        raise RowError("SGLang before 0.5 took another share by default")
    sequences = re.search(r"max_num_seqs[ =]*(\d+)", cells["notes"])
    length, tokens = stated(cells, "max_model_len"), stated(cells, "max_num_batched_tokens")
    if engine.name == "vllm-0.16" and length and length <= WHOLE_PROMPTS and FIRST_VLLM.search(version):
        tokens = tokens or max(length, 2048)
    return Settings(
        utilization=share,
        max_num_seqs=int(sequences[1]) if sequences else None,
        max_batched_tokens=int(tokens) if tokens else None,
        max_length=int(length) if length else None,
        eager=cells["enforce_eager"].strip().lower() == "true",
        mtp=cells["model"].lower().endswith("mtp"),
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


def memory_row(cells: Cells) -> Row:
    """A memory row and its prediction; without a known GPU or budget only the weights.

    Raises:
        RowError: nothing can be predicted.
    """
    run = deployment(
        cells, weights="weight_quant", kv="kv_dtype", version="version", layout=memory_layout(cells)
    )
    if run.assumed_build:
        raise RowError(
            "4-bit float builds differ in what they leave wider, and this one is not in the catalogue"
        )
    try:
        settings, gpu = settings_of(cells, engine=run.engine), memory_gpu(cells)
    except (RowError, ValidationError) as reason:
        stages = loaded_weight_bytes(
            run.transformer,
            run.precision,
            layout=run.layout,
            profile=run.engine.memory,
            settings=Settings(),
        )
        heaviest = float(np.max(sum(stages.values()))) / GIB
        return Row(
            cells,
            predicted={"weights_gib_per_gpu": heaviest},
            group=run.group(gpu=cells["gpu"]),
            skipped=f"weights only: {reason_of(reason)}",
        )
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
    predicted = {
        "weights_gib_per_gpu": held.weights / GIB,
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

    Raises:
        RowError: none the catalogue knows.
    """
    size = re.fullmatch(r"\d+\.\d+", cells["gpu_mem_gb"].strip())
    return gpu_named(cells["gpu"], size=float(size[0]) * GIB if size else None)


def speed_row(cells: Cells) -> Row:
    """A speed row and its prediction.

    Raises:
        RowError: nothing can be predicted.
    """
    layout = Layout(**{name: whole(cells, name, default=1) for name in ("tensor", "data", "expert")})
    run = deployment(cells, weights="weights", kv="kv", version="engine_version", layout=layout)
    gpu = gpu_named(cells["gpu"], size=None)
    workload = Workload(
        prompt=max(1, round(stated(cells, "prompt_tokens") or 1)),
        output=max(1, round(stated(cells, "output_tokens") or 1)),
        concurrency=whole(cells, "concurrency", default=1),
    )
    asked: dict[str, Any] = {
        "layout": layout,
        "gpu": gpu,
        "engine": run.engine,
        "workload": workload,
        "concurrency": workload.concurrency,
    }
    held = memory(run.transformer, run.precision, **asked)
    served = serve(run.transformer, run.precision, **asked, capacity=held.capacity)
    predicted = {
        "ttft_ms": float(np.squeeze(ttft_of_benchmark(served, waves=BENCHMARK_WAVES))) / MS,
        "tpot_ms": float(np.squeeze(served.tpot)) / MS,
    }
    return Row(cells, predicted=predicted, group=run.group(gpu=gpu.name))


# --- benchmark runs

MANY = 65_536
"""Requests in hand where a benchmark says no more than that all were queued."""
NODE = 8
"""GPUs of what sources call a node."""
NOT_MEASURED = re.compile(r"\bMTP ?=? ?[1-9]|simulated", re.IGNORECASE)
"""Tokens were drafted ahead, or the figure was computed."""
WITH_PROMPT = re.compile(r"\bDERIVED\b|includes ctx time")
"""The time per token is the whole time over the output tokens, prompt included."""
SLOTS = re.compile(r"(?:max_num_seqs[ =]*|max_batch )(\d+)")
REQUESTS = re.compile(r"num_(?:requests|prompts)[ =]*(\d+)(?![\d-])")
WITHOUT_GRAPHS = re.compile(r"^2023|(?<![\d.])0\.(?:1|2\.[0-6])(?!\d)")
"""vLLM before 0.2.7 (January 2024), its first with CUDA graphs (pull request 1926)."""
COMPILED = re.compile(r"0\.(?:\d|1[0-8])(?!\d)")
"""TensorRT-LLM before 0.19, the first whose published figures are of the PyTorch backend."""


@dataclass(frozen=True)
class Run:
    """One replica and the requests a benchmark sends it."""

    deployment: Deployment
    gpu: Gpu
    workload: Workload
    settings: Settings

    @property
    def model(self) -> tuple[Transformer, Precision]:
        """What is run."""
        return self.deployment.transformer, self.deployment.precision

    @property
    def place(self) -> dict[str, Any]:
        """What it is run on, by the names of step formulas."""
        return {"layout": self.deployment.layout, "gpu": self.gpu, "engine": self.deployment.engine}


@dataclass(frozen=True)
class Outcome:
    """What a benchmark of one replica comes to; times are means."""

    ttft: Seconds
    tpot: Seconds
    latency: Seconds
    """From a request's start to its last token."""
    requests_per_s: Number


def stated_tokens(cells: Cells, column: str) -> int:
    """A length in tokens, 1 where it is empty; a mean may be said to be one ("~294 mean(OpenOrca)").

    Raises:
        RowError: the cell holds something else.
    """
    cell = re.sub(r"\s*\bmean\b.*$", "", cells[column].strip())
    return max(1, round(stated({column: cell}, column) or 1))


def stated_load(cells: Cells, *, unit: str) -> int:
    """What is in hand, as a whole number in a unit ("256/GPU").

    Raises:
        RowError: it is not stated, or in another unit.
    """
    load = re.fullmatch(rf"([1-9]\d*){unit}", cells["concurrency_or_batch"].strip())
    if load is None:
        raise RowError(f"batch not stated{f' as a number{unit}' if unit else ''}")
    return int(load[1])


def benchmark_layout(cells: Cells) -> Layout:
    """The layout of a benchmark row; every GPU must have its place.

    Where attention is repeated on as many GPUs as are named tensor ranks ("tp 8, dp 8" on eight), or with attention
    data parallelism switched on, the model is cut by data and experts alone.

    Raises:
        RowError: several GPUs and no word on how the model is cut, or a cut for another number of GPUs.
    """
    gpus = whole(cells, "n_gpus", default=1)
    if gpus > 1 and not cells["tp"].strip():
        raise RowError("layout not stated")
    tensor, data, pipeline, expert = (whole(cells, name, default=1) for name in ("tp", "dp", "pp", "ep"))
    if data * pipeline == gpus:
        tensor = 1
    elif "enable_attention_dp" in cells["notes"] and cells["arch"].startswith("moe") and data == expert == 1:
        tensor, data, expert = 1, tensor, tensor
    if tensor * data * pipeline != gpus:
        raise RowError("the layout is for another number of GPUs")
    return Layout(tensor=tensor, data=data, pipeline=pipeline, expert=expert)


def benchmark_kv(cells: Cells, *, engine: str) -> str:
    """The word for a benchmark row's KV format.

    Engines and checkpoints quantised for TensorRT-LLM have an FP8 cache; gpt-oss, published in MXFP4, is given one on
    Blackwell and not on Hopper (TensorRT-LLM perf-overview.md of 0.14 and @03e27c7).
    """
    wide = r"(fp|bf|float)16|mxfp4" if cells["gpu"].startswith("H") else r"(fp|bf|float)16"
    asks = engine == "trtllm" and not re.match(wide, cells["weight_dtype"])
    return cells["kv_dtype"] or ("fp8" if asks else "")


def compiled(engine: Engine) -> Engine:
    """An engine whose kernels are compiled and launched as one for prompts too, as TensorRT did."""
    return engine.model_copy(update={"speed": engine.speed.model_copy(update={"eager": 1.0})})


def benchmark_run(cells: Cells) -> Run:
    """What a benchmark row says was run.

    Raises:
        RowError: too little, or a name the catalogue does not know.
        ValidationError: a number out of range.
    """
    if NOT_MEASURED.search(cells["mode"] + " " + cells["notes"]):
        raise RowError("drafted tokens or a computed figure: not predicted")
    layout = benchmark_layout(cells)
    engine = re.match(r"(vllm|sglang|trtllm|tensorrt-llm)\b(.*)", cells["framework"].lower())
    if engine is None:
        raise RowError(f"engine {cells['framework']!r} is not modelled")
    version = cells["fw_version"] or engine[2]
    if engine[1] == "vllm" and WITHOUT_GRAPHS.search(version):
        raise RowError("vLLM before 0.2.7 recorded no CUDA graphs")
    kv = benchmark_kv(cells, engine=engine[1])
    named = {**cells, "engine": engine[1], "version": version, "kv": kv}
    found = deployment(named, weights="weight_dtype", kv="kv", version="version", layout=layout)
    if found.engine.name == "trtllm" and COMPILED.match(version):
        found = replace(found, engine=compiled(found.engine))
    slots = SLOTS.search(cells["notes"])
    return Run(
        deployment=found,
        gpu=gpu_named(cells["gpu"], size=None),
        workload=Workload(prompt=stated_tokens(cells, "isl"), output=stated_tokens(cells, "osl")),
        settings=Settings(max_num_seqs=int(slots[1]) if slots else None),
    )


def queued(run: Run, *, clients: int, requests: int | None) -> Outcome:
    """Requests that all wait from the start: as many run as find room, wave after wave, the rest in a smaller last one.

        time  whole waves x running / rate of running + rest / rate of rest

    Args:
        clients: most requests in hand at once.
        requests: how many there are. None: so many that the last wave does not matter.
    """
    held = memory(*run.model, **run.place, workload=run.workload, concurrency=clients, settings=run.settings)

    def served(concurrency: float) -> Serving:
        return serve(
            *run.model,
            **run.place,
            workload=run.workload,
            concurrency=concurrency,
            capacity=held.capacity,
            settings=run.settings,
        )

    done = served(min(clients, requests or clients))
    rate = float(np.squeeze(done.requests_per_s))
    if requests is not None:
        running = float(np.squeeze(done.running))
        waves, rest = divmod(requests, running)
        last = rest / float(np.squeeze(served(rest).requests_per_s)) if rest else 0.0
        rate = requests / (waves * running / rate + last)
    first = done.ttft - done.waiting / done.requests_per_s
    latency = first + (run.workload.output - 1) * done.tpot
    return Outcome(ttft=first, tpot=done.tpot, latency=latency, requests_per_s=rate)


def static_batch(run: Run, *, requests: int) -> Outcome:
    """A batch that starts and ends together: all prompts, packed into steps, then one token for each at a time.

    ttft     step x (1 + (steps - 1) / stages)
    latency  ttft + (output - 1) decode
    """
    layout, prompt, output = run.deployment.layout, run.workload.prompt, run.workload.output
    told = limits(
        run.settings,
        profile=run.deployment.engine.memory,
        gpu=run.gpu,
        layout=layout,
        workload=run.workload,
    )
    each = max(1.0, requests / float(layout.data))
    chunks = np.ceil(prompt / told.batched_tokens)
    together = np.clip(told.batched_tokens // prompt, 1.0, each)
    tokens = prompt / chunks
    step = prefill_step(
        *run.model, **run.place, tokens=tokens, prior=(prompt - tokens) / 2, prompts=together
    ).total
    first = step * (1 + (chunks * each / together - 1) / float(layout.pipeline))
    token = decode_step(*run.model, **run.place, batch=requests, length=run.workload.mean_length).total
    latency = first + (output - 1) * token
    return Outcome(ttft=first, tpot=token, latency=latency, requests_per_s=requests / latency)


def prefill_only(run: Run, *, tokens: int) -> Outcome:
    """Whole prompts, as many as make up a step's tokens on every attention replica."""
    prompt = run.workload.prompt
    together = max(1.0, tokens / prompt)
    step = prefill_step(*run.model, **run.place, tokens=prompt, prior=0.0, prompts=together).total
    rate = together * run.deployment.layout.data / step
    return Outcome(ttft=step, tpot=step, latency=step, requests_per_s=rate)


def decode_only(run: Run, *, requests: int) -> Outcome:
    """Requests whose prompts were computed elsewhere, on every GPU of the replica, always as many."""
    batch = requests * float(run.deployment.layout.gpus)
    token = decode_step(*run.model, **run.place, batch=batch, length=run.workload.mean_length).total
    latency = run.workload.output * token
    return Outcome(ttft=token, tpot=token, latency=latency, requests_per_s=batch / latency)


def benchmark_outcome(cells: Cells, run: Run) -> Outcome:
    """What a row's kind of benchmark comes to.

    Raises:
        RowError: a kind that is not known, or one without its batch.
    """
    mode, load = cells["mode"], cells["concurrency_or_batch"]
    if mode.startswith("prefill-only"):
        return prefill_only(run, tokens=stated_load(cells, unit=" tok/GPU"))
    if mode.startswith("decode-only"):
        return decode_only(run, requests=stated_load(cells, unit="/GPU"))
    if re.search(r"static|batch-1|^low-latency$", mode):
        return static_batch(run, requests=stated_load(cells, unit=""))
    if not mode.startswith("offline-throughput"):
        raise RowError(f"mode {mode!r} is not predicted")
    number_of = REQUESTS.search(f"{load} {cells['notes']}")
    return queued(
        run,
        clients=MANY if load.startswith("saturated") else stated_load(cells, unit=""),
        requests=int(number_of[1]) if number_of else None,
    )


def metric_value(metric: str, *, outcome: Outcome, run: Run) -> float:
    """A benchmark's outcome in the unit of a metric.

    Raises:
        RowError: a metric that is not known.
    """
    gpus = run.deployment.layout.gpus
    if rate := re.fullmatch(r"(in|out)_tok_s_(total|per_gpu|per_node)", metric):
        tokens = run.workload.prompt if rate[1] == "in" else run.workload.output
        over = {"total": gpus, "per_gpu": 1, "per_node": NODE}[rate[2]]
        return float(np.squeeze(outcome.requests_per_s * tokens * over / gpus))
    values = {
        "req_s": outcome.requests_per_s,
        "tok_s_user": 1 / outcome.tpot,
        "tpot_ms": outcome.tpot / MS,
        "ttft_ms": outcome.ttft / MS,
        "e2e_latency_ms": outcome.latency / MS,
        "e2e_latency_s": outcome.latency,
    }
    if metric not in values:
        raise RowError(f"metric {metric!r} is not predicted")
    return float(np.squeeze(values[metric]))


def benchmark_row(cells: Cells) -> Row:
    """A row of one benchmark figure and its prediction.

    Raises:
        RowError: nothing can be predicted.
    """
    run = benchmark_run(cells)
    outcome = benchmark_outcome(cells, run)
    if WITH_PROMPT.search(cells["notes"]):
        outcome = replace(outcome, tpot=outcome.latency / run.workload.output)
    return Row(
        cells,
        predicted={"value": metric_value(cells["metric"], outcome=outcome, run=run)},
        group=run.deployment.group(gpu=run.gpu.name)
        | {"mode": re.sub(r"\s*\(.*", "", cells["mode"]), "metric": cells["metric"]},
    )


KINDS: tuple[tuple[tuple[str, ...], Callable[[Cells], Row], frozenset[str]], ...] = (
    (
        MEMORY_COLUMNS,
        memory_row,
        frozenset({"engine", "version", "model", "weight_quant", "kv_dtype", "gpu", "gpu_mem_gb", "n_gpus", "tp", "pp",
                   "dp", "ep", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "enforce_eager",
                   "notes"}),
    ),
    (
        SPEED_COLUMNS,
        speed_row,
        frozenset({"engine", "engine_version", "model", "weights", "kv", "gpu", "tensor", "data", "expert",
                   "prompt_tokens", "output_tokens", "concurrency"}),
    ),
    (
        THROUGHPUT_COLUMNS,
        benchmark_row,
        frozenset({"model", "gpu", "n_gpus", "tp", "pp", "ep", "dp", "framework", "fw_version", "weight_dtype",
                   "kv_dtype", "isl", "osl", "concurrency_or_batch", "mode", "metric", "notes"}),
    ),
)  # fmt: skip
"""Measured columns, how a row is predicted, and the columns that needs."""


def predicted_row(cells: Cells, *, predict: Callable[[Cells], Row]) -> Row:
    """A row with its prediction, or with the reason there is none."""
    try:
        return predict(cells)
    except (RowError, ValidationError) as reason:
        return Row(cells, skipped=reason_of(reason))


def reason_of(error: RowError | ValidationError) -> str:
    """Why a row is skipped, in words."""
    if isinstance(error, RowError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))} is out of range: {first['msg']}"


def validation(path: Path) -> Report:
    """A file of measurements, predicted row by row.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no CSV file in one of the three sets of columns.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        columns = tuple(reader.fieldnames or ())
        rows = [{name: row.get(name) or "" for name in columns} for row in reader]
    return report_of(rows, columns=columns)


def report_of(rows: Iterable[Cells], *, columns: Sequence[str]) -> Report:
    """Rows in one of the three sets of columns, predicted.

    Raises:
        ValueError: the columns are of none of them.
    """
    for measured, predict, needed in KINDS:
        if needed <= set(columns) and set(measured) & set(columns):
            found = tuple(predicted_row(cells, predict=predict) for cells in rows)
            outcome = (VERDICT,) if VERDICT in columns and predict is memory_row else ()
            return Report(
                columns=tuple(columns),
                measured=tuple(name for name in measured if name in columns) + outcome,
                rows=found,
            )
    least = min((needed - set(columns) for _, _, needed in KINDS), key=len)
    raise ValueError(
        f"neither memory nor speed nor throughput measurements; the nearest set lacks {', '.join(sorted(least))}"
    )


def relative_error(row: Row, column: str) -> float | None:
    """predicted / measured - 1; None where either is missing or the measured one is not above zero."""
    measured, predicted = number(row.cells.get(column)), row.predicted.get(column)
    return predicted / measured - 1 if measured and measured > 0 and predicted is not None else None


# --- reports


def write_rows(report: Report, path: Path) -> None:
    """Every row of the file with `predicted_<column>` for each measured one, and `skipped` with the reason."""
    added = [f"predicted_{column}" for column in report.measured]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*report.columns, *added, "skipped"])
        writer.writeheader()
        for row in report.rows:
            predicted = {f"predicted_{column}": f"{value:.6g}" for column, value in row.predicted.items()}
            if VERDICT in report.measured:
                predicted[f"predicted_{VERDICT}"] = row.verdict
            writer.writerow(
                dict(row.cells) | {name: predicted.get(name, "") for name in added} | {"skipped": row.skipped}
            )


def report_json(report: Report) -> dict[str, Any]:
    """A report as plain values."""
    columns = [column for column in report.measured if column != VERDICT]
    overall = {column: vars(errors) for column in columns if (errors := report.errors(column))}
    groups = {
        kind: {
            column: {name: vars(e) for name, e in report.by_group(kind, column).items()} for column in columns
        }
        for kind in report.kinds
    }
    found: dict[str, Any] = {
        "rows": len(report.rows),
        "predicted": sum(bool(row.predicted) for row in report.rows),
        "skipped": report.skipped,
        "errors": overall,
        "groups": groups,
    }
    if report.verdicts:
        found["verdicts"] = {
            "count": len(report.verdicts),
            "right": 1 - len(report.wrong_verdicts) / len(report.verdicts),
            "wrong": [
                {"id": row.cells.get("id", ""), "measured": row.cells[VERDICT], "predicted": row.verdict}
                for row in report.wrong_verdicts
            ],
        }
    return found


def written_report(report: Report) -> str:
    """A report as a person reads it on a terminal."""
    predicted = sum(bool(row.predicted) for row in report.rows)
    lines = [f"{predicted} of {len(report.rows)} rows predicted, {len(report.rows) - predicted} skipped", ""]
    lines += [f"  {count:>5} {reason}" for reason, count in report.skipped.items()]
    columns = [column for column in report.measured if column != VERDICT]
    lines += ["", f"{'':<44}{'rows':>6}{'median':>9}{'p90':>9}{'bias':>9}", "overall"]
    lines += [written_errors(column, errors) for column in columns if (errors := report.errors(column))]
    for kind in report.kinds:
        for column in columns:
            found = report.by_group(kind, column)
            if len(found) > 1:
                lines += [
                    f"{column} by {kind}",
                    *(written_errors(name, errors) for name, errors in found.items()),
                ]
    if report.verdicts:
        right = len(report.verdicts) - len(report.wrong_verdicts)
        lines += ["", f"fits or not: {right} of {len(report.verdicts)} right; wrong:"]
        lines += [
            f"  {row.cells.get('id', '')}: {row.cells['model'] or 'model not stated'}: predicted {row.verdict}, was "
            f"{row.cells[VERDICT][:70]}"
            for row in report.wrong_verdicts
        ]
    return "\n".join(lines)


def written_errors(name: str, errors: Errors) -> str:
    """One line of the table."""
    return f"  {name[:41]:<42}{errors.count:>6}{errors.median:>9.1%}{errors.p90:>9.1%}{errors.bias:>+9.1%}"
