"""Differences between layouts add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, plan
from parplan.comparison import compared, time_terms

RESULTS = [
    plan(Scenario(model=model, weights="native", gpu="h200-sxm", budget=16)).result
    for model in ("deepseek-ai/DeepSeek-V3.1", "openai/gpt-oss-120b", "meta-llama/Llama-3.3-70B-Instruct")
]


@given(st.sampled_from(RESULTS), st.data())
def test_the_terms_add_up_to_the_difference(result, data) -> None:  # type: ignore[no-untyped-def]
    legal = [i for i in range(result.shape[0]) if result.legal[i]]
    first, second = (result.plan(data.draw(st.sampled_from(legal))) for _ in range(2))
    found = compared(first, second)
    assert sum(term.difference for term in found.time) == pytest.approx(
        float(second.serving.tpot) - float(first.serving.tpot), abs=1e-12
    )
    free = float(second.memory.free) - float(first.memory.free)
    assert sum(term.difference for term in found.memory) == pytest.approx(-free, rel=1e-9, abs=1.0)
    assert [-term.difference for term in time_terms(second, first)] == pytest.approx(
        [term.difference for term in found.time]
    )
    assert str(first.layout) in found.words
    assert str(second.layout) in found.words


def test_a_wider_tensor_group_reads_less_and_talks_more() -> None:
    result = RESULTS[2]
    index = {str(result.layout.one(i)): i for i in range(result.shape[0])}
    terms = {
        t.name: t.difference for t in compared(result.plan(index["TP2"]), result.plan(index["TP8"])).time
    }
    assert terms["weights every token uses"] < 0
    assert terms["reading the KV cache"] < 0
    assert terms["sums between tensor ranks"] > 0
