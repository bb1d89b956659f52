"""The catalogue: facts on models, GPUs, formats, instances and engines, read once from `catalogs/`.

A broken file stops the program with the file, the line, the entry, the field and the reason. `PARPLAN_CATALOGS` names
another folder to read.
"""

import csv
import difflib
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from parplan.calibration import Cause, Engine, GroupError, SpeedErrors, SpeedProfile
from parplan.formats import Format
from parplan.hardware import Gpu, Instance
from parplan.hub import ConfigError, ModelEntry, Summary
from parplan.provenance import Source
from parplan.support import Limit, Support
from parplan.transformer import Transformer

ROOT = Path(os.environ.get("PARPLAN_CATALOGS") or Path(__file__).parent.parent / "catalogs").resolve()
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(LOADER):  # type: ignore[misc]
    """YAML in which no key is there twice: of two entries of a name, one would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """The mapping of a node."""
        known = set()
        for key, _ in node.value:
            if key.value in known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is there twice", key.start_mark
                )
            known.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


Entry = TypeVar("Entry", bound=BaseModel)
SHOWN = 80
"""Characters of an unknown name that are looked at and shown again."""
PRICED = {"price", "priced", "sources"}
"""What two offers of the same machine may differ in."""
Place: TypeAlias = tuple[str | int, ...]
"""Keys that lead to a value inside a file."""


class CatalogError(Exception):
    """A catalogue file does not say what it should."""

    def __init__(self, path: Path, place: Place, reason: str, *, line: int = 0) -> None:
        """Compose the message: file and line, entry and field, reason.

        Args:
            line: where it is known. 0: that of the place.
        """
        where = f"{'.'.join(map(str, place))}: " if place else ""
        super().__init__(f"{path.relative_to(ROOT.parent)}:{line or _line(path, place)}: {where}{reason}")


class UnknownNameError(LookupError):
    """A name the catalogue does not know, with the nearest ones it does."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Compose the message."""
        name, known = name[:SHOWN], sorted(known)
        folded = {candidate.casefold(): candidate for candidate in known}
        close = [
            folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.4)
        ]
        close = close or [candidate for candidate in known if name.casefold() in candidate.casefold()][:3]
        self.kind, self.name, self.nearest = kind, name, tuple(close)
        hint = f"the nearest known: {', '.join(close)}" if close else f"known: {', '.join(known[:8])}, ..."
        super().__init__(f"unknown {kind} {name!r}; {hint}")


def named(kind: str, name: str, known: Mapping[str, Entry]) -> Entry:
    """The entry of a name.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def _line(path: Path, place: Place) -> int:
    """Line of a value, or of the innermost thing around it that is there."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, ValueError, yaml.YAMLError):
        return 1
    line = 1
    for key in place:
        inside = _children(node).get(str(key))
        if inside is None:
            break
        start, node = inside
        line = start.start_mark.line + 1
    return line


def _children(node: Any) -> dict[str, tuple[Any, Any]]:
    """What is inside a YAML node, by key or number: where it starts, and itself."""
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): (key, value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return {str(number): (item, item) for number, item in enumerate(node.value)}
    return {}


def _document(path: Path) -> dict[str, Any]:
    """What a file says."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    except OSError as error:
        raise CatalogError(path, (), error.strerror or str(error)) from error
    except (ValueError, yaml.YAMLError) as error:
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        mark = getattr(error, "problem_mark", None)
        raise CatalogError(path, (), f"no YAML: {reason}", line=mark.line + 1 if mark else 0) from error
    return _part(found, path=path)


def _part(value: Any, *, path: Path, place: Place = ()) -> dict[str, Any]:
    """A value that must have fields of its own."""
    if not isinstance(value, dict):
        found = "nothing" if value is None else repr(value)[:60]
        raise CatalogError(path, place, f"fields were expected, {found} was found")
    return value


def _entry(model: type[Entry], fields: Any, *, path: Path, place: Place = ()) -> Entry:
    """An entry that says what its schema asks for."""
    try:
        return model.model_validate(_part(fields, path=path, place=place))
    except ValidationError as error:
        first = error.errors()[0]
        raise CatalogError(path, (*place, *first["loc"]), first["msg"]) from error


@cache
def sources() -> Mapping[str, Source]:
    """Every source the other files name by a short id."""
    path = ROOT / "sources.yaml"
    return {
        name: _entry(Source, fields, path=path, place=(name,)) for name, fields in _document(path).items()
    }


def _with_sources(fields: Any, *, path: Path, place: Place) -> dict[str, Any]:
    """An entry's fields, with sources in the place of the ids it names."""
    found = _part(fields, path=path, place=place)
    named = found.get("sources")
    at = (*place, "sources")
    if isinstance(named, dict):
        return found | {
            "sources": {field: _source(name, path=path, place=(*at, field)) for field, name in named.items()}
        }
    if isinstance(named, list):
        return found | {
            "sources": tuple(_source(name, path=path, place=(*at, n)) for n, name in enumerate(named))
        }
    return found


def _with_traits(fields: dict[str, Any], *, path: Path, place: Place) -> dict[str, Any]:
    """An entry's fields, with sources in the place of the ids it names by trait."""
    if "sources_where" not in fields:
        return fields
    at = (*place, "sources_where")
    listed = _part(fields["sources_where"], path=path, place=at)
    return fields | {
        "sources_where": {
            trait: tuple(_source(one, path=path, place=(*at, trait, n)) for n, one in enumerate(names))
            if isinstance(names, list)
            else names
            for trait, names in listed.items()
        }
    }


def _source(name: Any, *, path: Path, place: Place) -> Any:
    """The source of an id; one written out in place stays as it is."""
    if not isinstance(name, str):
        return name
    if name not in sources():
        raise CatalogError(path, place, f"unknown source {name!r}")
    return sources()[name]


def _by_name(model: type[Entry], path: Path) -> dict[str, Entry]:
    """A file that maps names to entries."""
    return {
        name: _entry(
            model,
            {"name": name} | _with_sources(fields, path=path, place=(name,)),
            path=path,
            place=(name,),
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
    found: dict[str, Instance] = {}
    for path in sorted((ROOT / "instances").glob("*.yaml")):
        document = _document(path)
        provider = {"provider": document.get("provider")}
        rows = document.get("instances")
        if not isinstance(rows, list):
            raise CatalogError(path, ("instances",), "a list was expected")
        for number, row in enumerate(rows):
            place = ("instances", number)
            fields = provider | _with_sources(row, path=path, place=place)
            one = _entry(Instance, fields, path=path, place=place)
            if found.setdefault(one.model_dump_json(exclude=PRICED), one) is not one:
                raise CatalogError(path, place, f"{one.name} is there twice")
    return tuple(found.values())


@cache
def unsized() -> Mapping[str, tuple[str, ...]]:
    """GPUs that a provider sells by the GPU in machines whose sizes were not found, by provider: none is listed."""
    documents = [_document(path) for path in sorted((ROOT / "instances").glob("*.yaml"))]
    return {str(found["provider"]): tuple(found["unsized"]) for found in documents if "unsized" in found}


@cache
def engines() -> Mapping[str, Engine]:
    """Inference engines by name; version families share a speed profile."""
    path, speeds = ROOT / "engines" / "memory.yaml", ROOT / "engines" / "speed.yaml"
    limits = _limits()
    calibrated = {
        name: _calibrated(found, path=speeds, name=name) for name, found in _document(speeds).items()
    }
    found = {}
    for name, fields in _document(path).items():
        sourced = _with_traits(_with_sources(fields, path=path, place=(name,)), path=path, place=(name,))
        speed = sourced.get("speed")
        if speed not in calibrated:
            raise CatalogError(path, (name, "speed"), f"{speed!r} is not in {speeds.name}")
        support = Support(known=tuple(formats().values()), limits=limits.get(name, ()))
        whole = {"name": name, "support": support} | sourced | calibrated[speed]
        found[name] = _entry(Engine, whole, path=path, place=(name,))
    return found


def _limits() -> dict[str, tuple[Limit, ...]]:
    """Where engines run number formats, by name of the engine."""
    path = ROOT / "engines" / "formats.yaml"
    found: dict[str, tuple[Limit, ...]] = {}
    for name, rows in _document(path).items():
        if not isinstance(rows, list):
            raise CatalogError(path, (name,), "a list was expected")
        places = [((name, number), row) for number, row in enumerate(rows)]
        found[name] = tuple(
            _entry(Limit, _with_sources(row, path=path, place=place), path=path, place=place)
            for place, row in places
        )
        for (place, _), limit in zip(places, found[name], strict=True):
            known = {one for one, has in formats().items() if limit.of in has.kind}
            if strange := {*limit.formats} - known | {*limit.beside} - weight_formats().keys():
                raise CatalogError(path, place, f"no format {min(strange)!r} for {limit.of}")
    return found


def _calibrated(found: Any, *, path: Path, name: str) -> dict[str, Any]:
    """A speed profile and its errors, as fields of an engine."""
    speed = _part(found, path=path, place=(name,))
    profile = _entry(SpeedProfile, speed.get("profile"), path=path, place=(name, "profile"))
    if "errors" not in speed:
        return {"speed": profile}
    errors = _entry(SpeedErrors, speed["errors"], path=path, place=(name, "errors"))
    return {"speed": profile, "errors": errors}


def _table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, every one as long as its head."""
    try:
        head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True)
    except OSError as error:
        raise CatalogError(path, (), error.strerror or str(error)) from error
    except (ValueError, csv.Error) as error:
        raise CatalogError(path, (), f"not a table: {error}") from error
    if len(head) < 2 or not rows:
        raise CatalogError(path, (), "not a table: a head and rows were expected")
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise CatalogError(path, (f"row {number}",), f"{len(row)} cells where the head has {len(head)}")
    return [dict(zip(head, row, strict=True)) for row in rows]


@cache
def group_errors() -> tuple[GroupError, ...]:
    """How far predictions are off for the published speed measurements, by what was measured."""
    path = ROOT / "engines" / "errors.csv"
    return tuple(
        _entry(GroupError, row, path=path, place=(f"row {number}",))
        for number, row in enumerate(_table(path), 1)
    )


@cache
def causes() -> tuple[Cause, ...]:
    """Why predictions of some of the catalogue's measurements are off."""
    path = ROOT / "measurements" / "causes.yaml"
    found = _document(path).get("causes")
    if not isinstance(found, list):
        raise CatalogError(path, ("causes",), "a list was expected")
    return tuple(_entry(Cause, one, path=path, place=("causes", number)) for number, one in enumerate(found))


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
                reason = f"{alias!r} stands for {taken} already"
                raise CatalogError(model_files()[name], ("aliases",), reason)
    return found


@cache
def model(name: str) -> ModelEntry:
    """The model of a Hub-style id, or of an alias; letters' case does not matter.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    return _model_entry(_model_named(name)[1])


@cache
def transformer(name: str) -> Transformer:
    """The architecture of a Hub-style id, or of an alias, under that very name: an alias is a checkpoint of its own.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    known_as, file = _model_named(name)
    found = _model_entry(file).transformer
    return found if known_as == file else found.model_copy(update={"name": known_as})


def _model_named(name: str) -> tuple[str, str]:
    """A name as the catalogue writes it, and the name of its file; letters' case does not matter.

    Raises:
        UnknownNameError: with the nearest known names.
    """
    wanted = name.casefold()
    for known in (dict.fromkeys(model_files()), model_aliases()):
        for candidate, stands_for in known.items():
            if candidate.casefold() == wanted:
                return candidate, stands_for or candidate
    raise UnknownNameError("model", name, [*model_files(), *model_aliases()])


@cache
def _model_entry(name: str) -> ModelEntry:
    path = model_files()[name]
    return _entry(ModelEntry, _document(path), path=path)


@cache
def model_summaries() -> tuple[Summary, ...]:
    """All models by family, kind, attention, size, context length and published format."""
    return tuple(_model_entry(name).summary for name in model_files())


def check() -> None:
    """Read every file, so that a broken one is found when the program starts and not by its first visitor.

    Raises:
        CatalogError: with file, line, entry, field and reason.
    """
    for read in (formats, gpus, instances, engines, model_aliases, causes):
        read()
    for path in sorted((ROOT / "measurements").glob("*.csv")):
        _table(path)
    group_errors()
    for one in instances():
        if one.gpu not in gpus():
            path = ROOT / "gpus.yaml"
            raise CatalogError(path, (), f"no {one.gpu!r}, which {one.provider} {one.name} has")
    for name, path in model_files().items():
        try:
            _ = _model_entry(name).transformer
        except ConfigError as error:
            raise CatalogError(path, ("config",), str(error)) from error
