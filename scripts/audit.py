"""What the page is built from: `make audit`.

Lists every package of requirements.lock with its licence, checks that what is installed is what is locked, and looks
for known vulnerabilities: with pip-audit, which asks a service, or with --advisories in a copy of
https://github.com/pypa/advisory-database, which that service serves. What could not be looked up is said, as is the
day of the newest advisory of an old copy; with --strict both fail.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK = Path(__file__).parents[1] / "requirements.lock"
COMPATIBLE = ("0BSD", "Apache", "BSD", "CC0", "ISC", "MIT", "Mozilla", "MPL", "PSF", "Zlib")
"""Licences that go with Apache-2.0 when a package is used unchanged."""
FRESH = 30
"""Days after which a copy of the advisories is no longer the last word."""


def locked(text: str) -> dict[str, str]:
    """Versions by package of a lock file.

    >>> locked("# made\\nstreamlit==1.67.0 \\\\\\n    --hash=sha256:00\\n")
    {'streamlit': '1.67.0'}
    """
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def licence(package: Distribution) -> str:
    """What a package says of its licence: an expression, else its classifiers, else the first line of free text."""
    about = package.metadata.json
    classified = [name for name in about.get("classifier", ()) if name.startswith("License ::")]
    shortened = " AND ".join(name.rpartition("::")[2].strip() for name in classified)
    free = str(about.get("license", "")).strip().partition("\n")[0]
    return str(about.get("license_expression") or shortened or free or "not stated")


def compatible(name: str) -> bool:
    """Whether each part of a licence goes with this project's own.

    >>> compatible("MIT AND PSF-2.0"), compatible("GPL-3.0-only"), compatible("Apache-2.0 OR GPL-2.0-only")
    (True, False, True)
    """
    return all(
        any(known in choice for choice in part.split(" OR ") for known in COMPATIBLE)
        for part in name.split(" AND ")
    )


def unfit(versions: Mapping[str, str]) -> list[str]:
    """Packages whose licence does not go with this project's, or that are not as locked; prints all."""
    found = []
    for name, version in versions.items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            found.append(f"{name} is locked and not installed")
            continue
        print(f"{name:<26}{package.version:<20}{licence(package)}")  # noqa: T201
        if package.version != version:
            found.append(f"{name} {package.version} is installed, {version} is locked")
        if not compatible(licence(package)):
            found.append(f"{name}: the licence {licence(package)!r} needs a look")
    return found


@dataclass(frozen=True)
class Lookup:
    """What is known of the locked packages."""

    holes: tuple[str, ...] = ()
    """Vulnerabilities, in words."""
    looked_up: int = 0
    """Packages."""
    doubt: str = ""
    """Why the others could not be looked up, or why this is not the last word."""


def asked(versions: Mapping[str, str]) -> Lookup:
    """As pip-audit's service answers."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip"]
    done = subprocess.run(
        [*command, "--format=json", "--progress-spinner=off"], capture_output=True, text=True
    )
    try:
        answers = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return Lookup(doubt=(done.stderr.strip().splitlines() or ["no answer"])[-1])
    known = [one for one in answers if "skip_reason" not in one]
    found = (f"{one['name']} {one['version']}: {hole['id']}" for one in known for hole in one["vulns"])
    doubt = "" if len(known) == len(versions) else "the advisory service does not answer for all"
    return Lookup(tuple(found), len(known), doubt)


def copied(folder: Path, versions: Mapping[str, str], *, today: date) -> Lookup:
    """As a copy of the advisories says.

    Args:
        folder: a clone of pypa/advisory-database, or its files: vulns/<package>/*.yaml in the OSV format.
        versions: by package.
        today: an older copy does not know the vulnerabilities found since.
    """
    texts = {file: file.read_text("utf-8") for file in sorted((folder / "vulns").glob("*/*.yaml"))}
    if not texts:
        return Lookup(doubt=f"no advisories in {folder / 'vulns'}")
    newest = max(
        chain.from_iterable(re.findall(r"^modified: \W?(\d{4}-\d\d-\d\d)", t, re.M) for t in texts.values())
    )
    age = (today - date.fromisoformat(newest)).days
    found = [
        f"{name} {version}: {advisory['id']}"
        for name, version in versions.items()
        for file, text in texts.items()
        if canonicalize_name(file.parent.name) == canonicalize_name(name)
        for advisory in [yaml.load(text, Loader=yaml.CSafeLoader)]
        if "withdrawn" not in advisory and any(affects(one, version) for one in advisory["affected"])
    ]
    doubt = f"the newest advisory is of {newest}, {age:,} days ago" if age > FRESH else ""
    return Lookup(tuple(found), len(versions), doubt)


def affects(affected: Mapping[str, Any], version: str) -> bool:
    """Whether a version is among those an advisory names or in one of its ranges (https://ossf.github.io/osv-schema/).

    >>> ranged = {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2"}]}]}
    >>> affects(ranged, "1.1"), affects(ranged, "1.2"), affects({"versions": ["1.2.0"]}, "1.2")
    (True, False, True)
    """
    named = any(Version(one) == Version(version) for one in affected.get("versions", ()) if parses(one))
    ranges = (one["events"] for one in affected.get("ranges", ()) if one["type"] == "ECOSYSTEM")
    return named or any(within(events, Version(version)) for events in ranges)


def parses(text: str) -> bool:
    """Whether a version is written as Python packages write them; very old ones are not."""
    try:
        Version(text)
    except ValueError:
        return False
    return True


def within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    """Whether a version lies in a range: the last event that is not beyond it decides.

    >>> twice = [{"introduced": "0"}, {"last_affected": "1.5"}, {"introduced": "2.0"}]
    >>> [within(twice, Version(text)) for text in ("1.5", "1.6", "2.0")]
    [True, False, True]
    """
    passed = []
    for event in events:
        ((kind, text),) = event.items()
        at = Version("0.dev0" if text == "0" else text)
        if at < version or (at == version and kind != "last_affected"):
            passed.append((at, kind == "introduced"))
    return max(passed, default=(version, False))[1]


def main(words: Sequence[str] | None = None) -> int:
    """Print what was found; 1 when something needs a look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail when a package could not be looked up")
    parser.add_argument("--advisories", type=Path, help="a copy of the advisories, rather than the service")
    options = parser.parse_args(words)
    versions = locked(LOCK.read_text("utf-8"))
    found = unfit(versions)
    known = (
        copied(options.advisories, versions, today=date.today()) if options.advisories else asked(versions)
    )
    say = sys.stdout.write
    say(f"\n{len(versions)} packages, {known.looked_up} looked up for known vulnerabilities: ")
    say(f"{len(known.holes)} found.\n")
    if known.looked_up < len(versions):
        say(f"NOT CHECKED for vulnerabilities: {len(versions) - known.looked_up} packages; {known.doubt}.\n")
    elif known.doubt:
        say(f"NOT THE LAST WORD: {known.doubt}.\n")
    say("\n".join([*found, *known.holes]) or "Licences and versions are as they should be.")
    say("\n")
    return 1 if found or known.holes or (options.strict and known.doubt) else 0


if __name__ == "__main__":
    sys.exit(main())
