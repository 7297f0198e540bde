# SPDX-License-Identifier: Apache-2.0
"""Shared by the programs under test: a GPU, a kernel with a given run time, and the GPU's clock."""

import ctypes
import os

from cuda.bindings import driver as d


def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) > 1 else None


PTX = b""".version 7.5
.target sm_90
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
"""
EVERYWHERE = 132  # the number of blocks that fill the GPU


def parameters(ms):
    return (int(ms * 1e6),), (ctypes.c_uint64,)


def context(device=0):
    d.cuInit(0)
    made = ok(d.cuDevicePrimaryCtxRetain(device))
    ok(d.cuCtxSetCurrent(made))
    return made


def spin():
    """Loads the kernel in the current context."""
    return ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(PTX)), b"spin"))


def simulated():
    """The simulated driver itself, without the preloaded library (gpushare/testing/sim.h)."""
    return ctypes.CDLL(os.environ["GPUSHARE_SIMULATED"])


def launches():
    """The number of kernels that reached the simulated driver."""
    calls = simulated().gpushare_sim_calls
    calls.restype = ctypes.c_uint64
    return sum(calls(name) for name in (b"cuLaunchKernel", b"cuLaunchKernelEx"))


def launch(kernel, ms, stream=0):
    return d.cuLaunchKernel(kernel, EVERYWHERE, 1, 1, 1024, 1, 1, 0, stream, parameters(ms), 0)


def elapsed(body, stream=0):
    """Milliseconds of device time from the begin of `body` until all its work on the GPU is over."""
    begin, end = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
    ok(d.cuEventRecord(begin, stream))
    body()
    ok(d.cuCtxSynchronize())
    ok(d.cuEventRecord(end, stream))
    ok(d.cuEventSynchronize(end))
    return ok(d.cuEventElapsedTime(begin, end))
