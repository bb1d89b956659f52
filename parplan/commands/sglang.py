"""`sglang serve`: its tensor size is all GPUs of a layer; data and expert ranks are parts of it."""

from dataclasses import dataclass

from parplan.commands.shell import Option, Variable, command
from parplan.commands.start import DRAFTER, Dialect, Start, more_than_one
from parplan.layout import Layout
from parplan.memory import Memory
from parplan.problem import Problem

SGLANG_PORT = 20000
"""Where the nodes of an SGLang server meet; any free port will do."""


@dataclass(frozen=True)
class Sglang(Dialect):
    """`sglang serve`: its tensor size is the whole of a layer's GPUs, attention data ranks are part of it."""

    label = "SGLang"

    def refusal(self, problem: Problem, layout: Layout) -> str:
        """Context ranks are taken out of the tensor ranks; a server that decodes has no drafts with stages.

        Source for drafts: sglang/srt/server_args.py, `check_server_args`.
        """
        if problem.settings.drafts and layout.pipeline > 1:
            return "SGLang drafts tokens with pipeline stages only in servers for prefill alone."
        if layout.context > 1:
            return (
                "SGLang takes context ranks out of the tensor ranks (--attn-cp-size divides --tp-size), and only for "
                "some models; it has no flag for context ranks beside them."
            )
        return ""

    def commands(self, start: Start) -> tuple[str, ...]:
        """The same on every node but for its rank."""
        layout, settings = start.layout, start.problem.settings
        options: dict[str, Option] = {
            "--model-path": start.checkpoint.model,
            "--tp-size": more_than_one(layout.width),
            "--attn-dp-size": more_than_one(layout.data),
            "--pp-size": more_than_one(layout.pipeline),
            "--ep-size": more_than_one(layout.expert),
            "--enable-eplb": start.copies > 0,
            "--ep-num-redundant-experts": start.copies or None,
            "--moe-a2a-backend": "deepep" if start.copies and start.problem.gpu.vendor == "NVIDIA" else None,
            "--dcp-size": more_than_one(layout.decode_context),
            "--language-model-only": start.problem.text_only,
            "--dtype": start.dtype,
            "--quantization": start.checkpoint.quantization,
            "--kv-cache-dtype": start.kv,
            "--context-length": start.length,
            "--mem-fraction-static": start.utilization,
            "--max-running-requests": start.slots and start.slots * int(layout.data),
            "--chunked-prefill-size": start.step,
            "--cuda-graph-backend-decode": "disabled" if settings.eager else None,
            "--cuda-graph-backend-prefill": "disabled" if settings.eager else None,
            **self._drafting(start),
        }
        meeting = Variable("HEAD", suffix=f":{SGLANG_PORT}")
        places: list[dict[str, Option]] = [
            {"--nnodes": start.nodes, "--node-rank": node, "--dist-init-addr": meeting}
            for node in range(start.nodes)
        ]
        if start.nodes == 1:
            places = [{}]
        return tuple(command(["sglang", "serve"], options | place) for place in places)

    def _drafting(self, start: Start) -> dict[str, Option]:
        """One chain of tokens per request, verified with the token before it; sizes are given all three or none.

        Source: sglang/srt/arg_groups/speculative_hook.py; docs/advanced_features/speculative_decoding.md.
        """
        if not start.drafts:
            return {}
        return {
            "--speculative-algorithm": "NEXTN" if start.drafts_itself else "EAGLE3",
            "--speculative-draft-model-path": None if start.drafts_itself else Variable(DRAFTER),
            "--speculative-num-steps": start.drafts,
            "--speculative-eagle-topk": 1,
            "--speculative-num-draft-tokens": start.drafts + 1,
        }

    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Tokens of the pool; SGLang states no concurrency.

        Source: sglang/srt/managers/scheduler.py.
        """
        return (f"max_total_num_tokens={int(held.kv_tokens / start.layout.data)}",)
