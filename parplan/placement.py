"""A precision and a layout on a type of GPU, as an engine runs it: what every time of a step depends on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from parplan.calibration import Engine, SpeedProfile
from parplan.formats import Component, Format, Precision
from parplan.hardware import Gpu, Hardware
from parplan.layout import Layout
from parplan.seating import Seating, numbering
from parplan.transformer import Block, Transformer
from parplan.units import Array, BytesPerSecond, FlopPerSecond, Number, Seconds


@dataclass(frozen=True)
class Placement:
    """A precision and a layout on a type of GPU, as an engine runs it: what every formula here depends on."""

    precision: Precision
    layout: Layout
    gpu: Hardware
    engine: Engine
    replica: Layout | None = None
    """Where the ranks are some of a larger layout's: that. None: all of their own."""

    @property
    def speed(self) -> SpeedProfile:
        """The engine's rates."""
        return self.engine.speed

    @cached_property
    def seating(self) -> Seating:
        """Where the ranks sit."""
        return Seating(self.replica or self.layout, self.gpu, numbering(self.engine.family))

    @cached_property
    def tensor(self) -> Array:
        """Tensor-parallel width."""
        return np.asarray(self.layout.tensor, dtype=float)

    @cached_property
    def slower(self) -> Number:
        """Factor on all kernel times on this GPU's architecture."""
        return cast(Number, self.gpu.each(lambda one: self.speed.slower.get(one.architecture, 1.0)))

    @cached_property
    def peak(self) -> FlopPerSecond:
        """FLOP/s in bf16, as specified."""
        return cast(FlopPerSecond, self.gpu.each(lambda one: one.peak("bf16")))

    @cached_property
    def fed(self) -> Number:
        """Share of their arithmetic rate kernels keep on this GPU, which they have to feed.

            1 / (1 + feeding x peak in bf16)

        Feeding tiles takes time of its own for every FLOP, so that the higher the peak the less of it is reached.
        """
        return 1 / (1 + self.speed.feeding * self.peak)

    @cached_property
    def bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which kernels stream activations and unquantised weights."""
        return self._bandwidth * self.speed.bandwidth / self.slower

    @cached_property
    def cache_bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which attention reads the cache."""
        return self._bandwidth * self.speed.cache_bandwidth / self.slower

    @cached_property
    def attention_rate(self) -> FlopPerSecond:
        """FLOP/s of attention kernels."""
        return self.peak * self.speed.attention_compute * self.fed / self.slower

    @cached_property
    def _bandwidth(self) -> BytesPerSecond:
        """Bytes/s of the memory, as specified."""
        return cast(BytesPerSecond, self.gpu.each(lambda one: one.bandwidth))

    def arithmetic(self, component: Component) -> Any:
        """What the products of a component really run in."""
        wanted = self.precision.weights[component].arithmetic
        return self.gpu.each(lambda one: one.arithmetic(wanted))

    def quantised(self, component: Component) -> Any:
        """Whether the inputs of a component's products are quantised too."""
        stored = self.precision.weights[component]
        return self.gpu.each(lambda one: quantised(stored, gpu=one))

    def product_rate(self, component: Component) -> FlopPerSecond:
        """FLOP/s a large matrix product with a component's weights reaches."""
        wanted = self.precision.weights[component].arithmetic
        share = self.speed.grouped if component == "routed_experts" else 1.0

        def reached(gpu: Gpu) -> float:
            run = gpu.arithmetic(wanted)
            return gpu.peaks[run] * self.speed.compute[run]

        return cast(FlopPerSecond, self.gpu.each(reached) * share * self.fed / self.slower)

    def weight_bandwidth(self, component: Component) -> BytesPerSecond:
        """Bytes/s at which a large matrix product reads a component's weights."""
        stored, grouped = self.precision.weights[component], component == "routed_experts"

        def share(gpu: Gpu) -> float:
            expands = not quantised(stored, gpu=gpu) and stored.bits < 15
            slowed = grouped and scaled_by_blocks(stored, gpu=gpu)
            return (self.speed.block_experts if slowed else 1.0) * (self.speed.expanded if expands else 1.0)

        return cast(BytesPerSecond, self.bandwidth * self.gpu.each(share))

    def product_start(self, component: Component) -> Seconds:
        """Seconds one matrix product with a component's weights takes besides its roofline."""
        stored, more = self.precision.weights[component], self.speed.quantise
        quantising = self.gpu.each(lambda one: more if quantised(stored, gpu=one) else 0.0)
        return cast(Seconds, self.speed.product + quantising)

    def block_time(self, component: Component) -> Seconds:
        """Seconds more one product takes where scaled by blocks, in a graph or not; grouped ones read more slowly."""
        if component == "routed_experts":
            return 0.0
        stored, more = self.precision.weights[component], self.speed.blocks
        return cast(Seconds, self.gpu.each(lambda one: more if scaled_by_blocks(stored, gpu=one) else 0.0))


def quantised(stored: Format, *, gpu: Gpu) -> bool:
    """Whether products with weights in a format quantise their inputs too on a GPU."""
    return gpu.arithmetic(stored.arithmetic) in ("fp8", "fp4", "int8")


def scaled_by_blocks(stored: Format, *, gpu: Gpu) -> bool:
    """Whether weights in a format and their inputs have one scale per block of 128 on a GPU."""
    return stored.block >= 128 and quantised(stored, gpu=gpu)


@dataclass(frozen=True)
class Roofline:
    """Seconds of an operation by what could bound it, at the rates really reached."""

    compute: Seconds = 0.0
    memory: Seconds = 0.0

    @cached_property
    def time(self) -> Seconds:
        """The longer one: arithmetic and memory traffic of one kernel overlap."""
        return np.maximum(self.compute, self.memory)


def over_layers(transformer: Transformer, seconds: Callable[[Block], Number]) -> Number:
    """A quantity of one layer, summed over all layers."""
    return cast(Number, sum(count * seconds(block) for count, block in transformer.kinds))
