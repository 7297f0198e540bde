#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares across processes when single kernels are longer than a grant of the broker."""

import sys
import unittest

from together import Together


class LongKernels(Together):
    # Kernels of 10 and 50 ms with grants of 4 ms. The shares over the second after the first one are right to one
    # kernel and 1 pp.
    LONG = "work({0}, end=1000); print(json.dumps(work({0}, start=1000, end=2000) / 1000))"

    def test_weights_of_kernels_longer_than_a_grant(self):
        for each, other in (10, 10), (50, 50), (50, 1):
            with self.subTest(each=each, other=other):
                a, b = self.together([("weight=7", self.LONG.format(each)), ("weight=3", self.LONG.format(other))])
                self.assertAlmostEqual(a / (a + b), 0.7, delta=0.01 + max(each, other) / 1000)
                self.assertGreaterEqual(a + b + 1e-9, 0.95 - max(each, other) / 1000)  # kernels count when they begin: right to one
        got = self.together([("weight=5", self.LONG.format(10)), ("weight=3", self.LONG.format(1)),
                             ("weight=2", self.LONG.format(10))])
        for part, want in zip(got, (0.5, 0.3, 0.2)):
            self.assertAlmostEqual(part / sum(got), want, delta=0.02)

    def test_caps_of_kernels_longer_than_a_grant(self):
        for cap, each in (0.1, 10), (0.3, 10), (0.1, 50), (0.3, 50):
            with self.subTest(cap=cap, each=each):
                (a,) = self.together([(f"cap={cap:.0%}", self.LONG.format(each))])
                self.assertAlmostEqual(a, cap, delta=0.005 + each / 1000)
        # One run of 5 s: if a part of each pause were not counted, the cap would allow 25 %.
        (a,) = self.together([("cap=30%", "print(json.dumps(work(50, end=5000) / 5000))")])
        self.assertAlmostEqual(a, 0.3, delta=0.005 + 100 / 5000)  # the lengths of the first two kernels were unknown

    def test_kernels_longer_than_a_grant_beside_high_priority(self):
        for high, other in (1, 10), (10, 1), (50, 1):
            with self.subTest(high=high, other=other):
                a, b = self.together([("priority=high,cap=60%", self.LONG.format(high)),
                                      ("guarantee=30%", self.LONG.format(other))])
                self.assertAlmostEqual(a, 0.6, delta=0.01 + max(high, other) / 1000)
                self.assertGreaterEqual(b, 0.3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
