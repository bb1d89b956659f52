"""Names as people write them in logs and tables, resolved to what the catalogue knows or refused."""

import re
from functools import cache

from parplan import catalog
from parplan.calibration import Engine
from parplan.formats import Component, Format
from parplan.hardware import Gpu
from parplan.transformer import Transformer
from parplan.validate.cells import RowError, VersionError

NOTE = re.compile(r"\s*\([^()]*\)$|\s*\+ ?mtp$| (fine-tune|family)(?= |$)", re.IGNORECASE)
"""What people add to a model's name that does not change its architecture."""
CLASS = re.compile(r"^(\d+(?:\.\d+)?B) (\S+)-class(?: (?:fp16|bf16))?$", re.IGNORECASE)
"""A model told by its size and family."""
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
    """A name without the notes people add; one of the class of a family and size is that family's of that size.

    >>> plain_name("google/gemma-3-27b-it (inferred: 62 layers)"), plain_name("Qwen3.8-27B + MTP")
    ('google/gemma-3-27b-it', 'Qwen3.8-27B')
    >>> plain_name("7B Qwen2.5-class fp16")
    'Qwen2.5-7B'
    """
    name = name.strip()
    while NOTE.search(name):
        name = NOTE.sub("", name)
    return CLASS.sub(r"\2-\1", name)


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
        if UNNAMED_BITS.search(text):
            break
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
        RowError: another engine.
        VersionError: a version no family can be told from.
    """
    engine = ENGINES.get(name.strip().lower())
    if engine is None:
        raise RowError(f"engine {name!r} is not modelled")
    if engine == "vllm" and version.strip():
        minor = re.search(r"(?<![\d.])0\.(\d+)", version)
        month = re.search(r"20\d\d-\d\d|202[0-5]", version)  # before 2026 the year alone tells the family
        if not (minor or month):
            raise VersionError(f"no version can be told from {version!r}")
        engine = next(
            family
            for first, since, family in VLLM_FAMILIES
            if (int(minor[1]) >= first if minor else month and month[0] >= since)
        )
    return catalog.engines()[engine]
