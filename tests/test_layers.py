"""The layers of the package: a module imports only what stands before it in `parplan.LAYERS`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from parplan import LAYERS

PACKAGE = Path(__file__).parents[1] / "parplan"
FILES = sorted(PACKAGE.rglob("*.py"))
UI_LIBRARIES = {"streamlit", "plotly"}


def module_name(file: Path) -> str:
    """Dotted name of a file of the package: `parplan`, `parplan.memory`, `parplan.ui.charts`."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, *, package: str) -> Iterator[str]:
    """Dotted name of everything the source imports; `from a import b` gives `a.b`, module or not.

    >>> list(imported_names("from .units import Bytes", package="parplan"))
    ['parplan.units.Bytes']
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            ancestors = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*ancestors, *filter(None, [node.module])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def imports_of(file: Path) -> list[str]:
    package = module_name(file) if file.name == "__init__.py" else module_name(file).rpartition(".")[0]
    return list(imported_names(file.read_text("utf-8"), package=package))


def layers_reached(file: Path) -> set[str]:
    """Layers that the file's imports stand in.

    A name of the package itself (`from parplan import plan`) reaches all that `parplan/__init__.py` reaches.
    """
    reached: set[str] = set()
    for name in imports_of(file):
        match name.split("."):
            case ["parplan", layer, *_] if layer in LAYERS:
                reached.add(layer)
            case ["parplan", *_] if file != PACKAGE / "__init__.py":
                reached |= layers_reached(PACKAGE / "__init__.py")
    return reached


def test_every_module_has_one_layer_and_every_layer_is_there() -> None:
    there = {module_name(file).split(".")[1] for file in FILES if file != PACKAGE / "__init__.py"}
    assert sorted(LAYERS) == sorted(there)


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_a_module_imports_only_what_stands_before_it(file: Path) -> None:
    _, *inside = module_name(file).split(".")
    allowed = set(LAYERS[: LAYERS.index(inside[0])] if inside else LAYERS)
    if inside and (PACKAGE / inside[0]).is_dir():
        allowed.add(inside[0])  # the modules of one package know each other
    assert layers_reached(file) - allowed == set()


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_only_the_page_knows_streamlit_and_plotly(file: Path) -> None:
    if PACKAGE / "ui" not in file.parents:
        assert {name.split(".")[0] for name in imports_of(file)} & UI_LIBRARIES == set()


@pytest.mark.parametrize(
    ("source", "package", "names"),
    [
        ("import parplan.memory as m", "parplan", ["parplan.memory"]),
        ("from parplan import memory, plan", "parplan", ["parplan.memory", "parplan.plan"]),
        ("from . import memory", "parplan", ["parplan.memory"]),
        ("from .. import memory", "parplan.ui", ["parplan.memory"]),
        ("from ..memory import total", "parplan.ui", ["parplan.memory.total"]),
        ("def f():\n    import streamlit", "parplan", ["streamlit"]),
    ],
)
def test_every_way_to_import_is_seen(source: str, package: str, names: list[str]) -> None:
    assert list(imported_names(source, package=package)) == names
