# SPDX-License-Identifier: Apache-2.0
"""The distribution's Chromium without a screen, controlled over a pipe: shows how a page looks and what it does.

    with Browser.start() as browser:
        page = browser.open("file:///tmp/report.html", width=360, height=800, dark=True)
        page.evaluate("document.title")
        page.screenshot("phone.png")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The path of a browser, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, path):
        self.profile = tempfile.TemporaryDirectory(prefix="gpushare-browser-", ignore_cleanup_errors=True)
        # The browser reads commands on descriptor 3 and answers on descriptor 4.
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()
        arguments = [path, "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                     "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--user-data-dir=" + self.profile.name]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # Chromium has no sandbox for root; it opens only the test's own files
        shell = 'exec "$@" 3<&%d 4>&%d' % (commands, answers)
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *arguments], pass_fds=(commands, answers),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "HOME": self.profile.name})
        os.close(commands)
        os.close(answers)
        self.sent = 0
        self.received = b""
        self.events = []

    @staticmethod
    def start():
        return Browser(find())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.command("Browser.close")
        except (OSError, EOFError, TimeoutError):
            self.process.kill()
        self.process.wait(30)
        os.close(self.to)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self, until):
        while b"\0" not in self.received:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def command(self, method, session=None, **parameters):
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.sent:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        until = time.monotonic() + 60
        while True:
            for i, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(i)
            self.events.append(self.receive(until))

    def open(self, url, width, height, dark=False):
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, target, url, width, height, dark)


class Page:
    def __init__(self, browser, session, target, url, width, height, dark):
        self.browser, self.session, self.target, self.width = browser, session, target, width
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(domain + ".enable")
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                     mobile=width < 600)
        self.command("Emulation.setEmulatedMedia",
                     features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.command("Page.navigate", url=url)
        browser.wait_for("Page.loadEventFired", session)

    def command(self, method, **parameters):
        return self.browser.command(method, self.session, **parameters)

    def evaluate(self, expression):
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description"))
        return result["result"].get("value")

    def requests(self):
        """The addresses that the page has requested, including its own."""
        return [event["params"]["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def complaints(self):
        return [event["params"] for name in ("Log.entryAdded", "Runtime.exceptionThrown") for event in self.events(name)]

    def events(self, method):
        return [event for event in self.browser.events
                if event.get("method") == method and event.get("sessionId") == self.session]

    def screenshot(self, path, most_height=12000):
        """The whole page, or its upper part, as PNG."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        # Parts out of sight are laid out only when they come near the visible area.
        self.command("Emulation.setDeviceMetricsOverride", width=self.width, height=min(int(size["height"]), most_height),
                     deviceScaleFactor=1, mobile=self.width < 600)
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": self.width, "height": min(size["height"], most_height), "scale": 1}
        image = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(image))

    def close(self):
        self.browser.command("Target.closeTarget", targetId=self.target)
