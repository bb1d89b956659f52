"""Attention of a step: over the cache in decode, causal in prefill, and recurrences over their state.

Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from parplan.formats import Precision
from parplan.mixers import Compressed, GroupedQuery, Latent, Mixer, Recurrent
from parplan.placement import Placement, Roofline
from parplan.units import Bytes, Count, Seconds, Tokens
from parplan.work import INDEX_BYTES, cache_bytes, cache_share


def attended(mixer: Mixer, *, length: Tokens) -> Tokens:
    """Stored positions one query attends to in a sequence of `length` tokens: windows and choices limit them."""
    match mixer:
        case GroupedQuery():
            return np.minimum(length, min(mixer.window or np.inf, mixer.sparse_top_k or np.inf))
        case Latent():
            return np.minimum(length, mixer.sparse_top_k or np.inf)
        case Compressed():
            folded = length / mixer.ratio if mixer.ratio else 0.0
            return np.minimum(length, mixer.window) + np.minimum(folded, mixer.sparse_top_k or np.inf)
        case Recurrent():
            return 0.0 * length


def attended_in_total(mixer: Mixer, *, tokens: Tokens, prior: Tokens) -> Tokens:
    """Positions all queries of a causal chunk attend to.

    The integral of min(position, most) from prior to prior + tokens; folded entries by their middle position.
    """
    if isinstance(mixer, Compressed | Recurrent):
        return tokens * attended(mixer, length=prior + tokens / 2)
    most = attended(mixer, length=1e18)

    def below(length: Tokens) -> Tokens:
        capped = np.minimum(length, most)
        return capped * (length - capped / 2)

    return below(prior + tokens) - below(prior)


def read_bytes(mixer: Mixer, precision: Precision, *, length: Tokens) -> Bytes:
    """Cache bytes of one layer one sequence's next token reads (states: and writes back), before any cut."""
    if isinstance(mixer, Recurrent):
        return 2 * cache_bytes(mixer, precision, length=length)
    chosen = mixer.cache.growing * precision.kv.bytes_per_element * attended(mixer, length=length)
    return chosen + mixer.cache.index * INDEX_BYTES * length


def decode_attention(mixer: Mixer, *, at: Placement, length: Tokens, queries: Count = 1) -> Roofline:
    """One layer's attention of one sequence for its new tokens, on one rank.

    Args:
        queries: tokens verified in the step; they read the cache, or what sparse attention chooses of it, once.
    """
    state = mixer.flop_per_token if isinstance(mixer, Recurrent) else 0
    flop = (mixer.flop_per_position * attended(mixer, length=length) + state) / at.tensor
    moved = cache_share(mixer, layout=at.layout) * read_bytes(mixer, at.precision, length=length)
    return Roofline(
        compute=queries * (flop + mixer.index_flop_per_position * length) / at.attention_rate,
        memory=moved / at.cache_bandwidth,
    )


def prefill_attention(mixer: Mixer, *, at: Placement, tokens: Tokens, prior: Tokens) -> Roofline:
    """One layer's attention of a chunk of one sequence, on one rank; context ranks share the queries."""
    state = mixer.flop_per_token * tokens if isinstance(mixer, Recurrent) else 0.0
    positions = attended_in_total(mixer, tokens=tokens, prior=prior)
    flop = (mixer.prefill_flop_per_position * positions + state) / at.tensor
    index = mixer.index_flop_per_position * tokens * (prior + tokens / 2)
    stored = cache_bytes(mixer, at.precision, length=prior + tokens)
    return Roofline(
        compute=(flop + index) / np.asarray(at.layout.context) / at.attention_rate,
        memory=cache_share(mixer, layout=at.layout) * stored / at.cache_bandwidth,
    )


def attention_work(parts: Sequence[tuple[int, Roofline]], *, sequences: Count) -> Roofline:
    """Attention of all layers for several sequences, arithmetic and traffic each summed over the kinds of layer."""
    return Roofline(
        compute=cast(Seconds, sum(count * part.compute for count, part in parts)) * sequences,
        memory=cast(Seconds, sum(count * part.memory for count, part in parts)) * sequences,
    )
