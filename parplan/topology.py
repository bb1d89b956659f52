"""Where the ranks of a replica sit as an engine starts them, and which link carries what between them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from parplan.collectives import fast_domain, pair_bandwidth
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, Layout

FABRICS = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}
NETWORK = "the network"
PRICED = ("tensor", "data", "context", "pipeline")
"""Order in which ranks are numbered, from neighbours outwards, as `collectives` prices messages. SGLang and
TensorRT-LLM number them so: their data ranks are part of the tensor ranks."""
NUMBERED = {"vllm": ("tensor", "context", "pipeline", "data")}
"""Engine -> its own order, where that is another one.

vLLM starts all stages of a data rank before the next (vllm/distributed/parallel_state.py, `initialize_model_parallel`:
"ExternalDP x DP x PP x TP"; read 2026-11-30).
"""


def node_count(layout: Layout, *, node: int) -> int:
    """Nodes of one replica: the fewest that hold the same number of GPUs each and cut tensor groups evenly.

    >>> node_count(Layout(tensor=4, pipeline=3), node=8), node_count(Layout(tensor=16), node=8)
    (3, 2)
    """
    gpus, tensor = int(layout.gpus), int(layout.tensor)
    counts = (n for n in range(-(-gpus // node), gpus) if gpus % n == 0)
    return next((n for n in counts if (gpus // n) % tensor == 0 or tensor % (gpus // n) == 0), gpus)


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
        engine: family of the engine; one without an order of its own numbers ranks as messages are priced.
    """
    gpus, fast = int(layout.gpus), fast_domain(gpu)
    here = gpus // node_count(layout, node=gpu.node)
    joined, parts = max(fast // gpu.node, 1), -(-here // min(fast, here))
    found = []
    for number in range(gpus):
        left, ranks = number, dict[str, int]()
        for name in NUMBERED.get(engine, PRICED):
            left, ranks[name] = divmod(left, int(getattr(layout, name)))
        node, within = divmod(number, here)
        found.append(
            Seat(
                number=number,
                node=node,
                box=node // joined * parts + within // min(fast, here),
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
    spread, tokens = int(layout.expert) > 1 and int(layout.data) > 1, ("tensor", "data")
    found = (
        ("tensor", layout.tensor, ("tensor",), "sums after every attention and feed-forward part"),
        ("decode_context", layout.decode_context, ("tensor",), "parts of attention over one sequence"),
        ("expert", layout.width if spread else 1, tokens, "tokens to their experts and back"),
        (
            "data",
            1 if int(layout.expert) > 1 else layout.data,
            tokens,
            "tokens of all attention replicas to cut experts",
        ),
        ("context", layout.context, (*tokens, "context"), "new keys and values of long prompts"),
        ("pipeline", layout.pipeline, ("pipeline",), "hidden states to the next stage"),
    )
    near = (FABRICS[gpu.fabric], pair_bandwidth(gpu))
    network = (NETWORK, gpu.network or gpu.pcie)
    taken = seats(layout, gpu=gpu, engine=engine)
    for name, size, among, carries in found:
        if int(size) > 1:
            groups = _boxes(taken, among)
            far = any(len({*boxes}) > 1 for boxes in groups)
            together = any(len({*boxes}) < len(boxes) for boxes in groups)
            links = (near,) * together + (network,) * far
            yield Traffic(CUT_NAMES[name], int(getattr(layout, name)), carries, links, far)


def _boxes(taken: Sequence[Seat], among: Sequence[str]) -> Collection[Sequence[int]]:
    """Fast domains of the ranks of every group: of those that differ in nothing but some kinds."""
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for seat in taken:
        groups[tuple(getattr(seat, name) for name in PRICED if name not in among)].append(seat.box)
    return groups.values()


def seated_apart(layout: Layout, *, gpu: Gpu, engine: str) -> str:
    """What is said where an engine puts others side by side than the times assume, as a sentence; empty where not.

    >>> from parplan import catalog
    >>> seated_apart(Layout(data=8, pipeline=2), gpu=catalog.gpus()["gb200-nvl72"], engine="vllm")
    ''
    """
    own, priced = (
        {one.cut for one in traffic(layout, gpu=gpu, engine=name) if one.far} for name in (engine, "")
    )
    if own == priced:
        return ""
    crossing, assumed = (" and ".join(sorted(cuts)) or "nothing" for cuts in (own, priced))
    return (
        f"The engine starts all stages of a data rank side by side, so {crossing} crosses {NETWORK}; the times assume "
        f"that {assumed} does."
    )
