#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare bench`, as people run it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]

CAP = """
question: cap
length: 500ms
warm_up: 200ms
window: 100ms
cases:
  - name: one
    tenants: [{name: capped, cap: 30%, work: {kernels: 40us 120us 80us, repeat: 4}}]
"""
SHARE = """
question: share
length: 700ms
warm_up: 200ms
window: 500ms
cases:
  - name: two
    tenants:
      - {name: a, share: 75%, work: {kernels: 100us, repeat: 4}}
      - {name: b, share: 25%, work: {kernels: 500us, repeat: 4}}
"""


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-bench-test-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name, text=None):
        path = pathlib.Path(self.folder.name, name)
        if text is not None:
            path.write_text(text)
        return str(path)

    def bench(self, *arguments, **more):
        return subprocess.run([COMMAND, "bench", *arguments], capture_output=True, text=True, timeout=200,
                              env={**os.environ, "TMPDIR": self.folder.name, **more})

    def figures(self, *arguments):
        """By case, method and figure, of the first repetition."""
        result = self.bench("run", *arguments, "--repetitions", "1", "--out", "-")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(lines[0]["gpushare_bench"], 1)
        return {(run["case"], run["method"], figure["name"]): figure["value"]
                for run in lines[1:] for figure in run["figures"]}

    def test_a_cap_holds_with_gpushare_alone(self):
        got = self.figures(self.path("cap.yaml", CAP), "--method", "native", "--method", "gpushare")
        self.assertGreater(got["one", "native", "capped.share"], 95)
        self.assertAlmostEqual(got["one", "gpushare", "capped.share"], 30, delta=1)

    def test_every_method_and_shares(self):
        methods = self.bench("methods").stdout.split()
        self.assertIn("gpushare-preload", methods)
        got = self.figures(self.path("share.yaml", SHARE), *(word for name in methods for word in ("--method", name)))
        for method in ("gpushare", "gpushare-preload"):
            self.assertAlmostEqual(got["two", method, "a.share"], 75, delta=2)
        self.assertAlmostEqual(got["two", "time-slicing", "a.share"], 50, delta=5)
        self.assertEqual(os.listdir(self.folder.name), ["share.yaml"])  # nothing is left behind

    def test_kernels_shorter_than_their_launches_beside_long_ones_in_another_process(self):
        # The first of them keeps the device busy for half of the time that it has it, and so gets less than it asks for:
        # not more, as where its kernels all seem to have ended before they were launched.
        got = self.figures(self.path("share.yaml", SHARE.replace("75%", "50%").replace("25%", "50%")
                                     .replace("kernels: 100us", "kernels: 1us 2us 1us 3us")),
                           "--method", "gpushare", "--method", "gpushare-preload")
        self.assertAlmostEqual(got["two", "gpushare", "a.share"], 50, delta=2)
        self.assertGreater(got["two", "gpushare-preload", "a.share"], 30)
        self.assertLess(got["two", "gpushare-preload", "a.share"], 55)

    def test_results_are_shown_again(self):
        out = self.path("out.jsonl")
        first = self.bench("run", self.path("cap.yaml", CAP), "--method", "gpushare", "--repetitions", "2", "--out", out)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("capped.share", first.stdout)
        self.assertEqual(self.bench("show", out).stdout, first.stdout)

    def test_two_results_are_compared(self):
        before, after = self.path("before.jsonl"), self.path("after.jsonl")
        for out, cap in ((before, "30%"), (after, "40%")):  # native exceeds both, the higher one by less
            scenario = self.path("cap.yaml", CAP.replace("30%", cap))
            self.bench("run", scenario, "--method", "native", "--repetitions", "3", "--out", out)
        same = self.bench("compare", before, before)
        self.assertEqual((same.returncode, same.stdout.count("same")), (0, 3), same.stdout)
        better = self.bench("compare", before, after)
        self.assertEqual((better.returncode, better.stdout.count("better")), (0, 1), better.stdout)
        worse = self.bench("compare", after, before)
        self.assertEqual((worse.returncode, worse.stdout.count("worse")), (1, 1), worse.stdout)

    def test_what_a_library_has_no_word_for_and_one_that_is_not_there(self):
        out = self.path("out.jsonl")
        result = self.bench("run", self.path("cap.yaml", CAP), "--method", "mute=/nowhere/libmute.so",
                            "--method", "gpushare", "--repetitions", "1", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("mute not supported: no cap", result.stdout)
        self.assertIn("30", result.stdout)

    def test_one_that_hangs_does_not_keep_the_others(self):
        scenario = self.path("cap.yaml", CAP.replace("500ms", "600s"))
        result = self.bench("run", scenario, "--method", "native", "--repetitions", "1", "--limit", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("native failed: it had not ended after 1 s", result.stdout)

    def test_bad_input(self):
        bad = self.path("bad.yaml", CAP.replace("cap: 30%", "cap: 130%"))
        for arguments, status, word in (
                ([], 2, "subcommand"),
                (["run"], 2, "scenarios"),
                (["run", bad], 2, "cases[0].tenants[0].cap: '130%' given; allowed: 0.01% to 100%"),
                (["run", self.path("nothing.yaml")], 2, "nothing.yaml"),
                (["run", self.path("cap.yaml", CAP), "--method", "turbo"], 2, "no method is called 'turbo'"),
                (["run", self.path("cap.yaml", CAP), "--repetitions", "0"], 2, "--repetitions"),
                (["run", self.path("cap.yaml", CAP), "--out", "/nowhere/out"], 5, "/nowhere/out"),
                (["show", bad], 2, "bad.yaml:1"),
                (["show", self.path("nothing.jsonl")], 2, "nothing.jsonl")):
            result = self.bench(*arguments)
            self.assertEqual(result.returncode, status, (arguments, result.stderr))
            self.assertIn(word, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
