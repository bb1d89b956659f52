"""The app served as `make run` serves it, and a real browser to look at it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.visitor import ARTIFACTS, Visitor

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
QUIET_BROWSER = [
    "--no-sandbox",  # as root, Chromium does not start with one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def healthy(home: str) -> bool:
    try:
        with urlopen(f"{home}/_stcore/health", timeout=1) as answer:
            return bool(answer.read() == b"ok")
    except (URLError, OSError):
        return False


def wait_until_healthy(home: str, *, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not healthy(home):
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"`make run` did not serve {home}:\n{log.read_text('utf-8')}")
        time.sleep(0.1)


@pytest.fixture(scope="package")
def home() -> Iterator[str]:
    """Address of the app, started by `make run` on a free port."""
    ARTIFACTS.mkdir(exist_ok=True)
    log = ARTIFACTS / "app.log"
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["make", "run", f"PORT={port}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until_healthy(f"http://localhost:{port}", server=server, log=log)
            yield f"http://localhost:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(timeout=10)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or Playwright's own where there is none."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET_BROWSER)
        yield chromium
        chromium.close()


@pytest.fixture
def new_visitor(browser: Browser, home: str) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors: `new_visitor(color_scheme="dark", viewport={"width": 390, "height": 844})`."""
    visitors: list[Visitor] = []

    def make(**look: Any) -> Visitor:
        visitors.append(Visitor(browser, home=home, **look))
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.close()


@pytest.fixture
def visitor(new_visitor: Callable[..., Visitor]) -> Visitor:
    """A visitor at a desk, in daylight."""
    return new_visitor()


@pytest.fixture
def page(visitor: Visitor) -> Page:
    """The page as a first visitor finds it, settled."""
    return visitor.open()
