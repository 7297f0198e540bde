# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python tests: a simulated GPU on the virtual or the wall clock, and kernels for it."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import gpushare
import pytest

# "wide" takes the whole device, "small" one SM. Both last as long as their parameter says, in ns.
PTX = """
.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
//gpushare.sim cost=10us
.visible .entry mixed(.param .u64 pointer, .param .u32 n, .param .f32 x, .param .f64 y, .param .u8 flag) { ret; }
"""


@pytest.fixture
def gpu():
    """On the wall clock: for tests in which other threads, processes or event loops take part."""
    with gpushare.simulated_gpu(memory="16GiB", sms=100, overlap="serial") as gpu:
        yield gpu


@pytest.fixture
def virtual_gpu():
    """On the virtual clock, with which the test's thread is registered."""
    with gpushare.simulated_gpu(clock="virtual", memory="16GiB", sms=100, overlap="serial") as gpu:
        yield gpu


@pytest.fixture
def device(gpu):
    return gpu.virtual_device("a", memory="4GiB")


@pytest.fixture
def stream(device):
    return device.stream()


@pytest.fixture
def spin(gpu):
    return gpu.load(PTX)["spin"]


@pytest.fixture
def mixed(gpu):
    return gpu.load(PTX)["mixed"]


@pytest.fixture
def ptx():
    return PTX


@pytest.fixture
def run_python():
    """Runs a program in a new interpreter. Returns the finished process."""

    def run(program: str, *, timeout: float = 30, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
                              env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout)

    return run


@pytest.fixture
def succeeds(run_python):
    """Runs a program in a new interpreter, which has to succeed. Importing an array library takes seconds."""

    def run(program: str, **environment: str) -> None:
        ran = run_python(program, timeout=55, **environment)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


@pytest.fixture
def in_threads():
    """Runs a function in several threads at once. Raises the first exception of a thread."""

    def run(work: Callable[[], object], count: int = 4) -> None:
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            start = threading.Barrier(count)
            for done in [pool.submit(lambda: (start.wait(), work())) for _ in range(count)]:
                done.result()

    return run


@pytest.fixture
def used():
    """The bytes in use by a virtual device."""
    return lambda device: device.stats().memory_used
