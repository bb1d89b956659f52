"""How long a slider takes to redraw the page, against the least such an app can take: `make latency`.

Serves the page and an app of one slider and one text, moves sliders with the keyboard in headless Chromium, and takes
the time from the key to the picture after the last change of text or drawing. Prints median, 95th percentile and the
ratio of both to the least app, for the opening view and every other tab. On two cores the opening view is to stay below
200 ms (median) and 350 ms (95th percentile), the tab Hardware, which plans on every GPU, below 300 ms.

A table is drawn on a canvas, and the canvas holds a copy in words for screen readers, which the table writes a fifth of
a second later: what is painted counts, the copy does not.
"""

# ruff: noqa: T201

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote_plus
from urllib.request import urlopen

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
TABS = ("Layouts", "Curves", "What if", "Hardware", "Load", "Buy", "Why")
SLIDERS = ("Concurrent requests", "Prompt tokens", "Output tokens")
KEYS = ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowRight")
WARM_UP, MOVES = 6, 48
START_SECONDS = 60.0
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
LEAST = "one slider, one text"
LEAST_APP = """
import streamlit as st
st.text(f"{st.slider('Value', 0, 100, 50)} it is")
"""
"""The least such an app can be."""
WATCH = """() => {
    const drawn = ['d', 'x', 'y', 'width', 'height', 'transform', 'points'];
    const watch = {changes: 0, painted: 0, key: 0};
    window.watch = watch;
    const changed = () => {
        watch.changes += 1;
        requestAnimationFrame(() => requestAnimationFrame(() => { watch.painted = performance.now(); }));
    };
    addEventListener('keydown', () => Object.assign(watch, {key: performance.now(), changes: 0}), true);
    new MutationObserver(found => {
        if (found.some(one => !(one.target.parentElement ?? one.target).closest('canvas'))) changed();
    }).observe(document.querySelector('[data-testid=stMain]'),
        {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: drawn});
    const canvas = CanvasRenderingContext2D.prototype, write = canvas.fillText;
    canvas.fillText = function (...words) { changed(); return write.apply(this, words); };
}"""
"""Remembers when the last key was pressed and when the last change after it was painted, on a table's canvas too."""
QUIET = """ms => {
    const watch = window.watch, app = document.querySelector('[data-testid=stApp]');
    const since = performance.now() - Math.max(watch.painted, watch.key);
    return app.dataset.testScriptState === 'notRunning' && watch.changes > 0 && since > ms;
}"""


@dataclass(frozen=True)
class Times:
    """Milliseconds from key to picture."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half are faster."""
        return float(np.median(self.each))

    @property
    def slow(self) -> float:
        """One in twenty is slower."""
        return float(np.percentile(self.each, 95))


@contextmanager
def served(script: Path) -> Iterator[str]:
    """Address of an app, served with the project's settings."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port),
         "--server.address", "localhost"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(f"http://localhost:{port}/_stcore/health")
        yield f"http://localhost:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)


def _wait(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urlopen(address, timeout=1):
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(f"{address} does not answer")


def move_time(page: Page, slider: str, key: str, *, quiet: float = 300) -> float:
    """Milliseconds from one key press on a slider to the picture after the last change.

    Args:
        quiet: milliseconds without a change that mean it is over.
    """
    page.get_by_role("slider", name=slider).focus()
    page.keyboard.press(key)
    page.wait_for_function(QUIET, arg=quiet, polling=50, timeout=20_000)
    return float(page.evaluate("watch.painted - watch.key"))


def times(page: Page, address: str, sliders: tuple[str, ...], *, moves: int = MOVES) -> Times:
    """Moves of each slider in turn, there and back; the first ones are not counted."""
    page.goto(address)
    for slider in sliders:
        page.get_by_role("slider", name=slider).wait_for()
    page.wait_for_timeout(3000)
    page.evaluate(WATCH)
    turns = cycle((slider, key) for key in KEYS for slider in sliders)
    taken = [move_time(page, slider, key) for slider, key in islice(turns, WARM_UP + moves)]
    return Times(tuple(taken[WARM_UP:]))


def measured(floor: str, home: str, chromium: Browser) -> Iterator[tuple[str, Times]]:
    """What is measured, each in a window of its own: the least app first, then the tabs of the page."""
    rest = tuple((f"tab {tab}", f"{home}/?view={quote_plus(tab)}", SLIDERS, MOVES // 2) for tab in TABS)
    for name, address, sliders, moves in (
        (LEAST, floor, ("Value",), MOVES),
        ("opening view", home, SLIDERS, MOVES),
        *rest,
    ):
        window = chromium.new_context(viewport={"width": 1440, "height": 1000}, device_scale_factor=1)
        yield name, times(window.new_page(), address, sliders, moves=moves)
        window.close()


def lines(found: Iterable[tuple[str, Times]]) -> Iterator[str]:
    """One line for each, as soon as it is known; the first is what the others are held against."""
    yield f"{'key to picture':<22}{'median':>11}{'95th':>11}{'times the least':>17}{'moves':>7}"
    least = None
    for name, one in found:
        least = least or one
        times_least = f"{one.median / least.median:.1f}, {one.slow / least.slow:.1f}"
        yield f"{name:<22}{one.median:>8.0f} ms{one.slow:>8.0f} ms{times_least:>17}{len(one.each):>7}"


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        least = Path(folder) / "least.py"
        least.write_text(LEAST_APP, encoding="utf-8")
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        with served(least) as floor, served(ROOT / "app.py") as home:
            for line in lines(measured(floor, home, chromium)):
                print(line, flush=True)
        chromium.close()


if __name__ == "__main__":
    main()
