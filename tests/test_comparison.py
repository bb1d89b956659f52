"""Differences between layouts add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, plan
from parplan.comparison import compared, time_terms
from parplan.units import written_time

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


def test_the_sentence_says_what_makes_the_faster_one_faster_and_what_slower() -> None:
    """Whoever stands first, the words are the same, and every number in them is one of the terms."""
    result = RESULTS[0]
    index = {str(result.layout.one(i)): i for i in range(result.shape[0])}
    slow, fast = (result.plan(index[name]) for name in ("TP4 PP3", "TP8"))
    found = compared(slow, fast)
    words = found.sentences(first="A", second="B")
    assert words == compared(fast, slow).sentences(first="B", second="A")
    assert words.startswith("B takes ")
    gained, _, lost = words.partition("What makes B faster: ")[2].partition("What makes it slower: ")
    assert gained
    assert lost
    for term in found.time[:3]:
        less = term.difference < 0
        said = f"{term.name} ({written_time(abs(term.difference))} {'less' if less else 'more'})"
        assert said in (gained if less else lost)


def test_a_plan_is_as_fast_as_itself() -> None:
    one = RESULTS[0].plan(int(RESULTS[0].legal.argmax()))
    assert compared(one, one).sentences(first="A", second="B") == (
        "A and B take equally long per token. Both have the same room for KV on each GPU."
    )


def test_who_runs_only_some_of_the_requests_is_said_to() -> None:
    """A layout that keeps most of them waiting is no faster for that."""
    result = plan(Scenario(model="moonshotai/Kimi-K2-Instruct-0905", gpu="h200-sxm", budget=8)).result
    index = {str(result.layout.one(i)): i for i in range(result.shape[0])}
    holds, short = result.plan(index["TP8 EP8 DCP8"]), result.plan(index["TP8"])
    assert holds.holds
    assert short.legal
    assert not short.holds
    for words in (compared(holds, short).words, compared(short, holds).words):
        assert f"TP8 holds {short.most} of 64 requests at once" in words
        assert "the others wait" in words
    assert "the others wait" not in compared(holds, holds).words
