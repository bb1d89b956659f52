"""Speed against the number of requests, for the layouts worth comparing."""

import streamlit as st

from parplan.choice import best_index, candidates
from parplan.planner import Plan
from parplan.report import in_one_line
from parplan.scenario import Answer
from parplan.ui import charts
from parplan.ui.figures import draw, theme
from parplan.ui.selection import look_at, ticked
from parplan.ui.theme import MARKERS
from parplan.units import MS

MOST_DRAWN = 7
"""Curves drawn in one figure."""


def compared(answer: Answer, best: Plan, *, own: int | None = None) -> list[int]:
    """Layouts worth a curve: the recommended one, the one ticked, the best of its size in every family, the best of
    other sizes.

    Args:
        own: the layout ticked; drawn where it runs.
    """
    result = answer.result
    rivals = (
        best_index(result, among=result.legal & (result.gpus == best.gpus) & (result.families == name))
        for name in MARKERS
    )
    others = (index for index in candidates(result) if result.legal[index])
    runs = own if own is not None and result.legal[own] else None
    chosen = dict.fromkeys(index for index in (best.index, runs, *rivals, *others) if index is not None)
    return sorted(list(chosen)[:MOST_DRAWN])


def show(answer: Answer) -> None:
    """Time per token and throughput."""
    result, best = answer.result, answer.advice.recommended
    if best is None:
        st.caption("No layout runs, so there is nothing to draw.")
        return
    own = ticked(result)
    indices = compared(answer, best, own=own)
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
                ticked=own,
                limit=target,
                theme=theme(),
            )
            draw(chart, key=f"curve_{title}", about=in_one_line(result.problem), on_point=look_at)
    tick = "" if own is None else ", and the one you ticked"
    late = (
        " Cross: from here on the first token comes later than your target." if answer.scenario.ttft else ""
    )
    st.caption(
        f"Thick: the recommended layout{tick}. Layouts of one family have shades of one colour. "
        f"Dotted: the KV cache is full and further requests wait. Dashed: what you asked for.{late} "
        "Click a point to see the card of its layout."
    )
