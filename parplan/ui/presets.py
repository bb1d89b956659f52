"""Worked examples to start from, one click away."""

from collections.abc import Mapping

import streamlit as st

from parplan.scenario import Scenario
from parplan.ui import inputs

PRESETS: Mapping[str, Scenario] = {
    "70B chat on H100": Scenario(),
    "405B on one node": Scenario(
        model="meta-llama/Meta-Llama-3.1-405B", weights="fp8", concurrency=16, budget=8
    ),
    "405B on two nodes": Scenario(
        model="meta-llama/Meta-Llama-3.1-405B", weights="bf16", concurrency=32, budget=16
    ),
    "DeepSeek on B200": Scenario(
        model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="b200-sxm", concurrency=128
    ),
    "8B on one small GPU": Scenario(
        model="Qwen/Qwen3-8B", gpu="l4", concurrency=8, prompt=512, output=512, budget=1
    ),
    "Million-token prompt": Scenario(
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct", gpu="h200-sxm", concurrency=1, prompt=1_000_000
    ),
    "Chat for 1,000 users": Scenario(
        model="openai/gpt-oss-120b", weights="native", concurrency=250, replicas=4, ttft=2000, tpot=50
    ),
    "Offline batch job": Scenario(
        model="Qwen/Qwen3-30B-A3B", gpu="h200-sxm", concurrency=1024, prompt=2048, output=256
    ),
}


def choose(asked: Scenario) -> None:
    """A menu that names the example in use, and moves every widget to the one chosen.

    It holds no value: a selector that followed the scenario would be told of a change later than the browser's next
    key, and its old value taken for a choice.
    """
    current = next((name for name, scenario in PRESETS.items() if scenario == asked), None)
    st.menu_button(
        f"Example: {current}" if current else "Start from an example",
        list(PRESETS),
        key="_preset",
        on_click=_take,
        icon=":material/lightbulb:",
        width="stretch",
        help="Worked examples; every setting is replaced.",
    )


def _take() -> None:
    inputs.take(PRESETS[st.session_state["_preset"]])
