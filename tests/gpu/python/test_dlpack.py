# SPDX-License-Identifier: Apache-2.0
"""gpushare's buffers as other libraries' arrays over the same memory, and back."""

import gc

import numpy as np
import pytest

CONSUMERS = {"torch": "torch", "cupy": "cupy-cuda12x", "jax": "'jax[cuda12]'"}
COUNT = 1 << 20


@pytest.fixture(params=CONSUMERS)
def consumer(request, framework, monkeypatch):
    if request.param == "jax":
        # Otherwise JAX takes three quarters of the GPU at its first use.
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = framework(request.param, CONSUMERS[request.param])
    if not {"torch": lambda: module.cuda.is_available(), "cupy": lambda: True,
            "jax": lambda: module.default_backend() == "gpu"}[request.param]():
        pytest.skip(f"{request.param} is installed for the CPU alone")
    return module


def imported(consumer, buffer):
    return (consumer.dlpack if consumer.__name__ == "jax" else consumer).from_dlpack(buffer)


def to_host(consumer, array):
    return {"torch": lambda: array.cpu().numpy(), "cupy": lambda: consumer.asnumpy(array),
            "jax": lambda: np.asarray(array)}[consumer.__name__]()


def test_what_gpushare_wrote_is_read(consumer, device):
    host = np.arange(COUNT, dtype="float32")
    with device.stream() as stream:
        buffer = device.empty(COUNT, "float32")
        stream.copy_to_device(buffer, host, wait=False)
        array = imported(consumer, buffer)  # on a stream of its own, which waits for this one
        np.testing.assert_array_equal(to_host(consumer, array), host)


def test_it_stays_charged_until_the_last_owner_goes(consumer, device):
    buffer = device.empty(COUNT, "float32")
    array = imported(consumer, buffer)
    del buffer
    gc.collect()
    assert device.stats().memory_used == 4 * COUNT
    del array
    gc.collect()
    assert device.stats().memory_used == 0


def test_what_others_write_is_read(framework, device):
    torch = framework("torch", "torch")
    buffer = device.empty(COUNT, "float32")
    tensor = torch.from_dlpack(buffer)
    assert tensor.data_ptr() == buffer.ptr and tensor.device.index == device.gpu.ordinal
    tensor.fill_(3)
    torch.cuda.synchronize()
    host = np.empty(COUNT, "float32")
    with device.stream() as stream:
        stream.copy_to_host(host, buffer)
    assert (host == 3).all()


def test_arrays_of_others_are_copied(framework, device):
    cupy = framework("cupy", "cupy-cuda12x")
    array = cupy.arange(COUNT, dtype="float32")
    cupy.cuda.Device().synchronize()
    host = np.empty(COUNT, "float32")
    with device.stream() as stream:
        stream.copy_to_host(host, array)  # by __cuda_array_interface__
    np.testing.assert_array_equal(host, np.arange(COUNT, dtype="float32"))


def test_numpy_gets_a_copy(device):
    host = np.arange(COUNT, dtype="int64")
    buffer = device.empty(COUNT, "int64")
    with device.stream() as stream:
        stream.copy_to_device(buffer, host)
    np.testing.assert_array_equal(np.from_dlpack(buffer, device="cpu", copy=True), host)
