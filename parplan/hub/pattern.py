"""Which layer does what: the many ways a config spells its layer pattern.

A layer is a pair of kinds: its mixer ("full", "sliding", "chunked", "recurrent", "ratio-<n>", "linear", "none") and
its feed-forward part ("dense", "experts", "linear", "none").
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from parplan.hub.attention import window_size
from parplan.hub.families import Family
from parplan.hub.fields import ConfigError, Fields, shown

Kinds: TypeAlias = tuple[str, ...]
"""One kind per layer; at least as many as there are layers."""

MOST_LAYERS = 2048
ONE_PART: dict[str, tuple[str, str]] = {
    "M": ("recurrent", "none"), "mamba": ("recurrent", "none"), "mamba2": ("recurrent", "none"),
    "linear_attention": ("recurrent", "none"),
    "*": ("full", "none"), "attention": ("full", "none"), "full_attention": ("full", "none"),
    "-": ("none", "dense"), "mlp": ("none", "dense"),
    "E": ("none", "experts"), "moe": ("none", "experts"),
}  # fmt: skip
"""Nemotron-H: a layer is a mixer or a feed-forward part, not both."""
MIXERS: dict[str, str] = {
    "full_attention": "full", "attention": "full", "global_attention": "full", "deepseek_sparse_attention": "full",
    "indexed_attention": "full", "minimax_m3_sparse": "full", "sliding_attention": "sliding",
    "local_attention": "sliding", "chunked_attention": "chunked", "linear_attention": "recurrent",
    "mamba": "recurrent", "mamba2": "recurrent", "conv": "recurrent", "compressed_sparse_attention": "ratio-4",
    "heavily_compressed_attention": "ratio-128",
}  # fmt: skip
"""Words of `layer_types`."""
ONLY_MAMBA = ("mamba", "mamba2", "falcon_mamba")
"""Model types whose layers are a Mamba mixer and nothing else."""
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")


def layer_count(fields: Fields) -> int:
    """Layers of the language model, MTP layers not among them."""
    named = fields.number("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)
    listed = one_part_words(fields)
    if named is None and listed:
        return len(listed)
    if named is None:
        raise ConfigError("no number of layers: looked for num_hidden_layers, n_layer, n_layers, num_layers")
    return named


def one_part_words(fields: Fields) -> Kinds | None:
    """The pattern of a model whose layers are a mixer or a feed-forward part; None for all others."""
    letters = fields.text("hybrid_override_pattern")
    if letters:
        return _one_part(tuple(letters))
    words = fields.words("layers_block_type", most=MOST_LAYERS)
    return _one_part(words) if words and {"moe", "mlp"} & set(words) else None


def listed_kinds(fields: Fields, letters: str, words: str) -> tuple[tuple[str, str], ...]:
    """Kinds of a one-part pattern that is spelled in letters or in words; empty where there is none."""
    listed = fields.text(letters) or fields.words(words) or ()
    return tuple(ONE_PART[word] for word in _one_part(tuple(listed)))


def _one_part(words: Sequence[str]) -> Kinds:
    for word in words[:MOST_LAYERS]:
        if word not in ONE_PART:
            raise ConfigError(f"layer kind {shown(word)} is not known: looked for {', '.join(ONE_PART)}")
    if len(words) > MOST_LAYERS:
        raise ConfigError(f"more than {MOST_LAYERS} layers")
    return tuple(words)


def layer_kinds(fields: Fields, family: Family, *, layers: int) -> tuple[Kinds, Kinds]:
    """Mixer kinds and feed-forward kinds."""
    words = one_part_words(fields)
    if words is not None:
        return _long_enough(tuple(ONE_PART[word][0] for word in words), layers), tuple(
            ONE_PART[word][1] for word in words
        )
    if fields.text("model_type") in ONLY_MAMBA:
        return ("recurrent",) * layers, ("none",) * layers
    return mixer_kinds(fields, family, layers=layers), feed_forward_kinds(fields, layers=layers)


def mixer_kinds(fields: Fields, family: Family, *, layers: int) -> Kinds:
    """The mixer of each layer, from the first pattern field that is present."""
    for pattern in (_ratios, _types, _blocks, _linear, _flags, _periods):
        kinds = pattern(fields, layers)
        if kinds is not None:
            return _long_enough(kinds, layers)
    return _windows(fields, family, layers)


def _long_enough(kinds: Kinds, layers: int) -> Kinds:
    if len(kinds) < layers:
        raise ConfigError(f"the layer pattern names {len(kinds)} layers, the config {layers}")
    return kinds


def _ratios(fields: Fields, layers: int) -> Kinds | None:
    """DeepSeek-V4: tokens per compressed entry; 0 is the window alone. One entry more than layers, for MTP."""
    ratios = fields.numbers("compress_ratios")
    if ratios is None and fields.has("o_lora_rank"):
        types = _types(fields, layers)
        return None if types is None else tuple("ratio-0" if kind == "sliding" else kind for kind in types)
    return None if ratios is None else tuple(f"ratio-{ratio}" for ratio in ratios)


def _types(fields: Fields, layers: int) -> Kinds | None:
    """A list of words; the convolution layers of LFM2 may be given as the indices of the others."""
    words = fields.words("layer_types", "layers_block_type", most=MOST_LAYERS)
    if words is None:
        return None
    if "hybrid" in words:
        raise ConfigError("layers that run attention and Mamba side by side are not supported")
    for word in sorted(set(words) - set(MIXERS))[:3]:
        fields.assume(f"layer type {shown(word)} is not known: assumed full attention")
    del layers
    kinds = tuple(MIXERS.get(word, "full") for word in words)
    return tuple("full" if kind == "sliding" and window_size(fields) is None else kind for kind in kinds)


def _blocks(fields: Fields, layers: int) -> Kinds | None:
    """Nemotron-NAS: attention left out, or replaced by one matrix, layer by layer."""
    blocks = fields.items("block_configs")
    if blocks is None:
        return None
    del layers
    return tuple(_replaced(fields, block, part="attention", kept="full") for block in blocks)


def _replaced(fields: Fields, block: object, *, part: str, kept: str) -> str:
    choice = Fields.of(block, notes=fields.notes, where="block_configs entry").part(part)
    if choice.flag("no_op", default=False):
        return "none"
    return "linear" if choice.flag("replace_with_linear", default=False) else kept


def _linear(fields: Fields, layers: int) -> Kinds | None:
    """Kimi: the linear and the full layers by number, from 1."""
    linear = fields.part("linear_attn_config").numbers("kda_layers")
    if linear is None:
        return None
    chosen = set(linear)
    return tuple("recurrent" if layer + 1 in chosen else "full" for layer in range(layers))


def _flags(fields: Fields, layers: int) -> Kinds | None:
    """Lists of 0 and 1, or of the attention layers' indices."""
    full = fields.numbers("attn_type_list")  # MiniMax: 1 is softmax attention
    if full is not None:
        return tuple("full" if kind else "recurrent" for kind in full)
    sliding = fields.numbers("hybrid_layer_pattern")  # MiMo-V2: 1 is sliding
    if sliding is not None:
        return tuple("sliding" if kind else "full" for kind in sliding)
    attention = fields.numbers("attn_layer_indices", "full_attn_idxs")  # Bamba, LFM2
    if attention is None and fields.text("model_type") == "bamba":
        attention = ()
    if attention is not None:
        return tuple("full" if layer in set(attention) else "recurrent" for layer in range(layers))
    return None


def _periods(fields: Fields, layers: int) -> Kinds | None:
    """Every n-th layer attends, the others recur (Qwen3-Next, Jamba)."""
    interval = fields.number("full_attention_interval")
    if interval is not None:
        return _every(interval, offset=interval - 1, layers=layers, chosen="full", other="recurrent")
    period = fields.number("attn_layer_period")
    if period is not None:
        offset = fields.count("attn_layer_offset", default=0, least=0)
        return _every(period, offset=offset, layers=layers, chosen="full", other="recurrent")
    return None


def _every(period: int, *, offset: int, layers: int, chosen: str, other: str) -> Kinds:
    return tuple(chosen if layer % period == offset else other for layer in range(layers))


def _windows(fields: Fields, family: Family, layers: int) -> Kinds:
    """Softmax attention throughout: everywhere full, everywhere windowed, or mixed."""
    if fields.has("attention_chunk_size") and fields.has("interleave_moe_layer_step", "no_rope_layers"):
        return _chunked(fields, family, layers)
    if window_size(fields) is None or not fields.flag(
        "use_sliding_window", default=not family.window_needs_flag
    ):
        return ("full",) * layers
    hit = fields.found("sliding_window_pattern", "_sliding_window_pattern")
    if hit is not None and isinstance(hit[1], str):  # EXAONE-4: "LLLG"
        letters = fields.text(hit[0]).upper()
        if not letters or set(letters) - {"L", "G"}:
            raise ConfigError(f"sliding_window_pattern is {shown(hit[1])}: looked for letters L and G")
        return tuple("sliding" if letters[layer % len(letters)] == "L" else "full" for layer in range(layers))
    period = (
        fields.number("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        or family.pattern
    )
    if period is not None:
        return _every(period, offset=period - 1, layers=layers, chosen="full", other="sliding")
    first = fields.number("max_window_layers", least=0) if family.window_needs_flag else None
    return tuple("full" if layer < (first or 0) else "sliding" for layer in range(layers))


def _chunked(fields: Fields, family: Family, layers: int) -> Kinds:
    """Llama 4: layers without rotary positions see everything, the others their chunk."""
    rotary = fields.numbers("no_rope_layers")  # 1 has rotary positions, whatever the name says
    if rotary:
        return tuple("chunked" if kind else "full" for kind in rotary)
    period = fields.number("no_rope_layer_interval") or family.pattern or 4
    return _every(period, offset=period - 1, layers=layers, chosen="full", other="chunked")


def expert_count(fields: Fields) -> int:
    """Routed experts of a layer; 0 or 1 for a dense model."""
    nested = fields.part("ffn_config").number("moe_num_experts", most=65536)
    return nested or fields.number(*EXPERTS, least=0, most=65536, layer=0) or 0


def feed_forward_kinds(fields: Fields, *, layers: int) -> Kinds:
    """The feed-forward part of each layer."""
    blocks = fields.items("block_configs")
    if blocks is not None:
        return tuple(_replaced(fields, block, part="ffn", kept="dense") for block in blocks)
    if expert_count(fields) < 2:
        return ("dense",) * layers
    types = fields.words("mlp_layer_types", most=MOST_LAYERS)
    if types is not None:
        return _long_enough(tuple("dense" if word == "dense" else "experts" for word in types), layers)
    routed = _routed(fields, layers)
    return tuple("experts" if routed(layer) else "dense" for layer in range(layers))


def _routed(fields: Fields, layers: int) -> Callable[[int], bool]:
    """Whether a layer has routed experts; all have where the config gives no pattern."""
    for rule in (_routed_listed, _routed_from, _routed_between, _routed_every):
        found = rule(fields, layers)
        if found is not None:
            return found
    return lambda layer: True  # noqa: ARG005


def _routed_listed(fields: Fields, layers: int) -> Callable[[int], bool] | None:
    """Layers named one by one: a list of 0 and 1, of indices, or of indices with commas."""
    hit = fields.found("moe_layer_freq")
    if hit is not None and isinstance(hit[1], list | tuple):
        flags = fields.numbers("moe_layer_freq") or ()
        if len(flags) < layers:
            raise ConfigError(f"moe_layer_freq names {len(flags)} layers, the config {layers}")
        return lambda layer: bool(flags[min(layer, len(flags) - 1)])
    fields.number("moe_layer_freq", least=0)  # or one number, for `_routed_from`
    chosen_layers = fields.items("is_moe_layer")  # EXAONE
    if chosen_layers is not None:
        _long_enough(tuple(map(str, chosen_layers)), layers)
        return lambda layer: chosen_layers[min(layer, len(chosen_layers) - 1)] is True
    hit = fields.found("moe_layers_enum")  # Step
    if hit is not None and isinstance(hit[1], str):
        chosen = {word.strip() for word in fields.text("moe_layers_enum").split(",")}
        return lambda layer: str(layer) in chosen
    indices = fields.numbers("moe_layers_enum", "moe_layers")
    return None if indices is None else lambda layer: layer in set(indices)


def _routed_from(fields: Fields, layers: int) -> Callable[[int], bool] | None:
    """DeepSeek and kin: dense layers first, then every `moe_layer_freq`-th."""
    del layers
    first = fields.number("first_k_dense_replace", "num_dense_layers", "n_dense_layers", least=0)
    if first is None:
        return None
    step = fields.number("moe_layer_freq") or 1
    return lambda layer: layer >= first and layer % step == 0


def _routed_between(fields: Fields, layers: int) -> Callable[[int], bool] | None:
    """ERNIE-4.5: from a first to a last layer, both included, in steps; a last layer of -1 is the last there is."""
    start = fields.number("moe_layer_start_index", least=0)
    if start is None:
        return None
    end = fields.count("moe_layer_end_index", default=-1, least=-1)
    end = layers - 1 if end < 0 else end
    step = fields.number("moe_layer_interval") or 1
    return lambda layer: start <= layer <= end and (layer + 1) % step == 0


def _routed_every(fields: Fields, layers: int) -> Callable[[int], bool] | None:
    """Every n-th layer: Qwen (with exceptions), Llama 4, Jamba."""
    del layers
    period = fields.number("expert_layer_period")
    if period is not None:
        offset = fields.count("expert_layer_offset", default=0, least=0)
        return lambda layer: layer % period == offset
    step = fields.number("decoder_sparse_step", "interleave_moe_layer_step")
    dense = set(fields.numbers("mlp_only_layers") or ())
    if step is None:
        return (lambda layer: layer not in dense) if dense else None
    return lambda layer: layer not in dense and (layer + 1) % step == 0
