"""One figure of a benchmark run, throughput or a time, predicted."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import Settings, limits, memory
from parplan.placement import Placement
from parplan.serving import Serving, serve
from parplan.step import decode_step, prefill_step
from parplan.transformer import Transformer
from parplan.units import MS, Number, Seconds
from parplan.validate.cells import Cells, RowError, stated, whole
from parplan.validate.deployments import Deployment, deployment
from parplan.validate.names import gpu_named
from parplan.validate.report import Row
from parplan.workload import Workload

THROUGHPUT_COLUMNS = ("value",)
MANY = 65_536
"""Requests in hand where a benchmark says no more than that all were queued."""
NODE = 8
"""GPUs of what sources call a node."""
NOT_MEASURED = re.compile(r"\bMTP ?=? ?[1-9]|simulated", re.IGNORECASE)
"""Tokens were drafted ahead, or the figure was computed."""
WITH_PROMPT = re.compile(r"\bDERIVED\b|includes ctx time")
"""The time per token is the whole time over the output tokens, prompt included."""
SLOTS = re.compile(r"(?:max_num_seqs[ =]*|max_batch )(\d{1,9})")
REQUESTS = re.compile(r"num_(?:requests|prompts)[ =]*(\d{1,9})(?![\d-])")
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
        """What it is run on, by the names of the formulas of memory and serving."""
        return {"layout": self.deployment.layout, "gpu": self.gpu, "engine": self.deployment.engine}

    @property
    def at(self) -> Placement:
        """The same as steps take it."""
        run = self.deployment
        return Placement(run.precision, run.layout, self.gpu, run.engine)


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
    load = re.fullmatch(rf"([1-9]\d{{0,8}}){unit}", cells["concurrency_or_batch"].strip())
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
    first = done.ttft - done.queued
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
        length=run.workload.length,
    )
    each = max(1.0, requests / float(layout.data))
    chunks = np.ceil(prompt / told.batched_tokens)
    together = np.clip(told.batched_tokens // prompt, 1.0, each)
    tokens = prompt / chunks
    step = prefill_step(
        run.deployment.transformer, at=run.at, tokens=tokens, prior=(prompt - tokens) / 2, prompts=together
    ).total
    first = step * (1 + (chunks * each / together - 1) / float(layout.pipeline))
    token = decode_step(
        run.deployment.transformer, at=run.at, batch=requests, length=run.workload.mean_length
    ).total
    latency = first + (output - 1) * token
    return Outcome(ttft=first, tpot=token, latency=latency, requests_per_s=requests / latency)


def prefill_only(run: Run, *, tokens: int) -> Outcome:
    """Whole prompts, as many as make up a step's tokens on every attention replica."""
    prompt = run.workload.prompt
    together = max(1.0, tokens / prompt)
    step = prefill_step(
        run.deployment.transformer, at=run.at, tokens=prompt, prior=0.0, prompts=together
    ).total
    rate = together * run.deployment.layout.data / step
    return Outcome(ttft=step, tpot=step, latency=step, requests_per_s=rate)


def decode_only(run: Run, *, requests: int) -> Outcome:
    """Requests whose prompts were computed elsewhere, on every GPU of the replica, always as many."""
    batch = requests * float(run.deployment.layout.gpus)
    token = decode_step(
        run.deployment.transformer, at=run.at, batch=batch, length=run.workload.mean_length
    ).total
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
