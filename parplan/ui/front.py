"""What the browser is given beside Streamlit's own files: its HTML at every page's address, and Plotly."""

import gzip
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

INDEX = Path(st.__file__).parent / "static" / "index.html"
LIBRARY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
PLOTLY = f"plotly-{plotly.__version__}.min.js"
"""Address of the library that draws figures. It names the version, so browsers may keep what it answers."""
SERVER = 'window.__streamlit={BACKEND_BASE_URL:location.origin+location.pathname.replace(/[^/]+\\/?$/,"")}'
"""Says that the server is where the page's address ends; proxies may have put a path before it."""


def routes(pages: Iterable[str], *, base: str) -> list[Route]:
    """Plotly, and Streamlit's HTML for every page with an address of its own, told where the server is. Otherwise the
    browser asks below the page's address first, and reports two answers "not found".

    Args:
        pages: the last part of each page's address.
        base: path the whole app is served under, without slashes at its ends; empty where there is none.
    """
    told = INDEX.read_text("utf-8").replace("<head>", f"<head><script>{SERVER}</script>", 1)

    async def answer(_: Request) -> HTMLResponse:
        return HTMLResponse(told, headers={"Cache-Control": "no-cache"})

    answers = {PLOTLY: library} | dict.fromkeys(pages, answer)
    return [Route("/" + "/".join(filter(None, (base, path))), answers[path]) for path in answers]


def library(request: Request) -> Response:
    """Plotly as the Python package brings it, a third of its size where the browser can unpack it."""
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(
            packed(), media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"}
        )
    return Response(LIBRARY.read_bytes(), media_type="text/javascript", headers=headers)


@cache
def packed() -> bytes:
    """The library, compressed once."""
    return gzip.compress(LIBRARY.read_bytes())
