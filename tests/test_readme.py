"""The README's examples: every command line it shows prints exactly what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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
