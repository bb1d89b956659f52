"""Messages among GPUs: limits, monotony, second derivations, and published measurements."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import catalog
from parplan.calibration import SpeedProfile
from parplan.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    chain_send_time,
    reduce_scatter_time,
)
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.seating import PLAIN, Group, Seating
from parplan.units import GB, KIB, MIB, US, Count, Seconds

COLLECTIVES = (all_reduce_time, all_gather_time, reduce_scatter_time, all_to_all_time)
GPUS = ("h100-sxm", "b200-sxm", "a100-sxm-80", "gb200-nvl72", "mi300x", "l40s")
MESSAGES = st.floats(min_value=0, max_value=1e10)


def gpu(name: str) -> Gpu:
    """A GPU of the catalogue."""
    return catalog.gpus()[name]


def speed(engine: str) -> SpeedProfile:
    """The speed constants of an engine."""
    return catalog.engines()[engine].speed


def neighbours(ranks: Count, *, on: Gpu) -> Group:
    """A group of neighbours with nothing beside it."""
    return Seating(Layout(tensor=np.asarray(ranks)), on, PLAIN).group("tensor")


def on(name: str, ranks: Count, engine: str = "vllm") -> Any:
    """Keyword arguments of a collective among neighbours."""
    return {"group": neighbours(ranks, on=gpu(name)), "gpu": gpu(name), "speed": speed(engine)}


def bus_bandwidth(message: float, seconds: Seconds, ranks: int) -> float:
    """What nccl-tests print for an all-reduce: 2 (n - 1) / n x bytes / time."""
    return float(2 * (ranks - 1) / ranks * message / seconds)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", GPUS)
def test_a_group_of_one_is_free(collective: Any, name: str) -> None:
    assert collective(1 * GB, **on(name, 1)) == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_an_ideal_engine_sends_nothing_in_no_time(collective: Any) -> None:
    assert collective(0.0, **on("h100-sxm", 16, "ideal")) == 0


def test_an_ideal_ring_takes_what_its_links_allow() -> None:
    assert all_reduce_time(450e9, **on("h100-sxm", 2, "ideal")) == pytest.approx(1.0)
    assert all_gather_time(450e9, **on("h100-sxm", 2, "ideal")) == pytest.approx(0.5)
    assert all_to_all_time(450e9, **on("h100-sxm", 8, "ideal")) == pytest.approx(7 / 8)


@given(small=MESSAGES, more=MESSAGES, name=st.sampled_from(GPUS), ranks=st.sampled_from([2, 4, 8, 16]))
def test_more_bytes_never_take_less_time(small: float, more: float, name: str, ranks: int) -> None:
    for collective in COLLECTIVES:
        assert collective(small, **on(name, ranks)) <= collective(small + more, **on(name, ranks))


@given(message=MESSAGES, engine=st.sampled_from(["vllm", "sglang", "trtllm"]))
def test_leaving_the_node_never_saves_time(message: float, engine: str) -> None:
    for collective in COLLECTIVES:
        inside, outside = (collective(message, **on("h100-sxm", ranks, engine)) for ranks in (8, 16))
        assert inside <= outside


def test_reducing_is_scattering_and_gathering() -> None:
    """Large messages, where starts do not matter: a second derivation of the ring."""
    args = on("h100-sxm", 8)
    halves = reduce_scatter_time(4 * GB, **args) + all_gather_time(4 * GB, **args)
    assert all_reduce_time(4 * GB, **args) == pytest.approx(halves, rel=0.01)


def test_groups_fill_domains_first() -> None:
    h100, gb200, l40s = gpu("h100-sxm"), gpu("gb200-nvl72"), gpu("l40s")
    groups = [neighbours(16, on=one) for one in (h100, gb200, l40s)]
    assert [int(group.near) for group in groups] == [8, 16, 8]
    assert [int(group.domains) for group in groups] == [2, 1, 2]


@pytest.mark.parametrize(
    ("name", "engine", "ranks", "message", "measured"),
    [
        # aiconfigurator 0.12.0 data, custom_allreduce_perf of vLLM 0.24.0, TensorRT-LLM 1.3.0rc20, SGLang 0.5.14;
        # microseconds, read 2026-11-29.
        ("h100-sxm", "vllm", 2, 8 * 1024, 4.4),
        ("h100-sxm", "vllm", 8, 8 * 1024, 5.1),
        ("h100-sxm", "vllm", 8, 128 * 1024, 7.9),
        ("h100-sxm", "vllm", 4, 1024 * 1024, 12.8),
        ("h100-sxm", "vllm", 8, 1024 * 1024, 15.0),
        ("h200-sxm", "sglang", 4, 128 * 1024, 4.3),
        ("b200-sxm", "vllm", 4, 8 * 1024, 7.1),
        ("b200-sxm", "vllm", 8, 1024 * 1024, 17.2),
        ("b200-sxm", "trtllm", 4, 8 * 1024, 5.1),
        ("b200-sxm", "trtllm", 4, 1024 * 1024, 9.7),
        ("l40s", "vllm", 4, 8 * 1024, 14.3),
        ("l40s", "vllm", 8, 8 * 1024, 27.6),
    ],
)
def test_short_all_reduces_as_published(
    name: str, engine: str, ranks: int, message: float, measured: float
) -> None:
    assert all_reduce_time(message, **on(name, ranks, engine)) / US == pytest.approx(measured, rel=0.45)


@pytest.mark.parametrize(
    ("name", "ranks", "message", "measured"),
    [
        # nccl-tests, bus bandwidth: NCCL 2.27.3 and 2.29.2 (aiconfigurator 0.12.0 data); MI300X RCCL; 2 nodes of
        # 8 H100 over InfiniBand NDR (Nebius), 2 nodes of 8 B200 (Lambda); read 2026-11-29.
        ("a100-sxm-80", 8, 512 * MIB, 222e9),
        ("h100-sxm", 4, 512 * MIB, 350e9),
        ("h100-sxm", 8, 512 * MIB, 445e9),
        ("b200-sxm", 8, 512 * MIB, 704e9),
        ("mi300x", 8, 4096 * MIB, 313e9),
        ("mi300x", 2, 4096 * MIB, 47.7e9),
        ("rtx-pro-6000-server", 8, 512 * MIB, 24.7e9),
        ("h100-sxm", 16, 512 * MIB, 423e9),
        ("b200-sxm", 16, 512 * MIB, 619e9),
    ],
)
def test_long_all_reduces_as_published(name: str, ranks: int, message: float, measured: float) -> None:
    seconds = all_reduce_time(message, **on(name, ranks))
    assert bus_bandwidth(message, seconds, ranks) == pytest.approx(measured, rel=0.45)


def test_expert_dispatch_between_nodes_as_published() -> None:
    """DeepEP README: H800, 400 Gbit/s adapters, 128 tokens of 7168 to 8 experts over 32 GPUs: 155 us there in FP8,
    273 us back in BF16. Read 2026-11-29."""
    sent = 128 * 8 * 7168
    there = all_to_all_time(sent * 1.0, **on("h100-sxm", 32))
    back = all_to_all_time(sent * 2.0, **on("h100-sxm", 32))
    assert there / US == pytest.approx(155, rel=0.35)
    assert back / US == pytest.approx(273, rel=0.35)


def test_a_mesh_gives_a_pair_one_link() -> None:
    mesh = gpu("mi300x")
    assert mesh.peer
    assert all_gather_time(mesh.peer, **on("mi300x", 2, "ideal")) == pytest.approx(0.5)


@pytest.mark.parametrize(("near", "crossing"), [(8, 0), (4, 1), (2, 3), (1, 7)])
def test_a_chain_sends_over_the_network_as_often_as_it_leaves_a_domain(near: int, crossing: int) -> None:
    h100, ideal = gpu("h100-sxm"), speed("ideal")
    assert h100.network
    mean = chain_send_time(1 * GB, group=Group(ranks=8, near=near), gpu=h100, speed=ideal)
    assert 7 * mean == pytest.approx((7 - crossing) * GB / h100.link + crossing * GB / h100.network)


def test_what_crosses_decides_not_how_many_ranks_lie_between() -> None:
    """Every second GPU of two nodes sends half of its message to the other node, as all GPUs of two nodes do."""
    args: Any = {"gpu": gpu("h100-sxm"), "speed": speed("vllm")}
    apart, all_of_them = Group(ranks=8, near=4), Group(ranks=16, near=8)
    assert all_to_all_time(1 * GB, group=apart, **args) == all_to_all_time(1 * GB, group=all_of_them, **args)
    assert all_to_all_time(1 * GB, group=apart, **args) > 3 * all_to_all_time(
        1 * GB, group=Group(ranks=8, near=8), **args
    )


def test_elementwise() -> None:
    ranks = np.array([[1], [2], [8], [16]])
    messages = np.array([1e4, 1e6, 1e8])
    grid = all_reduce_time(messages, **on("h100-sxm", ranks))
    for row, count in enumerate((1, 2, 8, 16)):
        for column, message in enumerate(messages):
            assert np.asarray(grid)[row, column] == all_reduce_time(float(message), **on("h100-sxm", count))


@pytest.mark.parametrize(
    ("name", "kib", "measured"),
    [
        ("h100-sxm", 16, 36), ("h100-sxm", 64, 37.6), ("h100-sxm", 128, 43), ("h100-sxm", 256, 59),
        ("h100-sxm", 512, 91), ("h100-sxm", 1024, 82), ("h100-sxm", 4096, 112), ("h100-sxm", 16384, 205),
        ("h100-sxm", 65536, 476), ("b200-sxm", 16, 42), ("b200-sxm", 64, 44),
        ("b200-sxm", 256, 66), ("b200-sxm", 1024, 115.5), ("b200-sxm", 4096, 117.5), ("b200-sxm", 16384, 185),
        ("b200-sxm", 65536, 350),
    ],
)  # fmt: skip
def test_all_reduces_over_two_nodes_as_published(name: str, kib: int, measured: float) -> None:
    """NCCL over two nodes of 8: H100 on Nebius, B200 on Lambda (dstackai/dstack, nccl-tests outputs).

    The median of the two directions is compared; 512 KiB on B200 is left out, its runs differ by a factor of two.
    From 256 MiB up NCCL sums inside the switch (NVLS), which is not modelled: 512 MiB come out 46 % too slow.
    """
    time = all_reduce_time(kib * KIB, **on(name, 16))
    assert float(time) == pytest.approx(measured * US, rel=0.3)
