#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs in processes of their own, on one simulated GPU and its one clock, with a broker between them."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

PYTHON = os.environ["GPUSHARE_PYTHON"]
BROKER = os.environ["GPUSHARE_BROKER_ON_SIM"]
PRELOAD = os.environ["GPUSHARE_PRELOAD"]
SHIM_TESTS = os.environ["GPUSHARE_SHIM_TESTS"]

PROGRAM = """
import json, os, sys
from program import *
sim = simulated()
sim.gpushare_sim_thread_enter(b"main")
sim.gpushare_sim_now.restype = ctypes.c_uint64
now = lambda: sim.gpushare_sim_now() / 1e6
context()
kernel = spin()
def all_are_there():
    # When, in milliseconds of the common clock, all begin: all have said when they were ready, and come to the same.
    folder, count = os.environ["READY"], int(os.environ["READY_COUNT"])
    mine = os.path.join(folder, "ready-%d" % os.getpid())
    with open(mine + ".new", "w") as file: file.write(str(now()))
    os.rename(mine + ".new", mine)
    while True:
        said = [name for name in os.listdir(folder) if name.startswith("ready-") and not name.endswith(".new")]
        if len(said) == count: break
        sim.gpushare_sim_spend(ctypes.c_uint64(1_000_000))
    return max(float(open(os.path.join(folder, name)).read()) for name in said) + 20
START = all_are_there()
def work(each, wait=False, start=0, end=200):
    # Launches kernels of `each` ms from START + start to START + end; how many milliseconds of them were begun.
    sim.gpushare_sim_spend(ctypes.c_uint64(max(0, int((START + start - now()) * 1e6))))
    count = 0
    while now() < START + end:
        ok(launch(kernel, each)); count += 1
        if wait: ok(d.cuCtxSynchronize())
    ok(d.cuCtxSynchronize())
    return count * each
"""


class Processes(unittest.TestCase):
    def together(self, tenants, more=""):
        """Runs one program a tenant, `tenants` being (spec, code), and answers what each printed as JSON."""
        with tempfile.TemporaryDirectory(prefix="gpushare-processes-") as folder:
            socket = os.path.join(folder, "broker.sock")
            name = os.path.basename(folder)
            common = {**os.environ, "PYTHONPATH": SHIM_TESTS, "GPUSHARE_DRIVER": "sim"}

            def environment(place):
                return {**common,
                        "GPUSHARE_SIM": f"memory=16GiB,shared={name},processes={len(tenants) + 1},place={place}{more}"}

            command = [BROKER, socket]
            for i, (spec, _) in enumerate(tenants):
                command += [f"t{i}", spec]
            children = [subprocess.Popen(command, env=environment(0), stderr=subprocess.PIPE, text=True)]
            deadline = time.monotonic() + 20
            while not os.path.exists(socket) and time.monotonic() < deadline:
                time.sleep(0.001)
            for i, (_, code) in enumerate(tenants):
                children.append(subprocess.Popen(
                    [PYTHON, "-c", PROGRAM + textwrap.dedent(code)], text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**environment(i + 1), "GPUSHARE_BROKER": socket, "GPUSHARE_TENANT": f"t{i}",
                         "READY": folder, "READY_COUNT": str(len(tenants)),
                         "LD_PRELOAD": PRELOAD}))
            answers = []
            try:
                for child in children[1:]:
                    out, error = child.communicate(timeout=100)
                    self.assertEqual((child.returncode, error), (0, ""))
                    answers.append(json.loads(out))
                _, error = children[0].communicate(timeout=20)
                self.assertEqual((children[0].returncode, error), (0, ""))
            finally:
                for child in children:
                    child.kill()
                    child.wait()
            return answers

    # Over a second: within 1 pp, as in one process. Of what is missing from the whole second, 100 us of each 4 ms are the
    # GPU's own change of contexts.
    def test_weights_divide_the_device(self):
        code = "print(json.dumps(work({}, end=1000)))"
        a, b = self.together([("weight=3", code.format(1)), ("weight=1", code.format(0.1))])
        self.assertAlmostEqual(a / (a + b), 0.75, delta=0.01)
        self.assertGreater(a + b, 950)

    def test_weights_of_three(self):
        code = "print(json.dumps(work({}, end=1000)))"
        got = self.together([("weight=1", code.format(0.1)), ("weight=1", code.format(1)),
                             ("weight=2", code.format(0.3))])
        for part, want in zip(got, (0.25, 0.25, 0.5)):
            self.assertAlmostEqual(part / sum(got), want, delta=0.01)
        self.assertGreater(sum(got), 950)

    def test_a_cap_alone(self):
        (a,) = self.together([("cap=25%", "print(json.dumps(work(0.5)))")])
        self.assertAlmostEqual(a / 200, 0.25, delta=0.03)  # 5 ms of it were saved up

    def test_a_guarantee_and_a_program_that_waits_for_each(self):
        a, b = self.together([("guarantee=60%", "print(json.dumps(work(0.2, wait=True)))"),
                              ("", "print(json.dumps(work(1)))")])
        self.assertGreater(a / 200, 0.5)

    def test_memory_of_each(self):
        code = """
        pieces = []
        while True:
            answer = d.cuMemAlloc(64 << 20)
            if int(answer[0]) != 0: break
            pieces.append(answer[1])
        print(json.dumps([len(pieces), int(answer[0]), ok(d.cuMemGetInfo()[:1] + (list(d.cuMemGetInfo()[1:]),))]))
        """
        a, b = self.together([("memory=1GiB", code), ("memory=2GiB", code)])
        self.assertEqual(a, [16, 2, [0, 1 << 30]])
        self.assertEqual(b, [32, 2, [0, 2 << 30]])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
