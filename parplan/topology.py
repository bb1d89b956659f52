"""Where the ranks of a replica sit, and which link carries what between them.

Ranks are numbered as in `collectives`: tensor ranks are neighbours, then data, context and pipeline ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from parplan.collectives import fast_domain, nodes_spanned, pair_bandwidth
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout

FABRICS = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}
NETWORK = "the network"


@dataclass(frozen=True)
class Seat:
    """One GPU of a replica, and its rank of each kind."""

    number: int
    box: int
    """Fast domain it sits in, counted from 0."""
    tensor: int
    data: int
    context: int
    pipeline: int
    expert: int
    """Group of whole experts it belongs to."""

    def words(self, layout: Layout) -> tuple[str, ...]:
        """Its rank of every kind that is cut: TP0, DP3, EP3."""
        return tuple(
            f"{short}{getattr(self, name)}"
            for name, short in CUT_NAMES.items()
            if name != "decode_context" and int(getattr(layout, name)) > 1
        )


@dataclass(frozen=True)
class Traffic:
    """What one kind of cut sends, and over what."""

    cut: str
    """TP, DP, ..."""
    size: int
    carries: str
    links: tuple[tuple[str, float | None], ...]
    """NVLink, xGMI, PCIe, the network, each with its rate: one way, bytes/s of one GPU. None: not known."""
    far: bool
    """It leaves the fast domain."""


def seats(layout: Layout, *, gpu: Gpu) -> tuple[Seat, ...]:
    """Every GPU of one replica, in the order of the ranks."""
    tensor, width = int(layout.tensor), int(layout.width)
    stage = width * int(layout.context)
    return tuple(
        Seat(
            number=number,
            box=number // fast_domain(gpu),
            tensor=number % tensor,
            data=number // tensor % int(layout.data),
            context=number // width % int(layout.context),
            pipeline=number // stage,
            expert=number % width // int(layout.expert_tensor),
        )
        for number in range(int(layout.gpus))
    )


def traffic(layout: Layout, *, gpu: Gpu) -> Iterator[Traffic]:
    """What travels between the GPUs of one replica, the most frequent messages first."""
    width, stage = int(layout.width), int(layout.width) * int(layout.context)
    spread = int(layout.expert) > 1
    found = (
        ("tensor", layout.tensor, layout.tensor, "sums after every attention and feed-forward part"),
        ("decode_context", layout.decode_context, layout.tensor, "parts of attention over one sequence"),
        (
            "expert",
            width if spread and int(layout.data) > 1 else 1,
            width,
            "tokens to their experts and back",
        ),
        ("data", 1 if spread else layout.data, width, "tokens of all attention replicas to cut experts"),
        ("context", layout.context, stage, "new keys and values of long prompts"),
    )
    near = (FABRICS[gpu.fabric], pair_bandwidth(gpu))
    network = (NETWORK, gpu.network or gpu.pcie)
    for name, size, span, carries in found:
        if int(size) > 1:
            far = float(nodes_spanned(int(span), gpu=gpu)) > 1
            links = (near, network) if far and fast_domain(gpu) > 1 else (network,) if far else (near,)
            yield Traffic(CUT_NAMES[name], int(getattr(layout, name)), carries, links, far)
    if int(layout.pipeline) > 1:
        far = stage >= fast_domain(gpu)
        links = (network,) if far else (near,)
        yield Traffic("PP", int(layout.pipeline), "hidden states to the next stage", links, far)
