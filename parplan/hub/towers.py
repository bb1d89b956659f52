"""Vision and audio towers with their projectors: extra weights beside the language model.

Each formula counts one published tower as its class in transformers 5.24.0 builds it (read 2026-11-29).
"""

from collections.abc import Callable

from parplan.hub.fields import ConfigError, Fields

LLAMA4 = {"hidden_size": 1408, "image_size": 336, "intermediate_size": 5632, "num_channels": 3,
          "num_hidden_layers": 34, "patch_size": 14, "projector_input_dim": 4096, "projector_output_dim": 4096,
          "vision_output_dim": 4096}  # fmt: skip
"""The tower both released Llama 4 models have (their config.json)."""
STEP = {"hidden_size": 1536, "image_size": 728, "intermediate_size": 8960, "num_channels": 3,
        "num_hidden_layers": 47, "patch_size": 14}  # fmt: skip
"""The tower of Step-3.7 (class default)."""


def tower_parameters(config: Fields, *, text_hidden: int) -> int:
    """Parameters of all towers and projectors of a config; 0 for a pure language model.

    Args:
        config: the whole config, towers beside the language model.
        text_hidden: hidden width of the language model, which projectors end in.
    """
    tower = vision_tower(config)
    vision = _vision(config, tower, text_hidden=text_hidden) if tower.raw else 0
    return vision + _audio(config, text_hidden=text_hidden)


def vision_tower(config: Fields) -> Fields:
    """The vision tower's own config; that of the released models where a config leaves it out, empty without one."""
    tower = config.part("vision_config", "vision_tower_config", "vit_config")
    assumed = {"llama4": LLAMA4, "step3p7": STEP}.get(config.text("model_type"))
    if tower.raw or assumed is None:
        return tower
    config.assume("vision_config is missing: counted with the vision tower of the released models")
    return Fields(assumed, config.notes)


def _vision(config: Fields, tower: Fields, *, text_hidden: int) -> int:
    counts: dict[str, Callable[[Fields, Fields, int], int]] = {
        "llava": llava, "llava_next": llava, "internvl": internvl, "internvl_chat": internvl,
        "idefics3": idefics3, "smolvlm": idefics3, "paligemma": paligemma, "cohere2_vision": cohere2_vision,
        "glm4v": glm4v, "glm4v_moe": glm4v, "glm46v": glm4v,
        "gemma3": siglip_gemma3, "gemma4": gemma4, "mistral3": pixtral, "llama4": llama4, "step3p7": step,
        "kimi_vl": moonvit, "kimi_k25": moonvit, "kimi_k3": moonvit3,
        "minimax_m3": minimax_m3, "minimax_m3_vl": minimax_m3,
        "qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl, "qwen3_vl": qwen3_vl, "qwen3_vl_moe": qwen3_vl,
        "qwen3_5": qwen3_vl, "qwen3_5_moe": qwen3_vl,
    }  # fmt: skip
    count = counts.get(config.text("model_type"))
    return count(config, tower, text_hidden) if count else plain(config, tower, text_hidden)


def tower_size(tower: Fields, *names: str, default: int | None = None) -> int:
    """A size of a vision tower, by the first of its names that is there."""
    return tower.count(*names, default=default, most=1_000_000, what=f"vision tower's {names[0]}")


def _layers(tower: Fields) -> int:
    return tower.count("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers", "num_layers", most=2048,
                       what="vision tower's number of layers")  # fmt: skip


def _vit_layer(hidden: int, width: int) -> int:
    """Attention, a two-matrix feed-forward part and two LayerNorms, all with biases."""
    return 4 * (hidden * hidden + hidden) + 2 * hidden * width + width + hidden + 4 * hidden


def plain(config: Fields, tower: Fields, text_hidden: int) -> int:
    """A vision transformer of unknown kind, as the plainest one of its size: an estimate, and said to be one."""
    hidden = tower_size(tower, "hidden_size", "embed_dim", "width", "vt_hidden_size")
    width = tower_size(tower, "intermediate_size", "vt_intermediate_size", default=4 * hidden)
    total = _layers(tower) * _vit_layer(hidden, width) + hidden * text_hidden + text_hidden * text_hidden
    config.assume(f"vision tower of unknown kind: estimated as a plain one, {total:,} parameters")
    return total


def siglip(tower: Fields, *, head: bool) -> int:
    """SigLIP: patches and positions with biases, a plain body, a last norm, maybe a pooling head.

    Args:
        tower: its config.
        head: what the class does where the config does not say `vision_use_head`.
    """
    hidden, patch, width = (
        tower_size(tower, "hidden_size"),
        tower_size(tower, "patch_size"),
        tower_size(tower, "intermediate_size"),
    )
    positions = (tower_size(tower, "image_size") // patch) ** 2
    patches = 3 * patch * patch * hidden + hidden + positions * hidden
    pooling = _vit_layer(hidden, width) - 2 * hidden + hidden  # one norm less, a learned query more
    pooled = tower.flag("vision_use_head", default=head)
    return patches + _layers(tower) * _vit_layer(hidden, width) + 2 * hidden + pooled * pooling


def siglip_gemma3(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Gemma-3: SigLIP with a one-matrix projector and its norm."""
    del config
    hidden = tower_size(tower, "hidden_size")
    return siglip(tower, head=True) + hidden * text_hidden + hidden


def paligemma(config: Fields, tower: Fields, text_hidden: int) -> int:
    """PaliGemma: SigLIP with one matrix and its bias."""
    del config
    out = tower_size(tower, "projection_dim", default=text_hidden)
    return siglip(tower, head=True) + tower_size(tower, "hidden_size") * out + out


def idefics3(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Idefics3 and SmolVLM: SigLIP without a head, and one matrix over merged patches."""
    merge = config.count("scale_factor", default=2, most=64)
    return siglip(tower, head=False) + tower_size(tower, "hidden_size") * merge * merge * text_hidden


def cohere2_vision(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Command-A Vision: SigLIP and a gated projector over merged patches."""
    inner = config.count("alignment_intermediate_size", default=36864)
    merged = tower_size(tower, "hidden_size") * config.count("downsample_factor", default=2, most=64) ** 2
    return siglip(tower, head=True) + merged * inner + inner + inner // 2 * text_hidden + text_hidden


def llava(config: Fields, tower: Fields, text_hidden: int) -> int:
    """LLaVA: CLIP with a class token and norms before and after, a projector of two matrices."""
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    positions = (tower_size(tower, "image_size") // patch) ** 2 + 1
    patches = hidden + 3 * patch * patch * hidden + positions * hidden + 4 * hidden
    bias = config.flag("multimodal_projector_bias", default=True)
    projector = hidden * text_hidden + text_hidden * text_hidden + bias * 2 * text_hidden
    row = text_hidden * (config.text("model_type") == "llava_next")  # learned end of an image's row
    return (
        patches
        + _layers(tower) * _vit_layer(hidden, tower_size(tower, "intermediate_size"))
        + projector
        + row
    )


def internvl(config: Fields, tower: Fields, text_hidden: int) -> int:
    """InternVL: layer scales, a class token, learned positions, a normed projector over merged patches."""
    hidden = tower_size(tower, "hidden_size")
    image, patch = _side(tower, "image_size", default=448), _side(tower, "patch_size", default=14)
    patches = 3 * patch * patch * hidden + 2 * hidden + ((image // patch) ** 2 + 1) * hidden
    unbiased = 3 * hidden * (not tower.flag("attention_bias", "qkv_bias", default=False))
    layer = _vit_layer(hidden, tower_size(tower, "intermediate_size")) - unbiased + 2 * hidden
    ratio = config.real("downsample_ratio") or 0.5
    merged = int(hidden / ratio**2)
    projector = 2 * merged + merged * text_hidden + text_hidden + text_hidden * text_hidden + text_hidden
    return patches + _layers(tower) * layer + projector


def _side(tower: Fields, name: str, *, default: int) -> int:
    """A side that may be written as height and width."""
    hit = tower.found(name)
    if hit is not None and isinstance(hit[1], list | tuple):
        return (tower.numbers(name, least=1) or (default,))[0]
    return tower_size(tower, name, default=default)


def glm4v(config: Fields, tower: Fields, text_hidden: int) -> int:
    """GLM-4.1V and GLM-4.5V: gated feed-forward, RMS norms, a convolution that merges, a gated merger."""
    del config
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    out, width = (
        tower_size(tower, "out_hidden_size", default=text_hidden),
        tower_size(tower, "intermediate_size"),
    )
    positions = (tower_size(tower, "image_size") // patch) ** 2
    layer = 4 * hidden * hidden + 3 * hidden * out + 2 * hidden
    merging = hidden * out * tower_size(tower, "spatial_merge_size", default=2) ** 2 + out
    merger = out * out + 2 * out + 3 * out * width
    patches = _frame_patches(tower, hidden) + hidden + positions * hidden + 2 * hidden
    return patches + _layers(tower) * layer + merging + merger


def gemma4(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Gemma-4's tower: gated feed-forward, four norms a layer, per-head norms, a table of two-axis positions."""
    del config
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    heads, head = tower_size(tower, "num_attention_heads"), tower_size(tower, "head_dim")
    kv_heads = tower_size(tower, "num_key_value_heads", default=heads)
    attention = 2 * hidden * heads * head + 2 * hidden * kv_heads * head + 2 * head
    layer = attention + 3 * hidden * tower_size(tower, "intermediate_size") + 4 * hidden
    patches = 3 * patch * patch * hidden + 2 * tower_size(tower, "position_embedding_size") * hidden
    return patches + _layers(tower) * layer + hidden * text_hidden


def pixtral(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Pixtral tower of Mistral-3: no biases, RMS norms, a patch merger and a two-matrix projector."""
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    layer = 4 * hidden * hidden + 3 * hidden * tower_size(tower, "intermediate_size") + 2 * hidden
    merge = config.count("spatial_merge_size", default=2, most=64)
    bias = config.flag("multimodal_projector_bias", default=False)
    projector = (
        hidden
        + merge * merge * hidden * hidden
        + hidden * text_hidden
        + text_hidden * text_hidden
        + bias * 2 * text_hidden
    )
    return 3 * patch * patch * hidden + hidden + _layers(tower) * layer + projector


def llama4(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Llama 4's tower: a class token, learned positions, a pixel-shuffle adapter."""
    del config
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    positions = (tower_size(tower, "image_size") // patch) ** 2 + 1
    width, inner = tower_size(tower, "intermediate_size"), tower_size(tower, "projector_input_dim")
    outer = tower_size(tower, "projector_output_dim")
    patches = 3 * patch * patch * hidden + hidden + positions * hidden + 4 * hidden
    adapter = width * inner + outer * outer
    return (
        patches
        + _layers(tower) * _vit_layer(hidden, width)
        + adapter
        + (tower_size(tower, "vision_output_dim") * text_hidden)
    )


def step(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Step-3.7's tower: layer scales, learned positions, two convolutions that halve the grid."""
    hidden, patch = tower_size(tower, "hidden_size", "width"), tower_size(tower, "patch_size")
    positions = (tower_size(tower, "image_size") // patch) ** 2
    width = tower_size(
        tower, "intermediate_size", default=int((tower.real("mlp_ratio") or 0) * hidden) or None
    )
    layer = _vit_layer(hidden, width) + 2 * hidden
    halving = 9 * hidden * 2 * hidden + 2 * hidden + 9 * 2 * hidden * 4 * hidden + 4 * hidden
    patches = 3 * patch * patch * hidden + positions * hidden + 2 * hidden
    bias = config.flag("projector_bias", default=False)
    return patches + _layers(tower) * layer + halving + 4 * hidden * text_hidden + bias * text_hidden


def moonvit(config: Fields, tower: Fields, text_hidden: int) -> int:
    """MoonViT of Kimi-VL and Kimi-K2.5: a learned grid of positions and a projector over merged patches."""
    del config
    hidden, patch = tower_size(tower, "vt_hidden_size", "hidden_size"), tower_size(tower, "patch_size")
    grid = tower_size(tower, "init_pos_emb_height", default=64) * tower_size(
        tower, "init_pos_emb_width", default=64
    )
    width = tower_size(tower, "vt_intermediate_size", "intermediate_size")
    body = _layers(tower) * _vit_layer(hidden, width) + 2 * hidden
    patches = 3 * patch * patch * hidden + hidden + grid * hidden
    merged = hidden * _merged(tower)
    projector = 2 * hidden + merged * merged + merged + merged * text_hidden + text_hidden
    return patches + body + projector


def _merged(tower: Fields) -> int:
    """Patches that become one token."""
    sides = tower.numbers("merge_kernel_size", least=1) or (2, 2)
    return sides[0] * sides[-1]


def moonvit3(config: Fields, tower: Fields, text_hidden: int) -> int:
    """The tower of Kimi-K3: as MoonViT, without biases, with RMS norms and wider heads."""
    config.assume(
        "vision tower of Kimi-K3: counted from its fields, its class is not published in transformers"
    )
    hidden, patch = tower_size(tower, "vt_hidden_size"), tower_size(tower, "patch_size")
    inner, width = tower_size(tower, "qkv_hidden_size"), tower_size(tower, "vt_intermediate_size")
    grid = tower_size(tower, "init_pos_emb_height") * tower_size(tower, "init_pos_emb_width")
    layer = 4 * hidden * inner + 2 * hidden * width + 2 * hidden
    merged = hidden * _merged(tower)
    projector = hidden + merged * merged + merged * text_hidden
    return 3 * patch * patch * hidden + grid * hidden + _layers(tower) * layer + hidden + projector


def minimax_m3(config: Fields, tower: Fields, text_hidden: int) -> int:
    """MiniMax-M3's tower: a frame-pair patch embedding and a projector before and after merging."""
    hidden, patch = tower_size(tower, "hidden_size"), tower_size(tower, "patch_size")
    inner = config.count("projector_hidden_size", default=text_hidden)
    merge = tower_size(tower, "spatial_merge_size", default=2)
    patches = 3 * tower_size(tower, "temporal_patch_size", default=2) * patch * patch * hidden + 2 * hidden
    before = hidden * inner + inner + inner * text_hidden + text_hidden
    after = merge * merge * text_hidden * inner + inner + inner * text_hidden + text_hidden
    return (
        patches + _layers(tower) * _vit_layer(hidden, tower_size(tower, "intermediate_size")) + before + after
    )


def _frame_patches(tower: Fields, hidden: int) -> int:
    patch = tower_size(tower, "patch_size", "spatial_patch_size")
    channels = tower_size(tower, "in_channels", "in_chans", default=3)
    return channels * tower_size(tower, "temporal_patch_size", default=2) * patch * patch * hidden


def qwen3_vl(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Qwen3-VL and Qwen3.5: learned positions, one merger, and one more per deep-stack layer."""
    del config
    hidden = tower_size(tower, "hidden_size")
    merged = hidden * tower_size(tower, "spatial_merge_size", default=2) ** 2
    out = tower_size(tower, "out_hidden_size", default=text_hidden)
    merger = merged * merged + merged + merged * out + out
    deep = len(tower.items("deepstack_visual_indexes") or ())
    body = _layers(tower) * _vit_layer(hidden, tower_size(tower, "intermediate_size"))
    positions = tower_size(tower, "num_position_embeddings") * hidden
    patches = _frame_patches(tower, hidden) + hidden
    return patches + positions + body + merger + 2 * hidden + deep * (merger + 2 * merged)


def qwen2_5_vl(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Qwen2.5-VL: gated feed-forward with biases, RMS norms, no learned positions."""
    del config
    hidden, width = tower_size(tower, "hidden_size"), tower_size(tower, "intermediate_size")
    layer = 4 * (hidden * hidden + hidden) + 3 * hidden * width + 2 * width + hidden + 2 * hidden
    merged = hidden * tower_size(tower, "spatial_merge_size", default=2) ** 2
    out = tower_size(tower, "out_hidden_size", default=text_hidden)
    merger = hidden + merged * merged + merged + merged * out + out
    return _frame_patches(tower, hidden) + _layers(tower) * layer + merger


def qwen2_vl(config: Fields, tower: Fields, text_hidden: int) -> int:
    """Qwen2-VL: `hidden_size` of its vision_config is the language model's width."""
    del config
    hidden = tower_size(tower, "embed_dim")
    width = int(hidden * (tower.real("mlp_ratio") or 4))
    merged = hidden * tower_size(tower, "spatial_merge_size", default=2) ** 2
    out = tower_size(tower, "hidden_size", default=text_hidden)
    merger = 2 * hidden + merged * merged + merged + merged * out + out
    return _frame_patches(tower, hidden) + _layers(tower) * _vit_layer(hidden, width) + merger


def _audio(config: Fields, *, text_hidden: int) -> int:
    """A Whisper encoder (Qwen2-Audio) and Gemma-4's are counted; any other audio tower is said to be missing."""
    tower = config.part("audio_config")
    if not tower.raw:
        return 0
    if tower.text("model_type") == "gemma4_audio":
        return gemma4_audio(tower, text_hidden=text_hidden)
    if not tower.has("encoder_layers", "num_mel_bins"):
        config.assume("audio tower of unknown kind: its parameters are not counted")
        return 0
    hidden, layers = (
        tower_size(tower, "d_model", default=1280),
        tower.count("encoder_layers", default=32, most=2048),
    )
    width, bins = (
        tower_size(tower, "encoder_ffn_dim", default=5120),
        tower_size(tower, "num_mel_bins", default=128),
    )
    positions = tower_size(tower, "max_source_positions", default=1500)
    inputs = 3 * bins * hidden + hidden + 3 * hidden * hidden + hidden + positions * hidden
    body = layers * (_vit_layer(hidden, width) - hidden) + 2 * hidden  # keys have no bias
    return inputs + body + hidden * text_hidden + text_hidden


def gemma4_audio(tower: Fields, *, text_hidden: int) -> int:
    """Gemma-4's conformer: two strided convolutions over the spectrum; per layer two feed-forward halves, attention
    with relative positions and a gated convolution; a projection with a bias, and one to the language model."""
    hidden, out = (
        tower_size(tower, "hidden_size", default=1024),
        tower_size(tower, "output_proj_dims", default=1536),
    )
    kernel, heads = (
        tower_size(tower, "conv_kernel_size", default=5),
        tower_size(tower, "num_attention_heads", default=8),
    )
    attention = 5 * hidden * hidden + hidden // heads
    halves = 2 * (8 * hidden * hidden + 2 * hidden)
    convolution = 3 * hidden * hidden + kernel * hidden + 2 * hidden
    layer = attention + halves + convolution + 3 * hidden
    first, second = _channels(tower)
    spectrum = 9 * (first + first * second) + first + second + first // 4 * second * hidden
    layers = tower.count("num_hidden_layers", default=12, most=2048)
    return spectrum + layers * layer + hidden * out + out + out * text_hidden


def _channels(tower: Fields) -> tuple[int, int]:
    """Channels of the two convolutions over the spectrum."""
    match tower.items("subsampling_conv_channels") or (128, 32):
        case (int(first), int(second)) if 0 < first <= 1 << 16 and 0 < second <= 1 << 16:
            return first, second
    raise ConfigError("subsampling_conv_channels of audio_config are not two sizes")
