"""Time of messages among GPUs, on the links the group really spans.

A group is so many ranks, of which so many sit in every fast domain it reaches (`seating.Group`). Inside one domain they
talk over NVLink, xGMI or PCIe; between domains over the network, every GPU through its own adapter. Every law is
alpha-beta: a start that grows with the steps of the algorithm, and bytes over bandwidth.
"""

from typing import Any

import numpy as np

from parplan.calibration import SpeedProfile
from parplan.hardware import Gpu, Hardware
from parplan.seating import Group
from parplan.units import GB, US, Bytes, BytesPerSecond, Number, Seconds

HOP: dict[str, Seconds] = {"Ampere": 2.1 * US, "Ada": 2.4 * US, "Hopper": 1.57 * US, "Blackwell": 2.5 * US}
"""Latency of one step of a collective by GPU architecture: the slope of NCCL's 512-byte all-reduce over 2, 4 and 8
GPUs (A100, L40S, H100, B200: 22.6, 22.6, 15.6 and 25.1 us at 8). Source: aiconfigurator 0.12.0 data,
nccl_perf.parquet of NCCL 2.27.3 and 2.29.2, read 2026-11-29."""
HOP_ELSEWHERE: Seconds = 2.1 * US
"""Assumed where nothing was measured (AMD xGMI among them): the middle of the above."""
NETWORK_HOP: Seconds = 12 * US
"""One step between nodes: 16-GPU all-reduces over two nodes start at 30.5 us (H100, InfiniBand NDR) and 36 us (B200),
12 to 15 us above one node. Source: NCCL test outputs of Nebius and Lambda, read 2026-11-29."""
LOW_LATENCY_RATE: BytesPerSecond = 8.7 * GB
"""Bytes/s of a small all-reduce between nodes, sent with a flag in every word (NCCL's LL protocol): its slope from 64
to 512 KiB over two nodes, 8 GPUs each (H100 37.6 to 91 us on Nebius; B200 44 to 66 us at 256 KiB on Lambda).
Source: dstackai/dstack, mkdocs/docs/examples/clusters/{nebius,lambda}.md, nccl-tests output, read 2026-11-29."""
BULK_HOPS = 28.8
"""What sending in bulk between nodes takes besides, in hops: 45 us on H100 and 72 us on B200 for 1 and 2 MiB. Source:
as `LOW_LATENCY_RATE`."""
NO_NETWORK: BytesPerSecond = 1.0
"""Stands for the network of a GPU that is not sold with one: a layout that needs it is never the fast one."""
PCIE_SHARE = 0.5
"""Share of one GPU's PCIe bandwidth left when all GPUs of a node send at once, relative to a switched fabric:
NCCL reaches 0.39 of PCIe Gen5 at 8 GPUs against 0.78 of NVLink. Source: as `HOP`, RTX PRO 6000 Server."""


def over_pcie(gpu: Gpu) -> bool:
    """Whether nothing faster than PCIe joins a node."""
    return gpu.fabric == "pcie"


def pair_bandwidth(gpu: Gpu) -> float:
    """One-way bytes/s of a GPU to a single other one of its domain, as specified."""
    return gpu.peer or gpu.link


def busy(group: Group) -> Any:
    """1 where a group has anyone to speak with, else 0."""
    return np.where(np.asarray(group.ranks) > 1, 1.0, 0.0)


def near_bandwidth(group: Group, *, gpu: Hardware, speed: SpeedProfile) -> BytesPerSecond:
    """One-way bytes/s of a GPU to the rest of its group inside the domain.

        share x min(link, (near - 1) peer)

    A mesh gives each pair its own link, so a small group reaches a part of the sum only.
    """
    peers = np.maximum(group.near - 1, 1)
    whole = np.minimum(gpu.each(lambda one: one.link), peers * gpu.each(pair_bandwidth))
    shared = np.where((peers > 1) & gpu.each(over_pcie), PCIE_SHARE, 1.0)
    return speed.link * whole * shared


def network_bandwidth(*, gpu: Hardware, speed: SpeedProfile) -> BytesPerSecond:
    """One-way bytes/s of a GPU to other domains: its own network adapter, else PCIe; with neither, next to none."""
    return speed.network * gpu.each(lambda one: one.network or one.pcie or NO_NETWORK)


def hop_time(*, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Latency of one step inside the domain."""
    return gpu.each(lambda one: HOP.get(one.architecture, HOP_ELSEWHERE)) * speed.latency


def network_start(group: Group, *, speed: SpeedProfile) -> Seconds:
    """Latency the network adds: a tree over the domains.

    ceil(log2(domains)) network hops
    """
    return np.ceil(np.log2(group.domains)) * NETWORK_HOP * speed.latency


def all_reduce_time(message: Bytes, *, group: Group, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Time until every GPU of a group holds the sum of all messages.

    Inside a switched or meshed domain the fastest of three algorithms:

        one-shot   start + (n - 1) m / b           everyone sends everything to everyone
        two-shot   2 start + 2 (n - 1) / n m / b   reduce-scatter, then all-gather
        ring       (n + 2) hops + 2 (n - 1) / n m / b

    Over PCIe the ring. Across k domains of n GPUs the ring inside and, at the same time, 2 (k - 1) / k m / n through
    each GPU's adapter (hierarchical), in bulk or, for small messages, word by word (see `LOW_LATENCY_RATE`).

    Args:
        message: bytes every GPU contributes. [layouts, batches] or a scalar.
        group: who takes part, [layouts, 1] or a scalar; a group of one is free.

    Source: the laws are those of NCCL and of vLLM's and TensorRT-LLM's own kernels (custom_all_reduce.cuh,
    customAllReduceKernels); constants see `HOP` and the calibration.
    """
    near, domains = group.near, group.domains
    bandwidth, hop = near_bandwidth(group, gpu=gpu, speed=speed), hop_time(gpu=gpu, speed=speed)
    start, talks = speed.hops * hop, busy(group)
    per_byte = 2 * (near - 1) / near / bandwidth
    far = 2 * (domains - 1) / domains / near / network_bandwidth(gpu=gpu, speed=speed)
    ring_start = talks * (near + 2) * hop + network_start(group, speed=speed)
    slowest = np.maximum(per_byte, far)
    bulk = np.where(domains > 1, BULK_HOPS * hop, 0.0) + message * slowest
    worded = message * np.maximum(slowest, 1 / LOW_LATENCY_RATE)
    ring = ring_start + np.where(domains > 1, np.minimum(bulk, worded), bulk)
    alone = np.where((domains > 1) | gpu.each(over_pcie), np.inf, talks * start)
    shot = np.minimum(alone + message * ((near - 1) / bandwidth), 2 * alone + message * per_byte)
    return np.minimum(shot, ring)


def all_gather_time(message: Bytes, *, group: Group, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Time until every GPU of a group holds all parts of a message.

        (n / 2 + 2) hops + (n - 1) / n m / b

    inside a domain, and across k domains of n GPUs (k - 1) / k m / n through each adapter.

    Args:
        message: bytes of all parts together.
        group: who takes part; a group of one is free.
    """
    near, domains = group.near, group.domains
    start = busy(group) * (near / 2 + 2) * hop_time(gpu=gpu, speed=speed) + network_start(group, speed=speed)
    per_byte = np.maximum(
        (near - 1) / near / near_bandwidth(group, gpu=gpu, speed=speed),
        (domains - 1) / domains / near / network_bandwidth(gpu=gpu, speed=speed),
    )
    return start + message * per_byte


def reduce_scatter_time(message: Bytes, *, group: Group, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Time until every GPU of a group holds its part of the sum of all messages: an all-gather run backwards."""
    return all_gather_time(message, group=group, gpu=gpu, speed=speed)


def forwarded_all_to_all_time(
    message: Bytes, *, crossing: Bytes, group: Group, gpu: Hardware, speed: SpeedProfile
) -> Seconds:
    """The same where what several receivers of one domain want crosses the network once and is passed on inside.

        start + network start + max(m (near - 1) / near / b, crossing / network)

    Args:
        message: bytes one GPU sends in all, copies for several receivers counted each.
        crossing: bytes one GPU sends to other domains, one copy for each.
        group: who takes part; a group of one is free.

    Source: DeepEP README, normal kernels: 43 to 47 GB/s of 50 per adapter in this count (H800, 16 to 64 GPUs), read
    2026-11-29.
    """
    near = group.near
    inside = message * ((near - 1) / near / near_bandwidth(group, gpu=gpu, speed=speed))
    start = busy(group) * speed.all_to_all + network_start(group, speed=speed)
    return start + np.maximum(inside, crossing / network_bandwidth(gpu=gpu, speed=speed))


def all_to_all_time(message: Bytes, *, group: Group, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Time until every GPU has sent its message, in equal parts, to the GPUs of its group (itself among them).

        start + network start + max(m (near - 1) / n / b, m (n - near) / n / network)

    Args:
        message: bytes one GPU sends in all, copies for several receivers counted each.
        group: n ranks; a group of one is free.

    Source: DeepEP README (H800, 128 tokens of 7168 to 8 experts: 155 us dispatch, 273 us combine at 32 GPUs, what
    the adapters allow), read 2026-11-29; starts see the calibration.
    """
    ranks, near = group.ranks, group.near
    inside = (near - 1) / ranks / near_bandwidth(group, gpu=gpu, speed=speed)
    outside = (ranks - near) / ranks / network_bandwidth(gpu=gpu, speed=speed)
    start = busy(group) * speed.all_to_all + network_start(group, speed=speed)
    return start + message * np.maximum(inside, outside)


def chain_send_time(message: Bytes, *, group: Group, gpu: Hardware, speed: SpeedProfile) -> Seconds:
    """Mean time of one message from a rank of a chain to the next: over the network where that sits in another domain.

        crossing  (domains - 1) / (n - 1)
        time      (1 - crossing) (2 hops + m / b) + crossing (network hop + m / network)

    Args:
        message: bytes.
        group: n ranks of the chain; one of a single rank takes as long as one of two.
    """
    crossing: Number = (group.domains - 1) / np.maximum(group.ranks - 1, 1)
    inside = 2 * hop_time(gpu=gpu, speed=speed) + message * (1 / (speed.link * gpu.each(pair_bandwidth)))
    outside = NETWORK_HOP * speed.latency + message * (1 / network_bandwidth(gpu=gpu, speed=speed))
    return (1 - crossing) * inside + crossing * outside
