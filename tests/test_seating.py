"""Groups of ranks and the fast domains they reach: counted seat by seat, and by the rule that fills nodes evenly."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import catalog
from parplan.hardware import Gpu, Gpus
from parplan.layout import GPU_CUTS, Layout
from parplan.seating import NUMBERED, PLAIN, Seating, fast_domain, largest_divisor, numbering
from parplan.topology import Seat, seats

GPUS = {(gpu.node, fast_domain(gpu)): gpu for gpu in catalog.gpus().values()}
"""One GPU of the catalogue for every size of node and domain there is."""
ENGINES = ("vllm", "sglang", "trtllm")
MEMBERS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    cuts: tuple(cut for cut in GPU_CUTS if cut not in cuts)
    for cuts in (("tensor",), ("data",), ("context",), ("pipeline",), ("tensor", "data"))
}
"""Cuts a group is made of, and the ranks its members have in common."""
SIZES = st.one_of(st.sampled_from([1, 2, 4, 8]), st.integers(1, 12))
LAYOUTS = st.builds(Layout, tensor=SIZES, data=SIZES, context=st.integers(1, 3), pipeline=SIZES)


def boxes(taken: Sequence[Seat], common: Sequence[str]) -> list[Counter[int]]:
    """Members of every group by fast domain, counted one by one."""
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for seat in taken:
        groups[tuple(getattr(seat, name) for name in common)].append(seat.box)
    return [Counter(group) for group in groups.values()]


def even(layout: Layout, order: Sequence[str], *, most: int, inside: Sequence[int] = ()) -> int:
    """The largest number of neighbours that divides the replica and cuts, or is cut by, every group evenly."""
    spans = [*accumulate((int(getattr(layout, cut)) for cut in order), mul), *inside]
    return max(n for n in range(1, most + 1) if all(span % n == 0 or n % span == 0 for span in spans)
               and layout.gpus % n == 0)  # fmt: skip


@given(layout=LAYOUTS, gpu=st.sampled_from(sorted(GPUS)), engine=st.sampled_from(ENGINES))
def test_members_of_a_domain_are_those_counted_seat_by_seat(
    layout: Layout, gpu: tuple[int, int], engine: str
) -> None:
    seating = Seating(layout, GPUS[gpu], numbering(engine))
    taken = seats(layout, gpu=GPUS[gpu], engine=engine)
    for cuts, common in MEMBERS.items():
        group = seating.group(*cuts)
        for counted in boxes(taken, common):
            assert {*counted.values()} == {int(group.near)}
            assert len(counted) == group.domains
            assert sum(counted.values()) == group.ranks


@given(
    tensor=st.sampled_from([1, 2, 4, 8, 16, 32]),
    ways=st.sampled_from([1, 2, 4, 8, 16, 32]),
    data=SIZES,
    gpu=st.sampled_from(sorted(GPUS)),
    engine=st.sampled_from(ENGINES),
)
def test_ranks_that_cut_a_sequence_are_neighbours_among_the_tensor_ranks(
    tensor: int, ways: int, data: int, gpu: tuple[int, int], engine: str
) -> None:
    layout = Layout(tensor=tensor, data=data, decode_context=min(ways, tensor))
    group = Seating(layout, GPUS[gpu], numbering(engine)).sequence_group()
    counts = boxes(seats(layout, gpu=GPUS[gpu], engine=engine), ("sequence", "data"))
    assert {tuple(sorted(counted.values())) for counted in counts} == {
        (int(group.near),) * int(group.domains)
    }


@given(layout=LAYOUTS, gpu=st.sampled_from(sorted(GPUS)), engine=st.sampled_from(ENGINES))
def test_nodes_and_domains_hold_as_many_as_go_in_evenly(
    layout: Layout, gpu: tuple[int, int], engine: str
) -> None:
    node, fast = gpu
    order = numbering(engine)
    seating = Seating(layout, GPUS[gpu], order)
    outer = even(layout, order, most=max(node, fast))
    inner = even(layout, order, most=min(node, fast), inside=[outer])
    assert (seating.here, seating.box) == ((inner, outer) if fast > node else (outer, inner))
    assert seating.nodes * seating.here == layout.gpus


@given(layouts=st.lists(LAYOUTS, min_size=1, max_size=6), engine=st.sampled_from(ENGINES))
def test_many_layouts_on_many_gpus_at_once(layouts: list[Layout], engine: str) -> None:
    kinds = tuple(GPUS.values())
    there = Gpus(kinds, layouts=(len(layouts),) * len(kinds))
    many = Seating(Layout.stack(layouts * len(kinds)).column(), there, numbering(engine))
    alone = [Seating(layout, gpu, numbering(engine)) for gpu in kinds for layout in layouts]
    for cuts in MEMBERS:
        assert np.ravel(many.group(*cuts).near).tolist() == [int(one.group(*cuts).near) for one in alone]
    assert np.ravel(many.nodes).tolist() == [int(one.nodes) for one in alone]


@pytest.mark.parametrize("order", [PLAIN, *NUMBERED.values()])
@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_what_one_domain_holds_reaches_no_other(order: tuple[str, ...], gpu: Gpu) -> None:
    fast = fast_domain(gpu)
    sizes = range(1, fast + 1)
    inside = [
        layout
        for tensor in sizes
        for data in sizes
        for pipeline in sizes
        if (layout := Layout(tensor=tensor, data=data, pipeline=pipeline)).gpus <= fast
        and (fast <= gpu.node or layout.gpus % gpu.node == 0)
    ]
    seating = Seating(Layout.stack(inside).column(), gpu, order)
    assert all(np.all(seating.group(cut).domains == 1) for cut in GPU_CUTS)


def test_the_order_says_who_crosses() -> None:
    """DP8 PP2 over two nodes of eight: with data outermost half of the experts are far, with stages none of them."""
    layout = Layout(data=8, pipeline=2, expert=8)
    h100 = catalog.gpus()["h100-sxm"]
    vllm, sglang = (Seating(layout, h100, numbering(engine)) for engine in ("vllm", "sglang"))
    assert [(vllm.group("tensor", "data").near, vllm.group("pipeline").domains)] == [(4, 1)]
    assert [(sglang.group("tensor", "data").near, sglang.group("pipeline").domains)] == [(8, 2)]


@pytest.mark.parametrize("engine", ["vllm", "vllm-0.17", "vllm-0.16", "sglang", "trtllm", "ideal"])
def test_every_engine_numbers_every_cut_once(engine: str) -> None:
    order = numbering(catalog.engines()[engine].family)
    assert sorted(order) == sorted(GPU_CUTS)
    assert order[0] == "tensor"
    assert (order == NUMBERED["vllm"]) == engine.startswith("vllm")


@given(size=st.integers(1, 500), limits=st.lists(st.integers(1, 80), min_size=2, max_size=9, unique=True))
def test_more_room_never_holds_fewer(size: int, limits: list[int]) -> None:
    found = [int(largest_divisor(size, most=most)) for most in sorted(limits)]
    assert all(size % held == 0 for held in found)
    assert all(less <= more for less, more in pairwise(found))
