"""How long a slider takes to redraw the page, against the least such an app can take: `make latency`.

Serves the page and an app of one slider and one text, moves sliders with the keyboard in headless Chromium, and takes
the time from the key to the picture after the last change of text or drawing. Prints median, 95th percentile and the
ratio of both. On two cores the opening view is to stay below 200 ms (median) and 350 ms (95th percentile).
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
SLIDERS = ("Concurrent requests", "Prompt tokens", "Output tokens")
KEYS = ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowRight")
WARM_UP, MOVES = 6, 48
START_SECONDS = 60.0
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
FLOOR = """
import streamlit as st
st.text(f"{st.slider('Value', 0, 100, 50)} it is")
"""
"""The least app: one slider, one text."""
WATCH = """() => {
    const drawn = ['d', 'x', 'y', 'width', 'height', 'transform', 'points'];
    const watch = {changes: 0, charts: 0, painted: 0, key: 0};
    window.watch = watch;
    addEventListener('keydown', () => Object.assign(watch, {key: performance.now(), changes: 0, charts: 0}), true);
    new MutationObserver(found => {
        watch.changes += found.length;
        watch.charts += found.filter(one => one.target.closest?.('.js-plotly-plot')).length;
        requestAnimationFrame(() => requestAnimationFrame(() => { watch.painted = performance.now(); }));
    }).observe(document.querySelector('[data-testid=stMain]'),
        {subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: drawn});
}"""
"""Remembers when the last key was pressed and when the last change after it was painted."""
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


def times(page: Page, home: str, sliders: tuple[str, ...]) -> dict[str, Times]:
    """Moves of each slider in turn, there and back; the first ones are not counted."""
    page.goto(home)
    for slider in sliders:
        page.get_by_role("slider", name=slider).wait_for()
    page.wait_for_timeout(3000)
    page.evaluate(WATCH)
    moves = [(slider, key) for key in KEYS for slider in sliders]
    found: dict[str, list[float]] = {slider: [] for slider in sliders}
    for number, (slider, key) in enumerate(islice(cycle(moves), WARM_UP + MOVES)):
        took = move_time(page, slider, key)
        if number >= WARM_UP:
            found[slider].append(took)
    return {slider: Times(tuple(each)) for slider, each in found.items()}


def together(found: dict[str, Times]) -> Times:
    """All sliders."""
    return Times(tuple(took for one in found.values() for took in one.each))


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        least = Path(folder) / "floor.py"
        least.write_text(FLOOR, encoding="utf-8")
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        found: dict[str, dict[str, Times]] = {}
        for name, script, sliders in (("floor", least, ("Value",)), ("page", ROOT / "app.py", SLIDERS)):
            window = chromium.new_context(viewport={"width": 1440, "height": 1000}, device_scale_factor=1)
            with served(script) as home:
                found[name] = times(window.new_page(), home, sliders)
            window.close()
        chromium.close()
    floor, page = together(found["floor"]), together(found["page"])
    lines = [("one slider, one text", floor), *found["page"].items(), ("opening view, all sliders", page)]
    table = [f"{name:<28}{one.median:>8.0f} ms{one.slow:>8.0f} ms{len(one.each):>7}" for name, one in lines]
    heading = f"{'key to picture':<28}{'median':>11}{'95th':>11}{'moves':>7}"
    ratio = f"{page.median / floor.median:.1f} times the floor (median), {page.slow / floor.slow:.1f} (95th percentile)"
    sys.stdout.write("\n".join((heading, *table, ratio)) + "\n")


if __name__ == "__main__":
    main()
