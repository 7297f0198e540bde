# SPDX-License-Identifier: Apache-2.0
"""gpushare.cupy with CuPy."""

import gc
import threading

import numpy as np
import pytest

COUNT = 1 << 20


@pytest.fixture
def cupy(framework, gpu):
    return framework("cupy", "cupy-cuda12x")


@pytest.fixture
def adapter(cupy):
    import gpushare.cupy

    yield gpushare.cupy
    gc.collect()


def used(device):
    return device.stats().memory_used


def test_a_block_computes_and_is_charged(cupy, adapter, device):
    with adapter.tenant(device, hint="1ms") as stream:
        assert cupy.cuda.get_current_stream().ptr == stream.ptr
        array = cupy.arange(COUNT, dtype="float32") * 2
        assert used(device) >= array.nbytes
        total = float(array.sum())
    assert total == float(np.arange(COUNT, dtype="float32").sum(dtype="float64") * 2)
    assert device.stats().charged > 0


@pytest.mark.parametrize("pooled", [True, False])
def test_over_the_quota(cupy, adapter, device, pooled):
    with adapter.tenant(device, pooled=pooled, lease=False):
        held = cupy.empty(768 << 20, "uint8")
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="limit set to: 1,073,741,824"):
            cupy.empty(512 << 20, "uint8")
        del held
        cupy.empty(1 << 30, "uint8")[-1] = 1
    adapter.free_all_blocks(device)
    assert used(device) == 0


def test_arrays_outlive_the_block(cupy, adapter, gpu):
    device = gpu.virtual_device("short", memory="256MiB")
    with adapter.tenant(device):
        array = cupy.full(COUNT, 7, "int32")
    device.close()
    assert int(array.sum()) == 7 * COUNT


def test_the_whole_process(cupy, adapter, device):
    cupy.cuda.set_allocator(adapter.allocator(device))
    try:
        array = cupy.zeros(COUNT)
        assert used(device) >= array.nbytes
    finally:
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def test_tenants_on_threads(cupy, adapter, gpu):
    results, failed = {}, []

    def work(device, value):
        try:
            for _ in range(20):
                with adapter.tenant(device, hint="1ms"):
                    results[value] = int(cupy.full(COUNT, value, "int64").sum())
        except BaseException as error:
            failed.append(error)

    devices = [gpu.virtual_device(f"t{index}", memory="256MiB") for index in range(3)]
    threads = [threading.Thread(target=work, args=(device, index)) for index, device in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and results == {index: index * COUNT for index in range(3)}
    assert all(0 < used(device) <= 256 << 20 and device.stats().charged > 0 for device in devices)
    for device in devices:
        device.close()


def test_streams_of_either(cupy, adapter, device):
    with device.stream() as ours, adapter.stream(ours):
        array = cupy.ones(COUNT)
        ours.synchronize()
        assert float(array.sum()) == COUNT
    theirs = cupy.cuda.Stream(non_blocking=True)
    with device.stream(theirs) as adopted:
        assert adopted.ptr == theirs.ptr
