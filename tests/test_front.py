"""Pages at their own addresses start from Streamlit's own HTML, and one line more."""

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request

from parplan.ui.front import INDEX, LIBRARY, PLOTLY, SERVER, library, routes


@pytest.mark.parametrize(
    ("base", "paths"),
    [("", ["/log", "/method"]), ("parplan", ["/parplan/log", "/parplan/method"])],
)
def test_every_page_has_an_address_below_that_of_the_app(base: str, paths: list[str]) -> None:
    _, *pages = routes(["log", "method"], base=base)
    assert [route.path for route in pages] == paths


def test_the_html_is_streamlits_and_says_where_the_server_is_before_anything_asks() -> None:
    _, route = routes(["log"], base="")
    asked = route.endpoint(Request({"type": "http", "method": "GET", "headers": []}))
    with ThreadPoolExecutor() as pool:  # a browser test before may have left a loop running in this thread
        answer = pool.submit(asyncio.run, asked).result()
    html = bytes(answer.body).decode()
    script = f"<script>{SERVER}</script>"
    assert html.replace(script, "") == INDEX.read_text("utf-8")
    assert 0 < html.index(script) < html.index('type="module"')
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(("base", "path"), [("", f"/{PLOTLY}"), ("parplan", f"/parplan/{PLOTLY}")])
def test_plotly_lies_beside_the_pages_and_is_kept(base: str, path: str) -> None:
    route = routes([], base=base)[0]
    assert route.path == path
    for accepted, unpack in (("gzip, br", gzip.decompress), ("", bytes)):
        headers = [(b"accept-encoding", accepted.encode())]
        answer = library(Request({"type": "http", "method": "GET", "headers": headers}))
        assert unpack(answer.body) == LIBRARY.read_bytes()
        assert answer.media_type == "text/javascript"
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers.get("content-encoding") == ("gzip" if accepted else None)
