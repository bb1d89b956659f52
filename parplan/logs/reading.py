"""The figures of a start-up log, each with the line it was read from."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from parplan.logs.quantities import DECIMALS, LABELS, QUANTITIES, EngineName, Quantity
from parplan.logs.tables import FAILURES, SETTING_LINES, SETTINGS, WANTED, WORDINGS
from parplan.logs.wording import Wording
from parplan.units import gib

LONGEST_LOG = 1 << 22
"""Characters of a log that are read; start-up is over long before."""
LONGEST_LINE = 1 << 16
"""Characters of a line that are read; SGLang prints its arguments on one of some 16,000."""
MOST_RANKS = 4096
SHOWN = 160
"""Characters of a line that are shown again."""


class LogError(ValueError):
    """The text is no start-up log that can be read; the message names the lines that were looked for."""


@dataclass(frozen=True)
class Line:
    """Where something was read."""

    number: int
    """Counted from one."""
    text: str
    """The line, or the part of a long one around what was read."""


@dataclass(frozen=True)
class Figure:
    """One quantity of a log: on the rank with least memory left, where several say it."""

    name: str
    """Its name in `QUANTITIES`."""
    value: float | str
    """Bytes, a count, a share between 0 and 1, a word; 1 or 0 for yes or no."""
    line: Line
    rank: str = ""
    """The rank or process that said it, as the log names it; empty where it names none."""
    derived: str = ""
    """How it follows from other figures, when no line states it."""

    @property
    def label(self) -> str:
        """The name people read."""
        return QUANTITIES[self.name].label

    @property
    def written(self) -> str:
        """The value with its unit."""
        kind = QUANTITIES[self.name].kind
        if isinstance(self.value, str):
            return self.value
        if kind == "bytes":
            return f"{gib(self.value):z,.2f} GiB"
        if kind == "flag":
            return "yes" if self.value else "no"
        return f"{self.value:z,.{DECIMALS[kind]}f}"


@dataclass(frozen=True)
class LogFigures:
    """What a start-up log says."""

    engine: EngineName
    found: Mapping[str, Figure]
    """By name, in the order of `QUANTITIES`."""
    failures: tuple[Line, ...]
    """Lines on which the engine gave up."""
    messages: tuple[str, ...]
    """What the log does not say, and the lines that were looked for."""

    def number(self, name: str) -> float | None:
        """The value of a figure that is a number; None: the log does not say."""
        figure = self.found.get(name)
        return figure.value if figure and not isinstance(figure.value, str) else None

    def word(self, name: str) -> str:
        """The value of a figure that is a word; empty: the log does not say."""
        figure = self.found.get(name)
        return figure.value if figure and isinstance(figure.value, str) else ""

    def count(self, name: str, *, default: int) -> int:
        """A whole number above zero, or the default where the log does not say."""
        return max(int(self.number(name) or default), 1)


ANSI = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]")
RANK = re.compile(
    r"\((?P<process>[A-Za-z]\w{0,60} (?:rank=\d{1,6} )?pid=\d{1,10}(?:, ip=[\w.:]{1,60})?)\)"
    r"|\[RANK (?P<number>\d{1,6})\]"
    r"|\[[\d :T.,/-]{8,40} (?P<parallel>(?:[DTEPC]P\d{1,5} ){0,5}[DTEPC]P\d{1,5})\]"
)
SHORTEST = min(len(mark) for mark in (*(one.mark for one in WORDINGS), *FAILURES))
"""Characters of the shortest line that can say anything."""
PREFIX = 200
"""Characters of a line within which its rank is named."""


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text, colours removed; too short ones are left out, too long ones and too long texts cut."""
    for number, line in enumerate(text[:LONGEST_LOG].split("\n"), start=1):
        if len(line) >= SHORTEST:
            line = line[:LONGEST_LINE]
            yield number, ANSI.sub("", line) if "\x1b" in line else line


def rank_of(line: str) -> str:
    """The rank or process a line comes from, as it names it.

    >>> rank_of("(Worker_TP1 pid=445) INFO 04-22 00:18:22"), rank_of("[2026-05-15 08:39:36 DP0 TP0] Load weight begin.")
    ('Worker_TP1 pid=445', 'DP0 TP0')
    """
    match = RANK.search(line[:PREFIX])
    return next(filter(None, match.groups()), "") if match else ""


def excerpt(line: str, *, start: int, end: int) -> str:
    """A line, or the part of a long one around what was read."""
    if len(line.strip()) <= SHOWN:
        return line.strip()
    first = max(0, start - max(0, SHOWN - (end - start)) // 2)
    last = min(first + SHOWN, len(line))
    return ("…" if first else "") + line[first:last].strip() + ("…" if last < len(line) else "")


def value_of(match: re.Match[str], name: str, *, unit: float) -> float | str:
    """What a line states for a quantity, in its base unit."""
    kind, text = QUANTITIES[name].kind, match[name]
    if kind == "word":
        return text.lstrip("'\"").removeprefix("torch.").rstrip(".,:")
    if kind == "flag":
        return float(text == "True")
    more = match.groupdict().get(f"{name}_more") or "0"
    return (float(text.replace(",", "")) + float(more.replace(",", ""))) * (unit if kind == "bytes" else 1)


def readings(text: str) -> Iterator[tuple[Wording, Figure]]:
    """Everything any wording reads in a text, line by line."""
    for number, line in lines_of(text):
        printing = {engine for engine, marks in SETTING_LINES.items() if any(mark in line for mark in marks)}
        known = WORDINGS + tuple(one for one in SETTINGS if one.engine in printing) if printing else WORDINGS
        for wording in known:
            if wording.mark in line and (match := wording.match(line)):
                shown = Line(number, excerpt(line, start=match.start(), end=match.end()))
                for name in wording.names:
                    value = value_of(match, name, unit=wording.unit)
                    if value not in ("None", "null", ""):
                        yield wording, Figure(name, value, shown, rank_of(line))


def worst(figures: Iterable[Figure], *, quantity: Quantity) -> Figure:
    """The figure of the rank with least memory left; of a setting, the last."""
    ranked = list(figures)
    match quantity.worst:
        case "largest":
            return max(ranked, key=lambda figure: float(figure.value))
        case "smallest":
            return min(ranked, key=lambda figure: float(figure.value))
        case "last":
            return max(ranked, key=lambda figure: figure.line.number)


def log_figures(text: str) -> LogFigures:
    """What a start-up log says of an engine's settings and memory.

    Of several engines in one text, the one that says most. Of several values one rank prints, the last counts; of
    several ranks, the one with least memory left.

    Raises:
        LogError: no line with a memory figure was found.
    """
    by_engine: dict[EngineName, dict[str, dict[str, Figure]]] = {engine: {} for engine in LABELS}
    for wording, figure in readings(text):
        ranks = by_engine[wording.engine].setdefault(figure.name, {})
        before = ranks.get(figure.rank)
        if before is None and len(ranks) >= MOST_RANKS:
            continue
        if before is None or wording.keep == "last" or float(figure.value) > float(before.value):
            ranks[figure.rank] = figure
    engine = max(by_engine, key=lambda name: len(by_engine[name]))
    said = by_engine[engine]
    found = {
        name: worst(said[name].values(), quantity=quantity)
        for name, quantity in QUANTITIES.items()
        if name in said
    }
    found = with_derived(found)
    if not _of_memory(found):
        raise LogError(_unreadable(text))
    others = [LABELS[name] for name, other in by_engine.items() if name != engine and _of_memory(other)]
    unread = [
        f"The text has figures of {name} too: those of {LABELS[engine]} alone were read." for name in others
    ]
    return LogFigures(
        engine=engine,
        found=found,
        failures=failure_lines(text),
        messages=(*unread, *_missing(engine, found, text=text)),
    )


def _of_memory(names: Iterable[str]) -> bool:
    """Whether anything among what was found is a figure of memory."""
    return any(QUANTITIES[name].kind == "bytes" or name == "kv_tokens" for name in names)


def with_derived(found: Mapping[str, Figure]) -> dict[str, Figure]:
    """Figures with those that follow from others: parts from a sum and the rest of it."""
    known = dict(found)

    def derive(name: str, *, first: str, second: str, sign: int) -> None:
        if first in found and second in known and (name not in known or sign > 0):
            value = float(found[first].value) + sign * float(known[second].value)
            how = f"{QUANTITIES[first].label} {'+' if sign > 0 else '−'} {QUANTITIES[second].label}"
            known[name] = replace(found[first], name=name, value=value, derived=how)

    derive("weights", first="free", second="free_after_weights", sign=-1)
    derive("non_torch", first="weights_and_non_torch", second="weights", sign=-1)
    derive("activations", first="weights_and_activations", second="weights", sign=-1)
    derive("context", first="total", second="free", sign=-1)
    derive("kv", first="free_after_weights", second="free_after_pool", sign=-1)
    derive("graphs", first="graphs", second="graphs_piecewise", sign=1)
    if "tensor" not in known and "world" in known and known["world"].value == 1:
        known["tensor"] = replace(known["world"], name="tensor", derived="one rank")
    if "snapshot" in known and "model" not in known:
        path = str(known.pop("snapshot").value).replace("--", "/", 1)
        known["model"] = replace(found["snapshot"], name="model", value=path, derived="path of its files")
    return {name: known[name] for name in QUANTITIES if name in known}


def failure_lines(text: str) -> tuple[Line, ...]:
    """The first line for each way an engine says that it does not come up."""
    found: dict[str, Line] = {}
    for number, line in lines_of(text):
        for mark in FAILURES:
            if mark not in found and mark in line:
                start = line.index(mark)
                found[mark] = Line(number, excerpt(line, start=start, end=start + len(mark)))
    return tuple(sorted(found.values(), key=lambda line: line.number))


def lines_looked_for(engine: EngineName, name: str) -> tuple[str, ...]:
    """The wordings in which an engine states a quantity."""
    return tuple(wording.shown for wording in WORDINGS if wording.engine == engine and name in wording.names)


def _unreadable(text: str) -> str:
    looked = "; ".join(
        f"{label}: "
        + ", ".join(f'"{line}"' for name in WANTED for line in lines_looked_for(engine, name)[:2])
        for engine, label in LABELS.items()
    )
    lines = text.count("\n") + bool(text.strip())
    return f"No memory figure of an engine's start-up log was found in {lines:,} lines. Looked for {looked}."


DEBUG_HINT = {"vllm": " Some versions print it at debug level only (VLLM_LOGGING_LEVEL=DEBUG)."}
SUMS = {
    "activations": ("weights_and_activations",),
    "non_torch": ("context_and_non_torch", "outside_torch", "weights_and_non_torch"),
    "graphs": ("outside_torch",),
    "kv_tokens": ("concurrency",),
}
"""What a log may state in place of a quantity."""


def _missing(engine: EngineName, found: Mapping[str, Figure], *, text: str) -> tuple[str, ...]:
    """What a readable log does not say, and the lines that were looked for."""
    said = []
    if len(text) > LONGEST_LOG:
        said.append(f"Only the first {LONGEST_LOG:,} characters were read.")
    for name in WANTED:
        if name in found or any(total in found for total in SUMS.get(name, ())):
            continue
        if name == "graphs" and found.get("eager") and found["eager"].value:
            continue
        label, looked = QUANTITIES[name].label, lines_looked_for(engine, name)
        if looked:
            wanted = ", ".join(f'"{line}"' for line in looked)
            said.append(f"No {label} in the log; looked for {wanted}.{DEBUG_HINT.get(engine, '')}")
        else:
            said.append(f"{LABELS[engine]} does not log {label}.")
    return tuple(said)
