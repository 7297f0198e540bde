#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that closes descriptors that it does not know, or puts its own files at their numbers: gpushare leaves those files alone, and
the program has its share again."""

import os
import sys
import unittest

from node import ALLOCATES, Node

# Knows which descriptors the driver, and so gpushare, has opened.
PROGRAM = """
import os
def kinds(): return {int(number): os.readlink("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd")
                     if os.path.lexists("/proc/self/fd/" + number)}
before = kinds()
""" + ALLOCATES + """
import json, socket
PTX = (b".version 7.5\\n.target sm_90\\n.address_size 64\\n//gpushare.sim cost=param:0 blocks_per_sm=1\\n"
       b".visible .entry spin(.param .u64 ns) { ret; }\\n")
def ok(code): assert code == 0, code
module, spin = ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuModuleLoadData(ctypes.byref(module), PTX)); ok(cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"spin"))
ns = ctypes.c_uint64(200_000)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
def work(launches):
    for _ in range(launches): ok(cuda.cuLaunchKernel(spin, 132, 1, 1, 1024, 1, 1, 0, None, parameters, None))
    return cuda.cuCtxSynchronize()
# The connection, the event that ends waits for it, and the doorbell.
def of_gpushare(): return sorted(number for number, kind in kinds().items()
                                 if number not in before and kind.startswith(("socket:", "anon_inode:[eventfd]")))
work(10)
numbers = of_gpushare()
mine = {}
def close():
    for number in numbers: os.close(number)
    return len(numbers)
def replace():
    for number in numbers:
        ours, other = socket.socketpair()
        other.send(b"the program's")
        os.dup2(ours.fileno(), number)
        mine[number] = ours, other
        other.setblocking(False)
    return len(numbers)
def fate(number):
    ours, other = mine[number]
    try: same = os.path.sameopenfile(ours.fileno(), number)
    except OSError: same = False
    if not same: return "closed"
    try: return "written: " + repr(other.recv(100))
    except BlockingIOError: pass
    ours.setblocking(False)
    try: there = ours.recv(100, socket.MSG_PEEK)
    except BlockingIOError: there = b""
    return "whole" if there == b"the program's" else "read"
def fates(): return [fate(number) for number in numbers]
def fates_in_a_child():
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ends[1], json.dumps(fates()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(ends[0], 1000))
"""
WHOLE = ["whole"] * 3


class Descriptors(Node):
    TENANTS = "  - {name: a, spec: 'memory=1GiB,guarantee=50%'}\n"

    def setUp(self):
        super().setUp()
        self.one = self.program(PROGRAM, self.of_tenant("a"))
        self.other = self.program(PROGRAM, self.of_tenant("a"))

    def sessions(self):
        return {process["session"] for process in self.share("a")["processes"] if not process["gone"]}

    def test_its_own_files_are_left_alone(self):
        self.assertEqual(self.one("replace()"), 3)
        self.assertEqual(self.one("work(100)"), 0)
        self.assertEqual((self.one("fates()"), self.one("fates_in_a_child()")), (WHOLE, WHOLE))
        self.restart_broker()
        self.eventually(lambda: len(self.sessions()) == 2)
        self.assertEqual((self.one("work(100)"), self.one("alloc(600)"), self.one("alloc(600)")), (0, 0, 2))
        self.assertEqual((self.one("fates()"), self.one("fates_in_a_child()")), (WHOLE, WHOLE))

    def test_its_next_files_do_not_get_the_numbers(self):
        self.assertEqual(self.one("close()"), 3)
        self.assertEqual(self.one("[number in numbers for number in [os.dup(1) for _ in range(30)]]"), [False] * 30)

    # The kernel waits for milliseconds where a program with threads gets a larger table.
    def test_no_larger_table_of_descriptors_is_needed(self):
        self.assertLess(max(self.one("numbers")), 64)

    def test_it_registers_anew(self):
        before = self.sessions()
        self.assertEqual(len(before), 2)
        self.assertEqual(self.one("close()"), 3)
        self.assertEqual(self.one("work(100)"), 0)
        self.eventually(lambda: len(self.sessions()) == 2 and self.sessions() != before)
        # Memory that one does not use is the other's, as soon as it answers again.
        self.eventually(lambda: self.other("alloc(600)") == 0)
        self.assertEqual((self.one("alloc(400)"), self.one("alloc(400)")), (0, 2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
