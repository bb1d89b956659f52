"""The plan: the verdict and four figures, then one tab at a time of where they come from."""

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from parplan.advice import per_token
from parplan.links import VIEW_KEY, share_url
from parplan.planner import Plan
from parplan.scenario import BY_CONFIG, Answer, Scenario, plan
from parplan.ui import (
    address,
    buy_tab,
    compare_page,
    curves_tab,
    explain,
    hardware_tab,
    inputs,
    layouts_tab,
    load_tab,
    overview_tab,
    selection,
    takeaway,
    whatif_tab,
    why_tab,
)
from parplan.ui.figures import on_phone
from parplan.ui.words import NO_FIGURE, plain, significant
from parplan.units import counted, either_way, written_time

GPUS, PER_TOKEN, FIRST_TOKEN, RATE = "GPUs", "Time per token", "Time to first token", "Tokens per second"
FIGURES = {
    GPUS: "GPUs of the recommended layout, all replicas together.",
    PER_TOKEN: "Between two output tokens of one user: the mean, prefill of newcomers included. Below: tokens/s of one "
    "user.",
    FIRST_TOKEN: "From sending the prompt to the first token: the mean.",
    RATE: "Output tokens of all requests together, all replicas together.",
}
VIEWS: dict[str, Callable[[Answer], None]] = {
    "Overview": overview_tab.show,
    "Layouts": layouts_tab.show,
    "Curves": curves_tab.show,
    "What if": whatif_tab.show,
    "Hardware": hardware_tab.show,
    "Load": load_tab.show,
    "Buy": buy_tab.show,
    "Why": why_tab.show,
}
"""Tabs, and what shows them."""


def show() -> None:
    """The page. Only the open tab is built."""
    selection.recall(VIEWS)
    scenario = inputs.scenario()
    try:
        answer = plan(scenario)
    except (LookupError, ValueError) as error:
        _unplannable(scenario, error)
        return
    _headline(answer)
    _figures(answer)
    tabs = st.tabs(list(VIEWS), key=VIEW_KEY, on_change=selection.opened)
    for tab, view in zip(tabs, VIEWS.values(), strict=True):
        if tab.open:
            with tab:
                view(answer)


def _unplannable(scenario: Scenario, error: Exception) -> None:
    if scenario.model == BY_CONFIG and not scenario.config:
        st.subheader("Paste a config.json among the settings", anchor=False)
        st.text(
            "Or upload it, or fetch it by its Hub id: its architecture is read, and the plan follows at once."
        )
        return
    st.subheader("This cannot be planned", anchor=False)
    st.text(str(error))
    st.button("Start from the example", on_click=inputs.take, args=(Scenario(),))


def _headline(answer: Answer) -> None:
    """The verdict, what there is to say about it, and what one takes away. What comes and goes stands in a place of its
    own: what follows it would otherwise be built anew."""
    with st.container():
        st.subheader(plain(answer.verdict), anchor=False)
        if answer.advice.shortfall:
            st.markdown(plain(answer.advice.shortfall))
        if answer.advice.sharing:
            st.markdown(plain(answer.advice.sharing))
        if answer.load_words and not answer.borne:
            st.markdown(plain(f"{answer.load_words} See the tab Load."))
        elif answer.leaner_words:
            st.markdown(plain(f"{answer.leaner_words} See the tab Load."))
        if assumed := answer.result.problem.transformer.assumed:
            st.caption(plain(f"Assumed: {'; '.join(assumed)}"))
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.caption(plain(_asked(answer)))
        with st.container(horizontal=True, wrap=False, width="content", gap="xsmall"):
            with inputs.folded("Share", icon=":material/link:", width="content") as share:
                if share.open:
                    _share(answer)
            with inputs.folded("Save", icon=":material/download:", width="content") as save:
                if save.open:
                    takeaway.show(answer, link=_link(answer))
            if best := answer.advice.recommended:
                explain.show(best, answer, key="_explain_all", label="Explain")


def _asked(answer: Answer) -> str:
    """What the verdict is about, for those who do not see the settings: requests, formats, engine, replicas."""
    problem, replicas = answer.result.problem, answer.replicas
    workload = problem.workload
    words = (
        f"Each request: {workload.prompt:,} prompt and {workload.output:,} output tokens. "
        f"KV cache in {problem.precision.kv.label}, on {problem.engine.label}."
    )
    best = answer.advice.recommended
    if replicas > 1 and best:
        gpus, requests = counted(best.gpus, "GPU"), counted(workload.concurrency, "request")
        words += f" Each of the {replicas:,} replicas: {gpus}, {requests} at once."
    if answer.borne:
        at_once = counted(workload.concurrency, "request")
        words += f" Figures: at the busiest time of the rate; small below them: with {at_once} at once."
    return f"{words} Settings: » at the top left." if on_phone() else words


def _link(answer: Answer) -> str:
    return share_url(answer.scenario, base=st.context.url or "")


def _share(answer: Answer) -> None:
    st.caption(
        "Every setting is in this link: it opens to the same scenario even after defaults change, and names facts that "
        "have changed since. The address of this page holds what you changed."
    )
    address.show(_link(answer), key="_copy")
    compare_page.offer("Add to the comparison", answer.scenario)


def _figures(answer: Answer) -> None:
    """What everybody asks first. The same four boxes are there whatever happens."""
    best = answer.advice.recommended
    shown = _four(best, answer) if best else [(NO_FIGURE, "nothing runs")] * len(FIGURES)
    with st.grid(len(FIGURES), min_column_width=150):
        for (label, about), (value, note) in zip(_explained(answer).items(), shown, strict=True):
            st.metric(
                label,
                value,
                note,
                delta_color="off",
                delta_arrow="off",
                border=True,
                height="stretch",
                help=about,
            )


AT_RATE = {
    GPUS: "GPUs of all replicas that bear the rate asked for.",
    PER_TOKEN: "Between two output tokens of one user at the busiest time: the mean. Small: with so many at once.",
    FIRST_TOKEN: "95 of 100 first tokens come within it at the busiest time. Small: the mean with so many at once.",
    RATE: "Output tokens of all requests together at the busiest time. Small: with so many at once.",
}
"""The same where a rate is asked for."""


def _explained(answer: Answer) -> dict[str, str]:
    """What each figure is, and what its error band rests on."""
    best, figures = answer.advice.recommended, AT_RATE if answer.borne else FIGURES
    known = answer.confidence(best) if best else None
    if known is None:
        return figures
    bands = {PER_TOKEN: known.tpot, FIRST_TOKEN: known.ttft}
    return figures | {
        label: f"{figures[label]} {either_way(band.relative)}: {plain(band.words)}."
        for label, band in bands.items()
    }


def _four(best: Plan, answer: Answer) -> list[tuple[str, str]]:
    """Value and note of each of the figures: at the rate asked for, or with all requests at once."""
    serving, known = best.serving, answer.confidence(best)
    workload, found = best.result.problem.workload, answer.borne
    tpot, ttft = (either_way(band.relative) for band in (known.tpot, known.ttft)) if known else ("", "")
    first, together = written_time(float(serving.ttft)), significant(answer.tokens_per_s)
    if found:
        at = f"at {workload.concurrency:,}"
        figures = [
            (written_time(float(found.tpot)), " ".join(filter(None, (per_token(best), tpot, at)))),
            (written_time(float(found.busiest.ttft_p95)), " ".join(filter(None, (first, ttft, at)))),
            (significant(found.tokens_per_s), f"{together} {at}"),
        ]
    else:
        user = f"{significant(serving.tokens_per_s_per_user)} tokens/s"
        waiting = f"{serving.waiting:,.0f} wait" if serving.waiting else "none waits"
        figures = [
            (per_token(best), ", ".join(filter(None, (tpot, user)))),
            (first, ", ".join(filter(None, (ttft, waiting)))),
            (together, f"{significant(serving.tokens_per_s_per_gpu)} per GPU"),
        ]
    if workload.one_token:
        figures[0] = per_token(best), "a request has one token"
    return [(f"{answer.gpus:,}", str(replace(best.layout, replicas=answer.replicas))), *figures]
