"""The importer: spellings, traps, formats, bad input, and models by size."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parplan import catalog
from parplan.hub import ConfigError, transformer_from_config, transformer_of_size
from parplan.hub.fields import Fields
from parplan.mixers import GroupedQuery, Latent, Recurrent
from parplan.transformer import Transformer

ROOT = Path(__file__).parents[1]
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
LATENT: dict[str, Any] = {
    **LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": 8, "kv_lora_rank": 64, "q_lora_rank": 96,
    "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def model(base: dict[str, Any] = LLAMA, **fields: Any) -> Transformer:
    """The model of a base config with some fields changed; DROP leaves a field out."""
    config = {key: value for key, value in {**base, **fields}.items() if value is not DROP}
    return transformer_from_config(config, name="test")


DROP = object()


def attention(found: Transformer, layer: int = 0) -> GroupedQuery:
    mixer = found.blocks[found.sequence[layer]].mixer
    assert isinstance(mixer, GroupedQuery)
    return mixer


def windows(found: Transformer) -> list[int | None]:
    return [attention(found, layer).window for layer in range(len(found.sequence))]


def routed(found: Transformer) -> list[int]:
    return [1 if found.blocks[kind].experts else 0 for kind in found.sequence]


def recurrent(found: Transformer) -> list[int]:
    return [1 if isinstance(found.blocks[kind].mixer, Recurrent) else 0 for kind in found.sequence]


def experts(found: Transformer) -> Any:
    return next(block.experts for block in found.blocks if block.experts)


# --- the smallest case, by hand


def test_a_llama_counted_by_hand() -> None:
    found = model()
    per_layer = 256 * 256 * 2 + 256 * 64 * 2 + 3 * 256 * 512 + 2 * 256
    assert found.total_parameters == 4 * per_layer + 2 * 1000 * 256 + 256
    assert found.active_parameters == found.total_parameters
    assert found.components == {
        "embedding": 256_000, "attention": 4 * 163_840, "dense_ffn": 4 * 393_216, "norms": 9 * 256, "head": 256_000,
    }  # fmt: skip
    assert found.assumed == ()


def test_what_tensor_parallelism_cuts() -> None:
    """vLLM: query and output projections follow the heads, keys and values the KV heads, norms are whole."""
    cut = attention(model(use_qk_norm=True)).cut
    assert (cut.tensor, cut.kv, cut.replicated) == (2 * 256 * 256, 2 * 256 * 64, 2 * 32)


def test_what_tensor_parallelism_cuts_of_latent_attention() -> None:
    """vLLM DeepseekV2MLAAttention: down-projections and latent norms are on every rank, the rest follows the heads."""
    mixer = model(LATENT).blocks[0].mixer
    assert isinstance(mixer, Latent)
    assert mixer.cut.replicated == 256 * 96 + 256 * (64 + 16) + 96 + 64
    assert mixer.cut.tensor == 96 * 8 * 48 + 64 * 8 * 64 + 8 * 32 * 256


# --- spellings: the same model under other names

SPELLINGS: dict[str, dict[str, Any]] = {
    "layers: n_layer (GPT-2)": {"num_hidden_layers": DROP, "n_layer": 4},
    "layers: n_layers (DBRX)": {"num_hidden_layers": DROP, "n_layers": 4},
    "layers: num_layers (ChatGLM)": {"num_hidden_layers": DROP, "num_layers": 4},
    "hidden: n_embd (GPT-2)": {"hidden_size": DROP, "n_embd": 256},
    "hidden: d_model (MPT)": {"hidden_size": DROP, "d_model": 256},
    "heads: n_head (GPT-2)": {"num_attention_heads": DROP, "n_head": 8},
    "heads: n_heads (DBRX)": {"num_attention_heads": DROP, "n_heads": 8},
    "KV heads: num_kv_heads (Falcon)": {"num_key_value_heads": DROP, "num_kv_heads": 2},
    "KV heads: attn_config.kv_n_heads (DBRX)": {"num_key_value_heads": DROP, "attn_config": {"kv_n_heads": 2}},
    "KV heads: multi_query_group_num (ChatGLM)": {
        "num_key_value_heads": DROP, "multi_query_attention": True, "multi_query_group_num": 2,
    },
    "head width: kv_channels (ChatGLM)": {"kv_channels": 32},
    "head width: attention_head_dim (Nemotron-H)": {"attention_head_dim": 32},
    "width: ffn_dim (OPT)": {"intermediate_size": DROP, "ffn_dim": 512},
    "width: ffn_hidden_size (LongCat)": {"intermediate_size": DROP, "ffn_hidden_size": 512},
    "width: n_inner (GPT-2)": {"intermediate_size": DROP, "n_inner": 512},
    "width: expansion_ratio (MPT)": {"intermediate_size": DROP, "expansion_ratio": 2},
    "width: a list, one per layer (Gemma-3n)": {"intermediate_size": [512, 512, 512, 512]},
    "vocabulary: padded_vocab_size (ChatGLM)": {"vocab_size": DROP, "padded_vocab_size": 1000},
    "context: n_positions (GPT-2)": {"max_position_embeddings": DROP, "n_positions": 4096},
    "context: max_seq_len (MPT)": {"max_position_embeddings": DROP, "max_seq_len": 4096},
    "context: seq_length (ChatGLM)": {"max_position_embeddings": DROP, "seq_length": 4096},
    "context: model_max_length (Kimi-Linear)": {"max_position_embeddings": DROP, "model_max_length": 4096},
    "whole numbers written as floats": {"hidden_size": 256.0},
    "null is absent": {"head_dim": None, "sliding_window": None, "num_experts": None},
}  # fmt: skip


@pytest.mark.parametrize("change", SPELLINGS.values(), ids=SPELLINGS)
def test_a_spelling_means_the_same(change: dict[str, Any]) -> None:
    assert model(**change) == model()


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_language_model_may_be_nested(part: str) -> None:
    assert model({}, **{part: LLAMA}, tie_word_embeddings=False) == model()


# --- traps: (config, what is looked at, expected), each with where it bites

TRAPS: dict[str, tuple[Callable[[], Transformer], Callable[[Transformer], object], object]] = {
    "head_dim wins over hidden / heads (Qwen3-0.6B: 128, not 64)": (
        lambda: model(head_dim=64), lambda m: attention(m).head_dim, 64),
    "KV heads absent are query heads (Llama-2-7B)": (
        lambda: model(num_key_value_heads=DROP), lambda m: attention(m).kv_heads, 8),
    "multi_query beats num_kv_heads (Falcon-7B says 71 and means 1)": (
        lambda: model(model_type="falcon", num_kv_heads=8, num_key_value_heads=DROP, multi_query=True),
        lambda m: attention(m).kv_heads, 1),
    "but not in the newer decoder (Falcon-40B: 8)": (
        lambda: model(model_type="falcon", num_kv_heads=2, num_key_value_heads=DROP, multi_query=True,
                      new_decoder_architecture=True), lambda m: attention(m).kv_heads, 2),
    "GPT-BigCode is multi-query without saying so": (
        lambda: model(model_type="gpt_bigcode", num_key_value_heads=DROP), lambda m: attention(m).kv_heads, 1),
    "values narrower than keys (MiMo-V2-Flash: 192 and 128)": (
        lambda: model(head_dim=48, v_head_dim=32), lambda m: m.cached_elements(1), 4 * 2 * (48 + 32)),
    "Qwen2 has a bias on queries, keys and values and no key for it": (
        lambda: model(model_type="qwen2"), lambda m: attention(m).cut.total, 163_840 + 256 + 2 * 64),
    "Qwen3 norms each head": (
        lambda: model(model_type="qwen3"), lambda m: attention(m).cut.total, 163_840 + 2 * 32),
    "OLMo-2 norms all heads at once": (
        lambda: model(model_type="olmo2"), lambda m: attention(m).cut.total, 163_840 + 256 + 64),
    "MiniMax-M2: qk_norm_type per_layer spans all heads": (
        lambda: model(model_type="minimax_m2", use_qk_norm=True, qk_norm_type="per_layer"),
        lambda m: attention(m).cut.total, 163_840 + 256 + 64),
    "GLM-4.5: a bias on queries, keys and values, none on the output": (
        lambda: model(model_type="glm4_moe", attention_bias=True),
        lambda m: attention(m).cut.total, 163_840 + 256 + 2 * 64),
    "Qwen3.5: an output gate makes the query projection twice as wide": (
        lambda: model(attn_output_gate=True), lambda m: attention(m).cut.total, 163_840 + 256 * 256),
    "two matrices in StarCoder2 and kin": (
        lambda: model(model_type="mpt", no_bias=True), lambda m: m.components["dense_ffn"], 4 * 2 * 256 * 512),
    "two matrices where squared ReLU is the activation": (
        lambda: model(hidden_act="relu2"), lambda m: m.components["dense_ffn"], 4 * 2 * 256 * 512),
    "learned positions are weights (GPT-2), OPT has two rows more": (
        lambda: model(model_type="opt"), lambda m: m.embedding, (1000 + 4096 + 2) * 256),
    "tied by class where the file is silent (Gemma)": (
        lambda: model(model_type="gemma", tie_word_embeddings=DROP), lambda m: m.head, 0),
    "not tied by class where the file is silent (Llama)": (
        lambda: model(tie_word_embeddings=DROP), lambda m: m.head, 256_000),
    "the file wins over the class (StarCoder2-15B)": (
        lambda: model(model_type="starcoder2", tie_word_embeddings=False), lambda m: m.head, 256_000),
    "MLA ignores KV heads (DeepSeek-V3: 576 elements, not 40,960)": (
        lambda: model(LATENT), lambda m: m.cached_elements(1), 4 * (64 + 16)),
    "q_lora_rank null is a plain query projection (DeepSeek-V2-Lite)": (
        lambda: model(LATENT, q_lora_rank=None), lambda m: m.assumed, ()),
    "q_lora_rank missing is taken as null, and said (converted configs drop nulls)": (
        lambda: model(LATENT, q_lora_rank=DROP), lambda m: "q_lora_rank" in m.assumed[0], True),
    "a sparse index adds its keys to the cache, top-k saves none (DeepSeek-V3.2)": (
        lambda: model(LATENT, index_topk=16, index_n_heads=2, index_head_dim=8),
        lambda m: m.cached_elements(100), 100 * 4 * (80 + 8)),
    "layers may share an indexer (GLM-5.2)": (
        lambda: model(LATENT, index_topk=16, index_n_heads=2, index_head_dim=8,
                      indexer_types=["full", "shared", "shared", "full"]),
        lambda m: m.cached_elements(100), 100 * (4 * 80 + 2 * 8)),
    "Gemma-2 alternates without a key": (
        lambda: model(model_type="gemma2", sliding_window=64), windows, [64, None, 64, None]),
    "sliding_window_pattern: every n-th layer is full (Gemma-3: 6, Cohere2: 4)": (
        lambda: model(sliding_window=64, sliding_window_pattern=4), windows, [64, 64, 64, None]),
    "sliding_window_pattern in letters (EXAONE-4: LLLG)": (
        lambda: model(sliding_window=64, sliding_window_pattern="LG"), windows, [64, None, 64, None]),
    "layer_types wins": (
        lambda: model(sliding_window=64, layer_types=["full_attention"] * 3 + ["sliding_attention"]),
        windows, [None, None, None, 64]),
    "hybrid_layer_pattern: 1 is sliding (MiMo-V2)": (
        lambda: model(sliding_window=64, hybrid_layer_pattern=[0, 1, 1, 0]), windows, [None, 64, 64, None]),
    "use_sliding_window false is full attention (Qwen2.5)": (
        lambda: model(model_type="qwen2", sliding_window=64, use_sliding_window=False, max_window_layers=2),
        windows, [None] * 4),
    "use_sliding_window true from max_window_layers on (Qwen2)": (
        lambda: model(model_type="qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=2),
        windows, [None, None, 64, 64]),
    "a window no sequence outgrows is none (Phi-3.5-mini: 262144)": (
        lambda: model(model_type="phi3", sliding_window=262144), windows, [None] * 4),
    "a window everywhere (Mistral-7B-v0.1)": (lambda: model(sliding_window=64), windows, [64] * 4),
    "sliding layers of another shape (MiMo-V2)": (
        lambda: model(sliding_window=64, hybrid_layer_pattern=[0, 1, 1, 1], swa_num_key_value_heads=4),
        lambda m: (attention(m, 0).kv_heads, attention(m, 1).kv_heads), (2, 4)),
    "full layers of another shape, values taken from keys (Gemma-4)": (
        lambda: model(model_type="gemma4_text", sliding_window=64, global_head_dim=64, num_global_key_value_heads=1,
                      attention_k_eq_v=True, layer_types=["sliding_attention", "full_attention"] * 2),
        lambda m: [(a.kv_heads, a.head_dim, a.key_is_value) for a in (attention(m, 0), attention(m, 1))],
        [(2, 32, False), (1, 64, True)]),
    "the last layers hold no cache (Gemma-4 E2B: 20 of 35)": (
        lambda: model(num_kv_shared_layers=3), lambda m: m.cached_elements(1), 2 * 2 * 32),
    "a chunk is not a window; every fourth layer is full (Llama 4)": (
        lambda: model({**LLAMA, **EXPERTS}, model_type="llama4_text", attention_chunk_size=64,
                      interleave_moe_layer_step=2, intermediate_size_mlp=512, use_qk_norm=True),
        lambda m: [(attention(m, layer).chunked, attention(m, layer).window) for layer in range(4)],
        [(True, 64)] * 3 + [(False, None)]),
    "first_k_dense_replace (DeepSeek)": (
        lambda: model({**LLAMA, **EXPERTS}, first_k_dense_replace=1, moe_layer_freq=1), routed, [0, 1, 1, 1]),
    "moe_layer_freq as a list (MiMo-V2, MiniMax-M3)": (
        lambda: model({**LLAMA, **EXPERTS}, moe_layer_freq=[0, 1, 0, 1]), routed, [0, 1, 0, 1]),
    "mlp_layer_types (GLM-5)": (
        lambda: model({**LLAMA, **EXPERTS}, mlp_layer_types=["dense", "sparse", "sparse", "sparse"]),
        routed, [0, 1, 1, 1]),
    "decoder_sparse_step and mlp_only_layers (Qwen)": (
        lambda: model({**LLAMA, **EXPERTS}, decoder_sparse_step=1, mlp_only_layers=[2]), routed, [1, 1, 0, 1]),
    "interleave_moe_layer_step 2: every second layer, with a shared expert (Llama-4-Maverick)": (
        lambda: model({**LLAMA, **EXPERTS}, interleave_moe_layer_step=2),
        lambda m: (routed(m), experts(m).shared_parameters), ([0, 1, 0, 1], 3 * 256 * 64)),
    "moe_layer_start_index, end index -1 (ERNIE-4.5)": (
        lambda: model({**LLAMA, **EXPERTS}, moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1),
        routed, [0, 1, 1, 1]),
    "expert_layer_period and offset (Jamba)": (
        lambda: model({**LLAMA, **EXPERTS}, expert_layer_period=2, expert_layer_offset=1), routed, [0, 1, 0, 1]),
    "lists per layer (Hunyuan-A13B)": (
        lambda: model(num_experts=8, moe_topk=[2] * 4, num_shared_expert=[1] * 4, moe_intermediate_size=[64] * 4),
        lambda m: (experts(m).chosen, experts(m).width, experts(m).shared), (2, 64, 1)),
    "expert width is the plain width (Mixtral, gpt-oss)": (
        lambda: model(num_local_experts=8, num_experts_per_tok=2), lambda m: experts(m).width, 512),
    "experts in a narrower width (Nemotron-3-Super, Kimi-K3)": (
        lambda: model({**LLAMA, **EXPERTS}, moe_latent_size=128),
        lambda m: (experts(m).expert_parameters, experts(m).shared_parameters), (3 * 128 * 64, 2 * 256 * 128)),
    "shared experts are as wide as routed ones (DeepSeek)": (
        lambda: model({**LLAMA, **EXPERTS}, n_shared_experts=2), lambda m: experts(m).shared_width, 128),
    "a shared width of its own, with a gate (Qwen2-MoE)": (
        lambda: model({**LLAMA, **EXPERTS}, shared_expert_intermediate_size=96),
        lambda m: experts(m).shared_parameters, 3 * 256 * 96 + 256),
    "shared width 0 is none (MiniMax)": (
        lambda: model({**LLAMA, **EXPERTS}, shared_intermediate_size=0), lambda m: experts(m).shared_parameters, 0),
    "experts beside a dense part (Gemma-4 26B-A4B)": (
        lambda: model({**LLAMA, **EXPERTS}, enable_moe_block=True),
        lambda m: (m.components["dense_ffn"], m.components["routed_experts"]),
        (4 * 3 * 256 * 512, 4 * 8 * 3 * 256 * 64)),
    "slots without weights (LongCat: 8 real experts of 12 slots)": (
        lambda: model({**LLAMA, **EXPERTS, "num_experts_per_tok": 4}, zero_expert_num=8),
        lambda m: (experts(m).chosen, experts(m).router), (2, 256 * 16)),
    "full_attention_interval (Qwen3-Next)": (
        lambda: model(full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4,
                      linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4),
        recurrent, [1, 0, 1, 0]),
    "attn_type_list: 1 is softmax attention (MiniMax-M1)": (
        lambda: model(attn_type_list=[0, 0, 0, 1]), recurrent, [1, 1, 1, 0]),
    "kda_layers count from 1 (Kimi-Linear)": (
        lambda: model(LATENT, linear_attn_config={"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 4,
                                                  "head_dim": 16, "short_conv_kernel_size": 4}),
        recurrent, [1, 1, 1, 0]),
    "hybrid_override_pattern: one part per layer (Nemotron-H)": (
        lambda: model(model_type="nemotron_h", hybrid_override_pattern="M*-M", mamba_num_heads=4, mamba_head_dim=16,
                      n_groups=1, ssm_state_size=16, conv_kernel=4),
        lambda m: [(bool(m.blocks[k].mixer), bool(m.blocks[k].dense)) for k in m.sequence],
        [(True, False), (True, False), (False, True), (True, False)]),
    "layers counted from layers_block_type (Nemotron-3-Ultra)": (
        lambda: model({**LLAMA, **EXPERTS}, model_type="nemotron_h", num_hidden_layers=DROP, mamba_num_heads=4,
                      mamba_head_dim=16, n_groups=1, ssm_state_size=16, conv_kernel=4,
                      layers_block_type=["mamba", "moe", "attention"]),
        lambda m: len(m.sequence), 3),
    "attention and feed-forward left out layer by layer (Nemotron-NAS)": (
        lambda: model(num_key_value_heads=None, intermediate_size=None, block_configs=[
            {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 1.5, "no_op": False}},
            {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 3.0, "no_op": False}},
        ] * 2), lambda m: (m.cached_elements(1), m.components["dense_ffn"]),
        (2 * 2 * 64, 2 * 3 * 256 * (256 + 512))),
    "a sparse text_config has its class's values (Gemma-3: 262208 tokens)": (
        lambda: model({}, model_type="gemma3", text_config={"model_type": "gemma3_text", "hidden_size": 2560}),
        lambda m: (m.vocabulary, len(m.sequence), "vocab_size" in m.assumed[0]), (262208, 26, True)),
    "older Cohere files keep the context in model_max_length": (
        lambda: model(max_position_embeddings=8192, model_max_length=131072), lambda m: m.context_length, 131072),
    "recurrent states are float32 unless said otherwise": (
        lambda: model(attn_type_list=[0, 0, 0, 1]),
        lambda m: next(b.mixer.state_bytes for b in m.blocks if isinstance(b.mixer, Recurrent)), 4.0),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_trap(trap: tuple[Callable[[], Transformer], Callable[[Transformer], object], object]) -> None:
    found, look, expected = trap
    assert look(found()) == expected


# --- multi-token prediction: apart from the total


def test_mtp_is_apart_from_the_total() -> None:
    with_mtp = model(LATENT, num_nextn_predict_layers=1)
    layer = sum(with_mtp.blocks[0].parameters().values())
    assert with_mtp.total_parameters == model(LATENT).total_parameters
    assert with_mtp.mtp == layer + 2 * 256 * 256 + 3 * 256


def test_mtp_that_is_not_in_the_files_is_not_counted() -> None:
    found = model(model_type="minimax_m2", use_mtp=True, num_mtp_modules=3)
    assert found.mtp == 0
    assert "not in the released checkpoint" in found.assumed[0]


# --- formats

FP8_BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
GROUP32 = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "targets": ["Linear"]}
POSIT = {"num_bits": 4, "type": "posit"}
FORMATS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "fp8 in blocks (DeepSeek-V3)": (FP8_BLOCK, {"attention": "fp8-block", "routed_experts": "fp8-block"}),
    "fp8 per tensor (Devstral-2)": (
        {"quant_method": "fp8", "weight_block_size": None}, {"attention": "fp8", "routed_experts": "fp8"}),
    "no method, an algorithm (Qwen3-32B-FP8-Static-PerTensor)": (
        {"quant_algo": "FP8", "ignore": ["lm_head"]}, {"attention": "fp8", "routed_experts": "fp8"}),
    "mxfp4 covers experts only (gpt-oss)": (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        {"routed_experts": "mxfp4"}),
    "pack-quantized, the rest named by patterns (Kimi-K2.5)": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": GROUP32},
         "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]},
        {"routed_experts": "int4-g32"}),
    "a name is a run of whole parts: gate is not gate_proj (MiniMax-M2)": (
        {**FP8_BLOCK, "modules_to_not_convert": ["gate", "lm_head"]},
        {"attention": "fp8-block", "routed_experts": "fp8-block"}),
    "attention left alone, layer by layer (MiniMax-M2.5-NVFP4)": (
        {**NVFP4, "ignore": ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(4))]},
        {"routed_experts": "nvfp4"}),
    "attention left alone in one layer of four: taken as quantised": (
        {**NVFP4, "ignore": ["lm_head", "model.layers.0.self_attn*"]},
        {"attention": "nvfp4", "routed_experts": "nvfp4"}),
    "the head is quantised unless named (ModelOpt)": (
        {**NVFP4, "ignore": ["model.layers.*.self_attn*"]}, {"routed_experts": "nvfp4", "head": "nvfp4"}),
    "mixed precision names what it quantises (Qwen3.6)": (
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
            **{f"model.layers.{layer}.self_attn.o_proj": {"quant_algo": "FP8"} for layer in range(4)},
            **{f"model.layers.{layer}.mlp.experts": {"quant_algo": "W4A16_NVFP4"} for layer in range(4)},
            "lm_head": {"quant_algo": "W4A16_NVFP4"}}},
        {"attention": "fp8", "routed_experts": "nvfp4", "head": "nvfp4"}),
    "experts by an algorithm of their own (DeepSeek-V4-NVFP4)": (
        {**FP8_BLOCK, "moe_quant_algo": "NVFP4", "ignore": ["*.attn.*"]},
        {"attention": "fp8-block", "routed_experts": "nvfp4"}),
    "GPTQ, groups of 128": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        {"attention": "int4-g128", "routed_experts": "int4-g128"}),
    "AWQ, other names": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 128},
        {"attention": "int4-g128", "routed_experts": "int4-g128"}),
    "bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True}, {"attention": "bnb-nf4", "routed_experts": "bnb-nf4"}),
    "int8 (compressed-tensors)": (
        {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
         "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}},
        {"attention": "int8", "routed_experts": "int8"}),
}  # fmt: skip


INPUTS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""Projections into latent attention."""


@pytest.mark.parametrize(
    ("left_alone", "stored"),
    [
        ((), {"attention": "nvfp4", "attention_output": "nvfp4"}),
        (INPUTS, {"attention_output": "nvfp4"}),
        ((*INPUTS, "o_proj"), {}),
    ],
    ids=[
        "all of it",
        "but for the inputs (DeepSeek-R1-0528-NVFP4-v2, V3.1, V3.2)",
        "none (DeepSeek-R1-NVFP4)",
    ],
)
def test_the_output_of_latent_attention_has_a_format_of_its_own(
    left_alone: tuple[str, ...], stored: dict[str, str]
) -> None:
    """NVIDIA's second checkpoint of R1-0528 "additionally quantizes the wo module in attention layers" (its card)."""
    named = [f"model.layers.{layer}.self_attn.{each}" for layer in range(4) for each in left_alone]
    found = model(LATENT, quantization_config={**NVFP4, "ignore": ["lm_head", *named]})
    assert {
        part: found.native[part] for part in ("attention", "attention_output") if part in found.native
    } == stored
    assert not found.assumed


def test_elements_of_a_checkpoint_whose_attention_is_quantised_in_part() -> None:
    """nvidia/DeepSeek-V3.1-NVFP4 on the Hub: 393,632,819,968 elements; two values of four bits are one, sixteen of them
    have a scale, and every matrix two more. Its layer of multi-token prediction is 16-bit, with embedding and head."""
    found = catalog.model("nvidia/DeepSeek-V3.1-NVFP4").transformer
    four_bit = sum(count for part, count in found.components.items() if found.native.get(part) == "nvfp4")
    matrices = 58 * 257 * 3 + 3 * 3 + 61
    rest = found.total_parameters - four_bit + found.mtp + found.embedding + found.head
    counted = four_bit / 2 + four_bit / 16 + 2 * matrices + rest
    assert counted == pytest.approx(393_632_819_968, abs=1e5)


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({**NVFP4, "kv_cache_quant_algo": "FP3"}, "kv_cache_quant_algo 'FP3' is not known"),
        ({**NVFP4, "kv_cache_scheme": {"num_bits": 3}}, "kv_cache_scheme {'num_bits': 3} is not known"),
        ({**FP8_BLOCK, "moe_quant_algo": "FP3"}, "moe_quant_algo 'FP3' is not known"),
        ({**FP8_BLOCK, "expert_dtype": "fp3"}, "expert_dtype 'fp3' is not known"),
        ({"quant_method": "modelopt", "quantized_layers": {"lm_head": {"quant_algo": "FP3"}}},
         "quant_algo 'FP3' is not known"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": POSIT}}},
         "type 'posit' are not known"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_quantisation_is_said(quantization: dict[str, Any], said: str) -> None:
    """A format nobody knows is named, and what is taken instead; it never falls away in silence."""
    found = model({**LLAMA, **EXPERTS}, quantization_config=quantization)
    assert any(said in words for words in found.assumed)


@pytest.mark.parametrize(
    "wrong", [{"quantization_config": {**FP8_BLOCK, "weight_block_size": "x"}}, {"moe_layer_freq": "x"}]
)
def test_a_word_where_numbers_belong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'x'"):
        model({**LLAMA, **EXPERTS}, **wrong)


@pytest.mark.parametrize(("quantization", "expected"), FORMATS.values(), ids=FORMATS)
def test_formats_by_component(quantization: dict[str, Any], expected: dict[str, str]) -> None:
    found = model({**LLAMA, **EXPERTS}, quantization_config=quantization)
    assert found.native == expected


def test_quantization_may_be_nested_or_in_a_file_of_its_own() -> None:
    nested = model({}, text_config={**LLAMA, "quantization_config": FP8_BLOCK})
    assert nested.native["attention"] == "fp8-block"
    separate = {"producer": {}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
                                                 "exclude_modules": ["lm_head"]}}  # fmt: skip
    found = transformer_from_config(LLAMA, name="test", quantization=separate)
    assert found.native == {"attention": "nvfp4", "dense_ffn": "nvfp4"}
    assert found.native_kv == "fp8"


def test_expert_dtype_is_not_in_the_quantization_config() -> None:
    """DeepSeek-V4: quant_method says fp8, the experts are fp4 with one scale per 32."""
    found = model({**LLAMA, **EXPERTS}, quantization_config=FP8_BLOCK, expert_dtype="fp4")
    assert found.native == {"attention": "fp8-block", "routed_experts": "mxfp4"}


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ({"num_bits": 8, "type": "float"}, "fp8"),
        ("FP8", "fp8"),
        ({"num_bits": 8, "type": "int"}, "int8"),
        (None, None),
    ],
)
def test_kv_format(scheme: object, expected: str | None) -> None:
    assert model(quantization_config={**NVFP4, "kv_cache_scheme": scheme}).native_kv == expected


def test_an_unknown_quantiser_is_said_to_be_unknown() -> None:
    found = model(quantization_config={"quant_method": "aqlm"})
    assert found.native == {}
    assert "'aqlm' is not known" in found.assumed[0]


def test_every_format_an_import_can_name_is_in_the_catalogue() -> None:
    known = yaml.safe_load((ROOT / "catalogs" / "formats.yaml").read_text("utf-8"))
    named = {stored for quantization, _ in FORMATS.values()
             for stored in model({**LLAMA, **EXPERTS}, quantization_config=quantization).native.values()}  # fmt: skip
    assert named <= set(known)


# --- what is guessed is said


def test_an_unknown_class_is_counted_and_said() -> None:
    found = model(model_type="brand_new", tie_word_embeddings=DROP)
    assert found.total_parameters == model().total_parameters
    assert [note.split(":")[0] for note in found.assumed] == [
        "model type 'brand_new' is not known",
        "tie_word_embeddings not stated",
    ]


def test_an_unknown_layer_type_is_said() -> None:
    found = model(layer_types=["full_attention", "quantum_attention"] * 2)
    assert "'quantum_attention' is not known" in found.assumed[0]


# --- bad input: a message, never another error

BAD: dict[str, tuple[object, str]] = {
    "a list": ([], "a config must be a mapping"),
    "text": ("hello", "a config must be a mapping"),
    "empty": ({}, "no hidden size: looked for hidden_size, n_embd"),
    "no layers": ({**LLAMA, "num_hidden_layers": None}, "no number of layers"),
    "no vocabulary": ({**LLAMA, "vocab_size": None}, "no vocabulary"),
    "no feed-forward width": ({**LLAMA, "intermediate_size": None}, "no feed-forward width"),
    "a billion layers": ({**LLAMA, "num_hidden_layers": 10**9}, "outside 1 to 2048"),
    "no layers at all": ({**LLAMA, "num_hidden_layers": 0}, "outside 1 to 2048"),
    "a negative width": ({**LLAMA, "hidden_size": -256}, "outside 1 to"),
    "a number in quotes": ({**LLAMA, "hidden_size": "256"}, "not a whole number"),
    "true for a number": ({**LLAMA, "hidden_size": True}, "not a whole number"),
    "not a number": ({**LLAMA, "hidden_size": float("nan")}, "not a whole number"),
    "infinite": ({**LLAMA, "hidden_size": float("inf")}, "not a whole number"),
    "half a head": ({**LLAMA, "num_attention_heads": 7.5}, "not a whole number"),
    "heads that do not divide": ({**LLAMA, "num_attention_heads": 7}, "not a multiple of 7 heads"),
    "KV heads that do not divide": ({**LLAMA, "num_key_value_heads": 3}, "cannot share 3 KV heads"),
    "more experts chosen than there are": (
        {**LLAMA, **EXPERTS, "num_experts_per_tok": 9}, "9 experts per token, but only 8"),
    "a pattern that is too short": ({**LLAMA, "layer_types": ["full_attention"]}, "names 1 layers, the config 4"),
    "an unknown letter": ({**LLAMA, "hybrid_override_pattern": "MXM-"}, "layer kind 'X' is not known"),
    "a huge list": ({**LLAMA, "layer_types": ["full_attention"] * 10**6}, "more than 2048"),
    "a mapping where a number should be": ({**LLAMA, "hidden_size": {"a": 1}}, "not a whole number"),
    "text where a mapping should be": ({**LLAMA, "text_config": "x"}, "text_config must be a mapping"),
    "both at once in a layer": (
        {**LLAMA, "layer_types": ["hybrid"] * 4}, "attention and Mamba side by side are not supported"),
    "an encoder-decoder": ({**LLAMA, "is_encoder_decoder": True}, "encoder-decoder"),
    "a masked language model": ({**LLAMA, "architectures": ["BertForMaskedLM"]}, "not a decoder language model"),
    "a million module names": (
        {**LLAMA, "quantization_config": {**NVFP4, "ignore": ["x"] * 10**6}}, "more than 20000"),
    "too many kinds of module": (
        {**LLAMA, "quantization_config": {**NVFP4, "ignore": [f"m{n}" for n in range(5000)]}}, "different modules"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "message"), BAD.values(), ids=BAD)
def test_bad_config(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        transformer_from_config(config, name="test")
    assert len(str(raised.value)) < 300


def test_a_hostile_pattern_is_no_regular_expression() -> None:
    """(a+)+$ takes a backtracking matcher forever."""
    hostile = ["re:(a+)+$", "re:" + "(x|y)" * 60, "*a" * 100, "[" * 100, "re:.*" * 50]
    start = time.perf_counter()
    found = model({**LLAMA, **EXPERTS}, quantization_config={**NVFP4, "ignore": [*hostile, "lm_head"]})
    assert found.native["attention"] == "nvfp4"
    assert time.perf_counter() - start < 1


def test_deep_nesting_does_no_harm() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"text_config": deep}
    with pytest.raises(ConfigError):
        transformer_from_config(deep, name="test")


def test_fields_say_what_was_looked_for() -> None:
    with pytest.raises(ConfigError, match="no expert width: looked for a, b"):
        Fields({}).count("a", "b", what="expert width")


# --- fuzz: whatever comes in, a model or a message, soon

SEEDS = [
    yaml.safe_load(path.read_text("utf-8"))["config"]
    for name in (
        "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V4-Flash", "google/gemma-4-26B-A4B", "moonshotai/Kimi-K3",
        "nvidia/GLM-5.2-NVFP4", "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "nvidia/Qwen3.6-27B-NVFP4",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "openai/gpt-oss-20b", "ai21labs/Jamba-v0.1",
        "MiniMaxAI/MiniMax-M3", "XiaomiMiMo/MiMo-V2-Flash", "databricks/dbrx-instruct", "tiiuae/falcon-7b",
    )
    for path in [ROOT / "catalogs" / "models" / f"{name}.yaml"]
]  # fmt: skip
KEYS = sorted({key for seed in SEEDS for part in (seed, seed.get("text_config", {})) for key in part})
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, 3, 8, 64, 4096, 10**9, 10**30, -1]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["M*-E", "LLLG", "full_attention", "re:(a+)+$", "modelopt", "NVFP4", "gemma4", "step3p7", "qwen"]
    ),
    st.lists(st.integers(-1, 3), max_size=80),
    st.lists(
        st.sampled_from(["full_attention", "sliding_attention", "mamba", "moe", "conv", "x"]), max_size=80
    ),
    st.dictionaries(st.sampled_from(KEYS), st.integers(-1, 2048), max_size=6),
)


@st.composite
def damaged_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A real config with fields overwritten, dropped or carried over from another family."""
    config = json.loads(json.dumps(draw(st.sampled_from(SEEDS))))
    parts = [config] + [
        config[key] for key in ("text_config", "quantization_config", "vision_config") if key in config
    ]
    for part in parts:
        for key in draw(st.lists(st.sampled_from(sorted(part)), max_size=3)) if part else []:
            part.pop(key, None)
        part.update(draw(st.dictionaries(st.sampled_from(KEYS), HOSTILE, max_size=4)))
    if draw(st.booleans()):
        other = draw(st.sampled_from(SEEDS))
        config.update({key: other[key] for key in draw(st.lists(st.sampled_from(sorted(other)), max_size=4))})
    return config


def model_or_message(config: dict[str, Any]) -> Transformer | str:
    """What comes of a config; any other error than ConfigError is a failure."""
    try:
        return transformer_from_config(config, name="fuzz")
    except ConfigError as error:
        return str(error)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(damaged_configs())
def test_damaged_configs_give_a_model_or_a_message(config: dict[str, Any]) -> None:
    start = time.perf_counter()
    found = model_or_message(config)
    assert time.perf_counter() - start < 2
    if isinstance(found, str):
        assert len(found) < 600
    else:
        assert found.total_parameters == sum(found.components.values()) > 0
        assert 0 < found.active_parameters <= found.total_parameters
        assert found.cached_elements(4096) >= 0


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(KEYS), HOSTILE, max_size=25))
def test_random_configs_give_a_model_or_a_message(config: dict[str, Any]) -> None:
    assert model_or_message(config)


# --- by size


@given(st.floats(0.5e9, 2e12))
def test_a_dense_model_of_any_size(total: float) -> None:
    found = transformer_of_size(total)
    assert found.total_parameters == pytest.approx(total, rel=0.02)
    assert found.active_parameters == found.total_parameters
    assert found.assumed[0].startswith("dense, ")
    mixer, width = attention(found), found.blocks[0].dense
    assert mixer.heads % 8 == 0
    assert mixer.kv_heads == 8
    assert width is not None
    assert width.width % 256 == found.hidden % 256 == 0


@given(st.floats(5e9, 2e12), st.floats(0.05, 0.6))
def test_a_mixture_of_any_size(total: float, share: float) -> None:
    active = max(total * share, 1e9)
    found = transformer_of_size(total, active=active)
    assert found.total_parameters == pytest.approx(total, rel=0.02)
    assert found.active_parameters == pytest.approx(active, rel=0.05)
    assert experts(found).count % 8 == 0
    assert f"{experts(found).chosen} per token" in found.assumed[0]


def test_models_by_size_are_the_same_every_time() -> None:
    assert transformer_of_size(70e9) == transformer_of_size(70e9)


@pytest.mark.parametrize(
    ("total", "active"),
    [(0.0, None), (-1.0, None), (float("nan"), None), (1e15, None), (1e9, 2e9), (1e9, 1e6)],
)
def test_sizes_no_model_has(total: float, active: float | None) -> None:
    with pytest.raises(ValueError, match="parameters"):
        transformer_of_size(total, active=active)


# --- what cannot be described is refused


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "t5", "whisper"])
def test_models_for_other_tasks_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="is not a decoder language model"):
        model(model_type=kind)


@pytest.mark.parametrize(
    "kind", ["zamba2", "falcon_h1", "rwkv", "recurrent_gemma", "jetmoe", "mllama_text_model"]
)
def test_layers_that_cannot_be_described_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"models of type '{kind}' are not supported: "):
        model(model_type=kind)


def test_fields_of_one_layer() -> None:
    """`per_layer_config` (transformers 5): two-digit layer numbers, the fields that differ."""
    found = model(per_layer_config={"02": {"num_key_value_heads": 8}})
    assert [attention(found, layer).kv_heads for layer in range(4)] == [2, 2, 8, 2]


def test_layers_with_experts_listed_one_by_one() -> None:
    """K-EXAONE: `is_moe_layer`."""
    assert routed(model(**EXPERTS, is_moe_layer=[False, True, True, False])) == [0, 1, 1, 0]


def test_an_attention_bias_that_is_turned_off() -> None:
    """GLM-4-32B-0414 has none, GLM-4-9B-0414 has."""
    with_bias, without = (model(model_type="glm4", attention_bias=bias) for bias in (True, False))
    assert with_bias.total_parameters - without.total_parameters == 4 * (256 + 2 * 64)


def test_layers_differ_by_lists_whatever_else_they_share() -> None:
    found = model(intermediate_size=[512, 512, 1024, 512])
    widths = [dense.width for kind in found.sequence if (dense := found.blocks[kind].dense)]
    assert widths == [512, 512, 1024, 512]


@pytest.mark.parametrize(
    "fields",
    [
        {f"field_{i}": i for i in range(200_000)},
        {
            "per_layer_config": {f"{i:02d}": {"hidden_act": "silu"} for i in range(5000)},
            "num_hidden_layers": 2048,
        },
        {"num_hidden_layers": 2048, **{f"list_{i}": list(range(2048)) for i in range(500)}},
    ],
)
def test_large_configs_take_bounded_time(fields: dict[str, Any]) -> None:
    start = time.process_time()
    with suppress(ConfigError):
        model(**fields)
    assert time.process_time() - start < 5


# --- formats by group, and Quark's


def test_groups_of_layers_with_formats_of_their_own() -> None:
    """compressed-tensors: attention in FP8, feed-forward parts in NVFP4."""
    groups = {
        "group_0": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]},
        "group_1": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["re:.*mlp.*"]},
    }
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    assert model(quantization_config=quantization).native == {"attention": "fp8", "dense_ffn": "nvfp4"}
    quantization["ignore"] = ["lm_head", "re:.*self_attn.*"]
    assert model(quantization_config=quantization).native == {"dense_ffn": "nvfp4"}


@pytest.mark.parametrize(
    ("weight", "stored"),
    [
        ({"dtype": "fp8_e4m3"}, "fp8"),
        ({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, "mxfp4"),
        ({"dtype": "int4", "group_size": 128}, "int4-g128"),
        ([{"dtype": "fp8_e4m3"}, {"dtype": "int4"}], "fp8"),
    ],
)
def test_quark(weight: object, stored: str) -> None:
    quantization = {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight},
        "exclude": ["lm_head"],
    }
    assert model(quantization_config=quantization).native == {"attention": stored, "dense_ffn": stored}
