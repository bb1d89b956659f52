"""Compares the prices in catalogs/instances with a list that is collected from the providers daily.

    python -m scripts.prices                  show what differs from the list on the network
    python -m scripts.prices --from PLACE     the same with a list on this machine
    python -m scripts.prices --write          take it over

Two lists are understood, each with the day it was collected, on demand and spot told apart, a machine's parts added up:

- gpuhunt's (https://github.com/dstackai/gpuhunt, MPL-2.0), a zipped CSV file per provider, read from the providers' own
  price interfaces. It is the one on the network; GPUHUNT_CATALOG_URL points it at a copy elsewhere, `--from` at a
  folder with a copy (`aws/version`, `aws/20261128-77/catalog.zip`, ...).
- The GPU Price Index's (https://github.com/ewyluda/gpu-price-index, MIT), a CSV file per day, read from the providers'
  price interfaces and public price pages. `--from` takes such a file, or a clone, of which the newest day counts.

SkyPilot's catalogue prints no day, and a GCP machine's price in parts.

Only prices that stand in the catalogue already are touched, and only where the list names the same machine with as
many GPUs in the same region. Where it names none or several prices, the old price and its day stay. A list older than
a price leaves it alone. Without a network nothing is changed.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import csv
import difflib
import logging
import os
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
GPUHUNT = {"AWS": "aws", "Azure": "azure", "GCP": "gcp", "Lambda": "lambdalabs", "OCI": "oci"}
"""Providers whose machines go by the same names here and in gpuhunt's list, and what it calls them."""
INDEX = {
    "AWS": "AWS", "Azure": "Microsoft Azure", "CoreWeave": "CoreWeave", "Crusoe": "Crusoe", "GCP": "Google Cloud",
    "Hyperstack": "Hyperstack", "Lambda": "Lambda", "Nebius": "Nebius", "OCI": "Oracle Cloud",
    "RunPod": "RunPod Secure Cloud",
}  # fmt: skip
"""Providers here, and what the GPU Price Index calls them."""
INDEX_GPUS = {
    "A100-40GB": "a100-sxm-40", "A100-80GB": "a100-sxm-80", "A100-80GB-PCIe": "a100-pcie-80", "B200": "b200-sxm",
    "B300": "b300-sxm", "H100": "h100-sxm", "H100-NVL": "h100-nvl", "H100-PCIe": "h100-pcie", "H200": "h200-sxm",
    "L40S": "l40s", "MI300X": "mi300x",
}  # fmt: skip
"""GPUs of the GPU Price Index, and their names here."""
PER_GPU = {"Crusoe", "Hyperstack", "Nebius", "OCI"}
"""Providers that publish one price per GPU, whatever the size of the machine."""
PART = " MIG "
"""Marks a part of a GPU in the GPU Price Index."""
GLOBAL = "global"
"""What the GPU Price Index calls a price that is the same everywhere."""
ROUNDED = 5e-5
"""USD by which a list's price may differ from the same price: the GPU Price Index prints four decimals."""
EVERYWHERE = "all"
"""Region of a price that is the same in all of them."""
PATIENCE = 20
"""Seconds to wait for an answer."""
SOURCES = re.compile(r"sources: \[([^]]*)\]")
OLDER_LISTS = ("gpuhunt-", "gpu-price-index-")
"""How lists among an entry's sources begin."""
ENTRY = re.compile(r"^  - \{name: ", re.MULTILINE)
HEADING = "\n# --- lists of prices, by day (scripts/prices.py)\n"


class ListError(ValueError):
    """There is no list, or what is there is none."""


@dataclass(frozen=True)
class Offer:
    """A machine of the list, on demand."""

    name: str
    gpus: int
    location: str
    price: float
    """USD per hour."""
    gpu: str = ""
    """Name of the GPU here, where the list tells which one it is and calls the machine otherwise."""
    each: bool = False
    """The price is that of one GPU of a machine, in every size it is sold in."""


@dataclass(frozen=True)
class Listed:
    """What a list says about one provider."""

    source: str
    """Id of the list among the sources."""
    day: date
    """When it was collected."""
    text: str
    """What it is."""
    url: str
    offers: Sequence[Offer]


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


def listed(place: Path | None) -> dict[str, Listed]:
    """The list by provider; providers that it does not name, or that did not answer, are missing.

    Args:
        place: where a list is on this machine. None: the network.

    Raises:
        ListError: there is no list.
    """
    if place is None:
        return gpuhunt_lists()
    days = [place] if place.is_file() else sorted(place.glob("data/observations/*/*.csv"))
    if days:
        return index_lists(days[-1])
    if not any(place.glob("*/version")):
        raise ListError(
            f"{place} is neither a day of the GPU Price Index, a clone of it, nor a copy of gpuhunt's list"
        )
    os.environ["GPUHUNT_CATALOG_URL"] = place.resolve().as_uri()
    return gpuhunt_lists()


def gpuhunt_lists() -> dict[str, Listed]:
    """gpuhunt's list.

    Raises:
        ListError: no provider answered.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # what is missing is said once, at the end
    found, before = gpuhunt.Catalog(auto_reload=False), socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        found.load()
    except gpuhunt.GPUHuntError as error:
        raise ListError(str(error)) from error
    finally:
        socket.setdefaulttimeout(before)
    return {
        provider: gpuhunt_list(name, version=found.catalog[name].version, items=found.catalog[name].items)
        for provider, name in GPUHUNT.items()
        if name in found.catalog
    }


def gpuhunt_list(name: str, *, version: str, items: Iterable[Any]) -> Listed:
    """One provider of gpuhunt's list: what anybody can have at any time, neither spot nor by calendar.

    Args:
        name: of the provider there.
        version: the day it was collected, and a running number: 20261128-77.
    """
    return Listed(
        source=f"gpuhunt-{name}-{version}",
        day=datetime.strptime(version[:8], "%Y%m%d").date(),
        text=f"gpuhunt catalogue v3, {name} {version}, read from the provider's own price interface",
        url="https://github.com/dstackai/gpuhunt",
        offers=[
            Offer(item.instance_name, item.gpu_count, item.location, item.price)
            for item in items
            if item.price > 0 and not item.spot and not item.provider_data.get("is_dws_calendar_mode")
        ],
    )


def index_lists(path: Path) -> dict[str, Listed]:
    """One day of the GPU Price Index.

    Raises:
        ListError: the file is none.
    """
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        day = max(date.fromisoformat(row["date"]) for row in rows)
        return {
            provider: Listed(
                source=f"gpu-price-index-{day:%Y%m%d}",
                day=day,
                text=f"GPU Price Index, day {day}, read from the providers' price interfaces and pages (code MIT)",
                url="https://github.com/ewyluda/gpu-price-index",
                offers=offers,
            )
            for provider, name in INDEX.items()
            if (offers := [_index_offer(row, provider=provider) for row in rows if _wanted(row, name=name)])
        }
    except (KeyError, ValueError) as error:
        raise ListError(f"{path} is no day of the GPU Price Index: {error}") from error


def _wanted(row: Mapping[str, str], *, name: str) -> bool:
    return row["provider"] == name and row["pricing"] == "on_demand"


def _index_offer(row: Mapping[str, str], *, provider: str) -> Offer:
    whole, everywhere = PART not in row["sku"], row["region"] == GLOBAL
    return Offer(
        row["sku"],
        int(row["gpu_count"]),
        EVERYWHERE if everywhere else row["region"],
        float(row["usd_per_hour"]),
        gpu=INDEX_GPUS.get(row["gpu_model"], "") if whole else "",
        each=provider in PER_GPU,
    )


def in_region(location: str, region: str) -> bool:
    """Whether a location of the list lies in a region; zones carry their region's name and a letter.

    >>> in_region("us-central1-a", "us-central1"), in_region("us-central1", "all"), in_region("us-west1", "us-west2")
    (True, True, False)
    """
    return (
        region in (EVERYWHERE, location) or re.fullmatch(rf"{re.escape(region)}-[a-z]", location) is not None
    )


def price_of(row: Mapping[str, Any], *, offers: Sequence[Offer]) -> float | str:
    """The one price of a machine in its region, or why there is none, in words.

    Where a list has no such name but knows the GPU, and prices are the same everywhere, GPU and size tell the machine.
    """
    same = [offer for offer in offers if offer.name == row["name"]] or [
        offer for offer in offers if row["region"] == EVERYWHERE == offer.location and offer.gpu == row["gpu"]
    ]
    sized = [offer for offer in same if offer.each or offer.gpus == row["gpus"]]
    prices = sorted(
        {
            offer.price * (row["gpus"] if offer.each else 1)
            for offer in sized
            if in_region(offer.location, row["region"])
        }
    )
    if len(prices) == 1:
        return prices[0]
    if len(prices) > 1:
        return f"{len(prices)} prices, {prices[0]:g} to {prices[-1]:g} USD/h"
    if sized:
        return f"not listed on demand in {row['region']}"
    sizes = ", ".join(str(size) for size in sorted({offer.gpus for offer in same}))
    return f"listed with {sizes} GPUs, not {row['gpus']}" if same else "not listed on demand"


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
        if row["priced"] > found.day:
            kept.append(f"{row['name']}: the price is newer, of {row['priced']}")
            parts.append(text[start:end])
            continue
        was = float(row["price"].removesuffix(" USD/h"))
        if abs(price - was) <= ROUNDED:
            price, confirmed = was, confirmed + 1
        else:
            changes.append(Change(row["name"], was, price))
        parts.append(_rewritten(text[start:end], price=price, found=found))
    new = "".join(parts)
    _check(rows, yaml.safe_load(new)["instances"])
    return Refreshed(new, changes, confirmed, kept)


def _rewritten(entry: str, *, price: float, found: Listed) -> str:
    """One entry with a price, its day, and the list as its first source in place of an older one."""
    entry = re.sub(r"price: [\d.]+ USD/h", f"price: {price:.10g} USD/h", entry, count=1)
    entry = re.sub(r"priced: [\d-]+", f"priced: {found.day}", entry, count=1)
    return SOURCES.sub(lambda match: f"sources: [{', '.join(_with_list(match[1], found))}]", entry, count=1)


def _with_list(sources: str, found: Listed) -> Sequence[str]:
    """An entry's sources with a list in place of an older one."""
    others = [source for source in sources.split(", ") if not source.startswith(OLDER_LISTS)]
    return [found.source, *others]


def _check(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> None:
    """Stops when anything but price, day and sources changed."""
    free = {"price", "priced", "sources"}
    fixed = [[{k: v for k, v in row.items() if k not in free} for row in rows] for rows in (before, after)]
    if fixed[0] != fixed[1] or any(row.keys() != old.keys() for row, old in zip(after, before, strict=True)):
        raise ValueError("the entries could not be rewritten safely")


def with_sources(text: str, *, lists: Iterable[Listed], read: date) -> str:
    """The sources file with the lists that it does not name yet, at its end."""
    known = yaml.safe_load(text)
    new = {
        found.source: f"{found.source}:\n  text: {found.text}\n  read: {read}\n  url: {found.url}\n"
        for found in lists
        if found.source not in known
    }
    heading = HEADING if new and HEADING not in text else ""
    return text + heading + "".join(new.values())


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


def refresh(folder: Path, *, lists: Mapping[str, Listed], write: bool) -> int:
    """Show what a list would change in a catalogue, and take it over if told to; how many files changed."""
    used, new = [], {}
    for path in sorted((folder / "instances").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        provider = yaml.safe_load(text)["provider"]
        if provider not in lists:
            print(f"\n{provider}: no answer, not in the list, or under other names; left alone.")
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
    parser.add_argument(
        "--from",
        type=Path,
        dest="place",
        help="a list on this machine: a copy of gpuhunt's, or the GPU Price Index",
    )
    options = parser.parse_args(arguments)
    try:
        refresh(options.catalogs, lists=listed(options.place), write=options.write)
    except ListError as error:
        print(f"No price list can be had ({error}). Nothing was changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
