"""The lines vLLM (V0 and V1), SGLang and TensorRT-LLM print about memory, and those on which they give up.

Each engine words the same quantities in its own way, and every few versions anew. What all three print as "GB" is GiB.
"""

from parplan.logs.quantities import EngineName
from parplan.logs.wording import Wording
from parplan.units import GIB, MIB


def _wordings(engine: EngineName, *lines: str, unit: float = GIB) -> tuple[Wording, ...]:
    return tuple(Wording(engine, line, unit=unit) for line in lines)


def _settings(engine: EngineName, **keys: str) -> tuple[Wording, ...]:
    """Settings as KEY=value and as 'KEY': value."""
    written = ("{}=<{}>", "'{}': <{}>")
    return tuple(
        Wording(engine, form.format(key, quantity)) for key, quantity in keys.items() for form in written
    )


WORDINGS: tuple[Wording, ...] = (
    *_wordings(
        "vllm",
        # V1: v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py
        "Starting to load model <model>",
        "Model loading took <weights> GiB",
        "Model loading took <weights> GB",
        "torch peak memory increase: <activations> GiB",
        "non-torch forward increase memory: <non_torch> GiB",
        "total consumed (from mem_get_info): <weights_and_non_torch> GiB",
        "weights memory: <weights> GiB",
        "<weights> GiB for weight,",
        "<weights_and_non_torch> GiB for consumed memory",
        "<activations> GiB for peak activation",
        "<non_torch> GiB for non-torch memory",
        "<graphs> GiB for CUDAGraph memory",
        "Graph capturing finished in ... took <graphs> GiB",
        "CUDA graph pool memory: <graphs> GiB (actual), <graphs_estimated> GiB (estimated)",
        "Estimated CUDA graph memory: <graphs_estimated> GiB",
        "Available KV cache memory: <kv> GiB",
        "Current kv cache memory in use is <kv> GiB",
        "larger than the available KV cache memory (<kv> GiB)",
        "GPU KV cache size: <kv_tokens> tokens",
        "maximum number of tokens that can be stored in KV cache (<kv_tokens>)",
        "Maximum concurrency for <max_length> tokens per request: <concurrency>x",
        "free_memory=<free>GiB, total_memory=<total>GiB",
        "Free memory on device ...(<free>/<total> GiB)",
        "The current --gpu-memory-utilization=<utilization> is equivalent to",
        "Desired GPU memory utilization is (<utilization>,",
        "desired GPU memory utilization (<utilization>,",
        "Initial free memory: <free> GiB; Requested memory: <utilization> (util)",
        "num_gpu_blocks is: <blocks>",
        "Setting attention block size to <block_size> tokens",
        # V0: worker/worker.py, model_runner.py, executor/executor_base.py
        "Loading model weights took <weights> GB",
        "model weights take <weights> GiB",
        "non_torch_memory takes <non_torch> GiB",
        "PyTorch activation peak memory takes <activations> GiB",
        "memory reserved for KV Cache is <kv> GiB",
        "total_gpu_memory (<total> GiB) x gpu_memory_utilization (<utilization>)",
        "total_gpu_memory=<total>GiB initial_memory_usage=",
        "peak_torch_memory=<weights_and_activations>GiB",
        "memory_usage_post_profile=... non_torch_memory=<context_and_non_torch>GiB kv_cache_size=<kv>GiB"
        " gpu_memory_utilization=<utilization>",
        "# GPU blocks: <blocks>",
        "# cuda blocks: <blocks>",
        "# rocm blocks: <blocks>",
        # settings, printed on the way
        "in world size <world> is assigned as",
        "LLM engine (v<version>)",
        "vLLM API server version <version>",
        "█  version <version>",
        "Using max model len <max_length>",
        "Encoder cache will be initialized with a budget of <encoder_tokens> tokens",
        "for compile range (1, <max_batched_tokens>)",
        "Cache the graph of compile range (1, <max_batched_tokens>)",
        "Defaulting max_num_batched_tokens to <max_batched_tokens>",
        "Defaulting max_num_seqs to <max_num_seqs>",
        "Chunked prefill is enabled with max_num_batched_tokens=<max_batched_tokens>",
        "device_name=<gpu>",
    ),
    *_wordings("vllm", "Current kv cache memory in use is <kv> bytes", unit=1),
    *_wordings(
        "sglang",
        # model_executor/model_runner.py, mem_cache/memory_pool.py, managers/scheduler.py
        "Load weight end. ...avail mem=<free_after_weights> GB",
        "Memory pool end. avail mem=<free_after_pool> GB",
        "Capture cuda graph end. ...mem usage=<graphs> GB",
        "Capture target decode CUDA graph end. ...mem usage=<graphs> GB",
        "Capture piecewise CUDA graph end. ...mem usage=<graphs_piecewise> GB",
        "Mamba Cache is allocated. ...conv_state size: <states> GB, ssm_state size: <states+> GB",
        "memory calculation: bytes_per_full_token=...available_bytes=<kv> GB",
        "Using KV cache dtype: <kv_dtype>",
        "KV Cache is allocated. dtype: <kv_dtype>,",
        "max_total_num_tokens=<kv_tokens>, ...max_running_requests=<max_num_seqs>",
        "max_total_num_tokens=... chunked_prefill_size=<max_batched_tokens>,",
        "max_total_num_tokens=... context_len=<max_length>",
        "SGLang version <version>",
    ),
    # a draft model and a pool for windowed layers print the same lines again, with smaller figures
    Wording("sglang", "Load weight begin. avail mem=<free> GB", keep="largest"),
    Wording("sglang", "Load weight end. ...mem usage=<weights> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...K size: <kv> GB, V size: <kv+> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...KV size: <kv> GB", keep="largest"),
    Wording("sglang", "KV Cache is allocated. ...#tokens: <kv_tokens>,", keep="largest"),
    Wording("sglang", "SWAKVPool mem usage: <kv> GB, ...full size: <kv_tokens>", keep="largest"),
    *_wordings(
        "trtllm",
        # _torch/pyexecutor/_util.py, batch_manager/kvCacheManager.cpp, runtime/tllmRuntime.cpp
        "Use <weights> GB for model weights",
        "Memory used after loading model weights (inside torch) ...: <weights> GiB",
        "Memory dynamically allocated during inference (inside torch) ...: <activations> GiB",
        "Memory used outside torch (e.g., NCCL and CUDA graphs) ...: <outside_torch> GiB",
        "Peak memory during memory usage profiling (torch + non-torch): <without_cache> GiB",
        "Allocated <runtime_buffers> GB GPU memory for runtime buffers",
        "Allocated <decoder> GB GPU memory for decoder",
        "available KV cache memory when calculating max tokens: <kv> GiB",
        "calculating max tokens: ...fraction is set <utilization>",
        "device total memory <total> GiB",
        "Estimated max memory in KV cache : <kv> GiB",
        "Allocated <kv> GiB for max tokens in paged KV cache (<kv_tokens>)",
        "when calculating max tokens in paged kv cache: total: <total> GiB",
        "tokens per block=<block_size>, primary blocks=<blocks>",
        "primary blocks=... max sequence length=<max_length>",
        "Number of tokens per block: <block_size>",
        "Number of blocks in KV cache primary pool: <blocks>",
        "max_seq_len=<max_length>, max_num_requests=<max_num_seqs>, max_num_tokens=<max_batched_tokens>",
        "TRTGptModel maxNumSequences: <max_num_seqs>",
        "TRTGptModel maxSequenceLen: <max_length>",
        "TRTGptModel maxNumTokens: <max_batched_tokens>",
        "TensorRT-LLM version: <version>",
        "TensorRT LLM version: <version>",
        "Engine version <version> found in the config file",
        "/models--<snapshot>/snapshots/",
        "kv_cache_dtype=<kv_dtype>,",
    ),
    *_wordings(
        "trtllm",
        "Loaded engine size: <weights> MiB",
        "Allocated <execution_context> MiB for execution context memory",
        "Allocated <runtime_buffers> MB GPU memory for runtime buffers",
        "Allocated <decoder> MB GPU memory for decoder",
        unit=MIB,
    ),
)

SETTING_LINES = {
    "vllm": ("LLM engine (v", "LLM engine with config", "non-default args", "args: Namespace("),
    "sglang": ("server_args=",),
    "trtllm": ("LLM Args:", "moe_expert_parallel_size=", "TensorRT-LLM engine args:"),
}
"""Lines that print an engine's settings."""
SETTINGS: tuple[Wording, ...] = (
    *_settings(
        "vllm", model="model", tensor_parallel_size="tensor", pipeline_parallel_size="pipeline",
        data_parallel_size="data", decode_context_parallel_size="decode_context",
        enable_expert_parallel="expert_parallel", gpu_memory_utilization="utilization",
        max_seq_len="max_length", max_model_len="max_length", max_num_seqs="max_num_seqs",
        max_num_batched_tokens="max_batched_tokens", num_spec_tokens="drafts",
        enable_prefix_caching="prefix_caching", enforce_eager="eager", quantization="quantization",
        language_model_only="text_only", kv_cache_dtype="kv_dtype", dtype="dtype", block_size="block_size",
    ),
    *_settings(
        "sglang", model_path="model", tp_size="tensor", pp_size="pipeline", dp_size="data", ep_size="expert",
        enable_dp_attention="attention_data", mem_fraction_static="utilization", context_length="max_length",
        max_running_requests="max_num_seqs", chunked_prefill_size="max_batched_tokens",
        speculative_num_steps="drafts", disable_cuda_graph="eager", quantization="quantization",
        language_model_only="text_only", kv_cache_dtype="kv_dtype", dtype="dtype", page_size="block_size",
    ),
    *_settings(
        "trtllm", model="model", tensor_parallel_size="tensor", pipeline_parallel_size="pipeline",
        moe_expert_parallel_size="expert", enable_attention_dp="attention_data",
        free_gpu_memory_fraction="utilization", max_seq_len="max_length", max_batch_size="max_num_seqs",
        max_num_tokens="max_batched_tokens", dtype="dtype", tokens_per_block="block_size",
    ),
)  # fmt: skip
WANTED = ("weights", "activations", "non_torch", "graphs", "kv", "kv_tokens")
"""Quantities people compare; what a log does not say of them is reported."""
FAILURES = (
    "No available memory for the cache blocks",
    "KV cache is needed, which is larger than the available KV cache memory",
    "is larger than the maximum number of tokens that can be stored in KV cache",
    "is less than desired GPU memory utilization",
    "out of memory occurred",
    "out of memory. Tried to allocate",
    "Not enough memory. Please try to increase --mem-fraction-static",
    "exceeds available Mamba cache blocks",
)
"""What engines say when they do not come up."""
