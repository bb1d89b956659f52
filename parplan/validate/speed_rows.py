"""Times to first and per output token at fixed concurrency, predicted."""

import re
from typing import Any

import numpy as np

from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.memory import memory
from parplan.serving import serve, ttft_of_benchmark
from parplan.units import MS
from parplan.validate.cells import Cells, stated, whole
from parplan.validate.deployments import Deployment, deployment
from parplan.validate.names import gpu_named
from parplan.validate.report import Row
from parplan.workload import Workload

SPEED_COLUMNS = ("ttft_ms", "tpot_ms")
BENCHMARK_WAVES = 10
"""Requests a benchmark sends through each client, all clients starting at once (InferenceX: num_prompts = 10 x
concurrency, request rate infinite)."""


POLLED = re.compile(r"\bPOLLED-([1-9]\d{0,3})\b")
"""Flag of a run whose engine was told to look for newcomers every so many decode steps only."""


def steps_between_looks(flags: str) -> int:
    """Decode steps from one look for newcomers to the next, as a row's flags say; 1 where they do not.

    >>> steps_between_looks("MTP-POSSIBLE;POLLED-30"), steps_between_looks("QUEUED")
    (30, 1)
    """
    found = POLLED.search(flags)
    return int(found[1]) if found else 1


def speed_run(cells: Cells) -> tuple[Deployment, Gpu, Workload]:
    """What a speed row says was run, on what, under which load.

    Raises:
        RowError: too little, or a name the catalogue does not know.
        ValidationError: a number out of range.
    """
    layout = Layout(**{name: whole(cells, name, default=1) for name in ("tensor", "data", "expert")})
    run = deployment(cells, weights="weights", kv="kv", version="engine_version", layout=layout)
    workload = Workload(
        prompt=max(1, round(stated(cells, "prompt_tokens") or 1)),
        output=max(1, round(stated(cells, "output_tokens") or 1)),
        concurrency=whole(cells, "concurrency", default=1),
    )
    return run, gpu_named(cells["gpu"], size=None), workload


def speed_row(cells: Cells) -> Row:
    """A speed row and its prediction.

    Raises:
        RowError: nothing can be predicted.
    """
    run, gpu, workload = speed_run(cells)
    asked: dict[str, Any] = {
        "layout": run.layout,
        "gpu": gpu,
        "engine": run.engine,
        "workload": workload,
        "concurrency": workload.concurrency,
    }
    held = memory(run.transformer, run.precision, **asked)
    served = serve(run.transformer, run.precision, **asked, capacity=held.capacity)
    polled = steps_between_looks(cells.get("flags", ""))
    first = ttft_of_benchmark(served, waves=BENCHMARK_WAVES, polled=polled)
    predicted = {
        "ttft_ms": float(np.squeeze(first)) / MS,
        "tpot_ms": float(np.squeeze(served.tpot)) / MS,
    }
    return Row(cells, predicted=predicted, group=run.group(gpu=gpu.name))
