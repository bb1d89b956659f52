"""Golden answers: `make golden` writes them anew, and prints what moved and by how much.

A difference is read, and CHANGELOG.md says why: its newest section names the digest of the answers it stands for, so
that they cannot change without a word there.
"""

import hashlib
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from parplan.export import answer_json
from parplan.links import from_query, parsed
from parplan.scenario import SCHEMA, Scenario, plan

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "golden"
LINKS: Mapping[str, str] = {
    "dense-on-one-node": "model=meta-llama/Llama-3.3-70B-Instruct&weights=fp8&gpu=h100-sxm&concurrency=64&budget=8",
    "dense-on-two-nodes": "model=meta-llama/Meta-Llama-3.1-405B&weights=bf16&gpu=h100-sxm&concurrency=32&budget=16",
    "latent-experts": "model=deepseek-ai/DeepSeek-V3.1&weights=native&gpu=b200-sxm&engine=sglang&concurrency=128"
                      "&budget=8",
    "fixed-layout": "model=deepseek-ai/DeepSeek-V3&weights=native&gpu=h200-sxm&concurrency=512&prompt=4096"
                    "&tensor=1&data=16&expert=16&pipeline=1&budget=16",
    "windows-and-targets": "model=openai/gpt-oss-120b&weights=native&gpu=h100-sxm&engine=trtllm"
                           "&concurrency=256&replicas=4&ttft=2000&tpot=50&budget=4",
    "hybrid-with-drafts": "model=Qwen/Qwen3-Next-80B-A3B-Instruct&weights=fp8&kv=fp8&gpu=h200-sxm&prompt=16384"
                          "&output=512&prefix=50&draft=3&budget=4",
    "requests-wait": "model=Qwen/Qwen3-8B&weights=bf16&gpu=l4&concurrency=64&prompt=8192&output=1024&budget=4",
    "long-prompts-on-amd": "model=Qwen/Qwen3-235B-A22B&weights=fp8&gpu=mi300x&concurrency=8&prompt=100000&output=2000"
                           "&budget=4",
    "by-size-and-ideal": "model=size&size=30&active=3&weights=int4-g128&gpu=a100-sxm-80&engine=ideal&rate=5"
                         "&peak=2&budget=4",
}  # fmt: skip
"""Links by the name of their file: each kind of attention, engine, vendor and layout at least once."""
SCHEMAS = FOLDER.parent / "link_schemas.json"
"""By version of the link format: the fields it has, and links that were passed on."""


def answer(link: str) -> dict[str, Any]:
    """The whole answer to a link."""
    scenario, messages = from_query(parsed(link))
    assert messages == [], messages
    found: dict[str, Any] = json.loads(json.dumps(answer_json(plan(scenario))))
    return found


def fields_of_links() -> dict[str, str]:
    """The keys of a link, and what each holds."""
    return {
        name: str(getattr(field.annotation, "__name__", "")) for name, field in Scenario.model_fields.items()
    }


def with_fields_of_today(released: Mapping[str, Any]) -> dict[str, Any]:
    """Released versions with what was added to the newest; nothing that is there may change or go.

    Raises:
        SystemExit: a field is gone, or holds something else: that needs a new version.
    """
    now, newest = fields_of_links(), released.get(str(SCHEMA), {"fields": {}, "links": []})
    if gone := [name for name, kind in newest["fields"].items() if now.get(name) != kind]:
        sys.exit(f"{', '.join(gone)} changed: raise SCHEMA, and add a step to links.MIGRATIONS")
    return {**released, str(SCHEMA): newest | {"fields": now}}


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def written(found: Mapping[str, Any]) -> str:
    """As it is kept: one figure a line, so that a difference reads well; ten digits, which all machines agree on."""
    return json.dumps(rounded(found), indent=1, ensure_ascii=False) + "\n"


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [rounded(inside) for inside in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def leaves(value: Any, *, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure and word of an answer, with the keys that lead to it; a plan's key is the name of its layout."""
    inside = (
        value.items() if isinstance(value, dict) else _numbered(value) if isinstance(value, list) else None
    )
    if inside is None:
        yield at, value
        return
    for key, found in inside:
        yield from leaves(found, at=f"{at}/{key}" if at else str(key))


def _numbered(values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """The parts of a list by the names of their layouts where each has its own, else by number."""
    layouts = [one.get("layout") for one in values if isinstance(one, dict)]
    names = [layout["name"] for layout in layouts if isinstance(layout, dict)]
    keys: Sequence[Any] = names if len(set(names)) == len(values) else range(len(values))
    return zip(keys, values, strict=True)


TOLERANCE = 1e-6
"""Relative difference that is none."""
ABSENT = "absent"


@dataclass(frozen=True)
class Move:
    """A figure or word that is no longer what it was."""

    at: str
    before: Any
    after: Any

    @property
    def what(self) -> str:
        """The figure's name, whichever layout's it is."""
        return re.sub(r"^plans/[^/]*/|^recommended/", "", self.at)

    @property
    def relative(self) -> float | None:
        """By what share of what it was. None: a word, or from or to nothing."""
        numbers = all(isinstance(one, int | float) and one for one in (self.before, self.after))
        return self.after / self.before - 1 if numbers else None

    def __str__(self) -> str:
        change = "" if self.relative is None else f" ({self.relative:+.2%})"
        return f"{self.at}: {self.before!r} -> {self.after!r}{change}"


def moves(before: Any, after: Any) -> list[Move]:
    """What differs between two answers."""
    was, is_now = dict(leaves(before)), dict(leaves(after))
    pairs = (Move(at, was.get(at, ABSENT), is_now.get(at, ABSENT)) for at in dict.fromkeys((*was, *is_now)))
    return [one for one in pairs if differ(one.before, one.after)]


def differ(before: Any, after: Any) -> bool:
    """Whether a figure is no longer what it was, or a word."""
    if isinstance(before, float) or isinstance(after, float):
        numbers = isinstance(before, int | float) and isinstance(after, int | float)
        return not (numbers and math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=1e-9))
    return bool(before != after)


def digest() -> str:
    """What the golden answers say, whatever the order of their keys, in twelve letters."""
    said = {file.stem: json.loads(file.read_text("utf-8")) for file in FOLDER.glob("*.json")}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def summary(found: Sequence[Move]) -> str:
    """What moved, by figure: how often, and by how much; words one by one.

    >>> print(summary([Move("plans/TP1/tpot_ms", 10.0, 11.0), Move("plans/TP2/tpot_ms", 10.0, 9.9)]))
    tpot_ms                                   2   median  +4.50%   largest +10.00% (plans/TP1/tpot_ms)
    """
    shares, others = defaultdict[str, list[Move]](list), list[str]()
    for one in found:
        if one.relative is None:
            others.append(str(one)[:300])
        else:
            shares[one.what].append(one)
    lines = []
    for what, every in sorted(shares.items()):
        most = max(every, key=lambda one: abs(one.relative or 0))
        middle = median(one.relative or 0 for one in every)
        lines.append(
            f"{what:<36}{len(every):>7}   median {middle:>+7.2%}   largest {most.relative:>+7.2%} ({most.at})"
        )
    return "\n".join((*lines, *others))


def main() -> None:
    """Write every golden answer, and the fields links have; take away what has no link any more."""
    for file in FOLDER.glob("*.json"):
        if file.stem not in LINKS:
            file.unlink()
    for name, link in LINKS.items():
        now, file = rounded(answer(link)), file_of(name)
        found = moves(json.loads(file.read_text("utf-8")) if file.exists() else {}, now)
        file.write_text(written(now), encoding="utf-8")
        print(f"{name}: {len(found):,} of {len(dict(leaves(now))):,} moved", summary(found), sep="\n")  # noqa: T201
    line = f"- Golden answers {digest()}: what moved, by how much, why."
    print(f"\nFor the newest section of CHANGELOG.md:\n{line}")  # noqa: T201
    released = with_fields_of_today(json.loads(SCHEMAS.read_text("utf-8")))
    SCHEMAS.write_text(json.dumps(released, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
