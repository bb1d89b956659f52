"""One recommendation in plain words: which layout, why, what would change it, and what to buy."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from parplan.choice import (
    INDISTINCT,
    best_index,
    filled,
    left_out,
    merits,
    outdone_by,
    recommended_index,
    roomiest_index,
    smallest_index,
    why_unwise,
)
from parplan.fit import longest_request
from parplan.hardware import Instance
from parplan.instances import Napkin, Purchase, napkin
from parplan.ladder import MOST_REPLICAS, Market, Rung, fewer_would_do, ladder, thriftiest
from parplan.layout import CUT_NAMES, Layout
from parplan.memory import default_slots
from parplan.networks import Offer
from parplan.objections import CLEAR_GAIN, REFUSALS, joined_gpus, objection, slots_flag
from parplan.planner import Plan, Result
from parplan.runner_up import RunnerUp, runner_up
from parplan.units import counted, written_bytes, written_rate, written_share, written_time
from parplan.workload import OBJECTIVES

OUT_OF_MEMORY = ("weights", "one-request")
"""Errors of layouts that more or larger GPUs would mend."""


@dataclass(frozen=True)
class Advice:
    """The answer, in words and figures."""

    verdict: str
    """One sentence."""
    shortfall: str
    """What is missing where the answer is no, or not quite, and what engines refuse; empty where nothing is."""
    sharing: str
    """That several replicas that share the requests would do it for less than the one replica of the verdict, or do it
    where no single one does; empty where they do not."""
    recommended: Plan | None
    """None: nothing within the GPU budget loads and holds one request."""
    offers: tuple[Offer, ...]
    """Ways to buy one replica of the recommended layout, cheapest first, each with the plan over the network of those
    machines; without those over whose network it would miss targets that it meets."""
    reasons: tuple[str, ...]
    """Why this one, with the user's own numbers."""
    runner_up: RunnerUp | None
    """The second best, and what it would take for it to win."""
    alternatives: tuple[str, ...]
    """What one would get from more GPUs."""
    napkin: Napkin
    napkin_note: str
    """Why the textbook answer and the full one differ, or that they agree."""
    smallest: Rung | None
    """What the textbook answer is held against: the fewest GPUs that do the job, or the recommended layout where
    nothing does it. None: nothing runs."""
    ladder: tuple[Rung, ...]

    @property
    def purchases(self) -> tuple[Purchase, ...]:
        """The machines of the offers, cheapest first."""
        return tuple(offer.purchase for offer in self.offers)


def _model(result: Result) -> str:
    """The model's name without its owner; a description ("dense 70B") begins the sentence."""
    name = result.problem.transformer.name.rpartition("/")[2]
    return name[:1].upper() + name[1:] if " " in name else name


def _gpus(result: Result, count: int) -> str:
    return f"{count:,} × {result.problem.gpu.label}{_each(result)}"


def _each(result: Result) -> str:
    """That something is said of one of several replicas."""
    return " per replica" if result.problem.replicas > 1 else ""


def _within(result: Result) -> str:
    """The GPU budget, in words, or the cuts the user fixed."""
    if result.problem.fixed:
        return "with the cuts you fixed"
    most = result.problem.budget
    return f"{f'up to {most} GPUs' if most > 1 else 'on one GPU'}{_each(result)}"


def _users(count: int) -> str:
    return f"{counted(count, 'request')} at once"


def _paced(plan: Plan) -> str:
    """Both times of a layout, or that it holds only some of the requests, whose times are no match for another's."""
    if plan.holds:
        return _speed(plan)
    return (
        f"it {plan.runs}, with {written_time(float(plan.serving.tpot))} per token for those; the others wait"
    )


def per_token(plan: Plan) -> str:
    """The time per output token, in words; that there is none where a request ends with its first."""
    one = plan.result.problem.workload.one_token
    return "none" if one else written_time(float(plan.serving.tpot))


def _speed(plan: Plan) -> str:
    first = written_time(float(plan.serving.ttft))
    if plan.result.problem.workload.one_token:
        return f"{first} to the only token"
    return f"{per_token(plan)} per token, {first} to the first"


def _format(result: Result) -> str:
    problem = result.problem
    return problem.precision.weights[problem.transformer.main_component].name.upper()


def verdict(result: Result, plan: Plan | None) -> str:
    """The answer in one sentence, with the objective it follows; where cuts are fixed, that they are."""
    name = f"{_model(result)} in {_format(result)}"
    if plan is None:
        refused = _refused(result)
        where = _refusing(result, refused[0]) if refused else _limit_words(result)
        return f"{name} does not run on {where}."
    asked, copies = result.problem.requests, result.problem.replicas
    gpus = plan.gpus * copies
    on = _on(result, plan, replicas=copies)
    if not plan.holds:
        return f"{name} on {on} {plan.runs_in(copies)}."
    if not plan.in_time:
        return f"{name}: nothing {_within(result)} meets the targets; {on} comes nearest."
    serves = f"{on} serve{'s' if gpus == 1 else ''} {_users(asked)}"
    return f"{name}: {serves} {_chosen(result, plan)}: {_speed(plan)}."


def _refused(result: Result) -> tuple[str, ...]:
    """Rules by which the engine refuses the GPU or a format, whatever the layout."""
    return tuple(rule for rule in REFUSALS if result.errors[rule].all())


def _refusing(result: Result, rule: str) -> str:
    """The GPU and the engine that refuses it or a format, in words; the KV cache is named where it is that.

    Args:
        rule: by which it does.
    """
    problem = result.problem
    cache = f" with a KV cache in {problem.precision.kv.name.upper()}" if REFUSALS[rule] == "kv" else ""
    return f"{problem.gpu.label} in {problem.engine.label}{cache}"


def _on(result: Result, plan: Plan, *, replicas: int) -> str:
    """The GPUs of all replicas, and the layout of each."""
    return (
        f"{plan.gpus * replicas:,} × {result.problem.gpu.label} ({replace(plan.layout, replicas=replicas)})"
    )


def fleet_verdict(result: Result, plan: Plan, *, replicas: int, asked: str, pace: str) -> str:
    """The answer in one sentence for as many replicas as a rate takes.

    Args:
        asked: the rate, in words.
        pace: the times at that rate, in words.
    """
    gpus = plan.gpus * replicas
    bear = f"{_on(result, plan, replicas=replicas)} bear{'s' if gpus == 1 else ''} {asked}"
    return f"{_model(result)} in {_format(result)}: {bear} {_chosen(result, plan)}: {pace}."


def _chosen(result: Result, plan: Plan) -> str:
    """What a layout was chosen by, in words; what is left out where a layout that a warning forbids is better by it."""
    if result.problem.fixed:
        return _within(result)
    better, chosen = outdone_by(result, index=plan.index), OBJECTIVES[result.problem.objective]
    return chosen if better is None else f"{chosen} {left_out(result.plan(better))}"


def shortfall(result: Result, plan: Plan | None) -> str:
    """What is missing where nothing does the job, and what engines refuse unless told otherwise; empty: nothing."""
    return " ".join(filter(None, (_missing(result, plan), _too_long(result))))


def _too_long(result: Result) -> str:
    """That requests are longer than the model was made for, where they are: whatever the layout."""
    rule = "context-length"
    return objection(rule, result.case(0)).reason if result.warnings[rule].any() else ""


def _missing(result: Result, plan: Plan | None) -> str:
    """What is missing where nothing does the job; empty where the plan does."""
    if plan is None:
        return _refusals(result) or _nearest_failure(result)
    if not plan.holds and plan.short_of_slots:
        waits = objection("waits", result.case(plan.index))
        return f"{waits.reason} {waits.fix}"
    if not plan.holds:
        return f"Nothing {_within(result)} holds them all at full length. {_spread(result, plan)}"
    if plan.in_time:
        return ""
    workload = result.problem.workload
    limits = ((workload.tpot, "per token"), (workload.ttft, "to the first"))
    asked = ", ".join(f"{written_time(limit)} {what}" for limit, what in limits if limit)
    return f"It serves {_users(result.problem.requests)} at {_speed(plan)}; {asked} is asked for."


def _spread(result: Result, plan: Plan) -> str:
    """How many replicas of a layout hold all requests between them."""
    asked, each = result.problem.requests, plan.most
    replicas = -(-asked // each)
    return f"{replicas:,} replicas of {plan.layout} hold them between them, {-(-asked // replicas):,} each."


def _limit(result: Result, index: int) -> str:
    """What stops a layout from doing the job, in words; empty when nothing does."""
    plan = result.plan(index)
    if not plan.legal:
        return plan.objections[0].reason
    if not plan.holds and plan.short_of_slots:
        return f"it runs {plan.most:,} of {result.problem.workload.concurrency:,} requests, one in each sequence slot."
    if not plan.holds:
        return (
            f"it holds {int(plan.memory.capacity):,} of {result.problem.workload.concurrency:,} requests "
            f"({written_bytes(float(plan.memory.pool))} for KV)."
        )
    if not plan.in_time:
        return f"{_speed(plan)}: too slow for the targets."
    unwise = why_unwise(plan)
    return f"it would do, but: {unwise}" if unwise else ""


def reasons(result: Result, plan: Plan) -> tuple[str, ...]:
    """Why this layout, with the user's own numbers."""
    memory, workload = plan.memory, result.problem.workload
    found = [
        f"Each GPU holds {written_bytes(float(memory.weights))} of weights; the "
        f"{written_bytes(float(memory.pool))} left for KV hold {counted(int(memory.capacity), 'request')} of "
        f"{workload.length:,} tokens{_each(result)}."
    ]
    return (*found, *(text for rule in RULES for text in rule(result, plan)))


def _fewer(result: Result, plan: Plan) -> tuple[str, ...]:
    """Why not fewer GPUs; that one is enough, where it is."""
    if plan.gpus == 1:
        return (
            (
                f"One GPU{_each(result)} is enough: stop here. For more requests add replicas; cutting the model "
                "further would cost communication and gain nothing that is asked for.",
            )
            if plan.does_job and not result.problem.busiest
            else ()
        )
    bought = result.bought
    smaller = bought < bought[plan.index]
    if not smaller.any():
        return ()
    enough = smallest_index(result, among=smaller & result.does_job)
    if enough is not None:
        if result.problem.counts_fleets:
            return ()  # see `_fleet`
        other = result.plan(enough)
        but = "" if result.wise[enough] else f" It is not recommended. {why_unwise(other)}"
        return (f"Fewer would do: {_gpus(result, other.gpus)} ({other.layout}): {_speed(other)}.{but}",)
    tried = roomiest_index(result, among=bought == bought[smaller].max())
    gpus = f"{int(result.gpus[tried])} × {result.problem.gpu.label}"
    return (
        f"One replica on fewer does not do: {gpus} ({result.layout.one(tried)}): {_limit(result, tried)}",
    )


def _fleet(result: Result, plan: Plan) -> tuple[str, ...]:
    """What the rate that is asked for takes, why not replicas of fewer GPUs, and what is passed over for a warning."""
    fleets, index = result.fleets, plan.index
    if not (result.problem.counts_fleets and plan.does_job and np.isfinite(fleets.of(index))):
        return ()
    rate = written_rate(result.problem.busiest)
    others = "no layout without a warning that does the job" if result.wise[index] else "no other layout"
    bear = "bears" if fleets.of(index) == 1 else "bear"
    found = [
        f"{_fleet_of(result, index)} {bear} the busiest time ({rate} requests per second); {others} takes "
        f"{written_share(INDISTINCT)} fewer GPUs."
    ]
    smaller = smallest_index(result, among=result.does_job & result.wise)
    if smaller is not None and result.bought[smaller] < result.bought[index]:
        narrow = result.plan(smaller)
        found.append(
            f"One replica of {narrow.layout} on {counted(narrow.gpus, 'GPU')} would do, but the rate takes "
            f"{_fleet_of(result, smaller)}."
            if np.isfinite(fleets.of(smaller))
            else f"One replica of {narrow.layout} on {counted(narrow.gpus, 'GPU')} holds the requests, but misses the "
            "targets where they come at random."
        )
    if (other := outdone_by(result, index=index)) is not None:
        found.append(
            f"By the formulas {_fleet_of(result, other)} would bear it too. That is not recommended. "
            f"{why_unwise(result.plan(other))}"
        )
    return tuple(found)


def _fleet_of(result: Result, index: int) -> str:
    """The replicas of a layout for the rate, in words: "5 × TP2 on 10 × H100 SXM"."""
    replicas = int(result.fleets.of(index))
    gpus = int(result.gpus[index]) * replicas
    return f"{replicas:,} × {result.layout.one(index)} on {gpus:,} × {result.problem.gpu.label}"


def _filled(result: Result, plan: Plan) -> tuple[str, ...]:
    """What the layout delivers when its replicas are filled up, where that is what was asked for."""
    if result.problem.objective != "throughput" or not plan.does_job:
        return ()
    full = filled(result)
    rate, requests, tpot = (
        float(values[plan.index]) for values in (full.tokens_per_s_per_gpu, full.requests, full.tpot)
    )
    return (
        f"Filled up, at about {_users(round(requests))} and {written_time(tpot)} per token, each GPU "
        f"delivers {rate:,.0f} tokens/s; with the {result.problem.workload.concurrency:,} asked for "
        f"{float(plan.serving.tokens_per_s_per_gpu):,.0f}.",
    )


def _passed_over(result: Result, plan: Plan) -> tuple[str, ...]:
    """The layout rated best, where it is clearly better than the recommended one and costs no more; why it is not."""
    if not plan.does_job or result.problem.counts_fleets:
        return ()
    rated = merits(result)[0]
    better = result.does_job & ~result.wise & (rated > rated[plan.index] * (1 + INDISTINCT))
    if result.problem.objective == "cost":
        bought = result.bought
        better &= bought == bought[plan.index]
    if (index := best_index(result, among=better)) is None:
        return ()
    other = result.plan(index)
    full = (
        f"; filled up, {rated[other.index]:,.0f} tokens/s per GPU instead of {rated[plan.index]:,.0f}"
        if result.problem.objective == "throughput"
        else ""
    )
    return (
        f"By the formulas {other.layout} on {_gpus(result, other.gpus)} would do better: {_speed(other)}{full}. "
        f"It is not recommended. {why_unwise(other)}",
    )


def _replicas(result: Result, plan: Plan) -> tuple[str, ...]:
    """Load is a matter of replicas: narrower ones on as many GPUs deliver more, where they do."""
    narrower = int(result.narrower[plan.index])
    if not narrower:
        return ()
    return (
        f"{plan.layout} is for speed. Where only load matters, replicas of TP{narrower} on the same GPUs deliver at "
        f"least {written_share(CLEAR_GAIN)} more tokens/s: tensor parallelism does not raise throughput, replicas do.",
    )


def _limit_words(result: Result) -> str:
    """What was tried, in words."""
    gpus = f"up to {max(result.problem.budget, int(result.gpus.min()))} {result.problem.gpu.label}"
    return f"{gpus}{_each(result)}{' with the cuts you fixed' if result.problem.fixed else ''}"


def _refusals(result: Result) -> str:
    """Everything the engine refuses of the GPU and the formats, each with its way out; empty where it does not."""
    found = (objection(rule, result.case(0)) for rule in _refused(result))
    return " ".join(f"{one.reason} {one.fix}" for one in found)


def _nearest_failure(result: Result) -> str:
    """Why the layout that comes nearest to working does not; how long a request may be, where that is the matter."""
    index = roomiest_index(result, among=np.ones(result.layout.shape, dtype=bool))
    nearest = result.plan(index)
    first = nearest.objections[0]
    words = f"{nearest.layout} comes nearest: {first.reason} {first.fix}"
    if first.rule != "one-request":
        return words
    longest = longest_request(result.problem, layout=nearest.layout, concurrency=1)
    return f"{words} It holds one of up to {longest:,} tokens." if longest else words


def _find(result: Result, **cuts: int) -> int | None:
    """The legal layout with exactly these cuts, every other cut being one."""
    layout = result.layout
    wanted = {name: cuts.get(name, 1) for name in CUT_NAMES}
    same = np.logical_and.reduce([getattr(layout, name) == size for name, size in wanted.items()])
    found = np.flatnonzero(same & result.legal)
    return int(found[0]) if found.size else None


def _two_nodes(result: Result, plan: Plan) -> tuple[str, ...]:
    """Over two nodes a mixture of experts has two good cuts: one for latency, one for throughput."""
    node = joined_gpus(result.problem.gpu)
    if not result.problem.transformer.is_moe or plan.gpus <= node:
        return ()
    piped = _find(result, tensor=node, pipeline=2)
    spread = _find(result, data=2 * node, expert=2 * node)
    if piped is None or spread is None:
        return ()
    return (f"Over two nodes: {_pace(result, piped)}; {_pace(result, spread)}.",)


def _pace(result: Result, index: int) -> str:
    """A layout's time per token at the asked batch, and the most tokens per second at any batch; of one that does not
    run all requests, that the time is of those that do."""
    plan = result.plan(index)
    tpot = f"{written_time(float(plan.serving.tpot))} per token"
    most = f"at most {result.grid(result.serving.tokens_per_s)[index].max():,.0f} tokens/s"
    if plan.holds:
        return f"{plan.layout} gives {tpot} and {most}"
    return f"{plan.layout} {plan.runs}, with {tpot} for those, and gives {most}"


def _mixed(result: Result, plan: Plan) -> tuple[str, ...]:
    """Attention cut for speed and whole experts: what each pure cut of the same GPUs would give."""
    layout = plan.layout
    if not (layout.tensor > 1 and layout.expert > 1 and layout.pipeline == 1):
        return ()
    pure = {"experts cut too": _find(result, tensor=plan.gpus),
            "attention repeated": _find(result, data=plan.gpus, expert=plan.gpus)}  # fmt: skip
    parts = [f"{_pace(result, index)} ({words})" for words, index in pure.items() if index is not None]
    if not parts:
        return ()
    return (f"{_pace(result, plan.index)} (attention cut, experts whole); {'; '.join(parts)}.",)


def _context(result: Result, plan: Plan) -> tuple[str, ...]:
    """What cutting a long prompt along the sequence gains over attention cut the same number of ways less."""
    if plan.layout.context == 1:
        return ()
    cuts = {name: int(getattr(plan.layout, name)) for name in CUT_NAMES}
    whole = _find(result, **cuts | {"context": 1})
    before = "" if whole is None else _uncut(result.plan(whole))
    return (
        f"Prompts of {result.problem.workload.prompt:,} tokens are cut {plan.layout.context} ways along the sequence: "
        f"{written_time(float(plan.serving.ttft))} to the first token{before}.",
    )


def _uncut(plan: Plan) -> str:
    """The time to first token without the cut, waiting for room left out, which has nothing to do with the cut."""
    first = written_time(float(plan.serving.ttft - plan.serving.queued))
    waits = "" if plan.holds else f", where it {plan.runs} and others wait besides"
    return f" instead of {first}{waits}"


def _stretched(result: Result, plan: Plan) -> tuple[str, ...]:
    """What tensor parallelism across nodes would cost instead of pipeline stages."""
    if plan.layout.pipeline == 1 or plan.gpus <= joined_gpus(result.problem.gpu):
        return ()
    stretched = _find(result, tensor=plan.gpus)
    if stretched is None:
        return ()
    other = result.plan(stretched)
    reduces = f"{written_time(float(other.serving.decode.all_reduce))} per token are all-reduces between GPUs"
    if other.holds:
        return (f"Stretching {other.layout} across nodes instead: {_speed(other)}, of which {reduces}.",)
    return (f"Stretching {other.layout} across nodes instead: {_paced(other)}. Of that time, {reduces}.",)


def _slots(result: Result, plan: Plan) -> tuple[str, ...]:
    """That the engine is told to run more requests than it would by itself, where it is."""
    problem = result.problem
    default = int(default_slots(problem.settings, profile=problem.engine.memory, gpu=problem.gpu))
    told = int(plan.memory.slots) // plan.layout.data
    if problem.settings.max_num_seqs or told <= default:
        return ()
    engine, each = problem.engine.label, " on each data rank" * (plan.layout.data > 1)
    return (
        f"{engine} runs {default:,} requests at once{each} by itself; its command sets {told:,} sequence slots"
        f"{slots_flag(problem.engine)}, which take memory of their own.",
    )


RULES = (_fleet, _fewer, _slots, _passed_over, _filled, _replicas, _two_nodes, _mixed, _stretched, _context)
"""What a good engineer would say of a layout, each where it applies: (result, plan) -> sentences."""


def alternatives(result: Result, plan: Plan) -> tuple[str, ...]:
    """What the next sizes up would give."""
    found = []
    bought = result.bought
    for size in np.unique(bought[result.legal & (bought > bought[plan.index])])[:2]:
        index = best_index(result, among=result.legal & (bought == size))
        if index is not None:
            other = result.plan(index)
            room = f"; holds {counted(int(other.memory.capacity), 'request')}" if other.holds else ""
            found.append(f"{_gpus(result, other.gpus)} ({other.layout}): {_paced(other)}{room}.")
    return tuple(found)


def _napkin_note(result: Result, found: Napkin, smallest: Rung | None) -> str:
    """Why the textbook number of GPUs and the full answer differ, or that they agree."""
    sums = (
        f"{written_bytes(found.weights)} of weights and {written_bytes(found.kv)} of KV over "
        f"{written_bytes(result.problem.gpu.memory)} per GPU: {counted(found.gpus, 'GPU')}"
    )
    most = max(result.problem.budget, int(result.gpus.max()))
    full = None if smallest is None else smallest.plan
    if found.gpus > most and (smallest is None or smallest.replicas == 1):
        return f"{sums}, more than the {counted(most, 'GPU')} one replica may use."
    if smallest is None or full is None or not (full.holds and result.holds.any()):
        nearest = roomiest_index(result, among=np.ones(result.layout.shape, dtype=bool))
        return f"{sums}. {_falls_short(result, nearest)}{_split(smallest)}"
    if smallest.gpus == found.gpus:
        return f"{sums}, as many as the full answer."
    split = _split(smallest) or f" The full answer is {full.gpus}."
    return f"{sums}. {' '.join(_beyond_napkin(result, found, smallest))}{split}"


def _split(smallest: Rung | None) -> str:
    """The full answer where replicas share the requests; empty where one has them all."""
    if smallest is None or smallest.replicas == 1:
        return ""
    return (
        f" The full answer is {counted(smallest.gpus or 0, 'GPU')}: {smallest.layout} share the requests, and each of "
        "them holds all weights."
    )


def _beyond_napkin(result: Result, found: Napkin, smallest: Rung) -> Iterator[str]:
    """What stands between the textbook number and the full answer: cuts, overheads, targets, whole machines."""
    least = int(result.gpus[result.holds].min())
    holds = f"{counted(least, 'GPU')} hold{'s' * (least == 1)} every request"
    tried = int(result.gpus[result.gpus >= found.gpus].min())
    if tried > found.gpus:
        none = "With the cuts you fixed none" if result.problem.fixed else "No cut"
        yield f"{none} into {found.gpus} is tried; the next is {tried}."
    if tried < least:
        yield _falls_short(result, roomiest_index(result, among=result.gpus == tried))
    if not result.does_job.any():
        nearest = ", and the full answer comes nearest" if smallest.replicas == 1 else " alone"
        yield f"{holds}; none that was tried meets the targets{nearest}."
        return
    if least < result.gpus[result.does_job].min():
        fastest = best_index(result, among=result.holds & (result.gpus == least))
        slow = result.plan(cast(int, fastest))
        yield f"{holds} ({slow.layout}): {_limit(result, slow.index)}"
    alone = np.where(result.does_job, 1, MOST_REPLICAS)
    if smallest.replicas == 1 and (note := fewer_would_do(result, replicas=alone, gpus=smallest.gpus or 0)):
        yield note


def _falls_short(result: Result, index: int) -> str:
    """Why a layout does not do; what a GPU loses of the memory the textbook counts on, where memory is the matter."""
    plan = result.plan(index)
    words = f"On {counted(plan.gpus, 'GPU')}, {plan.layout}: {_limit(result, index)}"
    if not plan.legal and plan.objections[0].rule not in OUT_OF_MEMORY:
        return words
    lost = plan.memory.activations + plan.memory.overhead + plan.memory.reserve
    return (
        f"{words} Each GPU loses {written_bytes(float(lost))} to activations, overhead and reserve, and some parts are "
        "kept on several."
    )


def advise(result: Result, *, instances: Iterable[Instance], error: Callable[[Layout], float]) -> Advice:
    """The recommendation for a result, with its reasons and what to buy.

    Args:
        instances: machines to have.
        error: how far the time per token of a layout may be off, relative; 0: it is a bound.
    """
    index = recommended_index(result)
    plan = None if index is None else result.plan(index)
    problem = result.problem
    market = Market(result, tuple(one for one in instances if one.gpu == problem.gpu.name))
    rungs = ladder(market)
    job = rungs[-2]
    fallback = None if plan is None else replace(job, plan=plan)
    smallest = fallback if job.plan is None else job
    offers = () if plan is None else market.alone(plan)
    estimate = napkin(problem.transformer, problem.precision, gpu=problem.gpu, workload=problem.workload)
    return Advice(
        verdict=verdict(result, plan),
        shortfall=shortfall(result, plan),
        sharing=_sharing(plan, offers=offers, split=thriftiest(market)),
        recommended=plan,
        offers=offers,
        reasons=() if plan is None else reasons(result, plan),
        runner_up=None if plan is None else runner_up(result, plan, error=error),
        alternatives=() if plan is None else alternatives(result, plan),
        napkin=estimate,
        napkin_note=_napkin_note(result, estimate, smallest),
        smallest=smallest,
        ladder=rungs,
    )


def _sharing(plan: Plan | None, *, offers: Iterable[Offer], split: Rung) -> str:
    """That replicas would do it for less, or where one alone does not; empty where they do not.

    Args:
        plan: the one replica of the verdict.
        offers: for it, cheapest first.
        split: the cheapest replicas that do it.
    """
    if plan is None or split.plan is None or split.replicas == 1:
        return ""
    alone = next((float(one.purchase.price) for one in offers if one.purchase.price is not None), np.inf)
    does, gpus = plan.does_job, split.gpus or 0
    if does and (split.price, gpus) >= (alone, plan.gpus):
        return ""
    less = "cost less" if split.price < alone else "take fewer GPUs"
    each = split.plan.result.problem.workload.concurrency
    price = "" if np.isinf(split.price) else f", from {split.price:,.2f} USD per hour"
    instead = f" instead of {alone:,.2f}" if does and price and np.isfinite(alone) else ""
    return (
        f"Replicas that share the requests {less if does else 'do it'}: {split.layout} on {counted(gpus, 'GPU')}, "
        f"{counted(each, 'request')} each, {_speed(split.plan)}{price}{instead}{_each(plan.result)}."
    )
