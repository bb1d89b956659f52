"""Two to four scenarios side by side, by link: what they ask for, what each is answered, and where the answers part."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pandas as pd
import streamlit as st

from parplan.comparison import Comparison, Term, compared
from parplan.confidence import Band
from parplan.cost import Bill, bill, bought_for, cheapest
from parplan.links import share_url
from parplan.planner import Plan
from parplan.report import in_one_line
from parplan.scenario import Answer, Scenario, plan
from parplan.shortlist import LONGEST, PLACES, comparison_url, differences, packed_scenario, scenario_of
from parplan.traffic import Traffic
from parplan.ui import address, charts, history, inputs
from parplan.ui.figures import draw, theme
from parplan.ui.words import NO_FIGURE, plain, sentence, significant
from parplan.units import GIB, MS, Number, Seconds, either_way, written_time

NAMES = {place: place.upper() for place in PLACES}
"""What a scenario is called, by its key in the link."""
LABELS = {
    "gpu": "GPU",
    "own_gpu": "Own GPU",
    "kv": "KV cache",
    "size": "Billion parameters",
    "active": "Active, billion",
    "concurrency": "Concurrent requests",
    "prompt": "Prompt tokens",
    "output": "Output tokens",
    "ttft": "Target for the first token, ms",
    "tpot": "Target for each token, ms",
    "discount": "Discount, %",
    "gpu_hour": "USD per GPU and hour",
} | inputs.LABELS
"""Fields as people read them; the others by their own names."""
LONGEST_VALUE = 40
"""Characters shown of a value."""
Figure: TypeAlias = tuple[float | None, str]
"""A value, where there is one, and how it is written."""


def _time(time: Seconds, band: Band | None) -> Figure:
    """A time with its error band; a bound has none."""
    written = written_time(float(time))
    return float(time), f"{written} {either_way(band.relative)}" if band else written


def _needed(answer: Answer, _: Plan) -> Figure:
    """Replicas that the rate asked for takes."""
    found = answer.traffic
    if not answer.scenario.rate or found is None or not found.replica.bearable:
        return None, NO_FIGURE
    return float(found.replicas), f"{found.replicas:,}"


def paid(answer: Answer) -> Bill | None:
    """The cheapest machines for the replicas planned, always busy with the requests asked for."""
    best = answer.advice.recommended
    if best is None:
        return None
    every = (
        bill(
            bought_for(offer.purchase.instance, replicas=answer.replicas, gpus=best.gpus),
            replicas=answer.replicas,
            work=answer.scenario.work(float(offer.plan.serving.requests_per_s) * answer.replicas),
        )
        for offer in answer.advice.offers
    )
    return cheapest(one for one in every if one)


def _dollars(paid: Bill | None, part: str) -> Figure:
    """One part of a bill."""
    if paid is None:
        return None, NO_FIGURE
    amount = float(getattr(paid.cost, part))
    return amount, f"{amount:,.2f}"


def _borne(answer: Answer, of: Callable[[Traffic], Number], written: Callable[[float], str]) -> Figure:
    """A figure at the busiest time of the rate, where that is what a plan answers."""
    if answer.borne is None:
        return None, NO_FIGURE
    value = float(of(answer.borne))
    return value, written(value)


FIGURES: Mapping[str, Callable[[Answer, Plan], Figure]] = {
    "GPUs": lambda answer, _: (float(answer.gpus), f"{answer.gpus:,}"),
    "Replicas": lambda answer, _: (float(answer.replicas), f"{answer.replicas:,}"),
    "Replicas for its rate": _needed,
    "Time per token, busiest time": lambda answer, _: _borne(answer, lambda found: found.tpot, written_time),
    "95 of 100 first tokens within, busiest time": lambda answer, _: _borne(
        answer, lambda found: found.busiest.ttft_p95, written_time
    ),
    "Tokens per second, busiest time": lambda answer, _: _borne(
        answer, lambda found: found.tokens_per_s, significant
    ),
    "Time per token": lambda answer, best: _time(
        best.serving.tpot, known.tpot if (known := answer.confidence(best)) else None
    ),
    "Time to first token": lambda answer, best: _time(
        best.serving.ttft, known.ttft if (known := answer.confidence(best)) else None
    ),
    "Tokens per second": lambda answer, _: (answer.tokens_per_s, significant(answer.tokens_per_s)),
    "USD per hour": lambda answer, _: _dollars(paid(answer), "per_hour"),
    "USD per million output tokens, mean rate": lambda answer, _: _dollars(
        next(iter(answer.bills(answer.scenario.rate)), None) if answer.borne else None, "per_million_output"
    ),
    "USD per million output tokens": lambda answer, _: _dollars(paid(answer), "per_million_output"),
}
"""What is compared of the recommended layouts; a row that none has a value for is left out."""
FULL = ("Time per token", "Time to first token", "Tokens per second", "USD per million output tokens")
"""Those with all requests at once."""
COST_TERMS = (
    "Cost: the cheapest machines for the replicas planned, always busy with the requests asked for where no rate is "
    "named; the whole bill is spread over the output tokens. ±: how far a time may be off, from measurements of its "
    "kind."
)


def offer(label: str, scenario: Scenario) -> None:
    """A button that puts a scenario into the first free place; where there is none, the choice of the one to give up.

    Args:
        label: of the button.
    """
    free = next((place for place in PLACES if not st.session_state.get(place)), None)
    if free:
        about = f"Up to {len(PLACES)} plans stand side by side on the page Compare."
        st.button(label, on_click=_put, args=(scenario, free), icon=":material/add:", help=about)
        return
    st.menu_button(
        f"{label}, instead of …",
        list(NAMES.values()),
        key=f"_instead_{label}",
        on_click=_put_instead,
        args=(scenario, f"_instead_{label}"),
        icon=":material/add:",
        help=f"All {len(PLACES)} places of the page Compare are taken: choose the plan to give up.",
    )


def _put(scenario: Scenario, place: str) -> None:
    st.session_state[place] = packed_scenario(scenario)
    st.toast(f"Added as {NAMES[place]}. The page Compare shows it.")


def _put_instead(scenario: Scenario, chosen: str) -> None:
    names = {name: place for place, name in NAMES.items()}
    _put(scenario, names[st.session_state[chosen]])


def _clear() -> None:
    nothing = dict.fromkeys(PLACES, "")
    st.session_state.update(nothing)
    history.enter(nothing)


def show() -> None:
    """Links first, then differences of what is asked, then of what is answered, then why."""
    st.subheader("Plans side by side", anchor=False)
    answers = {name: answer for name, text in _texts().items() if text and (answer := _answer(name, text))}
    if len(answers) < 2:
        st.text(
            "Give two plans or more: paste their links, or add the current plan, change it, and add it again."
        )
        return
    _asked({name: answer.scenario for name, answer in answers.items()})
    _verdicts(answers)
    found = {name: answer.advice.recommended for name, answer in answers.items() if answer.advice.recommended}
    if len(found) > 1:
        _figures({name: answers[name] for name in found}, found)
        _reasons(found, at_once=_at_once(answers))
        st.markdown("**Where the memory goes, on the fullest GPU**")
        about = ". ".join(f"{name}: {in_one_line(answers[name].result.problem)}" for name in found)
        draw(charts.scenario_bars(found, theme=theme()), key="compared_memory", about=about)


def _texts() -> dict[str, str]:
    """One text per scenario, and what to do with all of them."""
    with st.grid(2, min_column_width=280):
        texts = {
            name: st.text_input(
                f"Plan {name}",
                key=place,
                max_chars=LONGEST,
                bind="query-params",
                persist_state="session",
                placeholder="A link to a plan",
            )
            for place, name in NAMES.items()
        }
    with st.container(horizontal=True):
        offer("Add the current plan", inputs.scenario())
        scenarios = [scenario for text in texts.values() if text and (scenario := scenario_of(text)[0])]
        with st.popover("Share", icon=":material/link:", disabled=len(scenarios) < 2):
            st.caption("All plans are in this link, every setting of each.")
            address.show(comparison_url(scenarios, base=st.context.url or ""), key="_copy")
        st.button("Clear", on_click=_clear, disabled=not any(texts.values()))
    return {name: text or "" for name, text in texts.items()}


def _answer(name: str, text: str) -> Answer | None:
    """The answer to one text, and what of it could not be used; None where it is no plan."""
    scenario, messages = scenario_of(text)
    try:
        answer = plan(scenario) if scenario else None
    except (LookupError, ValueError) as error:
        answer, messages = None, [*messages, str(error)]
    if messages:
        st.markdown(f":orange-badge[{name}] About this link:" if answer else f":red-badge[{name}] No plan:")
        st.text("\n".join(sentence(message) for message in messages))
    return answer


def _table(rows: Mapping[str, Sequence[str]], *, title: str, names: Sequence[str]) -> None:
    """One row per name, one column per scenario."""
    cells = [[plain(row), *(plain(value) for value in values)] for row, values in rows.items()]
    st.table(pd.DataFrame(cells, columns=[title, *names]), border="horizontal", hide_index=True, alt=title)


def _asked(scenarios: Mapping[str, Scenario]) -> None:
    """What differs between the questions."""
    found = differences(list(scenarios.values()))
    if not found:
        st.text("All of them ask for the same.")
        return
    rows = {
        LABELS.get(name, sentence(name)): [_value(name, one) for one in values]
        for name, values in found.items()
    }
    _table(rows, title="What differs", names=list(scenarios))


def _value(name: str, value: object) -> str:
    """A field's value as people read it; what was left out is said to be."""
    if inputs.left_out(name, value):
        return inputs.EMPTY[name]
    text = (
        f"{value:,g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _verdicts(answers: Mapping[str, Answer]) -> None:
    """One sentence each, and the way to its plan."""
    for name, answer in answers.items():
        words, way = st.columns([6, 1], vertical_alignment="center")
        words.markdown(f"**{name}**  {plain(answer.verdict)}")
        home = (st.context.url or "").removesuffix("compare")
        way.link_button(f"Open {name}", share_url(answer.scenario, base=home), width="stretch")


def _at_once(answers: Mapping[str, Answer]) -> str:
    """What is said of figures with all requests at once where some plan answers a rate; empty where none does."""
    return ", all requests at once" if any(answer.borne for answer in answers.values()) else ""


def _figures(answers: Mapping[str, Answer], found: Mapping[str, Plan]) -> None:
    """The figures of the recommended layouts; all but the first with how far they are from it."""
    rows, at_once = dict[str, list[str]](), _at_once(answers)
    for figure, of in FIGURES.items():
        (first, written), *others = (of(answers[name], best) for name, best in found.items())
        if any(value is not None for value, _ in ((first, written), *others)):
            rows[f"{figure}{at_once if figure in FULL else ''}"] = [
                written,
                *(_beside(first, value, text) for value, text in others),
            ]
    _table(rows, title="Recommended layout", names=[f"{name}: {best.layout}" for name, best in found.items()])
    st.caption(COST_TERMS)


def _beside(first: float | None, value: float | None, text: str) -> str:
    """A figure with how far it is from the first one, where both are known."""
    return text if first is None or value is None else f"{text} ({_change(first, value)})"


def _change(first: float, value: float) -> str:
    """How far a value is from the first one.

    >>> _change(2.0, 1.5), _change(2.0, 2.0), _change(2.0, 9.0)
    ('-25 %', 'the same', '4.5 times')
    """
    if not first or value == first:
        return "the same" if value == first else "–"
    return f"{value / first:.1f} times" if value > 3 * first else f"{(value / first - 1) * 100:+.0f} %"


def _reasons(found: Mapping[str, Plan], *, at_once: str) -> None:
    """Where time and memory go in each, term by term; the last row is the sum of the others.

    Args:
        at_once: that this is with all requests at once, where that has to be said.
    """
    (name, first), *others = found.items()
    pairs = {other: compared(first, second) for other, second in others}
    for other, pair in pairs.items():
        words = pair.sentences(first=name, second=other)
        st.text(f"With all requests at once: {words}" if at_once else words)
    times = {one: float(best.serving.tpot) for one, best in found.items()}
    memories = {one: float(best.memory.usable) for one, best in found.items()}
    free = {one: float(best.memory.free) for one, best in found.items()}
    left, right = st.columns(2, gap="medium")
    with left:
        _terms(
            f"ms per output token{at_once}",
            _merged(pairs, lambda pair: pair.time),
            {"together": times},
            unit=MS,
        )
    with right:
        rest = {"free": free, "together": memories}
        _terms("GiB on the fullest GPU", _merged(pairs, lambda pair: pair.memory), rest, unit=GIB)


def _merged(
    pairs: Mapping[str, Comparison], terms: Callable[[Comparison], tuple[Term, ...]]
) -> dict[str, list[float]]:
    """Terms by name: the first plan's value, then that of each other one; the largest difference first."""
    by_name = [{term.name: term for term in terms(pair)} for pair in pairs.values()]
    widest = sorted(by_name[0], key=lambda name: -max(abs(terms[name].difference) for terms in by_name))
    return {name: [by_name[0][name].first, *(terms[name].second for terms in by_name)] for name in widest}


def _terms(
    title: str, terms: Mapping[str, list[float]], rest: Mapping[str, Mapping[str, float]], *, unit: float
) -> None:
    """Rows of terms that are there in any plan, then the rest of the sum and the sum."""
    names = list(next(iter(rest.values())))
    there = {name: values for name, values in terms.items() if any(values)}
    there |= {name: list(values.values()) for name, values in rest.items()}
    rows = {
        name: [
            f"{values[0] / unit:,.2f}",
            *(f"{v / unit:,.2f} ({(v - values[0]) / unit:+,.2f})" for v in values[1:]),
        ]
        for name, values in there.items()
    }
    _table(rows, title=title, names=names)
