"""How a model is cut across GPUs."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Cuts = int | NDArray[np.int64]
CUT_NAMES = {
    "tensor": "TP",
    "data": "DP",
    "expert": "EP",
    "pipeline": "PP",
    "context": "CP",
    "decode_context": "DCP",
}
"""Layout fields in the order they are named, with their short names."""
GPU_CUTS = ("tensor", "data", "pipeline", "context")
"""Layout fields whose product is the GPUs of a replica; the others divide the work of the same GPUs."""

MOST_GPUS = 1152
"""Most GPUs one replica may use: sixteen racks of 72."""


def replica_gpus(tensor: Cuts, *, data: Cuts, context: Cuts, pipeline: Cuts) -> Any:
    """GPUs of one replica: its cuts multiplied. Expert and decode-context ranks are the same GPUs, counted once.

        tensor x data x context x pipeline

    Args:
        tensor: ways attention is cut.
        data: times attention is repeated.
        context: ways a long prompt is cut.
        pipeline: stages.

    >>> replica_gpus(8, data=1, context=1, pipeline=2)
    16
    """
    return tensor * data * context * pipeline


@dataclass(frozen=True)
class Layout:
    """One cut, or many: every field is an int, or an int array that broadcasts with the others.

    One replica uses tensor x data x context x pipeline GPUs. Attention is cut `tensor` ways and repeated `data`
    times; the experts of a layer are spread over the same tensor x data GPUs: `expert` groups of whole experts, each
    expert cut tensor x data / expert ways.

    >>> Layout(tensor=8, pipeline=2).gpus
    16
    >>> str(Layout(data=8, expert=8))
    'DP8 EP8'
    """

    tensor: Cuts = 1
    data: Cuts = 1
    pipeline: Cuts = 1
    expert: Cuts = 1
    context: Cuts = 1
    decode_context: Cuts = 1
    replicas: Cuts = 1

    @cached_property
    def gpus(self) -> Any:
        """GPUs of one replica."""
        return replica_gpus(self.tensor, data=self.data, context=self.context, pipeline=self.pipeline)

    @cached_property
    def width(self) -> Any:
        """GPUs the experts of one layer are spread over."""
        return self.tensor * self.data

    @cached_property
    def expert_tensor(self) -> Any:
        """Ways one expert is cut; whole where there are more groups than GPUs, which is objected to."""
        return np.maximum(self.width // self.expert, 1)

    def __getitem__(self, index: Any) -> "Layout":
        """The layouts at an index, of a layout whose fields are arrays."""
        shape = self.shape
        return Layout(**{f.name: np.broadcast_to(getattr(self, f.name), shape)[index] for f in fields(self)})

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape the fields broadcast to; () for a single layout."""
        return np.broadcast_shapes(*(np.shape(getattr(self, f.name)) for f in fields(self)))

    def column(self) -> "Layout":
        """The same layouts with a trailing axis of length one, to broadcast against batches."""
        return Layout(**{f.name: np.asarray(getattr(self, f.name))[..., None] for f in fields(self)})

    def __str__(self) -> str:
        """TP8 PP2, DP8 EP8, ...; TP1 for one GPU.

        >>> str(Layout(tensor=8, pipeline=2)), str(Layout(tensor=2, replicas=3284))
        ('TP8 PP2', '3,284 × TP2')
        """
        sizes = {name: int(getattr(self, cut)) for cut, name in CUT_NAMES.items()}
        text = " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "TP1"
        return f"{int(self.replicas):,} × {text}" if int(self.replicas) > 1 else text

    def named(self, name: str) -> Any:
        """Which of many layouts are called so, whatever their replicas, [...].

        >>> Layout(tensor=np.array([4, 8, 8]), pipeline=np.array([1, 1, 2])).named("TP8 PP2").tolist()
        [False, False, True]
        """
        sizes = dict(re.findall(r"([A-Z]+)(\d+)", name))
        alike = (getattr(self, cut) == int(sizes.get(short, 1)) for cut, short in CUT_NAMES.items())
        return functools.reduce(np.logical_and, alike, np.full(self.shape, bool(sizes)))

    @staticmethod
    def stack(layouts: "list[Layout]") -> "Layout":
        """Many single layouts as one layout of arrays [layouts]."""
        return Layout(**{f.name: np.array([getattr(one, f.name) for one in layouts], dtype=np.int64)
                         for f in fields(Layout)})  # fmt: skip

    @staticmethod
    def joined(layouts: "Sequence[Layout]") -> "Layout":
        """Layouts of arrays [layouts], one after the other."""
        shapes = [part.shape for part in layouts]
        return Layout(
            **{
                f.name: np.concatenate(
                    [
                        np.broadcast_to(getattr(part, f.name), shape)
                        for part, shape in zip(layouts, shapes, strict=True)
                    ]
                )
                for f in fields(Layout)
            }
        )

    def one(self, index: int) -> "Layout":
        """A single layout with plain ints, of a layout whose fields are arrays [layouts]."""
        cuts = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        return Layout(**{name: int(cut[index] if cut.ndim else cut) for name, cut in cuts.items()})


FAMILIES = ("TP", "TP with PP", "EP", "DP", "EP or DP with PP", "CP")
"""Groups of layouts that share their strengths."""


def families(layout: Layout) -> Any:
    """The family of each layout, by what is cut besides attention heads, [...].

    >>> families(Layout(tensor=8, pipeline=np.array([1, 2]))).tolist(), str(families(Layout(tensor=8, expert=8)))
    (['TP', 'TP with PP'], 'EP')
    """
    lengthwise = np.maximum(layout.context, layout.decode_context) > 1
    piped, repeated = np.greater(layout.pipeline, 1), np.greater(layout.data, 1)
    spread = repeated | np.greater(layout.expert, 1)
    marks = (lengthwise, spread & piped, repeated, spread, piped)
    return np.select(marks, ("CP", "EP or DP with PP", "DP", "EP", "TP with PP"), default="TP")


def stage_bounds(layers: int, *, pipeline: Cuts) -> NDArray[np.int64]:
    """First layer of each pipeline stage, and one past the last layer.

    Stages get layers // pipeline each; what is left over goes to the stages before the last, from the back, so that
    the first and last stages, which also hold the embedding and the head, stay small (vLLM `get_pp_indices`).

    Args:
        layers: layers of the model.
        pipeline: stages, [...]; at most `layers`.

    Returns:
        [..., max(pipeline) + 1]; bounds past the last stage repeat `layers`, so those stages are empty.

    >>> stage_bounds(61, pipeline=4).tolist()
    [0, 15, 30, 46, 61]
    >>> stage_bounds(61, pipeline=8).tolist()
    [0, 7, 14, 22, 30, 38, 46, 54, 61]
    """
    stages = np.asarray(pipeline, dtype=np.int64)[..., None]
    stage = np.arange(stages.max(initial=1))
    base, left = layers // stages, layers % stages
    gets_one_more = (stage >= stages - 1 - left) & (stage < stages - 1)
    size = np.where(stage < stages, base + gets_one_more, 0)
    ends = np.cumsum(size, axis=-1)
    return np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1)
