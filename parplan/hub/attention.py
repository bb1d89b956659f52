"""Attention kinds: grouped-query, latent (MLA), compressed (DeepSeek-V4), each counted as its class builds it.

What is cut and what every rank holds whole follows vLLM's linear layers: column- and row-parallel projections are cut
with the heads; latents, their down-projections, per-head norms and indexers are replicated.
"""

from parplan.hub.families import Family, QueryKeyNorm
from parplan.hub.fields import ConfigError, Fields
from parplan.mixers import Compressed, GroupedQuery, Latent

BIAS = ("attention_bias", "qkv_bias", "add_qkv_bias", "use_qkv_bias", "use_bias", "bias", "enable_bias")
WINDOW = ("sliding_window", "sliding_window_size")


def hidden_size(fields: Fields) -> int:
    """Width of the residual stream."""
    return fields.count("hidden_size", "n_embd", "n_embed", "d_model", what="hidden size")


def query_heads(fields: Fields, *, layer: int) -> int:
    """Query heads of a full-attention layer."""
    return fields.count("num_attention_heads", "n_head", "n_heads", "num_heads", layer=layer, most=4096,
                        what="number of attention heads")  # fmt: skip


def key_value_heads(fields: Fields, *, heads: int, layer: int) -> int:
    """KV heads: named, or one (multi-query), or as many as query heads.

    Falcon-7B says `num_kv_heads: 71` and means one: `multi_query` wins unless the newer decoder is in use.
    """
    newer = fields.flag("new_decoder_architecture", default=False)
    if fields.flag("multi_query", default=fields.text("model_type") == "gpt_bigcode") and not newer:
        return 1
    if fields.has("multi_query_group_num") and fields.flag("multi_query_attention", default=True):
        return fields.count("multi_query_group_num", most=4096)
    named = fields.number("num_key_value_heads", "num_kv_heads", "n_head_kv", layer=layer, most=4096)
    nested = fields.part("attn_config").number("kv_n_heads", most=4096)
    return named or nested or heads


def head_width(fields: Fields, *, hidden: int, heads: int) -> int:
    """Elements of one head: never assume hidden / heads where the config says otherwise (Qwen3, Gemma, gpt-oss)."""
    named = fields.number("head_dim", "kv_channels", "attention_head_dim", most=65536)
    if named is not None:
        return named
    if hidden % heads:
        raise ConfigError(
            f"hidden size {hidden} is not a multiple of {heads} heads, and there is no head_dim"
        )
    return hidden // heads


def window_size(fields: Fields) -> int | None:
    """Tokens a sliding layer sees; None where there is no window, or one no sequence outgrows."""
    hit = fields.found(*WINDOW)
    if hit is None or hit[1] == -1:  # MPT writes -1 for none
        return None
    window = fields.count(*WINDOW)
    limit = fields.number("max_position_embeddings")
    return None if limit is not None and window >= limit else window


def grouped_query(fields: Fields, family: Family, *, kind: str, layer: int) -> GroupedQuery:
    """One softmax attention layer.

    Args:
        fields: the language model's config.
        family: what its class knows.
        kind: "full", "sliding" or "chunked"; sliding and full layers may have different shapes.
        layer: which layer, for fields that are lists.
    """
    hidden = hidden_size(fields)
    sliding = kind == "sliding"
    heads, kv_heads, head_dim, value_dim = _shape(fields, hidden=hidden, sliding=sliding, layer=layer)
    if kv_heads > heads or heads % kv_heads:
        raise ConfigError(f"{heads} query heads cannot share {kv_heads} KV heads")
    bias = fields.flag(*BIAS, default=family.qkv_bias)
    shares = _shares_cache(fields, layer=layer)
    query_norm, key_norm, whole_norm = _query_key_norm(fields, family, heads, kv_heads, head_dim)
    index = _sparse_index(fields, hidden=hidden, layer=layer)
    return GroupedQuery(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        window=_window(fields, kind=kind),
        chunked=kind == "chunked",
        key_is_value=fields.flag("attention_k_eq_v", default=False) and not sliding,
        shares_cache=shares,
        gated=fields.flag("attn_output_gate", default=family.linear_gate),
        query_extra=heads * head_dim * bias
        + _sinks(fields, family, heads=heads, sliding=sliding)
        + hidden * heads * fields.flag("use_attention_gate", default=family.head_gate)
        + query_norm,
        key_value_extra=0 if shares else kv_heads * (head_dim + value_dim) * bias + key_norm,
        replicated_extra=hidden * _output_bias(fields, family, bias=bias) + whole_norm * (1 if shares else 2),
        **index,
    )


def _output_bias(fields: Fields, family: Family, *, bias: bool) -> bool:
    """As the queries, unless the class or a field of its own says otherwise (`add_bias_linear`: ChatGLM)."""
    default = bias if family.output_bias is None else family.output_bias
    return fields.flag("attention_out_bias", "dense_bias", "add_bias_linear", default=default)


def _shape(fields: Fields, *, hidden: int, sliding: bool, layer: int) -> tuple[int, int, int, int]:
    """Query heads, KV heads, head width and value width of a sliding or a full layer.

    MiMo-V2 names its sliding layers' shape `swa_*`, Gemma-4 its full layers' `global_*`, Step keeps the sliding
    layers' in `attention_other_setting`, Nemotron-NAS gives heads per group and layer.
    """
    heads = query_heads(fields, layer=layer)
    kv_heads = key_value_heads(fields, heads=heads, layer=layer)
    head_dim = head_width(fields, hidden=hidden, heads=heads)
    value_dim = fields.number("v_head_dim") or head_dim
    if sliding:
        other = fields.part("attention_other_setting")
        heads = (
            fields.number("swa_num_attention_heads", "num_sliding_attention_heads", most=4096)
            or other.number("num_attention_heads", most=4096)
            or heads
        )
        kv_heads = (
            fields.number("swa_num_key_value_heads", most=4096)
            or other.number("num_attention_groups", "num_key_value_heads", most=4096)
            or kv_heads
        )
        head_dim = (
            fields.number("swa_head_dim", most=65536) or other.number("head_dim", most=65536) or head_dim
        )
        value_dim = fields.number("swa_v_head_dim", most=65536) or value_dim
    elif fields.has("global_head_dim"):
        head_dim = value_dim = fields.count("global_head_dim", most=65536)
        kv_heads = fields.number("num_global_key_value_heads", most=4096) or kv_heads
    group = _block_attention(fields, layer=layer).number("n_heads_in_group")
    return heads, heads // group if group and heads % group == 0 else kv_heads, head_dim, value_dim


def _block_attention(fields: Fields, *, layer: int) -> Fields:
    blocks = fields.items("block_configs")
    if not blocks:
        return Fields({}, fields.notes)
    block = Fields.of(blocks[min(layer, len(blocks) - 1)], notes=fields.notes, where="block_configs entry")
    return block.part("attention")


def _window(fields: Fields, *, kind: str) -> int | None:
    if kind == "chunked":
        return fields.count("attention_chunk_size")
    return window_size(fields) if kind == "sliding" else None


def _shares_cache(fields: Fields, *, layer: int) -> bool:
    """The last `num_kv_shared_layers` layers read an earlier layer's cache (Gemma-3n, Gemma-4 E models)."""
    layers = fields.number("num_hidden_layers", most=4096) or 0
    return (
        layer >= layers - (fields.number("num_kv_shared_layers", least=0, most=4096) or 0) and layer < layers
    )


def _query_key_norm(
    fields: Fields, family: Family, heads: int, kv_heads: int, head_dim: int
) -> tuple[int, int, int]:
    """Norm weights cut with the query heads, with the KV heads, and one replicated norm's (queries; keys the same)."""
    style = family.norm_style if fields.flag("use_qk_norm", "qk_layernorm", default=False) else "none"
    if not fields.has("use_qk_norm", "qk_layernorm"):
        style = family.query_key_norm
    named: dict[str, QueryKeyNorm] = {"per_layer": "layer", "per_head": "head"}
    if style != "none":
        style = named.get(fields.text("qk_norm_type"), style)
    if style == "layer":
        return heads * head_dim, kv_heads * head_dim, 0
    return 0, 0, head_dim if style == "head" else 0


def _sinks(fields: Fields, family: Family, *, heads: int, sliding: bool) -> int:
    name = "add_swa_attention_sink_bias" if sliding else "add_full_attention_sink_bias"
    return heads * fields.flag(name, default=family.sinks)


def _sparse_index(fields: Fields, *, hidden: int, layer: int) -> dict[str, int]:
    """The block-sparse index of MiniMax-M3: query heads and one key of `sparse_index_dim`, both normed."""
    sparse = fields.part("sparse_attention_config")
    layers = sparse.numbers("sparse_attention_freq")
    if not sparse.flag("use_sparse_attention", default=False) or not layers:
        return {}
    if not layers[min(layer, len(layers) - 1)]:
        return {}
    width = sparse.count("sparse_index_dim", most=65536)
    heads = sparse.count("sparse_num_index_heads", most=4096)
    return {
        "sparse_top_k": sparse.count("sparse_topk_blocks") * sparse.count("sparse_block_size"),
        "index_elements": width,
        "index_heads": heads,
        "index_parameters": hidden * heads * width + hidden * width + 2 * width,
    }


def latent(fields: Fields, family: Family, *, layer: int) -> Latent:
    """One multi-head latent attention layer (DeepSeek-V2 and after, Kimi, GLM-5), with its sparse index if any.

    KV heads in such configs mean nothing: one latent serves every head. `q_lora_rank: null` is a plain query
    projection; where the key is missing altogether (converted configs drop nulls) it is taken as null, and said.
    """
    hidden = hidden_size(fields)
    heads = query_heads(fields, layer=layer)
    kv_rank, rope = fields.count("kv_lora_rank"), fields.count("qk_rope_head_dim", least=0)
    value = fields.count("v_head_dim", what="value head width")
    query_rank = fields.number("q_lora_rank")
    if "q_lora_rank" not in fields.raw:
        fields.assume("q_lora_rank is missing: assumed null, a query projection of full rank")
    bias = fields.flag("attention_bias", default=False)
    indexed = fields.has("index_topk")
    full_index = indexed and _has_indexer(fields, layer=layer)
    return Latent(
        hidden=hidden,
        heads=heads,
        query_rank=query_rank,
        kv_rank=kv_rank,
        rope_dim=rope,
        nope_dim=fields.count("qk_nope_head_dim"),
        value_dim=value,
        sparse_top_k=fields.number("index_topk"),
        index_elements=fields.count("index_head_dim") if full_index else 0,
        index_heads=fields.count("index_n_heads") if full_index else 0,
        index_parameters=_indexer_parameters(fields, hidden=hidden, query_rank=query_rank or hidden)
        if full_index
        else 0,
        tensor_extra=hidden * heads * value * fields.flag("mla_use_output_gate", default=False)
        + hidden * heads * family.head_gate,
        replicated_extra=(query_rank or 0) + kv_rank + bias * ((query_rank or 0) + kv_rank + rope + hidden),
    )


def _indexer_parameters(fields: Fields, *, hidden: int, query_rank: int) -> int:
    """Queries from the query latent, one key with a LayerNorm, one weight per head."""
    heads, width = fields.count("index_n_heads", most=4096), fields.count("index_head_dim", most=65536)
    return query_rank * heads * width + hidden * width + 2 * width + hidden * heads


def _has_indexer(fields: Fields, *, layer: int) -> bool:
    """GLM-5.2 shares indexers: only layers of type "full" have one of their own; an MTP layer always has."""
    types = fields.words("indexer_types")
    return types is None or layer >= len(types) or types[layer] == "full"


def compressed(fields: Fields, *, ratio: int, layer: int) -> Compressed:
    """One DeepSeek-V4 attention layer: a window, and beyond it one compressed entry per `ratio` tokens.

    Ratio 0 is the window alone; below 16 the compressor overlaps its groups and an index picks entries (CSA);
    above, every entry is read (HCA).
    """
    hidden, heads = hidden_size(fields), query_heads(fields, layer=layer)
    width, query_rank = fields.count("head_dim", most=65536), fields.count("q_lora_rank")
    groups, output_rank = fields.count("o_groups", most=4096), fields.count("o_lora_rank")
    queries = query_rank * heads * width
    output = heads * width // groups * groups * output_rank + groups * output_rank * hidden
    indexed = 0 < ratio < 16
    compressor = _compressor(hidden=hidden, width=width, ratio=ratio, overlap=indexed) if ratio else 0
    index_width, index_heads = (
        fields.count("index_head_dim", most=65536),
        fields.count("index_n_heads", most=4096),
    )
    index = (
        _compressor(hidden=hidden, width=index_width, ratio=ratio, overlap=True)
        + query_rank * index_heads * index_width
        + hidden * index_heads
    )
    return Compressed(
        hidden=hidden,
        heads=heads,
        head_dim=width,
        window=fields.count(*WINDOW),
        ratio=ratio or None,
        sparse_top_k=fields.number("index_topk") if indexed else None,
        index_elements=index_width if indexed else 0,
        index_heads=index_heads if indexed else 0,
        index_parameters=index if indexed else 0,
        tensor_parameters=queries + output + heads,
        replicated_parameters=hidden * query_rank + query_rank + hidden * width + width + compressor,
    )


def _compressor(*, hidden: int, width: int, ratio: int, overlap: bool) -> int:
    """Values, gates, position biases and a norm; twice as wide where groups overlap."""
    wide = width * (2 if overlap else 1)
    return 2 * hidden * wide + ratio * wide + width
