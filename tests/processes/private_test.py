#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare run --broker private`: the processes of one program have its share in common, and its broker leaves nothing
behind."""

import glob
import os
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]
PYTHON = os.environ["GPUSHARE_PYTHON"]

# Allocates as many pieces of 16 MiB as it can, prints their number, and holds them until its input ends.
CHILD = """
import sys
from program import *
context()
pieces = 0
while int(d.cuMemAlloc(16 << 20)[0]) == 0: pieces += 1
print(pieces, flush=True)
sys.stdin.read()
"""
# Starts two children one after the other; each gets as much as it can.
PROGRAM = """
import os, subprocess, sys
assert os.getppid() == int(sys.argv[1]), "its parent is another"
try:
    os.wait()
    print("a child that it did not start")
except ChildProcessError:
    pass
counts = []
children = []
for _ in range(2):
    child = subprocess.Popen([sys.executable, "-c", os.environ["CHILD"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    counts.append(int(child.stdout.readline()))
    children.append(child)
print(counts, os.environ["GPUSHARE_BROKER"])
for child in children: child.communicate("")
sys.exit(7)
"""


class Private(unittest.TestCase):
    def await_empty(self, folder):
        end = time.monotonic() + 60
        while glob.glob(folder + "/*"):
            self.assertLess(time.monotonic(), end, "it is there still")
            time.sleep(0.01)

    def test_the_simulated_gpu_has_the_brokers_clock(self):
        for broker, given, got in (("private", "memory=16GiB", "memory=16GiB,clock=wall"),
                                   ("private", "clock=virtual", "clock=virtual"),
                                   ("private", "shared=a,memory=16GiB", "shared=a,memory=16GiB"),
                                   ("none", "memory=16GiB", "memory=16GiB")):
            done = subprocess.run([COMMAND, "run", "--gpu", "sim", "--broker", broker, "--", "sh", "-c", "echo $GPUSHARE_SIM"],
                                  env={**os.environ, "GPUSHARE_DRIVER": "sim", "GPUSHARE_SIM": given},
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, got + "\n", ""))

    def test_one_share_for_all_processes(self):
        with tempfile.TemporaryDirectory(prefix="gpushare-private-") as folder:
            environment = {**os.environ, "GPUSHARE_DRIVER": "sim", "CHILD": CHILD, "XDG_RUNTIME_DIR": folder,
                           "GPUSHARE_SIM": f"memory=16GiB,clock=wall,shared={os.path.basename(folder)}"}
            done = subprocess.run(
                [COMMAND, "run", "--gpu", "sim", "--broker", "private", "--memory", "1GiB", "--",
                 PYTHON, "-c", PROGRAM, str(os.getpid())],
                env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (7, ""))
            counts, socket = done.stdout.strip().rsplit(" ", 1)
            self.assertEqual(counts, "[64, 0]")
            self.assertTrue(socket.startswith(folder))
            self.await_empty(folder)

    def test_it_awaits_what_a_shell_left_in_the_background(self):
        with tempfile.TemporaryDirectory(prefix="gpushare-private-") as folder:
            runtime, out = os.path.join(folder, "runtime"), os.path.join(folder, "out")
            os.mkdir(runtime)
            environment = {**os.environ, "GPUSHARE_DRIVER": "sim", "CHILD": CHILD, "XDG_RUNTIME_DIR": runtime, "OUT": out,
                           "PYTHON": PYTHON, "GPUSHARE_SIM": f"memory=16GiB,clock=wall,shared={os.path.basename(folder)}"}
            # The child registers long after the shell has ended, and has no descriptor of the shell's.
            late = '(sleep 1; exec "$PYTHON" -c "$CHILD" > "$OUT" 2>&1) < /dev/null > /dev/null 2>&1 & exit 0'
            done = subprocess.run([COMMAND, "run", "--gpu", "sim", "--broker", "private", "--memory", "64MiB", "--",
                                   "sh", "-c", late], env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.await_empty(runtime)
            with open(out) as file:
                self.assertEqual(file.read(), "4\n")

    def test_none(self):
        with tempfile.TemporaryDirectory(prefix="gpushare-private-") as folder:
            done = subprocess.run([COMMAND, "run", "--gpu", "sim", "--memory", "1GiB", "--", PYTHON, "-c",
                                   "import os; print('GPUSHARE_BROKER' in os.environ)"],
                                  env={**os.environ, "XDG_RUNTIME_DIR": folder, "GPUSHARE_DRIVER": "sim"},
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("False\n", "", 0))

    def test_no_place_for_its_socket(self):
        done = subprocess.run([COMMAND, "run", "--gpu", "sim", "--broker", "private", "--memory", "1GiB", "--", "true"],
                              env={**os.environ, "XDG_RUNTIME_DIR": "/nowhere", "TMPDIR": "/nowhere", "GPUSHARE_DRIVER": "sim"},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("XDG_RUNTIME_DIR", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
