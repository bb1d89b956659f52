"""Speed against the number of requests, for the layouts worth comparing."""

import streamlit as st

from parplan.choice import contrasting
from parplan.report import in_one_line
from parplan.scenario import Answer
from parplan.ui import charts
from parplan.ui.figures import draw, theme
from parplan.ui.selection import look_at, ticked
from parplan.units import MS


def show(answer: Answer) -> None:
    """Time per token and throughput."""
    result, best = answer.result, answer.advice.recommended
    if best is None:
        st.caption("No layout runs, so there is nothing to draw.")
        return
    own = ticked(result)
    indices = contrasting(result, index=best.index, own=own)
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
