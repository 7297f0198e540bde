#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-suite divided into parts and time slots, and ended in the middle; without a GPU and without its build."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]
SUITE = pathlib.Path(__file__).parents[2] / "scripts" / "gpu-suite"

# Replaces the program of tests/gpu: answers like GoogleTest, and keeps a diary.
TESTS = """#!{python}
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path({folder!r})
options = dict(each.lstrip("-").split("=", 1) for each in sys.argv[1:] if "=" in each)
if "--gtest_list_tests" in sys.argv:
    print("Fake.\\n  A\\n  B\\n  C\\n  D")
    sys.exit()
name = options["gtest_filter"]
(here / "found").write_text(os.environ.get("LD_LIBRARY_PATH", ""))
with open(here / "diary", "a") as diary:
    diary.write(name + "\\n")
if (here / "hangs").exists() and name == (here / "hangs").read_text():
    child = subprocess.Popen(["sleep", "600"])
    (here / "child").write_text(str(child.pid))
    time.sleep(600)
fails = (here / "fails").exists() and name == (here / "fails").read_text()
case = dict(name=name, result="COMPLETED", share="74.5", failures=[dict(failure="too little")] if fails else [])
pathlib.Path(options["gtest_output"].removeprefix("json:")).write_text(json.dumps(dict(testsuites=[dict(testsuite=[case])])))
sys.exit(1 if fails else 0)
"""


def until(condition):
    end = time.monotonic() + 60
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[1][0] != "Z"
    except OSError:
        return False


class GpuSuite(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="gpushare-suite-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        build = self.folder / "build" / "gpu-suite"
        for below in "bin", "tests/gpu", "lib":
            (build / below).mkdir(parents=True)
        (build / "build.ninja").write_text("# rules\nbuild gpushare_bench_calibrate: phony\n")
        (build / "bin" / "gpushare").symlink_to(COMMAND)
        self.program(build / "tests/gpu/gpushare_gpu_test", TESTS.format(python=sys.executable, folder=temporary.name))
        self.program(self.folder / "cmake", "#!/bin/sh\necho \"$@\" >> \"$ASKED\"\n[ ! -e \"$SLOW\" ] || exec sleep 600\n")

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def environment(self, **more):
        return {**os.environ, "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}", "SLOW": str(self.folder / "slow"), "ASKED": str(self.folder / "asked"),
                "GPUSHARE_BUILD_DIR": str(self.folder / "build"), "GPUSHARE_COMMIT": "abc123", "GPUSHARE_DEPS": "", **more}

    def words(self, *arguments):
        return [sys.executable, SUITE, "--out", self.folder / "out", *arguments]

    def suite(self, *arguments, status=0, **more):
        done = subprocess.run(self.words(*arguments), capture_output=True, text=True, timeout=200, env=self.environment(**more))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def diary(self):
        path = self.folder / "diary"
        return path.read_text().split() if path.exists() else []

    def results(self):
        return json.loads((self.folder / "out" / "suite.json").read_text())

    def test_libraries_of_a_folder(self):
        """Programs find the unpacked libraries there, but not the libraries that these need, so the build runs nothing."""
        libraries = self.folder / "deps" / "usr" / "lib" / "x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        self.suite("--only", "Fake.A", GPUSHARE_DEPS=str(self.folder / "deps"))
        configured = (self.folder / "asked").read_text().splitlines()[0].split()
        self.assertIn(f"-DCMAKE_PREFIX_PATH={(self.folder / 'deps' / 'usr').resolve()}", configured)
        self.assertIn("-DGPUSHARE_BUILD_COMPLETION=OFF", configured)
        self.assertIn(str(libraries.resolve()), (self.folder / "found").read_text().split(":"))
        self.assertIn("which has no folder usr: unpack the packages there",
                      subprocess.run(self.words("--only", "Fake.A"), capture_output=True, text=True, timeout=60,
                                     env=self.environment(GPUSHARE_DEPS="/nowhere")).stderr)

    def test_what_is_built_already_is_not_built(self):
        self.suite("--only", "Fake.A", "--built", self.folder / "build" / "gpu-suite")
        self.assertFalse((self.folder / "asked").exists())
        self.assertEqual(self.results()["steps"]["Fake.A"]["status"], "passed")
        nothing = subprocess.run(self.words("--built", self.folder), capture_output=True, text=True, timeout=60,
                                 env=self.environment())
        self.assertEqual(nothing.returncode, 1)
        self.assertIn("has no tests/gpu/gpushare_gpu_test", nothing.stderr)

    def test_what_has_finished_is_not_repeated(self):
        (self.folder / "fails").write_text("Fake.C")
        self.assertIn("3 of 4 steps passed or skipped, 1 failed, 0 left to do", self.suite("--only", "^Fake", status=1))
        told = self.results()
        self.assertEqual((told["schema"], told["tool"], told["commit"]), (1, "gpu-suite", "abc123"))
        self.assertEqual(told["steps"]["Fake.A"]["figures"], {"share": 74.5})
        self.assertEqual((told["steps"]["Fake.C"]["status"], told["steps"]["Fake.C"]["reason"]), ("failed", "too little"))
        self.suite("--only", "^Fake", status=1)
        self.assertEqual(self.diary(), ["Fake.A", "Fake.B", "Fake.C", "Fake.D"])
        # Of repeated parts, the results of the others stay.
        (self.folder / "fails").unlink()
        self.suite("--only", "Fake.C", "--again")
        self.assertEqual(self.diary()[4:], ["Fake.C"])
        self.assertEqual({name: each["status"] for name, each in self.results()["steps"].items()},
                         {"build": "passed", **{f"Fake.{name}": "passed" for name in "ABCD"}})

    def test_parts_are_all_of_it_and_each_once(self):
        whole = self.suite("--list").splitlines()
        parts = [self.suite("--list", "--part", f"{n}/3").splitlines() for n in (1, 2, 3)]
        steps = [line for line in whole if line.startswith(("facts", "calibrate", "Fake.", "bench:"))]
        self.assertGreater(len(steps), 10)
        self.assertEqual(sorted(line for part in parts for line in part if line in steps), sorted(steps))

    def test_ended_in_the_middle_it_leaves_nothing_running_and_goes_on_there(self):
        (self.folder / "hangs").write_text("Fake.B")
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                child = self.folder / "child"
                child.unlink(missing_ok=True)
                running = subprocess.Popen(self.words("--only", "^Fake"), stdout=subprocess.DEVNULL, env=self.environment())
                self.assertTrue(until(child.exists) and until(child.read_text))
                running.send_signal(number)
                self.assertEqual(running.wait(timeout=60), 128 + number)
                self.assertTrue(until(lambda: not is_there(child.read_text())))
                self.assertEqual(list(self.results()["steps"]), ["build", "Fake.A"])
        (self.folder / "hangs").unlink()
        self.suite("--only", "^Fake")
        self.assertEqual(self.diary(), ["Fake.A", "Fake.B", "Fake.B", "Fake.B", "Fake.C", "Fake.D"])

    def test_a_limit_leaves_the_rest_for_the_next_call(self):
        (self.folder / "hangs").write_text("Fake.B")
        self.assertIn("1 of 4 steps passed or skipped, 0 failed, 3 left to do",
                      self.suite("--only", "^Fake", "--limit", "12", status=3))
        self.assertNotIn("Fake.B", self.results()["steps"])
        (self.folder / "hangs").unlink()
        self.suite("--only", "^Fake", "--limit", "100")
        self.assertEqual(self.diary(), ["Fake.A", "Fake.B", "Fake.B", "Fake.C", "Fake.D"])
        # Likewise for an end that the build reaches: the part has not failed.
        (self.folder / "slow").touch()
        self.assertIn("the limit was reached during the build", self.suite("--again", "--limit", "1", status=3))
        self.assertEqual(self.results()["steps"]["build"]["status"], "passed")

    def test_results_of_other_sources_are_kept_beside(self):
        self.suite("--only", "Fake.A")
        self.suite("--only", "Fake.B", GPUSHARE_COMMIT="def456")
        self.assertEqual(list(self.results()["steps"]), ["build", "Fake.B"])
        kept = json.loads((self.folder / "out" / "suite-abc123.json").read_text())
        self.assertEqual(list(kept["steps"]), ["build", "Fake.A"])
        (self.folder / "out" / "suite.json").write_text("{")  # written by another program
        self.suite("--only", "Fake.C")
        self.assertEqual((self.folder / "out" / "suite-unreadable.json").read_text(), "{")

    def test_a_full_disk(self):
        self.suite("--only", "Fake.A")
        (self.folder / "out" / "suite.part").symlink_to("/dev/full")
        done = subprocess.run(self.words("--only", "^Fake"), capture_output=True, text=True, timeout=200, env=self.environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn("suite.json: No space left on device; what was measured before", done.stderr)
        self.assertEqual(list(self.results()["steps"]), ["build", "Fake.A"])

    def test_scenarios_on_the_card_that_the_loader_finds(self):
        driver = str(pathlib.Path(COMMAND).resolve().parent.parent / "lib/gpushare/sim/libcuda.so.1")
        said = self.suite("--only", "^calibrate|^bench:reclaim$", "--driver", driver)
        self.assertIn("2 of 2 steps passed or skipped", said)
        steps = self.results()["steps"]
        self.assertEqual(steps["calibrate"]["figures"]["sms"], 132)
        self.assertIn("settings:", steps["calibrate"]["profile"])
        methods = {figure.split(".")[1] for figure in steps["bench:reclaim"]["figures"]}
        self.assertLessEqual({"native", "gpushare", "gpushare-preload"}, methods)
        shown = subprocess.run([COMMAND, "bench", "show", self.folder / "out" / "bench-reclaim.jsonl"], capture_output=True, text=True,
                               timeout=60, check=True)
        self.assertIn("returns.reclaim", shown.stdout)


if __name__ == "__main__":
    unittest.main()
