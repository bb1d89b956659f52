"""What a start-up log can state: quantities by name, and which of several ranks stands for all."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

EngineName: TypeAlias = Literal["vllm", "sglang", "trtllm"]
LABELS: dict[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


@dataclass(frozen=True)
class Quantity:
    """Something a log states."""

    label: str
    kind: Literal["bytes", "count", "times", "share", "word", "flag"]
    worst: Literal["largest", "smallest", "last"] = "last"
    """Which of several ranks stands for all: the one that has least memory left."""


QUANTITIES: dict[str, Quantity] = {
    "version": Quantity("version", "word"),
    "model": Quantity("model", "word"),
    "snapshot": Quantity("model, from the path of its files", "word"),
    "gpu": Quantity("GPU", "word"),
    "quantization": Quantity("quantization", "word"),
    "dtype": Quantity("dtype", "word"),
    "kv_dtype": Quantity("KV cache dtype", "word"),
    "world": Quantity("ranks that work together", "count"),
    "tensor": Quantity("tensor parallel", "count"),
    "pipeline": Quantity("pipeline parallel", "count"),
    "data": Quantity("data parallel", "count"),
    "expert": Quantity("expert parallel", "count"),
    "decode_context": Quantity("decode-context parallel", "count"),
    "expert_parallel": Quantity("experts spread over all GPUs", "flag"),
    "attention_data": Quantity("attention data-parallel", "flag"),
    "eager": Quantity("CUDA graphs switched off", "flag"),
    "text_only": Quantity("towers left out", "flag"),
    "drafts": Quantity("tokens drafted at once", "count"),
    "prefix_caching": Quantity("prompts looked up in the cache", "flag"),
    "utilization": Quantity("share of memory", "share"),
    "max_length": Quantity("longest request, tokens", "count"),
    "max_num_seqs": Quantity("sequences at once", "count"),
    "max_batched_tokens": Quantity("tokens of one step", "count"),
    "encoder_tokens": Quantity("tokens of images or clips it is profiled with", "count"),
    "total": Quantity("GPU memory", "bytes", "smallest"),
    "free": Quantity("free at start", "bytes", "smallest"),
    "free_after_weights": Quantity("free with weights loaded", "bytes", "smallest"),
    "free_after_pool": Quantity("free with the KV cache allocated", "bytes", "smallest"),
    "context": Quantity("context, taken before start", "bytes", "largest"),
    "weights": Quantity("weights", "bytes", "largest"),
    "activations": Quantity("activation peak", "bytes", "largest"),
    "weights_and_activations": Quantity("weights and activation peak", "bytes", "largest"),
    "non_torch": Quantity("non-torch memory", "bytes", "largest"),
    "weights_and_non_torch": Quantity("weights and non-torch memory", "bytes", "largest"),
    "context_and_non_torch": Quantity("context and non-torch memory", "bytes", "largest"),
    "outside_torch": Quantity("context, non-torch memory and CUDA graphs", "bytes", "largest"),
    "without_cache": Quantity("all but the KV cache, at the peak", "bytes", "largest"),
    "execution_context": Quantity("execution context of a built engine", "bytes", "largest"),
    "runtime_buffers": Quantity("runtime buffers of a built engine", "bytes", "largest"),
    "decoder": Quantity("decoder of a built engine", "bytes", "largest"),
    "graphs": Quantity("CUDA graphs", "bytes", "largest"),
    "graphs_piecewise": Quantity("piecewise CUDA graphs", "bytes", "largest"),
    "graphs_estimated": Quantity("CUDA graphs, estimated beforehand", "bytes", "largest"),
    "kv": Quantity("KV cache", "bytes", "smallest"),
    "states": Quantity("recurrent states", "bytes", "smallest"),
    "kv_tokens": Quantity("KV cache, tokens", "count", "smallest"),
    "concurrency": Quantity("longest requests at once", "times", "smallest"),
    "blocks": Quantity("KV blocks", "count", "smallest"),
    "block_size": Quantity("tokens of a block", "count"),
}
DECIMALS = {"count": 0, "times": 2, "share": 4}
"""Decimals numbers are shown with."""
