"""The HTML the browser starts from, where a page is opened at its own address."""

from collections.abc import Iterable
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

INDEX = Path(st.__file__).parent / "static" / "index.html"
SERVER = 'window.__streamlit={BACKEND_BASE_URL:location.origin+location.pathname.replace(/[^/]+\\/?$/,"")}'
"""Says that the server is where the page's address ends; proxies may have put a path before it."""


def routes(pages: Iterable[str], *, base: str) -> list[Route]:
    """Streamlit's HTML for every page with an address of its own, told where the server is. Otherwise the browser asks
    below the page's address first, and reports two answers "not found".

    Args:
        pages: the last part of each page's address.
        base: path the whole app is served under, without slashes at its ends; empty where there is none.
    """
    told = INDEX.read_text("utf-8").replace("<head>", f"<head><script>{SERVER}</script>", 1)

    async def answer(_: Request) -> HTMLResponse:
        return HTMLResponse(told, headers={"Cache-Control": "no-cache"})

    return [Route("/" + "/".join(filter(None, (base, page))), answer) for page in pages]
