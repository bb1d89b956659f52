"""Launch commands: what to type so that an engine runs a layout, and the log lines that show that it did.

Flags follow each engine's source at the version named in `Launch.checked`. A layout an engine has no flags for is a
`Launch` that says why, never an exception. Every word of a command is quoted for the shell.
"""

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import yaml

from parplan.formats import LINEAR, Component, Format
from parplan.layout import Cuts, Layout
from parplan.memory import Memory
from parplan.planner import Problem
from parplan.transformer import Compressed
from parplan.units import Bytes, gib

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
PLAIN = {"bf16": "bfloat16", "fp16": "half", "fp32": "float32"}
"""Formats every engine converts on loading, as `--dtype` names them."""
CACHE_BLOCK = 16
"""The longest request is rounded up to whole cache blocks of so many tokens."""
CONFIG_FILE = "trtllm-serve.yaml"
"""Where TensorRT-LLM's extra options are saved."""
SGLANG_PORT = 20000
"""Where the nodes of an SGLang server meet; any free port will do."""
TRTLLM_STEP = 8192
"""TensorRT-LLM's default tokens of one step; longer prompts need chunked prefill."""


@dataclass(frozen=True)
class Variable:
    """A shell variable the reader must set; the shell stops with an error while it is not."""

    name: str
    suffix: str = ""

    def __str__(self) -> str:
        """Written so that it expands, and stays one word.

        >>> str(Variable("HEAD", suffix=":20000"))
        '"${HEAD:?}:20000"'
        """
        return f'"${{{self.name}:?}}{self.suffix}"'


Word: TypeAlias = str | Variable
Option: TypeAlias = str | int | float | bool | Variable | None
"""What stands behind a flag: True for a bare one; None and False leave it out."""
HEAD = Variable("HEAD")
MODEL = Variable("MODEL")


@dataclass(frozen=True)
class Launch:
    """How to start one replica of a layout."""

    engine: str
    """Name of the engine."""
    commands: tuple[str, ...] = ()
    """One shell command per node, the first node first; a single one where a cluster manager starts all nodes."""
    config: str = ""
    """A YAML file the commands name; empty where none is needed."""
    expect: tuple[str, ...] = ()
    """Lines, or the start of lines, of the log: what the memory model predicts, in the engine's own words."""
    notes: tuple[str, ...] = ()
    """What else there is to know or to do."""
    cannot: str = ""
    """Why the engine cannot run the layout; empty when it can."""
    checked: str = ""
    """Version the flags and lines were checked against."""


@dataclass(frozen=True)
class Checkpoint:
    """What to load, and how."""

    model: Word
    quantization: str | None = None
    """Method that quantises on loading. None: the weights stay as they are stored."""
    note: str = ""

    @property
    def published(self) -> bool:
        """It is the model's own checkpoint, with the formats its config states."""
        return isinstance(self.model, str)


@dataclass(frozen=True)
class Start:
    """Everything a command of one engine follows from."""

    problem: Problem
    layout: Layout
    checkpoint: Checkpoint
    kv: str | None
    """The engine's name of the KV format. None: the engine's own choice is the right one."""
    utilization: float | None
    """Share of memory, where the user chose one for this very engine."""

    @property
    def length(self) -> int:
        """Longest request to expect, tokens."""
        return longest_request(self.problem)

    @property
    def nodes(self) -> int:
        """Nodes of one replica."""
        return node_count(self.layout, node=self.problem.gpu.node)

    @property
    def dtype(self) -> str | None:
        """The 16- or 32-bit type, where it is not the checkpoint's: asked for, or all the GPU can do."""
        asked = {found.name for found in asked_formats(self.problem).values()} & (PLAIN.keys() - {"bf16"})
        halves = self.problem.precision.kv.name == "fp16" or "bf16" not in self.problem.gpu.peaks
        return PLAIN[min(asked)] if asked else "half" if halves else None


@dataclass(frozen=True)
class Dialect(ABC):
    """One engine's command line, at one version."""

    label: ClassVar[str]
    """The name people read."""
    version: str
    online: Mapping[str, str]
    """Formats the engine quantises 16-bit checkpoints to on loading, and its names of the methods."""
    kv: Mapping[str, str]
    """KV cache formats, and the engine's names of them."""
    unread: frozenset[str]
    """Kinds of checkpoint it cannot load."""

    @abstractmethod
    def refusal(self, problem: Problem, layout: Layout) -> str:
        """Why there are no flags for a layout; empty when there are."""

    @abstractmethod
    def commands(self, start: Start) -> tuple[str, ...]:
        """One command per node, or one for all."""

    @abstractmethod
    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Log lines of one data rank."""

    def config(self, start: Start) -> str:  # noqa: ARG002
        """A YAML file the commands name; most engines need none."""
        return ""


def command(words: Iterable[Word], options: Mapping[str, Option]) -> str:
    """A shell command from words and options; flags of options that are None or False are left out.

    >>> command(["vllm", "serve", "a; b"], {"--tensor-parallel-size": 2, "--enforce-eager": True, "--dtype": None})
    "vllm serve 'a; b' --tensor-parallel-size 2 --enforce-eager"
    """
    parts = [_quoted(word) for word in words]
    for flag, value in options.items():
        if value is not None and value is not False:
            parts += [flag] if value is True else [flag, _quoted(value)]
    return " ".join(parts)


def _quoted(value: Option) -> str:
    return str(value) if isinstance(value, Variable) else shlex.quote(str(value))


def _gib(amount: Bytes) -> str:
    return f"{float(gib(amount)):.2f}"


def _more_than_one(size: Cuts) -> int | None:
    """A size that needs a flag; one is every engine's default."""
    return int(size) if int(size) > 1 else None


def node_count(layout: Layout, *, node: int) -> int:
    """Nodes of one replica: the fewest that hold the same number of GPUs each and cut tensor groups evenly.

    >>> node_count(Layout(tensor=4, pipeline=3), node=8), node_count(Layout(tensor=16), node=8)
    (3, 2)
    """
    gpus, tensor = int(layout.gpus), int(layout.tensor)
    counts = (n for n in range(-(-gpus // node), gpus) if gpus % n == 0)
    return next((n for n in counts if (gpus // n) % tensor == 0 or tensor % (gpus // n) == 0), gpus)


def longest_request(problem: Problem) -> int:
    """Tokens of the longest request to announce: as set, else the workload's, in whole cache blocks.

    Rounding stops at the length the model was made for, which engines refuse to exceed.
    """
    asked = problem.settings.max_length or problem.workload.length
    rounded = -(-asked // CACHE_BLOCK) * CACHE_BLOCK
    return max(asked, min(rounded, problem.transformer.context_length))


def asked_formats(problem: Problem) -> dict[Component, Format]:
    """Format of every component of matrix products the model has."""
    there = LINEAR & problem.transformer.components.keys()
    return {component: problem.precision.weights[component] for component in sorted(there)}


def checkpoint_kind(stored: Format) -> str:
    """How a checkpoint in a format is packed, as far as loading it goes: gguf, bitsandbytes, or the format's name."""
    if stored.label.startswith("GGUF"):
        return "gguf"
    return "bitsandbytes" if stored.name.startswith("bnb-") else stored.name


def checkpoint(problem: Problem, *, online: Mapping[str, str]) -> Checkpoint:
    """What to load so that the weights come out in the asked formats.

    The model's own checkpoint when it is published in them or the engine quantises it on loading; else a checkpoint
    the reader has to name.
    """
    name = problem.transformer.name
    asked = {component: found.name for component, found in asked_formats(problem).items()}
    native = {component: problem.transformer.native.get(component, "bf16") for component in asked}
    wanted, stored = set(asked.values()), set(native.values())
    plain = stored <= PLAIN.keys()
    model: Word = name if HUB_ID.fullmatch(name) else MODEL
    note = "" if isinstance(model, str) else "Set MODEL to the Hub id or the path of the model."
    if asked == native or (plain and wanted <= PLAIN.keys()):
        return Checkpoint(model, note=note)
    if plain and len(wanted) == 1 and wanted <= online.keys():
        return Checkpoint(model, quantization=online[wanted.pop()], note=note)
    return Checkpoint(
        MODEL,
        note=f"{name} is stored in {_listed(stored)}; set MODEL to a checkpoint of it in {_listed(wanted)}.",
    )


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names))


@dataclass(frozen=True)
class Vllm(Dialect):
    """`vllm serve`."""

    label = "vLLM"
    prefill_context: bool
    """Context-parallel prefill works."""
    one_line: bool
    """The log states cache size and largest concurrency in one line, and the size follows from the concurrency."""

    def refusal(self, problem: Problem, layout: Layout) -> str:
        """Experts are whole on all GPUs or cut over all of them; context ranks share the experts."""
        if layout.expert not in (1, layout.width):
            return (
                f"vLLM spreads whole experts over all {layout.width} GPUs of a layer (--enable-expert-parallel) or "
                f"cuts each over all of them; it has no flag for {layout.expert} groups."
            )
        if layout.context > 1 and not self.prefill_context:
            return f"Context-parallel prefill does not work yet in vLLM {self.version}."
        if layout.context > 1 and problem.transformer.is_moe:
            return "vLLM spreads experts over the context ranks too, which is another layout."
        if layout.context > 1 and layout.decode_context > 1:
            return "With context-parallel prefill vLLM shards the cache over the context ranks, not the tensor ranks."
        return ""

    def commands(self, start: Start) -> tuple[str, ...]:
        """The first node serves; the others follow without a front end."""
        layout, settings = start.layout, start.problem.settings
        options: dict[str, Option] = {
            "--tensor-parallel-size": _more_than_one(layout.tensor),
            "--pipeline-parallel-size": _more_than_one(layout.pipeline),
            "--prefill-context-parallel-size": _more_than_one(layout.context),
            "--decode-context-parallel-size": _more_than_one(layout.decode_context),
            "--data-parallel-size": _more_than_one(layout.data),
            "--enable-expert-parallel": bool(layout.expert > 1),
            "--dtype": start.dtype,
            "--quantization": start.checkpoint.quantization,
            "--kv-cache-dtype": start.kv,
            "--max-model-len": start.length,
            "--gpu-memory-utilization": start.utilization,
            "--max-num-seqs": settings.max_num_seqs,
            "--max-num-batched-tokens": settings.max_batched_tokens,
            "--enable-prefix-caching": start.problem.workload.prefix_hit > 0,
            "--enforce-eager": settings.eager,
        }
        words = ["vllm", "serve", start.checkpoint.model]
        return tuple(command(words, options | self._place(start, node)) for node in range(start.nodes))

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
            f"Model loading took {_gib(held.weights)} GiB memory",
            f"Available KV cache memory: {_gib(held.pool)} GiB",
            *((f"{size}, {most}",) if self.one_line else (size, most)),
        )


@dataclass(frozen=True)
class Sglang(Dialect):
    """`sglang serve`: its tensor size is the whole of a layer's GPUs, attention data ranks are part of it."""

    label = "SGLang"

    def refusal(self, problem: Problem, layout: Layout) -> str:  # noqa: ARG002
        """Context ranks are taken out of the tensor ranks."""
        if layout.context > 1:
            return (
                "SGLang takes context ranks out of the tensor ranks (--attn-cp-size divides --tp-size), and only for "
                "some models; it has no flag for context ranks beside them."
            )
        return ""

    def commands(self, start: Start) -> tuple[str, ...]:
        """The same on every node but for its rank."""
        layout, settings = start.layout, start.problem.settings
        slots = settings.max_num_seqs
        options: dict[str, Option] = {
            "--model-path": start.checkpoint.model,
            "--tp-size": _more_than_one(layout.width),
            "--attn-dp-size": _more_than_one(layout.data),
            "--pp-size": _more_than_one(layout.pipeline),
            "--ep-size": _more_than_one(layout.expert),
            "--dcp-size": _more_than_one(layout.decode_context),
            "--dtype": start.dtype,
            "--quantization": start.checkpoint.quantization,
            "--kv-cache-dtype": start.kv,
            "--context-length": start.length,
            "--mem-fraction-static": start.utilization,
            "--max-running-requests": slots and slots * int(layout.data),
            "--chunked-prefill-size": settings.max_batched_tokens,
            "--cuda-graph-backend-decode": "disabled" if settings.eager else None,
            "--cuda-graph-backend-prefill": "disabled" if settings.eager else None,
        }
        meeting = Variable("HEAD", suffix=f":{SGLANG_PORT}")
        places: list[dict[str, Option]] = [
            {"--nnodes": start.nodes, "--node-rank": node, "--dist-init-addr": meeting}
            for node in range(start.nodes)
        ]
        if start.nodes == 1:
            places = [{}]
        return tuple(command(["sglang", "serve"], options | place) for place in places)

    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Tokens of the pool; SGLang states no concurrency.

        Source: sglang/srt/managers/scheduler.py.
        """
        return (f"max_total_num_tokens={int(held.kv_tokens / start.layout.data)}",)


@dataclass(frozen=True)
class Trtllm(Dialect):
    """`trtllm-serve` with the PyTorch backend; a cluster manager starts all ranks."""

    label = "TensorRT-LLM"

    def refusal(self, problem: Problem, layout: Layout) -> str:
        """NVIDIA only; attention is cut over all of a layer's GPUs or repeated on all; no context parallelism."""
        if problem.gpu.vendor != "NVIDIA":
            return f"TensorRT-LLM runs on NVIDIA GPUs only, not on {problem.gpu.label}."
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
        layout, settings = start.layout, start.problem.settings
        step = settings.max_batched_tokens or TRTLLM_STEP
        options: dict[str, Option] = {
            "--tp_size": _more_than_one(layout.width),
            "--pp_size": _more_than_one(layout.pipeline),
            "--ep_size": _more_than_one(layout.expert),
            "--gpus_per_node": layout.gpus // start.nodes if start.nodes > 1 else None,
            "--max_seq_len": start.length,
            "--max_batch_size": settings.max_num_seqs,
            "--max_num_tokens": settings.max_batched_tokens,
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
        }
        given = {key: value for key, value in keys.items() if value is not None}
        graphs = {"cuda_graph_config": None} if start.problem.settings.eager else {}
        return yaml.safe_dump(given | graphs, sort_keys=False) if given or graphs else ""

    def expected(self, start: Start, held: Memory) -> tuple[str, ...]:
        """Bytes and tokens of the pool.

        Source: kvCacheManager.cpp; logs of 1.0 and later.
        """
        tokens = int(held.kv_tokens / start.layout.data)
        return (
            f"[MemUsageChange] Allocated {_gib(held.pool)} GiB for max tokens in paged KV cache ({tokens}).",
        )


_VLLM_KV = {"bf16": "bfloat16", "fp8": "fp8"}
DIALECTS: Mapping[str, Dialect] = {
    "vllm": Vllm(
        version="0.33.0",
        online={"fp8": "fp8_per_tensor", "fp8-block": "fp8_per_block"},
        kv={**_VLLM_KV, "nvfp4": "nvfp4"},
        unread=frozenset({"gguf", "bitsandbytes"}),
        prefill_context=True,
        one_line=True,
    ),
    "vllm-0.17": Vllm(
        version="0.19.0",
        online={"fp8": "fp8"},
        kv=_VLLM_KV,
        unread=frozenset(),
        prefill_context=False,
        one_line=False,
    ),
    "vllm-0.16": Vllm(
        version="0.16.0",
        online={"fp8": "fp8"},
        kv=_VLLM_KV,
        unread=frozenset(),
        prefill_context=False,
        one_line=False,
    ),
    "sglang": Sglang(
        version="0.5.23",
        online={"fp8": "fp8"},
        kv={"bf16": "bfloat16", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"},
        unread=frozenset(),
    ),
    "trtllm": Trtllm(
        version="serve.py @00209af",
        online={},
        kv={"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"},
        unread=frozenset({"gguf", "bitsandbytes", "int8"}),
    ),
}
"""Engines of the catalogue that can be started; each at the newest version its constants hold for."""


def launch(problem: Problem, *, layout: Layout, memory: Memory, engine_name: str) -> Launch:
    """How to start one replica of a layout with an engine, and what its log will say.

    Args:
        layout: a single one.
        memory: of that layout, as evaluated with the problem's engine.
        engine_name: any engine of the catalogue. Log lines, and the user's share of memory, which every engine
            takes of something else, are only given for the problem's own engine.
    """
    dialect = DIALECTS.get(engine_name)
    if dialect is None:
        return Launch(engine_name, cannot=f"{engine_name} is not an engine one can start.")
    checked = f"{dialect.label} {dialect.version}"
    refusal = _unread(problem, dialect=dialect) or dialect.refusal(problem, layout)
    if refusal:
        return Launch(engine_name, cannot=refusal, checked=checked)
    source, own = checkpoint(problem, online=dialect.online), engine_name == problem.engine.name
    start = Start(
        problem=problem,
        layout=layout,
        checkpoint=source,
        kv=_kv_name(problem, published=source.published, names=dialect.kv),
        utilization=problem.settings.utilization if own else None,
    )
    commands, config = dialect.commands(start), dialect.config(start)
    loads = own and memory.pool > 0 and memory.longest > 0
    return Launch(
        engine_name,
        commands=commands,
        config=config,
        expect=dialect.expected(start, memory) if loads else (),
        notes=notes(start, named=" ".join(commands)),
        checked=checked,
    )


def _unread(problem: Problem, *, dialect: Dialect) -> str:
    """Why an engine cannot hold the weights or the cache in the asked formats; empty when it can."""
    bad = [found for found in asked_formats(problem).values() if checkpoint_kind(found) in dialect.unread]
    if bad:
        return f"{dialect.label} {dialect.version} does not load {bad[0].label} checkpoints."
    cache = problem.precision.kv
    if cache.name not in {*PLAIN, *dialect.kv}:
        return f"{dialect.label} {dialect.version} has no KV cache in {cache.label}."
    return ""


def _kv_name(problem: Problem, *, published: bool, names: Mapping[str, str]) -> str | None:
    """The engine's name of the KV format, where it must be told: by itself it does as the checkpoint's config asks.

    No config asks for the FP8 cache of compressed attention, and not every version takes it by itself (vLLM PR 54233).
    """
    wanted = problem.precision.kv.name
    if any(isinstance(block.mixer, Compressed) for block in problem.transformer.blocks):
        return names.get(wanted)
    native = problem.transformer.native_kv if published else None
    by_itself = native or ("fp16" if wanted == "fp16" else "bf16")
    return None if wanted == by_itself else names.get(wanted)


def notes(start: Start, *, named: str) -> tuple[str, ...]:
    """What a reader has to set, save or know beyond the commands.

    Args:
        named: the commands, to see which variables and files they name.
    """
    problem, layout = start.problem, start.layout
    made_for = problem.transformer.context_length
    mean = problem.settings.max_length is None
    texts = (
        (bool(start.checkpoint.note), start.checkpoint.note),
        (
            mean,
            f"The longest request is announced as {start.length:,} tokens, the workload's mean: raise it to your "
            "longest request.",
        ),
        (
            start.length > made_for,
            f"Requests of {start.length:,} tokens exceed the {made_for:,} the model was made for; the engine refuses "
            "them unless it is told otherwise.",
        ),
        (
            "${HEAD" in named,
            f"Run one command on each of the {start.nodes} nodes; set HEAD to the address of the first.",
        ),
        (CONFIG_FILE in named, f"Save the configuration as {CONFIG_FILE}."),
        (layout.data > 1, f"Each of the {layout.data} data ranks logs its own cache."),
        (layout.replicas > 1, f"Start it {layout.replicas} times, once per replica, behind a load balancer."),
    )
    return tuple(text for holds, text in texts if holds)
