"""Which engine starts on which GPU, with which weights and which attention."""

from dataclasses import dataclass

import numpy as np

from parplan.calibration import Engine
from parplan.formats import LINEAR, Component, Format, Precision
from parplan.hardware import Gpu
from parplan.mixers import Compressed, GroupedQuery, Latent, Recurrent
from parplan.objections.case import Case, Rule, always, whole
from parplan.transformer import Transformer

CAPABILITY = {
    "Volta": 7.0,
    "Turing": 7.5,
    "Ampere": 8.0,
    "Ada": 8.9,
    "Hopper": 9.0,
    "Blackwell": 10.0,
    "Blackwell Ultra": 10.3,
}
"""Least compute capability of an NVIDIA architecture (NVIDIA, list of CUDA GPUs)."""
ROUTED: frozenset[Component] = frozenset({"routed_experts"})


@dataclass(frozen=True)
class Need:
    """What an engine asks of an NVIDIA GPU before it starts, or before it loads a format."""

    name: str
    """Of the rule."""
    engines: tuple[str, ...]
    """Names of catalogued engines, versions included."""
    capability: float
    """Least compute capability."""
    source: str
    formats: tuple[str, ...] = ()
    """Weight formats it holds for. Empty: all."""
    components: frozenset[Component] = LINEAR
    """Parts of the model whose format matters."""

    def asked(self, transformer: Transformer, precision: Precision) -> tuple[Format, ...]:
        """The formats of the model it holds for."""
        there = self.components if transformer.is_moe else self.components - ROUTED
        stored = (precision.weights[component] for component in sorted(there))
        return tuple(dict.fromkeys(f for f in stored if not self.formats or f.name in self.formats))

    def missing(self, transformer: Transformer, *, precision: Precision, gpu: Gpu, engine: Engine) -> bool:
        """Whether the GPU falls short."""
        return (
            engine.name in self.engines
            and CAPABILITY.get(gpu.architecture, np.inf) < self.capability
            and bool(self.asked(transformer, precision))
        )

    def reason(self, case: Case) -> str:
        """What falls short, in words."""
        has = CAPABILITY[case.gpu.architecture]
        asked = self.asked(case.transformer, case.precision)
        what = f"loads weights in {asked[0].label}" if self.formats else "runs"
        return (
            f"{case.engine.label} {what} from compute capability {self.capability} on; "
            f"{case.gpu.label} has {has}."
        )


VLLM = ("vllm", "vllm-0.17", "vllm-0.16")
NEEDS: tuple[Need, ...] = (
    Need("sglang-gpu", ("sglang",), 7.5, "SGLang model_runner.py: only sm75 and above"),
    Need(
        "trtllm-gpu", ("trtllm",), 8.0, "TensorRT-LLM support matrix of 0.18.2: Ampere, Ada, Hopper and newer"
    ),
    Need("vllm-old-fp8", ("vllm-0.16",), 8.0, "vLLM fp8.py @0071b24: Marlin from sm80", ("fp8", "fp8-block")),
    Need(
        "vllm-fp8",
        ("vllm", "vllm-0.17"),
        7.5,
        "vLLM PR #29901: Marlin from sm75, FP8 and NVFP4",
        ("fp8", "fp8-block", "nvfp4"),
    ),
    Need("vllm-mxfp4", VLLM, 8.0, "vLLM mxfp4.py: get_min_capability 80; issue #23203", ("mxfp4",)),
    Need(
        "sglang-block-fp8",
        ("sglang",),
        8.9,
        "SGLang issues #3345, #12887, #18875: no fp8e4nv below sm89, Marlin fails",
        ("fp8-block",),
    ),
    Need(
        "sglang-fp8-experts",
        ("sglang",),
        8.9,
        "SGLang issues #12887, #13471: expert kernels know no fp8e4nv below sm89",
        ("fp8",),
        ROUTED,
    ),
    Need(
        "trtllm-fp8",
        ("trtllm",),
        8.9,
        "TensorRT-LLM support matrix of 0.18.2: FP8 on Ada and Hopper, not on Ampere",
        ("fp8", "fp8-block"),
    ),
    Need(
        "trtllm-nvfp4",
        ("trtllm",),
        10.0,
        "TensorRT-LLM 1.0 quantization page: FP4 on Blackwell",
        ("nvfp4",),
    ),
)
"""Which engine starts on which NVIDIA GPU with which weights; read 2026-11-29."""


def starts(transformer: Transformer, *, precision: Precision, gpu: Gpu, engine: Engine) -> bool:
    """Whether an engine starts on a GPU with a model in these formats, as far as `NEEDS` knows."""
    return not any(need.missing(transformer, precision=precision, gpu=gpu, engine=engine) for need in NEEDS)


def _need_rule(need: Need) -> Rule:
    out = "Use bf16, another format or a newer GPU." if need.formats else "Use another engine or a newer GPU."

    def broken(c: Case) -> bool:
        return need.missing(c.transformer, precision=c.precision, gpu=c.gpu, engine=c.engine)

    return Rule(need.name, "error", broken, need.reason, always(out), need.source)


def _sparse(case: Case) -> bool:
    """Whether attention reads positions an index chose, or compressed ones."""
    mixers = [mixer for mixer in case.transformer.mixers if not isinstance(mixer, Recurrent)]
    return any(isinstance(mixer, Compressed) or mixer.sparse_top_k for mixer in mixers)


def _compressed_cache(case: Case) -> bool:
    """Whether vLLM would have to keep a compressed cache unquantised where it has no such layout: all but B200."""
    compressed = any(isinstance(mixer, Compressed) for mixer in case.transformer.mixers)
    rows = case.gpu.architecture.startswith("Blackwell") and case.gpu.fabric == "nvlink"
    return (
        compressed
        and case.engine.name in VLLM
        and case.gpu.vendor == "NVIDIA"
        and not rows
        and case.precision.kv.name != "fp8"
    )


def _unshared_attention(case: Case) -> str:
    """The attention whose kernels vLLM cannot run on a part of the sequence on a GPU, in words; empty where it can.

    Of its attention backends those of AMD's own library for grouped queries and for sparse latent attention cannot,
    nor can Triton's for grouped queries, any for sparse grouped queries, the one for sparse latent attention on
    workstation Blackwell, and none for it before 0.21. Dense latent attention can everywhere (Triton).
    """
    mixers = [block.mixer for block in case.transformer.blocks]
    amd, newest = case.gpu.vendor == "AMD", case.engine.name == "vllm"
    workstation = case.gpu.architecture.startswith("Blackwell") and case.gpu.fabric != "nvlink"
    old = newest and CAPABILITY.get(case.gpu.architecture, np.inf) < CAPABILITY["Ampere"]
    grouped = [mixer for mixer in mixers if isinstance(mixer, GroupedQuery)]
    if any(mixer.sparse_top_k for mixer in grouped):
        return "sparse attention with grouped queries"
    if grouped and (amd or old):
        return "attention with grouped queries"
    indexed = any(isinstance(mixer, Latent) and mixer.sparse_top_k for mixer in mixers)
    return "sparse latent attention" if indexed and (amd or workstation or not newest) else ""


HARDWARE: tuple[Rule, ...] = (
    Rule(
        "trtllm-vendor",
        "error",
        lambda c: (c.engine.family == "trtllm") & (c.gpu.vendor != "NVIDIA"),
        lambda c: f"TensorRT-LLM runs on NVIDIA GPUs only, not on {c.gpu.label}.",
        always("Use vLLM or SGLang."),
        "TensorRT-LLM support matrix",
    ),
    *(_need_rule(need) for need in NEEDS),
    Rule(
        "sparse-attention-gpu",
        "error",
        lambda c: (c.engine.name in VLLM) & (CAPABILITY.get(c.gpu.architecture, np.inf) < 9.0) & _sparse(c),
        lambda c: (
            f"vLLM has no attention kernels for the sparse or compressed attention of {c.transformer.name} on "
            f"{c.gpu.label}: they need compute capability 9.0, it has {CAPABILITY[c.gpu.architecture]}."
        ),
        always("Use Hopper or newer."),
        "vLLM issues #40851, #50576 and #57144",
    ),
    Rule(
        "decode-context-kernels",
        "error",
        lambda c: (c.layout.decode_context > 1) & (c.engine.name in VLLM) & bool(_unshared_attention(c)),
        lambda c: (
            f"{c.engine.label} has no kernels for {_unshared_attention(c)} on {c.gpu.label} that work on a part of the "
            f"sequence: with DCP{whole(c.layout.decode_context)} it does not start."
        ),
        always("Use DCP1."),
        "vLLM docs/design/attention_backends.md of 2026-09-24 and of 0.20 (column DCP), PR 55780; issue 57228 for "
        "GLM-5.3 on MI325X; read 2026-11-30",
    ),
    Rule(
        "compressed-cache",
        "error",
        _compressed_cache,
        lambda c: (
            f"On {c.gpu.label} vLLM has a cache for the compressed attention of {c.transformer.name} in FP8 only, none "
            f"in {c.precision.kv.label}."
        ),
        always("Store the KV cache in FP8."),
        "vLLM issue #47174, PRs #54233 and #55134; read 2026-11-30",
    ),
)
"""What an engine does not do on a GPU at all."""
