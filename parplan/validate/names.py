"""Names as people write them in logs and tables, resolved to what the catalogue knows or refused."""

import re
from functools import cache

from parplan import catalog
from parplan.calibration import Engine
from parplan.formats import Format
from parplan.hardware import Gpu
from parplan.transformer import Transformer
from parplan.units import GIB
from parplan.validate.cells import GpuError, RowError, VersionError, setting

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
    "deepseek-v3.1-terminus": "deepseek-v3.1",
    "deepseek-v3.2-exp": "deepseek-v3.2",
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
    "glm-4.7": "glm-4.6",
    "kimi-k2.6": "kimi-k2.5",
    "kimi-k2.7-code": "kimi-k2.5",
    "qwen3-coder-30b-a3b": "qwen3-30b-a3b",
    "llama-4-scout": "llama-4-scout-17b-16e",
    "llama-4-maverick": "llama-4-maverick-17b-128e",
    "mistral-7b": "mistral-7b-v0.1",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
    "mixtral-8x22b": "mixtral-8x22b-v0.1",
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
    base = re.sub(r"[\s_]+", "-", name.split("/")[-1].strip().lower()).removeprefix("meta-")
    while QUANTISED.search(base):
        base = QUANTISED.sub("", base)
    return VARIANT.sub("", base)


def plain_name(name: str) -> str:
    """A name without the notes people add; one of the class of a family and size is that family's of that size, x
    standing for a version that is not said.

    >>> plain_name("google/gemma-3-27b-it (inferred: 62 layers)"), plain_name("Qwen3.8-27B + MTP")
    ('google/gemma-3-27b-it', 'Qwen3.8-27B')
    >>> plain_name("7B Qwen2.5-class fp16"), plain_name("8B Llama-class")
    ('Qwen2.5-7B', 'Llama-x-8B')
    """
    name = name.strip()
    while NOTE.search(name):
        name = NOTE.sub("", name)
    told = CLASS.match(name)
    if told is None:
        return name
    return f"{told[2]}-{told[1]}" if re.search(r"\d", told[2]) else f"{told[2]}-x-{told[1]}"


BRACKETED = re.compile(r"\(([^()]*)\)")


def squeezed(base: str) -> str:
    """A base name without dashes: people set them as they like ("llama3.1-8b")."""
    return base.replace("-", "")


@cache
def known_models() -> dict[str, tuple[str, ...]]:
    """Models of the catalogue by squeezed base name."""
    found: dict[str, tuple[str, ...]] = {}
    for name in catalog.model_files():
        key = squeezed(base_name(name))
        found[key] = (*found.get(key, ()), name)
    return found


@cache
def same_architecture() -> dict[str, str]:
    """`SAME_ARCHITECTURE` by squeezed names."""
    return {squeezed(one): squeezed(other) for one, other in SAME_ARCHITECTURE.items()}


def is_quantised(name: str) -> bool:
    """Whether a model's name says its weights are in fewer than 16 bits."""
    told = QUANTISED.search(name.lower())
    return told is not None and told[1] not in ("bf16", "fp16")


def models_named(plain: str, *, weights: Format | None) -> tuple[str, ...]:
    """Models of the catalogue with the architecture of a name.

    A name that speaks of no quantised build does not mean one, where there is another.
    """
    key, known = squeezed(base_name(plain)), known_models()
    same = (*known.get(key, ()), *known.get(same_architecture().get(key, ""), ()))
    if weights is None and not is_quantised(plain):
        return tuple(name for name in same if not is_quantised(name)) or same
    return known.get(key) or same


def models_of_any_version(base: str) -> tuple[str, ...]:
    """Models a base name with an x for its version may mean, where all of them have one architecture.

    >>> models_of_any_version("llama-x-8b"), models_of_any_version("qwen3.x-8b")
    (('meta-llama/Meta-Llama-3-8B-Instruct', 'meta-llama/Meta-Llama-3.1-8B'), ())
    """
    wanted = re.sub(r"(?<![a-z])x(?![a-z])", r"\\d+(?:\\.\\d+)?", re.escape(base))
    alike = tuple(name for name in catalog.model_files() if re.fullmatch(wanted, base_name(name)))
    shapes = {catalog.model(name).transformer.blocks for name in alike}
    return tuple(name for name in alike if not is_quantised(name)) if len(shapes) == 1 else ()


def transformer_named(name: str, *, weights: Format | None) -> Transformer:
    """The catalogue's model of a name, or one of the same base name; one published in the stated format comes first.

    Where it is described rather than named, the name may stand in brackets ("27B hybrid (Qwen3.5-27B, FP8)").

    Raises:
        RowError: no name, or none the catalogue knows.
    """
    plain = plain_name(name)
    if not plain:
        raise RowError("no model stated")
    described = [part.strip() for note in BRACKETED.findall(name) for part in note.split(",")]
    same: tuple[str, ...] = ()
    for said in (plain, *described):
        plain, same = said, models_named(said, weights=weights) or models_of_any_version(base_name(said))
        if same:
            break
    if not same:
        raise RowError(f"model {name!r} is not in the catalogue")

    def distance(candidate: str) -> tuple[bool, bool, bool, int]:
        other = weights is not None and not published_in(catalog.model(candidate).transformer, weights)
        tails = [text.split("/")[-1].lower() for text in (candidate, plain)]
        return other, candidate.lower() != plain.lower(), tails[0] != tails[1], len(candidate)

    return catalog.model(min(same, key=distance)).transformer


def published_in(transformer: Transformer, weights: Format) -> bool:
    """Whether a model's checkpoint stores most of its weights in a format, blocks and groups aside; of a mixed
    checkpoint (DeepSeek-V4: FP8 with experts in FP4) any of its formats will do."""
    main = transformer.native.get(transformer.main_component, "bf16")
    families = {native.split("-")[0] for native in (main, *transformer.native.values())}
    return weights.name.split("-")[0] in families


def gpu_named(name: str, *, size: float | None) -> Gpu:
    """The catalogue's GPU of a name; without a form factor it is the SXM one, where there is one.

    A name that leaves several open ("A10/A10G 24GB") will do when the row states the size: the first known one.

    Args:
        size: bytes the row states the driver reports; replaces the catalogue's.

    Raises:
        GpuError: no name, or none the catalogue knows.
        RowError: a GPU that is not of that size.
    """
    parts = [part for part in re.split(r"[/:()]", name.lower()) if part.strip()]
    for part in parts if size else [part for part in parts[:1] if "/" not in name]:
        if known := known_gpu(part):
            if size and not SAME_SIZE[0] < size / known.memory < SAME_SIZE[1]:
                raise RowError(f"{name} has not the memory that is stated")
            return known.model_copy(update={"memory": size}) if size else known
    raise GpuError(f"GPU {name!r} is not in the catalogue" if name else "no GPU stated")


SAME_SIZE = (0.94, 1.06)
"""What a driver may report of a GPU's memory over what the catalogue has: error correction takes up to a sixteenth, and
cards of one name differ by less."""
COUNT = re.compile(r"^(\d{1,4}) ?[x×*] ?(?=[a-z])|[ (][x×] ?(\d{1,4})\)?$|\((\d{1,4}) ?x\)$", re.IGNORECASE)
"""How many GPUs there are, in front of their name or behind it."""
GPU_NOISE = r"^(?:nvidia|amd|tesla|quadro)[ -]+|\b(?:instinct|geforce|blackwell|class|edition|hbm\d\w?)\b|\b\d+ ?gi?b\b"
"""What names of GPUs carry that does not tell them apart: vendor, family, nominal size."""


def known_gpu(name: str) -> Gpu | None:
    """The catalogue's GPU of one name, without count, vendor, class and nominal size.

    >>> [known_gpu(name).name for name in ("8x H100 80GB", "NVIDIA GeForce RTX 5090", "Tesla V100-SXM2-16GB", "4090")]
    ['h100-sxm', 'rtx-5090', 'v100-sxm-16', 'rtx-4090']
    >>> known_gpu("24 GB GPU") is None and known_gpu("GH200 480GB") is None
    True
    """
    text = COUNT.sub("", name.strip().lower())
    nominal = re.search(r"(\d+) ?gi?b\b", text)
    plain = re.sub(GPU_NOISE, " ", text.replace("-", " "))
    base = "-".join(re.sub(r"\b(sxm|pcie)\d\b", r"\1", re.sub(r"^(rtx|gtx)(?=\d)", r"\1 ", plain)).split())
    sizes = [f"-{nominal[1]}", ""] if nominal else ["", "-80"]
    forms = [f"{maker}{base}{form}" for maker in ("", "rtx-") for form in ("", "-sxm", "-server", "-nvl72")]
    found = (catalog.gpus().get(form + size) for form in forms for size in sizes if base)
    return next((gpu for gpu in found if gpu and _is_of(gpu, nominal)), None)


def _is_of(gpu: Gpu, nominal: re.Match[str] | None) -> bool:
    """Whether a GPU can be the one a nominal size is said of: sizes in GB are above what drivers report in GiB."""
    return nominal is None or 0.97 < int(nominal[1]) * GIB / gpu.memory < 1.15


UNNAMED_WEIGHTS = "?"
"""Words that say weights are quantised, but not in which format of the catalogue."""
WEIGHT_WORDS: tuple[tuple[str, str | None], ...] = (
    (r"^(none|auto|default|native)\b|^as published|^native|fp4/fp8", None),
    (r"^(bfloat16|bf16|float16|fp16|half|w16a16|fp16/bf16|unquantized)( \(.*)?$", "bf16"),
    (r"nvfp4|modelopt_fp4|^fp4$", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"nf4|(bnb|bitsandbytes)(?!.*(8.?bit|int8))", "bnb-nf4"),
    (r"w\d+a8|w4afp8|^(float|fp)32$", UNNAMED_WEIGHTS),
    (r"(gptq|autoround|hqq).*(int8|8.?bit)|w8a16|gguf$|exl[23]|hqq|mlx|torchao", UNNAMED_WEIGHTS),
    (r"(int4|w4a16|awq|gptq).*\bg(roup)?[-_ ]?(size)?[-_= ]?32\b", "int4-g32"),
    (r"\bg(roup)?[-_ ]?(size)?[-_= ]?(?!128\b)\d{2,4}\b", UNNAMED_WEIGHTS),
    (r"w4a16|awq|gptq|(?<![a-z])int4\b", "int4-g128"),
    (r"(?<![a-z])fp8", "fp8"),
    (r"^int8$|[-._ ]int8$", "int8"),
)
"""Words that name a weight format -> its name in the catalogue; None: the format the model is published in."""
EIGHT_BITS = ((r"w8a8.*fp8|fp8.*w8a8", "fp8"), (r"w8a8", "int8"))
"""Weights and activations of eight bits: integers, unless floats are named."""


def weight_format(name: str, *, stated: str) -> Format | None:
    """The format a row's weights are in; None: as the model is published.

    Raises:
        RowError: words no rule knows, or none, and the model's name does not say it either.
    """
    word = setting(stated)
    texts = [stated.strip().lower(), name.split("/")[-1].lower()]
    for text in texts if word not in ("compressed-tensors", "auto", "") else reversed(texts):
        if gguf := re.search(r"(?<![a-z])i?q\d_[0-9a-z_]+", text):
            if gguf[0] in catalog.formats():
                return catalog.formats()[gguf[0]]
            break
        found = next((kind for pattern, kind in (*EIGHT_BITS, *WEIGHT_WORDS) if re.search(pattern, text)), "")
        if found is None:
            return None
        if found == UNNAMED_WEIGHTS or (not found and UNNAMED_BITS.search(text)):
            break
        if found:
            return catalog.formats()[found]
    else:
        if word in ("", "auto"):
            return None
    raise RowError(f"weight format {stated or name!r} is not known")


KV_WORDS: tuple[tuple[str, str], ...] = (
    (r"^(bf|bfloat|fp|float|)16(-bit)?$|^half$", "bf16"),
    (r"^(fp|float)8(_?e[45]m[32](fn)?|_ds_mla)?$", "fp8"),
)
"""Words for cache formats -> the catalogue's; DeepSeek's own layout holds FP8."""


def kv_format(stated: str) -> Format | None:
    """The format of a row's KV cache; None: as the checkpoint asks for.

    >>> kv_format("auto") is None, kv_format("auto (fp8)").name, kv_format("half").name
    (True, 'fp8', 'bf16')

    Raises:
        RowError: a word no rule knows.
    """
    word = setting(stated)
    if word == "auto":
        chosen = re.search(r"\(([a-z0-9_]+)\)$", stated.strip().lower())
        word = chosen[1] if chosen else ""
    if not word:
        return None
    name = next((name for pattern, name in KV_WORDS if re.search(pattern, word)), word)
    found = catalog.formats().get(name)
    if found is None or "kv" not in found.kind:
        raise RowError(f"KV format {stated!r} is not known")
    return found


VLLM_FAMILIES = ((21, "2026-05", "vllm"), (17, "2026-03", "vllm-0.17"), (0, "2000-01", "vllm-0.16"))
"""First minor version of a family, the month it came out, and its engine."""
ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    **dict.fromkeys(("trtllm", "trt-llm", "tensorrt-llm", "tensorrt llm"), "trtllm"),
}
MINOR = re.compile(r"(?<![\d.])0\.(\d+)")
MONTH = re.compile(r"(20\d\d)-(\d{1,2})(?!\d)|(202[0-5])")
"""Before 2026 the year alone tells the family."""


def released(version: str) -> tuple[tuple[int, ...], str]:
    """Minor versions a text names, and the month it names where it names no version.

    >>> released("v0.11.0rc2"), released("nightly 2026-3"), released("2025-07 (0.9/0.10)")
    (((11,), ''), ((), '2026-03'), ((9, 10), ''))
    """
    minors, month = tuple(map(int, MINOR.findall(version))), MONTH.search(version)
    if minors or not month:
        return minors, ""
    return (), f"{month[3]}-12" if month[3] else f"{month[1]}-{month[2]:0>2}"


def engine_named(name: str, *, version: str) -> Engine:
    """The engine of a name and version; for vLLM the family of the version, or of its date, or the current one.

    Raises:
        RowError: another engine.
        VersionError: a version no family can be told from.
    """
    engine = ENGINES.get(re.sub(r"[ (]+v[01]\)?$", "", name.strip().lower()))
    if engine is None:
        raise RowError(f"engine {name!r} is not modelled")
    if engine == "vllm" and version.strip():
        minors, month = released(version)
        families = {next(family for first, _, family in VLLM_FAMILIES if minor >= first) for minor in minors}
        if month:
            families.add(next(family for _, since, family in VLLM_FAMILIES if month >= since))
        if len(families) != 1:
            raise VersionError(f"no version can be told from {version!r}")
        engine = families.pop()
    return catalog.engines()[engine]
