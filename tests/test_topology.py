"""Ranks sit where the messages are priced: tensor ranks are neighbours, stages are outermost."""

import pytest

from parplan import catalog
from parplan.collectives import fast_domain
from parplan.layout import Layout
from parplan.topology import NETWORK, seats, traffic

H100 = catalog.gpus()["h100-sxm"]
RACK = catalog.gpus()["gb200-nvl72"]
CARD = catalog.gpus()["l40s"]


def over(layout: Layout, gpu: str = "h100-sxm") -> dict[str, tuple[str, ...]]:
    return {one.cut: tuple(link for link, _ in one.links) for one in traffic(layout, gpu=catalog.gpus()[gpu])}


def test_a_pipeline_over_two_nodes_has_a_stage_on_each() -> None:
    found = seats(Layout(tensor=8, pipeline=2), gpu=H100)
    assert [seat.box for seat in found] == [0] * 8 + [1] * 8
    assert all(seat.pipeline == seat.box for seat in found)
    assert [seat.tensor for seat in found[:8]] == list(range(8))
    assert found[9].words(Layout(tensor=8, pipeline=2)) == ("TP1", "PP1")


def test_experts_are_spread_over_tensor_and_data_ranks() -> None:
    whole = seats(Layout(tensor=2, data=4, expert=8), gpu=H100)
    assert [seat.expert for seat in whole] == list(range(8))
    cut = seats(Layout(tensor=2, data=4, expert=4), gpu=H100)
    assert [seat.expert for seat in cut] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [seat.data for seat in cut] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_every_combination_of_ranks_sits_once() -> None:
    layout = Layout(tensor=2, data=3, context=2, pipeline=4, expert=6)
    places = {(s.tensor, s.data, s.context, s.pipeline) for s in seats(layout, gpu=H100)}
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
def test_a_box_is_what_the_fast_link_joins(gpu: object, size: int) -> None:
    assert fast_domain(gpu) == size  # type: ignore[arg-type]
