"""Why this layout: the reasons, what more GPUs would give, and the facts the numbers rest on."""

import streamlit as st

from parplan.report import in_one_line
from parplan.scenario import Answer
from parplan.ui import card, charts, explain, overview_tab
from parplan.ui.figures import draw, theme
from parplan.ui.words import bullets, count, plain
from parplan.units import written_bytes


def show(answer: Answer) -> None:
    """Reasons first, with nothing below them that their number would move; beside them what has a size of its own."""
    best, advice = answer.advice.recommended, answer.advice
    ways = st.container()
    left, right = st.columns([3, 2], gap="medium")
    with left:
        if advice.reasons:
            st.markdown("**Why this layout**")
            st.markdown(bullets(advice.reasons))
        if best:
            card.show_objections(best)
    with right:
        if best:
            st.markdown("**What one token's time is spent on**")
            draw(
                charts.time_bar(best, theme=theme()), key="why_time", about=in_one_line(answer.result.problem)
            )
            explain.show(best, answer)
        _foundations(answer)
        if advice.runner_up:
            st.markdown("**Next best**")
            st.markdown(bullets([advice.runner_up.words]))
        if advice.alternatives:
            st.markdown("**With more**")
            st.markdown(bullets(advice.alternatives))
    if best is None or not best.does_job:
        with ways:
            overview_tab.show_ways_out(answer)


def _foundations(answer: Answer) -> None:
    """The facts the numbers rest on."""
    problem = answer.result.problem
    model, gpu = problem.transformer, problem.gpu
    facts = {
        "Model": f"{model.name}: {count(model.total_parameters)} parameters, "
        f"{count(model.active_parameters)} active, {len(model.sequence)} layers",
        "Weights": "; ".join(problem.weight_labels),
        "KV cache": problem.precision.kv.label,
        "GPU": f"{gpu.label}: {written_bytes(gpu.memory)} usable",
        "Engine": f"{problem.engine.label} {problem.engine.versions}",
    }
    st.markdown("**What this rests on**")
    st.table(
        {name: plain(text) for name, text in facts.items()}, border="horizontal", alt="Facts behind the plan"
    )
