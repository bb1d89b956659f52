"""What a model class knows that its config does not say: biases, norms, tied heads, defaults.

Source, unless a line says otherwise: the model classes of transformers 5.24.0, read 2026-11-29.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from parplan.hub.fields import Fields

QueryKeyNorm = Literal["none", "head", "layer"]
"""Norms of queries and keys: none with weights, one weight per element of a head, or per element of all heads."""


@dataclass(frozen=True)
class Family:
    """Traits of a model class; the defaults are those of Llama and the many that copy it."""

    tied: bool = False
    """The output head is the input embedding unless the config says otherwise."""
    gated: bool = True
    """Feed-forward parts have three matrices (SwiGLU and kin)."""
    norms: int = 2
    """Norms of the hidden width per layer."""
    norm_bias: bool = False
    """Norms are LayerNorms with a bias."""
    norm_weights: bool = True
    """Norms have weights at all (OLMo's first models and nanochat's do not)."""
    expert_norms: int = 0
    """More norms of the hidden width in layers with experts."""
    query_key_norm: QueryKeyNorm = "none"
    """What queries and keys go through unless the config says otherwise."""
    norm_style: QueryKeyNorm = "head"
    """What `use_qk_norm: true` means."""
    qkv_bias: bool = False
    output_bias: bool | None = None
    """Bias of the attention output. None: as queries, keys and values."""
    ffn_bias: bool = False
    ffn_scalars: int = 0
    """Learned scalars of the activation, per feed-forward part."""
    head_bias: bool = False
    router_bias: bool = False
    """The router has one bias per expert among its parameters."""
    shared_gate: bool = True
    """Shared experts named by their width have a gate."""
    head_gate: bool = False
    """Attention has one output gate per head."""
    sinks: bool = False
    """One learned attention sink per head."""
    positions: int | None = None
    """Learned position embeddings: rows beyond the context length. None: rotary or ALiBi, no weights."""
    widening: int | None = None
    """Feed-forward width over hidden width where the config gives none."""
    pattern: int | None = None
    """Every n-th layer attends to everything, the others to a window, where the config gives no pattern."""
    window_needs_flag: bool = False
    """`sliding_window` means nothing unless `use_sliding_window` is true."""
    linear_gate: bool = False
    """Full-attention layers have an output gate."""
    mtp: int = 0
    """Multi-token-prediction layers in the released checkpoints where the config gives none."""
    mtp_dense: bool = False
    """These layers have a dense feed-forward part even where the model is a mixture of experts."""
    mtp_shipped: bool = True
    """The released checkpoints hold the multi-token-prediction layers their config announces."""
    known: bool = True
    defaults: dict[str, object] = field(default_factory=dict)
    """Class defaults a nested, sparse text_config relies on."""
    context: int | None = None
    """Class default of the context length."""


LLAMA = Family()
CLASSIC = Family(
    gated=False, norm_bias=True, qkv_bias=True, ffn_bias=True, widening=4, context=2048
)  # the GPT-2 generation: LayerNorm, two matrices, biases everywhere
QWEN2 = Family(
    qkv_bias=True,
    output_bias=False,
    window_needs_flag=True,
    context=32768,
    defaults={"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
              "num_attention_heads": 32, "num_key_value_heads": 32},
)  # fmt: skip
QWEN3 = Family(query_key_norm="head", window_needs_flag=True, context=32768)
QWEN3_NEXT = replace(QWEN3, linear_gate=True, mtp=1)
GLM4 = Family(output_bias=False, context=131072)
MINIMAX = Family(query_key_norm="layer", norm_style="layer", mtp_shipped=False)
MINIMAX_M3 = replace(MINIMAX, query_key_norm="head", norm_style="head")
GEMMA2 = Family(tied=True, norms=4, pattern=2, context=8192)
GEMMA3 = Family(
    tied=True,
    norms=4,
    query_key_norm="head",
    pattern=6,
    context=131072,
    defaults={"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
              "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
)  # fmt: skip
DEEPSEEK_V4 = Family(sinks=True, context=1048576)
COHERE = Family(tied=True, norms=1, norm_style="layer", context=8192)

FAMILIES: dict[str, Family] = {
    "llama": replace(
        LLAMA,
        context=2048,
        defaults={
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
        },
    ),
    "mistral": replace(
        LLAMA,
        defaults={
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
    ),
    "mixtral": LLAMA,
    "ministral": LLAMA,
    "ministral3": LLAMA,
    "deepseek": LLAMA,
    "deepseek_v2": LLAMA,
    "deepseek_v3": LLAMA,
    "deepseek_v32": LLAMA,
    "kimi_k2": LLAMA,
    "longcat_flash": LLAMA,
    "kimi_linear": replace(LLAMA, context=1048576),
    "deepseek_v4": DEEPSEEK_V4,
    "deepseek_ref": DEEPSEEK_V4,
    "glm_moe_dsa": LLAMA,
    "glm4_moe_lite": replace(LLAMA, mtp=1),
    "glm4_moe": GLM4,
    "glm": replace(GLM4, qkv_bias=True),
    "glm4": replace(GLM4, qkv_bias=True, norms=4),
    "glm4v": replace(GLM4, qkv_bias=True, norms=4),
    "glm4v_moe": replace(GLM4, qkv_bias=True),
    "chatglm": replace(LLAMA, output_bias=False),
    "granite": replace(LLAMA, context=2048),
    "granite_swa": replace(LLAMA, sinks=True),
    "granitemoe": LLAMA,
    "granitemoe_swa": replace(LLAMA, sinks=True),
    "granitemoeshared": LLAMA,
    "granitemoehybrid": LLAMA,
    "bamba": LLAMA,
    "internlm": LLAMA,
    "internlm2": LLAMA,
    "internlm3": LLAMA,
    "seed_oss": replace(LLAMA, qkv_bias=True, output_bias=False),
    "nemotron-nas": LLAMA,
    "deci": LLAMA,
    "hunyuan_v1_dense": replace(LLAMA, norm_style="head"),
    "hunyuan_v1_moe": replace(LLAMA, norm_style="head", context=2048),
    "dbrx": LLAMA,
    "afmoe": replace(
        LLAMA, norms=4, query_key_norm="head", linear_gate=True, router_bias=True, pattern=4, context=16384
    ),
    "apertus": replace(LLAMA, gated=False, query_key_norm="head", ffn_scalars=2, context=65536),
    "arcee": replace(LLAMA, context=4096),
    "aria_text": LLAMA,
    "axk1": replace(LLAMA, expert_norms=1),
    "bailing_moe": LLAMA,
    "bailing_moe_v2": replace(LLAMA, norm_style="head"),
    "bailing_hybrid": replace(LLAMA, head_gate=True),
    "cwm": LLAMA,
    "exaone": LLAMA,
    "exaone_moe": replace(LLAMA, query_key_norm="head", mtp_dense=True),
    "helium": replace(LLAMA, output_bias=False),
    "hy_v3": replace(LLAMA, query_key_norm="head"),
    "hyperclovax": LLAMA,
    "iquestcoder": LLAMA,
    "jais2": replace(LLAMA, norm_bias=True),
    "flint": replace(LLAMA, query_key_norm="head", shared_gate=False, sinks=True),
    "kolibri1": replace(LLAMA, norms=4, query_key_norm="head", shared_gate=False),
    "lara_mini": replace(LLAMA, query_key_norm="head", shared_gate=False),
    "laguna": replace(LLAMA, query_key_norm="head", head_gate=True, router_bias=True, shared_gate=False),
    "mellum": replace(LLAMA, query_key_norm="head"),
    "nanochat": replace(LLAMA, norm_weights=False, context=2048),
    "sarvam_moe": replace(LLAMA, output_bias=False),
    "solar_open": replace(LLAMA, output_bias=False),
    "youtu": LLAMA,
    "grok-1": replace(LLAMA, tied=True, norms=4),
    "jamba": replace(LLAMA, context=262144),
    "dots1": replace(LLAMA, query_key_norm="head"),
    "baichuan": LLAMA,
    "minicpm3": replace(LLAMA, tied=True),
    "llama4": replace(LLAMA, norm_style="none", pattern=4, context=131072),
    "smollm3": replace(LLAMA, tied=True, context=32768),
    "ernie4_5": replace(LLAMA, tied=True),
    "ernie4_5_moe": replace(LLAMA, tied=True, router_bias=True, mtp_dense=True),
    "exaone4": replace(LLAMA, query_key_norm="head"),
    "phi3": replace(LLAMA, context=4096),
    "phimoe": replace(LLAMA, norm_bias=True, context=4096),
    "olmo": replace(LLAMA, norm_weights=False, context=2048),
    "olmo_hybrid": replace(LLAMA, query_key_norm="layer"),
    "flex_olmo": replace(LLAMA, query_key_norm="layer", context=4096),
    "olmo2": replace(LLAMA, query_key_norm="layer"),
    "olmo3": replace(LLAMA, query_key_norm="layer", pattern=4),
    "olmoe": replace(LLAMA, query_key_norm="layer", context=4096),
    "gpt_oss": replace(LLAMA, qkv_bias=True, ffn_bias=True, router_bias=True, sinks=True, pattern=2),
    "mimo": replace(QWEN2, context=32768),
    "mimo_v2_flash": replace(LLAMA, mtp=3, mtp_dense=True),
    "step3p5": replace(LLAMA, query_key_norm="head", mtp_dense=True, head_gate=True),
    "step3p7": replace(LLAMA, query_key_norm="head", mtp_dense=True, head_gate=True),
    "minimax_m1": replace(LLAMA, mtp_shipped=False),
    "minimax": replace(LLAMA, mtp_shipped=False),
    "minimax_m2": MINIMAX,
    "minimax_m3": MINIMAX_M3,
    "minimax_m3_vl": MINIMAX_M3,
    "qwen": replace(QWEN2, window_needs_flag=False),
    "qwen2": QWEN2,
    "qwen2_moe": QWEN2,
    "qwen2_vl": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_5_omni": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_vl": QWEN3,
    "qwen3_vl_moe": QWEN3,
    "qwen3_next": QWEN3_NEXT,
    "qwen3_5": replace(QWEN3_NEXT, mtp=0),
    "qwen3_5_moe": replace(QWEN3_NEXT, mtp=0),
    "gemma": replace(LLAMA, tied=True, context=8192),
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3n": replace(GEMMA3, defaults={}),
    "gemma4": replace(GEMMA3, defaults={}),
    "cohere": COHERE,
    "cohere2": replace(COHERE, pattern=4),
    "cohere2_moe": replace(COHERE, pattern=4),
    "nemotron": replace(CLASSIC, qkv_bias=False, ffn_bias=False, widening=None),
    "nemotron_h": replace(LLAMA, gated=False, norms=1),
    "gpt2": replace(CLASSIC, tied=True, positions=0, context=1024),
    "gpt_bigcode": replace(CLASSIC, tied=True, positions=0, context=1024),
    "gpt_neo": replace(CLASSIC, tied=True, qkv_bias=False, output_bias=True, positions=0),
    "codegen": replace(CLASSIC, norms=1, qkv_bias=False, head_bias=True),
    "gptj": replace(CLASSIC, norms=1, qkv_bias=False, head_bias=True),
    "gpt_neox": CLASSIC,
    "opt": replace(CLASSIC, tied=True, positions=2),
    "bloom": replace(CLASSIC, tied=True),
    "starcoder2": replace(CLASSIC, tied=True, context=4096),
    "mpt": replace(CLASSIC, tied=True, norm_bias=False, qkv_bias=False, ffn_bias=False),
    "falcon": replace(CLASSIC, tied=True, qkv_bias=False, ffn_bias=False),
    "phi": replace(CLASSIC, norms=1, head_bias=True),
    "phi-msft": replace(CLASSIC, norms=1, head_bias=True),
    "mamba": replace(LLAMA, tied=True, norms=1),
    "mamba2": replace(LLAMA, norms=1),
    "falcon_mamba": replace(LLAMA, tied=True, norms=1),
    "lfm2": replace(LLAMA, tied=True, query_key_norm="head", context=128000),
    "lfm3": replace(LLAMA, tied=True, norms=4, query_key_norm="head", head_gate=True, context=128000),
    "lfm2_moe": replace(LLAMA, tied=True, query_key_norm="head", context=128000),
    "stablelm": replace(LLAMA, norm_bias=True, norm_style="layer", output_bias=False, context=4096),
}


def family_of(fields: Fields) -> Family:
    """Traits of the class a config names; Llama's, said to be assumed, for a class that is not known."""
    name = fields.text("model_type")
    family = FAMILIES.get(name) or FAMILIES.get(name.removesuffix("_text"))
    if family is not None:
        return family
    fields.assume(
        f"model type {name!r} is not known: counted from its fields as a pre-norm decoder without biases"
        if name
        else "no model_type: counted from the fields as a pre-norm decoder without biases"
    )
    return replace(LLAMA, known=False)
