"""What measurements are of, in words people read."""

from collections.abc import Sequence
from dataclasses import dataclass

from parplan.validate import Report, Row

UNITS = {
    "tpot_ms": "time per token, ms",
    "ttft_ms": "time to first token, ms",
    "weights_gib_per_gpu": "weights, GiB per GPU",
    "kv_gib_per_gpu": "KV cache, GiB per GPU",
    "kv_tokens": "KV cache, tokens",
    "max_concurrency": "longest requests at once",
    "activation_peak_gib": "activation peak, GiB",
    "non_torch_gib": "non-torch memory, GiB",
    "cudagraph_gib": "CUDA graphs, GiB",
    "value": "all figures, each in its own unit",
}
"""Measured columns, the one people ask for first first."""
METRICS = {
    "out_tok_s_total": "output tokens/s, whole replica",
    "out_tok_s_per_gpu": "output tokens/s per GPU",
    "out_tok_s_per_node": "output tokens/s per node of 8",
    "in_tok_s_per_node": "prompt tokens/s per node of 8",
    "in_tok_s_per_gpu": "prompt tokens/s per GPU",
    "in_tok_s_total": "prompt tokens/s, whole replica",
    "tok_s_user": "tokens/s per user",
    "req_s": "requests/s",
    "ttft_ms": "time to first token, ms",
    "tpot_ms": "time per token, ms",
    "e2e_latency_ms": "time of a whole request, ms",
    "e2e_latency_s": "time of a whole request, s",
}
"""Metrics of files that state one figure a row."""


@dataclass(frozen=True)
class Quantity:
    """Something that was measured."""

    column: str
    label: str
    metric: str = ""
    """The metric rows must be of. Empty: any."""

    def of(self, row: Row) -> bool:
        """Whether a row measures it."""
        return not self.metric or row.group.get("metric") == self.metric


def quantities(found: Report) -> Sequence[Quantity]:
    """What a report compares; for files that state one figure a row, also by metric."""
    columns = [
        Quantity(name, label)
        for name, label in UNITS.items()
        if name in found.measured and found.errors(name)
    ]
    metrics = found.by_group("metric", "value") if "value" in found.measured else {}
    return [*columns, *(Quantity("value", METRICS.get(metric, metric), metric) for metric in metrics)]
