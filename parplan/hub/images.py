"""The largest image a model takes, and the shape of the tower that encodes it.

How large an image may be is said in a checkpoint's preprocessor_config.json, which is not read: each limit here is that
of a family's released models, with its source. Families whose limit was not found, or depends on more than sizes (the
longest request, free memory), are left out: Qwen2-VL, InternVL, Gemma-4, GLM-4V, Kimi, MiniMax, Step.
"""

from collections.abc import Callable

from parplan.hub.fields import Fields
from parplan.hub.towers import tower_size
from parplan.transformer import Encoder

QWEN_PIXELS = 16_777_216
"""Most pixels of an image (`longest_edge`): preprocessor_config.json of Qwen3.5, read 2026-11-30; logs of vLLM 0.13 to
0.26 profile Qwen3-VL, Qwen3.5, 3.6 and 3.8 with one image of 16,384 tokens. A clip has 12,288 at most."""
LLAMA4_TILES = 16
"""Most tiles of an image (`max_patches` of Llama4ImageProcessorFast, transformers 5.24.0, read 2026-11-30); one of the
whole image is added."""
GEMMA3_TOKENS = 256
"""Tokens of an image (`mm_tokens_per_image`, class default in transformers 5.24.0, read 2026-11-30)."""


def image_encoder(config: Fields, tower: Fields, *, text_hidden: int) -> Encoder | None:
    """The tower's shape and its largest image; None without a tower, or where that image is not known.

    Args:
        config: the whole config.
        tower: of it, the vision tower's.
        text_hidden: hidden width of the language model.
    """
    shapes: dict[str, Callable[[Fields, Fields, int], Encoder]] = {
        "gemma3": gemma3, "llama4": llama4, "mistral3": mistral3,
        "qwen3_vl": qwen3, "qwen3_vl_moe": qwen3, "qwen3_5": qwen3, "qwen3_5_moe": qwen3,
    }  # fmt: skip
    shape = shapes.get(config.text("model_type"))
    return shape(config, tower, text_hidden) if shape and tower.raw else None


def _encoder(
    tower: Fields, *, tokens: int, patches: int, pixels: int, output: int, products: int = 2
) -> Encoder:
    """An encoder of a tower's own widths."""
    return Encoder(
        tokens=tokens,
        patches=patches,
        pixels=pixels,
        hidden=tower_size(tower, "hidden_size"),
        width=tower_size(tower, "intermediate_size"),
        products=products,
        output=output,
    )


def gemma3(config: Fields, tower: Fields, text_hidden: int) -> Encoder:
    """Every image has the tower's own size; crops (pan and scan) are off."""
    side, patch = tower_size(tower, "image_size"), tower_size(tower, "patch_size")
    return _encoder(
        tower,
        tokens=config.count("mm_tokens_per_image", default=GEMMA3_TOKENS),
        patches=(side // patch) ** 2,
        pixels=3 * side * side,
        output=text_hidden,
    )


def llama4(config: Fields, tower: Fields, text_hidden: int) -> Encoder:
    """An image is cut into tiles of the tower's size; a class token is added to each, and four patches are a token."""
    del config
    side, patch, tiles = tower_size(tower, "image_size"), tower_size(tower, "patch_size"), LLAMA4_TILES + 1
    patches, share = (side // patch) ** 2, tower.real("pixel_shuffle_ratio") or 0.5
    return _encoder(
        tower,
        tokens=max(1, tiles * int(patches * share**2)),
        patches=tiles * (patches + 1),
        pixels=tiles * 3 * side * side,
        output=text_hidden,
    )


def mistral3(config: Fields, tower: Fields, text_hidden: int) -> Encoder:
    """Images keep their shape up to a square of the tower's size (`longest_edge` is 1540 as `image_size` is)."""
    side, patch = tower_size(tower, "image_size"), tower_size(tower, "patch_size")
    merge = config.count("spatial_merge_size", default=2, most=64)
    return _encoder(
        tower,
        tokens=max(1, (side // patch // merge) ** 2),
        patches=(side // patch) ** 2,
        pixels=3 * side * side,
        products=3,
        output=text_hidden,
    )


def qwen3(config: Fields, tower: Fields, text_hidden: int) -> Encoder:
    """Qwen3-VL and Qwen3.5: images of any shape up to a number of pixels; still images are doubled to a pair of frames,
    and deep-stack layers make tokens of their own."""
    del config
    patch, merge = tower_size(tower, "patch_size"), tower_size(tower, "spatial_merge_size", default=2)
    tokens = max(1, QWEN_PIXELS // (patch * merge) ** 2)
    patches = tokens * merge * merge
    return _encoder(
        tower,
        tokens=tokens,
        patches=patches,
        pixels=patches * 3 * tower_size(tower, "temporal_patch_size", default=2) * patch * patch,
        output=tower_size(tower, "out_hidden_size", default=text_hidden)
        * (1 + len(tower.items("deepstack_visual_indexes") or ())),
    )
