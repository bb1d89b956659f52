"""A visitor: one fresh browser that looks at the page and keeps what went wrong there."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Route, WebSocket
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"

OUTSIDE = re.compile(r"^(https?|wss?)://(?!(localhost|127\.0\.0\.1)[:/])")
"""Any address that is not on this machine."""

RESTLESS = """() => {
    const found = (what, selector) =>
        [...document.querySelectorAll(selector)].map(one => `${what}: ${one.outerHTML.slice(0, 200)}`);
    const app = document.querySelector('[data-testid=stApp]')?.dataset ?? {};
    return [
        ...(app.testScriptState === 'notRunning' ? [] : [`script: ${app.testScriptState}`]),
        ...(app.testConnectionState === 'CONNECTED' ? [] : [`connection: ${app.testConnectionState}`]),
        ...found('stale', '[data-stale=true]'),
        ...found('skeleton', '[data-testid=stSkeleton]'),
        ...found('not drawn', '[data-testid=stBidiComponentRegular]:not(:has(.js-plotly-plot))'),
    ];
}"""
"""What keeps the page from being at rest, in words; nothing once it is."""

SETTLED = f"""([quiet, state]) => {{
    const settled = !({RESTLESS})().length, now = performance.now();
    if (!settled || window.settledIn !== state) {{
        window.settledSince = now;
        window.settledIn = state;
    }}
    return settled && now - window.settledSince >= quiet;
}}"""


class Visitor:
    """A browser with no memory of earlier visits.

    What it asks of other machines is refused and kept in `outside`, what the console reports in `errors`.

    Args:
        browser: the running browser to open the window in.
        home: address of the app, without path.
        look: options of the window: `viewport`, `color_scheme` ("light" or "dark"), `has_touch` ...
    """

    def __init__(self, browser: Browser, *, home: str, **look: Any) -> None:
        window: dict[str, Any] = {
            "viewport": {"width": 1440, "height": 1000},
            "color_scheme": "light",
            "reduced_motion": "reduce",
            "device_scale_factor": 1,
        }
        self.home = home
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(**window | look)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=home)
        self.context.route(OUTSIDE, self._refuse)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._keep_console_error)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("websocket", self._keep_outside_socket)
        self._waits = 0

    def open(self, query: str = "") -> Page:
        """The page once it has settled.

        Args:
            query: what follows the address of the app, e.g. `?gpu=h100-sxm`; or a whole link to it.
        """
        self.page.goto(query if query.startswith(self.home) else f"{self.home}/{query}")
        self.settle()
        return self.page

    def settle(self, *, quiet: float = 250, timeout: float = 30_000) -> None:
        """Wait until the script has been idle, with nothing stale on the page and every figure drawn, for a while.

        Args:
            quiet: how long it must stay so, ms; longer than a widget takes to start the script.
            timeout: when to give up, ms.
        """
        self._waits += 1
        try:
            self.page.wait_for_function(SETTLED, arg=[quiet, self._waits], timeout=timeout)
        except PlaywrightTimeoutError as late:
            late.add_note(f"Not at rest: {self.page.evaluate(RESTLESS)[:5]}; errors: {self.errors}")
            raise

    def choose_example(self, name: str) -> None:
        """Start from a worked example."""
        self.page.get_by_test_id("stMenuButton").get_by_role("button").click()
        self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.settle()

    def screenshot(self, name: str, *, full_page: bool = True) -> Path:
        """File the picture of the page was written to, under `test-artifacts/`."""
        ARTIFACTS.mkdir(exist_ok=True)
        file = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=file, full_page=full_page, animations="disabled", caret="hide")
        return file

    def assert_sound(self) -> None:
        """Fail if the page shows an exception, logged an error, or asked another machine for something."""
        assert self.page.get_by_test_id("stException").all_inner_texts() == []
        assert self.errors == []
        assert self.outside == []

    def close(self) -> None:
        self.context.close()

    def _refuse(self, route: Route) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def _keep_outside_socket(self, socket: WebSocket) -> None:
        if OUTSIDE.match(socket.url):
            self.outside.append(socket.url)

    def _keep_console_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)
