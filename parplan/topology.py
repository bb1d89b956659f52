"""Where the ranks of a replica sit as an engine starts them, and which link carries what between them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from parplan.collectives import pair_bandwidth
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout
from parplan.seating import Seating, numbering

FABRICS = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}
NETWORK = "the network"


@dataclass(frozen=True)
class Seat:
    """One GPU of a replica, and its rank of each kind."""

    number: int
    node: int
    """Node it sits in, counted from 0."""
    box: int
    """Fast domain it sits in, counted from 0: a node, a part of one, or many."""
    tensor: int
    data: int
    context: int
    pipeline: int
    expert: int
    """Group of whole experts it belongs to."""
    sequence: int
    """Group of tensor ranks it belongs to that cut a sequence's cache between them."""

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


def seats(layout: Layout, *, gpu: Gpu, engine: str) -> tuple[Seat, ...]:
    """Every GPU of one replica, in the order in which an engine numbers the ranks and fills nodes with them.

    Args:
        engine: family of the engine.
    """
    seating = Seating(layout, gpu, numbering(engine))
    here, box = int(seating.here), int(seating.box)
    found = []
    for number in range(int(layout.gpus)):
        left, ranks = number, dict[str, int]()
        for name in seating.order:
            left, ranks[name] = divmod(left, int(getattr(layout, name)))
        found.append(
            Seat(
                number=number,
                node=number // here,
                box=number // box,
                sequence=ranks["tensor"] // int(layout.decode_context),
                expert=(ranks["data"] * int(layout.tensor) + ranks["tensor"]) // int(layout.expert_tensor),
                **ranks,
            )
        )
    return tuple(found)


def traffic(layout: Layout, *, gpu: Gpu, engine: str) -> Iterator[Traffic]:
    """What travels between the GPUs of one replica, the most frequent messages first.

    Args:
        engine: family of the engine, which decides who sits beside whom.
    """
    spread, stage = int(layout.expert) > 1 and int(layout.data) > 1, ("context", "pipeline")
    found = (
        ("tensor", layout.tensor, ("data", *stage), "sums after every attention and feed-forward part"),
        (
            "decode_context",
            layout.decode_context,
            ("sequence", "data", *stage),
            "parts of attention over one sequence",
        ),
        ("expert", layout.width if spread else 1, stage, "tokens to their experts and back"),
        (
            "data",
            1 if int(layout.expert) > 1 else layout.data,
            stage,
            "tokens of all attention replicas to cut experts",
        ),
        (
            "context",
            layout.context,
            ("tensor", "data", "pipeline"),
            "new keys and values of long prompts",
        ),
        ("pipeline", layout.pipeline, ("tensor", "data", "context"), "hidden states to the next stage"),
    )
    near = (FABRICS[gpu.fabric], pair_bandwidth(gpu))
    network = (NETWORK, gpu.network or gpu.pcie)
    taken = seats(layout, gpu=gpu, engine=engine)
    for name, size, common, carries in found:
        if int(size) > 1:
            groups = _boxes(taken, common)
            far = any(len({*boxes}) > 1 for boxes in groups)
            together = any(len({*boxes}) < len(boxes) for boxes in groups)
            links = (near,) * together + (network,) * far
            yield Traffic(CUT_NAMES[name], int(getattr(layout, name)), carries, links, far)


def _boxes(taken: Sequence[Seat], common: Sequence[str]) -> Collection[Sequence[int]]:
    """Fast domains of the ranks of every group: of those that have some ranks in common."""
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for seat in taken:
        groups[tuple(getattr(seat, name) for name in common)].append(seat.box)
    return groups.values()
