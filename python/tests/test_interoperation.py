# SPDX-License-Identifier: Apache-2.0
"""What other libraries see: __cuda_stream__, __cuda_array_interface__, DLPack."""

import ctypes
import gc
import time

import gpushare
import numpy as np
import pytest


class Foreign:
    """A stream of another library."""

    def __init__(self, pointer, version=0):
        self._pair = (version, pointer)

    def __cuda_stream__(self):
        return self._pair


def native_stream(gpu):
    """A stream created by the driver, without gpushare."""
    driver = ctypes.CDLL(gpu.runtime.driver_path)
    stream = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream.value


def test_streams_speak_the_protocol(stream):
    assert stream.__cuda_stream__() == (0, stream.ptr) and stream.cuda_stream == stream.ptr != 0


def test_adopting_streams(gpu, device, spin):
    pointer = native_stream(gpu)
    for foreign in (Foreign(pointer), pointer, type("Torch", (), {"cuda_stream": pointer}), type("Cupy", (), {"ptr": pointer})):
        with device.stream(foreign) as stream:
            assert stream.ptr == pointer
            stream.launch(spin, 1, 1, 1000)
            stream.synchronize()
            with pytest.raises(gpushare.AlreadyExistsError):
                device.stream(pointer)
    with gpushare.Stream(device, 0) as legacy:
        legacy.synchronize()


def test_what_is_no_stream(device):
    for wrong in ("x", 1.5, object()):
        with pytest.raises(TypeError, match="^adopt: "):
            device.stream(wrong)
    with pytest.raises(TypeError, match="gave \\(7, 1\\)"):
        device.stream(Foreign(1, version=7))
    with pytest.raises((ValueError, LookupError)):
        device.stream(0xDEAD000)


def test_a_stream_of_another_gpu():
    with gpushare.simulated_gpu(devices=2) as gpu:
        other = gpushare.Gpu(gpu.runtime, 1).virtual_device("other")
        mine = gpu.virtual_device("mine")
        with pytest.raises(ValueError, match="on GPU 1, the virtual device on GPU 0"):
            mine.stream(other.stream())
        # Other libraries see the number of the physical GPU.
        assert other.alloc(8).__dlpack_device__() == (2, 1)


def test_array_interface(device, stream):
    buffer = device.empty((3, 4), "float16")
    interface = buffer.__cuda_array_interface__
    assert interface == {"shape": (3, 4), "typestr": "<f2", "data": (buffer.ptr, False), "version": 3,
                         "strides": None, "stream": None}
    stream.fill(buffer, 0)
    assert buffer.__cuda_array_interface__["stream"] == stream.ptr
    stream.close()
    assert buffer.__cuda_array_interface__["stream"] is None

    class Theirs:
        __cuda_array_interface__ = interface

    with device.stream() as mine:
        mine.copy_to_device(Theirs(), bytes(24))
        with pytest.raises(ValueError, match="it has 24"):
            mine.copy_to_device(Theirs(), bytes(25))


def test_buffers(device):
    buffer = device.empty((2, 3), np.dtype("int64"))
    assert (buffer.shape, buffer.dtype, buffer.nbytes, len(buffer)) == ((2, 3), "int64", 48, 2)
    assert buffer.view(dtype="uint8").shape == (48,) and buffer.view((3, 2)).dtype == "int64"
    assert device.empty(5, "bfloat16").nbytes == 10 and device.empty((), "float64").nbytes == 8
    assert device.empty((0, 3)).nbytes == 0
    for call, error, message in (
        (lambda: buffer.view((100,)), ValueError, "800 bytes wanted, the buffer has 48"),
        (lambda: buffer.view(dtype="complex128").view(dtype="float32").view(dtype="nonsense"), ValueError, "^dtype: "),
        (lambda: device.empty((-1,)), ValueError, "^shape: "),
        (lambda: device.empty("ab"), TypeError, "^shape: "),
        (lambda: device.empty((1 << 40, 1 << 40)), ValueError, "2\\^64"),
        (lambda: device.empty(1, 5), TypeError, "^dtype: "),
        (lambda: device.alloc(7).view(dtype="float32"), ValueError, "not a whole number"),
        (lambda: len(device.empty(())), TypeError, "len"),
    ):
        with pytest.raises(error, match=message):
            call()


# ---- DLPack, read as a consumer in C reads it ----


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                      ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", Tensor)]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_used = b"used_dltensor_versioned"


def read(capsule):
    return Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))


def test_dlpack_describes_the_buffer(device):
    buffer = device.empty((2, 3), "float32")
    capsule = buffer.__dlpack__(max_version=(1, 1))
    managed = read(capsule)
    tensor = managed.tensor
    assert (managed.major, managed.minor, managed.flags) == (1, 0, 0)
    assert (tensor.data, tensor.device_type, tensor.device_id, tensor.ndim) == (buffer.ptr, 2, 0, 2)
    assert (tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset) == (2, 32, 1, 0)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 3], [3, 1])
    for version in (None, (0, 8)):
        assert '"dltensor"' in repr(buffer.__dlpack__(max_version=version))


def test_a_consumer_owns_the_memory(device):
    buffer = device.alloc("1 GiB")
    capsule = buffer.__dlpack__(max_version=(1, 0))
    managed = read(capsule)
    _rename(capsule, _used)  # consumed: the capsule's destructor leaves the tensor alone
    buffer.close()
    del buffer, capsule
    gc.collect()
    assert device.stats().memory_used == 1 << 30
    managed.deleter(managed)
    assert device.stats().memory_used == 0


def test_a_capsule_that_nobody_took_frees(device):
    device.alloc(1000).__dlpack__()
    gc.collect()
    assert device.stats().memory_used == 0


def test_a_consumers_stream_waits_for_what_was_written(gpu, device, stream, spin):
    simulation = gpushare.Simulation(gpu.runtime)
    consumer = device.stream()
    buffer = device.alloc(8)
    before = simulation.calls("cuStreamWaitEvent")
    buffer.__dlpack__(stream=consumer.ptr)
    assert simulation.calls("cuStreamWaitEvent") == before  # there was no writer
    stream.fill(buffer, 1)
    for given in (consumer.ptr, None, 1, 2):
        buffer.__dlpack__(stream=given)
    assert simulation.calls("cuStreamWaitEvent") == before + 4
    buffer.__dlpack__(stream=-1)
    assert simulation.calls("cuStreamWaitEvent") == before + 4
    with pytest.raises(ValueError, match="^stream: 0"):
        buffer.__dlpack__(stream=0)
    with pytest.raises(TypeError, match="^stream: str"):
        buffer.__dlpack__(stream="x")


def test_numpy_takes_a_copy_on_the_host(device, stream):
    data = np.arange(12, dtype=np.int32).reshape(3, 4)
    buffer = device.empty((3, 4), "int32")
    stream.copy_to_device(buffer, data, wait=False)
    copied = np.from_dlpack(buffer, device="cpu", copy=True)
    assert (copied == data).all()
    buffer.close()
    assert copied[2, 3] == 11


def test_copies_and_refusals(device, stream):
    buffer = device.alloc(100)
    stream.fill(buffer, 7)
    capsule = buffer.__dlpack__(max_version=(1, 0), copy=True)
    managed = read(capsule)
    assert managed.flags == 2 and managed.tensor.data != buffer.ptr
    with pytest.raises(BufferError, match="copy=False"):
        buffer.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="on CUDA device 0"):
        buffer.__dlpack__(dl_device=(2, 1))
    with pytest.raises(TypeError, match="^max_version: "):
        buffer.__dlpack__(max_version=1)


def native_wait(gpu, consumer, event):
    """Whether all work of `consumer` is complete at this point."""
    driver = ctypes.CDLL(gpu.runtime.driver_path)
    assert driver.cuStreamSynchronize(ctypes.c_void_p(consumer)) == 0
    return event.done


@pytest.mark.parametrize("how", ["interface", "dlpack"])
@pytest.mark.parametrize("ends", [(), (0,), (0, 1)], ids=["both live", "first closed", "both closed"])
def test_a_consumer_waits_for_all_streams_that_wrote(gpu, device, spin, how, ends):
    streams, buffer = [device.stream(), device.stream()], device.alloc(8)
    first, event = streams[0], gpushare.Event(device)
    first.launch(spin, 1, 1, 150_000_000)
    first.fill(buffer, 1)
    first.record(event)
    streams[1].fill(buffer, 2, 4)
    for end in ends:
        streams[end].close()
    assert not event.done  # closing does not wait
    if how == "interface":
        named = buffer.__cuda_array_interface__["stream"]
        assert named == (None if len(ends) == 2 else streams[1].ptr)
        assert event.done if named is None else native_wait(gpu, named, event)
    else:
        consumer = native_stream(gpu)
        buffer.__dlpack__(stream=consumer)
        assert native_wait(gpu, consumer, event)


@pytest.mark.parametrize("use", ["copy", "fill", "launch"])
def test_what_another_library_writes_is_waited_for(gpu, device, stream, spin, mixed, use):
    """The interface names the stream on which the array was written."""
    driver, theirs, buffer = ctypes.CDLL(gpu.runtime.driver_path), device.stream(), device.alloc(8)
    event = gpushare.Event(device)
    theirs.launch(spin, 1, 1, 150_000_000)
    theirs.record(event)

    class Array:
        def __init__(self, stream):
            self.__cuda_array_interface__ = {"shape": (8,), "typestr": "|u1", "data": (buffer.ptr, False), "version": 3,
                                             "strides": None, "stream": stream}

    def write(array):
        if use == "copy":
            stream.copy_to_device(array, bytes(8), wait=False)
        elif use == "fill":
            stream.fill(array, 1)
        else:
            stream.launch(mixed, 1, 1, array, 1, 1.0, 1.0, True)

    began = time.monotonic()
    write(Array(theirs.ptr))
    assert time.monotonic() - began < 0.12  # the wait is on the device
    stream.synchronize()
    assert event.done
    write(Array(stream.ptr))  # on its own stream
    write(Array(1))
    write(Array(None))
    with pytest.raises(ValueError, match="stream 0"):
        write(Array(0))
    assert driver.cuCtxSynchronize() in (0, 201)
