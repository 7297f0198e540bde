#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants with a parent, each a process of its own, with a broker, on one simulated GPU with one clock."""

import sys
import unittest

from together import Together, copies

WORK = "print(json.dumps(work({}, end=1000)))"


class Families(Together):
    def parts(self, tenants, parents):
        return [got / 1000 for got in self.together(tenants, parents=parents)]

    # Over a second, within 1 pp. The GPU's context switches take 100 us of every 4 ms.
    def test_children_divide_their_parents_part_by_their_own_weights(self):
        first, second, other = got = self.parts(
            [("weight=3", WORK.format(1)), ("weight=1", WORK.format(0.1)), ("weight=1", WORK.format(0.3))],
            [("memory=4GiB,weight=1", [0, 1])])
        for part, want in zip(got, (0.375, 0.125, 0.5)):
            self.assertAlmostEqual(part / sum(got), want, delta=0.01)
        self.assertGreater(sum(got), 0.95)

    def test_what_one_leaves_is_its_siblings_first(self):
        first, second, other = got = self.parts(
            [("", WORK.format(0.5)), ("", "print(json.dumps(work(0.5, end=1)))"), ("", WORK.format(0.5))],
            [("memory=4GiB", [0, 1])])
        self.assertAlmostEqual(first / sum(got), 0.5, delta=0.01)
        self.assertAlmostEqual(other / sum(got), 0.5, delta=0.01)

    def test_a_cap_of_the_parent_is_of_the_sum(self):
        first, second = self.parts([("cap=10%", WORK.format(0.5)), ("", WORK.format(0.5))],
                                   [("memory=4GiB,cap=40%", [0, 1])])
        self.assertAlmostEqual(first, 0.1, delta=0.01)  # 5 ms of saved-up credit
        self.assertAlmostEqual(first + second, 0.4, delta=0.01)

    def test_a_guarantee_of_the_parent_is_of_the_sum(self):
        first, second, other = got = self.parts(
            [("guarantee=40%", WORK.format(0.5)), ("", WORK.format(0.5)), ("weight=1000", WORK.format(0.5))],
            [("memory=4GiB,guarantee=60%", [0, 1])])
        self.assertGreaterEqual(first, 0.4)
        self.assertGreaterEqual(first + second, 0.6)
        self.assertLess(first + second, 0.63)  # as of one tenant with that guarantee
        self.assertGreater(sum(got), 0.95)

    def test_memory_within_both_quotas(self):
        code = """
        until({})
        held = len(fill())
        print(json.dumps([held, ok(d.cuMemGetInfo()[:1] + (list(d.cuMemGetInfo()[1:]),))]))
        until(300)
        """
        a, b, c, other = self.together(
            [("memory=768MiB", code.format(0)), ("memory=768MiB", code.format(100)), ("", code.format(200)),
             ("memory=256MiB", code.format(250))], parents=[("memory=1GiB", [0, 1, 2])])
        self.assertEqual([each[0] for each in (a, b, c, other)], [12, 4, 0, 4])
        self.assertEqual(a[1], [0, 768 << 20])
        self.assertEqual(b[1], [0, 768 << 20])
        self.assertEqual(c[1], [0, 1 << 30])

    def test_children_divide_their_parents_part_of_the_link(self):
        got = self.together([("weight=3", copies(64 << 20)), ("weight=1", copies(1 << 20)), ("", copies(16 << 20))],
                            parents=[("memory=4GiB", [0, 1])])
        for part, want in zip(got, (0.375, 0.125, 0.5)):
            self.assertAlmostEqual(part / sum(got), want, delta=0.01, msg=got)
        self.assertGreater(sum(got), 0.98 * 50)

    def test_copies_keep_to_the_parents_limit_and_to_their_own(self):
        code = """
        size = 1 << 20
        host, memory = bytearray(size), ok(d.cuMemAlloc(size))
        until(0)
        copied = 0
        while now() < START + 1000:
            ok(d.cuMemcpyHtoD(memory, host, size)); copied += size
        print(json.dumps(copied / 1e6))
        """
        slow, a, b = self.together([("h2d=50MB/s", code), ("", code), ("", code)],
                                   parents=[("memory=4GiB,h2d=200MB/s", [0, 1, 2])])
        self.assertAlmostEqual((slow + a + b) / 200, 1, delta=0.04)  # one more piece of each, and the saved-up credit
        self.assertAlmostEqual(slow / 50, 1, delta=0.06)
        self.assertAlmostEqual(a / b, 1, delta=0.05)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
