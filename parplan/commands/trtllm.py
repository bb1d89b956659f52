"""`trtllm-serve` with the PyTorch backend: flags, and a file for what has none."""

from dataclasses import dataclass

import yaml

from parplan.commands.shell import Option, Word, command
from parplan.commands.start import DRAFTER, Dialect, Start, more_than_one, written_gib
from parplan.layout import Layout
from parplan.memory import Memory
from parplan.problem import Problem

CONFIG_FILE = "trtllm-serve.yaml"
"""Where TensorRT-LLM's extra options are saved."""
TRTLLM_STEP = 8192
"""TensorRT-LLM's default tokens of one step; longer prompts need chunked prefill."""


@dataclass(frozen=True)
class Trtllm(Dialect):
    """`trtllm-serve` with the PyTorch backend; a cluster manager starts all ranks."""

    label = "TensorRT-LLM"

    def refusal(self, problem: Problem, layout: Layout) -> str:  # noqa: ARG002
        """Attention is cut over all of a layer's GPUs or repeated on all; no context parallelism."""
        if layout.tensor > 1 and layout.data > 1:
            return (
                f"TensorRT-LLM cuts attention over all {layout.width} GPUs of a layer or repeats it on each "
                f"(enable_attention_dp); it has no flag for TP{layout.tensor} repeated {layout.data} times."
            )
        if layout.decode_context > 1:
            return (
                "TensorRT-LLM shards the cache of decoding (Helix) only where prefill has servers of its own."
            )
        if layout.context > 1:
            return "trtllm-serve has no context-parallel prefill for ordinary attention."
        return ""

    def commands(self, start: Start) -> tuple[str, ...]:
        """One command; over several nodes, Slurm starts one task per GPU."""
        layout, step = start.layout, start.step or TRTLLM_STEP
        options: dict[str, Option] = {
            "--tp_size": more_than_one(layout.width),
            "--pp_size": more_than_one(layout.pipeline),
            "--ep_size": more_than_one(layout.expert),
            "--gpus_per_node": layout.gpus // start.nodes if start.nodes > 1 else None,
            "--max_seq_len": start.length,
            "--max_batch_size": start.slots,
            "--max_num_tokens": start.step,
            "--enable_chunked_prefill": start.problem.workload.prompt > step,
            "--extra_llm_api_options": CONFIG_FILE if self.config(start) else None,
        }
        words: list[Word] = ["trtllm-serve", start.checkpoint.model]
        if start.nodes > 1:
            each = layout.gpus // start.nodes
            slurm = f"srun --mpi=pmix --nodes {start.nodes} --ntasks {layout.gpus} --ntasks-per-node {each}"
            words = [*slurm.split(), "trtllm-llmapi-launch", *words]
        return (command(words, options),)

    def config(self, start: Start) -> str:
        """What has no flag of its own."""
        cache = {
            "dtype": start.kv,
            "enable_block_reuse": start.problem.workload.prefix_hit > 0 or None,
            "free_gpu_memory_fraction": start.utilization,
        }
        keys: dict[str, object] = {
            "dtype": {"half": "float16"}.get(start.dtype or "", start.dtype),
            "enable_attention_dp": bool(start.layout.data > 1) or None,
            "kv_cache_config": {key: value for key, value in cache.items() if value is not None} or None,
            "moe_config": self._balanced(start),
            "speculative_config": self._drafting(start),
        }
        given = {key: value for key, value in keys.items() if value is not None}
        graphs = {"cuda_graph_config": None} if start.problem.settings.eager else {}
        return yaml.safe_dump(given | graphs, sort_keys=False) if given or graphs else ""

    def _balanced(self, start: Start) -> dict[str, object] | None:
        """Slots for experts and their copies, one layer rearranged per step; only the wide backend has them.

        Source: tensorrt_llm create_moe.py (assertion on WideEPMoE), llm_args.py MoeLoadBalancerConfig.
        """
        if not start.copies:
            return None
        experts = max(block.experts.count for block in start.problem.transformer.blocks if block.experts)
        return {
            "backend": "WIDEEP",
            "load_balancer": {"num_slots": experts + start.copies, "layer_updates_per_iter": 1},
        }

    def _drafting(self, start: Start) -> dict[str, object] | None:
        """The checkpoint's own layers, or an EAGLE-3 head; no variable is expanded in the file.

        Source: tensorrt_llm llm_args.py MTPDecodingConfig, Eagle3DecodingConfig; docs/source/features/
        speculative-decoding.md.
        """
        if not start.drafts:
            return None
        if start.drafts_itself:
            return {"decoding_type": "MTP", "max_draft_len": start.drafts}
        return {"decoding_type": "Eagle3", "max_draft_len": start.drafts, "speculative_model": DRAFTER}

    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Bytes and tokens of the pool.

        Source: kvCacheManager.cpp; logs of 1.0 and later.
        """
        tokens = int(held.kv_tokens / start.layout.data)
        return (
            f"[MemUsageChange] Allocated {written_gib(held.pool)} GiB for max tokens in paged KV cache ({tokens}).",
        )
