#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare bench`, as people run it."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

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
length: 400ms
warm_up: 100ms
window: 300ms
cases:
  - name: two
    tenants:
      - {name: a, share: 75%, work: {kernels: 100us, repeat: 4}}
      - {name: b, share: 25%, work: {kernels: 500us, repeat: 4}}
"""

TURNS = """
question: share
length: 1s
warm_up: 200ms
window: 800ms
cases:
  - name: two
    tenants:
      - {name: a, share: 50%, work: {kernels: 3000us, repeat: 4}}
      - {name: b, share: 50%, work: {kernels: 150us, repeat: 16}}
"""

MEMORY = """
question: memory
length: 100ms
warm_up: 0s
window: 100ms
cases:
  - name: both
    gpu: memory=8GiB
    tenants:
      - {name: greedy, memory: 2GiB, allocate: {sizes: 512MiB 256MiB, from: malloc async, keep: 64, every: 2ms}}
      - {name: fitting, memory: 4GiB, allocate: {sizes: 512MiB 2GiB 1GiB, keep: 2, every: 5ms}}
"""
OVERHEAD = """
question: overhead
length: 100ms
warm_up: 20ms
window: 20ms
cases:
  - name: one
    tenants: [{name: alone, work: {kernels: 20us 30us, repeat: 4}}]
"""
SCALE = """
question: scale
length: 200ms
warm_up: 50ms
window: 50ms
cases:
  - name: many
    tenants:
      - {name: few, count: 20, share: 50%, mode: sync, work: {kernels: 10us 20us}}
      - {name: many, count: 80, share: 50%, mode: sync, work: {kernels: 10us 20us}}
  - {name: processes, apart: true, tenants: [{name: process, count: 12, work: {kernels: 10us}}]}
"""
FAULTS = """
question: faults
length: 300ms
warm_up: 50ms
window: 50ms
cases:
  - name: one
    gpu: memory=8GiB
    tenants:
      - {name: breaks, memory: 2GiB, work: {kernels: 60us, repeat: 4}, mode: sync, fault: {FAULT, at: 150ms}}
      - {name: other, memory: 4GiB, work: {kernels: 200us, repeat: 4}, mode: sync, allocate: {sizes: 512MiB 2GiB 1GiB, keep: 2, every: 7ms}}
"""

LATENCY = """
question: latency
length: 500ms
warm_up: 100ms
window: 100ms
cases:
  - name: both
    tenants:
      - {name: a, mode: requests, load: 20%, work: {kernels: 100us, repeat: 4}}
      - {name: b, mode: requests, load: 20%, work: {kernels: 100us, repeat: 4}}
  - name: starved
    tenants:
      - {name: a, mode: requests, load: 90%, work: {kernels: 400us, sms: 132}}
      - {name: job, work: {kernels: 1000us, sms: 132}}
"""

HARVEST = """
question: harvest
length: 500ms
warm_up: 100ms
window: 100ms
cases:
  - name: one
    tenants:
      - {name: online, priority: high, mode: requests, load: 20%, work: {kernels: 60us, repeat: 4, sms: 132}}
      - {name: job, work: {kernels: 400us, repeat: 4, sms: 132}}
"""
RECLAIM = """
question: reclaim
length: 600ms
warm_up: 100ms
window: 20ms
cases:
  - name: one
    tenants:
      - {name: returns, share: 70%, mode: sync, active: 0s-100ms 200ms-300ms 400ms-500ms, work: {kernels: 100us, repeat: 4}}
      - {name: stays, share: 30%, work: {kernels: 400us, repeat: 4}}
"""
SERVING = """
question: serving
length: 500ms
warm_up: 100ms
window: 100ms
cases:
  - name: one
    tenants:
      - name: server
        priority: high
        mode: batches
        load: 70%
        wait: 1ms
        goal: 5ms
        batches:
          1: {kernels: 15us, repeat: 16, sms: 132}
          8: {kernels: 25us, repeat: 16, sms: 132}
      - {name: job, work: {kernels: 800us, repeat: 4, sms: 160}}
"""


# Stands in for NVIDIA's MPS server, as far as the harness uses it: it answers on a socket until it is told to quit,
# which it may ignore.
MPS_CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  echo "$CUDA_VISIBLE_DEVICES" > "$CUDA_MPS_PIPE_DIRECTORY/../../mps-device"
  while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.02; done
else
  read word; [ "$word" = quit ] || exit 1
  touch "$CUDA_MPS_PIPE_DIRECTORY/../../mps-quit"
  [ -e "$CUDA_MPS_PIPE_DIRECTORY/../../mps-deaf" ] || touch "$CUDA_MPS_PIPE_DIRECTORY/quit"
fi
"""


def programs(folder):
    """The pids of the processes whose command line names the folder."""
    found = []
    for each in pathlib.Path("/proc").iterdir():
        try:
            if each.name.isdigit() and folder.encode() in (each / "cmdline").read_bytes():
                found.append(int(each.name))
        except OSError:  # the process has ended
            pass
    return found


def until(condition):
    """Waits until other processes have made `condition` true. Returns its value, false after a minute."""
    end = time.monotonic() + 60
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer


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

    def figures(self, *arguments, **more):
        """The values of the first repetition by case, method and figure."""
        result = self.bench("run", *arguments, "--repetitions", "1", "--out", "-", **more)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(lines[0]["gpushare_bench"], 1)
        return {(run["case"], run["method"], figure["name"]): figure["value"]
                for run in lines[1:] for figure in run.get("figures", [])}

    def values(self, out):
        """The values of the file's figures, over its runs."""
        values = {}
        for run in map(json.loads, pathlib.Path(out).read_text().splitlines()[1:]):
            for figure in run["figures"]:
                key = run["scenario"], run["case"], run["method"], figure["name"]
                values.setdefault(key, []).append(figure["value"])
        return values

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

    def test_work_is_told_against_that_of_the_same_tenants_ungated(self):
        # Each kernel needs less than half of the SMs. Ungated, two run at a time; taking turns on the whole device
        # gives half of that.
        narrow = SHARE.replace("repeat: 4", "repeat: 4, sms: 60")
        got = self.figures(self.path("narrow.yaml", narrow), "--method", "time-slicing", "--method", "gpushare")
        self.assertAlmostEqual(got["two", "time-slicing", "work"], 47, delta=4)
        self.assertGreater(got["two", "gpushare", "work"], got["two", "time-slicing", "work"])
        # If one kernel fills the device, there is no more to get than all of the time.
        got = self.figures(self.path("share.yaml", SHARE), "--method", "native", "--method", "gpushare")
        self.assertEqual(got["two", "native", "work"], 100)
        self.assertAlmostEqual(got["two", "gpushare", "work"], got["two", "gpushare", "busy"], delta=1)

    def test_sms_of_its_own(self):
        # 12 and 4 of the 16 steps of 8 SMs, with whole waves on both; four SMs belong to no step.
        share = SHARE.replace("repeat: 4", "repeat: 4, sms: 960")
        got = self.figures(self.path("share.yaml", share), self.path("cap.yaml", CAP), "--method", "gpushare-spatial")
        self.assertAlmostEqual(got["two", "gpushare-spatial", "a.share"], 75, delta=1)
        self.assertAlmostEqual(got["two", "gpushare-spatial", "busy"], 100 * 128 / 132, delta=2)
        # 40 SMs, of which the last of four waves uses 12, hold 30 % at most.
        self.assertAlmostEqual(got["one", "gpushare-spatial", "capped.share"], 132 / 160 * 40 / 132 * 100, delta=1)
        many = SHARE.replace("share: 75%", "share: 75%, count: 30").replace("question: share", "question: scale")
        result = self.bench("run", self.path("many.yaml", many), "--method", "gpushare-spatial", "--repetitions", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("gpushare-spatial not supported: 31 partitions; the device has 16 of 8 SMs", result.stdout)
        result = self.bench("run", self.path("harvest.yaml", HARVEST), "--method", "gpushare-spatial", "--repetitions", "1")
        self.assertIn("not supported: no priority: each has SMs of its own", result.stdout)

    def test_kernels_shorter_than_their_launches_beside_long_ones_in_another_process(self):
        # The first keeps the device busy for half of its time only, and so gets less than it asks for. It does not
        # get more, as it would if its kernels all seemed to have ended before they were launched.
        got = self.figures(self.path("share.yaml", SHARE.replace("75%", "50%").replace("25%", "50%")
                                     .replace("kernels: 100us", "kernels: 1us 2us 1us 3us").replace("400ms", "200ms")
                                     .replace("300ms", "100ms")),
                           "--method", "gpushare", "--method", "gpushare-preload")
        self.assertAlmostEqual(got["two", "gpushare", "a.share"], 50, delta=2)
        self.assertGreater(got["two", "gpushare-preload", "a.share"], 30)
        self.assertLess(got["two", "gpushare-preload", "a.share"], 55)

    def test_results_are_shown_again(self):
        out = self.path("out.jsonl")
        first = self.bench("run", self.path("cap.yaml", CAP), "--method", "gpushare", "--repetitions", "2", "--out", out)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("capped.share", first.stdout)
        self.assertRegex(first.stdout, r"\nn +2\n")  # the number of runs
        self.assertEqual(self.bench("show", out).stdout, first.stdout)

    def test_two_results_are_compared(self):
        before, after = self.path("before.jsonl"), self.path("after.jsonl")
        for out, cap in ((before, "30%"), (after, "40%")):  # native exceeds both caps, and the higher one by less
            scenario = self.path("cap.yaml", CAP.replace("30%", cap))
            self.bench("run", scenario, "--method", "native", "--repetitions", "5", "--out", out)
        new = self.bench("run", scenario, "--method", "native", "--out", after)
        self.assertEqual((new.returncode, "--force" in new.stderr), (5, True), new.stderr)
        anew = self.bench("run", scenario, "--method", "native", "--repetitions", "5", "--out", after, "--force")
        self.assertEqual(anew.returncode, 0, anew.stderr)
        same = self.bench("compare", before, before)
        self.assertEqual((same.returncode, same.stdout.count("same")), (0, 3), same.stdout)
        better = self.bench("compare", before, after)
        self.assertEqual((better.returncode, better.stdout.count("better")), (0, 1), better.stdout)
        worse = self.bench("compare", after, before)
        self.assertEqual((worse.returncode, worse.stdout.count("worse")), (1, 1), worse.stdout)

    def test_the_commit_that_it_was_built_from_is_in_the_results(self):
        out = self.path("out.jsonl")
        for said, expected in (({}, r"[0-9a-f]{12}(-dirty)?|unknown"), ({"GPUSHARE_COMMIT": "abcdef"}, "abcdef")):
            self.bench("run", self.path("cap.yaml", CAP), "--method", "native", "--repetitions", "1", "--out", out, "--force",
                       **said)
            with open(out) as file:
                self.assertRegex(json.loads(file.readline())["commit"], f"^({expected})$")

    def test_what_two_results_were_made_with_is_compared(self):
        files = [self.path(f"{name}.jsonl") for name in ("before", "after")]
        scenario = self.path("share.yaml", SHARE + "short: {length: 300ms, window: 100ms}\n")
        more = [["--short", "--seed", "2"], ["--profile", "PROFILE"]]
        profile = self.path("slow.yaml", "profile: 1\nsettings:\n  sms: 64\n")
        for out, options in zip(files, more):
            result = self.bench("run", scenario, "--method", "native", "--repetitions", "1", "--out", out,
                                *(profile if word == "PROFILE" else word for word in options))
            self.assertEqual(result.returncode, 0, result.stderr)
        told = self.bench("compare", *files).stdout.split("\n\n")[-1]
        for line in ("gpu +simulated +simulated as slow.yaml", "profile +none +slow.yaml", "seed +2 +1",
                     "length of share +300ms with a warm-up of 100ms, windows of 100ms +400ms with a warm-up of 100ms, windows of 300ms"):
            self.assertRegex(told, f"(?m)^{line} *$")
        self.assertNotIn("machine", told)
        self.assertNotIn("made otherwise", self.bench("compare", files[0], files[0]).stdout)

    def test_the_same_at_the_default_repetitions_has_no_verdict(self):
        files = [self.path(f"{name}.jsonl") for name in ("before", "after")]
        for out in files:
            result = self.bench("run", "overhead", "--short", "--method", "native", "--method", "gpushare", "--out", out)
            self.assertEqual(result.returncode, 0, result.stderr)
        compared = self.bench("compare", *files)
        verdicts = {line.split()[-1] for line in compared.stdout.split("\n\n")[0].splitlines()[2:]}
        self.assertEqual((compared.returncode, verdicts - {"same", "unsure"}), (0, set()), compared.stdout)
        if "unsure" in verdicts:
            self.assertRegex(compared.stdout, r"unsure: \d+ of 32 figures, .* --repetitions 7 on both sides can tell")

    def test_a_report(self):
        out, page, csv = self.path("out.jsonl"), self.path("report.html"), self.path("report.csv")
        self.bench("run", self.path("cap.yaml", CAP), "--method", "native", "--method", "gpushare", "--method",
                   "mute=/nowhere/libmute.so", "--repetitions", "1", "--out", out, GPUSHARE_COMMIT="abcdef")
        result = self.bench("report", out, "--html", page, "--csv", csv)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        html = pathlib.Path(page).read_text()
        for word in ("abcdef", "no cap", "shares in windows of 100ms", "</html>"):
            self.assertIn(word, html)
        drawings = re.findall("<svg.*?</svg>", html, re.DOTALL)
        # Compares what was asked for and got, two methods' shares, and worst_over with worst_under.
        self.assertEqual(len([xml.etree.ElementTree.fromstring(each) for each in drawings]), 5)
        self.assertEqual(pathlib.Path(csv).read_text().count("\n"), 1 + 2 * 3 + 1)
        # From two files, on standard output.
        result = self.bench("report", out, out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("**gpushare (2)**", result.stdout)
        self.assertEqual(self.bench("report", out, "--html", "-").stdout, html)

    def test_what_one_of_two_results_lacks_is_told(self):
        both, one = self.path("both.jsonl"), self.path("one.jsonl")
        scenario = self.path("cap.yaml", CAP)
        self.bench("run", scenario, "--method", "native", "--method", "gpushare", "--repetitions", "1", "--out", both)
        self.bench("run", scenario, "--method", "native", "--repetitions", "1", "--out", one)
        lacks = self.bench("compare", both, one)
        self.assertEqual(lacks.returncode, 1, lacks.stdout)
        self.assertRegex(lacks.stdout, r"gpushare +runs +1 +not there +missing")
        more = self.bench("compare", one, both)
        self.assertEqual(more.returncode, 0, more.stdout)
        self.assertRegex(more.stdout, r"gpushare +runs +not there +1 +new")

    def test_the_same_twice_differs_by_less_than_its_interval(self):
        # Noise and requests differ each time.
        files = [self.path(f"{seed}.jsonl") for seed in (1, 1000)]
        noisy = SHARE.replace("name: two", "name: two\n    gpu: noise=0.1")
        requests = LATENCY[:LATENCY.index("  - name: starved")].replace("500ms", "300ms")
        for seed, out in zip((1, 1000), files):
            result = self.bench("run", self.path("share.yaml", noisy), self.path("latency.yaml", requests), "--seed",
                                str(seed), "--method", "native", "--method", "gpushare", "--repetitions", "5", "--out", out)
            self.assertEqual(result.returncode, 0, result.stdout)
        compared = self.bench("compare", *files)
        self.assertEqual(compared.returncode, 0, compared.stdout)
        verdicts = [line.split()[-1] for line in compared.stdout.split("\n\n")[0].splitlines()[2:]]
        self.assertEqual(verdicts, ["same"] * 38, compared.stdout)
        first, second = (self.values(out) for out in files)
        for figure, values in first.items():
            difference = abs(statistics.median(values) - statistics.median(second[figure]))
            widths = [max(each) - min(each) for each in (values, second[figure])]
            self.assertLessEqual(difference, max(widths), figure)

    def test_memory_within_quotas_and_without(self):
        got = self.figures(self.path("memory.yaml", MEMORY), *(
            word for name in ("native", "gpushare", "gpushare-preload") for word in ("--method", name)))
        for method in ("gpushare", "gpushare-preload"):
            self.assertEqual([got["both", method, figure] for figure in (
                "greedy.granted", "greedy.refused", "greedy.most_over", "fitting.granted", "fitting.most_over", "hurt")],
                [100, 100, 0, 100, 0, 0], method)
        self.assertGreater(got["both", "native", "greedy.most_over"], 1000)
        self.assertGreater(got["both", "native", "hurt"], 0)

    def test_what_a_tenant_alone_costs(self):
        got = self.figures(self.path("overhead.yaml", OVERHEAD), "--method", "native", "--method", "gpushare", "--method",
                           "gpushare-preload")
        self.assertEqual(got["one", "native", "throughput"], 100)
        for call in ("launch", "graph_launch", "alloc_free"):  # the driver compared with itself
            self.assertTrue(0.5 < got["one", "native", call + ".host_ratio"] < 2, got)
        for method in ("gpushare", "gpushare-preload"):
            self.assertGreater(got["one", method, "throughput"], 90)
            for call in ("launch", "graph_launch", "alloc_free"):  # the amount depends on the machine
                self.assertGreater(got["one", method, call + ".host_ratio"], 0)
                self.assertGreater(got["one", method, call + ".host_ns"], 0)

    def test_many_tenants_and_processes(self):
        out = self.path("scale.jsonl")
        result = self.bench("run", self.path("scale.yaml", SCALE), *(
            word for name in ("native", "gpushare", "gpushare-preload") for word in ("--method", name)),
            "--repetitions", "1", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        runs = {(run["case"], run["method"]): run
                for run in map(json.loads, pathlib.Path(out).read_text().splitlines()[1:])}
        figures = {key: {each["name"]: each["value"] for each in run.get("figures", [])} for key, run in runs.items()}
        self.assertAlmostEqual(figures["many", "gpushare"]["few.share"], 50, delta=2)
        self.assertAlmostEqual(figures["many", "native"]["few.share"], 20, delta=2)
        self.assertGreater(figures["many", "gpushare"]["launch"], 0)
        self.assertEqual(runs["many", "gpushare-preload"]["not_supported"],
                         "101 processes; the simulated GPU has room for 64")
        self.assertEqual(runs["many", "gpushare"]["course"]["unnamed"], 100)
        ready = figures["processes", "gpushare-preload"]
        self.assertGreaterEqual(ready["ready_last"], ready["ready_p50"])
        self.assertEqual(runs["processes", "gpushare"]["not_supported"], "its tenants are one program")
        self.assertEqual(self.bench("report", out, "--html", self.path("scale.html")).returncode, 0)

    def faults(self, fault, *methods):
        words = [word for name in methods for word in ("--method", name)]
        got = self.figures(self.path("faults.yaml", FAULTS.replace("FAULT", fault)), *words)
        return lambda method, figure: got["one", method, figure]

    def test_who_is_in_the_same_process_is_hurt_by_a_fault(self):
        # As stated in docs/isolation.md.
        for fault in ("kind: illegal-address", "kind: killed"):
            got = self.faults(fault, "native", "gpushare", "gpushare-preload")
            for method in ("native", "gpushare"):
                self.assertEqual((got(method, "failed"), got(method, "other.after")), (1, 0), fault)
            self.assertEqual((got("gpushare-preload", "failed"), got("gpushare-preload", "other.recovery")), (0, 0), fault)
            self.assertGreater(got("gpushare-preload", "other.after"), 80)

    def test_a_context_of_its_own_keeps_a_fault_to_itself(self):
        got = self.faults("kind: illegal-address", "gpushare")
        self.assertEqual(got("gpushare", "failed"), 1)
        apart = FAULTS.replace("name: breaks,", "name: breaks, isolation: context,")
        figures = self.figures(self.path("apart.yaml", apart.replace("FAULT", "kind: illegal-address")), "--method", "gpushare")
        self.assertEqual((figures["one", "gpushare", "failed"], figures["one", "gpushare", "other.recovery"]), (0, 0))

    def test_a_kernel_that_never_ends(self):
        got = self.faults("kind: endless-kernel, sms: 132", "native", "time-slicing", "gpushare")
        for method in ("native", "gpushare"):
            self.assertEqual((got(method, "failed"), got(method, "other.after")), (0, 0))
        self.assertGreater(got("time-slicing", "other.after"), 20)

    def test_one_that_takes_all_memory(self):
        got = self.faults("kind: all-memory", "native", "gpushare", "gpushare-preload")
        self.assertGreater(got("native", "other.denied"), 0)
        for method in ("gpushare", "gpushare-preload"):
            self.assertEqual((got(method, "other.denied"), got(method, "failed")), (0, 0))
        self.assertEqual([name for name in os.listdir(self.folder.name) if "gpushare-bench-" in name], [])

    def test_requests_alone_and_starved(self):
        got = self.figures(self.path("latency.yaml", LATENCY), "--method", "native", "--method", "time-slicing")
        for method in ("native", "time-slicing"):
            self.assertGreaterEqual(got["both", method, "a.p99_ratio"], 1)
            self.assertGreaterEqual(got["both", method, "b.p99_ratio"], 1)
            self.assertGreater(got["both", method, "a.served"], 95)
        # The requests get at most half of the time, for nine tenths of the work.
        self.assertLess(got["starved", "time-slicing", "a.served"], 70)
        self.assertGreater(got["starved", "time-slicing", "a.p50"], 50e3)
        self.assertGreater(got["starved", "time-slicing", "a.p99_ratio"], 3)

    def test_what_best_effort_makes_of_the_time_left_over(self):
        got = self.figures(self.path("harvest.yaml", HARVEST), "--method", "native", "--method", "gpushare")
        harvest = {name: value for (_, method, name), value in got.items() if method == "gpushare"}
        native = {name: value for (_, method, name), value in got.items() if method == "native"}
        self.assertGreater(harvest["harvest"], 85)
        self.assertGreater(native["harvest"], 95)
        # Natively, a request waits for a kernel of the job before each of its own kernels.
        self.assertLess(harvest["taken"], native["taken"])
        self.assertLess(harvest["online.p99_ratio"], native["online.p99_ratio"])
        self.assertLess(harvest["left_over"], 85)
        # The same for latencies, with the same tenants and requests.
        latency = self.figures(self.path("latency.yaml", HARVEST.replace("harvest", "latency")), "--method", "gpushare")
        for name in ("left_over", "harvest", "work"):
            self.assertAlmostEqual(latency["one", "gpushare", name], harvest[name], delta=0.5, msg=name)

    def test_a_tenant_that_comes_back_has_its_share_again(self):
        got = self.figures(self.path("reclaim.yaml", RECLAIM), "--method", "native", "--method", "gpushare")
        self.assertEqual(got["one", "gpushare", "returns.reclaimed"], 100)
        self.assertLess(got["one", "gpushare", "returns.reclaim_worst"], 5)
        self.assertLess(got["one", "gpushare", "returns.behind"], 2)
        self.assertGreater(got["one", "gpushare", "busy_away"], 95)
        # Natively, each gets what it launches: the other one's kernels are four times as long.
        self.assertEqual(got["one", "native", "returns.reclaimed"], 0)
        self.assertEqual(got["one", "native", "returns.reclaim"], 100)

    def test_a_server_that_batches(self):
        got = self.figures(self.path("serving.yaml", SERVING), "--method", "native", "--method", "gpushare")
        # Natively, kernels of the job run between those of a batch, so the queue grows.
        self.assertGreater(got["one", "native", "server.batch"], 7.9)
        self.assertLess(got["one", "native", "server.served"], 60)
        self.assertEqual(got["one", "native", "server.goodput"], 0)
        self.assertGreater(got["one", "gpushare", "server.batch"], 6)
        self.assertGreater(got["one", "gpushare", "server.served"], 95)
        self.assertGreater(got["one", "gpushare", "server.goodput_ratio"], 0.9)
        self.assertLess(got["one", "gpushare", "server.p99_ratio"], got["one", "native", "server.p99_ratio"])

    def test_the_callers_environment_has_no_say(self):
        got = self.figures(self.path("cap.yaml", CAP), "--method", "native", "--method", "gpushare-preload",
                           CUDA_VISIBLE_DEVICES="", CUDA_DEVICE_SM_LIMIT="10", GPUSHARE_SIM="sms=1",
                           GPUSHARE_SPEC="compute=5%", GPUSHARE_BROKER="/nowhere/broker.sock")
        self.assertGreater(got["one", "native", "capped.share"], 95)
        self.assertAlmostEqual(got["one", "gpushare-preload", "capped.share"], 30, delta=2)

    def driver(self):
        """The simulated GPU's driver, for programs whose driver the loader finds."""
        return str(pathlib.Path(COMMAND).parent.parent / "lib/gpushare/sim/libcuda.so.1")

    def test_on_a_driver_that_is_found_kernels_are_the_witness(self):
        # On the virtual clock the results match the simulated GPU's own account.
        scenarios = [self.path("share.yaml", SHARE), self.path("cap.yaml", CAP), self.path("harvest.yaml", HARVEST),
                     self.path("reclaim.yaml", RECLAIM)]
        methods = [word for name in ("native", "gpushare", "gpushare-spatial") for word in ("--method", name)]
        said = self.figures(*scenarios, *methods, "--gpu", "0", GPUSHARE_DRIVER=self.driver())
        truth = self.figures(*scenarios, *methods)
        self.assertEqual(said.keys(), truth.keys())
        for figure in truth:
            if figure[2].endswith(("share", "busy", "work", "left_over", "harvest", "taken", "busy_away")):
                self.assertAlmostEqual(said[figure], truth[figure], delta=1.5, msg=figure)

    def test_what_breaks_on_a_driver_that_is_found(self):
        # One kernel writes to an invalid address and one spins for ever; the GPU is not told in advance.
        kinds = {"illegal": "kind: illegal-address", "killed": "kind: killed", "half": "kind: endless-kernel, sms: 66",
                 "whole": "kind: endless-kernel, sms: 132", "memory": "kind: all-memory"}
        scenarios = [self.path(f"{name}.yaml", FAULTS.replace("name: one", f"name: {name}").replace("FAULT", kind))
                     for name, kind in kinds.items()]
        apart = FAULTS.replace("name: breaks,", "name: breaks, isolation: context,").replace("name: one", "name: apart")
        scenarios.append(self.path("apart.yaml", apart.replace("FAULT", "kind: illegal-address")))
        methods = "--method", "native", "--method", "gpushare"
        said = self.figures(*scenarios, *methods, "--gpu", "0", GPUSHARE_DRIVER=self.driver(), GPUSHARE_SIM="memory=8GiB")
        truth = self.figures(*scenarios, *methods)
        self.assertEqual(said.keys(), truth.keys())
        for figure in truth:
            self.assertAlmostEqual(said[figure], truth[figure], delta=1.5 if figure[2] != "other.recovery" else 10, msg=figure)
        self.assertEqual([said[name, "gpushare", "failed"] for name in ("illegal", "killed", "apart", "half")], [1, 1, 0, 0])

    def test_memory_of_processes_on_a_driver_that_is_found(self):
        # The device reports what all processes have together, so no process waits inside another's call.
        got = self.figures(self.path("memory.yaml", MEMORY), "--gpu", "0", *(
            word for name in ("time-slicing", "gpushare-preload") for word in ("--method", name)), GPUSHARE_DRIVER=self.driver(),
            GPUSHARE_SIM=f"clock=wall,memory=8GiB,shared=bench-memory-{os.getpid()}")
        self.assertEqual([got["both", "gpushare-preload", figure] for figure in (
            "greedy.granted", "greedy.refused", "greedy.most_over", "fitting.granted", "fitting.most_over", "hurt")],
            [100, 100, 0, 100, 0, 0])
        self.assertGreater(got["both", "time-slicing", "greedy.most_over"], 1000)
        self.assertEqual(got["both", "time-slicing", "fitting.most_over"], 0)
        self.assertGreater(got["both", "time-slicing", "hurt"], 0)

    def test_processes_on_a_driver_that_is_found(self):
        # On the machine's clock no result can be asserted.
        out = self.path("out.jsonl")
        scenarios = self.path("share.yaml", SHARE), self.path("faults.yaml", FAULTS.replace("FAULT", "kind: killed"))
        result = self.bench("run", *scenarios, "--gpu", "0", "--repetitions", "1", "--out", out, *(
            word for name in ("time-slicing", "gpushare-preload", "native") for word in ("--method", name)),
            LD_LIBRARY_PATH=os.path.dirname(self.driver()), GPUSHARE_COMMIT="abcdef", GPUSHARE_DRIVER="",
            GPUSHARE_SIM=f"clock=wall,shared=bench-test-{os.getpid()}")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        where, *runs = map(json.loads, pathlib.Path(out).read_text().splitlines())
        self.assertEqual((where["gpu"], where["driver"].split(",")[0], where["commit"]),
                         ("Simulated H200", "the simulated GPU's", "abcdef"))
        for run in runs:
            figures = {each["name"]: each["value"] for each in run["figures"]}
            if run["scenario"] == "faults":
                # The tenant that fails has its own process here; natively it takes the other one along.
                self.assertEqual(figures["failed"], 1 if run["method"] == "native" else 0, run)
                self.assertGreater(figures["other.before"], 0)
                (self.assertEqual if run["method"] == "native" else self.assertGreater)(figures["other.after"], 0)
                continue
            self.assertAlmostEqual(figures["a.share"] + figures["b.share"], 100, delta=0.1)
            self.assertGreater(figures["busy"], 0)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["faults.yaml", "out.jsonl", "share.yaml"])

    def test_who_takes_turns_has_what_its_turns_were(self):
        # Kernels of different lengths that stand still during the others' turns: half each, and nothing during the
        # changes. On the machine's clock the changes may be late by some turns.
        scenario = self.path("turns.yaml", TURNS)
        out = self.path("turns.jsonl")
        result = self.bench("run", scenario, "--gpu", "0", "--repetitions", "1", "--out", out, "--method", "time-slicing",
                            LD_LIBRARY_PATH=os.path.relpath(os.path.dirname(self.driver())), GPUSHARE_DRIVER="",
                            GPUSHARE_SIM=f"clock=wall,shared=bench-test-{os.getpid()}")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        run = json.loads(pathlib.Path(out).read_text().splitlines()[1])
        figures = {each["name"]: each["value"] for each in run["figures"]}
        self.assertAlmostEqual(figures["a.share"], 50, delta=6)
        self.assertLess(figures["busy"], 98)

    def mps(self):
        return {"PATH": self.folder.name + os.pathsep + os.environ["PATH"], "GPUSHARE_DRIVER": self.driver(),
                "GPUSHARE_SIM": f"clock=wall,shared=bench-mps-{os.getpid()}"}

    def test_mps_is_started_and_ended(self):
        scenario = self.path("share.yaml", SHARE)
        result = self.bench("run", scenario, "--method", "mps", "--repetitions", "1")
        self.assertIn("mps not supported: the simulated GPU has no MPS", result.stdout)
        result = self.bench("run", scenario, "--method", "mps", "--repetitions", "1", "--gpu", "0", **self.mps())
        self.assertIn("mps not supported: there is no nvidia-cuda-mps-control on the PATH", result.stdout)
        os.chmod(self.path("nvidia-cuda-mps-control", MPS_CONTROL), 0o755)
        result = self.bench("run", scenario, "--method", "mps", "--repetitions", "1", "--gpu", "0", **self.mps())
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn("worst_error", result.stdout)
        self.assertTrue(os.path.exists(self.path("mps-quit")))
        self.assertRegex(pathlib.Path(self.path("mps-device")).read_text(), "^GPU-")
        self.assertEqual(programs(self.folder.name + "/gpushare-bench-"), [])

    def test_an_mps_that_does_not_quit_is_ended_and_so_is_one_whose_harness_was_killed(self):
        os.chmod(self.path("nvidia-cuda-mps-control", MPS_CONTROL), 0o755)
        self.path("mps-deaf", "")
        scenario = self.path("share.yaml", SHARE)
        result = self.bench("run", scenario, "--method", "mps", "--repetitions", "1", "--gpu", "0", **self.mps())
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        mine = lambda: programs(self.folder.name + "/nvidia-cuda-mps-control")  # noqa: E731
        self.assertEqual(mine(), [])
        scenario = self.path("share.yaml", SHARE.replace("400ms", "600s"))
        running = subprocess.Popen([COMMAND, "bench", "run", scenario, "--method", "mps", "--gpu", "0"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "TMPDIR": self.folder.name, **self.mps()})
        self.assertTrue(until(mine))
        running.kill()
        running.wait()
        self.assertTrue(until(lambda: mine() == []))

    def start(self, *arguments):
        """Starts a run that does not end by itself, and waits until its programs have begun."""
        scenario = self.path("share.yaml", SHARE.replace("400ms", "600s"))
        running = subprocess.Popen([COMMAND, "bench", "run", scenario, "--method", "gpushare-preload", *arguments],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TMPDIR": self.folder.name})
        self.addCleanup(running.stderr.close)
        self.assertTrue(until(lambda: len(programs(self.folder.name + "/gpushare-bench-")) == 3))  # including the broker
        # The simulated GPU that they share.
        self.shared = [pathlib.Path(place, f"gpushare-sim-{os.geteuid()}", each.name) for place in ("/dev/shm", "/tmp")
                       for each in pathlib.Path(self.folder.name).glob("gpushare-bench-*")]
        return running

    def test_interrupted_it_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                running = self.start("--out", self.path("out.jsonl"), "--force")
                for _ in range(1000):  # timeout(1) sends it twice
                    running.send_signal(number)
                said = running.stderr.read()
                self.assertEqual((running.wait(), said), (-number, "gpushare bench: interrupted\n"))
                self.assertEqual(programs(self.folder.name + "/gpushare-bench-"), [])
                self.assertEqual(sorted(os.listdir(self.folder.name)), ["out.jsonl", "share.yaml"])
                self.assertEqual(self.bench("show", self.path("out.jsonl")).returncode, 0)
                self.assertEqual([path for path in self.shared if path.exists()], [])

    def test_killed_its_programs_end_with_it(self):
        running = self.start()
        running.kill()
        running.wait()
        self.assertTrue(until(lambda: programs(self.folder.name + "/gpushare-bench-") == []))
        for path in self.shared:  # so nobody could open it
            path.unlink(missing_ok=True)

    def test_what_others_wrote_is_shown_without_garbling_the_terminal(self):
        out = self.path("out.jsonl")
        self.bench("run", self.path("cap.yaml", CAP), "--method", "native", "--repetitions", "1", "--out", out)
        text = pathlib.Path(out).read_text().replace("capped.share", "\\u001b[31mred").replace('"native"', '"\\u001b[2J"')
        bad = self.path("bad.jsonl", text)
        for arguments in (("show", bad), ("compare", bad, bad)):
            shown = self.bench(*arguments).stdout
            self.assertIn("\\x1b[31mred", shown)
            self.assertNotIn("\x1b", shown)

    def test_what_a_library_has_no_word_for_and_one_that_is_not_there(self):
        out = self.path("out.jsonl")
        result = self.bench("run", self.path("cap.yaml", CAP), "--method", "mute=/nowhere/libmute.so",
                            "--method", "gpushare", "--repetitions", "1", "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("mute not supported: no cap", result.stdout)
        self.assertIn("30", result.stdout)

    def test_one_that_hangs_does_not_keep_the_others(self):
        # No machine simulates so many of such short kernels in a second.
        scenario = self.path("cap.yaml", CAP.replace("500ms", "600s").replace("40us 120us 80us", "1us"))
        result = self.bench("run", scenario, "--method", "native", "--repetitions", "1", "--limit", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("native failed: it had not ended after 1 s", result.stdout)

    def library(self, source):
        """Compiles the C code to a library to be preloaded."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        library = self.path("libother.so")
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=source, text=True, check=True)
        return library

    def test_one_that_crashes_or_is_not_there_does_not_keep_the_others(self):
        crashes = self.library("#include <stdlib.h>\n__attribute__((constructor)) static void go(void) "
                               "{ if (getenv(\"CRASH\")) abort(); }")
        out = self.path("out.jsonl")
        result = self.bench("run", self.path("cap.yaml", CAP), "--method", f"crashes={crashes},CRASH=%CAP%", "--method",
                            "gpushare", "--repetitions", "1", "--out", out)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("crashes failed: tenant capped was ended by signal 6", result.stdout)
        runs = {run["method"]: run for run in map(json.loads, pathlib.Path(out).read_text().splitlines()[1:])}
        self.assertIn("signal 6", runs["crashes"]["error"])
        self.assertTrue(runs["gpushare"]["figures"])

    def test_one_that_ends_as_if_all_were_well_is_told_by_its_name(self):
        ends = self.library("#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
                            "__attribute__((constructor)) static void go(void) "
                            "{ if (getenv(\"ENDS\")) { fprintf(stderr, \"no licence\\n\"); _exit(0); } }")
        result = self.bench("run", self.path("cap.yaml", CAP), "--method", f"ends={ends},ENDS=%CAP%", "--method",
                            "gpushare", "--repetitions", "1")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("ends failed: tenant capped ended before it had told what came of its run: no licence", result.stdout)
        self.assertIn("capped.share", result.stdout)

    def test_one_that_writes_where_its_program_tells_of_the_run_does_not_keep_the_others(self):
        writes = self.library("""
            #include <fcntl.h>
            #include <stdlib.h>
            #include <sys/stat.h>
            #include <unistd.h>
            __attribute__((constructor)) static void go(void) {
              if (!getenv("TO")) return;
              int made = *getenv("WHAT") == 'p' ? mkfifo(getenv("TO"), 0600) : open(getenv("TO"), O_CREAT | O_WRONLY, 0600);
              if (made < 0 || (*getenv("WHAT") == 't' && write(made, "not this", 8) != 8)) abort();
              if (*getenv("WHAT") == 'l' && ftruncate(made, 1L << 40)) abort();
              _exit(0);
            }""")
        methods = [text for what in ("pipe", "text", "long")
                   for text in ("--method", f"{what}={writes},WHAT={what},CAP=%CAP%,TO=%FOLDER%/outcome-0")]
        result = self.bench("run", self.path("cap.yaml", CAP), *methods, "--method", "native", "--repetitions", "1")
        self.assertEqual(result.returncode, 1, result.stderr)
        for what, why in (("pipe", "it is no file"), ("text", "outcome: it is no JSON"), ("long", "it is more than 2 GiB")):
            self.assertIn(f"{what} failed: tenant capped told of its run what cannot be read: {why}\n", result.stdout)
        self.assertRegex(result.stdout, r"capped.share +% +100 ")

    def test_a_library_is_told_who_its_tenant_is_and_where_its_files_may_be(self):
        writes = self.library("#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void go(void) "
                              "{ FILE* f = fopen(getenv(\"STATE\"), \"w\"); if (!f || fclose(f)) abort(); }")
        result = self.bench("run", self.path("share.yaml", SHARE), "--method",
                            f"other={writes},STATE=%FOLDER%/%TENANT%-%SHARE%.state", "--repetitions", "1")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["libother.so", "share.yaml"])

    def test_a_library_has_its_server_and_its_word_for_a_priority(self):
        """Each run has its own server, from before its programs begin until they have ended."""
        asks = self.library("#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
                            "__attribute__((constructor)) static void go(void) { const char* its = getenv(\"ITS\");"
                            " if (!its) return; if (access(its, F_OK) != 0) abort();"
                            " if (strcmp(getenv(\"LEVEL\"), strstr(getenv(\"WHO\"), \"online\") ? \"9\" : \"1\") != 0) abort(); }")
        diary = self.path("diary")
        method = f"other={asks},ITS=%FOLDER%/socket,WHO=%TENANT%,LEVEL=%PRIORITY:9:1%"
        server = (f"trap 'echo ended >> {diary}; exit' TERM; touch %FOLDER%/socket; echo began >> {diary}; touch %READY%; "
                  "while :; do sleep 0.01; done")
        result = self.bench("run", self.path("harvest.yaml", HARVEST), "--method", method, "--server", f"other={server}",
                            "--repetitions", "2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("online.p99_ratio", result.stdout)
        self.assertEqual(pathlib.Path(diary).read_text().split(), ["began", "ended"] * 2)
        # A server that ends is a row, and the others go on.
        for command in "echo no room >&2; exit 3", "touch %FOLDER%/socket %READY%; sleep 0.05":
            result = self.bench("run", self.path("harvest.yaml", HARVEST.replace("500ms", "20s")), "--method", method,
                                "--method", "gpushare", "--server", f"other={command}", "--repetitions", "1")
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn("other failed: the server of other ended with status", result.stdout)
            self.assertRegex(result.stdout, r"\nn +1 +-\n")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["diary", "harvest.yaml", "libother.so"])

    def test_all_of_a_servers_command_ends_with_a_harness_that_is_killed(self):
        """A shell learns of the harness's end, but the processes that the harness has started do not."""
        diary = pathlib.Path(self.path("diary"))
        server = f"sh -c 'echo $$ >> {diary}; while :; do sleep 0.05; done'; true"
        harness = subprocess.Popen([COMMAND, "bench", "run", self.path("harvest.yaml", HARVEST.replace("500ms", "20s")),
                                    "--method", f"other={self.library('int unused;')},L=%PRIORITY:9:1%", "--server", f"other={server}",
                                    "--repetitions", "1"],
                                   env={**os.environ, "TMPDIR": self.folder.name}, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        for _ in range(1000):
            if harness.poll() is not None or (diary.exists() and diary.read_text(encoding="ascii").split()):
                break
            time.sleep(0.02)
        harness.kill()
        said = harness.communicate()[0]
        self.assertTrue(diary.exists(), said)
        [pid] = diary.read_text(encoding="ascii").split()
        for _ in range(500):
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":
                return
            time.sleep(0.02)
        os.kill(int(pid), signal.SIGKILL)
        self.fail("what the server started outlived the harness")

    def test_what_a_library_costs_that_answers_for_dlsym_too(self):
        # It returns its own function for every launch that is looked up, through any object: the driver in the
        # comparison must be the real one.
        slow = self.library("""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <string.h>
            typedef void *(*Dlsym)(void *, const char *);
            typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
            static void *own(void *handle, const char *name) {
              static Dlsym real;
              if (!real) real = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
              if (!real) real = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
              return real(handle, name);
            }
            int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                               void *stream, void **params, void **extra) {
              static Launch real;
              if (!real) real = (Launch)own(RTLD_NEXT, "cuLaunchKernel");
              for (volatile int i = 0; i < 20000; ++i) {}
              return real(f, x, y, z, bx, by, bz, shared, stream, params, extra);
            }
            void *dlsym(void *handle, const char *name) {
              return strcmp(name, "cuLaunchKernel") == 0 ? (void *)cuLaunchKernel : own(handle, name);
            }
            """)
        got = self.figures(self.path("overhead.yaml", OVERHEAD), "--method", "native", "--method", f"slow={slow}")
        self.assertGreater(got["one", "slow", "launch.host_ratio"], 5)
        self.assertLess(got["one", "slow", "alloc_free.host_ratio"], 3)

    def test_a_library_that_is_not_there(self):
        # The loader continues without the library, so the results of native must not be attributed to it.
        for library, why in (("/nowhere/libother.so", "/nowhere/libother.so: No such file or directory"),
                             (self.path("text.so", "no library"), "cannot be preloaded")):
            result = self.bench("run", self.path("cap.yaml", CAP), "--method", f"other={library},LIMIT=%CAP%", "--method",
                                "gpushare", "--repetitions", "1")
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertRegex(result.stdout, f"other failed: .*{why}")
            self.assertIn("capped.share", result.stdout)

    def test_a_full_disk(self):
        scenario = self.path("cap.yaml", CAP)
        result = self.bench("run", scenario, "--method", "native", "--repetitions", "1", "--out", "/dev/full")
        self.assertEqual((result.returncode, result.stdout), (5, ""), result.stderr)  # nothing was run in vain
        self.assertIn("cannot write /dev/full: No space left on device; it ended there, and 0 runs are in the results",
                      result.stderr)

    def test_a_full_disk_for_a_runs_files(self):
        scenario, disk = self.path("cap.yaml", CAP), self.path("disk")
        os.mkdir(disk)
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
        mount = f"mount -t tmpfs -o size=32k tmpfs {disk}"
        if shutil.which("unshare") is None or subprocess.run([*unshare, mount], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here")
        page = os.sysconf("SC_PAGE_SIZE")
        reasons = set()
        for free in range(32 * 1024 // page):
            fill = f"head -c {32 * 1024 - free * page} /dev/zero > {disk}/fill"
            bench = f"TMPDIR={disk} {COMMAND} bench run {scenario} --method native --repetitions 1"
            result = subprocess.run([*unshare, f"{mount} && {fill} && exec env {bench}"], capture_output=True, text=True,
                                    timeout=200)
            if result.returncode == 0:  # all of it had room
                break
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stdout, "native failed: .*(disk is full|No space left|no room is left in .*TMPDIR)")
            reasons.add(result.stdout.split("failed: ")[1].replace(disk, ""))
        self.assertGreater(len(reasons), 2, "each file that has no room fails in its own way")

    def test_a_disk_that_is_full_in_the_middle_of_a_line(self):
        out = self.path("out.jsonl")
        arguments = ["run", self.path("cap.yaml", CAP), "--method", "native", "--out", out]
        self.bench(*arguments, "--repetitions", "10")
        whole = pathlib.Path(out).read_text().splitlines(keepends=True)
        room = sum(map(len, whole[:8])) + len(whole[8]) // 2

        def with_little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # makes the write fail, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        result = subprocess.run([COMMAND, "bench", *arguments, "--repetitions", "10", "--force"], capture_output=True,
                                text=True, timeout=200, preexec_fn=with_little_room,
                                env={**os.environ, "TMPDIR": self.folder.name})
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn(f"cannot write {out}: File too large; it ended there, and 7 runs are in the results", result.stderr)
        self.assertRegex(result.stdout, r"\nn +8\n")  # the results are shown all the same
        text = pathlib.Path(out).read_text()
        self.assertEqual((text.count("\n"), text[-1]), (8, "\n"))
        self.assertRegex(self.bench("show", out).stdout, r"\nn +7\n")

    def test_results_of_another_version(self):
        out = self.path("out.jsonl")
        self.bench("run", self.path("cap.yaml", CAP), "--method", "native", "--repetitions", "1", "--out", out)
        text = pathlib.Path(out).read_text()
        other = self.path("other.jsonl", text.replace('"gpushare_bench":1', '"gpushare_bench":2'))
        for arguments in (("show", other), ("compare", out, other), ("report", other)):
            result = self.bench(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("other.jsonl:1: results of version 2 given, 1 is what this gpushare reads", result.stderr)
        # The one that was being written when the disk was full.
        cut = self.path("cut.jsonl", text + text.splitlines()[-1][:40])
        self.assertEqual(self.bench("show", cut).stdout, self.bench("show", out).stdout)
        self.assertEqual(self.bench("show", cut).stderr, f"gpushare bench: {cut}: its last line is cut and left out\n")
        self.assertEqual(self.bench("show", out).stderr, "")
        # A report must not overwrite its own input, whatever path names it.
        os.symlink(out, self.path("link"))
        result = self.bench("report", out, "--html", self.path("link"))
        self.assertEqual((result.returncode, pathlib.Path(out).read_text()), (2, text))
        self.assertIn("link' has the results themselves; a report has another name", result.stderr)

    def test_all_that_comes_with_gpushare(self):
        names = self.bench("scenarios").stdout.split()
        self.assertIn("share", names)
        result = self.bench("all", "--gpu", "sim", "--method", "native", "--out", self.path("all.jsonl"), "--html",
                            self.path("all.html"), "--quiet")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        for name in names:
            self.assertRegex(result.stdout, f"(?m)^{name}: .*\n  native: ")
        # One run each: the sentences have no intervals, and a note says how reliable they are.
        self.assertIn("\nGPU: simulated; each case once, short: for a look. Figures to quote, with intervals: ", result.stdout)
        self.assertRegex(result.stdout, r"\b[1-9]\d* requests? that fitted into one refused")  # a count
        runs = [json.loads(line) for line in pathlib.Path(self.path("all.jsonl")).read_text().splitlines()[1:]]
        self.assertEqual(sorted({run["scenario"] for run in runs}), names)
        self.assertEqual([run for run in runs if "error" in run], [])
        self.assertEqual({run["method"] for run in runs}, {"native"})  # like `bench run`: only the methods that are named
        self.assertIn("</html>", pathlib.Path(self.path("all.html")).read_text())
        # The report is written though the text is not.
        with open("/dev/full", "w") as full:
            unread = subprocess.run([COMMAND, "bench", "all", "--method", "native", "--out", self.path("unread.jsonl"), "--html",
                                     self.path("unread.html")], stdout=full, stderr=subprocess.PIPE, text=True, timeout=200)
        self.assertEqual(unread.returncode, 5, unread.stderr)
        self.assertIn("</html>", pathlib.Path(self.path("unread.html")).read_text())
        # Existing results are not lost.
        again = self.bench("all", "--method", "native", "--out", self.path("new.jsonl"), "--html", self.path("all.html"))
        self.assertEqual((again.returncode, "--force" in again.stderr), (5, True), again.stderr)
        self.assertFalse(pathlib.Path(self.path("new.jsonl")).exists())

    def test_some_cases_alone(self):
        cases = [line.split() for line in self.bench("scenarios", "--cases").stdout.splitlines()]
        self.assertEqual(sorted({scenario for scenario, _ in cases}), self.bench("scenarios").stdout.split())
        out = self.path("out.jsonl")
        result = self.bench("run", "cap", "reclaim", "--case", "fifty", "--case", "ten", "--method", "native", "--repetitions", "1",
                            "--out", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        runs = [json.loads(line) for line in pathlib.Path(out).read_text().splitlines()[1:]]
        self.assertEqual(sorted((run["scenario"], run["case"]) for run in runs), [("cap", "fifty"), ("cap", "ten")])
        result = self.bench("run", "cap", "--case", "fifty", "--case", "sixty")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, "gpushare bench: --case 'sixty': there is none; cases: ten, thirty, fifty, eighty\n")

    def test_scenarios_of_a_folder_of_traces(self):
        os.mkdir(self.path("traces"))
        for name, kernels in (("bert_b2_inference", 3), ("resnet50_b32_training", 2), ("gpt", 4)):
            self.path(f"traces/{name}.csv", "kernel,bound,sms,duration_ns\n" + "k,compute,132,50000\n" * kernels)
        make = [sys.executable, pathlib.Path(__file__).parents[2] / "bench" / "traces" / "pairs.py", self.path("traces"), "--out",
                self.path("made"), "--three"]
        refused = subprocess.run([*make, "bert,resnet50,vgg"], capture_output=True, text=True)
        self.assertEqual((refused.returncode, "'vgg' is the begin of 0 of" in refused.stderr), (1, True), refused.stderr)
        subprocess.run([*make, "gpt,bert,resnet50_b32"], check=True)
        for name, cases in (("pairs", 3 * 2 + 1), ("services", 2)):
            made = pathlib.Path(self.path(f"made/{name}.yaml"))
            made.write_text(re.sub("length: .*", "length: 300ms", made.read_text()).replace("warm_up: 1s", "warm_up: 100ms")
                            .replace("window: 1s", "window: 100ms"))
            result = self.bench("run", str(made), "--method", "gpushare", "--repetitions", "1")
            self.assertEqual((result.returncode, result.stdout.count(f"{name}: ")), (0, cases), result.stderr)

    def test_a_scenario_by_its_name_and_short(self):
        # Whatever the working directory contains.
        os.mkdir(self.path("cap"))
        result = subprocess.run([COMMAND, "bench", "run", "cap", "--short", "--method", "native", "--repetitions", "1"],
                                capture_output=True, text=True, timeout=200, cwd=self.folder.name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cap: ten", result.stdout)
        self.assertNotIn("cap: thirty", result.stdout)

    def test_bad_input(self):
        bad = self.path("bad.yaml", CAP.replace("cap: 30%", "cap: 130%"))
        for arguments, status, word in (
                ([], 2, "subcommand"),
                (["run"], 2, "scenarios"),
                (["run", bad], 2, "cases[0].tenants[0].cap: '130%' given; allowed: 0.01% to 100%"),
                (["run", self.path("nothing.yaml")], 2, "nothing.yaml"),
                (["run", "speed"], 2, "there is no file and no scenario 'speed'; scenarios: cap, "),
                (["run", "cap", "--gpu", "real"], 2, "'real' given, sim, an ordinal, a UUID or a PCI id allowed"),
                (["all", "--gpu", "real"], 2, "--gpu"),
                (["all", "--out", "/nowhere/out"], 5, "/nowhere/out"),
                (["all", "--out", self.path("o"), "--html", "/nowhere/page"], 5, "/nowhere/page"),
                (["run", self.path("cap.yaml", CAP), "--method", "turbo"], 2, "no method is called 'turbo'"),
                (["run", self.path("cap.yaml", CAP), "--repetitions", "0"], 2, "--repetitions"),
                (["run", self.path("cap.yaml", CAP), "--repetitions", "100000"], 2, "--repetitions"),
                (["run", self.path("cap.yaml", CAP), self.path("cap.yaml")], 2, "there is a scenario 'cap' already"),
                (["run", self.path("cap.yaml"), "--method", "native", "--method", "native"], 2, "is given twice"),
                (["run", self.path("gpu.yaml", CAP.replace("name: one", "name: one\n    gpu: noize=1"))], 2,
                 "gpu.yaml:8: cases[0].gpu: 'noize=1' given; unknown key 'noize'"),
                (["run", self.path("shared.yaml", CAP.replace("name: one", "name: one\n    gpu: 'sms=8, shared=x'"))], 2,
                 "'shared' differs from run to run"),
                (["run", self.path("cap.yaml", CAP), "--out", "/nowhere/out"], 5, "/nowhere/out"),
                (["show", bad], 2, "bad.yaml:1: it is not what `gpushare bench run --out` writes"),
                (["show", self.path("nothing.jsonl")], 2, "nothing.jsonl"),
                (["report"], 2, "results"),
                (["report", bad], 2, "bad.yaml:1"),
                (["report", self.path("empty.jsonl", ""), "--html", self.path("page")], 2, "no results"),
                (["report", self.path("nothing.jsonl"), "--html", self.path("page")], 2, "nothing.jsonl")):
            result = self.bench(*arguments)
            self.assertEqual(result.returncode, status, (arguments, result.stderr))
            self.assertIn(word, result.stderr)
        for gpu, driver, word in (("0", "/nowhere/libcuda.so.1", "--gpu sim runs on the simulated GPU"),
                                  ("7", self.driver(), "--gpu 7: ")):
            result = self.bench("run", self.path("cap.yaml"), "--gpu", gpu, GPUSHARE_DRIVER=driver)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn(word, result.stderr)
        for folder in (self.path("nowhere"), os.fsencode(self.path("")) + b"\xff"):
            result = self.bench("run", self.path("cap.yaml"), TMPDIR=folder)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("TMPDIR names another", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
