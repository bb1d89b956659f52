"""The opening view: where the memory goes, speed against throughput, and the sizes to buy."""

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import streamlit as st

from parplan.choice import INDISTINCT, candidates, passed_over
from parplan.instances import Purchase
from parplan.ladder import Rung
from parplan.planner import Plan, Result
from parplan.report import in_one_line
from parplan.scenario import Answer, Scenario
from parplan.ui import balance_table, charts, inputs
from parplan.ui.figures import draw, theme
from parplan.ui.prices import machines, worth
from parplan.ui.selection import look_at, ticked
from parplan.ui.words import plain, sentence
from parplan.units import counted, written_share
from parplan.ways_out import foremost, ways_out

PURPOSES = {
    "loads": "start, with one request of full length",
    "holds": "hold every asked request",
    "meets targets": "hold them and meet the targets",
    "survives": "go on while any one machine is lost",
}
"""Rungs of the ladder, in words."""

PASSED_OVER = {
    "late": ("misses a target", "miss a target"),
    "unwise": ("has a warning on its card", "have a warning on their cards"),
    "larger": ("needs more GPUs", "need more GPUs"),
    "less when full": ("delivers less once its KV cache is full", "deliver less once their KV cache is full"),
    "alike": (
        f"is better by less than {written_share(INDISTINCT)}",
        f"are better by less than {written_share(INDISTINCT)}",
    ),
}
"""What speaks against one layout, and against several, that beat the recommended one."""


def show(answer: Answer) -> None:
    """Two figures and a short table; ways out where nothing does the job."""
    best = answer.advice.recommended
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _memory(answer)
    with right:
        _frontier(answer)
    ways = None if best and best.does_job else st.container()
    _sizes(answer)
    if ways:
        with ways:  # some ten plans: the page does not wait for them
            show_ways_out(answer)


def _memory(answer: Answer) -> None:
    result, best = answer.result, answer.advice.recommended
    st.markdown("**Where the memory goes, on the fullest GPU**")
    own = ticked(result)
    listed = dict.fromkeys((*candidates(result), *([] if own is None else [own])))
    plans = [result.plan(index) for index in listed]
    draw(
        charts.memory_bars(
            plans,
            chosen=best.layout if best else None,
            ticked=None if own is None else result.layout.one(own),
            theme=theme(),
        ),
        key="memory_bars",
        about=in_one_line(result.problem),
        on_point=look_at,
    )
    shown = best or result.plan(candidates(result)[-1])
    tick = "" if own is None else " ✓: the layout you ticked."
    st.caption(plain(f"{charts.memory_words(shown)} Click a bar to see its card.{tick}"))
    balance_table.show(shown, result.problem, key="_balance")


def _frontier(answer: Answer) -> None:
    result, best = answer.result, answer.advice.recommended
    st.markdown("**Throughput against speed**")
    if not result.legal.any():
        st.caption("No layout runs, so there is nothing to compare.")
        return
    figure = charts.frontier(
        result, chosen=best.index if best else None, ticked=ticked(result), theme=theme()
    )
    draw(figure, key="frontier", about=in_one_line(result.problem), on_point=look_at)
    limit = " Dashed: your target for the time per token." if result.problem.workload.tpot else ""
    late = " Hollow: the first token comes later than your target." if result.problem.workload.ttft else ""
    full = " Bar: the recommended layout runs no more at once." if best and result.filled(best.index) else ""
    st.caption(
        "Every point is a layout at a number of requests; the further up and right, the better. Faint: another family "
        f"is better.{limit}{late}{full} Click one to see its card."
    )
    if found := " ".join(filter(None, (nowhere_best(result), off_the_edge(result, best) if best else ""))):
        st.caption(plain(found))


def nowhere_best(result: Result) -> str:
    """Families of layouts that another one beats at every point, as a sentence."""
    best = {*result.families[result.frontier[0]]}
    beaten = [name for name, (layouts, _) in result.frontiers.items() if layouts.size and name not in best]
    return f"Nowhere best, shown by a click on the name: {', '.join(beaten)}." if beaten else ""


def off_the_edge(result: Result, best: Plan) -> str:
    """Why the recommended layout is not among the best points, as a sentence; empty where it is."""
    layouts, batches = result.frontier
    asked = counted(result.problem.workload.concurrency, "request")
    running = result.grid(result.serving.running)
    if (running[layouts, batches] == running[best.index, result.asked])[layouts == best.index].any():
        return ""
    if not best.holds:
        return (
            f"Recommended is not among the best points: it was chosen for its room, and cannot hold {asked}."
        )
    found = passed_over(result, index=best.index)
    if not found:
        return f"Recommended is not among the best points: what beats it does so with more or fewer than {asked}."
    told = []
    for name, layouts in found.items():
        first, several = result.layout.one(int(layouts[0])), len(layouts) > 1
        told.append(f"{len(layouts)} {PASSED_OVER[name][several]} ({'such as ' * several}{first})")
    return f"Recommended is not among the best points. Of the layouts that beat it with {asked}: {', '.join(told)}."


@st.cache_resource(
    show_spinner=False, max_entries=64, hash_funcs={Answer: lambda answer: answer.scenario.model_dump_json()}
)
def _ways(answer: Answer) -> tuple[tuple[str, Scenario, str], ...]:
    """Words, scenario and verdict of the cheapest changes; the plans themselves are not kept."""
    return tuple((way.words, way.scenario, way.verdict) for way in foremost(ways_out(answer)))


def show_ways_out(answer: Answer) -> None:
    """The cheapest changes that make it work, one click away."""
    st.markdown("**Ways out**")
    ways = _ways(answer)
    if not ways:
        best = answer.advice.recommended
        does = "meets the targets" if best and best.holds else "makes it fit"
        st.text(f"No single change {does}. Try a smaller model, a larger GPU and a smaller format together.")
    for words, scenario, verdict in ways:
        button, outcome = st.columns([1, 2], vertical_alignment="center")
        button.button(sentence(words), on_click=inputs.take, args=(scenario,), width="stretch")
        outcome.text(verdict)


def _sizes(answer: Answer) -> None:
    """The fewest GPUs that do something, one line each; the tab "Buy" lists every machine."""
    ladder = answer.advice.ladder
    one = ", for the requests of each replica" if answer.replicas > 1 or answer.scenario.rate else ""
    st.markdown(f"**The smallest size that does it{one}**")
    st.table(
        pa.Table.from_pylist([_size(rung) for rung in ladder]),
        border="horizontal",
        hide_index=True,
        alt="Fewest GPUs for every purpose, and what they cost",
    )
    for rung in ladder:
        if rung.note:
            st.caption(plain(f"To {PURPOSES[rung.name]}: {rung.note}"))
    first = [rung.purchases[0] for rung in ladder if rung.purchases]
    days = [purchase.instance.priced for purchase in first if purchase.price is not None]
    if warning := worth(days, today=date.today()):
        st.caption(warning)


def _size(rung: Rung) -> dict[str, str]:
    found = rung.plan
    return {
        "Enough to": PURPOSES[rung.name],
        "Size": f"{counted(rung.gpus or 0, 'GPU')}, {rung.layout}" if found else "none of the sizes tried",
        "Cheapest machine": plain(_cheapest(rung.purchases) or rung.unsold or "–"),
    }


def _cheapest(purchases: Sequence[Purchase]) -> str:
    """The first of the offers, its price and how old that is; empty where there is none."""
    if not purchases:
        return ""
    first = purchases[0]
    if first.price is None:
        return f"{machines(first)}, no price published"
    return f"{machines(first)}: {first.price:,.2f} USD per hour, {first.instance.priced or 'day not known'}"
