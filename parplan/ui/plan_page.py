"""The plan: the verdict and four figures, then one tab at a time of where they come from."""

from collections.abc import Callable

import streamlit as st

from parplan.advice import best_index, candidates
from parplan.links import share_url
from parplan.planner import Plan
from parplan.scenario import BY_CONFIG, Answer, Scenario, plan, ways_out
from parplan.ui import buy_tab, charts, inputs, layouts_tab
from parplan.ui.figures import draw, theme
from parplan.ui.theme import MARKERS
from parplan.ui.words import bullets, count, plain, sentence, significant
from parplan.units import MS, written_bytes, written_time

MOST_DRAWN = 7
"""Curves drawn in one figure."""
NO_FIGURE = "–"
FIGURES = {
    "GPUs": "GPUs of the recommended layout, all replicas together.",
    "Time per token": "Between two output tokens of one user: the mean, prefill of newcomers included.",
    "Time to first token": "From sending the prompt to the first token: the mean.",
    "Tokens per second": "Output tokens of all requests together, all replicas together.",
}


def show() -> None:
    """The page."""
    inputs.link_messages()
    scenario = inputs.scenario()
    try:
        answer = plan(scenario)
    except (LookupError, ValueError) as error:
        _unplannable(scenario, error)
        return
    _headline(answer)
    _figures(answer)
    views: dict[str, Callable[[Answer], None]] = {
        "Memory": _memory,
        "Layouts": layouts_tab.show,
        "Curves": _curves,
        "Buy": buy_tab.show,
        "Why": _why,
    }
    for tab, view in zip(st.tabs(list(views), key="_view", on_change="rerun"), views.values(), strict=True):
        if tab.open:
            with tab:
                view(answer)


def _unplannable(scenario: Scenario, error: Exception) -> None:
    if scenario.model == BY_CONFIG and not scenario.config:
        st.subheader("Paste a config.json on the left", anchor=False)
        st.text("Its architecture is read, and the plan follows at once.")
        return
    st.subheader("This cannot be planned", anchor=False)
    st.text(str(error))
    st.button("Start from the example", on_click=inputs.take, args=(Scenario(),))


def _headline(answer: Answer) -> None:
    words, share = st.columns([7, 1])
    with words:
        st.subheader(plain(answer.advice.verdict), anchor=False)
        if assumed := answer.result.problem.transformer.assumed:
            st.caption(plain(f"Assumed: {'; '.join(assumed)}"))
    with share, st.popover("Share", icon=":material/link:", width="stretch"):
        st.caption(
            "Every setting is in this link; it opens to the same scenario, also after defaults change."
        )
        st.code(share_url(answer.scenario, base=st.context.url or ""), language=None, wrap_lines=True)


def _figures(answer: Answer) -> None:
    """What everybody asks first. The same four boxes are there whatever happens."""
    best = answer.advice.recommended
    shown = _four(best, answer.scenario.replicas) if best else [(NO_FIGURE, "nothing runs")] * len(FIGURES)
    with st.grid(len(FIGURES), min_column_width=150):
        for (label, about), (value, note) in zip(FIGURES.items(), shown, strict=True):
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


def _four(best: Plan, replicas: int) -> list[tuple[str, str]]:
    """Value and note of each of the figures."""
    serving = best.serving
    return [
        (f"{best.gpus * replicas:,}", f"{replicas} × {best.layout}" if replicas > 1 else str(best.layout)),
        (
            written_time(float(serving.tpot)),
            f"{significant(serving.tokens_per_s_per_user)} tokens/s per user",
        ),
        (written_time(float(serving.ttft)), f"{serving.running:,.0f} run, {serving.waiting:,.0f} wait"),
        (
            significant(serving.tokens_per_s * replicas),
            f"{significant(serving.tokens_per_s_per_gpu)} per GPU",
        ),
    ]


def compared(answer: Answer, best: Plan) -> list[int]:
    """Layouts worth a curve: the recommended one, the best of its size in every family, the best of other sizes."""
    result = answer.result
    rivals = (
        best_index(result, among=result.legal & (result.gpus == best.gpus) & (result.families == name))
        for name in MARKERS
    )
    others = (index for index in candidates(result) if result.legal[index])
    chosen = dict.fromkeys(index for index in (best.index, *rivals, *others) if index is not None)
    return sorted(list(chosen)[:MOST_DRAWN])


def _memory(answer: Answer) -> None:
    result, best = answer.result, answer.advice.recommended
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.markdown("**Where the memory goes, on the fullest GPU**")
        chosen = best.layout if best else None
        plans = [result.plan(index) for index in candidates(result)]
        draw(charts.memory_bars(plans, chosen=chosen, theme=theme()), key="memory_bars")
        if best:
            st.caption(plain(charts.memory_words(best)))
    with right:
        st.markdown("**Throughput against speed**")
        if result.legal.any():
            index = best.index if best else None
            draw(charts.frontier(result, chosen=index, theme=theme()), key="frontier")
        else:
            st.caption("No layout runs, so there is nothing to compare.")
    if best is None or not best.holds:
        _ways_out(answer)


def _ways_out(answer: Answer) -> None:
    st.markdown("**Ways out**")
    ways = ways_out(answer.scenario)
    if not ways:
        st.text(
            "No single change makes it fit. Try a smaller model, a larger GPU and a smaller format together."
        )
    for way in ways[:3]:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(sentence(way.words), on_click=inputs.take, args=(way.scenario,), width=280)
            st.text(way.answer.advice.verdict)


def _curves(answer: Answer) -> None:
    result, best = answer.result, answer.advice.recommended
    if best is None:
        st.caption("No layout runs, so there is nothing to draw.")
        return
    indices = compared(answer, best)
    pictures = (
        ("Time per output token", result.serving.tpot / MS, "ms per output token", answer.scenario.tpot),
        ("Throughput per GPU", result.serving.tokens_per_s_per_gpu, "tokens/s per GPU", 0),
    )
    for column, (title, values, unit, target) in zip(st.columns(2, gap="medium"), pictures, strict=True):
        with column:
            st.markdown(f"**{title}**")
            chart = charts.curves(
                result,
                values=values,
                unit=unit,
                layouts=indices,
                chosen=best.index,
                limit=target,
                theme=theme(),
            )
            draw(chart, key=f"curve_{title}")
    st.caption("Dotted: the KV cache is full and further requests wait. Dashed: what you asked for.")


def _why(answer: Answer) -> None:
    best, advice = answer.advice.recommended, answer.advice
    if best is None or not best.holds:
        _ways_out(answer)
    if advice.reasons:
        st.markdown(bullets(advice.reasons))
    if advice.alternatives:
        st.markdown("**With more**")
        st.markdown(bullets(advice.alternatives))
    if best:
        layouts_tab.show_objections(best)
        st.markdown("**What one token's time is spent on**")
        draw(charts.time_bar(best, theme=theme()), key="why_time")
    _foundations(answer)


def _foundations(answer: Answer) -> None:
    """The facts the numbers rest on."""
    problem = answer.result.problem
    model, gpu, precision = problem.transformer, problem.gpu, problem.precision
    facts = {
        "Model": f"{model.name}: {count(model.total_parameters)} parameters, {count(model.active_parameters)} active, "
        f"{len(model.sequence)} layers",
        "Weights": "; ".join(sorted({precision.weights[part].label for part in model.components})),
        "KV cache": precision.kv.label,
        "GPU": f"{gpu.label}: {written_bytes(gpu.memory)} usable",
        "Engine": f"{problem.engine.label} {problem.engine.versions}",
    }
    st.markdown("**What this rests on**")
    st.table(
        {name: plain(text) for name, text in facts.items()}, border="horizontal", alt="Facts behind the plan"
    )
