# SPDX-License-Identifier: Apache-2.0
"""The work of an actor on its GPU. Except for share(), it does not use gpushare."""

import ctypes
import os
import time


class Truth(ctypes.Structure):
    """gpushare_sim_truth (gpushare/testing/sim.h)."""

    _fields_ = [("used_ns", ctypes.c_double), ("rest", ctypes.c_uint64 * 6)]


class Gpu:
    def __init__(self, *_):
        import program  # from tests/shim

        self.program, self.driver, self.held = program, program.d, []
        program.context()
        self.kernel = program.spin()

    def pid(self):
        return os.getpid()

    def sees(self):
        """The total memory, by both calls, and the free memory."""
        _, left, total = self.driver.cuMemGetInfo()
        return int(total), int(self.driver.cuDeviceTotalMem(0)[1]), int(left)

    def alloc(self, size):
        error, pointer = self.driver.cuMemAlloc(size)
        if int(error) == 0:
            self.held.append(pointer)
        return int(error)

    def work(self, begin, end, ms):
        """Launches kernels of `ms` between two times of the machine's clock. Returns their device time in seconds, by the simulator's
        own account of this process."""
        def used():
            truth = Truth()
            assert self.program.simulated().gpushare_sim_account_truth(0, 0, ctypes.byref(truth)) == 0
            return truth.used_ns / 1e9

        before = None
        while time.time() < end:
            self.program.ok(self.program.launch(self.kernel, ms))
            if before is None and time.time() >= begin:
                before = used()
        return used() - before

    def share(self):
        import gpushare.ray

        return gpushare.ray.share()

    def gpus(self):
        import ray

        count = self.program.ok(self.driver.cuDeviceGetCount())
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids(), int(count)
