"""What drafts tokens (speculative decoding): a checkpoint's own layers for it, or an EAGLE head where it has none."""

from parplan.mixers import GroupedQuery, Recurrent
from parplan.transformer import Block, Dense, Transformer

EAGLE_VOCABULARY = 32_000
"""Tokens an EAGLE-3 head can draft: `draft_vocab_size` of published configs for Llama, Qwen, gpt-oss and Kimi alike."""
EAGLE_STATES = 3
"""Layers of the model whose hidden states an EAGLE-3 head reads at once."""
EAGLE_WIDTH = 6
"""Feed-forward width over hidden size of a head for a mixture of experts. Published: 2.6 (Kimi-K2), 3 (Qwen3-30B-A3B),
6 (Qwen3-235B-A22B, gpt-oss), 6.4 (Llama-4-Scout); heads for dense models have the model's own width."""
EAGLE_HEAD_DIM = 128
EAGLE_BYTES = 2.0
"""Bytes per parameter: heads are published in 16 bits, whatever the model's weights are in."""


def last_layer_parameters(transformer: Transformer) -> int:
    """Parameters of a model's last layer."""
    return sum(transformer.blocks[transformer.sequence[-1]].parameters().values())


def draft_layers(transformer: Transformer) -> int:
    """Multi-token-prediction layers of a checkpoint, told from their parameters: each is about one more last layer."""
    return max(round(transformer.mtp / last_layer_parameters(transformer)), 1) if transformer.mtp else 0


def eagle_block(transformer: Transformer) -> Block:
    """The one layer of an EAGLE-3 head: the model's attention heads over twice its hidden size (the token's embedding
    beside the hidden state), a dense feed-forward part, and what merges the hidden states, whole on every rank.

    Models with a latent or a recurrent state are drafted for with plain heads, one KV head each.

    Source: vLLM vllm/model_executor/models/llama_eagle3.py (`qkv_input_size`, `fc`); configs/ of sgl-project/SpecForge.
    Read 2026-11-30.
    """
    hidden = transformer.hidden
    mixers = transformer.mixers
    like = next((mixer for mixer in reversed(mixers) if isinstance(mixer, GroupedQuery)), None)
    plain = max((mixer.heads for mixer in mixers if not isinstance(mixer, Recurrent)), default=1)
    heads, kv_heads, width = (
        (like.heads, like.kv_heads, like.head_dim) if like else (plain, plain, EAGLE_HEAD_DIM)
    )
    dense = max((block.dense.width for block in transformer.blocks if block.dense), default=0)
    return Block(
        mixer=GroupedQuery(
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=width,
            value_dim=width,
            query_extra=hidden * heads * width,
            key_value_extra=2 * hidden * kv_heads * width,
        ),
        dense=Dense(inputs=hidden, width=EAGLE_WIDTH * hidden if transformer.is_moe else dense),
        norms=4 * hidden,
        other=EAGLE_STATES * hidden * hidden,
    )


def drafting_block(transformer: Transformer) -> Block:
    """One layer of what drafts: like the model's last, or that of an EAGLE head."""
    return transformer.blocks[transformer.sequence[-1]] if transformer.mtp else eagle_block(transformer)


def drafting_layers(transformer: Transformer) -> int:
    """Layers of what drafts."""
    return draft_layers(transformer) or 1
