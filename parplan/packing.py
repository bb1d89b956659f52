"""JSON as a short string a link can carry."""

import base64
import json
import zlib
from typing import Any

NAMES = """
    low_freq_factor high_freq_factor mlp_layer_types norm_eps moe_shared_expert_intermediate_size
    mamba_ssm_cache_dtype use_mamba_kernels use_conv_bias time_step_min time_step_max time_step_floor ssm_state_size
    residual_in_fp32 rescale_prenorm_residual num_logits_to_keep n_groups mlp_hidden_act mamba_proj_bias
    mamba_num_heads mamba_hidden_act mamba_head_dim expand conv_kernel chunk_size mamba_ssm_dtype
    shared_expert_intermediate_size mtp_use_dedicated_embeddings mtp_num_hidden_layers attn_output_gate
    decoder_sparse_step final_logit_softcapping linear_value_head_dim linear_num_value_heads linear_num_key_heads
    linear_key_head_dim linear_conv_kernel_dim full_attention_interval use_bias hidden_dropout vision_start_token_id
    vision_end_token_id mrope_section mrope_interleaved global_head_dim modules_to_not_convert
    indexer_rope_interleave use_qk_norm rope_interleave qk_head_dim mscale_all_dim mscale num_local_experts
    _name_or_path mlp_only_layers hidden_activation kv_cache_scheme layer_norm_epsilon temporal_patch_size
    out_hidden_size num_position_embeddings in_channels depth deepstack_visual_indexes version producer AutoModel
    spatial_merge_size num_heads max_window_layers output_router_logits ignore group_0 config_groups targets
    input_activations fmt index_topk index_n_heads index_head_dim mlp_bias use_sliding_window weights
    router_aux_loss_coef ep_size video_token_id image_token_id beta_slow beta_fast weight_block_size
    activation_scheme layer_types qk_nope_head_dim kv_lora_rank v_head_dim moe_layer_freq patch_size vision_config
    num_experts text_config topk_method first_k_dense_replace AutoModelForCausalLM AutoConfig auto_map
    qk_rope_head_dim q_lora_rank pretraining_tp factor n_group original_max_position_embeddings topk_group
    partial_rotary_factor scoring_func rope_parameters quant_method routed_scaling_factor quantization_config
    num_nextn_predict_layers n_routed_experts n_shared_experts norm_topk_prob num_bits rope_scaling rope_type
    pad_token_id moe_intermediate_size sliding_window type num_experts_per_tok dtype torch_dtype head_dim
    bos_token_id attention_bias transformers_version attention_dropout rms_norm_eps use_cache eos_token_id
    hidden_act rope_theta initializer_range max_position_embeddings num_key_value_heads tie_word_embeddings
    vocab_size num_hidden_layers intermediate_size num_attention_heads architectures hidden_size model_type
    group_size quant_algo
"""
"""Keys of config.json files, the frequent ones last."""
GPU = (
    '"architecture":"Hopper","bandwidth":"3.35 TB/s","domain":8,"fabric":"nvlink","label":"My H100 SXM 80 GB",'
    '"link":"450 GB/s","memory":"79.18 GiB","network":"50 GB/s","node":8,"peaks":{"bf16":"989.4 TFLOP/s",'
    '"fp16":"989.4 TFLOP/s","fp32":"66.9 TFLOP/s","fp8":"1978.9 TFLOP/s","int8":"1978.9 TFLOP/s"},"tdp":"700 W",'
    '"vendor":"NVIDIA"'
)
"""A GPU as it is described in a link."""
SETTINGS = """
    acceptance=78 activations=-1 active=0 budget=0 compute_scale=1 concurrency=64 config= context=0 data=0
    decode_context=0 discount=0 draft=0 engine=vllm expert=0 gpu=h100-sxm gpu_hour=0 graphs=-1 kv=auto
    memory_scale=1 model=meta-llama/Llama-3.3-70B-Instruct non_torch=-1 objective=cost output=1024 overhead_scale=1
    own_gpu= peak=1 pipeline=0 prefix=0 prompt=1024 rate=0 redundant=0 replicas=1 size=70 slots=0 step_tokens=0
    tensor=0 tpot=0 ttft=0 utilization=0 v=1 weights=fp8
"""
"""A scenario, setting by setting."""
FAMILIAR = ",".join(
    (
        *(f'"{name}":' for name in NAMES.split()),
        '"bfloat16"',
        GPU,
        *('"' + setting.replace("=", '":"') + '"' for setting in SETTINGS.split()),
    )
).encode()
"""What both ends of a link know already and only point to (a preset dictionary, RFC 1950). It never changes: links that
were packed with it could not be read any more."""

DAMAGED = "is damaged: some of its letters are missing or were changed"
"""What there is to say to people about text that cannot be unpacked."""


def packed_json(value: Any) -> str:
    """A JSON value in letters, digits, dashes and underscores.

    >>> unpacked_json(packed_json({"a": [1, 2]}), most=100)
    {'a': [1, 2]}
    """
    compact = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    compressor = zlib.compressobj(9, zdict=FAMILIAR)
    return base64.urlsafe_b64encode(compressor.compress(compact) + compressor.flush()).decode().rstrip("=")


def unpacked_json(text: str, *, most: int) -> dict[str, Any]:
    """The JSON object of a packed string.

    Args:
        text: from anybody; packed with what is `FAMILIAR` or, as links of 0.1.0 are, without.
        most: bytes it may unpack to; no more are unpacked.

    Raises:
        ValueError: the string is damaged or too large, or holds no object; the message goes on from what it should be.
    """
    unpacker = zlib.decompressobj(zdict=FAMILIAR)
    try:
        unpacked = unpacker.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), most)
    except (ValueError, zlib.error) as error:
        raise ValueError(DAMAGED) from error
    if unpacker.unconsumed_tail:
        raise ValueError(f"is too large: it unpacks to more than {most:,} bytes")
    try:
        found = json.loads(unpacked)
    except (ValueError, RecursionError) as error:
        raise ValueError(DAMAGED if unpacker.eof else "is damaged: its end is missing") from error
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found
