# SPDX-License-Identifier: Apache-2.0
"""Allocators: strategies, streams, statistics, timeouts; memory beyond the quota; host functions."""

import gc
import sys
import threading
import weakref

import pytest

import gpushare

STRATEGIES = ["direct", "pool", "suballocating"]
MiB = 1 << 20


@pytest.fixture
def gpu():
    with gpushare.simulated_gpu(memory="8GiB", clock="virtual") as simulated:
        yield simulated


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_allocates_in_the_order_of_a_stream(gpu, strategy):
    device = gpu.virtual_device("a", memory="64MiB")
    stream = device.stream()
    with device.allocator(strategy=strategy) as allocator:
        buffer = allocator.alloc("3MiB", stream=stream)
        stream.fill(buffer, 7)
        first = buffer.ptr
        assert buffer.__cuda_array_interface__["stream"] == stream.ptr
        buffer.close()
        again = allocator.empty((3, MiB), "uint8", stream=stream)
        if strategy == "suballocating":
            assert again.ptr == first  # at once: it is on the same stream
        assert again.shape == (3, MiB)
        again.close()
        stream.synchronize()
        if strategy != "direct":
            allocator.trim()
        assert device.stats().memory_used == 0


def test_a_stream_of_another_library_is_adopted_first(gpu):
    allocator = gpu.virtual_device("a", memory="64MiB").allocator(strategy="suballocating")
    with pytest.raises(TypeError, match=r"device\.stream\(x\) adopts"):
        allocator.alloc(1, stream=1234)


def test_strategies_by_name(gpu):
    device = gpu.virtual_device("a", memory="64MiB")
    with pytest.raises(ValueError, match="'direct', 'pool', 'suballocating' or 'swappable' wanted"):
        device.allocator(strategy="best")
    with pytest.raises(TypeError, match="strategy"):
        device.allocator(strategy=2)


def test_statistics_and_trim(gpu):
    device = gpu.virtual_device("a", memory="64MiB")
    allocator = device.allocator(strategy="suballocating")
    buffers = [allocator.alloc("256KiB") for _ in range(8)]
    stats = allocator.stats()
    assert isinstance(stats, gpushare.PoolStats)
    assert (stats.reserved, stats.live, stats.idle, stats.served, stats.hits) == (2 * MiB, 2 * MiB, 0, 8, 7)
    for buffer in buffers[::2]:
        buffer.close()
    more = allocator.alloc("512KiB")
    stats = allocator.stats()
    assert stats.fragmentation == pytest.approx(1 - 1.5 / 2.5)
    for buffer in [*buffers, more]:
        buffer.close()
    allocator.trim("1MiB")
    assert allocator.stats().reserved == 2 * MiB
    allocator.trim()
    assert allocator.stats().reserved == device.stats().memory_used == 0
    direct = device.allocator()
    for call in (direct.trim, direct.stats):
        with pytest.raises(gpushare.FailedPreconditionError, match="keeps no pool"):
            call()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_timeout_waits_for_room(gpu, strategy):
    runtime = gpu.runtime
    device = gpu.virtual_device("a", memory="64MiB")
    allocator = device.allocator(strategy=strategy)
    held = allocator.alloc("60MiB")
    began = runtime.now()
    with pytest.raises(gpushare.DeadlineExceededError):
        allocator.alloc("32MiB", timeout="120ms")
    assert runtime.now() - began == pytest.approx(0.120, abs=0.005)
    with pytest.raises(gpushare.QuotaExceededError):
        allocator.alloc("32MiB")

    def free():
        runtime.sleep(0.070)
        held.close()

    began = runtime.now()
    thread = runtime.start_thread(free)
    allocator.alloc("32MiB", timeout=1)
    assert runtime.now() - began == pytest.approx(0.070, abs=0.005)
    thread.join()


# ---- Swappable memory ----


def test_swappable_memory_leaves_while_suspended(gpu):
    device = gpu.virtual_device("a", memory="64MiB")
    memory = device.allocator(strategy="swappable").alloc("20MiB")
    stream = device.stream()
    data = bytes(range(256)) * (MiB // 64)  # 4 MiB
    stream.copy_to_device(memory, data)
    stream.synchronize()
    address = memory.ptr
    device.suspend()
    stats = device.stats()
    assert (stats.memory_used, stats.memory_swapped, stats.swaps_out, stats.swaps_in) == (0, 20 * MiB, 1, 0)
    other = device.alloc("60MiB")
    with pytest.raises(gpushare.QuotaExceededError, match="stays suspended"):
        device.resume()
    other.close()
    device.resume()
    assert memory.ptr == address
    stats = device.stats()
    assert (stats.memory_used, stats.memory_swapped, stats.swaps_in) == (20 * MiB, 0, 1)
    assert stats.swapped_in_bytes == stats.swapped_out_bytes == 20 * MiB
    assert stats.swap_time > 0
    host = bytearray(len(data))
    stream.copy_to_host(host, memory)
    assert bytes(host) == data
    memory.close()


# ---- Memory beyond the quota ----


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_borrowed_comes_back(gpu, strategy):
    owner = gpu.virtual_device("owner", memory="4GiB")
    borrower = gpu.virtual_device("borrower", memory="1GiB", memory_cap="6GiB", priority="low")
    assert borrower.spec.memory_cap == 6 << 30
    allocator = borrower.allocator(strategy=strategy)
    held = [allocator.alloc("512MiB") for _ in range(12)]
    assert borrower.stats().memory_borrowed == 5 << 30
    lent = owner.stats().memory_lent
    assert lent > 0
    asked = []

    def give(nbytes):
        asked.append(nbytes)
        held.pop().close()
        return True

    borrower.on_reclaim(give)
    memory = owner.allocator(strategy=strategy).alloc("4GiB")
    assert sum(512 * MiB for _ in asked) >= lent - 512 * MiB
    assert all(isinstance(nbytes, int) for nbytes in asked)
    assert owner.stats().memory_lent == 0
    memory.close()


def test_who_refuses_keeps_it_and_what_it_raises_is_seen(gpu, monkeypatch):
    owner = gpu.virtual_device("owner", memory="4GiB")
    borrower = gpu.virtual_device("borrower", memory="1GiB", memory_cap="100%")
    held = borrower.alloc(borrower.memory[0])
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: seen.append(str(event.exc_value)))

    def refuse(nbytes):
        raise RuntimeError("not now")

    borrower.on_reclaim(refuse)
    with pytest.raises(gpushare.QuotaExceededError, match="lent to others"):
        owner.alloc("1GiB")
    assert seen == ["not now"]
    borrower.on_reclaim(None)
    with pytest.raises(gpushare.QuotaExceededError):
        owner.alloc("1GiB")
    assert seen == ["not now"]
    held.close()
    owner.alloc("1GiB")
    with pytest.raises(TypeError, match="a function of the number of bytes"):
        borrower.on_reclaim(3)


def test_the_function_goes_with_the_virtual_device(gpu):
    class Cache:
        def give(self, nbytes):
            return False

    cache = Cache()
    alive = weakref.ref(cache)
    device = gpu.virtual_device("a", memory="1GiB", memory_cap="2GiB")
    device.on_reclaim(cache.give)
    del cache
    gc.collect()
    assert alive() is not None
    device.close()
    gc.collect()
    assert alive() is None


def test_a_cap_of_memory_in_specs():
    spec = gpushare.VirtualDeviceSpec(memory="1GiB", memory_cap="50%")
    assert spec.memory_cap == "50%"
    assert str(spec) == "memory=1GiB,memory_cap=50%"
    assert spec.replace(memory_cap=2 << 30).to_dict() == {"memory": 1 << 30, "memory_cap": 2 << 30}
    with pytest.raises(ValueError, match="less than 'memory'"):
        gpushare.VirtualDeviceSpec(memory="2GiB", memory_cap="1GiB")
    with pytest.raises(ValueError, match="needs 'memory'"):
        gpushare.VirtualDeviceSpec(memory_cap="1GiB")
    with pytest.raises(TypeError, match="memory_cap"):
        gpushare.VirtualDeviceSpec(memory="2GiB", memory_cap=2.5)


# ---- Host functions ----


def test_a_host_function_runs_when_the_stream_comes_to_it(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: seen.append(str(event.exc_value)))
    with gpushare.simulated_gpu(memory="8GiB") as gpu:
        device = gpu.virtual_device("a", memory="64MiB")
        stream = device.stream()
        ran = threading.Event()
        stream.launch_host(ran.set)

        def fails():
            raise RuntimeError("in the stream")

        stream.launch_host(fails)
        stream.synchronize()
        assert ran.is_set()
        assert seen == ["in the stream"]
        with pytest.raises(TypeError, match="callable"):
            stream.launch_host(3)


def test_a_host_function_in_a_graph_runs_at_every_launch():
    with gpushare.simulated_gpu(memory="8GiB") as gpu:
        device = gpu.virtual_device("a", memory="64MiB")
        stream = device.stream()
        runs = []
        stream.begin_capture()
        stream.launch_host(lambda: runs.append(1))
        graph = stream.end_capture()
        assert runs == []
        for _ in range(3):
            stream.launch_graph(graph)
        stream.synchronize()
        assert len(runs) == 3


def test_a_wait_is_called_off():
    with gpushare.simulated_gpu(memory="8GiB", clock="wall") as gpu:
        allocator = gpu.virtual_device("waits", memory="64 MiB").allocator(strategy="direct")
        held = allocator.alloc("60 MiB")
        ends = []

        def wait():
            try:
                ends.append(allocator.alloc("32 MiB", timeout=60))
            except gpushare.GpuShareError as error:
                ends.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while thread.is_alive():  # the thread may not wait yet
            allocator.cancel_waits()
            thread.join(0.001)
        assert isinstance(ends[0], gpushare.CancelledError)
        held.close()
