"""Results made of many arrays, changed or indexed whole, and points none of which beats another."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from parplan.units import Array

Values = TypeVar("Values")


def mapped(values: Values, change: Callable[[Array], Any]) -> Values:
    """A result with every array in it changed, nested ones too."""
    if isinstance(values, np.ndarray):
        return cast(Values, change(values))
    if isinstance(values, float | int):
        return cast(Values, change(np.asarray(values)))
    if isinstance(values, Mapping):
        return cast(Values, {name: mapped(part, change) for name, part in values.items()})
    if is_dataclass(values) and not isinstance(values, type):
        parts = {field.name: mapped(getattr(values, field.name), change) for field in fields(values)}
        return cast(Values, type(values)(**parts))
    return values


def picked(values: Values, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Values:
    """A result at one index: every array in it broadcast to `shape` and indexed."""
    return mapped(values, partial(_picked, shape=shape, index=index))


def _picked(values: Array, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """One array at an index; it is spread first only along axes of which the index takes more than one place."""
    missing = len(shape) - values.ndim
    axes = tuple(zip((0,) * missing + values.shape, shape, index, strict=False))
    if len(index) == len(shape) and all(size == full or isinstance(place, int) for size, full, place in axes):
        return values[tuple(place if size == full else 0 for size, full, place in axes[missing:])]
    return np.broadcast_to(values, shape)[index]


def unbeaten(x: Array, y: Array) -> Any:
    """Indices of the points that no other point beats on both x and y, from the largest x down.

    >>> unbeaten(np.array([3.0, 1.0, 2.0, 2.0]), np.array([1.0, 5.0, 4.0, 0.5])).tolist()
    [0, 2, 1]
    """
    order = np.lexsort((-y, -x))
    best_before = np.maximum.accumulate(np.append(-np.inf, y[order][:-1]))
    return order[y[order] > best_before]
