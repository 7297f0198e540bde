# SPDX-License-Identifier: Apache-2.0
"""A broker, and processes that share GPUs through it by the protocol of src/ipc/message.h, without a GPU or the library. The tests write
the figures into a process's page themselves, so that every figure is known."""

import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import tempfile

COMMAND = os.environ["GPUSHARE_COMMAND"]
GPU = "GPU-6f1c4f0e-1f7c-4c3a-9d53-0b6d8a2f1e11"
OTHER_GPU = "GPU-00000000-1f7c-4c3a-9d53-0b6d8a2f1e11"
GIB = 1 << 30
HELLO, WELCOME, OPEN_GPU, GPU_OPENED, REFUSAL = 1, 2, 3, 4, 5
# Offsets in the usage page (src/ipc/page.h).
TIME_USED, LAUNCHES, WAITS, THROTTLED = 64, 96, 104, 112
MEMORY_ASKED, MEMORY_WANTED, MEMORY_CHARGED = 128, 136, 160


def text(value):
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


class Refused(Exception):
    pass


class Process:
    """Registers, and opens a GPU."""

    def __init__(self, path, tenant, program="trainer", spec=""):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.pages = {}
        try:
            self.ask(HELLO, text(tenant) + text(program) + text(spec) + bytes(8), WELCOME)
        except Refused:
            self.socket.close()
            raise

    def ask(self, kind, fields, answer):
        self.socket.send(struct.pack("<HH", kind, 2) + fields)
        packet, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, 3)
        got = struct.unpack_from("<H", packet)[0]
        if got == REFUSAL:
            raise Refused(packet[12:].decode())
        assert got == answer, packet
        return descriptors

    def open(self, gpu=GPU, memory=80 * GIB):
        """Opens a GPU as one with this much memory."""
        limits, usage, bell = self.ask(OPEN_GPU, text(gpu) + struct.pack("<QI", memory, 132), GPU_OPENED)
        page = mmap.mmap(usage, 4096)
        self.pages[gpu] = (page, bell)
        os.close(limits)
        os.close(usage)
        return self

    def says(self, gpu=GPU, **figures):
        places = {"time_used": TIME_USED, "launches": LAUNCHES, "waits": WAITS, "throttled": THROTTLED,
                  "memory_charged": MEMORY_CHARGED}
        page, bell = self.pages[gpu]
        for name, value in figures.items():
            struct.pack_into("<Q", page, places[name], value)
        os.write(bell, struct.pack("<Q", 1))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Broker:
    """`gpushare broker` in its own folder. Its log is read as JSON."""

    def __init__(self, config=None, *options):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "run", "broker.sock")
        self.config = os.path.join(self.folder.name, "broker.yaml")
        arguments = ["--socket", self.path, "--log-format", "json", "--log", "debug", *options]
        if config is not None:
            self.configure(config)
            arguments += ["--config", self.config]
        self.process = subprocess.Popen([COMMAND, "broker", *arguments], stderr=subprocess.PIPE, text=True)
        self.events = []
        self.until("started")

    def configure(self, config):
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(config)

    def until(self, event):
        """The next event of that name in the log."""
        for line in self.process.stderr:
            said = json.loads(line)
            self.events.append(said)
            if said["event"] == event:
                return said
        raise AssertionError("no %r in %r" % (event, self.events))

    def signal(self, number):
        self.process.send_signal(number)

    def command(self, *arguments, environment=None):
        return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "GPUSHARE_BROKER": self.path, **(environment or {})})

    def list(self):
        result = self.command("list", "--json")
        assert result.returncode == 0, result
        return json.loads(result.stdout)

    def share(self, tenant, gpu=GPU):
        return next(share for share in self.list()["shares"] if (share["tenant"], share["gpu"]) == (tenant, gpu))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.process.wait()
        self.process.stderr.close()
        self.folder.cleanup()
