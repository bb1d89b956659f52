"""What the page is built from: `make audit`.

Lists every package of requirements.lock with its licence, checks that what is installed is what is locked, and asks
pip-audit for known vulnerabilities. Where the advisory service cannot be asked, that is said, and fails with --strict.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
COMPATIBLE = ("0BSD", "Apache", "BSD", "CC0", "ISC", "MIT", "Mozilla", "MPL", "PSF", "Zlib")
"""Licences that go with Apache-2.0 when a package is used unchanged."""


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


def vulnerabilities() -> tuple[list[str], int, str]:
    """Known vulnerabilities, how many packages were looked up, and what pip-audit said where it failed."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip"]
    done = subprocess.run(
        [*command, "--format=json", "--progress-spinner=off"], capture_output=True, text=True
    )
    try:
        asked = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return [], 0, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    known = [one for one in asked if "skip_reason" not in one]
    found = [f"{one['name']} {one['version']}: {hole['id']}" for one in known for hole in one["vulns"]]
    return found, len(known), ""


def main(words: Sequence[str] | None = None) -> int:
    """Print what was found; 1 when something needs a look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail when a package could not be looked up")
    strict = parser.parse_args(words).strict
    versions = locked(LOCK.read_text("utf-8"))
    found = unfit(versions)
    holes, looked_up, failure = vulnerabilities()
    missed = len(versions) - looked_up
    print(f"\n{len(versions)} packages, {looked_up} looked up for known vulnerabilities: {len(holes)} found.")  # noqa: T201
    if missed:
        reason = failure or "the advisory service does not answer for them"
        print(f"NOT CHECKED for vulnerabilities: {missed} packages; {reason}.")  # noqa: T201
    print("\n".join([*found, *holes]) or "Licences and versions are as they should be.")  # noqa: T201
    return 1 if found or holes or (strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
