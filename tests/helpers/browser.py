"""Pages in a real Chromium, led over the pipe of its DevTools protocol: JSON messages with a zero byte behind each."""

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

CHROMIUM = next(
    filter(
        None,
        map(
            shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
        ),
    ),
    None,
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on the path: apt install chromium, or any browser of its kind",
)
AXE = os.environ.get("TFPERF_AXE", "")
OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
VIOLATIONS = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).slice(0, 3).join(" | ")}`))"""
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
_START = "import os, sys; pipe = int(sys.argv[1]); os.dup2(pipe, 3); os.dup2(pipe, 4); os.execv(sys.argv[2], sys.argv[2:])"
_SECONDS = 30


class Browser:
    """A Chromium with a profile of its own in a folder; it reads from file descriptor 3 and writes to 4."""

    def __init__(self, folder):
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(_SECONDS)
        start = [
            sys.executable,
            "-c",
            _START,
            str(theirs.fileno()),
            CHROMIUM,
            *_OPTIONS,
            f"--user-data-dir={folder}",
        ]
        with theirs:
            self._process = subprocess.Popen(
                start, pass_fds=(theirs.fileno(),), stderr=subprocess.DEVNULL
            )
        self._numbers, self._read, self.events = itertools.count(1), b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self._ours, self._process:
            self.send("Browser.close")
            self._process.wait(_SECONDS)

    def send(self, method, session=None, **params):
        """What the browser answers; what it tells meanwhile is in `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | (
            {"sessionId": session} if session else {}
        )
        self._ours.sendall(json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != number:
            self.events.append(told)
        assert "error" not in told, (method, told)
        return told["result"]

    def wait(self, method, session):
        """Until the browser tells of it, from now on."""
        while (told := self._next()).get("method") != method or told.get("sessionId") != session:
            self.events.append(told)

    def _next(self):
        while b"\0" not in self._read:
            got = self._ours.recv(1 << 20)
            assert got, "Chromium ended"
            self._read += got
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)


class Page:
    """A tab with a page in it, as large and in the colours that are asked for."""

    def __init__(self, browser, path, *, script=True):
        self._browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.look()
        self.open(path.as_uri())

    def send(self, method, **params):
        return self._browser.send(method, self._session, **params)

    def open(self, url):
        moved = self.send("Page.navigate", url=url)
        if "loaderId" in moved:  # else within the page
            self._browser.wait("Page.loadEventFired", self._session)

    def look(self, width=1400, scheme="light", media=""):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def js(self, expression):
        """The value of an expression in the page."""
        done = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def press(self, key, **more):
        """A key as a person presses it, by its name, or with the `text` that it writes."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        down = "keyDown" if "text" in more else "rawKeyDown"
        for kind in (down, "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=codes.get(key, 0),
                **(more if kind == down else {}),
            )

    def told(self, *methods):
        """The parameters of what the browser told of this page."""
        told = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in told if event["method"] in methods]
