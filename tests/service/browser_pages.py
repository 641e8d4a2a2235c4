"""Pages in a real browser: what they log, request and show, and how accessible they are."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="the tests in a browser need Chromium (Debian: apt-get install chromium)"
)
SERIOUS = ("serious", "critical")
"""Impacts of accessibility problems that are not accepted."""
FILL_STORAGE = """() => { for (let size = 1 << 22, place = 0; size >= 1; ) {
  try { localStorage.setItem(`filler${place++}`, "x".repeat(size)); } catch { size = Math.floor(size / 2); }
} }"""
"""Script that fills the storage of the browser."""


@dataclass
class OpenPage:
    """A page in the browser, and what it logged and requested."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Record messages, errors, dialogs and requests."""
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda problem: self.messages.append(str(problem)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Any) -> None:
        self.messages.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def press(self, keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.page.inner_text(selector))

    def wait_for_text(self, selector: str, text: str) -> None:
        """Wait until an element shows a text."""
        self.page.locator(selector, has_text=text).first.wait_for()

    def serious_problems(self) -> list[str]:
        """Return the serious accessibility problems that axe-core finds."""
        script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        self.page.context.new_cdp_session(self.page).send("Page.setBypassCSP", {"enabled": True})
        self.page.evaluate(script + "; true")
        found = self.page.evaluate("axe.run()")["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in SERIOUS]


class Proxy:
    """A proxy in front of an application, which can answer in its place.

    Attributes:
        reply: response to requests of the API, or a function of the body that returns one or None; None: pass them on.

    """

    def __init__(self, app: FastAPI) -> None:
        self.app: ASGIApp = app
        self.reply: Response | Callable[[bytes], Response | None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = self.reply if scope["path"].startswith("/api/") else None
        if callable(reply) and not isinstance(reply, Response):
            message = await receive()
            body = message["body"]
            while message.get("more_body"):
                body += (message := await receive())["body"]
            reply = reply(body)
            messages = iter([{"type": "http.request", "body": body, "more_body": False}])
            original = receive

            async def receive_again() -> Any:
                return next(messages, None) or await original()

            receive = receive_again
        await (reply or self.app)(scope, receive, send)


@contextmanager
def serve_in_thread(app: ASGIApp) -> Iterator[str]:
    """Serve an application on a free port; return its address."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium; skip the test if Playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need Playwright (extra test)")
    with playwright.sync_playwright() as started:
        # As root, in a container, Chromium has no sandbox to start.
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()
