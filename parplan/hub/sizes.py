"""A plausible architecture of any size, from a rule fitted to the catalogue.

Dense, fitted in logarithms to 35 models of 0.36 B to 406 B (Llama-3, Qwen2.5, Qwen3, Mistral, OLMo-2 and 3, Phi-4,
Granite, Command A, Devstral, SmolLM):

    hidden = exp(-1.429) parameters^0.422      layers = exp(-1.569) parameters^0.231

Mixtures of experts, fitted to 46 of 7 B to 2.8 T (Mixtral to Kimi-K3), go by the parameters a token uses:

    hidden = exp(-0.421) active^0.375          layers = exp(-3.204) active^0.303

Heads of 128 elements, 8 KV heads and the Llama-3 vocabulary are the catalogue's medians; feed-forward width and the
number of experts take up what is left. Rounded so that engines can cut them: hidden widths to 1024, so that heads come
in eights, dense widths to 256, experts to eights.
"""

import math
from collections.abc import Iterator

from parplan.mixers import GroupedQuery
from parplan.transformer import Block, Dense, Experts, Transformer

SMALLEST, LARGEST = 0.3e9, 4e12
HEAD_DIM = 128
KV_HEADS = 8
VOCABULARY = 128_256
CONTEXT = 131_072
TIED_BELOW = 4e9
"""Dense models below this mostly share embedding and head."""
CHOSEN = (8, 6, 4, 2, 1, 7, 5, 3)
"""Experts per token, the most usual first."""
MOST_EXPERTS = 1024
CLOSE = 0.7
"""Close enough to stop looking, in units of what is allowed: 1.4 % of the total, 3.5 % of the active parameters."""


def transformer_of_size(total: float, *, active: float | None = None) -> Transformer:
    """A plausible dense model, or mixture of experts, of a given size.

    Args:
        total: parameters, 0.3e9 to 4e12; met within 2 %.
        active: parameters a token uses, for a mixture of experts; met within 5 %. None: dense.

    Raises:
        ValueError: a size outside the limits, or too few active parameters for attention and embedding.

    The architecture is in `assumed`, in words.

    >>> transformer_of_size(70e9).assumed
    ('dense, 67 layers of width 9216, 72 query and 8 KV heads of 128, feed-forward width 29696, vocabulary 128256',)
    """
    if not SMALLEST <= total <= LARGEST:
        raise ValueError(f"{total:.3g} parameters: a model can have {_named(SMALLEST)} to {_named(LARGEST)}")
    if active is None:
        return _best(_dense_models(total), total=total, active=total)
    if not 0 < active < total:
        raise ValueError(f"{active:.3g} active parameters do not fit into {total:.3g}")
    return _best(_mixtures(total, active), total=total, active=active)


def _best(models: Iterator[Transformer], *, total: float, active: float) -> Transformer:
    """The first model, in order of plausibility, that is close enough; else the closest.

    Raises:
        ValueError: even the closest misses the total by more than 2 %, or the active parameters by more than 5 %.
    """
    best: Transformer | None = None
    for model in models:
        if best is None or _miss(model, total=total, active=active) < _miss(best, total=total, active=active):
            best = model
        if _miss(best, total=total, active=active) < CLOSE:
            return best
    if best is None or _miss(best, total=total, active=active) > 1:
        raise ValueError(
            f"no plausible model has {total:.3g} parameters and uses {active:.3g} of them: "
            "embedding, attention and whole experts do not come out at that"
        )
    return best


def _miss(model: Transformer, *, total: float, active: float) -> float:
    """How far off a model is, in units of what is allowed."""
    return max(
        abs(model.total_parameters / total - 1) / 0.02, abs(model.active_parameters / active - 1) / 0.05
    )


def _fitted(parameters: float, *, factor: float, exponent: float) -> float:
    return math.exp(factor + exponent * math.log(parameters))


def _rounded(value: float, *, step: int) -> int:
    return max(step, round(value / step) * step)


def _attention(hidden: int) -> GroupedQuery:
    heads = hidden // HEAD_DIM
    return GroupedQuery(hidden=hidden, heads=heads, kv_heads=KV_HEADS, head_dim=HEAD_DIM, value_dim=HEAD_DIM)


def _dense_models(total: float) -> Iterator[Transformer]:
    """Candidates around the fitted depth; the feed-forward width takes up what is left."""
    hidden = _rounded(_fitted(total, factor=-1.429, exponent=0.422), step=1024)
    depth = round(_fitted(total, factor=-1.569, exponent=0.231))
    attention = _attention(hidden)
    tied = total < TIED_BELOW
    for layers in _around(depth, 2):
        per_layer = (
            (total - (1 if tied else 2) * VOCABULARY * hidden) / layers - attention.cut.total - 2 * hidden
        )
        width = round(per_layer / (3 * hidden) / 256) * 256
        if width <= 0:
            continue
        words = f"dense, {_shape(attention, layers)}, feed-forward width {width}, vocabulary {VOCABULARY}"
        block = Block(mixer=attention, dense=Dense(inputs=hidden, width=width), norms=2 * hidden)
        yield _model(f"dense {_named(total)}", block, layers=layers, tied=tied, words=words)


def _mixtures(total: float, active: float) -> Iterator[Transformer]:
    """Candidates around the fitted depth and width; the experts' number and width take up what is left."""
    depth = round(_fitted(active, factor=-3.204, exponent=0.303))
    widest = _rounded(_fitted(active, factor=-0.421, exponent=0.375), step=1024)
    for hidden in range(widest, 0, -1024):
        attention = _attention(hidden)
        for chosen in CHOSEN:
            for layers in _around(depth, 6):
                yield from _expert_choices(total, active, attention=attention, layers=layers, chosen=chosen)


def _expert_choices(
    total: float, active: float, *, attention: GroupedQuery, layers: int, chosen: int
) -> Iterator[Transformer]:
    """Experts in eights, as many as the ratio of stored to used parameters asks for."""
    hidden = attention.hidden
    tied = total < TIED_BELOW
    shared = (1 if tied else 2) * VOCABULARY * hidden + layers * (attention.cut.total + 2 * hidden)
    if shared > 0.7 * active:
        return
    count = _rounded(chosen * (total - shared) / (active - shared), step=8)
    if count > MOST_EXPERTS or count < chosen:
        return
    per_expert = (total - shared - layers * hidden * count) / (layers * count)
    width = round(per_expert / (3 * hidden) / 64) * 64
    if width <= 0:
        return
    experts = Experts(count=count, chosen=chosen, inputs=hidden, width=width, router=hidden * count)
    words = (
        f"mixture of experts, {_shape(attention, layers)}, {count} experts of width {width} in every layer, "
        f"{chosen} per token, vocabulary {VOCABULARY}"
    )
    block = Block(mixer=attention, experts=experts, norms=2 * hidden)
    name = f"mixture of experts {_named(total)}, {_named(active)} active"
    yield _model(name, block, layers=layers, tied=tied, words=words)


def _around(depth: int, reach: int) -> list[int]:
    """Numbers of layers, the nearest to the fitted one first.

    >>> _around(30, 2)
    [30, 29, 31, 28, 32]
    """
    near = range(max(4, depth - reach), depth + reach + 1)
    return sorted(near, key=lambda layers: (abs(layers - depth), layers))


def _shape(attention: GroupedQuery, layers: int) -> str:
    return (
        f"{layers} layers of width {attention.hidden}, "
        f"{attention.heads} query and {attention.kv_heads} KV heads of {attention.head_dim}"
    )


def _named(parameters: float) -> str:
    """A size for people: 70B, 1.2T, 0.5B."""
    return f"{parameters / 1e12:.3g}T" if parameters >= 1e12 else f"{parameters / 1e9:.3g}B"


def _model(name: str, block: Block, *, layers: int, tied: bool, words: str) -> Transformer:
    hidden = block.norms // 2
    return Transformer(
        name=name,
        family="by size",
        hidden=hidden,
        vocabulary=VOCABULARY,
        context_length=CONTEXT,
        blocks=(block,),
        sequence=(0,) * layers,
        embedding=VOCABULARY * hidden,
        head=0 if tied else VOCABULARY * hidden,
        final_norm=hidden,
        assumed=(words,),
    )
