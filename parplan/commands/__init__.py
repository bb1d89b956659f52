"""Launch commands: what to type so that an engine runs a layout, and the log lines that show that it did.

Flags follow each engine's source at the version named in `Launch.checked`. A layout an engine has no flags for is a
`Launch` that says why, never an exception. Every word of a command is quoted for the shell.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from parplan import catalog
from parplan.calibration import Engine
from parplan.commands.sglang import Sglang
from parplan.commands.start import (
    DRAFTER,
    HUB_ID,
    Checkpoint,
    Dialect,
    Launch,
    Start,
    announced_length,
    checkpoint,
)
from parplan.commands.trtllm import CONFIG_FILE, Trtllm
from parplan.commands.vllm import Vllm
from parplan.layout import Layout
from parplan.memory import Memory, default_slots, limits, tier_value
from parplan.mixers import Compressed
from parplan.objections import BY_NAME
from parplan.planner import case_of, evaluate
from parplan.problem import Problem
from parplan.seating import numbering
from parplan.units import Array

__all__ = [
    "CONFIG_FILE",
    "DIALECTS",
    "HUB_ID",
    "Checkpoint",
    "Launch",
    "announced_length",
    "launch",
]

_VLLM_KV = {"bf16": "bfloat16", "fp8": "fp8"}
DIALECTS: Mapping[str, Dialect] = {
    "vllm": Vllm(
        version="0.33.0",
        online={"fp8": "fp8_per_tensor", "fp8-block": "fp8_per_block"},
        kv={**_VLLM_KV, "nvfp4": "nvfp4"},
        prefill_context=True,
        one_line=True,
        staged_drafts=True,
    ),
    "vllm-0.17": Vllm(
        version="0.19.0",
        online={"fp8": "fp8", "bnb-nf4": "bitsandbytes"},
        kv=_VLLM_KV,
        prefill_context=False,
        one_line=False,
        staged_drafts=False,
    ),
    "vllm-0.16": Vllm(
        version="0.16.0",
        online={"fp8": "fp8", "bnb-nf4": "bitsandbytes"},
        kv=_VLLM_KV,
        prefill_context=False,
        one_line=False,
        staged_drafts=False,
    ),
    "sglang": Sglang(
        version="0.5.23",
        online={"fp8": "fp8"},
        kv={"bf16": "bfloat16", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"},
    ),
    "trtllm": Trtllm(
        version="serve.py @00209af",
        online={},
        kv={"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"},
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
    own = engine_name == problem.engine.name
    engine = problem.engine if own else catalog.engines()[engine_name]
    refusal = _refused(problem, engine=engine) or dialect.refusal(problem, layout)
    if refusal:
        return Launch(engine_name, cannot=refusal, checked=checked)
    source = checkpoint(problem, online=dialect.online)
    fewer = states_for_slots(problem, layout=layout, memory=memory) if own else None
    if fewer:
        problem, memory = with_slots(problem, layout=layout, slots=fewer)
    start = Start(
        problem=problem,
        layout=layout,
        checkpoint=source,
        order=numbering(engine.family),
        kv=_kv_name(problem, published=source.published, names=dialect.kv),
        utilization=problem.settings.utilization if own else None,
        **told_apart(problem, layout=layout, engine=engine, planned=memory.slots if own else None),
    )
    commands, config = dialect.commands(start), dialect.config(start)
    loads = own and memory.pool > 0 and memory.longest > 0
    return Launch(
        engine_name,
        commands=commands,
        config=config,
        expect=dialect.expected(start, memory) if loads else (),
        notes=notes(start, named=" ".join(commands), fewer=fewer),
        checked=checked,
    )


def told_apart(
    problem: Problem, *, layout: Layout, engine: Engine, planned: Array | None
) -> dict[str, int | None]:
    """Sequence slots and tokens of a step where they are not an engine's default, as fields of `Start`.

    SGLang that drafts tokens runs 48 requests unless told otherwise (sglang/srt/arg_groups/speculative_hook.py), so it
    is told what is planned.

    Args:
        planned: slots of all data ranks. None: as many as the engine would be told.
    """
    settings, profile, gpu = problem.settings, engine.memory, problem.gpu
    known = None if planned is None else int(planned) // int(layout.data)
    length = problem.workload.length
    told = limits(settings, profile=profile, gpu=gpu, layout=layout, length=length, slots=known)
    slots, step = int(told.sequences), int(told.batched_tokens)
    more = slots > default_slots(settings, profile=profile, gpu=gpu)
    fewer = settings.drafts > 0 and engine.family == "sglang"
    longer = step > tier_value(profile.batched_tokens, gpu=gpu)
    return {
        "slots": slots if settings.max_num_seqs or more or fewer else None,
        "step": step if settings.max_batched_tokens or longer else None,
    }


def states_for_slots(problem: Problem, *, layout: Layout, memory: Memory) -> int | None:
    """Sequence slots with which an engine starts that wants a recurrent state for each; None where its default does, or
    the user has set them."""
    rule = BY_NAME["state-slots"]
    if problem.settings.max_num_seqs or not np.all(rule.broken(case_of(problem, layout=layout, held=memory))):
        return None
    return int(memory.states) or None


def with_slots(problem: Problem, *, layout: Layout, slots: int) -> tuple[Problem, Memory]:
    """A problem whose engine is told its sequence slots, and the memory of a layout then."""
    settings = problem.settings.model_copy(update={"max_num_seqs": slots})
    changed = replace(problem, settings=settings)
    held, _ = evaluate(changed, layout=layout, concurrency=np.asarray(problem.workload.concurrency))
    return changed, held


def _refused(problem: Problem, *, engine: Engine) -> str:
    """Why an engine does not run a model in the asked formats on the GPU; empty where it does."""
    found = engine.support.refusals(problem.transformer, precision=problem.precision, gpu=problem.gpu)
    return found[0].words(engine.label, gpu=problem.gpu) if found else ""


def _kv_name(problem: Problem, *, published: bool, names: Mapping[str, str]) -> str | None:
    """The engine's name of the KV format, where it must be told: by itself it does as the checkpoint's config asks.

    No config asks for the FP8 cache of compressed attention, and not every version takes it by itself (vLLM PR 54233).
    """
    wanted = problem.precision.kv.name
    if any(isinstance(mixer, Compressed) for mixer in problem.transformer.mixers):
        return names.get(wanted)
    native = problem.transformer.native_kv if published else None
    by_itself = native or ("fp16" if wanted == "fp16" else "bf16")
    return None if wanted == by_itself else names.get(wanted)


def _drafter_note(start: Start) -> str:
    """What the reader has to see to so that tokens are drafted; empty where the checkpoint named does it."""
    name = start.problem.transformer.name
    if start.drafts_itself:
        layers = "The checkpoint must hold the multi-token-prediction layers, which draft tokens."
        return "" if start.checkpoint.published else layers
    return (
        f"{DRAFTER} stands for what drafts tokens: set it to the Hub id or the path of an EAGLE-3 head made for "
        f"{name}, which has no layers of its own for that."
    )


def notes(start: Start, *, named: str, fewer: int | None = None) -> tuple[str, ...]:
    """What a reader has to set, save or know beyond the commands.

    Args:
        named: the commands, to see which variables and files they name.
        fewer: sequence slots below the engine's default, where it does not start with that.
    """
    problem, layout = start.problem, start.layout
    made_for = problem.transformer.context_length
    mean = problem.settings.max_length is None
    texts = (
        (bool(start.checkpoint.note), start.checkpoint.note),
        (bool(start.drafts), _drafter_note(start)),
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
            fewer is not None,
            f"More sequence slots than the {fewer or 0:,} set here would want a recurrent state each, and there is no "
            "room for those: it would not start.",
        ),
        (
            "${HEAD" in named,
            f"Run one command on each of the {start.nodes} nodes; set HEAD to the address of the first.",
        ),
        (CONFIG_FILE in named, f"Save the configuration as {CONFIG_FILE}."),
        (layout.data > 1, f"Each of the {layout.data} data ranks logs its own cache."),
        (layout.replicas > 1, f"Start it {layout.replicas} times, once per replica, behind a load balancer."),
    )
    return tuple(text for holds, text in texts if holds and text)
