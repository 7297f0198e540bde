#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A broker that is killed and restarted while its processes hold memory: by the simulated GPU's own count, their tenant never has more
than its quota, and no process loses its memory."""

import os
import signal
import sys
import unittest

from node import Node

QUOTA = 1024  # MiB

# Prints the JSON of each line of its input. Without the preloaded library, the program is the witness.
PROGRAM = """
import ctypes, json, os, sys, time
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
def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value >> 20
print("ready", flush=True)
for line in sys.stdin: print(json.dumps(eval(line)), flush=True)
"""
OK, OUT_OF_MEMORY = 0, 2


class Restarts(Node):
    TENANTS = f"  - {{name: a, spec: 'memory={QUOTA}MiB'}}\n"
    AFTER = None

    def setUp(self):
        super().setUp()
        self.witness = self.program(PROGRAM, self.bare)
        self.before = self.witness("used()")
        self.first = self.program(PROGRAM, self.of_tenant("a"))
        self.context = self.witness("used()") - self.before
        self.programs = 1

    def another(self):
        self.programs += 1
        return self.program(PROGRAM, self.of_tenant("a"))

    def assert_within_quota(self):
        held = self.witness("used()") - self.before - self.programs * self.context
        self.assertLessEqual(held, QUOTA)
        return held

    def test_nobody_gets_what_one_holds_that_is_not_back_yet(self):
        second = self.another()
        self.assertEqual((self.first("alloc(700)"), second("alloc(100)")), (OK, OK))
        for program in (self.first, second):
            program.process.send_signal(signal.SIGSTOP)
        self.restart_broker()
        third = self.another()
        self.assertEqual(third("alloc(900)"), OUT_OF_MEMORY)
        self.assertEqual(self.assert_within_quota(), 800)
        # One process is back and the other is not; all memory that the absent one may hold is reserved for it.
        second.process.send_signal(signal.SIGCONT)
        self.eventually(lambda: third("alloc(5)") == OK)
        self.assertEqual(second("alloc(300)"), OUT_OF_MEMORY)
        self.assertEqual(self.assert_within_quota(), 805)
        self.first.process.send_signal(signal.SIGCONT)
        self.eventually(lambda: sum(not each["gone"] for each in self.share("a")["processes"]) == 3)
        self.assertEqual(self.first("alloc(50)"), OK, "it has what it had, and what is left")
        self.assertEqual((third("alloc(100)"), third("alloc(100)")), (OK, OUT_OF_MEMORY))
        self.assertEqual(self.assert_within_quota(), 955)

    def test_again_and_again_near_the_quota(self):
        second = self.another()
        self.assertEqual((self.first("alloc(600)"), second("alloc(400)")), (OK, OK))
        for _ in range(5):
            self.restart_broker()
            for program in (self.first, second):
                self.assertEqual(program("alloc(100)"), OUT_OF_MEMORY)
            self.assertEqual(self.assert_within_quota(), 1000)
        # The memory of a process that ends while there is no broker is available to the others.
        self.restart_broker(second.end)
        self.programs -= 1
        self.eventually(lambda: self.first("alloc(400)") == OK)
        self.assertEqual(self.assert_within_quota(), 1000)

    # It was admitted as root, and nobody else may register as this tenant.
    def test_a_process_that_has_dropped_its_privileges_goes_on_and_comes_back(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        os.chmod(self.folder.name, 0o755)
        self.assertEqual(self.first("alloc(300)"), OK)
        self.assertEqual(self.first("os.setuid(65534) or 0"), 0)
        self.assertEqual(self.first("alloc(300)"), OK)
        with open(self.config, "w") as file:
            file.write(f"tenants: [{{name: a, spec: 'memory={QUOTA}MiB', users: [0]}}]\n")
        self.restart_broker()
        self.eventually(lambda: [each["gone"] for each in self.share("a")["processes"]] == [False])
        self.assertEqual(self.share("a")["processes"][0]["uid"], 65534)
        self.assertEqual((self.first("alloc(300)"), self.first("alloc(200)")), (OK, OUT_OF_MEMORY))
        self.assertEqual(self.assert_within_quota(), 900)
        second = self.another()
        self.assertEqual((second("alloc(100)"), second("alloc(100)")), (OK, OUT_OF_MEMORY))
        self.first.end()
        self.programs -= 1
        self.eventually(lambda: second("alloc(900)") == OK)


# All of that, while the clock of the day is set back and forth by a day between any two looks at it. A wait until a time of that
# clock would end at once, or hang for a day.
class ClockJumps(Restarts):
    PRELOADED = [os.environ["GPUSHARE_CLOCK_JUMPS"]]

    def test_the_programs_see_it_jump(self):
        for _ in range(3):
            self.assertEqual(self.first("int(abs(time.time() - time.time()) > 86400)"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
