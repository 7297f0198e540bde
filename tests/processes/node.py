# SPDX-License-Identifier: Apache-2.0
"""A broker process and processes that use its GPU, which is simulated on the machine's clock."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]
VICTIM = os.environ["GPUSHARE_VICTIM"]
PRELOAD = os.environ["GPUSHARE_PRELOAD"]
PATIENCE = 60  # the time in seconds after which a test counts as hanging


OK, OUT_OF_MEMORY = 0, 2
# Defines what a program asks of the driver. Without the preloaded library, the program is the witness of what the GPU has.
ALLOCATES = """
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")
context, held = ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def alloc(mib):
    piece = ctypes.c_uint64()
    result = cuda.cuMemAlloc_v2(ctypes.byref(piece), ctypes.c_size_t(mib << 20))
    if result == 0: held.append(piece)
    return result
def memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value
def used():
    free, total = memory()
    return total - free >> 20
"""


class Asks:
    """Queries the broker's figures over one connection, as fast as it answers (src/ipc/message.h)."""

    QUERY, PART = 6, 8

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)

    def share(self, tenant):
        self.socket.send(struct.pack("<HHI", self.QUERY, 2, 4) + b"list")
        text, more = b"", 1
        while more:
            packet = self.socket.recv(1 << 16)
            kind, _, more = struct.unpack_from("<HHI", packet)
            assert kind == self.PART, packet
            text += packet[12:]
        # The tenant is missing before its first process has registered.
        return next((share for share in json.loads(text)["shares"] if share["tenant"] == tenant), {"processes": []})


class Program:
    """A program that runs `code`, and then answers each line with the JSON of what that is."""

    ANSWERS = """
import json, sys
print("ready", flush=True)
for line in sys.stdin: print(json.dumps(eval(line)), flush=True)
"""

    def __init__(self, code, environment, within=()):
        self.process = subprocess.Popen([*within, sys.executable, "-c", code + self.ANSWERS], env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = self.process.stdout.readline()
        assert said == "ready\n", self.process.communicate()

    def __call__(self, line):
        self.ask(line)
        return self.answer()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.communicate()


class Node(unittest.TestCase):
    TENANTS = ("  - {name: stays, spec: 'memory=1GiB,guarantee=50%'}\n"
               "  - {name: dies, spec: 'memory=24MiB,guarantee=30%'}\n")
    PRELOADED = []  # before gpushare, and into the broker
    BROKER_WITHIN = []  # the command that starts the broker
    MORE = ""  # of the broker's configuration
    TEARDOWN = 0  # the time in microseconds that the GPU takes to get back the memory of a process that has ended
    AFTER = "0s"  # the time after which the broker assumes that, if it cannot find out; None: the broker's default
    GPU = "none"  # the GPU that the broker is configured with

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-node-")
        self.addCleanup(self.folder.cleanup)
        self.socket = os.path.join(self.folder.name, "broker.sock")
        self.config = os.path.join(self.folder.name, "broker.yaml")
        with open(self.config, "w") as file:
            file.write(f"reclaim: {{after: {self.AFTER}}}\n" if self.AFTER else "")
            file.write(f"{self.MORE}tenants:\n{self.TENANTS}")
        # Of programs on the same GPU without gpushare, and of those that the broker knows.
        self.bare = {**os.environ, "GPUSHARE_DRIVER": "sim", "LD_PRELOAD": ":".join(self.PRELOADED),
                     "GPUSHARE_SIM": f"memory=16GiB,teardown={self.TEARDOWN}us,clock=wall,shared={os.path.basename(self.folder.name)}"}
        self.environment = {**self.bare, "GPUSHARE_BROKER": self.socket}
        self.children = []
        self.broker = self.start_broker()

    def tearDown(self):
        for child in self.children:
            child.kill()
            child.communicate()

    def start(self, command, **more):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        self.children.append(child)
        return child

    def start_broker(self):
        child = self.start([*self.BROKER_WITHIN, COMMAND, "broker", "--config", self.config, "--socket", self.socket, "--gpu", self.GPU, "--log", "error"],
                           env=self.bare)
        self.eventually(lambda: self.figures() is not None)
        return child

    def restart_broker(self, meanwhile=lambda: None):
        self.broker.kill()
        self.broker.wait(PATIENCE)
        self.eventually(lambda: self.figures() is None)  # what was killed may be the command that has started it
        meanwhile()
        self.broker = self.start_broker()

    def of_tenant(self, tenant):
        return {**self.environment, "LD_PRELOAD": ":".join([*self.PRELOADED, PRELOAD]), "GPUSHARE_TENANT": tenant}

    def start_victim(self, tenant):
        return self.start([VICTIM], env=self.of_tenant(tenant))

    def asks(self):
        asks = Asks(self.socket)
        self.addCleanup(asks.socket.close)
        return asks

    def program(self, code, environment, within=()):
        program = Program(code, environment, within)
        self.addCleanup(program.end)
        return program

    def figures(self):
        done = subprocess.run([COMMAND, "list", "--json", "--socket", self.socket], capture_output=True, text=True, timeout=PATIENCE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def share(self, tenant):
        return next((share for share in (self.figures() or {"shares": []})["shares"] if share["tenant"] == tenant), None)

    def eventually(self, ready, what=None):
        end = time.monotonic() + PATIENCE
        while not ready():
            self.assertLess(time.monotonic(), end, (what or self.figures)())
            time.sleep(0.01)

    def launches(self, tenant="stays"):
        share = self.share(tenant)
        return share["launches"] if share else 0

    def assert_goes_on(self, children):
        for child in children:
            self.assertIsNone(child.poll(), child.poll() is not None and child.communicate())
        before = self.launches()
        self.eventually(lambda: self.launches() > before)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.broker.pid}/fd"))

    def pages(self):
        """The number of pages shared with processes that the broker has mapped."""
        with open(f"/proc/{self.broker.pid}/maps") as maps:
            return sum("memfd:gpushare" in line for line in maps)

    def memory(self):
        """The broker's resident memory in bytes."""
        with open(f"/proc/{self.broker.pid}/statm") as figures:
            return int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
