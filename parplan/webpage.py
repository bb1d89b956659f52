"""A report as one HTML file that asks nothing of any server, for those whose design documents are not Markdown."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

ADDRESS = re.compile(r"(?<!\\)<(https?://[^<>\s]+)>")
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; line-height: 1.3; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 0.4rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border-bottom: 1px solid #8886; padding: 0.25rem 0.9rem 0.25rem 0; text-align: left; vertical-align: top; }}
a {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def webpage(text: str) -> str:
    """Markdown as `report` writes it, as a page: headings, paragraphs, lists, tables, addresses; nothing else is
    understood, and what is not escaped in it is escaped here.

    >>> "<h2>Why</h2>" in webpage("# Two GPUs\\n\\n## Why\\n\\n- 1 < 2\\n")
    True
    """
    lines = text.splitlines()
    title = escape(_plain(lines[0].removeprefix("# "))) if lines else ""
    blocks = (list(block) for filled, block in groupby(lines, key=bool) if filled)
    return PAGE.format(title=title, body="\n".join(part for block in blocks for part in _block(block)))


def _block(lines: Sequence[str]) -> Iterator[str]:
    """Lines that stand together: a heading, a table, a list or a paragraph."""
    first = lines[0]
    if first.startswith("#"):
        level = len(first) - len(first.lstrip("#"))
        yield f"<h{level}>{_inline(first[level:].strip())}</h{level}>"
    elif first.startswith("|"):
        head, _, *rows = (_cells(line) for line in lines)
        yield f"<table>\n<thead>{_row(head, 'th')}</thead>\n<tbody>"
        yield from (_row(row, "td") for row in rows)
        yield "</tbody>\n</table>"
    elif first.startswith("- "):
        yield "<ul>"
        yield from (f"<li>{_inline(line.removeprefix('- '))}</li>" for line in lines)
        yield "</ul>"
    else:
        yield f"<p>{_inline(' '.join(lines))}</p>"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in BETWEEN_CELLS.split(line.strip().removeprefix("|").removesuffix("|"))]


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_inline(cell)}</{tag}>' for cell in cells)}</tr>"


def _inline(text: str) -> str:
    """A line with its addresses as links."""
    parts = ADDRESS.split(text)  # text, address, text, ...
    return "".join(
        f'<a href="{escape(part)}">{escape(part)}</a>' if number % 2 else escape(_plain(part))
        for number, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    return ESCAPED.sub(r"\1", text)
