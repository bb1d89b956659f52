"""Which attention an engine runs on which GPU."""

from parplan.hardware import CAPABILITY, WORKSTATION_BLACKWELL
from parplan.mixers import Compressed, GroupedQuery, Latent, Recurrent
from parplan.objections.case import Case, Rule, always, whole

VLLM = ("vllm", "vllm-0.17", "vllm-0.16")


def _sparse(case: Case) -> bool:
    """Whether attention reads positions an index chose, or compressed ones."""
    mixers = [mixer for mixer in case.transformer.mixers if not isinstance(mixer, Recurrent)]
    return any(isinstance(mixer, Compressed) or mixer.sparse_top_k for mixer in mixers)


def _unshared_attention(case: Case) -> str:
    """The attention whose kernels vLLM cannot run on a part of the sequence on a GPU, in words; empty where it can.

    Of its attention backends those of AMD's own library for grouped queries and for sparse latent attention cannot,
    nor can Triton's for grouped queries, any for sparse grouped queries, the one for sparse latent attention on
    workstation Blackwell, and none for it before 0.21. Dense latent attention can everywhere (Triton).
    """
    mixers = [block.mixer for block in case.transformer.blocks]
    amd, newest = case.gpu.vendor == "AMD", case.engine.name == "vllm"
    workstation = case.gpu.capability >= WORKSTATION_BLACKWELL
    old = newest and case.gpu.capability < CAPABILITY["Ampere"]
    grouped = [mixer for mixer in mixers if isinstance(mixer, GroupedQuery)]
    if any(mixer.sparse_top_k for mixer in grouped):
        return "sparse attention with grouped queries"
    if grouped and (amd or old):
        return "attention with grouped queries"
    indexed = any(isinstance(mixer, Latent) and mixer.sparse_top_k for mixer in mixers)
    return "sparse latent attention" if indexed and (amd or workstation or not newest) else ""


HARDWARE: tuple[Rule, ...] = (
    Rule(
        "sparse-attention-gpu",
        "error",
        lambda c: (c.engine.name in VLLM) & (c.gpu.capability < CAPABILITY["Hopper"]) & _sparse(c),
        lambda c: (
            f"vLLM has no attention kernels for the sparse or compressed attention of {c.transformer.name} on "
            f"{c.gpu.label}: they need compute capability 9.0, it has {c.gpu.capability}."
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
)
"""What an engine does not do on a GPU at all."""
