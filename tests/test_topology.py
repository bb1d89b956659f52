"""Ranks sit where engines start them: tensor ranks are neighbours; vLLM's data ranks, others' stages are outermost."""

import re

import numpy as np
import pytest

from parplan import catalog
from parplan.commands import launch
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.planner import evaluate
from parplan.scenario import Scenario, problem_of
from parplan.seating import Seating, fast_domain, numbering
from parplan.topology import NETWORK, seats, traffic

H100 = catalog.gpus()["h100-sxm"]
RACK = catalog.gpus()["gb200-nvl72"]
CARD = catalog.gpus()["l40s"]


def over(layout: Layout, gpu: str = "h100-sxm", engine: str = "sglang") -> dict[str, tuple[str, ...]]:
    found = traffic(layout, gpu=catalog.gpus()[gpu], engine=engine)
    return {one.cut: tuple(link for link, _ in one.links) for one in found}


def test_a_pipeline_over_two_nodes_has_a_stage_on_each() -> None:
    found = seats(Layout(tensor=8, pipeline=2), gpu=H100, engine="sglang")
    assert [seat.box for seat in found] == [0] * 8 + [1] * 8
    assert all(seat.pipeline == seat.box for seat in found)
    assert [seat.tensor for seat in found[:8]] == list(range(8))
    assert found[9].words(Layout(tensor=8, pipeline=2)) == ("TP1", "PP1")


def test_experts_are_spread_over_tensor_and_data_ranks() -> None:
    whole = seats(Layout(tensor=2, data=4, expert=8), gpu=H100, engine="sglang")
    assert [seat.expert for seat in whole] == list(range(8))
    cut = seats(Layout(tensor=2, data=4, expert=4), gpu=H100, engine="sglang")
    assert [seat.expert for seat in cut] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [seat.data for seat in cut] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_every_combination_of_ranks_sits_once() -> None:
    layout = Layout(tensor=2, data=3, context=2, pipeline=4, expert=6)
    places = {(s.tensor, s.data, s.context, s.pipeline) for s in seats(layout, gpu=H100, engine="sglang")}
    assert len(places) == layout.gpus == 48


def test_which_link_carries_what() -> None:
    assert over(Layout()) == {}
    assert over(Layout(tensor=8)) == {"TP": ("NVLink",)}
    assert over(Layout(tensor=8, pipeline=2)) == {"TP": ("NVLink",), "PP": (NETWORK,)}
    assert over(Layout(tensor=4, pipeline=2))["PP"] == ("NVLink",)
    assert over(Layout(tensor=16)) == {"TP": ("NVLink", NETWORK)}
    assert over(Layout(data=16, expert=16)) == {"EP": ("NVLink", NETWORK)}
    assert over(Layout(tensor=8, expert=8)) == {"TP": ("NVLink",)}  # experts share the tensor ranks' sums
    assert over(Layout(data=8))["DP"] == ("NVLink",)
    assert over(Layout(data=64, expert=64), "gb200-nvl72") == {"EP": ("NVLink",)}
    assert over(Layout(tensor=4), "mi300x") == {"TP": ("xGMI",)}
    assert over(Layout(tensor=2), "l40s") == {"TP": ("PCIe",)}


@pytest.mark.parametrize(("gpu", "size"), [(H100, 8), (RACK, 72), (CARD, CARD.node)])
def test_a_box_is_what_the_fast_link_joins(gpu: Gpu, size: int) -> None:
    assert fast_domain(gpu) == size


STAGED = Layout(data=6, pipeline=2, expert=6)


def test_vllm_starts_all_stages_of_a_data_rank_before_the_next() -> None:
    """vllm/distributed/parallel_state.py: "ExternalDP x DP x PP x TP"."""
    layout = Layout(tensor=2, data=2, pipeline=2)
    found = {
        engine: [(seat.data, seat.pipeline, seat.tensor) for seat in seats(layout, gpu=H100, engine=engine)]
        for engine in ("vllm", "sglang")
    }
    assert found["vllm"] == sorted(found["vllm"])
    assert found["sglang"] == sorted(found["sglang"], key=lambda ranks: (ranks[1], ranks[0], ranks[2]))
    assert sorted(found["vllm"]) == sorted(found["sglang"])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    "layout", [STAGED, Layout(tensor=4, pipeline=3), Layout(tensor=3, pipeline=2), Layout(tensor=16)]
)
@pytest.mark.parametrize("gpu", [H100, RACK, CARD])
def test_nodes_are_those_of_the_commands_and_sit_whole_in_what_joins_them(
    layout: Layout, gpu: Gpu, engine: str
) -> None:
    found = seats(layout, gpu=gpu, engine=engine)
    nodes = [[seat for seat in found if seat.node == node] for node in range(found[-1].node + 1)]
    assert len(nodes) == Seating(layout, gpu, numbering(engine)).nodes
    assert {len(node) for node in nodes} == {layout.gpus // len(nodes)}
    if gpu.domain >= gpu.node:
        assert all(len({seat.box for seat in node}) == 1 for node in nodes)


def test_twelve_gpus_of_a_rack_are_three_nodes_in_one_nvlink_domain_as_the_commands_start_them() -> None:
    of = problem_of(Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="gb200-nvl72"))
    found = seats(STAGED, gpu=RACK, engine="vllm")
    assert {seat.box for seat in found} == {0}
    held, _ = evaluate(of, layout=STAGED, concurrency=np.asarray(8))
    commands = launch(of, layout=STAGED, memory=held, engine_name="vllm").commands
    for node, command in enumerate(commands):
        first = re.search(r"--data-parallel-start-rank[ =](\d+)", command)
        local = re.search(r"--data-parallel-size-local[ =](\d+)", command)
        assert local
        start = int(first[1]) if first else 0
        ranks = {seat.data for seat in found if seat.node == node}
        assert ranks == {*range(start, start + int(local[1]))}
    assert len(commands) == found[-1].node + 1 == 3


def test_who_sits_apart_sends_over_the_network() -> None:
    """Sixteen GPUs in two nodes: data ranks outermost send experts' tokens, stages outermost hidden states."""
    layout = Layout(data=8, pipeline=2, expert=8)
    assert over(layout, engine="vllm") == {"EP": ("NVLink", NETWORK), "PP": ("NVLink",)}
    assert over(layout, engine="sglang") == {"EP": ("NVLink",), "PP": (NETWORK,)}
    assert over(layout, "gb200-nvl72", engine="vllm") == {"EP": ("NVLink",), "PP": ("NVLink",)}


def test_context_ranks_and_ranks_that_cut_a_sequence_speak_among_themselves() -> None:
    assert over(Layout(tensor=8, context=2), engine="ideal")["CP"] == (NETWORK,)
    assert over(Layout(tensor=4, context=2), engine="ideal")["CP"] == ("NVLink",)
    assert over(Layout(tensor=16, decode_context=4))["DCP"] == ("NVLink",)
    assert over(Layout(tensor=16, decode_context=16))["DCP"] == ("NVLink", NETWORK)
