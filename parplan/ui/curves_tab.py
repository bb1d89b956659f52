"""Speed against the number of requests, for the layouts worth comparing."""

import streamlit as st

from parplan.choice import best_index, candidates
from parplan.planner import Plan
from parplan.report import in_one_line
from parplan.scenario import Answer
from parplan.ui import charts
from parplan.ui.figures import draw, theme
from parplan.ui.theme import MARKERS
from parplan.units import MS

MOST_DRAWN = 7
"""Curves drawn in one figure."""


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


def show(answer: Answer) -> None:
    """Time per token and throughput."""
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
            draw(chart, key=f"curve_{title}", about=in_one_line(result.problem))
    st.caption(
        "Thick: the recommended layout. Layouts of one family have shades of one colour. "
        "Dotted: the KV cache is full and further requests wait. Dashed: what you asked for."
    )
