"""`vllm serve`: tensor, pipeline and data ranks; experts over all of them or cut over all of them."""

import json
from dataclasses import dataclass

from parplan.commands.shell import HEAD, Option, Variable, command
from parplan.commands.start import DRAFTER, Dialect, Start, more_than_one, written_gib
from parplan.drafting import draft_layers
from parplan.layout import Layout
from parplan.memory import Memory
from parplan.mixers import Latent
from parplan.problem import Problem


@dataclass(frozen=True)
class Vllm(Dialect):
    """`vllm serve`."""

    label = "vLLM"
    prefill_context: bool
    """Context-parallel prefill works."""
    one_line: bool
    """The log states cache size and largest concurrency in one line, and the size follows from the concurrency."""
    staged_drafts: bool
    """Tokens are drafted with pipeline stages too."""

    def refusal(self, problem: Problem, layout: Layout) -> str:
        """Experts are whole on all GPUs or cut over all of them; context ranks share the experts; layers that draft run
        in turn, each as often as the others.

        Sources: vllm/v1/worker/gpu/pcp_manager.py of 0.33 for context ranks; vllm/config/speculative.py (`n_predict`),
        issue 52069 and pull requests 46994 and 50514 for drafts.
        """
        drafts, layers = problem.settings.drafts, draft_layers(problem.transformer)
        if drafts and layout.pipeline > 1 and not self.staged_drafts:
            return f"vLLM {self.version} does not draft tokens with pipeline stages."
        if drafts > layers > 1 and drafts % layers:
            return (
                f"vLLM drafts with all {layers} layers in turn: a multiple of {layers} tokens, not {drafts}."
            )
        if layout.expert not in (1, layout.width):
            return (
                f"vLLM spreads whole experts over all {layout.width} GPUs of a layer (--enable-expert-parallel) or "
                f"cuts each over all of them; it has no flag for {layout.expert} groups."
            )
        if layout.context > 1 and not self.prefill_context:
            return f"Context-parallel prefill does not work yet in vLLM {self.version}."
        if layout.context > 1 and not all(isinstance(mixer, Latent) for mixer in problem.transformer.mixers):
            return f"vLLM {self.version} has context-parallel prefill for latent attention (MLA) only."
        if layout.context > 1 and problem.transformer.is_moe:
            return "vLLM spreads experts over the context ranks too, which is another layout."
        if layout.context > 1 and layout.decode_context > 1:
            return "With context-parallel prefill vLLM shards the cache over the context ranks, not the tensor ranks."
        return ""

    def commands(self, start: Start) -> tuple[str, ...]:
        """The first node serves; the others follow without a front end."""
        layout, settings = start.layout, start.problem.settings
        options: dict[str, Option] = {
            "--tensor-parallel-size": more_than_one(layout.tensor),
            "--pipeline-parallel-size": more_than_one(layout.pipeline),
            "--prefill-context-parallel-size": more_than_one(layout.context),
            "--decode-context-parallel-size": more_than_one(layout.decode_context),
            "--data-parallel-size": more_than_one(layout.data),
            "--enable-expert-parallel": bool(layout.expert > 1),
            "--enable-eplb": start.copies > 0,
            "--eplb-config": json.dumps({"num_redundant_experts": start.copies}) if start.copies else None,
            "--dtype": start.dtype,
            "--quantization": start.checkpoint.quantization,
            "--kv-cache-dtype": start.kv,
            "--max-model-len": start.length,
            "--gpu-memory-utilization": start.utilization,
            "--max-num-seqs": start.slots,
            "--max-num-batched-tokens": start.step,
            "--enable-prefix-caching": start.problem.workload.prefix_hit > 0,
            "--enforce-eager": settings.eager,
            "--language-model-only": start.problem.text_only,
            "--speculative-config": self._drafting(start),
        }
        words = ["vllm", "serve", start.checkpoint.model]
        return tuple(command(words, options | self._place(start, node)) for node in range(start.nodes))

    def _drafting(self, start: Start) -> Option:
        """The checkpoint's own layers, or an EAGLE-3 head.

        Source: vLLM docs/features/speculative_decoding/mtp.md and eagle.md; "mtp" stands for every model's since 0.11.
        """
        if not start.drafts:
            return None
        if start.drafts_itself:
            return json.dumps({"method": "mtp", "num_speculative_tokens": start.drafts})
        head = json.dumps({"method": "eagle3", "num_speculative_tokens": start.drafts, "model": ""})
        return Variable(DRAFTER, prefix=head[:-2], suffix=head[-2:])

    def _place(self, start: Start, node: int) -> dict[str, Option]:
        """What one node is told of its place: data ranks fill nodes, or ranks reach over several."""
        layout, nodes = start.layout, start.nodes
        if nodes == 1:
            return {}
        here, rank = layout.gpus // nodes, layout.gpus // layout.data
        if here % rank == 0:
            local = here // rank
            return {
                "--data-parallel-size-local": local,
                "--data-parallel-address": HEAD,
                "--data-parallel-start-rank": node * local if node else None,
                "--headless": node > 0,
            }
        return {"--nnodes": nodes, "--node-rank": node, "--master-addr": HEAD, "--headless": node > 0}

    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Weights and cache of the fullest GPU, then what the cache holds.

        Source: vllm/v1/core/kv_cache_utils.py; a log of 0.19.0.
        """
        concurrency = float(held.pool / held.longest)
        logged = concurrency * start.length if self.one_line else float(held.kv_tokens / start.layout.data)
        size = f"GPU KV cache size: {int(logged):,} tokens"
        most = f"Maximum concurrency for {start.length:,} tokens per request: {concurrency:.2f}x"
        return (
            f"Model loading took {written_gib(held.weights)} GiB memory",
            f"Available KV cache memory: {written_gib(held.pool)} GiB",
            *((f"{size}, {most}",) if self.one_line else (size, most)),
        )
