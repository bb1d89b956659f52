"""How an engine divides each GPU, and which one runs out first."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parplan.allocator import charge, exact_charge, stores
from parplan.calibration import Engine, MemoryProfile
from parplan.formats import Component, Precision
from parplan.hardware import Hardware
from parplan.layout import Layout
from parplan.memory.loaded import loaded_weight_bytes, with_expert_share
from parplan.memory.overheads import (
    shared_bytes,
    stage_activation_bytes,
    stage_graph_bytes,
    stage_transfer_bytes,
)
from parplan.memory.results import Budget, Charges, Division, Memory, Rank, Ranks
from parplan.memory.settings import Limits, Settings, default_slots, limits
from parplan.transformer import Transformer
from parplan.units import Array, Count, Tokens
from parplan.work import Stages, all_stages, distinct_stages
from parplan.workload import Workload

MOST_ROUNDS = 12
"""Numbers of slots tried to find the most there is cache for: as many as halving 4,096 takes."""


def stage_budgets(
    transformer: Transformer,
    precision: Precision,
    *,
    weights: dict[Component, Array],
    layout: Layout,
    stages: Stages,
    gpu: Hardware,
    profile: MemoryProfile,
    told: Limits,
    settings: Settings,
) -> Budget:
    """How an engine divides pipeline stages' GPUs, [..., stages].

    pool = share x basis - weights - what the engine counts inside its share
    """
    context = np.asarray(shared_bytes(profile.context, ranks=np.asarray(layout.gpus), gpu=gpu))[..., None]
    team = np.asarray(layout.width) * np.asarray(layout.context)
    parts = {
        "activations": stage_activation_bytes(
            transformer, precision, profile=profile, layout=layout, stages=stages, told=told
        )
        + stage_transfer_bytes(transformer, weights, profile=profile, stages=stages, settings=settings),
        "non_torch": np.asarray(
            shared_bytes(profile.non_torch, ranks=team, gpu=gpu, stages=np.asarray(layout.pipeline))
        )[..., None],
        "graphs": stage_graph_bytes(transformer, profile=profile, stages=stages, largest=told.largest_graph),
    }
    parts |= {name: np.full_like(parts[name], amount) for name, amount in told.measured.items()}
    counted: Array = np.asarray(sum((parts[name] for name in sorted(profile.inside)), start=np.zeros(1)))
    held, share = cast(Array, sum(weights.values())), told.utilization[..., None]
    usable = np.asarray(gpu.each(lambda one: one.memory))[..., None]
    free = usable - context
    basis, allowance = {
        "total": (usable, share * usable),
        "free": (free, share * free),
        "rest": (free - held - counted, free),
    }[profile.share_of]
    return Budget(
        usable=usable,
        weights_by_component=weights,
        context=context,
        allowance=np.asarray(allowance),
        counted=counted,
        looked_at=np.asarray(basis),
        reserve=np.asarray((1 - share) * basis),
        pool=np.asarray(share * basis if profile.share_of == "rest" else allowance - held - counted),
        **parts,
    )


def stage_charges(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    stages: Stages,
    gpu: Hardware,
    profile: MemoryProfile,
    told: Limits,
    length: Tokens,
    settings: Settings,
) -> Charges:
    """What pipeline stages' pools are charged for one request, [..., stages]."""
    packed = gpu.each(profile.packs_latents)
    kept = stores(transformer, precision, layout=layout, stages=stages, drafts=settings.drafts, packed=packed)
    ahead = profile.steps_in_flight > 1
    steps = np.maximum(profile.steps_in_flight, np.asarray(layout.pipeline)) if ahead else np.asarray(1)
    told_of: dict[str, Any] = {
        "allocator": profile.allocator,
        "in_flight": np.asarray(told.batched_tokens * steps)[..., None],
        "steps": steps[..., None],
        "drafts": settings.drafts,
        "prefix_caching": settings.prefix_caching,
    }
    asked = charge(kept, length=length, **told_of)
    longest = charge(kept, length=np.asarray(told.length)[..., None], **told_of)
    return Charges(
        request=asked.request,
        request_ideal=exact_charge(kept, block=1, length=length).request,
        alone=asked.alone,
        shared=asked.shared * np.maximum(np.asarray(layout.pipeline) / steps, 1)[..., None],
        longest=longest.alone,
        logged_token=longest.logged_token,
        state=asked.state,
    )


def rank_at(
    budget: Budget, charges: Charges, *, at: Callable[[Array], Array], running: Count, asking: Count
) -> Rank:
    """One rank of every layout.

    Args:
        at: picks the rank's stage, [..., stages] -> [...].
        running: requests it runs, [...].
        asking: requests it is asked to run, [...].
    """
    amounts = {field.name: getattr(budget, field.name) for field in fields(Budget)}
    found = {name: at(amount) for name, amount in amounts.items() if isinstance(amount, np.ndarray)}
    here = Charges(**{field.name: at(getattr(charges, field.name)) for field in fields(Charges)})
    return Rank(
        weights_by_component={part: at(amount) for part, amount in budget.weights_by_component.items()},
        **found,
        request=here.request,
        request_ideal=here.request_ideal,
        alone=here.alone,
        shared=here.shared,
        longest=here.longest,
        kv=here.together(running),
        kv_needed=here.together(asking),
        kv_ideal=np.asarray(running * here.request_ideal),
        kv_needed_ideal=np.asarray(asking * here.request_ideal),
    )


def division(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    stages: Stages,
    gpu: Hardware,
    engine: Engine,
    length: Tokens,
    settings: Settings,
    weights: dict[Component, Array] | None = None,
    slots: Count | None = None,
) -> Division:
    """How an engine divides the GPUs of pipeline stages.

    Args:
        length: of the workload's requests; one, or many that broadcast with the layouts, [...].
        weights: of every stage, where they are not those of the fullest rank.
        slots: of one data rank, where they are known already, [...].
    """
    profile = engine.memory
    told = limits(settings, profile=profile, gpu=gpu, layout=layout, length=length, slots=slots)
    loaded = weights or loaded_weight_bytes(
        transformer, precision, layout=layout, stages=stages, profile=profile, settings=settings
    )
    return Division(
        stages=stages,
        told=told,
        budget=stage_budgets(
            transformer,
            precision,
            weights=loaded,
            layout=layout,
            stages=stages,
            gpu=gpu,
            profile=profile,
            told=told,
            settings=settings,
        ),
        charges=stage_charges(
            transformer,
            precision,
            layout=layout,
            stages=stages,
            gpu=gpu,
            profile=profile,
            told=told,
            length=np.asarray(length)[..., None],
            settings=settings,
        ),
    )


def worst_rank(divided: Division, *, layout: Layout, concurrency: Count | NDArray[np.int64]) -> Memory:
    """The stage whose cache is full first, with the requests it runs."""
    told, budget, charges = divided.told, divided.budget, divided.charges
    held = charges.within(budget.pool)
    places = (*np.indices(held.shape[:-1], sparse=True), held.argmin(axis=-1))

    def worst(amount: Array) -> Array:
        return amount[..., 0] if amount.shape[-1] == 1 else np.broadcast_to(amount, held.shape)[places]

    data = np.asarray(layout.data, dtype=float)
    room, logged = worst(held), worst(charges.logged_token)
    pool, state = np.maximum(worst(budget.pool), 0.0), worst(charges.state)
    whole = np.floor(np.maximum(room, 0.0))
    asking = np.ceil(np.asarray(concurrency) / data)
    running = np.minimum(asking, np.minimum(whole, told.sequences))
    fullest = rank_at(budget, charges, at=worst, running=running, asking=asking)
    return Memory(
        **vars(fullest),
        running=np.minimum(running * data, np.asarray(concurrency)),
        requests=room * data,
        longest_requests=fullest.pool / np.where(fullest.longest > 0, fullest.longest, 1.0) * data,
        capacity=whole * data,
        slots=np.asarray(told.sequences * data),
        kv_tokens=np.maximum(fullest.pool, 0.0) / np.where(logged > 0, logged, 1.0) * data,
        states=np.where(state > 0, pool // np.where(state > 0, state, 1.0), np.inf),
        stage=worst(np.asarray(divided.stages.index, dtype=float)),
    )


def memory(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Hardware,
    engine: Engine,
    workload: Workload,
    concurrency: Count | NDArray[np.int64],
    settings: Settings | None = None,
) -> Memory:
    """Where the memory of the worst rank goes, and what the replica holds.

    Args:
        layout: one, or many with a trailing axis of one to broadcast against concurrency ([layouts, 1]).
        concurrency: requests the replica has in hand, [batches] or a scalar; spread over its data ranks.
        settings: engine settings; None: all at their defaults.
    """
    told, stages = settings or Settings(), distinct_stages(transformer, layout=layout)

    def held(slots: Count | None) -> Memory:
        divided = division(
            transformer, precision, layout=layout, stages=stages, gpu=gpu, engine=engine,
            length=workload.length, settings=told, slots=slots,
        )  # fmt: skip
        return worst_rank(divided, layout=layout, concurrency=concurrency)

    if told.max_num_seqs or told.at_once is None:
        return held(None)
    least = default_slots(told, profile=engine.memory, gpu=gpu)
    return with_useful_slots(held, least=least, data=np.asarray(layout.data))


def with_useful_slots(held: Callable[[Count | None], Memory], *, least: Count, data: Count) -> Memory:
    """The memory of layouts with no more slots than there is cache for, where that is fewer than are asked for.

    Slots take memory of their own, so room for requests falls as they grow: of two numbers of slots, one with room for
    a request in each and one without, the line between what is left over and what is missing says where to look next.
    Nobody who sees that 100 of 4,000 fit asks the engine for 4,000.

    Args:
        held: memory with so many slots of one data rank; None: with as many as are asked for.
        least: the engine's default, below which there is no need to go.
        data: ranks, [...].
    """
    found = held(None)
    high, room = found.slots / data, found.capacity / data
    short = (high > least) & (room < high)
    if not short.any():
        return found

    def left(slots: Array) -> Array:
        return np.asarray(held(slots.astype(int)).capacity / data) - slots

    low, over = np.where(short, np.maximum(room, least), high), np.where(short, room, 0.0) - high
    under = left(low)
    low, high = np.where(short & (under < 0), least, low), np.where(short & (under < 0), least + 1, high)
    for _ in range(MOST_ROUNDS):
        if np.all(high - low <= 1):
            break
        share = under / np.maximum(under - over, 1.0)
        tried = np.clip(
            np.floor(low + share * (high - low)), np.minimum(low + 1, high), np.maximum(high - 1, low)
        )
        beyond = left(tried)
        fits = beyond >= 0
        low, under = np.where(fits, tried, low), np.where(fits, beyond, under)
        high, over = np.where(fits, high, tried), np.where(fits, over, beyond)
    return held(np.asarray(low).astype(int))


def expert_ranks(transformer: Transformer, *, layout: Layout, more: int) -> tuple[tuple[int, int], ...]:
    """Whole experts of a group, and GPUs of one stage whose group holds as many: the fuller groups first.

    The first groups get one more where the experts do not divide evenly.

    Source: vLLM vllm/model_executor/layers/fused_moe/layer.py, `determine_expert_map`.
    """
    gpus, groups = int(layout.width * layout.context), int(layout.expert)
    count = next((block.experts.count + more for block in transformer.blocks if block.experts), 0)
    least, fuller = divmod(count, groups)
    sizes = ((least + 1, fuller), (least, groups - fuller))
    return tuple((experts, gpus * share // groups) for experts, share in sizes if share)


def replica_memory(
    transformer: Transformer,
    precision: Precision,
    *,
    layout: Layout,
    gpu: Hardware,
    engine: Engine,
    workload: Workload,
    concurrency: int,
    settings: Settings | None = None,
) -> tuple[Ranks, ...]:
    """All GPUs of one layout's replica, stage by stage; of a stage, those that hold more experts before the others.

    Every stage runs as many requests as the worst one allows; of data ranks, those with one request more are shown.

    Args:
        layout: a single one.
    """
    settings = settings or Settings()
    slots = memory(
        transformer, precision, layout=layout, gpu=gpu, engine=engine, workload=workload, concurrency=concurrency,
        settings=settings,
    ).slots  # fmt: skip
    groups = expert_ranks(transformer, layout=layout, more=settings.redundant_experts)
    stages = all_stages(transformer, layout=layout)
    fullest = loaded_weight_bytes(
        transformer, precision, layout=layout, stages=stages, profile=engine.memory, settings=settings
    )
    divided = [
        division(
            transformer, precision, layout=layout, stages=stages, gpu=gpu, engine=engine,
            length=workload.length, settings=settings, slots=np.asarray(slots / layout.data).astype(int),
            weights=with_expert_share(fullest, share=experts / max(groups[0][0], 1)),
        )
        for experts, _ in groups
    ]  # fmt: skip
    one = worst_rank(divided[0], layout=layout, concurrency=concurrency)
    asking, running = np.ceil(concurrency / layout.data), np.ceil(one.running / layout.data)

    def ranks(stage: int, group: int) -> Ranks:
        def at(amount: Array) -> Array:
            return np.broadcast_to(amount, (int(layout.pipeline),))[stage]

        experts, gpus = groups[group]
        return Ranks(
            stage=stage,
            gpus=gpus,
            experts=experts / float(layout.expert_tensor),
            each=rank_at(
                divided[group].budget, divided[group].charges, at=at, running=running, asking=asking
            ),
            worst=group == 0 and stage == int(one.stage),
        )

    return tuple(ranks(stage, group) for stage in range(int(layout.pipeline)) for group in range(len(groups)))
