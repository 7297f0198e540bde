#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `gpushare bench report` in a browser, as people see it: on a phone and on a large screen, by day and by night.

`scripts/setup --browser` installs one; without it this is skipped. GPUSHARE_SCREENSHOTS names a folder in which the pictures
are kept, to be looked at.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

import browser

COMMAND = os.environ["GPUSHARE_COMMAND"]
HOSTILE = "</script><script>document.title='taken'</script>\"'\u0001\u202e"
METHODS = ("native", "gpushare", "gpushare-preload", "somebody-elses-library", HOSTILE)
WINDOWS = ((360, 740), (1280, 800))


def head():
    return {"gpushare_bench": 1, "gpushare": "0.1.0", "gpu": "NVIDIA H200", "driver": "580.82.07", "seed": 1,
            "machine": "a processor with a long name of its own, Linux 6.1.0-39-amd64", "begun": "2026-01-01T00:00:00Z",
            "commit": "0123456789abcdef0123456789abcdef01234567"}


def windows(noise, base, count, spread):
    """The least and the greatest value of each step."""
    low = [round(max(0, base + noise.gauss(0, spread)), 2) for _ in range(count)]
    high = [round(min(100, each + abs(noise.gauss(0, spread))), 2) for each in low]
    return {"low": low, "high": high, "least": min(low), "most": max(high)}


def latencies(noise, base):
    """The values at 31 quantiles, and the maximum."""
    return [round(base * (1 + 0.1 * i + noise.random() * 0.05), 1) for i in range(32)]


def run(scenario, case, method, repetition, question, tenants, figures, **more):
    course = {"question": question, "of": "used" if question == "share" else "time", "window_ms": 1000, "begins_ms": 1000,
              "step_ms": 10, "tenants": tenants}
    return {"scenario": scenario, "case": case, "method": method, "repetition": repetition, **more, "figures": [
        {"name": name, "unit": unit, "value": value, "better": better} for name, unit, value, better in figures],
        "course": course}


def share_run(noise, case, method, repetition, tenants, steps=300, scenario="share"):
    """`tenants`: the names, and what the tenants ask for."""
    error = noise.uniform(0.5, 3) if method != "native" else 30
    plays, figures = [], []
    for i, (name, asked) in enumerate(tenants):
        got = asked + (error if i % 2 == 0 else -error) / len(tenants)
        plays.append({"name": name, "share": asked, **windows(noise, got, steps, 1)})
        figures.append((name + ".share", "%", got, "-"))
    figures += [("worst_error", "pp", error, "lower"), ("busy", "%", 100 - error, "higher")]
    return run(scenario, case, method, repetition, "share", plays, figures)


def latency_run(noise, method, repetition):
    slow = {"native": 4, "gpushare": 1.1}.get(method, 1.5)
    plays = [{"name": "online", "priority": "high", **windows(noise, 20, 300, 1), "requests": 2000,
              "latency_us": latencies(noise, 300 * slow), "alone_us": latencies(noise, 300)},
             {"name": "job", **windows(noise, 70, 300, 2)}]
    return run("latency", "beside-training", method, repetition, "latency", plays,
               [("online.p50", "us", 300 * slow, "lower"), ("online.p99", "us", 900 * slow, "lower"),
                ("online.p99_ratio", "x", slow, "lower"), ("job.share", "%", 70, "higher")])


def without_figures(line, **why):
    tenants = [{key: value for key, value in tenant.items() if key in ("name", "share")}
               for tenant in line["course"]["tenants"]]
    return {**line, **why, "figures": [], "course": {**line["course"], "tenants": tenants}}


def everything(noise):
    """Each kind of plot, failures, unsupported cases, and names that are invalid."""
    lines = []
    for repetition in range(3):
        for method in METHODS[:3]:
            lines.append(share_run(noise, "two", method, repetition, [("short", 75), ("long", 25)]))
            for number in (2, 4, 8, 16):
                tenants = [("tenant-with-a-long-name-%d" % i, 100 / number) for i in range(number)]
                lines.append(share_run(noise, "of-%d" % number, method, repetition, tenants, scenario="scale"))
            lines.append(latency_run(noise, method, repetition))
        lines.append(without_figures(share_run(noise, "two", METHODS[3], repetition, [("short", 75), ("long", 25)]),
                                     not_supported="no share"))
        lines.append(without_figures(share_run(noise, "two", METHODS[4], repetition, [("short", 75), ("long", 25)]),
                                     error="it had not ended after 120 s, and said: " + HOSTILE))
    lines.append(share_run(noise, HOSTILE, HOSTILE, 0, [(HOSTILE, 50), ("W" * 300, 40), ("a name of several words", 10)]))
    return lines


# Faults that a person would see: text beyond the edge of its plot or over other text, and text that is too faint.
FAULTS = r"""(() => {
  const faults = [];
  for (const svg of document.querySelectorAll('svg')) {
    const edge = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].filter(each => each.textContent)
        .map(each => ({what: each.firstChild.textContent, box: each.getBoundingClientRect()}));
    texts.forEach(({what, box}, i) => {
      if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1)
        faults.push('beyond the edge: ' + what + ' in ' + svg.getAttribute('aria-label'));
      for (const other of texts.slice(i + 1)) {
        const width = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const height = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (width > 1 && height > 4) faults.push(what + ' over ' + other.what + ' in ' + svg.getAttribute('aria-label'));
      }
    });
  }
  const rgb = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = colour => rgb(colour).map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
      .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const page = light(getComputedStyle(document.body).backgroundColor);
  const seen = new Set();
  for (const each of document.querySelectorAll('body *')) {
    const style = getComputedStyle(each);
    const colour = each instanceof SVGTextElement ? style.fill : each instanceof SVGElement ? null : style.color;
    if (!colour || seen.has(colour)) continue;
    seen.add(colour);
    const other = light(colour);
    const contrast = (Math.max(page, other) + 0.05) / (Math.min(page, other) + 0.05);
    if (contrast < 4.5) faults.push('contrast of ' + contrast.toFixed(1) + ': ' + colour);
  }
  return faults;
})()"""
# The browser does not lay out parts that are far out of sight before somebody scrolls there.
LAY_OUT = "document.querySelectorAll('.case').forEach(each => each.style.contentVisibility = 'visible')"
SHOWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser.start()
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-report-test-")
        self.addCleanup(self.folder.cleanup)

    def report(self, lines):
        """The path of the page."""
        results, page = pathlib.Path(self.folder.name, "results.jsonl"), pathlib.Path(self.folder.name, "report.html")
        results.write_text("".join(json.dumps(line) + "\n" for line in [head(), *lines]))
        result = subprocess.run([COMMAND, "bench", "report", str(results), "--html", str(page)], capture_output=True, text=True,
                                timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return page

    def test_it_is_readable_on_every_screen(self):
        page = self.report(everything(random.Random(1)))
        kept = pathlib.Path(os.environ.get("GPUSHARE_SCREENSHOTS", self.folder.name))
        for width, height in WINDOWS:
            backgrounds = []
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    shown = self.browser.open(page.as_uri(), width, height, dark)
                    shown.evaluate(LAY_OUT)
                    backgrounds.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
                    self.assertEqual(shown.evaluate("document.documentElement.scrollWidth"), width)
                    picture = kept / ("report-%d-%s.png" % (width, "dark" if dark else "light"))
                    shown.screenshot(picture)
                    self.assertGreater(picture.stat().st_size, 100_000)
                    self.assertEqual(shown.evaluate(FAULTS), [])
                    self.assertEqual(shown.evaluate("document.title"), "gpushare bench: report")
                    self.assertEqual(shown.requests(), [page.as_uri()])
                    self.assertEqual(shown.complaints(), [])
                    shown.close()
            self.assertEqual(len(set(backgrounds)), 2, backgrounds)

    def test_a_hundred_thousand_points(self):
        noise = random.Random(2)
        lines = [share_run(noise, "case-%d" % i, method, 0, [("short", 75), ("long", 25)], steps=500)
                 for i in range(25) for method in ("native", "gpushare")]
        points = sum(len(tenant["low"]) + len(tenant["high"]) for line in lines for tenant in line["course"]["tenants"])
        self.assertEqual(points, 100_000)
        page = self.report(lines)
        self.assertLess(page.stat().st_size, 3_000_000)
        began = time.monotonic()
        shown = self.browser.open(page.as_uri(), 1280, 800)
        at = shown.evaluate(SHOWN)
        # For information only: a busy machine is not a fault of the page.
        print("%d points, %.1f MB: loaded after %.0f ms, shown after %.0f ms, %.0f ms with all that the test does for it"
              % (points, page.stat().st_size / 1e6,
                 shown.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"), at,
                 (time.monotonic() - began) * 1000))
        self.assertEqual(shown.evaluate("document.querySelectorAll('polyline.line').length"), 100)
        shown.close()


if __name__ == "__main__":
    if not browser.find():
        print("skipped: no Chromium here; scripts/setup --browser installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv)
