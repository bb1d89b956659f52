"""The README's examples: every command line it shows prints exactly what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parplan import catalog
from parplan.validate import comparable, validation

ROOT = Path(__file__).parents[1]
COMMAND = "python -m parplan"


def console_examples(text: str) -> list[tuple[str, str]]:
    r"""Every `$ command` of the ```console blocks, with the lines shown under it.

    >>> console_examples("```console\n$ echo a \\\n    b\na b\n$ true\n```")
    [('echo a b', 'a b'), ('true', '')]
    """
    examples = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = re.sub(r"\\\n\s*", "", part).partition("\n")
            examples.append((command, shown.rstrip("\n")))
    return examples


def test_commands_print_what_the_readme_shows() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    examples = [example for example in console_examples(readme) if example[0].startswith(COMMAND)]
    assert examples, f"README.md shows no ```console block with `$ {COMMAND} ...`"
    for command, shown in examples:
        done = subprocess.run(
            [sys.executable, *shlex.split(command)[1:]],
            cwd=ROOT,
            env=os.environ | {"COLUMNS": "110", "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.rstrip("\n") == shown, command


ERRORS = {
    "weights per GPU, as logged at start-up": ("memory", "weights_gib_per_gpu"),
    "KV pool per GPU": ("memory", "kv_gib_per_gpu"),
    "KV tokens": ("memory", "kv_tokens"),
    "time per output token": ("speed", "tpot_ms"),
    "time to first token": ("speed", "ttft_ms"),
    "saturated, static and batch-1 throughput": ("throughput", "value"),
}
"""Rows of the table of errors, by file and column."""


def test_the_table_of_errors_is_what_validate_says() -> None:
    """To the last digit shown, give or take what rounding may do; what was left out of the fit is in speed.yaml."""
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \|$", readme, re.MULTILINE)
    said = {what: (int(rows), median, p90) for what, rows, median, p90 in shown}
    reports = {name: validation(catalog.ROOT / "measurements" / f"{name}.csv") for name, _ in ERRORS.values()}
    for what, (name, column) in ERRORS.items():
        errors = comparable(reports[name], column).errors(column)
        assert errors
        rows, *shares = said.pop(what)
        assert rows == errors.rows, what
        for share, error in zip(shares, (errors.median, errors.p90), strict=True):
            last = 10.0 ** -len(share.partition(".")[2])
            assert float(share) == pytest.approx(100 * error, abs=0.55 * last), what
    for what, (rows, median, _) in said.items():
        time = "tpot" if what.startswith("time per output token") else "ttft"
        kind = next(word for word in ("pair", "model", "GPU") if f"each {word}" in what).lower() + "s"
        found = [getattr(getattr(one.errors, time), kind) for one in FITTED if one.errors]
        assert rows == sum(one.rows for one in found)
        assert float(median) == pytest.approx(
            100 * sum(one.rows * one.median for one in found) / rows, rel=0.05
        )


FITTED = [catalog.engines()[name] for name in ("vllm", "sglang", "trtllm")]
