"""Predictions beside published measurements: how wrong the numbers are, over all rows and by group.

Three kinds of file are known by their columns: what engines logged about their memory, times to first and per output
token at fixed concurrency, and one figure (throughput or a time) of a benchmark run. A row is predicted from what it
states; what it does not state takes the engine's default. A row that names something the catalogue does not know, or
too little, is skipped, and says why.
"""

from parplan.validate.cells import Cells, RowError, number
from parplan.validate.deployments import Deployment, deployment
from parplan.validate.files import report_of, validation
from parplan.validate.marks import MARKS, UNUSED, comparable, marks
from parplan.validate.memory_rows import MEMORY_COLUMNS, memory_gpu, memory_layout, settings_of
from parplan.validate.names import (
    base_name,
    engine_named,
    gpu_named,
    known_gpu,
    kv_format,
    published_in,
    transformer_named,
    weight_format,
)
from parplan.validate.origins import source_url
from parplan.validate.report import (
    GROUPS,
    VERDICT,
    Report,
    Row,
    explains,
    measured_fit,
    relative_error,
    report_json,
    why_wrong,
    write_rows,
    written_report,
)
from parplan.validate.speed_rows import BENCHMARK_WAVES, SPEED_COLUMNS, steps_between_looks
from parplan.validate.throughput_rows import (
    MANY,
    THROUGHPUT_COLUMNS,
    benchmark_kv,
    benchmark_layout,
    benchmark_run,
    queued,
    stated_tokens,
    static_batch,
)
from parplan.validate.worst import worst_groups, written_group

__all__ = [
    "BENCHMARK_WAVES",
    "GROUPS",
    "MANY",
    "MARKS",
    "MEMORY_COLUMNS",
    "SPEED_COLUMNS",
    "THROUGHPUT_COLUMNS",
    "UNUSED",
    "VERDICT",
    "Cells",
    "Deployment",
    "Report",
    "Row",
    "RowError",
    "base_name",
    "benchmark_kv",
    "benchmark_layout",
    "benchmark_run",
    "comparable",
    "deployment",
    "engine_named",
    "explains",
    "gpu_named",
    "known_gpu",
    "kv_format",
    "marks",
    "measured_fit",
    "memory_gpu",
    "memory_layout",
    "number",
    "published_in",
    "queued",
    "relative_error",
    "report_json",
    "report_of",
    "settings_of",
    "source_url",
    "stated_tokens",
    "static_batch",
    "steps_between_looks",
    "transformer_named",
    "validation",
    "weight_format",
    "why_wrong",
    "worst_groups",
    "write_rows",
    "written_group",
    "written_report",
]
