#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The isolation of a tenant with its own process (isolation=process, and every tenant of a broker): the column of docs/isolation.md
that takes several processes to test."""

import sys
import unittest

from together import Together, sdk

# The program has the only virtual device in its process, and a way to break it.
ALONE = """
            own = gpu.virtual_device("own", memory="512MiB", isolation="process")
            broken = gpushare.Simulation(runtime).inject"""
OTHER = """
work(0.5, start=20, end=30)
print(json.dumps([work(0.5, start=60, end=160), work(0.5, start=200, end=300), len(fill())]))
"""


class Isolation(Together):
    # Meanwhile the neighbour has its half, afterwards all of the GPU, and its memory is unaffected.
    def test_a_fault_is_its_processs_own(self):
        (said, after), (beside, alone, pieces) = self.together([("memory=1GiB,isolation=process", sdk(ALONE + """
            work(own, 0.5, end=10)
            work(own, 0.5, start=60, end=150)
            broken("illegal_address kernel=spin")
            said = []
            for attempt in "the broken one", "the next":
                try: work(own, 0.5, start=165, end=170)
                except gpushare.AbortedError: said.append(attempt)
            until(300)
            print(json.dumps([said, own.memory]))
            """)), ("memory=512MiB", OTHER)])
        self.assertEqual(said, ["the broken one", "the next"])
        self.assertEqual(after[1], 512 << 20)
        self.assertAlmostEqual(beside, 50, delta=5)
        self.assertGreater(alone, 93)
        self.assertEqual(pieces, 8)

    # The GPU divides its time into slices: the neighbour continues at half the pace.
    def test_a_kernel_that_never_ends_leaves_the_others_slices(self):
        _, (beside, alone, pieces) = self.together([("memory=1GiB", sdk(ALONE + """
            work(own, 0.5, end=10)
            broken("hang kernel=spin")
            stream = own.stream()
            until(40)
            stream.launch(spin, 132, 1024, 1000)
            until(400)
            print(json.dumps(0), flush=True)
            os._exit(0)
            """)), ("memory=512MiB", OTHER)])
        self.assertGreater(beside, 30)
        self.assertGreater(alone, 30)
        self.assertEqual(pieces, 8)

    def test_no_other_tenant_is_let_into_its_process(self):
        (told,), = self.together([("", sdk("""
            told = []
            def refused(name, isolation):
                try: gpu.virtual_device(name, isolation=isolation)
                except gpushare.FailedPreconditionError as error: told.append(str(error))
            with gpu.virtual_device("one"): refused("own", "process")
            with gpu.virtual_device("own", isolation="process") as own:
                refused("one", "shared")
                refused("two", "process")
                # The isolation also excludes tenants of another runtime.
                other = gpushare.Runtime()
                try: gpushare.Gpu(other).virtual_device("three")
                except gpushare.FailedPreconditionError as error: told.append(str(error))
                other.close_all()
                until(10)
                work(own, 1, end=20)
            gpu.virtual_device("another").close()
            with gpu.virtual_device("later", isolation="process"): pass
            print(json.dumps([told]))
            """))])
        first, second, third, fourth = told
        self.assertIn("'own': isolation=process asks for a process without other tenants, and 'one' has a virtual device", first)
        self.assertIn("'one': this process is kept for one tenant by isolation=process, and 'own' has", second)
        self.assertIn("'two': isolation=process asks for", third)
        self.assertIn("'three': this process is kept for one tenant", fourth)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
