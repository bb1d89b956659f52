"""One page of Markdown for a design document: the verdict, the figures behind it, and everything they assume."""

import re
from collections.abc import Iterable, Sequence
from datetime import date

from parplan import __version__
from parplan.advice import per_token
from parplan.balance import balance
from parplan.choice import ranking
from parplan.confidence import Band
from parplan.cost import Bill
from parplan.explanation import engine_sources
from parplan.export import Json, answer_json
from parplan.ladder import Rung
from parplan.layout import CUT_NAMES, Layout
from parplan.planner import Plan, Result
from parplan.problem import Problem
from parplan.provenance import Source
from parplan.scenario import SCHEMA, UNPRICED, Answer, Scenario, price_terms
from parplan.traffic import ASSUMED, Traffic
from parplan.units import (
    Seconds,
    counted,
    either_way,
    written_bytes,
    written_rate,
    written_share,
    written_time,
)
from parplan.workload import OBJECTIVES

MARKED_UP = re.compile(r"([\\`*_<>\[\]|])")
"""Signs that would mean something in Markdown inside a line."""
MOST_LAYOUTS, MOST_MACHINES = 5, 3
"""Layouts, and machines for the asked rate, listed."""


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, in one line.

    >>> escaped("a|b [x](y)")
    'a\\|b \\[x\\](y)'
    """
    return MARKED_UP.sub(r"\\\1", " ".join(text.split()))


def report(answer: Answer, *, link: str, written: date) -> str:
    """The page.

    Args:
        link: opens to the same scenario.
        written: the day it is made.
    """
    advice, result = answer.advice, answer.result
    best, at_once = advice.recommended, f", {_together(answer)}" if answer.borne else ""
    sections = (
        ("Asked", _table(("Setting", "Value"), _asked(answer))),
        (
            "Answer",
            _table(("Figure", "Value"), _figures(best, answer)) if best else "",
        ),
        ("Requests as they come", _load(answer)),
        ("Why", _bullets((*advice.reasons, *(o.reason for o in best.objections))) if best else ""),
        ("Memory of the fullest GPU", _memory(best, result.problem) if best else ""),
        ("Next best", escaped(advice.runner_up.words) if advice.runner_up else ""),
        ("With more GPUs", _bullets(advice.alternatives)),
        (f"Layouts that do it, best first{at_once}", _layouts(result)),
        (
            "What to buy for the requests of one replica",
            _table(BOUGHT, [_bought(rung) for rung in advice.ladder]),
        ),
        ("On a napkin", escaped(advice.napkin_note)),
        ("Assumed", _bullets(assumptions(answer))),
        ("Sources", "\n".join(dict.fromkeys(_cited(source) for source in sources(answer)))),
    )
    head = (
        f"# {escaped(answer.verdict)}",
        *filter(None, [escaped(advice.shortfall), escaped(advice.sharing)]),
        f"Planned with parplan {__version__} on {written.isoformat()}, link format {SCHEMA}. The whole scenario: "
        f"<{link}>",
    )
    return "\n\n".join((*head, *(f"## {title}\n\n{text}" for title, text in sections if text))) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *([escaped(cell) for cell in row] for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(text)}" for text in texts)


def _asked(answer: Answer) -> list[tuple[str, str]]:
    problem, scenario = answer.result.problem, answer.scenario
    workload, model = problem.workload, problem.transformer
    targets = {"first token": workload.ttft, "each token": workload.tpot}
    asked = [f"{name} within {written_time(limit)}" for name, limit in targets.items() if limit]
    rate = (
        f"{written_rate(scenario.rate)} on average, {written_rate(scenario.rate * scenario.peak)} at the peak"
    )
    return [
        ("Model", model.name),
        (
            "Parameters",
            f"{model.total_parameters / 1e9:,.1f} billion, {model.active_parameters / 1e9:,.1f} active",
        ),
        ("Weights", "; ".join(problem.weight_labels)),
        ("KV cache", problem.precision.kv.label),
        ("GPU", f"{problem.gpu.label}, {written_bytes(problem.gpu.memory)} usable"),
        ("Engine", f"{problem.engine.label}, {problem.engine.versions}"),
        ("Requests at once, per replica", f"{workload.concurrency:,}"),
        ("Request", f"{workload.prompt:,} prompt and {workload.output:,} output tokens"),
        ("Prefix cache hits", written_share(workload.prefix_hit)),
        ("Targets", ", ".join(asked) or "none"),
        ("Best layout", OBJECTIVES[problem.objective]),
        ("Replicas", "as many as bear the rate" if answer.borne else f"{scenario.replicas:,}"),
        ("Requests per second", rate if scenario.rate else "not asked"),
        ("GPUs one replica may use", f"{problem.budget}"),
        ("Cuts that are fixed", str(Layout(**problem.fixed)) if problem.fixed else "none"),
        *_seldom(scenario),
    ]


SHOWN_ABOVE = {
    *[
        "model",
        "size",
        "active",
        "weights",
        "kv",
        "gpu",
        "engine",
        "objective",
        "budget",
        "replicas",
        "concurrency",
        "prompt",
        "output",
        "prefix",
    ],
    *["ttft", "tpot", "rate", "peak", "discount", "gpu_hour"],
    *CUT_NAMES,
}
"""Fields of the scenario that rows of their own are about."""
PACKED = ("config", "own_gpu")
"""Fields that only the link holds in full; what they describe is said in words."""


def _seldom(scenario: Scenario) -> list[tuple[str, str]]:
    """The rarely used settings that are not as they come, under the names the link has for them."""
    changed = {name: value for name, value in scenario.changed().items() if name not in SHOWN_ABOVE}
    return [(name, "as the link has it" if name in PACKED else str(value)) for name, value in changed.items()]


def _figures(best: Plan, answer: Answer) -> list[tuple[str, str]]:
    """The figures of the verdict first; those with all requests at once say so where a rate is what is answered."""
    together, replicas = f"{answer.gpus:,}", answer.replicas
    at_once = f", {_together(answer)}" if answer.borne else ""
    return [
        ("Layout", str(best.layout)),
        ("GPUs", f"{together}, {best.gpus} per replica" if replicas > 1 else together),
        *(_borne(answer.borne) if answer.borne else ()),
        *((f"{name}{at_once}", value) for name, value in _at_once(best, answer)),
        ("Requests of full length one replica holds", f"{int(best.memory.capacity):,}"),
    ]


def _together(answer: Answer) -> str:
    """With how many requests the figures are that are not those of a rate."""
    return f"with {counted(answer.scenario.concurrency, 'request')} at once in each replica"


def _borne(found: Traffic) -> list[tuple[str, str]]:
    """What users feel at the busiest time of a rate."""
    tpot = "none" if found.replica.workload.one_token else written_time(float(found.tpot))
    return [
        ("Time per output token, mean, at the busiest time", tpot),
        ("95 of 100 first tokens within, at the busiest time", written_time(float(found.busiest.ttft_p95))),
        ("Tokens/s, all replicas, at the busiest time", f"{found.tokens_per_s:,.0f}"),
    ]


def _at_once(best: Plan, answer: Answer) -> list[tuple[str, str]]:
    """Times and rates with all requests at once."""
    serving, known = best.serving, answer.confidence(best)
    one = best.result.problem.workload.one_token
    return [
        (
            "Time per output token, mean",
            per_token(best) if one else _off(serving.tpot, known.tpot if known else None),
        ),
        ("Time to first token, mean", _off(serving.ttft, known.ttft if known else None)),
        (
            "Tokens/s for one user",
            per_token(best) if one else f"{float(serving.tokens_per_s_per_user):,.1f}",
        ),
        ("Tokens/s, all replicas", f"{answer.tokens_per_s:,.0f}"),
        ("Tokens/s per GPU", f"{float(serving.tokens_per_s_per_gpu):,.0f}"),
    ]


def _off(time: Seconds, band: Band | None) -> str:
    """A time, how far it may be off, and what that rests on."""
    written = written_time(float(time))
    return f"{written} {either_way(band.relative)} ({band.words})" if band else f"{written}, a bound"


def _memory(best: Plan, problem: Problem) -> str:
    """What the workload needs and what the engine reserves, part by part, and what the pools hold."""
    both = balance(problem, best)
    rows = [
        (entry.name, written_bytes(entry.needed), written_bytes(entry.reserved))
        for entry in (*both.entries, both.together)
    ]
    return f"{_table(('Part', 'Needed', 'Reserved'), rows)}\n\n{_bullets(both.words)}"


def _load(answer: Answer) -> str:
    """What the rate asked for takes, what users feel, and what that costs; empty without a rate or a layout."""
    found = answer.traffic
    if not answer.load_words or found is None:
        return ""
    if not found.replica.bearable:
        return escaped(answer.load_words)
    leaner = filter(None, (answer.leaner_words,))
    said = _bullets((answer.load_words, found.felt, found.replica.words, *leaner, ASSUMED))
    bills = answer.bills(answer.scenario.rate)[:MOST_MACHINES]
    if not bills:
        return f"{said}\n- {UNPRICED}"
    return f"{said}\n\n{_table(RENTED, [_rented(one) for one in bills])}"


RENTED = (
    "Machines for all replicas",
    "USD per hour",
    "USD per million output tokens",
    "USD per request",
    "Price of",
)


def _rented(paid: Bill) -> tuple[str, ...]:
    machine = paid.purchase.instance
    return (
        f"{paid.purchase.count} × {machine.name} ({machine.provider})",
        f"{paid.cost.per_hour:,.2f}",
        f"{paid.cost.per_million_output:,.2f}",
        f"{paid.cost.per_request:.5f}",
        f"{machine.priced or ''}",
    )


def _layouts(result: Result) -> str:
    """The layouts that do the job, the recommended one first; where none does, those that hold all requests, or run."""
    allowed = next(
        (mask for mask in (result.holds & result.in_time, result.holds, result.legal) if mask.any()), None
    )
    if allowed is None:
        return ""
    order = ranking(result)
    plans = [result.plan(int(index)) for index in order[allowed[order]][:MOST_LAYOUTS]]
    head = ("Layout", "GPUs", "Per token", "First token", "Tokens/s per GPU", "Requests held", "Against it")
    return _table(head, [_row(found) for found in plans])


def _row(found: Plan) -> tuple[str, ...]:
    serving = found.serving
    return (
        str(found.layout),
        f"{found.gpus}",
        per_token(found),
        written_time(float(serving.ttft)),
        f"{float(serving.tokens_per_s_per_gpu):,.0f}",
        f"{int(found.memory.capacity):,}",
        " ".join(objection.reason for objection in found.objections),
    )


BOUGHT = ("Purpose", "GPUs", "Layout", "Cheapest machines", "USD per hour", "Price of")


def _bought(rung: Rung) -> tuple[str, ...]:
    if rung.plan is None:
        return (rung.meaning, "none of the sizes tried", "", "", "", "")
    size = (f"{rung.meaning}. {rung.note}" if rung.note else rung.meaning, f"{rung.gpus}", rung.layout)
    if not rung.purchases:
        return (*size, rung.unsold, "", "")
    first = rung.purchases[0]
    price = "not published" if first.price is None else f"{first.price:,.2f}"
    return (
        *size,
        f"{first.count} × {first.instance.name} ({first.instance.provider})",
        price,
        f"{first.instance.priced or ''}",
    )


def assumptions(answer: Answer) -> tuple[str, ...]:
    """What is taken for granted, sentence by sentence."""
    return (
        *answer.result.problem.transformer.assumed,
        "Requests keep coming: as one ends, the next one starts; all are of the mean length.",
        "Memory is that of the fullest GPU of a replica, with every running request at its full length.",
        "Replicas change tokens and requests per second and nothing else.",
        f"{price_terms(answer.scenario)} Unused GPUs of a machine are paid for too.{_priced(answer)}",
    )


def _priced(answer: Answer) -> str:
    """The days the listed prices are of, as one more sentence; empty where there is none."""
    bought = (rung.purchases[0].instance for rung in answer.advice.ladder if rung.purchases)
    days = sorted({one.priced for one in bought if one.price is not None and one.priced})
    if not days:
        return ""
    first, last = days[0].isoformat(), days[-1].isoformat()
    return f" Prices are of {first}." if first == last else f" Prices are of {first} to {last}."


def in_one_line(problem: Problem) -> str:
    """What is served, on what, for whom: what a figure without its page has to say."""
    model, workload = problem.transformer, problem.workload
    each = f" in each of {problem.replicas:,} replicas" if problem.replicas > 1 else ""
    formats = ", ".join(problem.weight_labels)
    return (
        f"{model.name.rpartition('/')[2]}, weights {formats}, KV cache {problem.precision.kv.label}, on "
        f"{problem.gpu.label} with {problem.engine.label} {problem.engine.versions}; "
        f"{counted(workload.concurrency, 'request')} at once{each} of {workload.prompt:,} prompt and "
        f"{workload.output:,} output tokens"
    )


def everything(answer: Answer, *, link: str, written: date) -> Json:
    """The whole answer as plain data, and what it rests on.

    Args:
        answer: the answer.
        link: opens to the same scenario.
        written: the day it is made.
    """
    problem = answer.result.problem
    made = {
        "version": __version__,
        "date": written.isoformat(),
        "link_format": SCHEMA,
        "link": link,
        "engine": f"{problem.engine.label} {problem.engine.versions}",
        "assumptions": list(assumptions(answer)),
        "sources": [source.model_dump(mode="json") for source in sources(answer)],
    }
    return {"made": made} | answer_json(answer)


def sources(answer: Answer) -> tuple[Source, ...]:
    """Where the figures of the GPU, the engine, the formats and the prices were read."""
    problem = answer.result.problem
    bought = (rung.purchases[0].instance.sources for rung in answer.advice.ladder if rung.purchases)
    formats = (problem.precision.weights[component].sources for component in problem.transformer.components)
    found = (
        *problem.gpu.sources.values(),
        *engine_sources(problem),
        *(source for listed in formats for source in listed),
        *problem.precision.kv.sources,
        *(source for listed in bought for source in listed),
    )
    return tuple(dict.fromkeys(found))


def _cited(source: Source) -> str:
    where = f", <{source.url}>" if source.url else ""
    return f"- {escaped(source.text)}, read {source.read.isoformat()}{where}"
