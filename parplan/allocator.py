"""What a request takes from an engine's cache: what each layer keeps, in the blocks and groups an allocator uses.

Shapes: as in `memory`, [..., stages]; the last axis is one long where all pipeline stages are alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parplan.calibration import Allocator, Exact, Grouped, TwoPools
from parplan.drafting import drafting_block, drafting_layers
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.mixers import Compressed, GroupedQuery, Latent, Mixer, Recurrent
from parplan.transformer import Transformer
from parplan.units import Array, Bytes, Count, Mask, Tokens
from parplan.work import INDEX_BYTES, Stages, cache_share, sequence_state_bytes


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
    folded: int = 0
    """Tokens that share one entry of a compressed cache. 0: not compressed."""
    entry: float = 0.0
    """Bytes of one entry of attention that compresses, in its window or beyond."""
    index: float = 0.0
    """Bytes of the index that stands beside one compressed entry."""


@dataclass(frozen=True)
class Charge:
    """What an allocator takes from one rank's pool, [..., stages]."""

    request: Array
    """Bytes one request of the asked length keeps while it writes its answer."""
    alone: Array
    """Bytes it takes at most, with a prompt that fills every step; the engine wants them free before it lets it in, and
    reckons with them in its log."""
    logged_token: Array
    """Bytes of the pool for every token the engine's log speaks of."""
    shared: Array = field(default_factory=lambda: np.zeros(1))
    """Bytes the tokens in flight take in windows, whichever requests they belong to."""
    state: Array = field(default_factory=lambda: np.zeros(1))
    """Bytes of the pool for every recurrent state that can be held. 0: none is, or each request brings its own."""


MIXED_ENTRY_BITS = 8
MIXED_ENTRY_BYTES = 584 / 512
"""Bytes per element of an entry that is called 8-bit: of 512 elements 448 are, 64 rotary ones have 16 bits, and 8
bytes of scales follow (`fp8_ds_mla` of DeepSeek-V4: vllm-project/vllm#47716, sgl-project/sglang#37138, read
2026-11-30)."""

PACKED_TILE, PACKED_SCALE, PACKED_ROTARY = 128, 4, 2
"""Of a packed latent: elements that share a scale, bytes of the scale, and of one rotary element."""


def packed_latent_bytes(mixer: Latent) -> Bytes:
    """Bytes per token of a latent whose 8-bit form keeps scales of its own and a 16-bit rotary key (`fp8_ds_mla`).

        rank + 4 rank / 128 + 2 rotary

    Source: vLLM vllm/v1/kv_cache_interface.py, `MLAAttentionSpec`; SGLang `calculate_mla_kv_cache_dim`;
    flashinfer-ai/flashinfer#2426: 512 + 16 + 128 bytes. Read 2026-11-30.
    """
    return mixer.kv_rank + PACKED_SCALE * mixer.kv_rank / PACKED_TILE + PACKED_ROTARY * mixer.rope_dim


def stores(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    stages: Stages,
    drafts: int = 0,
    packed: Mask | bool = False,
) -> tuple[Store, ...]:
    """The distinct kinds of cache a model keeps; layers that cache alike are counted together.

    Args:
        packed: whether 8-bit latents of sparse attention are packed, [...], see `packed_latent_bytes`.
        drafts: tokens drafted for every request; the layers that do it are on the last stage as well.
    """
    kinds = [(block, stages.layers[..., kind]) for kind, block in enumerate(transformer.blocks)]
    if drafts:
        kinds.append((drafting_block(transformer), drafting_layers(transformer) * stages.last))
    found: dict[tuple[object, ...], Store] = {}
    for block, here in kinds:
        for store in mixer_stores(block.mixer, precision, layout=layout, layers=here, packed=packed):
            key = (
                store.window,
                store.chunked,
                store.folded,
                store.per_token.tobytes(),
                store.state.tobytes(),
            )
            same = found.get(key)
            found[key] = replace(store, layers=store.layers + (same.layers if same else 0.0))
    return tuple(found.values())


def mixer_stores(
    mixer: Mixer | None, precision: Precision, *, layout: Layout, layers: Array, packed: Mask | bool = False
) -> tuple[Store, ...]:
    """What one mixer keeps on one rank: a growing or windowed part, a compressed part, or a state."""
    if mixer is None:
        return ()
    cache = mixer.cache
    share = np.asarray(cache_share(mixer, layout=layout), dtype=float)[..., None]
    eight_bit = precision.kv.bits == MIXED_ENTRY_BITS
    mixed = isinstance(mixer, Compressed) and eight_bit
    element = MIXED_ENTRY_BYTES if mixed else precision.kv.bytes_per_element
    beside = cache.compressed * element + cache.index * INDEX_BYTES
    match mixer:
        case Recurrent():
            state = share * sequence_state_bytes(mixer, precision)
            return (Store(layers=layers, per_token=0 * share, state=state),)
        case Compressed():
            window = Store(
                layers=layers,
                per_token=share * cache.growing * element,
                state=0 * share,
                window=cache.window,
                entry=cache.growing * element,
            )
            if mixer.ratio is None:
                return (window,)
            index = cache.index * mixer.ratio * INDEX_BYTES
            return window, replace(
                window, per_token=share * beside, window=None, folded=mixer.ratio, index=index
            )
        case GroupedQuery() if not cache.growing:
            return ()
        case Latent(sparse_top_k=int()) if eight_bit and mixer.rope_dim:
            own = cache.growing * element
            kept = np.where(np.asarray(packed)[..., None], packed_latent_bytes(mixer), own)
            return (Store(layers=layers, per_token=share * (kept + beside), state=0 * share),)
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
    return Charge(request=request, alone=request, logged_token=token)


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
    logged = np.where(token > 0, token, request / length)
    return Charge(request=request, alone=request, logged_token=logged)


def grouped_charge(
    kept: Sequence[Store],
    *,
    allocator: Grouped,
    length: Tokens,
    in_flight: Tokens,
    own: Tokens = 1,
    states: int = 1,
) -> Charge:
    """Layers in padded groups that share pages of one size (vLLM's hybrid cache manager).

        request, alone = page x layers of a group x sum over groups of their blocks, with `own` or all tokens in flight
        shared         = page x layers of a group x windowed groups x blocks of the tokens in flight

    Args:
        in_flight: tokens of all requests that are scheduled and not yet done.
        own: of these, those of a request that writes its answer.

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
    keeping: Array = np.zeros(1)
    entering: Array = np.zeros(1)
    flying: Array = np.zeros(1)
    tokens_per_block: Array = np.full(1, np.inf)
    for store in kept:
        held = np.ceil(store.layers / np.where(size > 0, size, 1.0))
        block = page / np.where(store.per_token > 0, store.per_token, np.nan)
        groups = groups + held
        keeping, entering = (
            blocks + held * charged_blocks(store, block=block, length=length, in_flight=tokens, states=states)
            for blocks, tokens in ((keeping, np.minimum(own, in_flight)), (entering, in_flight))
        )
        if store.window:
            flying = flying + held * np.ceil(in_flight / block)
        tokens_per_block = np.fmin(tokens_per_block, np.where(store.layers > 0, block, np.nan))
    per_block = size * page * groups / np.where(np.isfinite(tokens_per_block), tokens_per_block, 1.0)
    recurrent = np.any([store.state.any(axis=-1) for store in kept], axis=0)[..., None]
    alone = size * page * entering
    return Charge(
        request=size * page * keeping,
        alone=alone,
        shared=size * page * flying,
        logged_token=per_block if allocator.logs == "blocks" else alone / length,
        state=np.where(recurrent, size * page, 0.0),
    )


PAGE = 256
"""Tokens of a page of a compressed cache."""
ALIGNED = 576
"""Bytes pages of compressed caches are rounded up to."""
WINDOW_BLOCK = 64
STATES = {4: (8, 4), 128: (128, 8)}
"""Tokens folded -> window and block of the 32-bit states they are folded from."""


def tuples_of_block(first: Array, *, kinds: Sequence[Array]) -> Array:
    """Layers of each kind that share a block: as many as leave the fewest places empty, [..., stages].

    argmin over d of the sum over kinds of ceil(layers / d) d - layers

    Args:
        first: least it may be: layers of the commonest page size among the compressed caches.
        kinds: layers of every kind.
    """
    most = int(max(np.max(kind) for kind in kinds))
    tried = np.arange(1, max(most, 1) + 1)
    empty = sum(np.ceil(kind[..., None] / tried) * tried - kind[..., None] for kind in kinds)
    return tried[np.argmin(np.where(tried >= first[..., None], empty, np.inf), axis=-1)]


def compressed_charge(kept: Sequence[Store], *, length: Tokens, in_flight: Tokens, own: Tokens = 1) -> Charge:
    """Windows, compressed caches, indices and the states they are folded from, in pages that all kinds share.

        request, alone = pages x tuples x (bytes of one page of every size), with `own` or all tokens in flight
        shared         = pages of the tokens in flight x tuples x (bytes of one page of every size)

    The states dominate: they are kept for every token of a window and of the steps in flight, four or eight to a page.
    DeepSeek-V4-Flash with 16,384 tokens a step is charged 6.66 GiB for 30,000 tokens and 5.44 for 13,528, as logged
    (vllm-project/vllm#44376); 0.14 and 0.08 GiB of it stay while it writes its answer.

    Source: vLLM vllm/v1/core/kv_cache_utils.py (`group_and_unify_kv_cache_specs`, `_approximate_gcd`,
    `_max_memory_usage_bytes_from_groups`), vllm/models/deepseek_v4/compressor.py (`CompressorStateCache`); page sizes
    as vllm-project/vllm#54703 prints them. Read 2026-11-30.
    """
    windows = [store for store in kept if store.window]
    folded = [store for store in kept if store.folded]

    def page(size: float) -> float:
        return float(np.ceil(size / ALIGNED) * ALIGNED)

    sizes = {page(PAGE / store.folded * each) for store in folded for each in (store.entry, store.index)}
    seeing = np.asarray(sum(store.layers for store in windows))
    first = np.maximum.reduce([store.layers for store in folded])
    tuples = tuples_of_block(first, kinds=[first, seeing, *(store.layers for store in folded)])
    states = [(store.layers, *STATES.get(store.folded, (store.folded, WINDOW_BLOCK))) for store in folded]
    recycled = [(seeing, windows[0].window or 0, WINDOW_BLOCK), *states]

    def kept_pages(tokens: Tokens) -> Array:
        found = np.ceil(length / PAGE)
        for layers, window, block in recycled:
            held = np.ceil(np.minimum(window - 1 + tokens, length) / block) + 1
            found = found + np.ceil(layers / tuples) * held
        return np.asarray(found)

    flying = sum(np.ceil(layers / tuples) * np.ceil(in_flight / block) for layers, _, block in recycled)
    together = tuples * sum(sorted(sizes))
    alone = kept_pages(in_flight) * together
    return Charge(
        request=kept_pages(np.minimum(own, in_flight)) * together,
        alone=alone,
        shared=np.asarray(flying * together),
        logged_token=alone / length,
    )


def charged_blocks(store: Store, *, block: Array, length: Tokens, in_flight: Tokens, states: int) -> Array:
    """Blocks of one layer for one request: one for each state, its window and what it has in flight, or all.

    Source: vLLM vllm/v1/kv_cache_interface.py, `max_memory_usage_bytes` of `MambaSpec` (1 + drafted tokens, 2 with
    prefix caching), `SlidingWindowSpec`, `ChunkedLocalAttentionSpec`, `FullAttentionSpec`. Read 2026-11-30.
    """
    if store.window is None:
        return np.where(np.isnan(block), float(states), np.ceil(length / block))
    seen = store.window + in_flight - (0 if store.chunked else 1)
    edge = 0 if store.chunked else 1
    return np.ceil(np.minimum(seen, length) / block) + edge


def charge(
    kept: Sequence[Store],
    *,
    allocator: Allocator,
    length: Tokens,
    in_flight: Tokens,
    steps: Count = 1,
    drafts: int = 0,
    prefix_caching: bool = False,
) -> Charge:
    """What an engine's allocator takes from the pool, [..., stages].

    Args:
        in_flight: tokens of all requests that are scheduled and not yet done.
        steps: steps in flight, [..., 1]; a request that writes its answer has a token and its drafts in each.
        drafts: tokens drafted for every request; vLLM keeps a recurrent state after each of them.
        prefix_caching: prompts are looked up in the cache of earlier ones.
    """
    match allocator:
        case Exact():
            return exact_charge(kept, block=allocator.block, length=length, windows=allocator.windows)
        case TwoPools():
            return two_pool_charge(kept, share=allocator.share, length=length)
        case Grouped():
            own = steps * (1 + drafts)
            if any(store.folded for store in kept):
                return compressed_charge(kept, length=length, in_flight=in_flight, own=own)
            states = 1 + drafts + prefix_caching * allocator.prefix_states
            return grouped_charge(
                kept, allocator=allocator, length=length, in_flight=in_flight, own=own, states=states
            )
