# SPDX-License-Identifier: Apache-2.0
"""Quotas, waiting and reclaiming, and the C functions for frameworks."""

import contextlib
import ctypes
import gc
import sys
import threading

import gpushare
import pytest


def test_the_quota_holds_to_the_byte(gpu):
    with gpu.virtual_device("a", memory="1 GiB") as device:
        keep = device.alloc((1 << 30) - 1)
        with pytest.raises(MemoryError) as caught:
            device.alloc(2)
        error = caught.value
        assert isinstance(error, gpushare.QuotaExceededError) and isinstance(error, gpushare.GpuShareError)
        assert (error.asked, error.left, error.total, error.tenant, error.limit) == (2, 1, 1 << 30, "a", "memory")
        last = device.alloc(1)
        keep.close()
        assert device.memory == ((1 << 30) - 1, 1 << 30)
        last.close()


def test_memory_is_credited_with_its_last_owner(device):
    buffer = device.alloc("1 GiB")
    view = buffer.view((1024,), "float32")
    buffer.close()
    assert device.stats().memory_used == 1 << 30
    del buffer, view
    gc.collect()
    assert device.stats().memory_used == 0


def test_the_device_itself_can_be_full(gpu):
    gpushare.Simulation(gpu.runtime).inject("oom after=0")
    with gpu.virtual_device("a", memory="1GiB") as device, pytest.raises(MemoryError) as caught:
        device.alloc(100)
    assert isinstance(caught.value, gpushare.DeviceOutOfMemoryError) and caught.value.driver_result == 2


@pytest.mark.parametrize("wrong", [1.5, None, b"8", [8], True])
def test_wrong_types_name_the_field(device, wrong):
    with pytest.raises(TypeError, match="^nbytes: "):
        device.alloc(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1 << 70, "8 XB", "50%", ""])
def test_wrong_sizes_are_value_errors(device, wrong):
    with pytest.raises(ValueError):
        device.alloc(wrong)


@pytest.mark.parametrize("call, told", [
    (lambda device: device.alloc(-1), r"^nbytes: -1 given, 1 to 2\^64-1 allowed$"),
    (lambda device: device.alloc(2**64), r"^nbytes: 18446744073709551616 given, 1 to 2\^64-1 allowed$"),
    (lambda device: device.alloc(10**400), r"^nbytes: a number of 1329 bits given, 1 to 2\^64-1 allowed$"),
    (lambda device: device.alloc(""), r"^nbytes: ''[^;]*; bytes as int, or text such as '8 GB', '8GiB' or '512MiB' wanted$"),
    (lambda device: device.alloc("x"), r"^nbytes: 'x': [^;]*; bytes as int, or text [^;]* wanted$"),
    (lambda device: device.alloc("1e99GiB"), r"^nbytes: '1e99GiB': .*; bytes as int, or text [^;]* wanted$"),
    (lambda device: device.alloc("50%"), r"^nbytes: '50%': a part of a device has no size here; bytes as int, "),
    (lambda device: gpushare.Gpu(device.gpu.runtime, -1), r"^name: -1 given, an ordinal of 0 to 2147483647 allowed$"),
])
def test_a_wrong_size_is_told_what_the_field_takes(device, call, told):
    with pytest.raises(ValueError, match=told):
        call(device)


def test_a_fill_is_of_bytes(device):
    with device.stream() as stream, device.alloc(16) as buffer:
        for wrong in (-1, 256, 10**30):
            with pytest.raises(ValueError, match=f"^value: {wrong} given, 0 to 255 allowed$"):
                stream.fill(buffer, wrong)


def test_waiting_for_room(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device:
        keep = device.alloc("1GiB")
        with pytest.raises(TimeoutError):
            device.alloc(1, timeout="20ms")
        thread = threading.Timer(0.02, keep.close)
        thread.start()
        assert device.alloc("1GiB", timeout=None).nbytes == 1 << 30
        thread.join()


def test_what_can_never_fit_is_not_waited_for(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device, pytest.raises(MemoryError):
        device.alloc("2GiB", timeout=None)


def test_reclaim(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device:
        cache = [device.alloc("256MiB") for _ in range(4)]
        asked = []

        def reclaim(wanted, left):
            asked.append((wanted, left))
            cache.pop().close()
            return True

        buffer = device.allocator(reclaim=reclaim).alloc("512MiB")
        assert buffer.nbytes == 512 << 20 and len(cache) == 2
        assert asked == [(512 << 20, 0), (512 << 20, 256 << 20)]
        with pytest.raises(MemoryError):
            device.allocator(reclaim=lambda asked, left: False).alloc("512MiB")
        with pytest.raises(ZeroDivisionError):  # the allocation raises what the callback raised
            device.allocator(reclaim=lambda asked, left: 1 / 0).alloc("512MiB")
        with pytest.raises(TypeError, match="^reclaim: int given"):
            device.allocator(reclaim=5)


def test_c_functions(gpu):
    device = gpu.virtual_device("a", memory="1GiB")
    allocator = device.allocator()
    parameter, malloc, free = allocator.c_functions()
    malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)
    pointer = malloc(parameter, 1 << 29, 0)
    assert pointer and device.stats().memory_used == 1 << 29
    assert malloc(parameter, 1 << 30, 0) is None  # null beyond the quota: frameworks then free their caches
    assert malloc(parameter, 0, 0) is None
    # Frameworks free at exit, when the allocator may already be closed.
    allocator.close()
    stats = device.stats
    free(parameter, pointer, 0)
    assert stats().memory_used == 0
    free(parameter, None, 0)


def test_threads_allocate_together(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device:
        granted = []

        def work():
            for _ in range(200):
                try:
                    buffer = device.alloc("100MiB")
                except MemoryError:
                    continue
                granted.append(device.stats().memory_used)
                buffer.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert granted and max(granted) <= 1 << 30
        assert device.stats().memory_used == 0


def wait_for_a_waiter(device):
    """Waits until a thread is in the queue for more memory than is left. After that no later request is served."""
    with contextlib.suppress(TimeoutError):
        while True:
            device.alloc(1, timeout="1ms").close()


@pytest.mark.parametrize("strategy", ["direct", "suballocating"])
def test_who_waits_keeps_its_place(gpu, strategy):
    with gpu.virtual_device("a", memory="1GiB") as device:
        allocator, got = device.allocator(strategy=strategy), []
        hold = allocator.alloc("600MiB")
        thread = threading.Thread(target=lambda: got.append(allocator.alloc("900MiB", timeout=20)))
        thread.start()
        if strategy == "direct":
            wait_for_a_waiter(device)
        else:
            while not allocator.stats().waiting:
                pass
        for _ in range(3):
            with pytest.raises(TimeoutError):
                allocator.alloc("300MiB", timeout="80ms")
        hold.close()
        thread.join()
        assert got[0].nbytes == 900 << 20


def test_a_wait_is_one_refusal_and_one_event(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device:
        hold = device.alloc("600MiB")
        with gpushare.trace() as trace, pytest.raises(TimeoutError):
            device.alloc("512MiB", timeout="300ms")
        assert device.stats().memory_denied == 1
        assert [event.kind for event in trace.events].count("denied") == 1
        threading.Timer(0.3, hold.close).start()
        with device.alloc("512MiB", timeout=None):  # served, and no other
            assert device.stats().memory_denied == 1


@pytest.mark.parametrize("timeout", [0, "10s", None])
def test_what_reclaim_raises_is_its_own_allocations(gpu, timeout):
    """And the exception ends the wait at once."""
    with gpu.virtual_device("a", memory="1GiB") as device:
        hold, asked = device.alloc("1GiB"), threading.Barrier(3)

        def reclaim(wanted, left):
            asked.wait()  # all of them are in it
            asked.wait()
            raise {100: KeyError, 200: KeyboardInterrupt, 300: ZeroDivisionError}[wanted]

        allocator, raised = device.allocator(reclaim=reclaim), {}

        def allocate(nbytes):
            try:
                allocator.alloc(nbytes, timeout=timeout)
            except BaseException as error:
                raised[nbytes] = type(error)

        threads = [threading.Thread(target=allocate, args=[nbytes]) for nbytes in (100, 200)]
        for thread in threads:
            thread.start()
        allocate(300)
        for thread in threads:
            thread.join()
        assert raised == {100: KeyError, 200: KeyboardInterrupt, 300: ZeroDivisionError}
        hold.close()
        allocator.alloc(100).close()  # nothing is left allocated


def test_reclaim_is_asked_again_while_it_waits(gpu):
    """The function is called while the request keeps its place in the queue, and its exception ends the wait too."""
    with gpu.virtual_device("a", memory="1GiB") as device:
        cache, asked = [device.alloc("512MiB"), device.alloc("512MiB")], []

        def reclaim(wanted, left):
            asked.append((wanted, left))
            if len(asked) == 4:
                cache.pop().close()
            return False

        allocator = device.allocator(reclaim=reclaim)
        allocator.alloc("512MiB", timeout=None).close()
        assert asked == [(512 << 20, 0)] * 4
        assert device.stats().memory_denied == 1  # before the first
        cache.append(device.alloc("512MiB"))

        def raises(wanted, left):
            asked.append(left)
            if len(asked) == 6:
                raise KeyError
            return False

        with pytest.raises(KeyError):
            device.allocator(reclaim=raises).alloc("512MiB", timeout=None)
        assert device.stats().memory_denied == 2


def test_what_reclaim_raises_within_the_c_functions_is_told(gpu):
    with gpu.virtual_device("a", memory="1GiB") as device:
        hold, allocator = device.alloc("1GiB"), device.allocator(reclaim=lambda wanted, left: 1 / 0)
        parameter, malloc, _ = allocator.c_functions()
        malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
        told = []
        before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: told.append(unraisable.exc_type)
        try:
            assert malloc(parameter, 100, 0) is None
        finally:
            sys.unraisablehook = before
        assert told == [ZeroDivisionError]
        hold.close()
        allocator.alloc(100).close()


def test_a_virtual_device_that_is_closed_while_another_thread_allocates(gpu):
    """The allocation ends as usual, or is refused; objects that it uses are not destroyed meanwhile."""
    device = gpu.virtual_device("short", memory="1MiB")
    hold = device.alloc("768KiB")
    got = []
    thread = threading.Thread(target=lambda: got.append(device.alloc("1MiB", timeout=20)))
    thread.start()
    wait_for_a_waiter(device)
    device.close()
    others = [gpu.virtual_device(f"other {i}", memory="1MiB").alloc(1) for i in range(50)]  # in the same place
    hold.close()
    thread.join()
    assert got[0].nbytes == 1 << 20 and got[0].tenant_name == "short" and len(others) == 50


def test_virtual_devices_come_and_go_beneath_allocations(gpu):
    shared, ended = [gpu.virtual_device("0", memory="1MiB")], threading.Event()

    def allocate():
        while not ended.is_set():
            with contextlib.suppress(gpushare.ClosedError):
                shared[0].empty(16).close()

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(1, 500):
        before, shared[0] = shared[0], gpu.virtual_device(str(i), memory="1MiB")
        before.close()
    ended.set()
    for thread in threads:
        thread.join()


def test_what_is_being_allocated_is_not_in_use_yet(virtual_gpu):
    runtime, device, kept = virtual_gpu.runtime, virtual_gpu.virtual_device("a", memory="1GiB"), []
    for call in ("cuMemAlloc", "cuMemAlloc_v2"):
        gpushare.Simulation(runtime).inject(f"slow call={call} host=1ms")
    thread = runtime.start_thread(lambda: kept.append(device.alloc("1MiB")))
    runtime.sleep("500us")
    during = device.stats()
    assert not kept and (during.memory_used, during.memory_peak) == (0, 0)
    assert device.memory[0] == (1 << 30) - (1 << 20)  # it is not available to others any more
    thread.join()
    after = device.stats()
    assert (after.memory_used, after.memory_peak) == (1 << 20, 1 << 20)
