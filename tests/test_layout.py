"""Layouts: their notation, and how layers are dealt to pipeline stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan.layout import Layout, stage_bounds


@pytest.mark.parametrize(
    ("layout", "name", "gpus", "expert_tensor"),
    [
        (Layout(), "TP1", 1, 1),
        (Layout(tensor=8), "TP8", 8, 8),
        (Layout(tensor=8, expert=8), "TP8 EP8", 8, 1),
        (Layout(data=8, expert=8), "DP8 EP8", 8, 1),
        (Layout(tensor=8, pipeline=2), "TP8 PP2", 16, 8),
        (Layout(tensor=2, data=4, expert=4), "TP2 DP4 EP4", 8, 2),
        (Layout(tensor=4, replicas=3), "3 × TP4", 4, 4),
    ],
)
def test_one_notation_for_every_cut(layout: Layout, name: str, gpus: int, expert_tensor: int) -> None:
    assert (str(layout), layout.gpus, layout.expert_tensor) == (name, gpus, expert_tensor)


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (61, 4, [15, 15, 16, 15]),
        (94, 4, [23, 24, 24, 23]),
        (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]),
        (80, 2, [40, 40]),
    ],
)
def test_stages_are_those_of_vllm(layers: int, stages: int, sizes: list[int]) -> None:
    """Known splits of vLLM's get_pp_indices: the remainder spares the first and the last stage."""
    assert np.diff(stage_bounds(layers, pipeline=stages)).tolist() == sizes


@given(st.integers(1, 200), st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_every_layer_is_on_one_stage_and_stages_differ_by_one(layers: int, pipelines: list[int]) -> None:
    pipeline = np.minimum(pipelines, layers)
    sizes = np.diff(stage_bounds(layers, pipeline=pipeline), axis=-1)
    assert (sizes.sum(axis=-1) == layers).all()
    for row, stages in zip(sizes, pipeline, strict=True):
        assert (row[stages:] == 0).all()
        assert row[:stages].max() - row[:stages].min() <= 1


def test_single_layouts_survive_stacking() -> None:
    single = [Layout(tensor=8, pipeline=2), Layout(data=4, expert=2)]
    stacked = Layout.stack(single)
    assert [stacked.one(index) for index in range(2)] == single
    assert stacked.gpus.tolist() == [16, 4]
    assert stacked.column().shape == (2, 1)
