#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What happens to an unmodified program at its quota: a refusal, or a wait if GPUSHARE_OVER_QUOTA allows it. The tests use the GPU's
virtual clock, so no real time passes."""

import os
import unittest

from command import python

# Registers its thread with the simulation, and asks the simulation for the time.
CLOCKED = """
from program import *
import ctypes
context()
sim = simulated()
sim.gpushare_sim_now.restype = ctypes.c_uint64
sim.gpushare_sim_thread_enter(b"program")
"""
# Memory is freed on a stream behind 5 ms of kernels, and the same amount is requested before these have ended.
# Streams do not wait for each other's memory.
APART = """
ok(d.cuMemPoolSetAttribute(ok(d.cuDeviceGetMemPool(0)),
                           d.CUmemPool_attribute.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0))
"""
BEHIND_A_KERNEL = CLOCKED + """
kernel, stream = spin(), ok(d.cuStreamCreate(1))
{apart}
memory = ok(d.{take}(600 << 20{more}))
ok(launch(kernel, 5, stream))
ok(d.cuMemFreeAsync(memory, stream))
began = sim.gpushare_sim_now()
print(int(d.{take}(600 << 20{more})[0]), (sim.gpushare_sim_now() - began) // 1000000)
"""
# The request comes after the free, when 2.5 ms of a kernel are left. Polling every millisecond would be half a
# millisecond late.
FREED_BEFORE = CLOCKED + """
kernel, stream = spin(), ok(d.cuStreamCreate(1))
{apart}
memory = ok(d.{first}(600 << 20{more}))
ok(d.cuCtxSynchronize())
began = sim.gpushare_sim_now()
ok(launch(kernel, 2.5, stream))
ok(d.cuMemFreeAsync(memory, stream))
{then}
answer = int(d.{take}(600 << 20)[0]) if "{take}" != "cuMemAllocAsync" else int(d.cuMemAllocAsync(600 << 20, ok(d.cuStreamCreate(1)))[0])
print(answer, (sim.gpushare_sim_now() - began) // 1000)
"""
# By default the streams of a program do wait for each other's memory.
FOLLOWED = CLOCKED + """
kernel, one, other = spin(), ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1))
memory = ok(d.cuMemAllocAsync(600 << 20, one))
ok(launch(kernel, 5, one))
ok(d.cuMemFreeAsync(memory, one))
began = sim.gpushare_sim_now()
again = ok(d.cuMemAllocAsync(600 << 20, other))
took = sim.gpushare_sim_now() - began
ok(d.cuStreamSynchronize(other))
high = ok(d.cuMemPoolGetAttribute(ok(d.cuDeviceGetMemPool(0)), d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH))
print(took // 1000000, (sim.gpushare_sim_now() - began) // 1000000, int(high) >> 20, int(d.cuStreamQuery(one)[0]))
"""
ALONE = CLOCKED + """
memory = ok(d.cuMemAlloc(600 << 20))
for bytes in (600 << 20, 2 << 30):
    began = sim.gpushare_sim_now()
    print(int(d.cuMemAlloc(bytes)[0]), (sim.gpushare_sim_now() - began) // 1000000)
"""


class OverQuota(unittest.TestCase):
    def of(self, code, choice=None):
        environment = {**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=virtual"}
        if choice is not None:
            environment["GPUSHARE_OVER_QUOTA"] = choice
        done = python(code, "--memory", "1GiB", env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout.split()

    def test_refused_at_once_unless_told_to_wait(self):
        for choice in (None, "fail"):
            for take, more in (("cuMemAlloc", ""), ("cuMemAllocAsync", ", ok(d.cuStreamCreate(1))")):
                with self.subTest(choice=choice, take=take):
                    self.assertEqual(self.of(BEHIND_A_KERNEL.format(take=take, more=more, apart=APART), choice), ["2", "0"])

    def test_waits_for_what_comes_free(self):
        for take, more in (("cuMemAlloc", ""), ("cuMemAllocAsync", ", ok(d.cuStreamCreate(1))")):
            with self.subTest(take=take):
                answer, ms = self.of(BEHIND_A_KERNEL.format(take=take, more=more, apart=APART), "wait=30s")
                self.assertEqual(answer, "0")
                self.assertIn(int(ms), range(4, 9))

    def test_is_told_of_what_was_freed_before_it_waited(self):
        for first, more in (("cuMemAlloc", ""), ("cuMemAllocAsync", ", stream")):
            for take in ("cuMemAlloc", "cuMemAllocAsync"):
                for then in ("", "ok(d.cuStreamDestroy(stream))"):
                    with self.subTest(first=first, take=take, then=then):
                        code = FREED_BEFORE.format(first=first, more=more, take=take, then=then, apart=APART)
                        answer, us = self.of(code, "wait=30s")
                        self.assertEqual(answer, "0")
                        self.assertIn(int(us), range(2500, 2600))

    def test_a_stream_follows_what_another_has_freed(self):
        took, over, held, left = self.of(FOLLOWED)
        self.assertEqual((took, left), ("0", "0"))
        self.assertIn(int(over), range(4, 9))
        self.assertLess(int(held), 1024)

    def test_is_refused_at_the_end_of_the_wait_and_at_once_where_it_never_fits(self):
        refused, after, never, at_once = self.of(ALONE, "wait=2.5s")
        self.assertEqual((refused, never, at_once), ("2", "2", "0"))
        self.assertIn(int(after), range(2500, 2503))

    def test_what_cannot_be_read_refuses_the_program(self):
        code = "import ctypes\nprint(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        for choice in ("wait", "wait=", "wait=-1s", "wait=0s", "wait=2h", "wait=soon", "swap"):
            with self.subTest(choice=choice):
                # Without `gpushare run`, which says so before.
                done = python(code, command=["env"], env={**os.environ, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"],
                                                          "GPUSHARE_OVER_QUOTA": choice})
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""))


if __name__ == "__main__":
    unittest.main()
