"""The catalogue: facts on models, GPUs, formats, instances and engines, read once from `catalogs/`.

A broken file stops the program with the file, the entry, the field and the reason.
"""

import csv
import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from parplan.calibration import Engine
from parplan.formats import Format
from parplan.hardware import Gpu, Instance
from parplan.hub import ModelEntry, Summary
from parplan.provenance import Source

ROOT = Path(__file__).resolve().parent.parent / "catalogs"

Entry = TypeVar("Entry", bound=BaseModel)


class CatalogError(Exception):
    """A catalogue file does not say what it should."""


class UnknownNameError(LookupError):
    """A name the catalogue does not know, with the nearest ones it does."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Compose the message."""
        known = sorted(known)
        folded = {candidate.casefold(): candidate for candidate in known}
        close = [
            folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.4)
        ]
        close = close or [candidate for candidate in known if name.casefold() in candidate.casefold()][:3]
        self.kind, self.name, self.nearest = kind, name, tuple(close)
        hint = f"the nearest known: {', '.join(close)}" if close else f"known: {', '.join(known[:8])}, ..."
        super().__init__(f"unknown {kind} {name[:80]!r}; {hint}")


def named(kind: str, name: str, known: Mapping[str, Entry]) -> Entry:
    """The entry of a name.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def _document(path: Path) -> Any:
    try:
        return yaml.load(
            path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except (OSError, yaml.YAMLError) as error:
        raise CatalogError(f"{path.relative_to(ROOT.parent)}: {error}") from error


def _entry(model: type[Entry], fields: Mapping[str, Any], *, path: Path) -> Entry:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        name = fields.get("name", "?")
        raise CatalogError(f"{path.relative_to(ROOT.parent)}: {name}: {where}: {first['msg']}") from error


@cache
def sources() -> Mapping[str, Source]:
    """Every source the other files name by a short id."""
    path = ROOT / "sources.yaml"
    return {name: _entry(Source, fields, path=path) for name, fields in _document(path).items()}


def _cited(names: Any, *, path: Path) -> Any:
    """Sources where a file names them by id; a source written out in place stays as it is."""
    if isinstance(names, dict):
        return {field: _source(name, path=path) for field, name in names.items()}
    return tuple(_source(name, path=path) for name in names)


def _source(name: Any, *, path: Path) -> Any:
    if not isinstance(name, str):
        return name
    if name not in sources():
        raise CatalogError(f"{path.relative_to(ROOT.parent)}: unknown source {name!r}")
    return sources()[name]


def _by_name(model: type[Entry], path: Path) -> dict[str, Entry]:
    """A file that maps names to entries."""
    return {
        name: _entry(
            model, {"name": name} | fields | {"sources": _cited(fields["sources"], path=path)}, path=path
        )
        for name, fields in _document(path).items()
    }


@cache
def gpus() -> Mapping[str, Gpu]:
    """GPUs by name."""
    return _by_name(Gpu, ROOT / "gpus.yaml")


@cache
def formats() -> Mapping[str, Format]:
    """Number formats by name."""
    return _by_name(Format, ROOT / "formats.yaml")


def weight_formats() -> Mapping[str, Format]:
    """Formats weights can have, by name."""
    return {name: found for name, found in formats().items() if "weights" in found.kind}


def kv_formats() -> Mapping[str, Format]:
    """Formats a KV cache can have, by name."""
    return {name: found for name, found in formats().items() if "kv" in found.kind}


@cache
def instances() -> tuple[Instance, ...]:
    """Instances of all providers."""
    found = []
    for path in sorted((ROOT / "instances").glob("*.yaml")):
        document = _document(path)
        for row in document["instances"]:
            fields = {"provider": document["provider"]} | row | {"sources": _cited(row["sources"], path=path)}
            found.append(_entry(Instance, fields, path=path))
    return tuple(found)


@cache
def engines() -> Mapping[str, Engine]:
    """Inference engines by name; version families share a speed profile."""
    path = ROOT / "engines" / "memory.yaml"
    speeds = _document(ROOT / "engines" / "speed.yaml")
    return {
        name: _entry(
            Engine,
            {"name": name}
            | fields
            | _calibrated(speeds[fields["speed"]])
            | {"sources": _cited(fields["sources"], path=path)},
            path=path,
        )
        for name, fields in _document(path).items()
    }


def _calibrated(speed: Mapping[str, Any]) -> dict[str, Any]:
    """A speed profile and its errors, as fields of an engine."""
    errors = {name.replace(" ", "_"): found for name, found in speed.get("errors", {}).items()}
    return {"speed": speed["profile"], "errors": errors or None}


@cache
def measured_runs() -> frozenset[tuple[str, str, str]]:
    """Model, GPU and engine of every published speed measurement in the catalogue."""
    rows = csv.DictReader((ROOT / "measurements" / "speed.csv").read_text(encoding="utf-8").splitlines())
    return frozenset((row["model"], row["gpu"], row["engine"]) for row in rows)


@cache
def model_files() -> Mapping[str, Path]:
    """Files of the models in the catalogue by Hub-style id."""
    folder = ROOT / "models"
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.glob("*/*.yaml"))
    }


@cache
def model_aliases() -> Mapping[str, str]:
    """Names in the catalogue by the other names their models go by."""
    found: dict[str, str] = {}
    for name in model_files():
        for alias in _model_entry(name).aliases:
            taken = alias if alias in model_files() else found.setdefault(alias, name)
            if taken != name:
                raise CatalogError(f"{alias}, an alias of {name}, stands for {taken} already")
    return found


@cache
def model(name: str) -> ModelEntry:
    """The model of a Hub-style id, or of an alias; letters' case does not matter.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    wanted = name.casefold()
    for known in (dict.fromkeys(model_files()), model_aliases()):
        for candidate, stands_for in known.items():
            if candidate.casefold() == wanted:
                return _model_entry(stands_for or candidate)
    raise UnknownNameError("model", name, [*model_files(), *model_aliases()])


@cache
def _model_entry(name: str) -> ModelEntry:
    path = model_files()[name]
    return _entry(ModelEntry, _document(path), path=path)


@cache
def model_summaries() -> tuple[Summary, ...]:
    """All models by family, kind, attention, size, context length and published format."""
    return tuple(_model_entry(name).summary for name in model_files())
