#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cases by which the shares of one process are judged (bench/share_accuracy), each tenant in a process of its own. Every program
is unmodified, and what its kernels took is counted over a second."""

import json
import sys
import unittest

from together import Together

# Each plays its steps again and again: kernels of so many milliseconds on so many SMs, or graphs of them. The first 200 ms are
# what a tenant saved up, and the measurements of kernels that were never seen.
PLAY = """
steps, mode, think, begin = {}, {}, {}, {}
if mode == "graph":
    stream = ok(d.cuStreamCreate(1))
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for each, sms in steps: ok(d.cuLaunchKernel(kernel, sms, 1, 1, 1024, 1, 1, 0, stream, parameters(each), 0))
    graph = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0))
count, spent = 0, 0
until(0)
while now() < START + begin + 1000:
    if mode == "graph":
        ok(d.cuGraphLaunch(graph, stream))
        took = sum(each for each, _ in steps)
    else:
        each, sms = steps[count % len(steps)]
        ok(d.cuLaunchKernel(kernel, sms, 1, 1, 1024, 1, 1, 0, 0, parameters(each), 0))
        took = each
    count += 1
    # At most so much is in flight, so what is launched is what the device has done.
    if mode == "each" or (mode == "turn" and count % len(steps) == 0): ok(d.cuCtxSynchronize())
    if think and count % len(steps) == 0: sim.gpushare_sim_spend(ctypes.c_uint64(int(think * 1e6)))
    if now() > START + begin: spent += took
ok(d.cuCtxSynchronize())
print(json.dumps(spent / 1000))
"""
ALL = 132


def play(*steps, mode="", think=0, begin=200):
    """A program of kernels on all SMs, or of (milliseconds, SMs). `mode`: `each` waits for each kernel, `turn` for each turn of the steps,
    `graph` launches them as one graph. Counts from `begin` milliseconds on."""
    return PLAY.format([step if isinstance(step, tuple) else (step, ALL) for step in steps], json.dumps(mode), think, begin)


MIXED = (0.04, 0.12, 0.08, 0.3, 0.06, 0.2)


class Shares(Together):
    def divide(self, delta, *tenants):
        got = self.together([(f"weight={weight}", program) for weight, program in tenants])
        weights = sum(weight for weight, _ in tenants)
        for part, (weight, _) in zip(got, tenants, strict=True):
            self.assertAlmostEqual(part / sum(got), weight / weights, delta=delta, msg=str(got))
        return sum(got)

    def test_75_25(self):
        for a, b in (((0.014,), (1,)), ((1,), (0.014,)), (MIXED, (1,)), ((0.014,), MIXED)):
            with self.subTest(a=a, b=b):
                self.assertGreater(self.divide(0.01, (75, play(*a)), (25, play(*b))), 0.95)

    # In the first second it is 1.5 pp for one of the three: each of these kernels is measured by itself, beside two others.
    def test_50_30_20(self):
        self.divide(0.01, (50, play(0.014, begin=1000)), (30, play(*MIXED, begin=1000)), (20, play(1, begin=1000)))

    def test_16_equal(self):
        self.divide(0.01, *((1, play(0.1 if i % 2 else 0.3)) for i in range(16)))

    def test_of_graphs(self):
        self.divide(0.01, (50, play(*MIXED, mode="graph")), (50, play(0.1)))

    def test_of_those_that_synchronise(self):
        self.divide(0.015, (75, play(*MIXED, mode="turn")), (25, play(1, 1, mode="turn")))


class Caps(Together):
    # Over by 0.5 pp and the longest command, under by as much, and by 1 pp more where the program waits for each launch.
    def keep(self, program, longest, launch_bound=False):
        for cap in 0.1, 0.3, 0.5, 0.8:
            with self.subTest(cap=cap):
                (got,) = self.together([(f"cap={cap:.0%}", program)])
                self.assertLessEqual(got - cap, 0.005 + longest / 1000)
                self.assertLessEqual(cap - got, 0.005 + longest / 1000 + (0.01 if launch_bound else 0))

    def test_short_kernels(self):
        self.keep(play(0.014), 0.014)

    def test_long_kernels(self):
        self.keep(play(10), 10)

    def test_kernels_of_one_block(self):
        self.keep(play((0.1, 1)), 0.1)

    def test_graphs(self):
        self.keep(play(*MIXED, mode="graph"), sum(MIXED))

    def test_who_waits_for_each_launch(self):
        self.keep(play(*MIXED, mode="each"), max(MIXED), launch_bound=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
