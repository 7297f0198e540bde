# SPDX-License-Identifier: Apache-2.0
"""Launches and their arguments, copies, events, graphs, yield points."""

import ctypes
import gc
import signal
import threading
import time

import gpushare
import numpy as np
import pytest


def test_time_on_the_virtual_clock(virtual_gpu, ptx):
    simulation = gpushare.Simulation(virtual_gpu.runtime)
    device = virtual_gpu.virtual_device("a", memory="1GiB")
    stream, spin = device.stream(), virtual_gpu.load(ptx)["spin"]
    before = simulation.now()
    for _ in range(10):
        stream.launch(spin, (100, 1, 1), (256,), 1_000_000)
    stream.synchronize()
    assert simulation.truth()["used"] == pytest.approx(0.01)
    assert 0.01 < simulation.now() - before < 0.011
    virtual_gpu.runtime.sleep(0.01)
    assert device.stats().measured == pytest.approx(0.01, rel=0.01) and device.stats().launches == 10


def test_shares_hold_on_the_virtual_clock(virtual_gpu, ptx):
    runtime, simulation = virtual_gpu.runtime, gpushare.Simulation(virtual_gpu.runtime)
    spin = virtual_gpu.load(ptx)["spin"]
    devices = [virtual_gpu.virtual_device(name, weight=weight) for name, weight in (("a", 3), ("b", 1))]
    streams = [device.stream() for device in devices]
    end = runtime.now() + 1.0

    def work(stream):
        while runtime.now() < end:
            stream.launch(spin, 100, 256, 100_000)

    for account, stream in enumerate(streams, 1):
        simulation.set_account(stream, account)
    threads = [runtime.start_thread(lambda s=s: work(s)) for s in streams]
    for thread in threads:
        thread.join()
    used = [simulation.truth(account)["used"] for account in (1, 2)]
    assert used[0] / sum(used) == pytest.approx(0.75, abs=0.02)


def test_clock_threads(gpu):
    runtime = gpu.runtime
    thread = runtime.start_thread(lambda: 42, name="answer")
    assert not thread.joined and thread.join() == 42 and thread.joined
    with pytest.raises(ZeroDivisionError):
        runtime.start_thread(lambda: 1 / 0).join()


@pytest.mark.parametrize("arguments", [
    (1, 2, 3.0, 4.0, True), (None, 0, 0.5, 1, 255),
    (ctypes.c_void_p(1), ctypes.c_uint32(2), ctypes.c_float(3), ctypes.c_double(4), ctypes.c_bool(True)),
    (np.uint64(1), np.int32(2), np.float32(3), np.float64(4), np.uint8(5)),
    (2**64 - 1, 2**32 - 1, 1.0, 1.0, False), (-(2**63), -(2**31), 1.0, 1.0, -128),
])
def test_arguments(mixed, stream, arguments):
    stream.launch(mixed, 1, 1, *arguments)
    stream.synchronize()


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ((1, 2, 3.0, 4.0), TypeError, "takes 5 arguments, 4 given"),
    ((1, 2**32, 3.0, 4.0, 0), OverflowError, "argument 1 .*does not fit into 4 bytes"),
    ((1, 2, 3.0, 4.0, 256), OverflowError, "argument 4"),
    ((2**64, 2, 3.0, 4.0, 0), OverflowError, "argument 0"),
    ((1, 2, np.float64(3), 4.0, 0), TypeError, "argument 2 .*8 bytes given, the parameter has 4"),
    ((1, 2, 3.0, 4.0, 1.5), TypeError, "argument 4"),
    ((b"12345678", 2, 3.0, 4.0, 0), TypeError, "lies on the host; copy it to a Buffer"),
    ((np.zeros(4), 2, 3.0, 4.0, 0), TypeError, "lies on the host"),
    (("x", 2, 3.0, 4.0, 0), TypeError, "argument 0 of kernel 'mixed': str given"),
    ((1, None, 3.0, 4.0, 0), TypeError, "argument 1"),
])
def test_arguments_that_do_not_fit_are_named(mixed, stream, arguments, error, message):
    with pytest.raises(error, match=message):
        stream.launch(mixed, 1, 1, *arguments)


def test_buffers_as_arguments(mixed, device, stream):
    buffer = device.empty((4,), "float32")
    stream.launch(mixed, 1, 1, buffer, 4, 1.0, 1.0, 0)
    with pytest.raises(TypeError, match="an address given, the parameter has 4 bytes"):
        stream.launch(mixed, 1, 1, buffer, buffer, 1.0, 1.0, 0)
    buffer.close()
    with pytest.raises(gpushare.ClosedError):
        stream.launch(mixed, 1, 1, buffer, 4, 1.0, 1.0, 0)


@pytest.mark.parametrize(("grid", "block", "error"), [
    ((), 1, ValueError), ((1, 1, 1, 1), 1, ValueError), (1.5, 1, TypeError), (1, "x", TypeError), (-1, 1, ValueError),
    (2**40, 1, ValueError), (0, 1, ValueError), (1, 5000, ValueError), ((1, 2.5), 1, TypeError),
])
def test_shapes_that_cannot_be(stream, spin, grid, block, error):
    with pytest.raises(error):
        stream.launch(spin, grid, block, 1)


def test_launch_is_called_rightly(stream, spin):
    stream.launch(spin, np.int64(1), np.int32(1), 1000, timeout=None, shared="1KiB")
    for call, message in (
        (lambda: stream.launch(spin, 1), "takes a kernel, a grid and a block"),
        (lambda: stream.launch("spin", 1, 1), "^kernel: str given"),
        (lambda: stream.launch(spin, 1, 1, 1, sharde=0), "no keyword 'sharde'"),
        (lambda: stream.launch(spin, 1, 1, 1, timeout="soon"), "^timeout: 'soon' given"),
        (lambda: stream.launch(spin, 1, 1, 1, shared=[]), "^shared: "),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_a_timeout_passes(device, stream, spin):
    device.suspend()
    for timeout in (0, "5ms", 0.07):
        with pytest.raises(TimeoutError, match="is suspended") as caught:
            stream.launch(spin, 1, 1, 1000, timeout=timeout)
        assert isinstance(caught.value, gpushare.DeadlineExceededError)
    device.resume()
    stream.launch(spin, 1, 1, 1000, timeout=1)


def test_modules(gpu, ptx):
    module = gpu.load(ptx.encode())
    kernel = module["spin"]
    assert kernel.name == "spin" and kernel.ptr and 0 < kernel.footprint(1, 1) <= 1
    assert gpushare.Kernel.from_ptr(gpu, kernel.ptr).footprint(1, 1) == kernel.footprint(1, 1)
    with pytest.raises(LookupError):
        module["none_such"]
    with pytest.raises(ValueError):
        gpu.load("this is no PTX")
    with pytest.raises(TypeError, match="^image: int given"):
        gpu.load(5)
    module.close()
    assert kernel.footprint(1, 1)  # the kernel keeps its module loaded


def test_copies_round_trip(device, stream):
    data = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    there, elsewhere = device.empty(data.shape, data.dtype), device.empty(data.shape, np.float32)
    back = np.zeros_like(data)
    stream.copy_to_device(there, data)
    stream.copy_on_device(elsewhere, there)
    stream.copy_to_host(back, elsewhere)
    assert (back == data).all()
    stream.fill(there, 0)
    stream.copy_to_host(back, there, 8)
    assert back[0, 0] == 0 and back[0, 1] == 0 and back[0, 2] == 2
    for _ in range(1000):
        stream.copy_to_device(there, data[:1], wait=False)
    stream.synchronize()
    stream.copy_to_device(there.ptr, b"12345678")
    assert device.stats().h2d_bytes > 0


def test_copies_that_cannot_be(device, stream):
    buffer = device.alloc(8)
    for call, error, message in (
        (lambda: stream.copy_to_device(buffer, bytes(9)), ValueError, "9 bytes wanted, it has 8"),
        (lambda: stream.copy_to_device(buffer, "text"), TypeError, "^source: str given"),
        (lambda: stream.copy_to_device("x", b""), TypeError, "^to: str given"),
        (lambda: stream.copy_to_device(buffer, np.zeros((4, 4))[:, 1]), TypeError, "contiguous"),
        (lambda: stream.copy_to_host(b"12345678", buffer), TypeError, "writable"),
        (lambda: stream.copy_to_host(bytearray(4), buffer, 8), ValueError, "^nbytes: 8 given, 'to' has 4"),
        (lambda: stream.copy_on_device(buffer, buffer, 9), ValueError, "9 bytes wanted"),
        (lambda: stream.copy_on_device(1, 2), ValueError, "^nbytes: wanted"),
        (lambda: stream.fill(buffer, 256), ValueError, "^value: 256 given"),
        (lambda: stream.fill(buffer, 1.0), TypeError, "^value: float given"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_events(device, stream, spin):
    start, end = gpushare.Event(device, timing=True), gpushare.Event(device, timing=True)
    other = device.stream()
    # Behind this kernel the events follow each other directly, however long the calls between them take.
    stream.launch(spin, 1, 1, 20_000_000)
    stream.record(start)
    stream.launch(spin, 1, 1, 2_000_000)
    stream.record(end)
    other.wait(end)
    end.synchronize()
    assert end.done and end.since(start) == pytest.approx(0.002, abs=2e-4)
    with pytest.raises(TypeError, match="^event: str given"):
        stream.record("x")
    with pytest.raises(TypeError, match="^start: int given"):
        end.since(5)


def test_graphs(device, stream, spin):
    stream.begin_capture()
    stream.launch(spin, 1, 1, 1000)
    stream.launch(spin, 1, 1, 1000)
    graph = stream.end_capture()
    stream.launch_graph(graph)
    stream.launch_graph(graph, timeout=1)
    stream.synchronize()
    assert device.stats().graph_launches == 2
    with pytest.raises(TypeError, match="^graph: "):
        stream.launch_graph(5)
    with pytest.raises(RuntimeError):
        stream.end_capture()


def test_yield_points(device, stream):
    gpushare.yield_point(stream)
    gpushare.yield_point(device)
    device.yield_point()
    with pytest.raises(TypeError, match="^of: int given"):
        gpushare.yield_point(5)


def test_faults_reach_python(gpu, device, stream, spin):
    gpushare.Simulation(gpu.runtime).inject("illegal_address kernel=spin")
    stream.launch(spin, 1, 1, 1000)
    with pytest.raises(gpushare.AbortedError) as caught:
        stream.synchronize()
    assert caught.value.driver_result == 700


def test_a_device_with_its_own_context_takes_kernels_of_its_own(virtual_gpu, ptx):
    device = virtual_gpu.virtual_device("apart", isolation="context")
    stream = device.stream()
    with pytest.raises(gpushare.NotFoundError, match="INVALID_HANDLE"):
        stream.launch(virtual_gpu.load(ptx)["spin"], 1, 32, 1000)
    with device.load(ptx) as module:
        stream.launch(module["spin"], 1, 32, 1000)
        stream.synchronize()
    with pytest.raises(TypeError, match="image"):
        device.load(3)


def a_host_array(nbytes):
    """A bytearray, and a function that tells whether its memory has been released: an exported one cannot be resized."""
    host = bytearray(nbytes)

    def kept():
        try:
            host.append(0)
        except BufferError:
            return True
        host.pop()
        return False

    return host, kept


LETS_GO = {
    "close": lambda stream: stream.close(),
    "drop": lambda stream: None,
}


@pytest.mark.parametrize("how", LETS_GO)
def test_what_an_asynchronous_copy_uses_is_kept_until_it_is_done(gpu, device, spin, how):
    """Even if its stream is closed; then it is released without any wait."""
    stream, buffer = device.stream(), device.alloc("1MiB")
    host, kept = a_host_array(1 << 20)
    driver, view = ctypes.CDLL(gpu.runtime.driver_path), (ctypes.c_ubyte * len(host)).from_buffer(host)
    address = ctypes.c_void_p(ctypes.addressof(view))
    del view
    # For memory that is not pinned, the driver waits for the copy itself.
    assert driver.cuMemHostRegister_v2(address, ctypes.c_size_t(len(host)), 0) == 0
    simulation = gpushare.Simulation(gpu.runtime)
    simulation.inject("hang kernel=spin")
    stream.launch(spin, 1, 1, 1_000_000)
    stream.copy_to_device(buffer, host, wait=False)
    LETS_GO[how](stream)  # this must not wait for ever
    del stream
    gc.collect()
    device.stream().close()  # closing a stream checks for finished work
    assert kept()
    simulation.inject("clear")
    began = time.monotonic()
    while kept() and time.monotonic() - began < 20:
        device.stream().close()
        time.sleep(0.005)
    assert not kept()
    assert driver.cuMemHostUnregister(address) == 0


def test_a_synchronize_lets_go_of_what_was_there_before_it(device, stream, spin):
    first, first_kept = a_host_array(64)
    second, second_kept = a_host_array(64)
    buffer = device.alloc(64)
    stream.launch(spin, 1, 1, 200_000_000)
    stream.copy_to_device(buffer, first, wait=False)
    waits = threading.Thread(target=stream.synchronize)
    waits.start()
    time.sleep(0.05)
    stream.launch(spin, 1, 1, 300_000_000)
    stream.copy_to_device(buffer, second, wait=False)
    event = gpushare.Event(device)
    stream.record(event)
    waits.join()
    if not event.done:  # the wait may have covered the second one as well
        assert second_kept()
    assert not first_kept()
    stream.synchronize()
    assert not second_kept()


def test_a_synchronize_that_is_interrupted_keeps_it(device, stream, spin):
    def handler(*_):
        raise KeyError

    host, kept = a_host_array(64)
    buffer, before = device.alloc(64), signal.signal(signal.SIGUSR1, handler)
    try:
        stream.launch(spin, 1, 1, 300_000_000)
        stream.copy_to_device(buffer, host, wait=False)
        threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1]).start()
        with pytest.raises(KeyError):
            stream.synchronize()
        assert kept()
        stream.synchronize()
        assert not kept()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_end_of_a_runtime_waits_for_copies(ptx):
    host, kept = a_host_array(64)
    with gpushare.simulated_gpu(memory="1GiB", overlap="serial") as gpu:
        device = gpu.virtual_device("a")
        stream, buffer = device.stream(), device.alloc(64)
        stream.launch(gpu.load(ptx)["spin"], 1, 1, 50_000_000)
        stream.copy_to_device(buffer, host, wait=False)
        assert kept()
    assert not kept()


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_clock_thread_is_joined_by_several(clock):
    with gpushare.simulated_gpu(clock=clock) as gpu:
        runtime, results = gpu.runtime, []
        thread = runtime.start_thread(lambda: runtime.sleep(0.2) or "done")
        others = [runtime.start_thread(lambda: results.append(thread.join())) for _ in range(3)]
        results.append(thread.join())
        for other in others:
            other.join()
        assert results == ["done"] * 4 and thread.joined
