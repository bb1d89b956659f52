"""Compares the prices in catalogs/instances with a list that is collected from the providers daily.

    python -m scripts.prices            show what differs
    python -m scripts.prices --write    take it over

The list is gpuhunt's (https://github.com/dstackai/gpuhunt, MPL-2.0): read from the providers' own price interfaces, one
file per provider, each with the day it was collected, on demand and spot told apart, a machine's parts added up. Other
public lists print no day, or the parts alone. GPUHUNT_CATALOG_URL points it at a copy elsewhere.

Only prices that stand in the catalogue already are touched, and only where the list names the same machine with as
many GPUs in the same region. Where it names none or several prices, the old price and its day stay. Without a network
nothing is changed.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import difflib
import logging
import re
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import gpuhunt  # type: ignore[import-untyped]
import yaml

CATALOGS = Path(__file__).resolve().parent.parent / "catalogs"
LISTS = {"AWS": "aws", "Azure": "azure", "GCP": "gcp", "Lambda": "lambdalabs", "OCI": "oci"}
"""Providers whose machines go by the same names here and in the list, and what it calls them."""
EVERYWHERE = "all"
"""Region of a price that is the same in all of them."""
PATIENCE = 20
"""Seconds to wait for an answer."""
ENTRY = re.compile(r"^  - \{name: ", re.MULTILINE)
HEADING = "\n# --- lists of prices, one per provider and day (scripts/prices.py)\n"


@dataclass(frozen=True)
class Offer:
    """A machine of the list, on demand."""

    name: str
    gpus: int
    location: str
    price: float
    """USD per hour."""


@dataclass(frozen=True)
class Listed:
    """What the list says about one provider."""

    name: str
    """Of the provider, in the list."""
    version: str
    """The day it was collected, and a running number: 20261128-77."""
    offers: Sequence[Offer]

    @property
    def day(self) -> date:
        """When it was collected."""
        return datetime.strptime(self.version[:8], "%Y%m%d").date()

    @property
    def source(self) -> str:
        """Id of the list among the sources."""
        return f"gpuhunt-{self.name}-{self.version}"


@dataclass(frozen=True)
class Change:
    """A price as it stands, and as the list has it."""

    name: str
    was: float
    now: float


@dataclass(frozen=True)
class Refreshed:
    """An instances file with the prices of a list."""

    text: str
    changes: Sequence[Change]
    """Prices that moved; the others that were found are confirmed, with a new day."""
    confirmed: int
    kept: Sequence[str]
    """What was left alone, and why."""


def listed() -> dict[str, Listed]:
    """The list by provider; providers that did not answer are missing.

    Raises:
        gpuhunt.GPUHuntError: none answered.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # what is missing is said once, at the end
    found, before = gpuhunt.Catalog(auto_reload=False), socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        found.load()
    finally:
        socket.setdefaulttimeout(before)
    return {
        provider: Listed(
            name=name,
            version=found.catalog[name].version,
            offers=_on_demand(found.catalog[name].items),
        )
        for provider, name in LISTS.items()
        if name in found.catalog
    }


def _on_demand(items: Iterable[Any]) -> Sequence[Offer]:
    """Offers anybody can have at any time: neither spot nor by calendar."""
    return [
        Offer(item.instance_name, item.gpu_count, item.location, item.price)
        for item in items
        if item.price > 0 and not item.spot and not item.provider_data.get("is_dws_calendar_mode")
    ]


def in_region(location: str, region: str) -> bool:
    """Whether a location of the list lies in a region; zones carry their region's name and a letter.

    >>> in_region("us-central1-a", "us-central1"), in_region("us-central1", "all"), in_region("us-west1", "us-west2")
    (True, True, False)
    """
    return (
        region in (EVERYWHERE, location) or re.fullmatch(rf"{re.escape(region)}-[a-z]", location) is not None
    )


def price_of(row: Mapping[str, Any], *, offers: Iterable[Offer]) -> float | str:
    """The one price of a machine in its region, or why there is none, in words."""
    same = [offer for offer in offers if offer.name == row["name"]]
    sized = [offer for offer in same if offer.gpus == row["gpus"]]
    prices = sorted({offer.price for offer in sized if in_region(offer.location, row["region"])})
    if len(prices) == 1:
        return prices[0]
    if len(prices) > 1:
        return f"{len(prices)} prices, {prices[0]:g} to {prices[-1]:g} USD/h"
    if sized:
        return f"not listed on demand in {row['region']}"
    return f"listed with {same[0].gpus} GPUs, not {row['gpus']}" if same else "not listed on demand"


def refreshed(text: str, *, found: Listed) -> Refreshed:
    """An instances file with the prices, days and source of a list; everything else stays as it is written."""
    rows = yaml.safe_load(text)["instances"]
    starts = [match.start() for match in ENTRY.finditer(text)]
    if len(starts) != len(rows):
        raise ValueError("an entry does not begin with '  - {name: '")
    parts, changes, kept, confirmed = [text[: starts[0]]], [], [], 0
    for row, start, end in zip(rows, starts, [*starts[1:], len(text)], strict=True):
        price = price_of(row, offers=found.offers) if "price" in row else "no price in the catalogue"
        if isinstance(price, str):
            kept.append(f"{row['name']}: {price}")
            parts.append(text[start:end])
            continue
        was = float(row["price"].removesuffix(" USD/h"))
        if price != was:
            changes.append(Change(row["name"], was, price))
        confirmed += price == was
        parts.append(_rewritten(text[start:end], price=price, found=found))
    new = "".join(parts)
    _check(rows, yaml.safe_load(new)["instances"])
    return Refreshed(new, changes, confirmed, kept)


def _rewritten(entry: str, *, price: float, found: Listed) -> str:
    """One entry with a price, its day, and the list as its first source in place of an older one."""
    entry = re.sub(r"price: [\d.]+ USD/h", f"price: {price:.10g} USD/h", entry, count=1)
    entry = re.sub(r"priced: [\d-]+", f"priced: {found.day}", entry, count=1)
    entry = re.sub(r"gpuhunt-[\w-]+, ", "", entry)
    return entry.replace("sources: [", f"sources: [{found.source}, ", 1)


def _check(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> None:
    """Stops when anything but price, day and sources changed."""
    free = {"price", "priced", "sources"}
    fixed = [[{k: v for k, v in row.items() if k not in free} for row in rows] for rows in (before, after)]
    if fixed[0] != fixed[1] or any(row.keys() != old.keys() for row, old in zip(after, before, strict=True)):
        raise ValueError("the entries could not be rewritten safely")


def with_sources(text: str, *, lists: Iterable[Listed], read: date) -> str:
    """The sources file with the lists that it does not name yet, at its end."""
    known = yaml.safe_load(text)
    new = [
        f"{found.source}:\n"
        f"  text: gpuhunt catalogue v3, {found.name} {found.version}, read from the provider's own price interface\n"
        f"  read: {read}\n"
        "  url: https://github.com/dstackai/gpuhunt\n"
        for found in lists
        if found.source not in known
    ]
    heading = HEADING if new and HEADING not in text else ""
    return text + heading + "".join(new)


def difference(name: str, *, old: str, new: str) -> str:
    """What changes in a file, to review."""
    names = (f"a/{name}", f"b/{name}")
    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), *names, n=0, lineterm=""))


def _said(provider: str, result: Refreshed, found: Listed) -> None:
    """The outcome for one provider."""
    print(f"\n{provider}, list of {found.day}: {len(result.changes)} changed, {result.confirmed} confirmed.")
    for change in result.changes:
        print(f"  {change.name}: {change.was:g} -> {change.now:g} USD/h ({change.now / change.was - 1:+.1%})")
    for words in result.kept:
        print(f"  left alone: {words}")


def refresh(folder: Path, *, write: bool) -> int:
    """Show what the list would change in a catalogue, and take it over if told to; how many files changed."""
    lists, used, new = listed(), [], {}
    for path in sorted((folder / "instances").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        provider = yaml.safe_load(text)["provider"]
        if provider not in lists:
            why = "no answer" if provider in LISTS else "not in the list, or under other names"
            print(f"\n{provider}: {why}; left alone.")
            continue
        result = refreshed(text, found=lists[provider])
        _said(provider, result, lists[provider])
        if result.text != text:
            new[path] = result.text
            used.append(lists[provider])
    if new:
        path = folder / "sources.yaml"
        new[path] = with_sources(path.read_text(encoding="utf-8"), lists=used, read=date.today())
    for path, text in new.items():
        name = path.relative_to(folder).as_posix()
        print(f"\n{difference(name, old=path.read_text(encoding='utf-8'), new=text)}")
    if write:
        for path, text in new.items():
            path.write_text(text, encoding="utf-8")
    done = "written; run the tests" if write else "nothing was written; add --write to take it over"
    print(f"\n{len(new)} files differ: {done}." if new else "\nNothing differs.")
    return len(new)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="change the files, not only show the difference")
    parser.add_argument("--catalogs", type=Path, default=CATALOGS, help="folder of the catalogue")
    options = parser.parse_args(arguments)
    try:
        refresh(options.catalogs, write=options.write)
    except gpuhunt.GPUHuntError as error:
        print(f"No price list can be had ({error}). Nothing was changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
