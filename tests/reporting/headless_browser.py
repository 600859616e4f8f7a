"""A headless Chromium, driven through chromedriver's own protocol (W3C WebDriver over HTTP)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver") or ""
MISSING = "" if CHROMIUM and DRIVER else "needs chromium and chromedriver (Debian: chromium-driver)"

KEYS = {
    "Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Home": "\ue011", "End": "\ue010",
    "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015",
}  # fmt: skip


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self._address = address
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"binary": CHROMIUM, "args": [*arguments, "--hide-scrollbars"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def open(self, path: Path) -> None:
        """Open a file from disk."""
        self._do("/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns."""
        return self._do("/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self._do("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the Chrome DevTools protocol."""
        return self._do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        """Messages since the last call: errors, warnings and the rest."""
        return [entry["message"] for entry in self._do("/se/log", {"type": "browser"})]

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the page and the colours that the user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._ask("DELETE", self._session)

    def _do(self, what: str, content: Any) -> Any:
        return self._ask("POST", self._session + what, content)

    def _ask(self, method: str, what: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + what, body, method=method)
        request.add_header("Content-Type", "application/json")
        # No proxy: the driver is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None


@contextmanager
def browser(command: Sequence[str] = (DRIVER, "--port=0")) -> Iterator[Browser]:
    """A browser that ends with the block, and its driver too."""
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert driver.stdout is not None
    try:
        port = _port(driver.stdout)
        threading.Thread(target=driver.stdout.read, daemon=True).start()
        window = Browser(f"http://127.0.0.1:{port}")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait()


def _port(lines: Any) -> str:
    for line in lines:
        found = re.search(r"started successfully on port (\d+)", line)
        if found:
            return found[1]
    raise RuntimeError("chromedriver ended without naming its port")
