"""vLLM's first engine (V0, the default before 0.8), as far as its start-up memory differs from later ones."""

import re
from dataclasses import replace

from parplan.calibration import Engine, Exact
from parplan.mixers import Cache, Cut, Latent
from parplan.transformer import Block, Transformer
from parplan.validate.names import released

FIRST_V1 = 8
"""First minor version whose default is the second engine; it came out in March 2025."""
ABSORBED = 7
"""First minor version that caches the latents of MLA; until then keys and values of every head. It also kept products
of its projections."""
SEQUENCES, TOKENS, IMAGE_TOKENS = 256, 2048, 5120
"""Defaults: sequence slots, tokens of a step, and at least so many for models that see (vLLM 0.6 to 0.8
vllm/config.py, `SchedulerConfig`)."""
WHOLE_PROMPTS = 32_768
"""Where no prompt can be longer, it runs prompts whole, so that a step has as many tokens as the longest one; beyond,
it cuts them into chunks, but not for models that see (vLLM 0.7 vllm/engine/arg_utils.py)."""
HEAD_DIM = 256
"""Keys and values of MLA were padded to this (vLLM 0.6 vllm/model_executor/models/deepseek_v2.py)."""
ALIGNED = 128
"""Elements a latent was rounded up to: 256 bytes (vLLM 0.7 vllm/worker/cache_engine.py)."""


def is_first(version: str) -> bool:
    """Whether a version is of the first engine.

    >>> [is_first(version) for version in ("0.8.5 (V0)", "0.7.4-dev (V1)", "v0.6.3", "2024-11", "0.8.5", "0.19")]
    [True, False, True, True, False, False]
    """
    minors, month = released(version)
    if named := re.search(r"\bV([01])\b", version):
        return named[1] == "0"
    return max(minors) < FIRST_V1 if minors else "" < month < "2025-03"


class AlignedLatent(Latent):
    """MLA, its cache aligned.

    DeepSeek-R1 took 61 layers x 640 x 2 = 78,080 bytes a token where the latents have 576 elements.
    """

    @property
    def cache(self) -> Cache:
        """The latent and the rotary key, rounded up."""
        return Cache(growing=-(-(self.kv_rank + self.rope_dim) // ALIGNED) * ALIGNED)


class AbsorbedLatent(AlignedLatent):
    """MLA with the products of its projections beside them, by which decode works on latents.

    DeepSeek-R1 took 83.88 GiB on each of eight GPUs; its checkpoint's tensors are 79.3, the products 4.05.

    Source: vLLM 0.7 vllm/attention/backends/mla/utils.py (`W_Q_UK`, `W_UV_O`).
    """

    @property
    def cut(self) -> Cut:
        """The products follow the heads: query to latent, and latent to output."""
        own = super().cut
        products = self.heads * self.kv_rank * ((self.query_rank or self.hidden) + self.hidden)
        return replace(own, tensor=own.tensor + products)


class ExpandedLatent(Latent):
    """MLA, cached as ordinary heads."""

    @property
    def kv_heads(self) -> int:
        """Every head is cached."""
        return self.heads

    @property
    def cache(self) -> Cache:
        """Keys and values of all heads, padded."""
        return Cache(growing=2 * self.heads * HEAD_DIM)


def as_first_cached(transformer: Transformer, *, version: str) -> Transformer:
    """A model whose latents are cached as the first engine did."""
    minors, _ = released(version)
    minor = max(minors, default=FIRST_V1)
    kind = ExpandedLatent if minor < ABSORBED else AbsorbedLatent if minor == ABSORBED else AlignedLatent

    def cached(block: Block) -> Block:
        if not isinstance(block.mixer, Latent):
            return block
        return block.model_copy(update={"mixer": kind(**block.mixer.model_dump())})

    return transformer.model_copy(update={"blocks": tuple(map(cached, transformer.blocks))})


def first_engine(engine: Engine) -> Engine:
    """An engine as it was: windowed layers keep every token, and without compilation a layer's input outlives it.

    Llama-3.1-8B on one RTX 3090 logs an activation peak of 2.07 GiB with prompts of 20,000 tokens and 2.99 GiB with
    29,000: 16 bits x (3 hidden + 3 width) a token (vllm-project/vllm#10517).
    """
    memory = engine.memory.model_copy(
        update={"allocator": Exact(block=16, windows=False), "layer_states": 3.0}
    )
    return engine.model_copy(update={"memory": memory})


def step_tokens(transformer: Transformer, *, length: float) -> int:
    """Tokens of a step where they are not told."""
    if transformer.vision:
        return int(max(length, IMAGE_TOKENS))
    return int(max(length, TOKENS)) if length <= WHOLE_PROMPTS else TOKENS


def profiled_sequences(transformer: Transformer) -> int:
    """Sequences that are sampled when memory is profiled: of a model that sees, those a step's tokens suffice for if
    every one has the largest images; of Qwen2.5-VL that is one (vLLM 0.6 vllm/worker/model_runner.py, `profile_run`).
    """
    return 1 if transformer.vision else SEQUENCES
