"""The card of one layout: every rank's memory, its time, what speaks against it, how to start it, how it compares."""

from dataclasses import replace

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.choice import rivals
from parplan.commands import DIALECTS, Launch, launch
from parplan.comparison import Comparison, Term, compared
from parplan.layout import CUT_NAMES
from parplan.links import share_url
from parplan.planner import Plan, Result
from parplan.problem import Problem
from parplan.report import in_one_line
from parplan.scenario import Answer, Scenario, plan
from parplan.ui import address, balance_table, charts, inputs, ranks, topology
from parplan.ui.figures import draw, theme
from parplan.ui.words import bullets, plain
from parplan.units import GIB, MS, counted, either_way, written_time

STARTABLE = ("vllm", "sglang", "trtllm")
"""Engines to show commands for; the chosen one joins them when it is another version."""


def show(found: Plan, answer: Answer) -> None:
    """Pictures first, then words, then what to type."""
    kept = answer.scenario.model_copy(update={name: int(getattr(found.layout, name)) for name in CUT_NAMES})
    with st.container(border=True):
        _title(found, answer, kept)
        show_objections(found)
        _pictures(found, answer.result.problem)
        _ranks(found, answer.result.problem)
        sections = {"Start it": _commands, "Against another": _against} if found.legal else {}
        if sections:
            tabs = st.tabs(list(sections), key="_section", on_change="rerun")
            for tab, section in zip(tabs, sections.values(), strict=True):
                if tab.open:
                    with tab:
                        section(found, answer)


def _title(found: Plan, answer: Answer, kept: Scenario) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        title = f"{found.layout} on {found.gpus} × {answer.result.problem.gpu.label}"
        st.markdown(f"**{plain(title)}**", width="content")
        st.button(
            "Keep this layout",
            on_click=inputs.take,
            args=(kept,),
            disabled=kept == answer.scenario,
            help="Plans with this cut alone, in the link too. To see why it wins or loses against another layout: "
            "Against another, below.",
        )
        with st.popover("Its link", icon=":material/link:"):
            address.show(share_url(kept, base=st.context.url or ""), key="_copy_card")
    st.caption(plain(charts.memory_words(found)))
    if found.legal:
        st.caption(plain(_times(found, answer)))


def _times(found: Plan, answer: Answer) -> str:
    """Both times with their error bands, and what those rest on."""
    known = answer.confidence(found)
    if found.result.problem.workload.one_token:
        return f"{written_time(float(found.serving.ttft))} to the only token of a request."
    tpot, ttft = (written_time(float(time)) for time in (found.serving.tpot, found.serving.ttft))
    if known is None:
        return f"{tpot} per token, {ttft} to the first: bounds, not predictions."
    each, first = known.tpot.words, known.ttft.words
    return (
        f"{tpot} {either_way(known.tpot.relative)} per token, {ttft} {either_way(known.ttft.relative)} to the first: "
        + (f"{each}." if each == first else f"{each}. To the first token: {first}.")
    )


def show_objections(found: Plan) -> None:
    """What speaks against a layout, errors first, with the way out and the source."""
    for objection in found.objections:
        badge = ":red-badge[Impossible]" if objection.severity == "error" else ":orange-badge[Note]"
        st.markdown(f"{badge} {plain(f'{objection.reason} {objection.fix}')}", help=plain(objection.source))
    if found.nearest:
        st.text(f"Nearest that runs: {found.nearest} on {counted(int(found.nearest.gpus), 'GPU')}.")


def _pictures(found: Plan, problem: Problem) -> None:
    left, right = st.columns([3, 2], gap="medium")
    kinds = ranks.kinds(problem, found)
    about = in_one_line(problem)
    listed = ranks.shown(kinds)
    with left:
        st.markdown("**Memory of every GPU of a replica**")
        draw(charts.rank_bars(listed, theme=theme()), key="rank_bars", about=about)
        if len(kinds) > 1:
            worst = next(kind for kind in kinds if kind.worst)
            st.caption(
                plain(f"{worst.words}: full first, so it decides how many requests the replica holds.")
            )
        if len(kinds) > len(listed):
            st.caption(f"{counted(len(kinds) - len(listed), 'kind')} of GPU between these are not drawn.")
        balance_table.show(found, problem, key="_balance_card")
    if found.legal:
        with right:
            st.markdown("**What one token's time is spent on**")
            draw(charts.time_bar(found, theme=theme()), key="time_bar", about=about)


def _ranks(found: Plan, problem: Problem) -> None:
    """Which ranks sit where, and which link carries what; a single GPU needs no picture."""
    if found.gpus == 1:
        return
    picture, links = st.columns([3, 2], gap="medium")
    about, gpu, engine = in_one_line(problem), problem.gpu, problem.engine.family
    with picture:
        st.markdown("**Ranks on GPUs**")
        draw(
            topology.picture(found.layout, gpu=gpu, engine=engine, theme=theme()), key="topology", about=about
        )
    with links:
        st.markdown("**What travels between them**")
        rows = pd.DataFrame(
            topology.carried(found.layout, gpu=gpu, engine=engine), columns=["Cut", "Sends", "Over, one way"]
        )
        st.table(rows, border="horizontal", hide_index=True, alt="Which link carries what")


def _commands(found: Plan, answer: Answer) -> None:
    problem = answer.result.problem
    own = problem.engine.name
    names = dict.fromkeys((*((own,) if own in DIALECTS else ()), *STARTABLE))
    engines = catalog.engines()
    tabs = st.tabs([engines[name].label for name in names], key="_engine_tab", on_change="rerun")
    layout = replace(found.layout, replicas=answer.scenario.replicas)
    for tab, name in zip(tabs, names, strict=True):
        if tab.open:
            with tab:
                _launch(launch(problem, layout=layout, memory=found.memory, engine_name=name))


def _launch(start: Launch) -> None:
    if start.cannot:
        st.markdown(f":orange-badge[Cannot] {plain(start.cannot)}")
    for command in start.commands:
        st.code(command, language="bash", wrap_lines=True)
    if start.config:
        st.code(start.config, language="yaml")
    if start.notes:
        st.markdown(bullets(start.notes))
    if start.expect:
        st.markdown("Its log will say, give or take what the model is wrong by:")
        st.code("\n".join(start.expect), language=None, wrap_lines=True)
    if start.checked:
        st.caption(plain(f"Checked against {start.checked}."))


def _free(answer: Answer) -> Result:
    """All layouts, those too that the user's cuts leave out."""
    if not answer.result.problem.fixed:
        return answer.result
    return plan(answer.scenario.model_copy(update=dict.fromkeys(CUT_NAMES, 0))).result


def _against(found: Plan, answer: Answer) -> None:
    result = _free(answer)
    others = rivals(found, result)
    if not others:
        st.text("No other layout runs within the GPUs allowed.")
        return
    chosen = st.selectbox(
        "Compare with", others, format_func=lambda index: str(result.layout.one(index)), width=260
    )
    _difference(compared(found, result.plan(chosen)))


def _difference(found: Comparison) -> None:
    st.text(found.words)
    left, right = st.columns(2, gap="medium")
    times = (float(plan.serving.tpot) for plan in (found.first, found.second))
    memories = (float(plan.memory.usable) for plan in (found.first, found.second))
    free = Term("free", float(found.first.memory.free), float(found.second.memory.free))
    with left:
        _terms("ms per output token", (*found.time, Term("together", *times)), found, unit=MS)
    with right:
        _terms("GiB on the fullest GPU", (*found.memory, free, Term("together", *memories)), found, unit=GIB)


def _terms(title: str, terms: tuple[Term, ...], found: Comparison, *, unit: float) -> None:
    """Both layouts term by term; the last row is the sum of the others."""
    there = [term for term in terms if term.first or term.second]
    rows = pd.DataFrame(
        {
            title: [term.name for term in there],
            str(found.first.layout): [f"{term.first / unit:,.2f}" for term in there],
            str(found.second.layout): [f"{term.second / unit:,.2f}" for term in there],
            "Difference": [f"{term.difference / unit:+,.2f}" for term in there],
        }
    )
    st.table(rows, border="horizontal", hide_index=True, alt=f"Differences, {title}")
