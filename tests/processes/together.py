# SPDX-License-Identifier: Apache-2.0
"""Runs programs in separate processes with a broker, on one simulated GPU with one clock: unmodified programs under the preloaded
library, and programs that use the SDK."""

import json
import os
import subprocess
import tempfile
import textwrap
import time
import unittest

PYTHON = os.environ["GPUSHARE_PYTHON"]
BROKER = os.environ["GPUSHARE_BROKER_ON_SIM"]
PRELOAD = os.environ["GPUSHARE_PRELOAD"]
SHIM_TESTS = os.environ["GPUSHARE_SHIM_TESTS"]
PACKAGE = os.environ.get("GPUSHARE_PACKAGE", "")

CLOCK = """
import ctypes, json, os, sys
sim = ctypes.CDLL(os.environ["GPUSHARE_SIMULATED"])
sim.gpushare_sim_thread_enter(b"main")
sim.gpushare_sim_now.restype = ctypes.c_uint64
now = lambda: sim.gpushare_sim_now() / 1e6
def until(when): sim.gpushare_sim_spend(ctypes.c_uint64(max(0, int((START + when - now()) * 1e6))))
def all_are_there():
    # The time in milliseconds of the common clock at which all programs begin. Each writes when it was ready, so all
    # compute the same time.
    folder, count = os.environ["READY"], int(os.environ["READY_COUNT"])
    mine = os.path.join(folder, "ready-%d" % os.getpid())
    with open(mine + ".new", "w") as file: file.write(str(now()))
    os.rename(mine + ".new", mine)
    while True:
        said = [name for name in os.listdir(folder) if name.startswith("ready-") and not name.endswith(".new")]
        if len(said) == count: break
        sim.gpushare_sim_spend(ctypes.c_uint64(1_000_000))
    return max(float(open(os.path.join(folder, name)).read()) for name in said) + 20
"""
PROGRAM = CLOCK + """
from program import *
context()
kernel = spin()
START = all_are_there()
def work(each, wait=False, start=0, end=200):
    # Launches kernels of `each` ms from START + start to START + end. Returns the sum of their lengths in
    # milliseconds.
    until(start)
    count = 0
    while now() < START + end:
        ok(launch(kernel, each)); count += 1
        if wait: ok(d.cuCtxSynchronize())
    ok(d.cuCtxSynchronize())
    return count * each
def fill():
    pieces = []
    while True:
        answer = d.cuMemAlloc(64 << 20)
        if int(answer[0]) != 0: return pieces
        pieces.append(answer[1])
"""
SDK = CLOCK + """
import gpushare
from program import PTX
runtime = gpushare.Runtime()
sim.gpushare_sim_thread_leave()
gpushare.Simulation(runtime).enter("main")  # so that Python knows as well
gpu = gpushare.Gpu(runtime)
spin = gpu.load(PTX)["spin"]
START = all_are_there()
def work(device, each, wait=False, start=0, end=200):
    # The same, on `device`.
    stream = device.stream()
    until(start)
    count = 0
    while now() < START + end:
        stream.launch(spin, 132, 1024, int(each * 1e6)); count += 1
        if wait: stream.synchronize()
    stream.synchronize()
    return count * each
def fill(device, most=1000):
    # Allocates pieces of 64 MiB until there are no more.
    pieces = []
    try:
        while len(pieces) < most: pieces.append(device.alloc("64MiB"))
    except gpushare.QuotaExceededError: pass
    return pieces
def at_once(*bodies):
    # Runs each body on its own thread and returns their results.
    threads = [runtime.start_thread(body) for body in bodies]
    return [thread.join() for thread in threads]
"""


def sdk(code):
    """A program that uses the SDK without the preloaded library."""
    return SDK, {"PYTHONPATH": PACKAGE + ":" + SHIM_TESTS, "LD_PRELOAD": ""}, code


def preloaded_sdk(code):
    return SDK, {"PYTHONPATH": PACKAGE + ":" + SHIM_TESTS, "LD_PRELOAD": PRELOAD}, code


def unmodified(code):
    return PROGRAM, {"LD_PRELOAD": PRELOAD}, code


# Copies of `size` bytes for ever, of which the last `depth` may be in flight, or none when `blocks`. Prints the bytes per
# nanosecond that the simulated GPU has copied for it from START + 100 to START + 400.
COPIES = """
size, depth, blocks, to_host = {size}, {depth}, {blocks}, {to_host}
host, memory, stream = ok(d.cuMemAllocHost(size)), ok(d.cuMemAlloc(size)), ok(d.cuStreamCreate(1))
def copied():
    truth = (ctypes.c_uint64 * 16)()
    assert sim.gpushare_sim_account_truth(0, 0, truth) == 0
    return now(), truth[5 if to_host else 4]
def copy():
    if blocks: return ok(d.cuMemcpyDtoH(host, memory, size) if to_host else d.cuMemcpyHtoD(memory, host, size))
    ok(d.cuMemcpyDtoHAsync(host, memory, size, stream) if to_host else d.cuMemcpyHtoDAsync(memory, host, size, stream))
    events.append(ok(d.cuEventCreate(2)))
    ok(d.cuEventRecord(events[-1], stream))
    if len(events) > depth:
        ok(d.cuEventSynchronize(events[0])); ok(d.cuEventDestroy(events.pop(0)))
events, begun = [], None
until(0)
while now() < START + 400:
    if begun is None and now() >= START + 100: begun = copied()
    copy()
ended = copied()
print(json.dumps((ended[1] - begun[1]) / (ended[0] - begun[0]) / 1e6))
"""


def copies(size, depth=2, blocks=False, to_host=False):
    return COPIES.format(size=size, depth=depth, blocks=blocks, to_host=to_host)


class Together(unittest.TestCase):
    def together(self, tenants, more="", of=None, floor=None, parents=None):
        """Runs one program for each (spec, code) in `tenants`, and returns the JSON that each printed. Each is a tenant of its own,
        unless `of` lists the indices of the programs' tenants, whose specs count once. `floor` goes to the broker's configuration.
        `parents`: (spec, indices of its children) of tenants without programs."""
        with tempfile.TemporaryDirectory(prefix="gpushare-processes-") as folder:
            socket = os.path.join(folder, "broker.sock")
            name = os.path.basename(folder)
            common = {**os.environ, "PYTHONPATH": SHIM_TESTS, "GPUSHARE_DRIVER": "sim"}

            def environment(place):
                return {**common,
                        "GPUSHARE_SIM": f"memory=16GiB,shared={name},processes={len(tenants) + 1},place={place}{more}"}

            command = [BROKER, str(os.getpid()), socket]
            of = of or list(range(len(tenants)))
            within = {child: f"p{i}" for i, (_, children) in enumerate(parents or []) for child in children}
            for i, (spec, _) in enumerate(parents or []):
                command += [f"p{i}", spec]
            for tenant in sorted(set(of)):
                command += [f"t{tenant}", tenants[of.index(tenant)][0]]
                command += ["--within", within[tenant]] if tenant in within else []
            command += ["--floor", floor] if floor else []
            children = [subprocess.Popen(command, env=environment(0), stderr=subprocess.PIPE, text=True)]
            deadline = time.monotonic() + 20
            while not os.path.exists(socket) and time.monotonic() < deadline:
                time.sleep(0.001)
            for i, (_, program) in enumerate(tenants):
                prologue, variables, code = unmodified(program) if isinstance(program, str) else program
                children.append(subprocess.Popen(
                    [PYTHON, "-c", prologue + textwrap.dedent(code)], text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**environment(i + 1), "GPUSHARE_BROKER": socket, "GPUSHARE_TENANT": f"t{of[i]}",
                         "READY": folder, "READY_COUNT": str(len(tenants)), **variables}))
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
                    child.communicate()
            return answers
