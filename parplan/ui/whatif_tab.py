"""What would change the answer: the winning layout over requests and prompt length, and step by step."""

from functools import partial

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from parplan.report import in_one_line
from parplan.scenario import Answer, Scenario
from parplan.ui import inputs
from parplan.ui.figures import draw, theme
from parplan.ui.map_chart import prompts_against_requests
from parplan.ui.words import bullets
from parplan.units import counted, written_time
from parplan.whatif import apart, flip_points, sensitivity, target_flips, winner_map

LENGTHS = 11
"""Prompt lengths tried, each twice the one before, beside the asked one."""
LONGEST_USUAL = 1 << 16
"""The longest prompt tried while the asked one is short, tokens."""


def prompts_around(asked: int) -> tuple[int, ...]:
    """Prompt lengths to try: powers of two up to four times the asked one at least, and the asked one.

    >>> prompts_around(1000)[:3], prompts_around(1000)[-1], len(prompts_around(1000)), prompts_around(10**6)[-1]
    ((64, 128, 256), 65536, 12, 4194304)
    """
    longest = max(LONGEST_USUAL, 1 << (4 * asked - 1).bit_length())
    return tuple(sorted({asked, *(longest >> step for step in range(LENGTHS))}))


def show(answer: Answer) -> None:
    """The map, and what follows from it, beside the list of changes."""
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _map(answer)
        _flips(answer)
        _tighter(answer)
    with right:
        _sensitivity(answer)
        _apart(answer)


def _map(answer: Answer) -> None:
    workload = answer.result.problem.workload
    st.markdown("**The recommended layout**")
    found = winner_map(answer.result.problem, prompts=prompts_around(workload.prompt))
    asked = workload.concurrency, workload.prompt
    draw(
        prompts_against_requests(found, asked=asked, theme=theme()),
        key="winner_map",
        about=in_one_line(answer.result.problem),
        on_point=partial(_ask, answer.scenario),
    )
    failing = any(cell.words for row in found.cells for cell in row)
    faded = (
        "Faded: the best there is does not do the job. Point at a cell to see what it misses. "
        if failing
        else ""
    )
    st.caption(f"{faded}Click a cell to ask for its requests and prompt.")


def _ask(scenario: Scenario, cell: str) -> None:
    """Take over the requests and the prompt of a cell of the map, where one can ask for that much."""
    concurrency, prompt = cell.split()
    try:
        asked = Scenario.model_validate(
            scenario.model_dump() | {"concurrency": int(concurrency), "prompt": int(prompt)}
        )
    except ValidationError:
        return
    inputs.take(asked)


def _flips(answer: Answer) -> None:
    st.markdown("**As requests grow**")
    found = flip_points(answer.result)
    st.markdown(bullets(f"From {counted(requests, 'request')} at once: {name}" for requests, name in found))
    st.caption(
        "Looked for in steps of a factor of 1.4, and between two steps where it changes. Prompt, output and targets "
        "stay as asked."
    )


def _tighter(answer: Answer) -> None:
    """What it takes to be faster, step by step."""
    found = target_flips(answer.result)
    if found:
        st.markdown("**As each token must come sooner**")
        st.markdown(bullets(f"Down to {written_time(reached)} per token: {name}" for reached, name in found))


def _apart(answer: Answer) -> None:
    """Prefill and decode on pools of their own."""
    st.markdown("**Prefill and decode apart**")
    found = apart(answer.result, replicas=answer.scenario.replicas)
    if found is None:
        st.text("No pair of pools fits and meets the times.")
        return
    st.text(found.words)


def _sensitivity(answer: Answer) -> None:
    st.markdown("**One change at a time**")
    changes = sensitivity(answer.result)
    st.table(
        pd.DataFrame(
            {
                "With …": [change.words for change in changes],
                "the answer is": [change.after if change.flips else "the same" for change in changes],
            }
        ),
        border="horizontal",
        hide_index=True,
        alt="The recommended layout after each of some changes",
    )
