"""What an engine's start-up log says of its memory, beside what was predicted.

vLLM (V0 and V1), SGLang and TensorRT-LLM each word the same quantities in their own way, and every few versions anew.
A wording is written here as the line reads, with the name of a quantity in the place of its value. What all three
print as "GB" is GiB.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import ValidationError

from parplan import catalog
from parplan.export import Json
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Memory, Settings, memory
from parplan.scenario import AUTO, CUTS, NATIVE, Scenario, problem_of
from parplan.transformer import Transformer
from parplan.units import GIB, MIB, gib
from parplan.validate import (
    RowError,
    engine_named,
    known_gpu,
    kv_format,
    published_in,
    transformer_named,
    weight_format,
)
from parplan.workload import Workload

EngineName: TypeAlias = Literal["vllm", "sglang", "trtllm"]
LABELS: dict[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}

LONGEST_LOG = 1 << 22
"""Characters of a log that are read; start-up is over long before."""
LONGEST_LINE = 1 << 16
"""Characters of a line that are read; SGLang prints its arguments on one of some 16,000."""
REACH, NUMBER_REACH = 400, 60
"""Characters around its mark within which a wording is looked for; and before it, when it starts with a number."""
MOST_TRIES = 2
"""Places of one line at which a wording is looked for."""
MOST_RANKS = 4096
SHOWN = 160
"""Characters of a line that are shown again."""


class LogError(ValueError):
    """The text is no start-up log that can be read; the message names the lines that were looked for."""


# --- quantities


@dataclass(frozen=True)
class Quantity:
    """Something a log states."""

    label: str
    kind: Literal["bytes", "count", "times", "share", "word", "flag"]
    worst: Literal["largest", "smallest", "last"] = "last"
    """Which of several ranks stands for all: the one that has least memory left."""


QUANTITIES: dict[str, Quantity] = {
    "version": Quantity("version", "word"),
    "model": Quantity("model", "word"),
    "snapshot": Quantity("model, from the path of its files", "word"),
    "gpu": Quantity("GPU", "word"),
    "quantization": Quantity("quantization", "word"),
    "dtype": Quantity("dtype", "word"),
    "kv_dtype": Quantity("KV cache dtype", "word"),
    "tensor": Quantity("tensor parallel", "count"),
    "pipeline": Quantity("pipeline parallel", "count"),
    "data": Quantity("data parallel", "count"),
    "expert": Quantity("expert parallel", "count"),
    "decode_context": Quantity("decode-context parallel", "count"),
    "expert_parallel": Quantity("experts spread over all GPUs", "flag"),
    "attention_data": Quantity("attention data-parallel", "flag"),
    "eager": Quantity("no CUDA graphs", "flag"),
    "utilization": Quantity("share of memory", "share"),
    "max_length": Quantity("longest request, tokens", "count"),
    "max_num_seqs": Quantity("sequences at once", "count"),
    "max_batched_tokens": Quantity("tokens of one step", "count"),
    "total": Quantity("GPU memory", "bytes", "smallest"),
    "free": Quantity("free at start", "bytes", "smallest"),
    "free_after_weights": Quantity("free with weights loaded", "bytes", "smallest"),
    "context": Quantity("context, taken before start", "bytes", "largest"),
    "weights": Quantity("weights", "bytes", "largest"),
    "activations": Quantity("activation peak", "bytes", "largest"),
    "weights_and_activations": Quantity("weights and activation peak", "bytes", "largest"),
    "non_torch": Quantity("non-torch memory", "bytes", "largest"),
    "weights_and_non_torch": Quantity("weights and non-torch memory", "bytes", "largest"),
    "context_and_non_torch": Quantity("context and non-torch memory", "bytes", "largest"),
    "outside_torch": Quantity("context, non-torch memory and CUDA graphs", "bytes", "largest"),
    "graphs": Quantity("CUDA graphs", "bytes", "largest"),
    "graphs_piecewise": Quantity("piecewise CUDA graphs", "bytes", "largest"),
    "graphs_estimated": Quantity("CUDA graphs, estimated beforehand", "bytes", "largest"),
    "kv": Quantity("KV cache", "bytes", "smallest"),
    "states": Quantity("recurrent states", "bytes", "smallest"),
    "kv_tokens": Quantity("KV cache, tokens", "count", "smallest"),
    "concurrency": Quantity("longest requests at once", "times", "smallest"),
    "blocks": Quantity("KV blocks", "count", "smallest"),
    "block_size": Quantity("tokens of a block", "count"),
}

DECIMALS = {"count": 0, "times": 2, "share": 4}
"""Decimals numbers are shown with."""
NUMBER = r"-?\d[\d,]{0,17}(?:\.\d{1,17})?(?!\d)"
WORD = r"[\w./:+@-]{1,200}"
VALUE = {"word": rf"['\"]?{WORD}", "flag": "True|False"}
"""What the value of a quantity looks like, where it is not a number."""
GAP = ".{0,200}?"
PLACE = re.compile(r"<(\w+)(\+?)>|\.\.\.")
"""A place for a value, `<name>`; for one that is added to it, `<name+>`; or for anything short, `...`."""


@dataclass(frozen=True)
class Wording:
    """A line an engine prints."""

    engine: EngineName
    line: str
    """As it reads, with <quantity> in the place of a value and ... for what does not matter."""
    unit: float = GIB
    """Bytes of one unit of its quantities of memory."""
    keep: Literal["last", "largest"] = "last"
    """Which of the values one rank prints counts."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The quantities it states."""
        return tuple(place[1] for place in PLACE.finditer(self.line) if place[1] and not place[2])

    @cached_property
    def mark(self) -> str:
        """The longest literal piece: what a line is searched for first."""
        return max((piece.strip() for piece in re.split(r"<\w+\+?>|\.\.\.", self.line)), key=len)

    @property
    def shown(self) -> str:
        """As people read it."""
        return PLACE.sub("...", self.line)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The wording as an expression of bounded work: no part of it repeats without limit."""
        parts, end = [], 0
        for place in PLACE.finditer(self.line):
            parts.append(_literal(self.line[end : place.start()]))
            end = place.end()
            name = place[1]
            group = f"{name}_more" if place[2] else name
            parts.append(f"(?P<{group}>{VALUE.get(QUANTITIES[name].kind, NUMBER)})" if name else GAP)
        start = r"(?<![\w.])" if re.match(r"[\w<]", self.line) else ""
        return re.compile(start + "".join(parts) + _literal(self.line[end:]))

    @property
    def reach(self) -> int:
        """Characters before its mark within which it starts."""
        return NUMBER_REACH if self.line.startswith("<") else REACH

    def match(self, line: str) -> re.Match[str] | None:
        """What it reads in a line: the first few places that hold its mark are looked at."""
        at, mark = line.find(self.mark), self.mark
        for _ in range(MOST_TRIES):
            if at < 0:
                return None
            if found := self.pattern.search(line, max(0, at - self.reach), at + len(mark) + REACH):
                return found
            at = line.find(mark, at + 1)
        return None


def _literal(text: str) -> str:
    """Literal text, with spaces that may be missing or doubled."""
    return " {0,2}".join(re.escape(word) for word in text.split(" "))


# --- wordings


def _wordings(engine: EngineName, *lines: str, unit: float = GIB) -> tuple[Wording, ...]:
    return tuple(Wording(engine, line, unit=unit) for line in lines)


def _settings(engine: EngineName, **keys: str) -> tuple[Wording, ...]:
    """Settings as KEY=value and as 'KEY': value."""
    written = ("{}=<{}>", "'{}': <{}>")
    return tuple(
        Wording(engine, form.format(key, quantity)) for key, quantity in keys.items() for form in written
    )


WORDINGS: tuple[Wording, ...] = (
    *_wordings(
        "vllm",
        # V1: v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py
        "Model loading took <weights> GiB",
        "torch peak memory increase: <activations> GiB",
        "non-torch forward increase memory: <non_torch> GiB",
        "total consumed (from mem_get_info): <weights_and_non_torch> GiB",
        "weights memory: <weights> GiB",
        "<weights> GiB for weight,",
        "<weights_and_non_torch> GiB for consumed memory",
        "<activations> GiB for peak activation",
        "<non_torch> GiB for non-torch memory",
        "<graphs> GiB for CUDAGraph memory",
        "Graph capturing finished in ... took <graphs> GiB",
        "CUDA graph pool memory: <graphs> GiB (actual), <graphs_estimated> GiB (estimated)",
        "Estimated CUDA graph memory: <graphs_estimated> GiB",
        "Available KV cache memory: <kv> GiB",
        "Current kv cache memory in use is <kv> GiB",
        "larger than the available KV cache memory (<kv> GiB)",
        "GPU KV cache size: <kv_tokens> tokens",
        "maximum number of tokens that can be stored in KV cache (<kv_tokens>)",
        "Maximum concurrency for <max_length> tokens per request: <concurrency>x",
        "free_memory=<free>GiB, total_memory=<total>GiB",
        "Free memory on device ...(<free>/<total> GiB)",
        "Desired GPU memory utilization is (<utilization>,",
        "desired GPU memory utilization (<utilization>,",
        "Initial free memory: <free> GiB; Requested memory: <utilization> (util)",
        "num_gpu_blocks is: <blocks>",
        "Setting attention block size to <block_size> tokens",
        # V0: worker/worker.py, model_runner.py, executor/executor_base.py
        "Loading model weights took <weights> GB",
        "model weights take <weights> GiB",
        "non_torch_memory takes <non_torch> GiB",
        "PyTorch activation peak memory takes <activations> GiB",
        "memory reserved for KV Cache is <kv> GiB",
        "total_gpu_memory (<total> GiB) x gpu_memory_utilization (<utilization>)",
        "total_gpu_memory=<total>GiB initial_memory_usage=",
        "peak_torch_memory=<weights_and_activations>GiB",
        "memory_usage_post_profile=... non_torch_memory=<context_and_non_torch>GiB kv_cache_size=<kv>GiB"
        " gpu_memory_utilization=<utilization>",
        "# GPU blocks: <blocks>",
        "# cuda blocks: <blocks>",
        "# rocm blocks: <blocks>",
        # settings, printed on the way
        "LLM engine (v<version>)",
        "vLLM API server version <version>",
        "█  version <version>",
        "Using max model len <max_length>",
        "Defaulting max_num_batched_tokens to <max_batched_tokens>",
        "Defaulting max_num_seqs to <max_num_seqs>",
        "Chunked prefill is enabled with max_num_batched_tokens=<max_batched_tokens>",
        "device_name=<gpu>",
    ),
    *_wordings("vllm", "Current kv cache memory in use is <kv> bytes", unit=1),
    *_wordings(
        "sglang",
        # model_executor/model_runner.py, mem_cache/memory_pool.py, managers/scheduler.py
        "Load weight end. ...avail mem=<free_after_weights> GB",
        "Capture cuda graph end. ...mem usage=<graphs> GB",
        "Capture target decode CUDA graph end. ...mem usage=<graphs> GB",
        "Capture piecewise CUDA graph end. ...mem usage=<graphs_piecewise> GB",
        "Mamba Cache is allocated. ...conv_state size: <states> GB, ssm_state size: <states+> GB",
        "memory calculation: bytes_per_full_token=...available_bytes=<kv> GB",
        "Using KV cache dtype: <kv_dtype>",
        "KV Cache is allocated. dtype: <kv_dtype>,",
        "max_total_num_tokens=<kv_tokens>, ...max_running_requests=<max_num_seqs>",
        "max_total_num_tokens=... chunked_prefill_size=<max_batched_tokens>,",
        "max_total_num_tokens=... context_len=<max_length>",
        "SGLang version <version>",
    ),
    # a draft model and a pool for windowed layers print the same lines again, with smaller figures
    Wording("sglang", "Load weight begin. avail mem=<free> GB", keep="largest"),
    Wording("sglang", "Load weight end. ...mem usage=<weights> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...K size: <kv> GB, V size: <kv+> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...KV size: <kv> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...#tokens: <kv_tokens>,", keep="largest"),
    Wording("sglang", "SWAKVPool mem usage: <kv> GB, ...full size: <kv_tokens>", keep="largest"),
    *_wordings(
        "trtllm",
        # _torch/pyexecutor/_util.py, batch_manager/kvCacheManager.cpp
        "Use <weights> GB for model weights",
        "Memory used after loading model weights (inside torch) ...: <weights> GiB",
        "Memory dynamically allocated during inference (inside torch) ...: <activations> GiB",
        "Memory used outside torch (e.g., NCCL and CUDA graphs) ...: <outside_torch> GiB",
        "available KV cache memory when calculating max tokens: <kv> GiB",
        "calculating max tokens: ...fraction is set <utilization>",
        "device total memory <total> GiB",
        "Estimated max memory in KV cache : <kv> GiB",
        "Allocated <kv> GiB for max tokens in paged KV cache (<kv_tokens>)",
        "when calculating max tokens in paged kv cache: total: <total> GiB",
        "tokens per block=<block_size>, primary blocks=<blocks>",
        "Number of tokens per block: <block_size>",
        "Number of blocks in KV cache primary pool: <blocks>",
        "max_seq_len=<max_length>, max_num_requests=<max_num_seqs>, max_num_tokens=<max_batched_tokens>",
        "TRTGptModel maxNumSequences: <max_num_seqs>",
        "TRTGptModel maxSequenceLen: <max_length>",
        "TRTGptModel maxNumTokens: <max_batched_tokens>",
        "TensorRT-LLM version: <version>",
        "TensorRT LLM version: <version>",
        "Engine version <version> found in the config file",
        "/models--<snapshot>/snapshots/",
        "kv_cache_dtype=<kv_dtype>,",
    ),
    *_wordings("trtllm", "Loaded engine size: <weights> MiB", unit=MIB),
)

SETTING_LINES = {
    "vllm": ("LLM engine (v", "LLM engine with config", "non-default args", "args: Namespace("),
    "sglang": ("server_args=",),
    "trtllm": ("LLM Args:", "moe_expert_parallel_size="),
}
"""Lines that print an engine's settings."""
SETTINGS: tuple[Wording, ...] = (
    *_settings(
        "vllm", model="model", tensor_parallel_size="tensor", pipeline_parallel_size="pipeline",
        data_parallel_size="data", decode_context_parallel_size="decode_context",
        enable_expert_parallel="expert_parallel", gpu_memory_utilization="utilization",
        max_seq_len="max_length", max_model_len="max_length", max_num_seqs="max_num_seqs",
        max_num_batched_tokens="max_batched_tokens", enforce_eager="eager", quantization="quantization",
        kv_cache_dtype="kv_dtype", dtype="dtype", block_size="block_size",
    ),
    *_settings(
        "sglang", model_path="model", tp_size="tensor", pp_size="pipeline", dp_size="data", ep_size="expert",
        enable_dp_attention="attention_data", mem_fraction_static="utilization", context_length="max_length",
        max_running_requests="max_num_seqs", chunked_prefill_size="max_batched_tokens",
        disable_cuda_graph="eager", quantization="quantization", kv_cache_dtype="kv_dtype", dtype="dtype",
        page_size="block_size",
    ),
    *_settings(
        "trtllm", model="model", tensor_parallel_size="tensor", pipeline_parallel_size="pipeline",
        moe_expert_parallel_size="expert", enable_attention_dp="attention_data",
        free_gpu_memory_fraction="utilization", max_seq_len="max_length", max_batch_size="max_num_seqs",
        max_num_tokens="max_batched_tokens", dtype="dtype", tokens_per_block="block_size",
    ),
)  # fmt: skip
WANTED = ("weights", "activations", "non_torch", "graphs", "kv", "kv_tokens")
"""Quantities people compare; what a log does not say of them is reported."""
FAILURES = (
    "No available memory for the cache blocks",
    "KV cache is needed, which is larger than the available KV cache memory",
    "is larger than the maximum number of tokens that can be stored in KV cache",
    "is less than desired GPU memory utilization",
    "out of memory occurred",
    "out of memory. Tried to allocate",
    "Not enough memory. Please try to increase --mem-fraction-static",
    "exceeds available Mamba cache blocks",
)
"""What engines say when they do not come up."""


# --- reading


@dataclass(frozen=True)
class Line:
    """Where something was read."""

    number: int
    """Counted from one."""
    text: str
    """The line, or the part of a long one around what was read."""


@dataclass(frozen=True)
class Figure:
    """One quantity of a log: on the rank with least memory left, where several say it."""

    name: str
    """Its name in `QUANTITIES`."""
    value: float | str
    """Bytes, a count, a share between 0 and 1, a word; 1 or 0 for yes or no."""
    line: Line
    rank: str = ""
    """The rank or process that said it, as the log names it; empty where it names none."""
    derived: str = ""
    """How it follows from other figures, when no line states it."""

    @property
    def label(self) -> str:
        """The name people read."""
        return QUANTITIES[self.name].label

    @property
    def written(self) -> str:
        """The value with its unit."""
        kind = QUANTITIES[self.name].kind
        if isinstance(self.value, str):
            return self.value
        if kind == "bytes":
            return f"{gib(self.value):z,.2f} GiB"
        if kind == "flag":
            return "yes" if self.value else "no"
        return f"{self.value:z,.{DECIMALS[kind]}f}"


@dataclass(frozen=True)
class LogFigures:
    """What a start-up log says."""

    engine: EngineName
    found: Mapping[str, Figure]
    """By name, in the order of `QUANTITIES`."""
    failures: tuple[Line, ...]
    """Lines on which the engine gave up."""
    messages: tuple[str, ...]
    """What the log does not say, and the lines that were looked for."""

    def number(self, name: str) -> float | None:
        """The value of a figure that is a number; None: the log does not say."""
        figure = self.found.get(name)
        return figure.value if figure and not isinstance(figure.value, str) else None

    def word(self, name: str) -> str:
        """The value of a figure that is a word; empty: the log does not say."""
        figure = self.found.get(name)
        return figure.value if figure and isinstance(figure.value, str) else ""

    def count(self, name: str, *, default: int) -> int:
        """A whole number above zero, or the default where the log does not say."""
        return max(int(self.number(name) or default), 1)


ANSI = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]")
RANK = re.compile(
    r"\((?P<process>[A-Za-z]\w{0,60} (?:rank=\d{1,6} )?pid=\d{1,10}(?:, ip=[\w.:]{1,60})?)\)"
    r"|\[RANK (?P<number>\d{1,6})\]"
    r"|\[[\d :T.,/-]{8,40} (?P<parallel>(?:[DTEPC]P\d{1,5} ){0,5}[DTEPC]P\d{1,5})\]"
)
SHORTEST = min(len(mark) for mark in (*(one.mark for one in WORDINGS), *FAILURES))
"""Characters of the shortest line that can say anything."""
PREFIX = 200
"""Characters of a line within which its rank is named."""


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text, colours removed; too short ones are left out, too long ones and too long texts cut."""
    for number, line in enumerate(text[:LONGEST_LOG].split("\n"), start=1):
        if len(line) >= SHORTEST:
            line = line[:LONGEST_LINE]
            yield number, ANSI.sub("", line) if "\x1b" in line else line


def rank_of(line: str) -> str:
    """The rank or process a line comes from, as it names it.

    >>> rank_of("(Worker_TP1 pid=445) INFO 04-22 00:18:22"), rank_of("[2026-05-15 08:39:36 DP0 TP0] Load weight begin.")
    ('Worker_TP1 pid=445', 'DP0 TP0')
    """
    match = RANK.search(line[:PREFIX])
    return next(filter(None, match.groups()), "") if match else ""


def excerpt(line: str, *, start: int, end: int) -> str:
    """A line, or the part of a long one around what was read."""
    if len(line.strip()) <= SHOWN:
        return line.strip()
    first = max(0, start - max(0, SHOWN - (end - start)) // 2)
    last = min(first + SHOWN, len(line))
    return ("…" if first else "") + line[first:last].strip() + ("…" if last < len(line) else "")


def value_of(match: re.Match[str], name: str, *, unit: float) -> float | str:
    """What a line states for a quantity, in its base unit."""
    kind, text = QUANTITIES[name].kind, match[name]
    if kind == "word":
        return text.lstrip("'\"").removeprefix("torch.").rstrip(".,:")
    if kind == "flag":
        return float(text == "True")
    more = match.groupdict().get(f"{name}_more") or "0"
    return (float(text.replace(",", "")) + float(more.replace(",", ""))) * (unit if kind == "bytes" else 1)


def readings(text: str) -> Iterator[tuple[Wording, Figure]]:
    """Everything any wording reads in a text, line by line."""
    for number, line in lines_of(text):
        printing = {engine for engine, marks in SETTING_LINES.items() if any(mark in line for mark in marks)}
        known = WORDINGS + tuple(one for one in SETTINGS if one.engine in printing) if printing else WORDINGS
        for wording in known:
            if wording.mark in line and (match := wording.match(line)):
                shown = Line(number, excerpt(line, start=match.start(), end=match.end()))
                for name in wording.names:
                    value = value_of(match, name, unit=wording.unit)
                    if value not in ("None", "null", ""):
                        yield wording, Figure(name, value, shown, rank_of(line))


def worst(figures: Iterable[Figure], *, quantity: Quantity) -> Figure:
    """The figure of the rank with least memory left; of a setting, the last."""
    ranked = list(figures)
    match quantity.worst:
        case "largest":
            return max(ranked, key=lambda figure: float(figure.value))
        case "smallest":
            return min(ranked, key=lambda figure: float(figure.value))
        case "last":
            return max(ranked, key=lambda figure: figure.line.number)


def log_figures(text: str) -> LogFigures:
    """What a start-up log says of an engine's settings and memory.

    Of several engines in one text, the one that says most. Of several values one rank prints, the last counts; of
    several ranks, the one with least memory left.

    Raises:
        LogError: no line with a memory figure was found.
    """
    by_engine: dict[EngineName, dict[str, dict[str, Figure]]] = {engine: {} for engine in LABELS}
    for wording, figure in readings(text):
        ranks = by_engine[wording.engine].setdefault(figure.name, {})
        before = ranks.get(figure.rank)
        if before is None and len(ranks) >= MOST_RANKS:
            continue
        if before is None or wording.keep == "last" or float(figure.value) > float(before.value):
            ranks[figure.rank] = figure
    engine = max(by_engine, key=lambda name: len(by_engine[name]))
    said = by_engine[engine]
    found = {
        name: worst(said[name].values(), quantity=quantity)
        for name, quantity in QUANTITIES.items()
        if name in said
    }
    found = with_derived(found)
    if not any(QUANTITIES[name].kind == "bytes" or name == "kv_tokens" for name in found):
        raise LogError(_unreadable(text))
    return LogFigures(
        engine=engine, found=found, failures=failure_lines(text), messages=_missing(engine, found, text=text)
    )


def with_derived(found: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures with those that follow from others: parts from a sum and the rest of it."""
    known = dict(found)

    def derive(name: str, *, first: str, second: str, sign: int) -> None:
        if first in found and second in known and (name not in known or sign > 0):
            value = float(found[first].value) + sign * float(known[second].value)
            how = f"{QUANTITIES[first].label} {'+' if sign > 0 else '−'} {QUANTITIES[second].label}"
            known[name] = replace(found[first], name=name, value=value, derived=how)

    derive("weights", first="free", second="free_after_weights", sign=-1)
    derive("non_torch", first="weights_and_non_torch", second="weights", sign=-1)
    derive("activations", first="weights_and_activations", second="weights", sign=-1)
    derive("context", first="total", second="free", sign=-1)
    derive("graphs", first="graphs", second="graphs_piecewise", sign=1)
    if "snapshot" in known and "model" not in known:
        path = str(known.pop("snapshot").value).replace("--", "/", 1)
        known["model"] = replace(found["snapshot"], name="model", value=path, derived="path of its files")
    return {name: known[name] for name in QUANTITIES if name in known}


def failure_lines(text: str) -> tuple[Line, ...]:
    """The first line for each way an engine says that it does not come up."""
    found: dict[str, Line] = {}
    for number, line in lines_of(text):
        for mark in FAILURES:
            if mark not in found and mark in line:
                start = line.index(mark)
                found[mark] = Line(number, excerpt(line, start=start, end=start + len(mark)))
    return tuple(sorted(found.values(), key=lambda line: line.number))


def lines_looked_for(engine: EngineName, name: str) -> tuple[str, ...]:
    """The wordings in which an engine states a quantity."""
    return tuple(wording.shown for wording in WORDINGS if wording.engine == engine and name in wording.names)


def _unreadable(text: str) -> str:
    looked = "; ".join(
        f"{label}: "
        + ", ".join(f'"{line}"' for name in WANTED for line in lines_looked_for(engine, name)[:2])
        for engine, label in LABELS.items()
    )
    lines = text.count("\n") + bool(text.strip())
    return f"No memory figure of an engine's start-up log was found in {lines:,} lines. Looked for {looked}."


DEBUG_HINT = {"vllm": " Some versions print it at debug level only (VLLM_LOGGING_LEVEL=DEBUG)."}
SUMS = {
    "activations": ("weights_and_activations",),
    "non_torch": ("context_and_non_torch", "outside_torch", "weights_and_non_torch"),
    "graphs": ("outside_torch",),
    "kv_tokens": ("concurrency",),
}
"""What a log may state in place of a quantity."""


def _missing(engine: EngineName, found: Mapping[str, Figure], *, text: str) -> tuple[str, ...]:
    """What a readable log does not say, and the lines that were looked for."""
    said = []
    if len(text) > LONGEST_LOG:
        said.append(f"Only the first {LONGEST_LOG:,} characters were read.")
    for name in WANTED:
        if name in found or any(total in found for total in SUMS.get(name, ())):
            continue
        if name == "graphs" and found.get("eager") and found["eager"].value:
            continue
        label, looked = QUANTITIES[name].label, lines_looked_for(engine, name)
        if looked:
            wanted = ", ".join(f'"{line}"' for line in looked)
            said.append(f"No {label} in the log; looked for {wanted}.{DEBUG_HINT.get(engine, '')}")
        else:
            said.append(f"{LABELS[engine]} does not log {label}.")
    return tuple(said)


# --- comparing


@dataclass(frozen=True)
class Comparison:
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


def compared(figures: LogFigures, predicted: Memory) -> tuple[Comparison, ...]:
    """Predicted beside logged, component by component, for whatever the log states.

    A log counts tokens and requests per data-parallel rank, so the prediction's are divided by the ranks. Sums are
    compared only where a part is not logged.

    Args:
        figures: of a log.
        predicted: of one layout at one concurrency (scalars), told what the log says; see `predicted_memory`.
    """
    m = predicted
    values = {
        "total": np.asarray(m.usable),
        "context": m.context,
        "weights": m.weights,
        "activations": m.activations,
        "non_torch": m.non_torch,
        "context_and_non_torch": m.context + m.non_torch,
        "graphs": m.graphs,
        "outside_torch": m.context + m.non_torch + m.graphs,
        "kv": m.pool,
        "kv_tokens": m.kv_tokens / layout_of(figures).data,
        "concurrency": m.pool / np.where(m.longest > 0, m.longest, np.nan),
    }
    states = figures.number("states") or 0.0
    rows = []
    for name, value in values.items():
        logged = figures.number(name)
        if logged is not None and np.isfinite(value):
            label = QUANTITIES[name].label + (" and recurrent states" if name == "kv" and states else "")
            logged += states if name == "kv" else 0.0
            rows.append(Comparison(name, label, float(value), logged, figures.found[name]))
    return tuple(rows)


def settings_from(figures: LogFigures) -> dict[str, float | int | bool]:
    """The settings the log states, as fields of `memory.Settings`; what that does not take is left out."""
    length, sequences = figures.number("max_length"), figures.number("max_num_seqs")
    tokens, share = figures.number("max_batched_tokens"), figures.number("utilization")
    stated: dict[str, float | int | bool] = {
        name: value
        for name, value in {
            "utilization": share,
            "max_length": length and int(length),
            "max_num_seqs": sequences and int(sequences),
            "max_batched_tokens": tokens and int(tokens),
            "eager": bool(figures.number("eager")) or None,
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
    cuts = {name: getattr(scenario, name) or 1 for name in CUTS}
    return memory(
        problem.transformer,
        problem.precision,
        layout=Layout(**cuts),
        gpu=problem.gpu.model_copy(update={"memory": total}),
        engine=problem.engine,
        workload=Workload(prompt=max(length - 1, 1), output=1),
        concurrency=1,
        settings=problem.settings.model_copy(update=told),
    )


# --- taking over


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
    return tuple(gpu for gpu in catalog.gpus().values() if abs(gpu.memory / total - 1) < 0.01)


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
    for field, quantity in (("slots", "max_num_seqs"), ("step_tokens", "max_batched_tokens")):
        if (number := figures.number(quantity)) is not None:
            changes[field] = int(number)
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
    changes["model"] = transformer.name
    as_published = stored is None or published_in(transformer, stored)
    changes["weights"] = NATIVE if stored is None or as_published else stored.name
    if transformer.name.lower() != name.lower():
        messages.append(f"{name} is taken as {transformer.name}, of the same architecture.")
    return transformer


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
    changes |= {name: getattr(layout, name) for name in CUTS}
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


# --- showing


def log_json(figures: LogFigures, comparisons: Iterable[Comparison] = ()) -> Json:
    """Figures and comparisons as plain data; memory in GiB."""
    return {
        "engine": figures.engine,
        "figures": {name: _figure_json(figure) for name, figure in figures.found.items()},
        "compared": [
            {
                "name": one.name,
                "label": one.label,
                "unit": _unit(one.name),
                "predicted": _plain(one.predicted, one.name),
                "logged": _plain(one.logged, one.name),
                "difference": _plain(one.difference, one.name),
                "relative": one.relative,
                "line": one.figure.line.number,
            }
            for one in comparisons
        ],
        "overheads_gib": measured_overheads(figures),
        "failures": [{"line": line.number, "text": line.text} for line in figures.failures],
        "messages": list(figures.messages),
    }


def _figure_json(figure: Figure) -> Json:
    value = figure.value if isinstance(figure.value, str) else _plain(figure.value, figure.name)
    return {
        "label": figure.label,
        "value": bool(value) if QUANTITIES[figure.name].kind == "flag" else value,
        "unit": _unit(figure.name),
        "line": figure.line.number,
        "text": figure.line.text,
        "rank": figure.rank,
        "derived": figure.derived,
    }


def _unit(name: str) -> str:
    return "GiB" if QUANTITIES[name].kind == "bytes" else ""


def _plain(value: float, name: str) -> float:
    return float(gib(value)) if QUANTITIES[name].kind == "bytes" else value


def written_log(figures: LogFigures, comparisons: Iterable[Comparison] = ()) -> str:
    """Figures and comparisons as a person reads them on a terminal."""
    rows = [f"{LABELS[figures.engine]} {figures.word('version')}".strip(), ""]
    rows += [
        f"{figure.label:<44}{figure.written:>24}  line {figure.line.number}"
        + (f" ({figure.derived})" if figure.derived else "")
        for figure in figures.found.values()
    ]
    if pairs := list(comparisons):
        rows += ["", f"{'':<44}{'predicted':>16}{'logged':>16}{'difference':>16}{'':>10}"]
        rows += [_written_comparison(pair) for pair in pairs]
    for title, said in (
        ("It did not come up:", [f"line {line.number}: {line.text}" for line in figures.failures]),
        ("Not read:", list(figures.messages)),
    ):
        if said:
            rows += ["", title, *(f"  {one}" for one in said)]
    return "\n".join(rows)


def _written_comparison(pair: Comparison) -> str:
    values = [
        replace(pair.figure, value=value).written for value in (pair.predicted, pair.logged, pair.difference)
    ]
    share = "" if pair.relative is None else f"{pair.relative:+.1%}"
    return f"{pair.label:<44}{values[0]:>16}{values[1]:>16}{values[2]:>16}{share:>10}"
