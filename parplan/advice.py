"""One recommendation in plain words: which layout, why, what would change it, and what to buy."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from parplan.formats import Component
from parplan.hardware import Instance
from parplan.instances import Napkin, Purchase, napkin, purchases, sold_gpus, surviving
from parplan.planner import CUT_NAMES, Counts, Mask, Plan, Result
from parplan.units import Array, written_bytes, written_time

INDISTINCT = 0.05
"""Relative difference in speed that two layouts must have before it decides: half the model's measured error."""
UNWISE = ("tensor-spans", "pipeline-inside")
"""Warnings that keep a layout from being recommended while another one does the job."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder of sizes: the fewest GPUs that do something."""

    name: str
    """loads, holds, meets targets, survives."""
    meaning: str
    plan: Plan | None
    """The best layout of that size. None: nothing within the GPU budget does."""
    purchases: tuple[Purchase, ...]
    """Ways to buy it, cheapest first."""
    replicas: int = 1
    """Copies of the layout that run; the plan is that of one of them with its share of the requests."""

    @property
    def gpus(self) -> int | None:
        """GPUs in use, all replicas together. None: nothing within the GPU budget does."""
        return None if self.plan is None else self.plan.gpus * self.replicas

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second at the asked concurrency; of several replicas one is spare and not counted."""
        return 0.0 if self.plan is None else float(self.plan.serving.tokens_per_s) * max(self.replicas - 1, 1)

    @property
    def requests_per_s(self) -> float:
        """Requests per second, likewise."""
        return (
            0.0 if self.plan is None else float(self.plan.serving.requests_per_s) * max(self.replicas - 1, 1)
        )

    @property
    def layout(self) -> str:
        """The layout and how often it runs, in words; empty where nothing does."""
        if self.plan is None:
            return ""
        return f"{self.replicas} × {self.plan.layout}" if self.replicas > 1 else str(self.plan.layout)


@dataclass(frozen=True)
class Advice:
    """The answer, in words and figures."""

    verdict: str
    """One sentence."""
    recommended: Plan | None
    """None: nothing within the GPU budget loads and holds one request."""
    purchases: tuple[Purchase, ...]
    """Ways to buy one replica of the recommended layout, cheapest first."""
    reasons: tuple[str, ...]
    """Why this one, with the user's own numbers."""
    alternatives: tuple[str, ...]
    """What one would get from fewer or more GPUs, and ways out where nothing works."""
    napkin: Napkin
    napkin_note: str
    """Why the textbook answer and the full one differ, or that they agree."""
    ladder: tuple[Rung, ...]


def _wise(result: Result) -> Mask:
    """Layouts free of the warnings that forbid a recommendation, [layouts]."""
    unwise = np.logical_or.reduce([result.warnings[name] for name in UNWISE])
    return np.asarray(~unwise)


def _bought(result: Result) -> Counts:
    """GPUs to buy for each layout, [layouts]."""
    return np.asarray(sold_gpus(result.gpus, gpu=result.problem.gpu))


def _preferred(result: Result, *, among: Mask) -> Mask:
    """The wise layouts of those allowed, or all of them where none is wise, [layouts]."""
    wise = among & _wise(result)
    return wise if wise.any() else among


def best_index(result: Result, *, among: Mask) -> int | None:
    """The layout with the fewest GPUs to buy, then the most tokens per second, of those allowed.

    At a fixed number of requests in hand, more tokens per second and less time per request are the same thing.
    Differences below `INDISTINCT` decide nothing: among those the layout with the fewest kinds of cut wins; repeating
    attention (it costs memory) and leaving bought GPUs idle count as one more each. Unwise layouts only count where no
    other is allowed.
    """
    rate = result.at_asked(result.serving.tokens_per_s)
    return _best(result, among=among, bought=_bought(result), rate=rate)


def _best(result: Result, *, among: Mask, bought: Counts, rate: Array) -> int | None:
    """As `best_index`, for any number of GPUs to buy and tokens per second, [layouts]."""
    if not among.any():
        return None
    allowed = _preferred(result, among=among)
    fewest = allowed & (bought == bought[allowed].min())
    rate = np.where(fewest, rate, -np.inf)
    close = rate >= rate.max() * (1 - INDISTINCT)
    kinds = np.sum([getattr(result.layout, name) > 1 for name in CUT_NAMES], axis=0)
    wasteful = 1 * (result.layout.data > 1) + 1 * (_bought(result) > result.gpus)
    return int(np.lexsort((-rate, kinds + wasteful, ~close))[0])


def recommended_index(result: Result) -> int | None:
    """The layout to use: holds every request and meets the targets with the fewest GPUs; else as near as can be.

    Where nothing does both, the targets come first to give way: the layout that holds every request and misses the
    targets least; where nothing holds every request, the one that holds the most.
    """
    if (result.holds & result.in_time).any():
        return best_index(result, among=result.holds & result.in_time)
    if result.holds.any():
        return int(np.argmin(np.where(_preferred(result, among=result.holds), _miss(result), np.inf)))
    if result.legal.any():
        return _largest_capacity(result, among=_preferred(result, among=result.legal))
    return None


def candidates(result: Result, *, most: int = 7) -> tuple[int, ...]:
    """The few layouts worth drawing side by side: the best of every GPU count, and the largest that does not load.

    Ordered by GPUs; the recommended layout is among them.
    """
    chosen = set()
    bought = _bought(result)
    for size in np.unique(bought):
        same = bought == size
        index = best_index(result, among=result.legal & same)
        chosen.add(_largest_capacity(result, among=same) if index is None else index)
    failing = sorted((i for i in chosen if not result.legal[i]), key=lambda i: -result.gpus[i])[:1]
    working = sorted((i for i in chosen if result.legal[i]), key=lambda i: result.gpus[i])[
        : most - len(failing)
    ]
    recommended = recommended_index(result)
    extra = () if recommended is None or recommended in working else (recommended,)
    return tuple(sorted((*failing, *working, *extra), key=lambda i: (result.gpus[i], i)))


def _miss(result: Result) -> np.ndarray:
    """By what factor the worse of both targets is missed, [layouts]; 1 or less: met."""
    workload, serving = result.problem.workload, result.serving
    ttft = result.at_asked(serving.ttft) / (workload.ttft or np.inf)
    tpot = result.at_asked(serving.tpot) / (workload.tpot or np.inf)
    return np.asarray(np.maximum(ttft, tpot))


def ladder(result: Result, *, instances: Iterable[Instance]) -> tuple[Rung, ...]:
    """The fewest GPUs that load the model, hold every request, meet the targets, and do so with one machine lost."""
    offers = tuple(instances)
    steps = [
        ("loads", "starts and holds at least one request of full length", result.legal),
        ("holds", "holds every asked request at full length", result.holds),
    ]
    if result.problem.workload.ttft or result.problem.workload.tpot:
        steps.append(
            ("meets targets", "holds every request and meets the targets", result.holds & result.in_time)
        )
    rungs = [_rung(result, name, meaning, among, offers) for name, meaning, among in steps]
    return (*rungs, _surviving_rung(result, meaning=steps[-1][1], offers=offers))


def _rung(result: Result, name: str, meaning: str, among: Mask, offers: tuple[Instance, ...]) -> Rung:
    index = best_index(result, among=among)
    if index is None:
        return Rung(name, meaning, None, ())
    found = result.plan(index)
    return Rung(name, meaning, found, purchases(offers, gpu=result.problem.gpu, gpus=found.gpus))


def _surviving_rung(result: Result, *, meaning: str, offers: tuple[Instance, ...]) -> Rung:
    """The fewest GPUs in equal replicas that go on with every request when any one machine is lost.

    One replica more than hold the requests in time, each on machines of its own: many small ones may need fewer spare
    GPUs than two large ones. Speed is that of a replica with its share of the requests while one is missing.
    """
    workload, serving = result.problem.workload, result.serving
    replicas = result.concurrency[: result.asked + 1]
    share = -(-workload.concurrency // replicas)
    batch = np.searchsorted(result.concurrency, share)
    ttft, tpot, capacity = (
        result.grid(values)[:, batch] for values in (serving.ttft, serving.tpot, result.memory.capacity)
    )
    in_time = (ttft <= (workload.ttft or np.inf)) & (tpot <= (workload.tpot or np.inf))
    enough = result.legal[:, None] & (capacity >= share) & in_time
    first = enough.argmax(axis=1)
    needed, at = replicas[first], batch[first]
    rate = needed * np.take_along_axis(result.grid(serving.tokens_per_s), at[:, None], axis=1)[:, 0]
    index = _best(
        result, among=np.asarray(enough.any(axis=1)), bought=(needed + 1) * _bought(result), rate=rate
    )
    meaning = f"{meaning}, in equal replicas, also while any one machine is lost"
    if index is None:
        return Rung("survives", meaning, None, ())
    on, found = int(needed[index]), result.asking(int(at[index])).plan(index)
    one = purchases(offers, gpu=result.problem.gpu, gpus=found.gpus)
    return Rung("survives", meaning, found, surviving(one, replicas=on, gpus=found.gpus), replicas=on + 1)


def _model(result: Result) -> str:
    """The model's name without its owner; a description ("dense 70B") begins the sentence."""
    name = result.problem.transformer.name.rpartition("/")[2]
    return name[:1].upper() + name[1:] if " " in name else name


def _gpus(result: Result, count: int) -> str:
    return f"{count}x {result.problem.gpu.label}"


def _within(result: Result) -> str:
    """The GPU budget, in words."""
    most = result.problem.budget
    return f"up to {most} GPUs" if most > 1 else "on one GPU"


def _users(count: int) -> str:
    return f"{count:,} request{'s' if count != 1 else ''} at once"


def _speed(plan: Plan) -> str:
    return f"{written_time(float(plan.serving.tpot))} per token, {written_time(float(plan.serving.ttft))} to the first"


def _format(result: Result) -> str:
    main: Component = "routed_experts" if result.problem.transformer.is_moe else "dense_ffn"
    return result.problem.precision.weights[main].name.upper()


def verdict(result: Result, plan: Plan | None) -> str:
    """The answer in one sentence."""
    name = f"{_model(result)} in {_format(result)}"
    if plan is None:
        return f"{name} does not run on {_limit_words(result)}. {_nearest_failure(result)}"
    asked, capacity = result.problem.workload.concurrency, float(plan.memory.capacity)
    on = f"{_gpus(result, plan.gpus)} ({plan.layout})"
    if not plan.holds:
        return (
            f"{name} runs on {on}, but its KV cache holds {int(capacity):,} of {_users(asked)} at full length; "
            f"nothing {_within(result)} holds them all."
        )
    serves = f"{on} serve{'s' if plan.gpus == 1 else ''} {_users(asked)} at {_speed(plan)}"
    if not plan.in_time:
        missed = f"no layout {_within(result)} meets the targets, this one comes nearest"
        return f"{name}: {serves}; {missed}."
    return f"{name}: {serves}."


def _limit(result: Result, index: int) -> str:
    """What stops a layout from doing the job, in words; empty when nothing does."""
    plan = result.plan(index)
    if not plan.legal:
        return plan.objections[0].reason
    if not plan.holds:
        return (
            f"it holds {int(plan.memory.capacity):,} of {result.problem.workload.concurrency:,} requests "
            f"({written_bytes(float(plan.memory.pool))} for KV)."
        )
    return "" if plan.in_time else f"{_speed(plan)}: too slow for the targets."


def reasons(result: Result, plan: Plan) -> tuple[str, ...]:
    """Why this layout, with the user's own numbers."""
    memory, workload = plan.memory, result.problem.workload
    found = [
        f"Each GPU holds {written_bytes(float(memory.weights))} of weights; the "
        f"{written_bytes(float(memory.pool))} left for KV hold {int(memory.capacity):,} requests of "
        f"{workload.length:,} tokens."
    ]
    bought = _bought(result)
    smaller = bought < bought[plan.index]
    if smaller.any():
        tried = _largest_capacity(result, among=bought == bought[smaller].max())
        gpus = _gpus(result, int(result.gpus[tried]))
        found.append(f"Fewer do not do: {gpus} ({result.layout.one(tried)}): {_limit(result, tried)}")
    elif plan.holds and plan.in_time:
        found.append(
            "One GPU is enough: stop here. For more requests add replicas; cutting the model further would cost "
            "communication and gain nothing that is asked for."
        )
    return (*found, *_two_nodes(result), *_stretched(result, plan))


def _largest_capacity(result: Result, *, among: Mask) -> int:
    """Of some layouts, the legal one that holds the most requests; the least broken one where none is legal."""
    broken = np.sum(list(result.errors.values()), axis=0)
    capacity, pool = result.at_asked(result.memory.capacity), result.at_asked(result.memory.pool)
    order = np.lexsort((-pool, -capacity, ~_wise(result), broken, ~among))
    return int(order[0])


def _limit_words(result: Result) -> str:
    """What was tried, in words."""
    gpus = f"up to {max(result.problem.budget, int(result.gpus.min()))} {result.problem.gpu.label}"
    return f"{gpus} with the cuts you fixed" if result.problem.fixed else gpus


def _nearest_failure(result: Result) -> str:
    """Why the layout that comes nearest to working does not."""
    nearest = result.plan(_largest_capacity(result, among=np.ones(result.layout.shape, dtype=bool)))
    first = nearest.objections[0]
    return f"{nearest.layout} comes nearest: {first.reason} {first.fix}"


def _find(result: Result, **cuts: int) -> int | None:
    """The legal layout with exactly these cuts, every other cut being one."""
    layout = result.layout
    wanted = {name: cuts.get(name, 1) for name in CUT_NAMES}
    same = np.logical_and.reduce([getattr(layout, name) == size for name, size in wanted.items()])
    found = np.flatnonzero(same & result.legal)
    return int(found[0]) if found.size else None


def _two_nodes(result: Result) -> tuple[str, ...]:
    """Over two nodes a mixture of experts has two good cuts: one for latency, one for throughput."""
    node = result.problem.gpu.node
    if not result.problem.transformer.is_moe:
        return ()
    piped = _find(result, tensor=node, pipeline=2)
    spread = _find(result, data=2 * node, expert=2 * node)
    if piped is None or spread is None:
        return ()
    return (f"Over two nodes: {_pace(result, piped)}; {_pace(result, spread)}.",)


def _pace(result: Result, index: int) -> str:
    """A layout's time per token at the asked batch, and the most tokens per second at any batch."""
    tpot = float(result.at_asked(result.serving.tpot)[index])
    most = result.grid(result.serving.tokens_per_s)[index].max()
    return f"{result.layout.one(index)} gives {written_time(tpot)} per token and at most {most:,.0f} tokens/s"


def _stretched(result: Result, plan: Plan) -> tuple[str, ...]:
    """What tensor parallelism across nodes would cost instead of pipeline stages."""
    if plan.layout.pipeline == 1 or plan.gpus <= result.problem.gpu.node:
        return ()
    stretched = _find(result, tensor=plan.gpus)
    if stretched is None:
        return ()
    other = result.plan(stretched)
    return (
        f"Stretching {other.layout} across nodes instead: {_speed(other)}, of which "
        f"{written_time(float(other.serving.decode.all_reduce))} per token are all-reduces between GPUs.",
    )


def alternatives(result: Result, plan: Plan) -> tuple[str, ...]:
    """What the next sizes up would give."""
    found = []
    bought = _bought(result)
    for size in np.unique(bought[result.legal & (bought > bought[plan.index])])[:2]:
        index = best_index(result, among=result.legal & (bought == size))
        if index is not None:
            other = result.plan(index)
            found.append(
                f"{_gpus(result, other.gpus)} ({other.layout}): {_speed(other)}; "
                f"holds {int(other.memory.capacity):,} requests."
            )
    return tuple(found)


def _napkin_note(result: Result, found: Napkin, plan: Plan | None) -> str:
    """Why the textbook number of GPUs and the full answer differ, or that they agree."""
    sums = (
        f"{written_bytes(found.weights)} of weights and {written_bytes(found.kv)} of KV over "
        f"{written_bytes(result.problem.gpu.memory)} per GPU"
    )
    if plan is None or not plan.holds:
        return f"{sums}: {found.gpus}; the engine's overheads, or what is repeated on every GPU, do not fit."
    if plan.gpus == found.gpus:
        return f"{sums}: {found.gpus}, as many as the full answer."
    if plan.gpus < found.gpus:
        return f"{sums}: {found.gpus}, rounded up to a size that is sold; {plan.gpus} do with what is really kept."
    fewest = best_index(result, among=result.holds)
    if fewest is not None and (held := int(result.gpus[fewest])) <= found.gpus:
        slow = _limit(result, fewest)
        why = f"for the targets: {held} give {slow}" if slow else "which do it better."
        return f"{sums}: {found.gpus}, and {held} hold every request. The full answer is {plan.gpus}, {why}"
    lost = plan.memory.activations + plan.memory.overhead + plan.memory.reserve
    return (
        f"{sums}: {found.gpus}. The full answer is {plan.gpus}: each GPU also loses {written_bytes(float(lost))} to "
        "activations, overhead and reserve, and some parts are repeated on every GPU."
    )


def advise(result: Result, *, instances: Iterable[Instance]) -> Advice:
    """The recommendation for a result, with its reasons and what to buy."""
    index = recommended_index(result)
    plan = None if index is None else result.plan(index)
    problem = result.problem
    offers = tuple(one for one in instances if one.gpu == problem.gpu.name)
    estimate = napkin(problem.transformer, problem.precision, gpu=problem.gpu, workload=problem.workload)
    return Advice(
        verdict=verdict(result, plan),
        recommended=plan,
        purchases=() if plan is None else purchases(offers, gpu=problem.gpu, gpus=plan.gpus),
        reasons=() if plan is None else reasons(result, plan),
        alternatives=() if plan is None else alternatives(result, plan),
        napkin=estimate,
        napkin_note=_napkin_note(result, estimate, plan),
        ladder=ladder(result, instances=offers),
    )
