# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU for the tests of programs that use gpushare.

    def test_trainer_stays_within_its_quota():
        with gpushare.simulated_gpu(memory="8GiB") as gpu:
            device = gpu.virtual_device("trainer", memory="1GiB")
            with pytest.raises(MemoryError):
                device.alloc("2GiB")

or, with ``pytest_plugins = ["gpushare.pytest_plugin"]`` in conftest.py, by the fixture `simulated_gpu`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ._core import Gpu, Runtime, Simulation

__all__ = ["simulated_gpu"]


def _configuration(options: dict[str, Any]) -> str:
    parts = []
    for key, value in options.items():
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, (str, int, float)):
            raise TypeError(f"{key}: {type(value).__name__} given, str, int or float wanted")
        if isinstance(value, str) and ("," in value or "\n" in value):
            raise ValueError(f"{key}: {value!r} given, one value wanted")
        text = str(value).replace(" ", "") if key != "name" else str(value)
        parts.append(f"{key}={text}")
    return ",".join(parts)


@contextlib.contextmanager
def simulated_gpu(*, clock: str = "wall", memory_reserve: int | str = 0, ordinal: int = 0,
                  **options: Any) -> Iterator[Gpu]:
    """A `Gpu` that needs no hardware: it really copies bytes, while kernels only take time. One at a time in a process.

    Everything made from it is closed at the end, and the simulated GPU is reset. Kernels that were made to hang end
    then, as after ``gpushare.Simulation(gpu.runtime).inject("clear")``.

    Args:
        clock: "wall": kernels take real time. "virtual": time passes only in gpushare's calls and waits, every run is
            the same, and a simulated minute takes milliseconds. The calling thread is registered with that clock within
            the block; other threads that use the GPU must come from Runtime.start_thread(); and Python's own blocking
            calls (futures, joins, asyncio) need ``with gpushare.Simulation(gpu.runtime).outside():``.
        memory_reserve: device memory that is never promised to tenants; 0 so that tests can use all of it.
        ordinal: which of `devices` GPUs.
        options: those of docs/simulator.md: memory="16GiB", sms=132, devices=1, h2d="50GB/s", noise=0.1, seed=1, ...

    Raises:
        InvalidArgumentError (ValueError): an unknown option, or one out of its range.
        FailedPreconditionError (RuntimeError): the simulated GPU is already in use: one at a time in a process.
        UnavailableError (ConnectionError): the simulated driver is not installed.
    """
    configuration = _configuration({"clock": clock, **options})
    process = os.getpid()
    runtime = Runtime("sim", simulation=configuration, memory_reserve=memory_reserve, broker="none")
    simulation = Simulation(runtime)
    virtual = simulation.virtual
    try:
        if virtual:
            simulation.enter("main")
        yield Gpu(runtime, ordinal)
    finally:
        if os.getpid() == process:  # a forked child has nothing of it
            simulation.inject("clear")  # a hanging kernel would delay the close
            runtime.close_all()
            if virtual:
                simulation.leave()
            simulation.reset()
