# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs that run a test's orders under a broker."""

import os
import subprocess
import tempfile
import textwrap
import unittest

from command import HERE, PYTHON, python

# Evaluates each line of its input and prints the result.
PROGRAM = """
import sys
from program import *
context()
kernel = spin()
held = {}
def alloc(mib):
    error, pointer = d.cuMemAlloc(mib << 20)
    if int(error) == 0: held.setdefault(mib, []).append(pointer)
    return int(error)
def free(mib): return int(d.cuMemFree(held[mib].pop())[0])
def total(): return ok_pair(d.cuMemGetInfo())[1] >> 20
def left(): return ok_pair(d.cuMemGetInfo())[0] >> 20
def of_device(): return ok(d.cuDeviceTotalMem(0)) >> 20
def of_nvml():
    import pynvml
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total >> 20
def ok_pair(answer):
    assert int(answer[0]) == 0, answer
    return int(answer[1]), int(answer[2])
def work(launches, ms):
    for _ in range(launches): ok(launch(kernel, ms))
    ok(d.cuCtxSynchronize())
    return launches
def launched_until_refused():
    while (result := int(launch(kernel, 1)[0])) == 0: pass
    return result
print("ready", flush=True)
for line in sys.stdin: print(eval(line), flush=True)
"""


class Talks:
    def __init__(self, process):
        self.process = process
        self.line = process.stdout.readline().strip()

    def __call__(self, line=None):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        return self.process.returncode


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-broker-")
        self.addCleanup(self.folder.cleanup)
        self.socket = os.path.join(self.folder.name, "broker")
        self.environment = {**os.environ, "GPUSHARE_BROKER": self.socket, "GPUSHARE_SIM": "memory=16GiB,clock=wall",
                            "PYTHONPATH": HERE}
        self.environment.pop("GPUSHARE_SPEC", None)

    def start(self, arguments, **options):
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        talks = Talks(process)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        self.assertEqual(talks.line, "ready")
        return talks

    def start_program(self, variables):
        return self.start([PYTHON, "-c", textwrap.dedent(PROGRAM)], env={**self.environment, **variables})

    def program(self, tenant="a", **variables):
        return self.start_program({"LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_TENANT": tenant, **variables})

    def initializes(self, **variables):
        """The result of cuInit()."""
        code = "import ctypes\nprint(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        return python(code, command=["env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"]],
                      env={**self.environment, **variables}).stdout
