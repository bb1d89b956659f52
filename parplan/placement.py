"""A precision and a layout on a type of GPU, at an engine's rates: what every time of a step depends on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from parplan.calibration import SpeedProfile
from parplan.formats import Arithmetic, Component, Precision
from parplan.hardware import Gpu
from parplan.layout import Layout
from parplan.transformer import Block, Transformer
from parplan.units import Array, BytesPerSecond, FlopPerSecond, Number, Seconds

ACTIVATION_BYTES = 2.0
"""Activations and messages between ranks are 16 bit in every engine modelled."""


@dataclass(frozen=True)
class Placement:
    """A precision and a layout on a type of GPU, at an engine's rates: what every formula here depends on."""

    precision: Precision
    layout: Layout
    gpu: Gpu
    speed: SpeedProfile

    @cached_property
    def tensor(self) -> Array:
        """Tensor-parallel width."""
        return np.asarray(self.layout.tensor, dtype=float)

    @cached_property
    def slower(self) -> float:
        """Factor on all kernel times on this GPU's architecture."""
        return self.speed.slower.get(self.gpu.architecture, 1.0)

    @cached_property
    def fed(self) -> float:
        """Share of their arithmetic rate kernels keep on this GPU, which they have to feed.

            1 / (1 + feeding x peak in bf16)

        Feeding tiles takes time of its own for every FLOP, so that the higher the peak the less of it is reached.
        """
        return 1 / (1 + self.speed.feeding * self.gpu.peak("bf16"))

    @cached_property
    def bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which kernels stream activations and unquantised weights."""
        return self.gpu.bandwidth * self.speed.bandwidth / self.slower

    @cached_property
    def cache_bandwidth(self) -> BytesPerSecond:
        """Bytes/s at which attention reads the cache."""
        return self.gpu.bandwidth * self.speed.cache_bandwidth / self.slower

    @cached_property
    def attention_rate(self) -> FlopPerSecond:
        """FLOP/s of attention kernels."""
        return self.gpu.peak("bf16") * self.speed.attention_compute * self.fed / self.slower

    def arithmetic(self, component: Component) -> Arithmetic:
        """What the products of a component really run in."""
        return self.gpu.arithmetic(self.precision.weights[component].arithmetic)

    def quantised(self, component: Component) -> bool:
        """Whether the inputs of a component's products are quantised too."""
        return self.arithmetic(component) in ("fp8", "fp4", "int8")

    def product_rate(self, component: Component) -> FlopPerSecond:
        """FLOP/s a large matrix product with a component's weights reaches."""
        run = self.arithmetic(component)
        share = self.speed.grouped if component == "routed_experts" else 1.0
        return self.gpu.peaks[run] * self.speed.compute[run] * share * self.fed / self.slower

    def weight_bandwidth(self, component: Component) -> BytesPerSecond:
        """Bytes/s at which a large matrix product reads a component's weights."""
        expands = not self.quantised(component) and self.precision.weights[component].bits < 15
        slowed = component == "routed_experts" and self.scaled_by_blocks(component)
        share = (self.speed.block_experts if slowed else 1.0) * (self.speed.expanded if expands else 1.0)
        return self.bandwidth * share

    def product_start(self, component: Component) -> Seconds:
        """Seconds one matrix product with a component's weights takes besides its roofline."""
        return self.speed.product + (self.speed.quantise if self.quantised(component) else 0.0)

    def scaled_by_blocks(self, component: Component) -> bool:
        """Whether a component's weights and inputs have one scale per block of 128."""
        return self.quantised(component) and self.precision.weights[component].block >= 128

    def block_time(self, component: Component) -> Seconds:
        """Seconds more one product takes where scaled by blocks, in a graph or not; grouped ones read more slowly."""
        grouped = component == "routed_experts"
        return self.speed.blocks if self.scaled_by_blocks(component) and not grouped else 0.0


@dataclass(frozen=True)
class Roofline:
    """Seconds of an operation by what could bound it, at the rates really reached."""

    compute: Seconds = 0.0
    memory: Seconds = 0.0

    @property
    def time(self) -> Seconds:
        """The longer one: arithmetic and memory traffic of one kernel overlap."""
        return np.maximum(self.compute, self.memory)


def kinds(transformer: Transformer) -> Iterator[tuple[int, Block]]:
    """Kinds of layer with the number of layers of each."""
    return zip(transformer.counts, transformer.blocks, strict=True)


def over_layers(transformer: Transformer, seconds: Callable[[Block], Number]) -> Number:
    """A quantity of one layer, summed over all layers."""
    return cast(Number, sum(count * seconds(block) for count, block in kinds(transformer)))
