"""Feed-forward parts: dense ones, and mixtures of experts under all their names."""

from parplan.hub.attention import hidden_size
from parplan.hub.families import Family
from parplan.hub.fields import ConfigError, Fields
from parplan.hub.pattern import expert_count
from parplan.transformer import Dense, Experts

WIDTH = ("block_ff_dim", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
BIAS = ("mlp_bias", "use_bias", "add_bias_linear", "use_mlp_bias", "enable_bias")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts",
         "experts_per_token", "num_selected_experts")  # fmt: skip
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")


def is_gated(fields: Fields, family: Family) -> bool:
    """Three matrices (SwiGLU and kin); squared ReLU always has two."""
    return family.gated and fields.text("mlp_hidden_act", "hidden_act") != "relu2"


def dense(fields: Fields, family: Family, *, layer: int) -> Dense:
    """The feed-forward part every token goes through."""
    hidden, width = hidden_size(fields), dense_width(fields, family, layer=layer)
    gated = is_gated(fields, family)
    falcon = ("bias",) if fields.text("model_type") == "falcon" else ()  # elsewhere it is attention's alone
    bias = fields.flag(*BIAS, *falcon, default=family.ffn_bias)
    return Dense(
        inputs=hidden,
        width=width,
        gated=gated,
        biases=bias * (width * (2 if gated else 1) + hidden) + family.ffn_scalars,
    )


def dense_width(fields: Fields, family: Family, *, layer: int) -> int:
    """Width of a dense feed-forward part.

    Llama 4 and MiniMax-M3 give the dense layers a name of their own, Nemotron-NAS a multiple per layer, MPT and the
    GPT-2 generation a multiple of the hidden width; Gemma-4 doubles it in layers that share a cache; Qwen-1 counts
    both halves of the gate in one; LFM2 names a width that is still to be cut by a third.
    """
    named = fields.number("dense_intermediate_size", "intermediate_size_mlp", layer=layer)
    blocks = fields.items("block_configs")
    if blocks:
        return _block_width(fields, blocks[min(layer, len(blocks) - 1)])
    width = named or fields.number(*WIDTH, layer=layer) or _widened(fields, family)
    if width is None:
        width = fields.number("shared_intermediate_size")  # Granite-4-H without experts
    if width is None:
        raise ConfigError(f"no feed-forward width: looked for {', '.join(WIDTH)}, expansion_ratio")
    if fields.flag("block_auto_adjust_ff_dim", default=False):
        step = fields.count("block_multiple_of", default=256)
        width = -(-int(2 * width / 3 * (fields.real("block_ffn_dim_multiplier") or 1)) // step) * step
    if fields.text("model_type") == "qwen":
        width //= 2
    if fields.flag("use_double_wide_mlp", default=False) and _shares(fields, layer=layer):
        width *= 2
    return width


def _shares(fields: Fields, *, layer: int) -> bool:
    shared = fields.number("num_kv_shared_layers", least=0) or 0
    return layer >= fields.count("num_hidden_layers") - shared


def _widened(fields: Fields, family: Family) -> int | None:
    ratio = fields.real("expansion_ratio") or family.widening
    return None if ratio is None else int(ratio * hidden_size(fields))


def _block_width(fields: Fields, block: object) -> int:
    """Nemotron-NAS: two thirds of `ffn_mult` times twice the hidden width, rounded up to 256."""
    choice = Fields.of(block, notes=fields.notes, where="block_configs entry").part("ffn")
    exact = choice.number("intermediate_size")
    if exact is not None:
        return exact
    multiple = choice.real("ffn_mult")
    if multiple is None:
        raise ConfigError("a block_configs entry has neither ffn_mult nor intermediate_size")
    return -(-int(2 * multiple * hidden_size(fields) / 3) // 256) * 256


def experts(fields: Fields, family: Family, *, layer: int) -> Experts:
    """The mixture of experts of one layer."""
    hidden, count = hidden_size(fields), expert_count(fields)
    chosen = _chosen(fields, layer=layer)
    if chosen > count:
        raise ConfigError(f"{chosen} experts per token, but only {count} experts")
    width = expert_width(fields, layer=layer)
    gated = is_gated(fields, family)
    inputs = fields.number("moe_latent_size", "routed_expert_hidden_size") or hidden
    matrices = 3 if gated else 2
    shared_width = _shared_width(fields, width=width, layer=layer)
    gated_shared = family.shared_gate and shared_width and fields.has("shared_expert_intermediate_size")
    idle = fields.number("zero_expert_num", least=0) or 0
    if idle:
        fields.assume(f"{chosen} of {count + idle} slots per token, {idle} of them without weights: taken as "
                      f"{round(chosen * count / (count + idle))} real experts on average")  # fmt: skip
        chosen = max(1, round(chosen * count / (count + idle)))
    return Experts(
        count=count,
        chosen=chosen,
        inputs=inputs,
        width=width,
        gated=gated,
        biases=family.ffn_bias * (width * (matrices - 1) + inputs),
        shared=_shared_count(fields, layer=layer) or (1 if shared_width else 0),
        shared_parameters=matrices * hidden * shared_width
        + (hidden if gated_shared else 0)
        + _latent(fields, hidden=hidden, inputs=inputs),
        shared_width=shared_width,
        router=hidden * (count + idle) + count * family.router_bias + _router_scales(fields, hidden, count),
    )


def _chosen(fields: Fields, *, layer: int) -> int:
    nested = fields.part("ffn_config").number("moe_top_k", most=65536)
    return nested or fields.count(*TOP_K, layer=layer, most=65536, what="number of experts per token")


def expert_width(fields: Fields, *, layer: int) -> int:
    """Width of one routed expert; the plain width where no other is given (Mixtral, gpt-oss, Llama 4)."""
    nested = fields.part("ffn_config").number("ffn_hidden_size")
    return nested or fields.count("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size",
                                  "intermediate_size", layer=layer, what="expert width")  # fmt: skip


def _shared_count(fields: Fields, *, layer: int) -> int:
    return fields.number(*SHARED, least=0, most=4096, layer=layer) or 0


def _shared_width(fields: Fields, *, width: int, layer: int) -> int:
    """Width of all shared experts together.

    Some name it outright (Qwen, Step, Granite-4-H, MiniMax with 0 for none), some per shared expert (Nemotron-3),
    the others count shared experts as wide as the routed ones; Llama 4 always has one and no field for it.
    """
    total = fields.number(
        "shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size", least=0
    )
    if total is not None:
        return total
    count = _shared_count(fields, layer=layer)
    if fields.has("interleave_moe_layer_step"):
        count = 1
    return count * (fields.number("moe_shared_expert_intermediate_size") or width)


def _latent(fields: Fields, *, hidden: int, inputs: int) -> int:
    """Projections into and out of the width routed experts work in, and its norm (Nemotron-3, Kimi-K3)."""
    if inputs == hidden:
        return 0
    return 2 * hidden * inputs + inputs * fields.flag("latent_moe_use_norm", default=False)


def _router_scales(fields: Fields, hidden: int, count: int) -> int:
    """Gemma-4: a scale per input and one per expert."""
    return hidden + count if fields.flag("enable_moe_block", default=False) else 0
