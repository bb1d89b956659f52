"""What an engine is told: settings of the user, and its own defaults for a GPU where they say nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from pydantic import Field

from parplan.calibration import MemoryProfile, Slack, Tier
from parplan.hardware import Gpu, Hardware
from parplan.layout import Layout
from parplan.provenance import Value
from parplan.units import Array, Bytes, Count, Tokens

WIDE = 4
"""Tensor ranks from which an engine may take the wider of its defaults (`Tier.wide`)."""


class Settings(Value):
    """Engine settings a user may override; what is None stays at the engine's default."""

    utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of memory the engine takes (vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`,
    TensorRT-LLM `--kv_cache_free_gpu_memory_fraction`)."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=65_536)
    """Sequences one data rank runs at once."""
    at_once: int | tuple[int, ...] | None = None
    """Requests one replica shall run at once: where `max_num_seqs` says nothing, its data ranks are told to take as
    many between them, if that is more than the engine's default. Several: one for each concurrency that is looked at.
    None: the default is enough."""
    max_batched_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Tokens of one step."""
    max_length: int | None = Field(default=None, ge=1, le=100_000_000)
    """Longest request the engine is told to expect. None: just long enough for the workload."""
    eager: bool = False
    """Record no CUDA graphs."""
    drafts: int = Field(default=0, ge=0, le=64)
    """Tokens drafted for every request and step (speculative decoding). What drafts them is loaded: the checkpoint's
    multi-token-prediction layers, or an EAGLE head where it has none. 0: none, and nothing is loaded."""
    prefix_caching: bool = False
    """Prompts are looked up in the cache of earlier ones."""
    redundant_experts: int = Field(default=0, ge=0, le=4096)
    """Copies of busy experts beside the model's own, per layer (expert load balancing, vLLM `--eplb-config`)."""
    activations: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of the activation peak as a log states them. None: predicted."""
    non_torch: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of communication buffers and libraries as a log states them. None: predicted."""
    graphs: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Bytes of recorded CUDA graphs as a log states them. None: predicted."""

    def running(self, requests: int | tuple[int, ...]) -> "Settings":
        """The same for another number of requests at once, where slots follow it."""
        return self if self.at_once is None else self.model_copy(update={"at_once": requests})

    @property
    def measured(self) -> dict[str, float]:
        """Overheads that were measured rather than predicted, bytes by name."""
        stated = {name: getattr(self, name) for name in ("activations", "non_torch", "graphs")}
        return {name: amount for name, amount in stated.items() if amount is not None}


@dataclass(frozen=True)
class Limits:
    """What the engine is really told: settings, with its defaults for this GPU where they say nothing."""

    utilization: Array
    """Share of memory the engine takes, [...]."""
    sequences: Count
    """Sequences one data rank runs at once, [...]."""
    batched_tokens: Tokens
    """Tokens of one step, [...]."""
    largest_graph: Array
    """Largest batch recorded as a CUDA graph, [...]; 0: none."""
    length: Tokens
    """Longest request it is told to expect, tokens, [...]."""
    measured: dict[str, float]
    """Overheads taken from a log, bytes by name."""


def tier_of(tiers: Sequence[Tier], *, gpu: Gpu) -> Tier:
    """The highest tier a GPU reaches; a profile's lowest tier holds for every GPU."""
    reached = (
        tier for tier in tiers if tier.memory <= gpu.memory and gpu.architecture not in tier.exceptions
    )
    return max(reached, key=lambda tier: tier.memory)


def tier_value(tiers: Sequence[Tier], *, gpu: Hardware) -> Any:
    """The default of the highest tier a GPU reaches."""
    return gpu.each(lambda one: tier_of(tiers, gpu=one).value)


def wide_value(tiers: Sequence[Tier], *, gpu: Hardware) -> Any:
    """The same from `WIDE` tensor ranks up."""

    def value(one: Gpu) -> int:
        tier = tier_of(tiers, gpu=one)
        return tier.wide or tier.value

    return gpu.each(value)


def slack_bytes(
    slack: Slack, *, gpu: Hardware, layout: Layout, batched_tokens: Tokens, largest_graph: Count
) -> Bytes:
    """What an engine leaves free when it is not told its share.

    constant + per token x max(tokens, least) + per sequence x graph batch + per GPU x tensor x pipeline
    """
    left = (
        slack.constant
        + slack.per_batched_token * np.maximum(batched_tokens, slack.least_batched_tokens)
        + slack.per_graph_sequence * largest_graph
        + slack.per_gpu * np.asarray(layout.tensor) * np.asarray(layout.pipeline)
    )
    floor = gpu.each(lambda one: slack.floor if one.memory >= slack.floor_from else 0.0)
    return np.asarray(np.maximum(left, floor))


def default_slots(settings: Settings, *, profile: MemoryProfile, gpu: Hardware) -> Count:
    """Sequences one data rank runs at once when the engine is not told: its default, or one for each token of a step
    the user has set, where that is fewer and the engine counts so.

    Source: vLLM vllm/engine/arg_utils.py, `_set_default_max_num_seqs_and_batched_tokens_args`, read 2026-11-30.
    """
    most = settings.max_batched_tokens if profile.slots_within_step else None
    return np.minimum(tier_value(profile.sequences, gpu=gpu), most or np.inf).astype(int)


def sequence_slots(settings: Settings, *, profile: MemoryProfile, gpu: Hardware, layout: Layout) -> Count:
    """Sequences one data rank is told to run at once: as set, else the engine's default, or its share of what the
    replica shall run where that is more.

        max(default, min(at once / data, tokens of a step))
    """
    if settings.max_num_seqs:
        return settings.max_num_seqs
    most = settings.max_batched_tokens if profile.slots_within_step else None
    share = np.ceil(np.asarray(settings.at_once or 1) / np.asarray(layout.data))
    wanted = np.minimum(share, most or np.inf).astype(int)
    return np.maximum(default_slots(settings, profile=profile, gpu=gpu), wanted)


def step_tokens(settings: Settings, *, profile: MemoryProfile, gpu: Hardware) -> Tokens:
    """Tokens of one step: as set, else the engine's default, or one for each slot where it refuses to start with less.

    Source: vLLM vllm/config/scheduler.py, `SchedulerConfig`, read 2026-11-30: max_num_batched_tokens must be greater
    than or equal to max_num_seqs.
    """
    if settings.max_batched_tokens:
        return settings.max_batched_tokens
    slots = (settings.max_num_seqs or settings.at_once or 1) if profile.slots_within_step else 1
    return np.maximum(tier_value(profile.batched_tokens, gpu=gpu), np.asarray(slots))


def limits(
    settings: Settings,
    *,
    profile: MemoryProfile,
    gpu: Hardware,
    layout: Layout,
    length: Tokens,
    slots: Count | None = None,
) -> Limits:
    """Settings with every None replaced by the engine's default for this GPU.

    Args:
        length: of the workload's requests, which the engine expects where it is not told otherwise, [...].
        slots: of one data rank, where they are known already, [...].
    """
    batched_tokens = step_tokens(settings, profile=profile, gpu=gpu)
    if slots is None:
        slots = sequence_slots(settings, profile=profile, gpu=gpu, layout=layout)
    sequences = slots
    graphs = profile.largest_graph
    recorded = np.where(
        np.asarray(layout.tensor) >= WIDE, wide_value(graphs, gpu=gpu), tier_value(graphs, gpu=gpu)
    )
    recorded = np.minimum(recorded, 2 * sequences).astype(float)
    share = settings.utilization or profile.utilization
    if share is None and profile.slack:
        left = slack_bytes(
            profile.slack, gpu=gpu, layout=layout, batched_tokens=batched_tokens, largest_graph=recorded
        )
        share = cast(float, np.maximum(1 - left / gpu.each(lambda one: one.memory), 0.0))
    return Limits(
        utilization=np.asarray(share, dtype=float),
        sequences=sequences,
        batched_tokens=batched_tokens,
        largest_graph=np.zeros_like(recorded) if settings.eager else recorded,
        length=settings.max_length or length,
        measured=settings.measured,
    )
