"""The formats a checkpoint is stored in, component by component, from its `quantization_config`.

A quantiser names a method and what it leaves alone. Methods become format names of `catalogs/formats.yaml`; a
component is left alone when most layers that have it are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parplan.formats import LINEAR, Component
from parplan.hub.fields import ConfigError, Fields, shown
from parplan.hub.modules import MOST_MODULES, Names
from parplan.transformer import Block

MOST_NAMES = 20_000

METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "eetq": "int8"}
ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8-block", "FP8_PB_REAL": "fp8-block",
    "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP4": "mxfp4", "W4A8_MXFP4_FP8": "mxfp4",
    "W4A16_AWQ": "int4-g128", "W4A8_AWQ": "int4-g128", "W8A8_SQ_PER_CHANNEL": "int8", "INT8_SQ": "int8",
}  # fmt: skip
"""Formats of ModelOpt's quant_algo."""
BY_NAME = frozenset({"compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mixed", "quark"})
"""Methods that quantise every linear layer they do not name, the output head too."""

MODULES: dict[Component, tuple[str, ...]] = {
    "attention": ("self_attn.o_proj", "attn.wo_b", "mixer.o_proj", "self_attention.dense", "attention.wo"),
    "attention_output": ("self_attn.o_proj",),
    "indexer": ("self_attn.indexer.wq_b", "attn.indexer.wq_b"),
    "recurrent": ("linear_attn.out_proj", "mixer.out_proj", "mamba.out_proj", "self_attn.out_proj"),
    "dense_ffn": ("mlp.down_proj", "mixer.down_proj", "feed_forward.w2", "feed_forward.down_proj"),
    "routed_experts": (
        "mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2", "ffn.experts.0.w2", "mixer.experts.0.down_proj",
        "feed_forward.experts.down_proj", "moe.experts.0.down_proj",
    ),
    "shared_experts": (
        "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "ffn.shared_experts.w2",
        "mixer.shared_experts.down_proj", "block_sparse_moe.shared_experts.down_proj",
        "feed_forward.shared_expert.down_proj", "share_expert.down_proj",
    ),
}  # fmt: skip
"""One matrix of each component, under the names checkpoints give it."""
KDA = ("self_attn.o_proj",)
"""Kimi's recurrent layers are called like its attention."""
BESIDE_DENSE = ("experts.down_proj",)
"""Gemma-4's experts stand beside `mlp`, not inside it."""
LEFT_ALONE = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "exclude",
              "llm_int8_skip_modules")  # fmt: skip
INPUTS: dict[Component, tuple[str, ...]] = {
    "attention": ("self_attn.q_b_proj", "self_attn.q_proj", "attn.wq_b", "mixer.q_proj"),
}
"""A second matrix of a component: the one that counts where the first is a component of its own, else to notice a
component that is quantised in part."""
HEAD = ("lm_head", "head", "output_layer", "embed_out")


@dataclass(frozen=True)
class Layers:
    """Which layers hold which component."""

    count: int
    holding: Mapping[Component, frozenset[int]]

    @staticmethod
    def of(blocks: Sequence[Block], sequence: Sequence[int]) -> "Layers":
        """From the model's layers."""
        parts = [frozenset(block.parameters()) for block in blocks]
        return Layers(
            len(sequence),
            {component: frozenset(i for i, kind in enumerate(sequence) if component in parts[kind])
             for component in LINEAR},
        )  # fmt: skip


def native_formats(
    config: Fields, text: Fields, *, separate: Mapping[str, object] | None, layers: Layers
) -> tuple[dict[Component, str], str | None]:
    """Formats by component, and the KV cache's; components that are missing are bf16.

    Args:
        config: the whole config.
        text: its language model part: either may hold `quantization_config`.
        separate: content of `hf_quant_config.json`, where ModelOpt's older exports keep everything.
        layers: which layers hold which component.
    """
    quantization = _quantization(config, text, separate)
    if not quantization.raw:
        return {}, None
    formats = (
        _mixed(quantization, text, layers)
        or _by_group(quantization, text, layers)
        or _uniform(quantization, text, layers)
    )
    _set_expert_formats(formats, config, text, quantization, layers=layers)
    return formats, _kv_format(quantization)


def _quantization(config: Fields, text: Fields, separate: Mapping[str, object] | None) -> Fields:
    names = ("quantization_config", "compression_config")
    for fields in (text, config):
        if fields.has(*names):
            return fields.part(*names)
    other = Fields.of(separate or {}, notes=config.notes, where="hf_quant_config")
    return other.part("quantization") if other.has("quantization") else other


def _uniform(quantization: Fields, text: Fields, layers: Layers) -> dict[Component, str]:
    """One format for all linear layers that are not named as left alone."""
    stored = _format(quantization)
    if stored is None:
        return {}
    method = quantization.text("quant_method")
    mixed = quantization.has("moe_quant_algo")  # then the list belongs to the experts' method
    left = Names.of(() if mixed else _left_alone(quantization), layers=layers.count, fields=quantization)
    targets: frozenset[Component] = frozenset({"routed_experts"}) if method == "mxfp4" else LINEAR
    formats: dict[Component, str] = {}
    for component in sorted(targets):
        holding = layers.holding[component]
        alone = _named_layers(left, component, text, layers)
        if 2 * len(alone) < len(holding):
            formats[component] = stored
        _notice_part(left, component, alone=alone, holding=holding, stored=stored, fields=quantization)
        if alone and alone != holding:
            quantization.assume(f"{component}: {len(alone)} of {len(holding)} layers are stored unquantised, "
                                f"all are taken as {formats.get(component, 'bf16')}")  # fmt: skip
    if _covers_head(quantization, left):
        formats["head"] = stored
    if not left.outside(("mtp", "mtp.layers.0")) and layers.count not in left.covered.get("", frozenset()):
        formats["mtp"] = formats.get("routed_experts") or formats.get("dense_ffn") or stored
    return formats


def _notice_part(
    left: Names,
    component: Component,
    *,
    alone: frozenset[int],
    holding: frozenset[int],
    stored: str,
    fields: Fields,
) -> None:
    """Say so where only part of a component is quantised."""
    inputs = frozenset().union(
        *(left.layers_of(module, layers=holding) for module in INPUTS.get(component, ()))
    )
    if inputs and not alone:
        fields.assume(
            f"{component}: input projections are stored unquantised, all of it is taken as {stored}"
        )


def _named_layers(names: Names, component: Component, text: Fields, layers: Layers) -> frozenset[int]:
    modules, holding = MODULES[component], layers.holding[component]
    if component == "attention" and layers.holding["attention_output"]:
        modules = INPUTS[component]
    if component == "recurrent" and text.has("linear_attn_config"):
        modules = KDA
    if component == "routed_experts" and text.flag("enable_moe_block", default=False):
        modules = BESIDE_DENSE
    return frozenset().union(*(names.layers_of(module, layers=holding) for module in modules))


def _covers_head(quantization: Fields, left: Names) -> bool:
    """Methods that work by name quantise the head unless it is named; the others only when told to."""
    method = quantization.text("quant_method")
    by_name = method in BY_NAME or (not method and quantization.has("quant_algo"))
    if by_name and not quantization.has(*LEFT_ALONE):
        quantization.assume(
            "no list of what the quantiser left alone: assumed the output head and nothing else"
        )
        return False
    return (by_name and not left.outside(HEAD)) or quantization.flag("lm_head", default=False)


def _left_alone(quantization: Fields) -> tuple[str, ...]:
    """Names of what is not quantised."""
    return quantization.words(*LEFT_ALONE, most=MOST_NAMES) or ()


def _mixed(quantization: Fields, text: Fields, layers: Layers) -> dict[Component, str] | None:
    """ModelOpt's mixed precision: an algorithm per named layer. None for uniform checkpoints."""
    if quantization.text("quant_method") == "fp8" or not quantization.has("quantized_layers"):
        return None
    listed = quantization.part("quantized_layers").raw
    if len(listed) > MOST_NAMES:
        raise ConfigError(f"quantized_layers has more than {MOST_NAMES} entries")
    by_format: dict[str, list[str]] = {}
    for name, choice in listed.items():
        entry = Fields.of(choice, notes=quantization.notes, where="quantized_layers entry")
        stored = ALGORITHMS.get(entry.text("quant_algo"))
        if stored is None:
            algorithm = entry.text("quant_algo")
            quantization.assume(f"quant_algo {shown(algorithm)} is not known: its layers taken as bf16")
        else:
            by_format.setdefault(stored, []).append(str(name))
    formats: dict[Component, str] = {}
    for stored, listing in by_format.items():
        names = Names.of(listing, layers=layers.count, fields=quantization)
        for component in LINEAR:
            holding = layers.holding[component]
            if holding and 2 * len(_named_layers(names, component, text, layers)) > len(holding):
                formats[component] = stored
        if names.outside(HEAD):
            formats["head"] = stored
    return formats


def _by_group(quantization: Fields, text: Fields, layers: Layers) -> dict[Component, str] | None:
    """compressed-tensors with a format per group of layers. None where one format covers everything.

    A group names its layers, or says "Linear" for all that no other names.
    """
    groups = _groups(quantization)
    found = [
        (_weights_format(group.part("weights"), quantization), group.words("targets") or ())
        for group in groups
    ]
    if len({stored for stored, _ in found}) < 2:
        return None
    alone = Names.of(_left_alone(quantization), layers=layers.count, fields=quantization)
    formats: dict[Component, str] = {}
    for stored, targets in sorted(found, key=lambda group: "Linear" not in group[1]):  # what is named wins
        names = Names.of((t for t in targets if t != "Linear"), layers=layers.count, fields=quantization)
        for component in LINEAR:
            holding = layers.holding[component]
            named = holding if "Linear" in targets else _named_layers(names, component, text, layers)
            left = _named_layers(alone, component, text, layers)
            if stored and 2 * len(named - left) > len(holding):
                formats[component] = stored
    return formats


def _groups(quantization: Fields) -> list[Fields]:
    listed = quantization.part("config_groups").raw
    if len(listed) > MOST_MODULES:
        raise ConfigError(f"config_groups has more than {MOST_MODULES} entries")
    return [
        Fields.of(group, notes=quantization.notes, where="config_groups entry") for group in listed.values()
    ]


def _format(quantization: Fields) -> str | None:
    """Name of the format the method stores weights in; None, and said, where it is not known."""
    method = quantization.text("quant_method").lower()
    algorithm = quantization.text("quant_algo").upper()
    if method in METHODS:
        blocks = quantization.items("weight_block_size")
        return "fp8-block" if method == "fp8" and blocks else METHODS[method]
    if algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    if method == "bitsandbytes":
        return "int8" if quantization.flag("load_in_8bit", default=False) else "bnb-nf4"
    if method == "quark":
        stored = _quark(quantization)
    else:
        stored = _grouped(quantization) if quantization.has("config_groups") else _integers(quantization)
    if stored is None:
        name = method or algorithm
        quantization.assume(f"quantisation {name!r} is not known: weights taken as bf16")
    return stored


def _integers(quantization: Fields) -> str | None:
    """GPTQ, AWQ and kin: bits and group size."""
    bits = quantization.number("bits", "w_bit", "wbits", "nbits")
    group = quantization.number("group_size", "q_group_size", least=-1)
    return None if bits is None else _integer_format(bits, group, quantization)


def _integer_format(bits: int, group: int | None, quantization: Fields) -> str | None:
    if bits == 8:
        return "int8"
    if bits != 4:
        return None
    if group in (32, 128):
        return f"int4-g{group}"
    nearest = 32 if group is not None and 0 < group < 64 else 128
    quantization.assume(f"int4 with groups of {group}: taken as groups of {nearest}")
    return f"int4-g{nearest}"


def _grouped(quantization: Fields) -> str | None:
    """compressed-tensors: what the first group says of weights."""
    groups = _groups(quantization)
    return _weights_format(groups[0].part("weights"), quantization) if groups else None


def _weights_format(weights: Fields, quantization: Fields) -> str | None:
    """compressed-tensors' description of stored weights."""
    bits, kind = weights.number("num_bits"), weights.text("type")
    group = weights.number("group_size", least=-1)
    if kind == "float" and bits == 4:
        return "nvfp4" if group == 16 else "mxfp4"
    if kind == "float" and bits == 8:
        return "fp8-block" if weights.has("block_structure") or weights.text("strategy") == "block" else "fp8"
    if kind not in ("", "int"):
        quantization.assume(f"weights of {bits} bits and type {shown(kind)} are not known: taken as bf16")
        return None
    return None if bits is None else _integer_format(bits, group, quantization)


QUARK = {"fp8_e4m3": "fp8", "fp4": "mxfp4", "int8": "int8"}


def _quark(quantization: Fields) -> str | None:
    """Quark: the data type of the weights, one for all layers."""
    weight = quantization.part("global_quant_config").raw.get("weight")
    if isinstance(weight, list | tuple):  # two steps of scaling: the first is the stored one
        weight = weight[0] if weight else None
    if not isinstance(weight, Mapping):
        return None
    fields = Fields(weight, quantization.notes)
    kind = fields.text("dtype")
    if kind in ("int4", "uint4"):
        return _integer_format(4, fields.number("group_size", least=-1), quantization)
    return QUARK.get(kind)


def _set_expert_formats(
    formats: dict[Component, str], config: Fields, text: Fields, quantization: Fields, *, layers: Layers
) -> None:
    """Routed experts stored apart from the rest: by DeepSeek-V4's `expert_dtype`, requantised by `moe_quant_algo`.

    fp4 experts have one power-of-two scale per 32 elements of a row: MXFP4 (transformers 5.24.0, finegrained_fp8).
    They are most of a multi-token-prediction layer, which requantisers leave as it is.
    """
    if not layers.holding["routed_experts"]:
        return
    said = {fields.text("expert_dtype") for fields in (text, config, quantization)} - {""}
    if "fp4" in said:
        formats["routed_experts"] = formats["mtp"] = "mxfp4"
    elif said - {"fp8"}:
        quantization.assume(
            f"expert_dtype {shown(min(said))} is not known: experts taken as all other weights"
        )
    algorithm = quantization.text("moe_quant_algo")
    if algorithm.upper() in ALGORITHMS:
        formats["routed_experts"] = ALGORITHMS[algorithm.upper()]
    elif algorithm:
        quantization.assume(f"moe_quant_algo {shown(algorithm)} is not known: left out")


def _kv_format(quantization: Fields) -> str | None:
    """KV cache format: a scheme with bits, or an algorithm's name."""
    hit = quantization.found("kv_cache_scheme", "kv_cache_quant_algo")
    if hit is None:
        return None
    name, said = hit
    scheme = Fields({}) if isinstance(said, str) else quantization.part(name)
    if isinstance(said, str) and said.upper() in ALGORITHMS:
        return ALGORITHMS[said.upper()]
    if scheme.number("num_bits") == 8:
        return "int8" if scheme.text("type") == "int" else "fp8"
    quantization.assume(f"{name} {shown(said)} is not known: the KV cache taken as bf16")
    return None
