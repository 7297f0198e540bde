#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare bench calibrate`: on a simulated GPU it finds the declared costs."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]

# No setting has its default, and no two figures are equal.
ODD = {
    "name": "Odd Card 7", "sms": "37", "memory": "9GiB", "compute_capability": "8.6", "max_threads_per_sm": "1536",
    "shared_per_sm": "100KiB", "pool_granule": "8MiB", "page": "4MiB", "h2d": "11.5GB/s", "d2h": "9.25GB/s", "d2d": "417GB/s",
    "launch_host": "7300ns", "call_host": "850ns", "query_host": "420ns", "record_host": "2100ns", "record_device": "3700ns",
    "launch_latency": "5600ns", "sync_return": "9100ns", "first_launch_host": "83us", "first_launch_device": "41us",
    "queue_depth": "300", "slice": "3700us", "slice_switch": "260us", "teardown": "37ms", "overlap": "serial"}
# The tolerance of each figure as a fraction; figures that are not listed are exact. A copy ends at a whole
# nanosecond, the host polls for the end of a kernel and for free memory, and a pause begins in the middle of a
# kernel.
WITHIN = {"h2d": 1e-4, "d2h": 1e-4, "d2d": 1e-4, "launch_latency": 5e-3, "sync_return": 5e-3, "slice": 1e-3,
          "slice_switch": 5e-3, "teardown": 5e-3}
# On the machine's clock the host's times are the machine's, and the device keeps its own. Another process's turns and
# end are noticed late there.
OF_THE_HOST = {"launch_host", "call_host", "query_host", "record_host", "launch_latency", "sync_return",
               "first_launch_host", "slice", "slice_switch", "teardown"}
UNITS = {"": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB/s": 1}


def number(text):
    """The value of a setting in ns, bytes or GB/s; words are unchanged."""
    match = re.fullmatch(r"([0-9.]+) ?([A-Za-z/]*)", text)
    return float(match[1]) * UNITS[match[2]] if match and match[2] in UNITS else text


def sections(text):
    """Reads a profile as it is written: two levels."""
    found, section = {}, None
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        key, value = line.strip().split(":", 1)
        value = value.strip()
        if value.startswith('"'):
            value = json.loads(value)
        if line[0] != " ":
            section = found[key] = {} if not value else value
        else:
            section[key] = value
    return found


def median(profile, figure):
    return float(re.search(r"median: ([-0-9.e+]+)", profile["measured"][figure])[1])


class Bed(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(lambda: subprocess.run(["rm", "-rf", self.folder], check=True))
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def environment(self, settings):
        text = ",".join(f"{key}={value}" for key, value in settings.items())
        return {**os.environ, "GPUSHARE_SIM": text, "TMPDIR": str(self.temporary)}

    def run_command(self, *arguments, status=0, **settings):
        done = subprocess.run([COMMAND, "bench", *arguments], env=self.environment(settings), cwd=self.folder, timeout=200,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(list(self.temporary.iterdir()), [])
        return done

    def calibrate(self, *arguments, **settings):
        return self.run_command("calibrate", "--gpu", "sim", *arguments, **settings)

    def assert_is(self, found, declared, but=(), within=None):
        for key, value in declared.items():
            if key in but:
                continue
            got, wanted = number(found[key]), number(value)
            if isinstance(wanted, str):
                self.assertEqual(got, wanted, key)
            else:
                self.assertAlmostEqual(got, wanted, delta=(within or WITHIN).get(key, 0) * wanted, msg=key)


class CalibrateTest(Bed):
    def test_what_was_declared_is_found(self):
        table = self.calibrate("--out", "odd.yaml", **ODD).stdout
        self.assertRegex(table, r"launch_host +7\.3 us")
        profile = sections((self.folder / "odd.yaml").read_text())
        self.assertEqual(profile["profile"], "1")
        self.assertEqual(profile["from"]["gpu"], "Odd Card 7")
        self.assertEqual(profile["from"]["simulated"], "yes")
        self.assertNotIn("not_measured", profile)
        self.assert_is(profile["settings"], ODD)
        self.assertAlmostEqual(median(profile, "record_back_to_back"), 3700, delta=0.01)
        self.assertAlmostEqual(median(profile, "marker_bias"), 3700, delta=0.01)
        self.assertAlmostEqual(median(profile, "kernel_gap"), 0, delta=0.01)
        self.assertEqual(median(profile, "kernels_at_once"), 1)  # overlap=serial

        # Calibrating a simulated GPU with this profile gives the same profile: nothing is lost on the way.
        self.calibrate("--out", "again.yaml", profile="odd.yaml")
        again = sections((self.folder / "again.yaml").read_text())
        self.assertEqual(set(again["settings"]), set(profile["settings"]))
        self.assert_is(again["settings"], profile["settings"])
        self.assert_is(again["settings"], ODD)

    def test_defaults_are_found(self):
        profile = sections(self.calibrate("--out", "-").stdout)
        self.assert_is(profile["settings"], {
            "name": "Simulated H200", "sms": "132", "memory": "141GiB", "overlap": "footprint", "launch_host": "3us",
            "call_host": "300ns", "record_device": "1us", "queue_depth": "1024", "slice": "2ms", "slice_switch": "100us",
            "teardown": "100ms", "h2d": "50GB/s", "d2d": "2000GB/s", "page": "0B"}, within={**WITHIN, "teardown": 1e-2})
        self.assertEqual(median(profile, "kernels_at_once"), 132)

    def test_on_the_machines_clock_the_device_keeps_its_times(self):
        profile = sections(self.calibrate("--out", "-", **ODD, clock="wall").stdout)
        self.assert_is(profile["settings"], ODD, but=OF_THE_HOST)
        self.assertGreater(number(profile["settings"]["teardown"]), 36e6)  # noticed late, never early

    def test_what_cannot_be_measured_is_said(self):
        told = json.loads(self.calibrate("--json", sms="1", queue_depth="1", memory="64MiB").stdout)
        self.assertEqual(told["failed"], [])
        figures = {each["figure"]: each for each in told["figures"]}
        self.assertEqual(figures["sms"]["median"], 1)
        self.assertEqual(figures["queue_depth"]["setting"], "1")
        self.assertIn("too few commands", figures["record_device"]["not_measured"])
        self.assertNotIn("setting", figures["record_device"])
        profile = sections((self.folder / "gpu-profile.yaml").read_text())
        self.assertNotIn("record_device", profile["settings"])
        self.assertIn("too few commands", profile["not_measured"]["record_device"])
        # The remaining settings are a valid profile.
        self.calibrate("--out", "-", profile="gpu-profile.yaml")

    def test_a_part_that_hangs_costs_that_part(self):
        # Turns of 1 us between kernels of 50 us, on a clock on which every change is a hand-over between processes.
        done = self.calibrate("--limit", "8", slice="1us", slice_switch="0ns", launch_host="1ms", status=1)
        self.assertIn("bench calibrate: part slices: it had not ended after 8 s", done.stderr)
        profile = sections((self.folder / "gpu-profile.yaml").read_text())
        self.assertEqual(profile["not_measured"]["slice"], "it had not ended after 8 s")
        self.assertEqual(profile["settings"]["launch_host"], "1000000ns")
        self.assertIn("teardown", profile["settings"])

    def test_a_full_disk_for_its_files(self):
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
        mount = f"mount -t tmpfs -o size=32k tmpfs {self.temporary}"
        if shutil.which("unshare") is None or subprocess.run([*unshare, mount], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here")
        fill = f"head -c 32k /dev/zero > {self.temporary}/fill"
        done = subprocess.run([*unshare, f"{mount} && {fill} && exec {COMMAND} bench calibrate --gpu sim --quiet"],
                              env=self.environment({}), cwd=self.folder, timeout=200, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "part slices, process . ended with status .*: .*no room is left in .*TMPDIR")
        self.assertNotIn("signal", done.stderr)

    def test_results_are_not_written_over(self):
        (self.folder / "gpu-profile.yaml").write_text("mine\n")
        done = self.calibrate(status=5)
        self.assertIn("'gpu-profile.yaml' is there already; --force writes it anew", done.stderr)
        self.assertEqual((self.folder / "gpu-profile.yaml").read_text(), "mine\n")
        self.calibrate("--force")
        self.assertIn("settings:", (self.folder / "gpu-profile.yaml").read_text())
        self.assertIn("cannot write", self.calibrate("--out", "none/profile.yaml", status=5).stderr)

    def test_what_is_wrong_is_said(self):
        self.assertIn("bad value '0' of 'sms'", self.calibrate(status=2, sms="0").stderr)
        self.assertIn("none.yaml: No such file", self.calibrate(status=2, profile="none.yaml").stderr)
        self.assertIn("'9'", self.calibrate("--device", "9", status=3).stderr)
        self.assertIn("--limit", self.calibrate("--limit", "0", status=2).stderr)

    def test_an_interrupt_leaves_nothing(self):
        running = subprocess.Popen([COMMAND, "bench", "calibrate", "--gpu", "sim"], cwd=self.folder, stderr=subprocess.PIPE,
                                   env=self.environment({"slice": "1us", "slice_switch": "0ns", "launch_host": "1ms"}),
                                   text=True)
        deadline = time.monotonic() + 60
        while not any(self.temporary.glob("*/slices-0.findings-0")):  # the part that takes long
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
        self.assertEqual(running.returncode, -signal.SIGINT)
        self.assertIn("gpushare bench calibrate: interrupted", stderr)
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertFalse((self.folder / "gpu-profile.yaml").exists())


class ProfileTest(Bed):
    """Scenarios that are run with a profile."""

    SCENARIO = """
question: latency
length: 100ms
warm_up: 20ms
window: 20ms
cases:
  - name: one
    gpu: GPU
    tenants: [{name: service, mode: requests, rate: 100/s, arrivals: uniform, work: {kernels: 20us}}]
"""

    def setUp(self):
        super().setUp()
        self.scenario = self.folder / "scenarios" / "one.yaml"
        self.scenario.parent.mkdir()
        for file, latency in (("slow.yaml", "3ms"), ("scenarios/slower.yaml", "7ms")):
            (self.folder / file).write_text(f"profile: 1\nsettings:\n  sync_return: {latency}\n")

    def bench(self, gpu, *arguments, status=0):
        self.scenario.write_text(self.SCENARIO.replace("GPU", gpu))
        return self.run_command("run", "scenarios/one.yaml", "--method", "native", "--repetitions", "1", "--out", "-",
                                *arguments, status=status)

    def latency_ms(self, gpu, *arguments):
        """The GPU of the results, and the median latency of a request, which `sync_return` determines."""
        circumstances, result = map(json.loads, self.bench(gpu, *arguments).stdout.splitlines())
        figures = {each["name"]: each["value"] for each in result["figures"]}
        return circumstances["gpu"], round(figures["service.p50"] / 1000)

    def test_a_case_may_name_one_relative_to_its_scenario(self):
        self.assertEqual(self.latency_ms("sms=66"), ("simulated", 0))
        self.assertEqual(self.latency_ms("profile=slower.yaml,sms=66"), ("simulated", 7))

    def test_the_option_is_for_all_and_a_case_says_more(self):
        self.assertEqual(self.latency_ms("sms=66", "--profile", "slow.yaml"), ("simulated as slow.yaml", 3))
        self.assertEqual(self.latency_ms("sync_return=5ms", "--profile", "slow.yaml"), ("simulated as slow.yaml", 5))
        self.assertEqual(self.latency_ms("profile=slower.yaml", "--profile", "slow.yaml")[1], 7)

    def test_a_bad_one_is_refused_before_the_run(self):
        (self.folder / "scenarios/slower.yaml").write_text("profile: 3\n")
        self.assertIn("a profile of version '3'", self.bench("profile=slower.yaml", status=2).stderr)
        self.assertIn("--profile none.yaml: No such file", self.bench("sms=66", "--profile", "none.yaml", status=2).stderr)
        self.assertIn("has no comma", self.bench("sms=66", "--profile", "a,b", status=2).stderr)


if __name__ == "__main__":
    unittest.main()
