"""Rewrites the outputs of README.md's shell examples: `make readme`. The suite checks that they are current."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
EXAMPLE = re.compile(r"(```console\n\$ python (-m parplan [^\n]*)\n).*?(```)", re.DOTALL)


def with_output(match: re.Match[str]) -> str:
    """One example with what its command prints now."""
    words = match[2].replace("'", "").split()
    run = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return match[1] + run.stdout + match[3]


def main() -> None:
    """Rewrite the file."""
    README.write_text(EXAMPLE.sub(with_output, README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
