# SPDX-License-Identifier: Apache-2.0
"""gpushare.numba with numba-cuda: what its kernels compute, and that a lease charges them. Memory alone is tested
on the simulated driver too: python/tests/test_numba.py."""

import base64
import gc
import pickle

import numpy as np
import preloaded
import pytest

COUNT = 1 << 20


WORKS = """
    from numba import cuda
    @cuda.jit
    def one(array):
        array[0] = 1
    array = cuda.device_array(1, "int32")
    one[1, 1](array)
    print(int(array.copy_to_host()[0]))
"""


@pytest.fixture(scope="module")
def compiles(runtime):
    """A version of Numba and one of NumPy may not go together."""
    assert preloaded.need_bare(WORKS) == 1


@pytest.fixture
def cuda(framework, compiles, device):
    framework("numba_cuda", "'numba-cuda[cu12]'")
    import gpushare.numba

    gpushare.numba.use(device)
    from numba import cuda

    yield cuda
    cuda.current_context().reset()


@pytest.fixture
def add(cuda):
    @cuda.jit
    def add(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] += x[i]

    return add


def test_kernels_on_a_stream_under_a_lease(cuda, add, device):
    import gpushare.numba

    with device.stream() as ours:
        stream = gpushare.numba.stream(ours)
        x = cuda.to_device(np.arange(COUNT, dtype="float32"), stream=stream)
        y = cuda.to_device(np.ones(COUNT, "float32"), stream=stream)
        assert device.stats().memory_used == 8 * COUNT
        with device.lease(streams=[ours], hint="1ms"):
            add[(COUNT + 255) // 256, 256, stream](x, y)
        np.testing.assert_array_equal(y.copy_to_host(stream=stream), np.arange(COUNT, dtype="float32") + 1)
        stream.synchronize()
    assert device.stats().charged > 0


def test_slices_and_setting(cuda, device):
    array = cuda.device_array(COUNT, "int32")
    array[:] = 5
    part = array[10:20]
    del array
    gc.collect()
    assert part.copy_to_host().tolist() == [5] * 10


def test_over_the_quota(cuda, device):
    held = cuda.device_array(768 << 20, "uint8")
    with pytest.raises(MemoryError) as failed:
        cuda.device_array(512 << 20, "uint8")
    assert failed.value.code == 2 and device.tenant_name in str(failed.value)
    assert tuple(cuda.current_context().get_memory_info()) == (256 << 20, 1 << 30)
    del held
    gc.collect()
    cuda.device_array(1 << 30, "uint8")  # the memory that waited to be freed made room


def test_interprocess_handles(cuda, run_python):
    array = cuda.to_device(np.arange(16))
    handle = base64.b64encode(pickle.dumps(array.get_ipc_handle())).decode()
    printed = run_python("""
        import base64, os, pickle
        from numba import cuda
        cuda.current_context()
        with pickle.loads(base64.b64decode(os.environ["HANDLE"])) as array:
            print(array.copy_to_host().sum())
    """, HANDLE=handle)
    assert int(printed) == 120


def test_a_program_that_does_not_know_gpushare(cuda, run_python):
    printed = run_python("""
        from numba import cuda
        print(cuda.current_context().get_memory_info().total)
        try:
            cuda.device_array(65 << 20, "uint8")
        except MemoryError:
            print("full")
    """, NUMBA_CUDA_MEMORY_MANAGER="gpushare.numba", GPUSHARE_SPEC="memory=64MiB")
    assert printed.split() == [str(64 << 20), "full"]
