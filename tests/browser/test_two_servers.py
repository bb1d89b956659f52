"""Two servers behind the nginx of `deploy/`: any of them opens any link, and one may die."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page

from scripts.load import free_port, served
from tests.browser.visitor import Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        shutil.which("nginx") is None, reason="needs nginx, which `make test` installs on Debian"
    ),
]

DEPLOYED = Path(__file__).parents[2] / "deploy" / "nginx.conf"
AROUND = """
{user}
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    log_format upstream '$upstream_addr $request_uri';
    access_log {folder}/access.log upstream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""
"""What Debian's nginx.conf has around the file of a site, with nothing of it outside one folder."""


@dataclass
class Site:
    """Two servers and the proxy before them."""

    home: str
    servers: dict[str, int]
    """Processes by address."""
    log: Path

    def last_asked(self) -> str:
        """Address of the server that the page which came last talks to."""
        asked = re.findall(r"^(\S+) (?:\S+)?/_stcore/host-config", self.log.read_text("utf-8"), re.MULTILINE)
        return str(asked[-1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Servers that share a secret, and nginx as it is deployed, on free ports."""
    tmp_path = tmp_path_factory.mktemp("nginx")
    ports, port = (free_port(), free_port()), free_port()
    text = DEPLOYED.read_text("utf-8")
    for written, free in zip(("8501", "8502", "8080"), (*ports, port), strict=True):
        assert text.count(f"127.0.0.1:{written}") == 1
        text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{free}")
    file = tmp_path / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # its workers write into the folder too
    file.write_text(AROUND.format(user=user, folder=tmp_path, site=text), encoding="utf-8")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(served(one, STREAMLIT_SERVER_COOKIE_SECRET="shared")) for one in ports
        ]
        nginx = subprocess.Popen(["nginx", "-c", str(file), "-e", str(tmp_path / "error.log")])
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        home = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(home))
        servers = {f"127.0.0.1:{one}": process for one, process in zip(ports, processes, strict=True)}
        yield Site(home, servers, tmp_path / "access.log")


def answers(home: str) -> bool:
    try:
        with urlopen(f"{home}/_stcore/health", timeout=2) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


def wait_for(is_so: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def numbers(page: Page) -> list[str]:
    """The verdict and the four figures."""
    heading = page.get_by_test_id("stMain").get_by_role("heading", level=3).first
    return [heading.inner_text(), *page.get_by_test_id("stMetricValue").all_inner_texts()]


def slide(visitor: Visitor, *, steps: int) -> None:
    thumb = visitor.page.get_by_role("slider", name="Concurrent requests")
    thumb.focus()
    for _ in range(steps):
        thumb.press("ArrowRight")
    visitor.settle()


def test_a_link_made_on_one_server_opens_on_the_other_to_the_same_numbers(
    browser: Browser, site: Site
) -> None:
    first, *others = (Visitor(browser, home=f"http://{address}") for address in site.servers)
    page = first.open("?model=deepseek-ai/DeepSeek-V3.1&weights=native&gpu=h200-sxm&concurrency=61")
    page.get_by_role("button", name="Share").click()
    link = urlsplit(page.get_by_test_id("stCode").inner_text().strip())
    for other in (*others, Visitor(browser, home=site.home)):
        assert numbers(other.open(f"?{link.query}")) == numbers(page)
        other.assert_sound()
        other.close()
    first.assert_sound()
    first.close()


def test_the_page_and_its_downloads_come_through_the_proxy(browser: Browser, site: Site) -> None:
    """Nothing the page needs is refused by the headers nginx adds; files come from the server that made them."""
    for _ in range(4):
        visitor = Visitor(browser, home=site.home)
        page = visitor.open()
        page.get_by_role("tab", name="Curves").click()
        visitor.settle()
        assert page.locator(".js-plotly-plot").count() > 0
        page.get_by_role("button", name="Save").click()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Table of layouts, CSV").click()
        assert "TP2" in Path(saved.value.path()).read_text("utf-8")
        visitor.assert_sound()
        visitor.close()


def test_what_is_nobodys_business_stays_inside(site: Site) -> None:
    with urlopen(f"{site.home}/", timeout=5) as answer:
        headers = answer.headers
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Set-Cookie"].startswith("parplan_route=")
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{site.home}/_stcore/metrics", timeout=5)
    assert refused.value.code == 404
    refused.value.close()


def test_one_server_dies_and_its_visitors_go_on_at_the_other(browser: Browser, site: Site) -> None:
    """The last one: the dead stay dead."""
    visitor = Visitor(browser, home=site.home)
    page = visitor.open("?gpu=h200-sxm&concurrency=64&prompt=3000")
    slide(visitor, steps=4)
    before, address = numbers(page), page.url
    os.kill(site.servers[site.last_asked()], signal.SIGKILL)
    page.wait_for_function(
        "document.querySelector('[data-testid=stApp]').dataset.testConnectionState !== 'CONNECTED'"
    )
    visitor.settle(timeout=60_000)
    assert (numbers(page), page.url) == (before, address)
    slide(visitor, steps=2)
    fresh = Visitor(browser, home=site.home)
    assert numbers(fresh.open(page.url)) == numbers(page) != before
    assert visitor.outside == []
    assert page.get_by_test_id("stException").count() == 0
    fresh.close()
    visitor.close()
