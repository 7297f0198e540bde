#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kill -9` at any instruction of a process, and of the broker: nobody else waits, and nothing is left behind."""

import os
import random
import signal
import subprocess
import sys
import time
import unittest

from node import PATIENCE, Asks, Node

TRIALS = int(os.environ.get("GPUSHARE_KILL_TRIALS", "200"))
RESTARTS = int(os.environ.get("GPUSHARE_BROKER_RESTARTS", "10"))


class Kills(Node):
    def test_processes(self):
        stays = [self.start_victim("stays"), self.start_victim("stays")]
        self.eventually(lambda: self.launches() > 0)
        self.eventually(lambda: len(self.share("stays")["processes"]) == 2)
        broker = Asks(self.socket)
        self.addCleanup(broker.socket.close)
        broker.share("stays")  # it is connected
        before = self.descriptors()
        chance = random.Random(1)
        recovered = []
        for trial in range(TRIALS):
            victims = [self.start_victim("dies") for _ in range(2)]
            time.sleep(chance.random() * 0.03)
            killed = time.monotonic()
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
            # Nobody is left in the tenant's share: all that it had is free again.
            while broker.share("dies")["processes"]:
                self.assertLess(time.monotonic() - killed, PATIENCE)
            recovered.append(time.monotonic() - killed)
            for victim in victims:
                self.assertEqual(victim.wait(PATIENCE), -signal.SIGKILL, "it ended by itself")
                victim.communicate()
                self.children.remove(victim)
            if trial % 20 == 0:
                self.assert_goes_on(stays)
        share = self.share("dies")
        self.assertEqual(share["processes"], [])
        self.assertEqual((share["memory_granted"], share["memory_used"]), (0, 0))
        # Before, the connection of a `list` may have been one of them that is gone by now.
        self.eventually(lambda: self.descriptors() <= before)
        self.assert_goes_on(stays)
        recovered.sort()
        p50, p99, most = (1e3 * recovered[min(int(part * len(recovered)), len(recovered) - 1)] for part in (0.5, 0.99, 1))
        print(f"all back after the kill of two processes: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms"
              f" of {len(recovered)} times", file=sys.stderr)
        # What those that are gone had is there for the next, all of it.
        last = self.start_victim("dies")
        self.eventually(lambda: self.launches("dies") > 0)
        self.assertEqual(self.share("dies")["memory_granted"], 24 << 20)
        self.assertIsNone(last.poll())

    def test_the_broker(self):
        stays = [self.start_victim("stays"), self.start_victim("stays")]
        self.eventually(lambda: self.launches() > 0)
        for _ in range(RESTARTS):
            self.broker.send_signal(signal.SIGKILL)
            self.broker.wait(PATIENCE)
            self.broker = self.start_broker()
            self.eventually(lambda: len((self.share("stays") or {"processes": []})["processes"]) == 2)
            self.assert_goes_on(stays)
        share = self.share("stays")
        self.assertLessEqual(share["memory_granted"], 1 << 30)


FREE = """
import ctypes
d = ctypes.CDLL("libcuda.so.1")
def ok(code): assert code == 0, code
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
ok(d.cuInit(0)); ok(d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)); ok(d.cuCtxSetCurrent(context))
ok(d.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
print(free.value)
"""


class Teardown(Node):
    """The GPU has a process's memory back only some time after its end, as of real ones."""

    TEARDOWN = 30_000

    def free(self):
        """Of the GPU, by a program of its own that is no tenant's."""
        environment = {**self.environment, "GPUSHARE_BROKER": "none"}
        done = subprocess.run([sys.executable, "-c", FREE], env=environment, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return int(done.stdout)

    def test_nothing_is_left(self):
        files = set(os.listdir(self.folder.name))
        whole = self.free()
        stays = self.start_victim("stays")
        self.eventually(lambda: self.launches() > 0)
        broker = Asks(self.socket)
        self.addCleanup(broker.socket.close)
        broker.share("stays")
        before = self.descriptors(), self.pages()
        chance = random.Random(2)
        for _ in range(max(TRIALS // 5, 10)):
            victims = [self.start_victim("dies") for _ in range(2)]
            time.sleep(chance.random() * 0.06)
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
            for victim in victims:
                self.assertEqual(victim.wait(PATIENCE), -signal.SIGKILL, "it ended by itself")
                victim.communicate()
                self.children.remove(victim)
        self.assert_goes_on([stays])
        self.eventually(lambda: not broker.share("dies")["processes"])
        share = broker.share("dies")
        self.assertEqual((share["memory_granted"], share["memory_used"]), (0, 0))
        self.eventually(lambda: (self.descriptors(), self.pages()) <= before)
        stays.kill()
        self.eventually(lambda: not broker.share("stays")["processes"])
        # All of them are gone for longer than that.
        self.eventually(lambda: self.free() == whole)
        broker.socket.close()
        # The file that the next broker reads goes with the last process.
        self.eventually(lambda: set(os.listdir(self.folder.name)) == files)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
