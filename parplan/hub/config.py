"""A `config.json` as a `Transformer`: from the presence of fields, with what its class knows besides."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from parplan.hub.attention import compressed, grouped_query, hidden_size, latent
from parplan.hub.families import Family, family_of
from parplan.hub.feed_forward import dense, experts
from parplan.hub.fields import LONGEST, ConfigError, Fields, shown
from parplan.hub.images import image_encoder
from parplan.hub.pattern import Kinds, layer_count, layer_kinds, listed_kinds
from parplan.hub.quantization import Layers, native_formats
from parplan.hub.recurrent import recurrent
from parplan.hub.towers import tower_parameters, vision_tower
from parplan.mixers import Compressed, Mixer
from parplan.transformer import Block, Transformer

LANGUAGE = ("text_config", "llm_config", "language_config")
ENCODERS = (
    "albert", "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "blenderbot", "blenderbot-small",
    "camembert", "canine", "clip", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm",
    "longformer", "marian", "mbart", "megatron-bert", "modernbert", "mpnet", "mra", "nystromformer", "pegasus",
    "plbart", "prophetnet", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "siglip",
    "squeezebert", "t5", "trocr", "vit", "whisper", "xlm-roberta", "xlm-roberta-xl", "xmod", "yoso",
)  # fmt: skip
"""Model types built for other tasks, though some can be made to generate."""
UNSUPPORTED = {
    **dict.fromkeys(
        ("falcon_h1", "hymba", "zamba", "zamba2"), "attention and Mamba side by side or shared by layers"
    ),
    **dict.fromkeys(
        ("rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"), "a recurrence without attention heads or Mamba states"
    ),
    "bailing_moe_linear": "lightning attention with grouped norms",
    "doge": "experts looked up by product keys",
    "hrm_text": "layers that run several times",
    "ernie4_5_vl_moe": "experts of their own for images",
    "inkling": "convolutions beside attention",
    "mllama_text_model": "cross-attention to images",
    "jetmoe": "experts inside attention",
    "phi3small": "block-sparse attention",
    "recurrent_gemma": "gated linear recurrences",
}
"""Model types whose layers cannot be described here, and what they have."""
OTHER_TASKS = (
    "MaskedLM",
    "Classification",
    "QuestionAnswering",
    "VisionModel",
    "CLIPModel",
    "Whisper",
    "T5",
    "Bert",
)
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "n_ctx",
)
BY_LAYER = (
    "per_layer_config",
    "block_configs",
    "sparse_attention_config",
    "indexer_types",
    "num_kv_shared_layers",
)
"""Fields that make a layer's size depend on its number, beside lists of numbers."""
MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")


def transformer_from_config(
    config: Mapping[str, object], *, name: str, quantization: Mapping[str, object] | None = None
) -> Transformer:
    """The architecture a config describes, its parameters counted exactly where its class is known.

    Args:
        config: content of a `config.json`, parsed.
        name: Hub-style id, or what else to call it.
        quantization: content of a separate `hf_quant_config.json`, if there is one.

    Raises:
        ConfigError: it is not the config of a decoder language model, or it contradicts itself. The message says
            what was wrong and what was looked for.

    What had to be guessed is in `assumed`, in words.

    >>> tiny = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    ...         "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 512}
    >>> transformer_from_config(tiny, name="tiny").total_parameters
    95040
    """
    whole = Fields.of(config, notes=[], where="a config")
    _refuse_other_tasks(whole)
    try:
        return _transformer(whole, _language_part(whole), name=name, quantization=quantization)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the config makes no sense: {where} {first['msg'].lower()}") from error


def _refuse_other_tasks(config: Fields) -> None:
    """Only decoders are planned for; a BERT has all the fields of one."""
    kinds = config.words("architectures") or ()
    if config.flag("is_encoder_decoder", default=False):
        raise ConfigError("an encoder-decoder model: only decoder language models can be planned for")
    if kinds and all(any(task in kind for task in OTHER_TASKS) for kind in kinds):
        raise ConfigError(f"{shown(kinds[0])} is not a decoder language model")
    if config.text("model_type") in ENCODERS:
        raise ConfigError(f"{shown(config.text('model_type'))} is not a decoder language model")


def _refuse_unsupported(text: Fields) -> None:
    reason = UNSUPPORTED.get(text.text("model_type").removesuffix("_text"))
    if reason:
        raise ConfigError(f"models of type {shown(text.text('model_type'))} are not supported: {reason}")


def _language_part(config: Fields) -> Fields:
    """The language model's fields: nested, or the whole config.

    A nested part may be sparse: what it leaves out has the value of its class. Fields it lacks and that stand
    beside it (Qwen2-VL) are found there.
    """
    nested = config.part(*LANGUAGE)
    if not nested.raw:
        return config
    raw = dict(nested.raw)
    if "hidden_size" not in raw and config.has("hidden_size"):
        raw = {**config.raw, **raw}
    raw.setdefault("model_type", config.raw.get("model_type"))
    fields = Fields(raw, config.notes)
    defaults = family_of(fields).defaults
    missing = sorted(set(defaults) - {key for key, value in raw.items() if value is not None})
    if missing:
        fields.assume(
            f"{', '.join(missing)} not in text_config: taken from the class defaults of {raw['model_type']}"
        )
    return Fields({**raw, **{key: defaults[key] for key in missing}}, config.notes)


def _transformer(
    config: Fields, text: Fields, *, name: str, quantization: Mapping[str, object] | None
) -> Transformer:
    _refuse_unsupported(text)
    if len(text.raw) > LONGEST:
        raise ConfigError(f"the config has {len(text.raw)} fields, more than {LONGEST}")
    family = family_of(text)
    hidden = hidden_size(text)
    vocabulary = text.count("vocab_size", "padded_vocab_size", "n_vocab", what="vocabulary")
    layers = layer_count(text)
    mixers, feed_forwards = layer_kinds(text, family, layers=layers)
    stack = _stack(text, family, mixers=mixers, feed_forwards=feed_forwards, layers=layers)
    numbers: dict[Block, int] = {}
    sequence = tuple(numbers.setdefault(block, len(numbers)) for block in stack)
    blocks = tuple(numbers)
    context = _context_length(text, family)
    tied = _tied(config, text, family)
    lookup = _lookup_table(text, layers=layers)
    formats, kv_format = native_formats(
        config, text, separate=quantization, layers=Layers.of(blocks, sequence)
    )
    found = Transformer(
        name=name,
        family=(config.words("architectures") or (text.text("model_type") or "unknown",))[0],
        hidden=hidden,
        vocabulary=vocabulary,
        context_length=context,
        blocks=blocks,
        sequence=sequence,
        embedding=_embedding(text, family, hidden=hidden, vocabulary=vocabulary, context=context) + lookup,
        lookup=lookup,
        head=0 if tied else vocabulary * (hidden + text.flag("lm_head_bias", default=family.head_bias)),
        final_norm=_norm(hidden, family),
        other=_outside_layers(text, hidden=hidden, layers=layers),
        vision=tower_parameters(config, text_hidden=hidden),
        encoder=image_encoder(config, vision_tower(config), text_hidden=hidden),
        mtp=_multi_token_prediction(text, family, mixers=mixers, feed_forwards=feed_forwards, layers=layers),
        native_kv=kv_format or _served_kv(blocks),
    )
    there = {*found.components, *(["mtp"] if found.mtp else [])}
    native = {component: stored for component, stored in sorted(formats.items()) if component in there}
    return found.model_copy(update={"native": native, "assumed": tuple(config.notes)})


def _served_kv(blocks: Iterable[Block]) -> str | None:
    """The KV format a model is served in where its config names none: attention over compressed copies keeps FP8.

    Source: vLLM PR 55134 (2026-09-03): DeepSeek-V4's own serving format, and in vLLM the only one but on B200.
    """
    return "fp8" if any(isinstance(block.mixer, Compressed) for block in blocks) else None


def _stack(text: Fields, family: Family, *, mixers: Kinds, feed_forwards: Kinds, layers: int) -> list[Block]:
    """Every layer, first to last. A LongCat layer is two: attention and dense part twice, experts once."""
    if text.text("model_type") == "longcat_flash":
        pair = [_block(text, family, "full", "both", layer=0), _block(text, family, "full", "dense", layer=0)]
        return pair * layers
    lists = _lists(text)
    built: dict[tuple[object, ...], Block] = {}
    stack = []
    for layer in range(layers):
        kind = (mixers[layer], feed_forwards[layer], *_of_its_own(text, lists, layer=layer))
        if kind not in built:
            own = _with_own_fields(text, layer=layer)
            built[kind] = _block(own, family, mixers[layer], feed_forwards[layer], layer=layer)
        stack.append(built[kind])
    return stack


def _lists(text: Fields) -> tuple[Sequence[object], ...]:
    """Fields that may hold one entry per layer."""
    return tuple(value for value in text.raw.values() if isinstance(value, list | tuple) and value)


def _of_its_own(text: Fields, lists: tuple[Sequence[object], ...], *, layer: int) -> tuple[object, ...]:
    """What may tell a layer from others of its kind: its entries in lists of numbers, or else its number."""
    if text.has(*BY_LAYER):
        return (layer,)
    entries = (value[min(layer, len(value) - 1)] for value in lists)
    return tuple(entry if isinstance(entry, int | float) else None for entry in entries)


def _with_own_fields(text: Fields, *, layer: int) -> Fields:
    """The config as one layer sees it: `per_layer_config` holds, by number, the fields that differ."""
    every = text.part("per_layer_config")
    if not every.raw:
        return text
    own = every.part(str(layer), f"{layer:02d}", f"{layer:03d}")
    return Fields({**text.raw, **own.raw}, text.notes) if own.raw else text


def _block(text: Fields, family: Family, mixer: str, feed_forward: str, *, layer: int) -> Block:
    """One layer of given kinds."""
    hidden = hidden_size(text)
    has_experts = feed_forward in ("experts", "both")
    beside = text.flag("enable_moe_block", default=False) and has_experts  # Gemma-4: dense part and experts
    parts = (mixer != "none") + (feed_forward != "none")
    return Block(
        mixer=_mixer(text, family, mixer, layer=layer),
        dense=dense(text, family, layer=layer) if beside or feed_forward in ("dense", "both") else None,
        experts=experts(text, family, layer=layer) if has_experts else None,
        norms=(_layer_norms(text, family, parts=parts, beside=beside) + has_experts * family.expert_norms)
        * _norm(hidden, family),
        other=_other(text, hidden=hidden)
        + ((mixer == "linear") + (feed_forward == "linear")) * hidden * hidden,
    )


def _mixer(text: Fields, family: Family, kind: str, *, layer: int) -> Mixer | None:
    if kind.startswith("ratio-"):
        return compressed(text, ratio=int(kind.removeprefix("ratio-")), layer=layer)
    if kind == "recurrent":
        return recurrent(text, layer=layer)
    if kind in ("none", "linear"):
        return None
    if text.has("kv_lora_rank"):
        return latent(text, family, layer=layer)
    return grouped_query(text, family, kind=kind, layer=layer)


def _norm(hidden: int, family: Family) -> int:
    return hidden * family.norm_weights * (2 if family.norm_bias else 1)


def _layer_norms(text: Fields, family: Family, *, parts: int, beside: bool) -> int:
    """Norms of the hidden width: one or two per part; Falcon's parallel layers have one, its newer ones two."""
    if text.text("model_type") == "falcon":
        parallel = text.flag("parallel_attn", default=True)
        newer = text.flag("new_decoder_architecture", default=False)
        return 1 if parallel and not newer else 2
    per_layer = text.number("hidden_size_per_layer_input", least=0)
    extra = (3 if beside else 0) + (1 if per_layer else 0)
    parallel = text.text("model_type") == "stablelm" and text.flag("use_parallel_residual", default=False)
    if family.norms == 1 or parallel:
        return 1 + extra
    around = text.flag("use_post_norm", "use_sandwich_norm", default=family.norms == 4)
    return (2 if around else 1) * parts + extra


def _other(text: Fields, *, hidden: int) -> int:
    """Per layer: hyper-connections around both parts (DeepSeek-V4), gates for per-layer inputs (Gemma-4 E models),
    AltUp and Laurel (Gemma-3n)."""
    streams = text.number("hc_mult", most=64) or 0
    mixed = (2 + streams) * streams
    connections = 2 * (mixed * streams * hidden + mixed + 3) if streams else 0
    per_layer = text.number("hidden_size_per_layer_input", least=0) or 0
    copies = text.number("altup_num_inputs", most=64) or 0
    alternating = hidden * (copies + 2) + copies**2 + copies**3 if copies else 0
    rank = text.number("laurel_rank") or 0
    return connections + 2 * hidden * per_layer + alternating + (2 * hidden * rank + hidden if rank else 0)


def _outside_layers(text: Fields, *, hidden: int, layers: int) -> int:
    """Outside the layers: the hyper-connections' head, the per-layer inputs' projection and norm, AltUp's projections,
    BLOOM's first norm, OPT's projections where its embedding is narrower than its layers."""
    per_layer = text.number("hidden_size_per_layer_input", least=0) or 0
    inputs = hidden * layers * per_layer + per_layer
    bloom = 2 * hidden if text.text("model_type") == "bloom" else 0
    copies = text.number("altup_num_inputs", most=64) or 1
    narrow = text.number("word_embed_proj_dim") or hidden
    projected = 2 * hidden * narrow if narrow != hidden else 0
    return _stream_head(text, hidden=hidden) + inputs + 2 * (copies - 1) * hidden * hidden + bloom + projected


def _stream_head(text: Fields, *, hidden: int) -> int:
    streams = text.number("hc_mult", most=64) or 0
    return streams * streams * hidden + streams + 1 if streams else 0


def _lookup_table(text: Fields, *, layers: int) -> int:
    """Per-layer embeddings, looked up and never multiplied (Gemma-4 E models)."""
    per_layer = text.number("hidden_size_per_layer_input", least=0) or 0
    return layers * per_layer * text.count("vocab_size_per_layer_input") if per_layer else 0


def _embedding(text: Fields, family: Family, *, hidden: int, vocabulary: int, context: int) -> int:
    """Input embedding, learned positions included."""
    width = text.number("word_embed_proj_dim") or hidden
    positions = 0 if family.positions is None else (context + family.positions) * hidden
    return vocabulary * width + positions


def _context_length(text: Fields, family: Family) -> int:
    """Longest sequence the model was made for. Cohere's older files keep it in `model_max_length`."""
    named = text.number(*CONTEXT) or text.part("attn_config").number("max_seq_len")
    longer = text.number("model_max_length")
    known = max(named or 0, longer or 0)
    if known:
        return known
    assumed = family.context or 4096
    text.assume(f"context length not stated: assumed {assumed}")
    return assumed


def _tied(config: Fields, text: Fields, family: Family) -> bool:
    """Whether the head is the embedding: the whole model's word, then the language part's, then its class's."""
    for fields in (config, text):
        if fields.has("tie_word_embeddings"):
            return fields.flag("tie_word_embeddings", default=False)
    if not family.known:
        text.assume("tie_word_embeddings not stated: assumed an output head of its own")
    return family.tied


def _multi_token_prediction(
    text: Fields, family: Family, *, mixers: Kinds, feed_forwards: Kinds, layers: int
) -> int:
    """Parameters of the multi-token-prediction layers.

    Each is one more layer of the model, a projection of two hidden states into one, and norms of both and of the
    result; embedding and head are the model's own, copies in the file are not counted. Checked against the Hub's
    totals of DeepSeek-V3, GLM-4.5, GLM-5, Qwen3.5, Nemotron-3 and DeepSeek-V4.
    """
    modules = text.number(*MTP, least=0, most=64)
    if modules is None:
        modules = family.mtp
        if modules:
            text.assume(
                f"multi-token prediction not stated: assumed {modules}, as in the released checkpoint"
            )
    if not modules:
        return 0
    if not family.mtp_shipped:
        text.assume(
            "multi-token-prediction layers are announced, but not in the released checkpoint: not counted"
        )
        return 0
    hidden = hidden_size(text)
    joint = 2 * hidden * hidden + 3 * _norm(hidden, family) + _stream_head(text, hidden=hidden)
    return sum(
        joint
        + sum(
            _parameters(block) for block in _module(text, family, mixers, feed_forwards, layer=layers + index)
        )
        for index in range(modules)
    )


def _module(
    text: Fields, family: Family, mixers: Kinds, feed_forwards: Kinds, *, layer: int
) -> Sequence[Block]:
    """The layers of one multi-token-prediction module, from a pattern of its own or as the model would go on."""
    listed = listed_kinds(text, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if listed:
        return [_block(text, family, mixer, part, layer=layer) for mixer, part in listed]
    part = "dense" if family.mtp_dense else feed_forwards[min(layer, len(feed_forwards) - 1)]
    return [_block(text, family, mixers[min(layer, len(mixers) - 1)], part, layer=layer)]


def _parameters(block: Block) -> int:
    return sum(block.parameters().values())
