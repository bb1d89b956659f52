"""What a request takes from an engine's cache: what each layer keeps, in the blocks and groups an allocator uses.

Shapes: as in `memory`, [..., stages]; the last axis is one long where all pipeline stages are alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parplan.calibration import Allocator, Exact, Grouped, TwoPools
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.transformer import Compressed, GroupedQuery, Mixer, Recurrent, Transformer
from parplan.units import Array, Tokens
from parplan.work import INDEX_BYTES, cache_share, last_stage, layers_per_stage


@dataclass(frozen=True)
class Store:
    """Layers of one pipeline stage that cache in the same way, and what one of them keeps on one rank."""

    layers: Array
    """[..., stages]."""
    per_token: Array
    """Bytes per token that is kept, [..., 1]; 0 for a recurrent state."""
    state: Array
    """Bytes per sequence whatever its length, [..., 1]."""
    window: int | None = None
    """Tokens kept at most. None: all."""
    chunked: bool = False
    """The window is a fixed chunk, not a sliding one."""


@dataclass(frozen=True)
class Charge:
    """What an allocator takes from one rank's pool, [..., stages]."""

    request: Array
    """Bytes for one request of the asked length."""
    logged_token: Array
    """Bytes of the pool for every token the engine's log speaks of."""


def stores(
    transformer: Transformer, precision: Precision, *, layout: Layout, drafts: int = 0
) -> tuple[Store, ...]:
    """The distinct kinds of cache a model keeps; layers that cache alike are counted together.

    Args:
        drafts: layers like the last one that are on the last stage as well, to draft tokens with.
    """
    layers = layers_per_stage(transformer, layout=layout)
    layers[..., transformer.sequence[-1]] += drafts * last_stage(layout, stages=layers.shape[-2])
    found: dict[tuple[object, ...], Store] = {}
    for kind, block in enumerate(transformer.blocks):
        for store in mixer_stores(block.mixer, precision, layout=layout, layers=layers[..., kind]):
            key = (store.window, store.chunked, store.per_token.tobytes(), store.state.tobytes())
            same = found.get(key)
            found[key] = Store(
                layers=store.layers + (same.layers if same else 0.0),
                per_token=store.per_token,
                state=store.state,
                window=store.window,
                chunked=store.chunked,
            )
    return tuple(found.values())


def mixer_stores(
    mixer: Mixer | None, precision: Precision, *, layout: Layout, layers: Array
) -> tuple[Store, ...]:
    """What one mixer keeps on one rank: a growing or windowed part, a compressed part, or a state."""
    if mixer is None:
        return ()
    cache = mixer.cache
    share = np.asarray(cache_share(mixer, layout=layout), dtype=float)[..., None]
    element = precision.kv.bytes_per_element
    beside = cache.compressed * element + cache.index * INDEX_BYTES
    match mixer:
        case Recurrent():
            whole = cache.state * mixer.state_bytes + cache.convolution * precision.bytes_per_parameter(
                "norms"
            )
            return (Store(layers=layers, per_token=0 * share, state=share * whole),)
        case Compressed():
            grows = (Store(layers=layers, per_token=share * beside, state=0 * share),) if beside else ()
            per_token = share * cache.growing * element
            return (Store(layers=layers, per_token=per_token, state=0 * share, window=cache.window), *grows)
        case GroupedQuery() if not cache.growing:
            return ()
        case _:
            per_token = share * (cache.growing * element + beside)
            chunked = isinstance(mixer, GroupedQuery) and mixer.chunked
            return (
                Store(
                    layers=layers, per_token=per_token, state=0 * share, window=cache.window, chunked=chunked
                ),
            )


def exact_charge(kept: Sequence[Store], *, block: int, length: Tokens, windows: bool = True) -> Charge:
    """Every layer keeps what the model defines, in whole blocks; without windows, every token."""
    request: Array = np.zeros(1)
    token: Array = np.zeros(1)
    for store in kept:
        tokens = np.minimum(length, store.window) if store.window and windows else np.asarray(length)
        request = request + store.layers * (store.per_token * np.ceil(tokens / block) * block + store.state)
        token = token + store.layers * (store.per_token * tokens + store.state) / length
    return Charge(request=request, logged_token=token)


def two_pool_charge(kept: Sequence[Store], *, share: float, length: Tokens) -> Charge:
    """Windowed layers have their own pool, `share` times the tokens of the full one; the fuller pool decides.

    (full + share x windowed) x max(length, min(length, window) / share), plus states
    """
    full: Array = np.zeros(1)
    windowed: Array = np.zeros(1)
    states: Array = np.zeros(1)
    used: Tokens = 0.0
    for store in kept:
        states = states + store.layers * store.state
        if store.window:
            windowed = windowed + store.layers * store.per_token
            used = np.maximum(used, np.minimum(length, store.window))
        else:
            full = full + store.layers * store.per_token
    token = full + share * windowed
    request = token * np.maximum(length, np.asarray(used) / share) + states
    return Charge(request=request, logged_token=np.where(token > 0, token, request / length))


def grouped_charge(
    kept: Sequence[Store], *, allocator: Grouped, length: Tokens, batched_tokens: Tokens
) -> Charge:
    """Layers in padded groups that share pages of one size (vLLM's hybrid cache manager).

        request = page x layers of a group x sum over groups of their blocks

    Source: vLLM @001cabc vllm/v1/core/kv_cache_utils.py (`_get_kv_cache_groups_uniform_page_size`,
    `_max_memory_usage_bytes_from_groups`, `_report_kv_cache_config`).
    """
    if not any(store.window or store.state.any() for store in kept):
        return exact_charge(kept, block=allocator.block, length=length)
    grown = np.maximum.reduce([store.per_token for store in kept]) * allocator.block
    state = np.maximum.reduce([store.state for store in kept])
    page = np.where(
        grown > 0, grown * np.maximum(np.ceil(state / np.where(grown > 0, grown, 1.0)), 1.0), state
    )
    present = [np.where(store.layers > 0, store.layers, np.nan) for store in kept]
    least, most = np.fmin.reduce(present), np.fmax.reduce(present)
    size = np.nan_to_num(np.where(most < allocator.padded_up_to * least, most, least))
    groups: Array = np.zeros(1)
    blocks: Array = np.zeros(1)
    tokens_per_block: Array = np.full(1, np.inf)
    for store in kept:
        held = np.ceil(store.layers / np.where(size > 0, size, 1.0))
        block = page / np.where(store.per_token > 0, store.per_token, np.nan)
        groups = groups + held
        blocks = blocks + held * charged_blocks(
            store, block=block, length=length, batched_tokens=batched_tokens
        )
        tokens_per_block = np.fmin(tokens_per_block, np.where(store.layers > 0, block, np.nan))
    request = size * page * blocks
    per_block = size * page * groups / np.where(np.isfinite(tokens_per_block), tokens_per_block, 1.0)
    return Charge(request=request, logged_token=per_block if allocator.logs == "blocks" else request / length)


def charged_blocks(store: Store, *, block: Array, length: Tokens, batched_tokens: Tokens) -> Array:
    """Blocks of one layer one request is charged: one for a state, a step more than its window, or all."""
    if store.window is None:
        return np.where(np.isnan(block), 1.0, np.ceil(length / block))
    seen = store.window + batched_tokens - (0 if store.chunked else 1)
    edge = 0 if store.chunked else 1
    return np.ceil(np.minimum(seen, length) / block) + edge


def charge(kept: Sequence[Store], *, allocator: Allocator, length: Tokens, batched_tokens: Tokens) -> Charge:
    """What an engine's allocator takes from the pool, [..., stages]."""
    match allocator:
        case Exact():
            return exact_charge(kept, block=allocator.block, length=length, windows=allocator.windows)
        case TwoPools():
            return two_pool_charge(kept, share=allocator.share, length=length)
        case Grouped():
            return grouped_charge(kept, allocator=allocator, length=length, batched_tokens=batched_tokens)
