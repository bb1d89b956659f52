"""Pages at their own addresses start from Streamlit's own HTML, and one line more."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request

from parplan.ui.front import INDEX, SERVER, routes


@pytest.mark.parametrize(
    ("base", "paths"),
    [("", ["/log", "/method"]), ("parplan", ["/parplan/log", "/parplan/method"])],
)
def test_every_page_has_an_address_below_that_of_the_app(base: str, paths: list[str]) -> None:
    assert [route.path for route in routes(["log", "method"], base=base)] == paths


def test_the_html_is_streamlits_and_says_where_the_server_is_before_anything_asks() -> None:
    (route,) = routes(["log"], base="")
    asked = route.endpoint(Request({"type": "http", "method": "GET", "headers": []}))
    with ThreadPoolExecutor() as pool:  # a browser test before may have left a loop running in this thread
        answer = pool.submit(asyncio.run, asked).result()
    html = bytes(answer.body).decode()
    script = f"<script>{SERVER}</script>"
    assert html.replace(script, "") == INDEX.read_text("utf-8")
    assert 0 < html.index(script) < html.index('type="module"')
    assert answer.headers["cache-control"] == "no-cache"
