#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/09_ray as its reader runs it."""

import os
import re
import subprocess
import sys
import unittest

import needed  # noqa: F401: or the test is skipped

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "09_ray", "actors.py")


class Example(unittest.TestCase):
    def test_it_shows_what_it_says(self):
        done = subprocess.run([sys.executable, EXAMPLE, "--gpu", "sim", "--seconds", "1"], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # 16 GiB minus the reserve of 256 MiB.
        self.assertIn("large  num_gpus=0.75  sees 11.81 GiB\nsmall  num_gpus=0.25  sees 3.94 GiB\n"
                      "small  11.81 GiB: CUDA_ERROR_OUT_OF_MEMORY\n", done.stdout)
        parts = [int(part) for part in re.findall(r"layers of 1 ms in 1 s, (\d+)% of all", done.stdout)]
        # ray_test.py checks the shares: on the machine's clock they depend on the load.
        self.assertEqual(len(parts), 2)
        self.assertAlmostEqual(sum(parts), 100, delta=1)
        self.assertTrue(done.stdout.endswith("third  waits in Ray; sees 3.94 GiB when small is gone\n"), done.stdout)


if __name__ == "__main__":
    unittest.main()
