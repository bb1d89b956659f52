"""Mixers with a fixed state: gated delta net, KDA, Mamba 1 and 2, lightning attention, short convolutions.

Sources: the model classes of transformers 5.24.0, read 2026-11-29. Convolution states keep as many inputs as the
kernel is long, as transformers does; vLLM keeps one less.
"""

import math

from parplan.hub.attention import head_width, hidden_size, query_heads
from parplan.hub.fields import Fields
from parplan.mixers import Recurrent

WIDTHS = {"float32": 4.0, "torch.float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


def recurrent(fields: Fields, *, layer: int) -> Recurrent:
    """The recurrent mixer whose fields the config has."""
    if fields.has("linear_attn_config", "linear_num_heads"):
        return kimi_delta_attention(fields)
    if fields.has("linear_num_value_heads"):
        return gated_delta_net(fields)
    if fields.has("mamba_num_heads", "mamba_n_heads"):
        return mamba2(fields)
    if fields.has("mamba_d_state") or fields.text("model_type") in ("mamba", "falcon_mamba"):
        return mamba1(fields)
    if fields.text("model_type") == "mamba2":
        return mamba2(fields)
    if fields.has("conv_L_cache"):
        return short_convolution(fields)
    return lightning(fields, layer=layer)


def state_bytes(fields: Fields) -> float:
    """Bytes per element of the recurrent state; float32 where the config does not say."""
    return WIDTHS.get(fields.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype"), 4.0)


def gated_delta_net(fields: Fields) -> Recurrent:
    """Gated delta net (Qwen3-Next, Qwen3.5): a matrix state per value head."""
    hidden = hidden_size(fields)
    key_heads = fields.count("linear_num_key_heads", most=4096)
    value_heads = fields.count("linear_num_value_heads", most=4096)
    key_dim = fields.count("linear_key_head_dim", most=65536)
    value_dim = fields.count("linear_value_head_dim", most=65536)
    kernel = fields.count("linear_conv_kernel_dim", most=4096)
    keys, values = key_heads * key_dim, value_heads * value_dim
    convolved = 2 * keys + values
    inputs = hidden * (2 * keys + 2 * values + 2 * value_heads)
    return Recurrent(
        variant="gated-delta-net",
        hidden=hidden,
        heads=math.gcd(key_heads, value_heads),
        tensor_parameters=inputs + kernel * convolved + 2 * value_heads + values * hidden,
        replicated_parameters=value_dim,
        state_elements=value_heads * key_dim * value_dim,
        convolution_elements=convolved * kernel,
        state_bytes=state_bytes(fields),
    )


def kimi_delta_attention(fields: Fields) -> Recurrent:
    """Kimi delta attention: a gated delta net whose decay and output gate have low rank (or full, Kimi-K3)."""
    hidden = hidden_size(fields)
    nested = fields.part("linear_attn_config")
    linear = nested if nested.raw else fields
    heads = linear.count("num_heads" if nested.raw else "linear_num_heads", most=4096)
    width = linear.count("head_dim" if nested.raw else "linear_head_dim", most=65536)
    kernel = linear.count("short_conv_kernel_size", "linear_conv_kernel_dim", most=4096)
    inner = heads * width
    full_decay = fields.text("model_type") == "bailing_hybrid"
    full_gate = linear.flag("use_full_rank_gate", default=full_decay)
    low_ranks = (not full_decay) + (not full_gate)
    return Recurrent(
        variant="kda",
        hidden=hidden,
        heads=heads,
        tensor_parameters=4 * hidden * inner  # queries, keys, values, output
        + 3 * inner * kernel
        + (hidden if full_decay else width) * inner + inner + heads  # decay: its last factor, bias, rate per head
        + hidden * heads
        + (hidden if full_gate else width) * inner,
        replicated_parameters=hidden * width * low_ranks + width,
        state_elements=heads * width * width,
        convolution_elements=3 * inner * kernel,
        state_bytes=state_bytes(fields),
    )  # fmt: skip


def mamba2(fields: Fields) -> Recurrent:
    """Mamba 2 (Nemotron-H, Granite-4-H, Bamba): a state per head, inputs and outputs shared by groups."""
    hidden = hidden_size(fields)
    heads = fields.count("mamba_num_heads", "mamba_n_heads", "num_heads", most=65536)
    width = fields.number("mamba_head_dim", "mamba_d_head", "head_dim", most=65536)
    if width is None:  # "auto" in some Bamba files is a word, and refused above
        width = fields.count("mamba_expand", "expand", default=2) * hidden // heads
    groups = fields.count("n_groups", "mamba_n_groups", most=4096)
    state = fields.count("ssm_state_size", "mamba_d_state", "state_size", most=65536)
    kernel = fields.count("conv_kernel", "mamba_d_conv", most=4096)
    inner, convolved = heads * width, heads * width + 2 * groups * state
    convolution_bias = convolved * fields.flag("use_conv_bias", "mamba_conv_bias", default=True)
    bias = fields.flag("mamba_proj_bias", "use_bias", default=False)
    return Recurrent(
        variant="mamba2",
        hidden=hidden,
        heads=heads,
        tensor_parameters=hidden * (inner + convolved + heads)
        + kernel * convolved + convolution_bias
        + 3 * heads + inner  # step bias, decay, skip; gated norm
        + inner * hidden
        + bias * (inner + convolved + heads),
        replicated_parameters=bias * hidden,
        state_elements=inner * state,
        convolution_elements=convolved * kernel,
        state_bytes=state_bytes(fields),
    )  # fmt: skip


def mamba1(fields: Fields) -> Recurrent:
    """Mamba 1: a state per channel. Jamba norms step, input and output; others have no weights there."""
    hidden = hidden_size(fields)
    inner = fields.count("mamba_expand", "expand", default=2, most=4096) * hidden
    state = fields.count("mamba_d_state", "state_size", most=65536)
    kernel = fields.count("mamba_d_conv", "conv_kernel", most=4096)
    rank = fields.count("mamba_dt_rank", "time_step_rank", default=math.ceil(hidden / 16))
    bias = fields.flag("mamba_proj_bias", "use_bias", default=False)
    normed = fields.has("mamba_d_state")
    return Recurrent(
        variant="mamba1",
        hidden=hidden,
        heads=inner,
        tensor_parameters=2 * hidden * inner
        + kernel * inner + inner * fields.flag("mamba_conv_bias", "use_conv_bias", default=True)
        + inner * (rank + 2 * state)
        + rank * inner + inner  # step projection with bias
        + inner * state + inner  # decay, skip
        + inner * hidden
        + bias * 2 * inner,
        replicated_parameters=normed * (rank + 2 * state) + bias * hidden,
        state_elements=inner * state,
        convolution_elements=inner * kernel,
        state_bytes=state_bytes(fields),
    )  # fmt: skip


def lightning(fields: Fields, *, layer: int) -> Recurrent:
    """Lightning attention (MiniMax-M1): queries, keys, values, an output gate and a norm over all heads."""
    hidden, heads = hidden_size(fields), query_heads(fields, layer=layer)
    width = head_width(fields, hidden=hidden, heads=heads)
    return Recurrent(
        variant="lightning",
        hidden=hidden,
        heads=heads,
        tensor_parameters=5 * hidden * heads * width + heads * width,
        replicated_parameters=0,
        state_elements=heads * width * width,
        convolution_elements=0,
        state_bytes=state_bytes(fields),
    )


def short_convolution(fields: Fields) -> Recurrent:
    """Gated short convolution (LFM2)."""
    hidden, kernel = hidden_size(fields), fields.count("conv_L_cache", most=4096)
    bias = fields.flag("conv_bias", default=False)
    return Recurrent(
        variant="short-convolution",
        hidden=hidden,
        heads=hidden,
        tensor_parameters=4 * hidden * hidden + kernel * hidden + bias * 4 * hidden,
        replicated_parameters=bias * hidden,
        state_elements=0,
        convolution_elements=hidden * kernel,
        state_bytes=2.0,
    )
