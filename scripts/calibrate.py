"""Fits the speed constants of every engine to published measurements and writes catalogs/engines/speed.yaml.

    python scripts/calibrate.py

Least squares on the logarithm of predicted over measured times, with the soft-L1 loss so that a few odd rows do not
steer the fit, and with each constant drawn to a starting value read from published kernel measurements. Then the same
without each pair of model and GPU, each model and each GPU in turn, which shows the error to expect where nothing was
measured; those constants are sought with times as powers of them, and the rows left out are predicted by the model.
Deterministic; takes two minutes.
"""

# ruff: noqa: T201

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from parplan import catalog  # noqa: E402
from parplan.calibration import Engine, SpeedProfile  # noqa: E402
from parplan.formats import Precision  # noqa: E402
from parplan.hardware import Gpu  # noqa: E402
from parplan.layout import Layout  # noqa: E402
from parplan.problem import chosen_precision  # noqa: E402
from parplan.serving import serve, ttft_of_benchmark  # noqa: E402
from parplan.transformer import Transformer  # noqa: E402
from parplan.units import MS, Array  # noqa: E402
from parplan.validate import (  # noqa: E402
    BENCHMARK_WAVES,
    UNUSED,
    RowError,
    engine_named,
    kv_format,
    published_in,
    steps_between_looks,
    transformer_named,
    weight_format,
)
from parplan.workload import Workload  # noqa: E402

MEASURED = ROOT / "catalogs" / "measurements" / "speed.csv"
WRITTEN = ROOT / "catalogs" / "engines" / "speed.yaml"
DATE = "2026-11-30"
"""When the measurements were last extended and fitted."""

TPOT_SPREAD, TTFT_SPREAD = 0.10, 0.30
"""Relative errors that count as one: the model's own on a time per token, and on a time to first token."""
WIDE_SPREAD = 1.00
"""The first for engines with their defaults and for figures nobody reviewed, both slower than others by reasons the
constants do not have. An error counts a tenth: enough to place what no other row is about (AMD)."""
WIDE = ("DEFAULTS", "UNREVIEWED")
"""Marks of those rows."""
NUDGE = 0.98
"""Factor by which a constant is moved to see what times make of it; shares stay below one."""
ENGINES = ("vllm", "sglang", "trtllm")
LEFT_OUT = {"pairs": ["model", "gpu"], "models": ["model"], "gpus": ["gpu"]}
"""What is left out in turn: rows that share these cells."""


@dataclass(frozen=True)
class Constant:
    """A constant to fit: where it starts, how far (in logarithm) it may well be, and where it must stay."""

    start: float
    spread: float
    low: float
    high: float


CONSTANTS: dict[str, Constant] = {
    # Kernel measurements (aiconfigurator 0.12.0 data: GEMM and attention by shape on A100 to GB300): time = start +
    # max(bytes / (share x bandwidth), FLOP / (share x peak)) fits them to 3 to 10 %. Shares hardly differ by engine.
    "bandwidth": Constant(0.83, 0.03, 0.5, 1),
    "cache_bandwidth": Constant(0.87, 0.05, 0.3, 1),
    "bf16": Constant(0.86, 0.07, 0.4, 1),
    "fp8": Constant(0.68, 0.07, 0.3, 1),
    "fp4": Constant(0.58, 0.10, 0.2, 1),
    "attention_compute": Constant(0.57, 0.3, 0.1, 1),
    # Medians over products of 1024 tokens and more, TensorRT-LLM: 0.83 of an A100's bf16 peak, 0.76 of an H100's, 0.65
    # of a B200's, which is 0.87 / (1 + peak / 7.0 PFLOP/s) to one percent; in FP8 0.54 and 0.44 of the latter two.
    "feeding": Constant(1 / 7.0e15, 0.2, 1e-17, 1e-15),
    "product": Constant(4e-6, 0.2, 0.3e-6, 30e-6),
    "quantise": Constant(4e-6, 0.3, 0.3e-6, 30e-6),
    "attention": Constant(10e-6, 0.5, 1e-6, 50e-6),
    # No kernel measurements, or few.
    # Grouped products are as fast as others where experts are whole and have thousands of tokens: 1297 TFLOP/s in four
    # groups of 8192 x 4096 x 7168 against 1304 alone; with 256 tokens each 932, as if each had a hundred more, which is
    # a tile of 160 (DeepGEMM README of 2025-02, FP8 on H800). The spread is for engines' own kernels; slices of experts
    # are a guess.
    "grouped": Constant(0.90, 0.15, 0.1, 1),
    "tile": Constant(160, 0.4, 1, 500),
    "narrow": Constant(300, 0.3, 1, 5000),
    "expanded": Constant(0.60, 0.25, 0.3, 1),
    "layer": Constant(6e-6, 0.7, 0.5e-6, 60e-6),
    "routing": Constant(25e-6, 0.15, 1e-6, 100e-6),
    "passes": Constant(10, 0.5, 1, 60),
    "skew": Constant(2.5, 0.5, 0.01, 8),
    "imbalance": Constant(1.2, 0.1, 1, 4),
    "hops": Constant(2.4, 0.3, 0.8, 8),
    "link": Constant(0.75, 0.25, 0.2, 1),
    "step": Constant(0.5e-3, 0.7, 0.01e-3, 8e-3),
    "request": Constant(20e-6, 0.6, 1e-6, 300e-6),
    "eager": Constant(8, 0.3, 1, 20),
    "mixed": Constant(0.8, 0.5, 0.05, 1),
}
OWN: dict[str, dict[str, Constant]] = {
    "vllm": {
        "hops": Constant(2.9, 0.3, 0.8, 8),
        # vLLM's block-scaled GEMM takes 57 to 67 us on H100 and H200 however small it is (same source).
        "blocks": Constant(55e-6, 0.2, 1e-6, 100e-6),
        # Its grouped kernel takes up the scales inside the loop over k; the start is a guess. SGLang and TensorRT-LLM
        # call other kernels, whose rows show no such share.
        "block_experts": Constant(0.5, 0.3, 0.1, 1),
        "CDNA3": Constant(1.15, 0.3, 1, 2),
    },
    "sglang": {"mixed": Constant(0.3, 0.5, 0.05, 1), "CDNA3": Constant(1.15, 0.3, 1, 2)},
    "trtllm": {"hops": Constant(2.0, 0.3, 0.8, 8)},
}
"""What an engine starts from elsewhere, or has alone. All-reduce starts: custom kernels at 256 bytes, same source."""
FIXED: dict[str, dict[str, float]] = {
    "vllm": {"latency": 1, "network": 0.9, "all_to_all": 45e-6, "together": 0},
    "sglang": {"latency": 1, "network": 0.9, "all_to_all": 45e-6, "blocks": 0, "overlap": 0.8, "together": 0},
    "trtllm": {"latency": 1, "network": 0.9, "all_to_all": 25e-6, "blocks": 0, "together": 0.5},
}
"""What the measurements say nothing about. Dispatch and combine within one node at 16 tokens: DeepEP low-latency 36 to
58 us on H100, H200 and B200; TensorRT-LLM one-sided 19 and 28 us on GB200 (aiconfigurator 0.12.0 data). Network:
what DeepEP's published 155 and 273 us at 32 GPUs leave beside their start (0.95 and more), and NCCL reaches at two
nodes; AWS EFA reaches less (0.74 on four p6-b200, ml-engineering). Overlap: SGLang hides expert messages behind the
other half of a batch (its flag for two-batch overlap; the others do not by default); with 0.8 its published decode on
72 H100, 92 ms for 256 requests per GPU, comes out within a few percent. Together: 0.5 fits TensorRT-LLM's 92 published
throughputs with attention data parallelism best (root mean square of the logarithm 0.30, 0.28, 0.27, 0.28 and 0.33 with
0, 0.25, 0.5, 0.75 and 1; its lengths are all alike, and it may hold prompts back to align them, `attention_dp_config`);
the schedulers of vLLM and SGLang know nothing of each other's prompts."""
MENDED: dict[str, dict[str, float]] = {
    newer: {"blocks": 0, "block_experts": 1} for newer in ("vllm", "vllm-0.17")
}
"""What newer versions of an engine no longer spend, by version family. All rows with block-scaled weights are of vLLM
0.12; since then it takes DeepGEMM for linear layers only where that is faster (pull request 28422), small products of
Hopper swap their operands by default (34924, first in 0.17). That one measures 896 tokens/s with MiniMax-M2.5 on four
H100 (TP4, 8 requests, 1,024 in, 512 out) before it and a tenth more after: 808 without these costs, 392 with them."""
WHOLE = {"vllm": "vllm-0.16"}
"""The entry of speed.yaml that has all fitted constants, where newer versions of an engine have one of their own."""
IDEAL = SpeedProfile(
    bandwidth=1, compute=dict.fromkeys(("fp32", "bf16", "fp16", "fp8", "int8", "fp4"), 1.0), grouped=1, expanded=1,
    cache_bandwidth=1, attention_compute=1, product=0, quantise=0, blocks=0, attention=0, layer=0, routing=0, passes=0,
    imbalance=1, skew=0, feeding=0, latency=0, hops=0, link=1, network=1, all_to_all=0, step=0, request=0, eager=1,
    together=1, mixed=1,
)  # fmt: skip


def profile(values: Mapping[str, float]) -> SpeedProfile:
    """A speed profile of fitted and fixed values; arithmetic of equal width shares its share of the peak."""
    plain = {name: value for name, value in values.items() if name in SpeedProfile.model_fields}
    compute = {"fp32": values["bf16"], "bf16": values["bf16"], "fp16": values["bf16"],
               "fp8": values["fp8"], "int8": values["fp8"], "fp4": values["fp4"]}  # fmt: skip
    slower = {"CDNA3": values["CDNA3"]} if "CDNA3" in values else {}
    return SpeedProfile.model_validate(plain | {"compute": compute, "slower": slower})


@dataclass(frozen=True)
class Curve:
    """Rows of one deployment: the same model, precision, GPU and engine, at many layouts and loads."""

    rows: pd.Index[int]
    transformer: Transformer
    precision: Precision
    gpu: Gpu
    engine: Engine
    layout: Layout
    workload: Workload
    """Its fields are arrays, [rows]."""
    concurrency: Array
    polled: Array
    """Decode steps from one look for newcomers to the next."""

    def times(self, speed: SpeedProfile) -> tuple[Array, Array]:
        """Predicted time per output token and to first token, seconds, [rows]."""
        served = serve(
            self.transformer,
            self.precision,
            layout=self.layout,
            gpu=self.gpu,
            engine=self.engine.model_copy(
                update={"speed": speed.model_copy(update=MENDED.get(self.engine.name))}
            ),
            workload=self.workload,
            concurrency=self.concurrency,
            capacity=np.inf,
        )
        first = ttft_of_benchmark(served, waves=BENCHMARK_WAVES, polled=self.polled)
        return np.broadcast_to(served.tpot, self.rows.shape), np.broadcast_to(first, self.rows.shape)


def measurements() -> pd.DataFrame:
    """All rows, with what is compared of each."""
    table = pd.read_csv(MEASURED, dtype=str, keep_default_na=False)
    for name in ("tensor", "data", "expert", "prompt_tokens", "output_tokens", "concurrency"):
        table[name] = table[name].astype(int)
    for name in ("ttft_ms", "tpot_ms"):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table["compare_tpot"] = (
        ~table["flags"].str.contains("|".join(UNUSED["tpot_ms"])) & table["tpot_ms"].notna()
    )
    table["compare_ttft"] = (
        ~table["flags"].str.contains("|".join(UNUSED["ttft_ms"])) & table["ttft_ms"].notna()
    )
    wide = table["flags"].str.contains("|".join(WIDE))
    table["tpot_spread"] = np.where(wide, WIDE_SPREAD, TPOT_SPREAD)
    table["fit_ttft"] = table["compare_ttft"] & ~table["flags"].str.contains("MTP-POSSIBLE")
    return table


def family(engine: str, version: str) -> str:
    """Name of the engine's version family; the newest where the version does not tell."""
    try:
        return engine_named(engine, version=version).name
    except RowError:
        return engine


def resolved(model: str, *, weights: str, kv: str) -> tuple[Transformer, Precision]:
    """The catalogue's model, published in the stated format if one is, and its precision."""
    stored = weight_format(model, stated=weights)
    transformer = transformer_named(model, weights=stored)
    native = stored is None or published_in(transformer, stored)
    return transformer, chosen_precision(
        transformer, weights=None if native else stored, kv=kv_format(kv), formats=catalog.formats()
    )


def curves(table: pd.DataFrame) -> list[Curve]:
    """Rows by deployment, names resolved as `python -m parplan validate` does."""
    found = []
    same = ["model", "gpu", "engine", "weights", "kv"]
    families = [family(*row) for row in zip(table["engine"], table["engine_version"], strict=True)]
    for (*_, name), rows in table.groupby([*same, np.array(families)], sort=False):
        model, gpu, _, weights, kv = (str(rows[column].iloc[0]) for column in same)
        transformer, precision = resolved(model, weights=weights, kv=kv)
        layout = Layout(**{cut: rows[cut].to_numpy() for cut in ("tensor", "data", "expert")})
        asked: dict[str, Any] = {
            "prompt": rows["prompt_tokens"].to_numpy(float),
            "output": rows["output_tokens"].to_numpy(float),
            "prefix_hit": 0.0,
        }
        found.append(
            Curve(
                rows=rows.index,
                transformer=transformer,
                precision=precision,
                gpu=catalog.gpus()[gpu],
                engine=catalog.engines()[str(name)],
                layout=layout,
                workload=Workload.model_construct(**asked),
                concurrency=rows["concurrency"].to_numpy(float),
                polled=rows["flags"].map(steps_between_looks).to_numpy(float),
            )
        )
    return found


Times: TypeAlias = Callable[[Mapping[str, float]], pd.DataFrame]
"""Predicted times in ms, by row, from constants."""


def predicted(found: Iterable[Curve], speed: SpeedProfile) -> pd.DataFrame:
    """Predicted times in ms, by row."""
    parts = []
    for curve in found:
        tpot, ttft = curve.times(speed)
        parts.append(pd.DataFrame({"tpot": tpot / MS, "ttft": ttft / MS}, index=curve.rows))
    return pd.concat(parts)


def soft(scaled: Array) -> Array:
    """Residuals whose squares are the soft-L1 loss: near zero unchanged, far out their root."""
    return np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))


def fit(
    table: pd.DataFrame, times: Times, *, engine: str, begin: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The constants of an engine that predict the rows of a table best.

    Args:
        times: predicted from constants, of these rows and maybe of others.
        begin: values to search from, where a near solution is known.
    """
    known = CONSTANTS | OWN[engine]
    names = list(known)
    start = np.log([known[name].start for name in names])
    spread = np.array([known[name].spread for name in names])
    low, high = np.log([known[name].low for name in names]), np.log([known[name].high for name in names])

    def residuals(values: Array) -> Array:
        found = times(dict(zip(names, np.exp(values), strict=True))).loc[table.index]
        tpot = (np.log(found["tpot"] / table["tpot_ms"]) / table["tpot_spread"])[table["compare_tpot"]]
        ttft = np.log(found["ttft"] / table["ttft_ms"])[table["fit_ttft"]] / TTFT_SPREAD
        return np.concatenate([soft(np.concatenate([tpot, ttft])), (values - start) / spread])

    first = np.log([begin[name] for name in names]) if begin else start
    inside = np.clip(first, low + 1e-6, high - 1e-6)
    found_at = least_squares(residuals, inside, bounds=(low, high), x_scale=spread, ftol=1e-4, max_nfev=40)
    return {name: float(f"{value:.3g}") for name, value in zip(names, np.exp(found_at.x), strict=True)}


def exactly(found: Sequence[Curve], *, engine: str) -> Times:
    """Times as the model predicts them."""
    return lambda values: predicted(found, profile({**values, **FIXED[engine]}))


def nearby(times: Times, *, values: Mapping[str, float]) -> Times:
    """Times as powers of the constants: exact at some values, close near them, and at once."""
    here = np.log(times(values))
    slopes = np.stack(
        [
            np.asarray(np.log(times({**values, name: value * NUDGE})) - here) / np.log(NUDGE)
            for name, value in values.items()
        ],
        axis=-1,
    )

    def near(at: Mapping[str, float]) -> pd.DataFrame:
        moved = np.log([at[name] / value for name, value in values.items()])
        return np.exp(here + slopes @ moved)

    return near


def errors(table: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of the rows that are compared, NaN for the others."""
    return pd.DataFrame(
        {
            "tpot": (times["tpot"] / table["tpot_ms"] - 1).where(table["compare_tpot"]),
            "ttft": (times["ttft"] / table["ttft_ms"] - 1).where(table["compare_ttft"]),
        }
    )


def left_out(
    table: pd.DataFrame, times: Times, *, engine: str, values: Mapping[str, float]
) -> dict[str, pd.DataFrame]:
    """Errors of all rows by what was left out: each under constants fitted without the rows like it.

    Args:
        times: predicted from constants, of all rows.
        values: the constants fitted to all rows, near which the others are sought.
    """
    near = nearby(times, values=values)

    def without(rows: pd.DataFrame) -> pd.DataFrame:
        others = fit(table.drop(rows.index), near, engine=engine, begin=values)
        return errors(rows, times(others).loc[rows.index])

    once = cache(lambda index: without(table.loc[list(index)]))
    return {
        name: pd.concat([once(tuple(rows.index)) for _, rows in table.groupby(same, sort=True)])
        for name, same in LEFT_OUT.items()
    }


def summary(error: pd.Series[float]) -> dict[str, float]:
    """Count, median and 90th percentile of the absolute error, and the median error itself."""
    size = error.dropna().abs()
    return {
        "rows": int(size.size),
        "median": round(float(size.median()), 4),
        "p90": round(float(size.quantile(0.9)), 4),
        "bias": round(float(error.median()), 4),
    }


def written(engine: str, values: dict[str, float], found: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """An engine's entry of speed.yaml.

    Args:
        found: errors of its rows, as fitted and by what was left out.
    """
    return {
        "profile": profile(values | FIXED[engine]).model_dump(),
        "errors": {
            name: {kind: summary(error[name]) for kind, error in found.items()} for name in ("tpot", "ttft")
        },
    }


HEADER = f"""\
# Speed constants by engine, written by scripts/calibrate.py on {DATE}; do not edit. Seconds, shares and counts;
# parplan.calibration.SpeedProfile says what each means.
# Method: least squares, soft-L1 on log(predicted / measured) with {TPOT_SPREAD:.0%} (time per token) and
# {TTFT_SPREAD:.0%} (first token) as one unit, {WIDE_SPREAD:.0%} for times per token of rows flagged
# {" or ".join(WIDE)}, each constant drawn to a start read from kernel measurements (the script has the
# starts and their sources).
# Data: ../measurements/speed.csv; rows flagged {" or ".join(UNUSED["tpot_ms"])} do not count for time per token,
# rows flagged {" or ".join(UNUSED["ttft_ms"])} not for time to first token.
# vllm-0.16 has all constants fitted to vLLM; vllm is without what newer versions no longer spend (MENDED in the
# script).
# Errors are relative. fitted: all rows by these constants; pairs, models, gpus: every pair of model and GPU, every
# model, every GPU predicted by constants sought near these without it.
"""


def report(table: pd.DataFrame, found: Mapping[str, pd.DataFrame]) -> None:
    """Print the errors, overall, by engine and by deployment.

    Args:
        found: errors of all rows, as fitted and by what was left out.
    """
    for name in ("tpot", "ttft"):
        lines = {
            (engine, kind): summary(error.loc[rows.index, name])
            for engine, rows in [("all", table), *table.groupby("engine")]
            for kind, error in found.items()
        }
        print(f"\n{name}\n{pd.DataFrame(lines).T.to_string()}")
    for name in ("tpot", "ttft"):
        sizes = {kind: error[name].abs() for kind, error in found.items()}
        signed = table.assign(**sizes, bias=found["fitted"][name]).dropna(subset="bias")
        groups = signed.groupby(["engine", "gpu", "model", "weights"])
        medians = groups[[*sizes, "bias"]].median().round(3)
        print(f"\n{name}, median errors\n{medians.assign(rows=groups.size()).to_string()}")


def main() -> None:
    """Fit, cross-validate, print, write."""
    table = measurements()
    document: dict[str, Any] = {"ideal": {"profile": IDEAL.model_dump()}}
    all_rows: dict[str, list[pd.DataFrame]] = {}
    for engine in ENGINES:
        rows = table[table["engine"] == engine]
        times = exactly(curves(rows), engine=engine)
        values = fit(rows, times, engine=engine)
        wrong = {"fitted": errors(rows, times(values))} | left_out(rows, times, engine=engine, values=values)
        document[engine] = written(engine, values | MENDED.get(engine, {}), wrong)
        document[WHOLE.get(engine, engine)] = written(engine, values, wrong)
        for kind, error in wrong.items():
            all_rows.setdefault(kind, []).append(error)
    report(table, {kind: pd.concat(parts) for kind, parts in all_rows.items()})
    WRITTEN.write_text(HEADER + "\n" + yaml.safe_dump(document, sort_keys=False, width=110), encoding="utf-8")


if __name__ == "__main__":
    main()
