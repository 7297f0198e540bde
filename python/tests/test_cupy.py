# SPDX-License-Identifier: Apache-2.0
"""Tests of gpushare.cupy. CuPy needs the CUDA runtime, which the simulated driver does not support. So the control flow
is tested here with a stand-in for CuPy over simulated memory, and what needs no device runs with CuPy itself where it
is installed. Tests with both on a GPU: tests/gpu/python/test_cupy.py."""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import inspect
import os
import signal
import sys
import threading
import types

import gpushare
import pytest

MIB = 1 << 20
Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


# ---- A stand-in, by CuPy's documentation ----


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,}, limit {limit:,})")


class Device:
    local = threading.local()

    def __init__(self, ordinal=None):
        self.id = getattr(self.local, "current", 0) if ordinal is None else ordinal

    def __enter__(self):
        self.before, self.local.current = Device().id, self.id

    def __exit__(self, *error):
        self.local.current = self.before


class Block:
    """Memory from the driver, as CFunctionAllocator returns it. Accepts a null pointer like any other."""

    def __init__(self, functions, size):
        self.functions, self.size, self.ptr, self.device = functions, size, 0, Device().id
        if size > 0:
            self.ptr = functions.malloc_function(functions.parameter, size, self.device) or 0

    def __del__(self):
        if self.ptr:
            self.functions.free_function(self.functions.parameter, self.ptr, self.device)


class CFunctionAllocator:
    def __init__(self, parameter, malloc, free, owner):
        self.parameter, self.owner = parameter, owner
        self.malloc_function, self.free_function = Malloc(malloc), Free(free)

    def malloc(self, size):
        return Block(self, size)


class Pooled:
    def __init__(self, pool, block):
        self.pool, self.block, self.ptr = pool, block, block.ptr

    def __del__(self):
        self.pool.free.append(self.block)
        self.pool.used.remove(self.block)


class MemoryPool:
    """Keeps freed blocks. Only after errorMemoryAllocation it frees them and tries the allocation again."""

    def __init__(self, allocator):
        self.allocator, self.free, self.used = allocator, [], []

    def malloc(self, size):
        size = -(-size // 512) * 512
        block = next((free for free in self.free if free.size == size), None)
        if block is not None:
            self.free.remove(block)
        else:
            try:
                block = self.allocator(size)
            except CUDARuntimeError as error:
                if error.status != 2:
                    raise
                self.free_all_blocks()
                try:
                    block = self.allocator(size)
                except CUDARuntimeError:
                    raise OutOfMemoryError(size, self.used_bytes()) from None
        self.used.append(block)
        return Pooled(self, block)

    def free_all_blocks(self):
        self.free.clear()

    def used_bytes(self):
        return sum(block.size for block in self.used)


class Stream:
    def __init__(self, foreign):
        self.foreign = foreign
        self.ptr = foreign.__cuda_stream__()[1]

    @classmethod
    def from_external(cls, foreign):
        return cls(foreign)

    def record(self, event):
        event.made = gpushare.Event(self.foreign.virtual_device)
        self.foreign.record(event.made)

    def wait_event(self, event):
        if event.made is not None:
            self.foreign.wait(event.made)

    def __enter__(self):
        streams.append(self)

    def __exit__(self, *error):
        streams.remove(self)


class ExternalStream:
    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id


class DefaultStream:
    def record(self, event):
        event.made = None

    def wait_event(self, event):
        pass


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.made = None


def get_current_stream():
    return streams[-1] if streams else DefaultStream()


streams = []
allocators = threading.local()


@contextlib.contextmanager
def using_allocator(allocator):
    before, allocators.current = getattr(allocators, "current", None), allocator
    try:
        yield
    finally:
        allocators.current = before


@pytest.fixture
def cupy(monkeypatch):
    modules = {name: types.ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy.cuda.memory", "cupy.cuda.runtime")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            parent, _, last = name.rpartition(".")
            setattr(modules[parent], last, module)
    modules["cupy.cuda.memory"].OutOfMemoryError = OutOfMemoryError
    modules["cupy.cuda.runtime"].CUDARuntimeError = CUDARuntimeError
    cuda = modules["cupy.cuda"]
    for thing in (CFunctionAllocator, Device, Event, MemoryPool, Stream, ExternalStream, get_current_stream,
                  using_allocator):
        setattr(cuda, thing.__name__, thing)
    monkeypatch.delitem(sys.modules, "gpushare.cupy", raising=False)
    yield modules["cupy"]
    monkeypatch.delitem(sys.modules, "gpushare.cupy", raising=False)


@pytest.fixture
def adapter(cupy, gpu):
    module = importlib.import_module("gpushare.cupy")
    yield module
    module._allocators.clear()


def array(size):
    """Allocates from the current allocator, as cupy.empty() does."""
    return allocators.current(size)


# ---- Memory ----


@pytest.mark.parametrize("pooled", [True, False])
def test_over_the_quota(adapter, device, pooled, used):
    allocate = adapter.allocator(device, pooled=pooled)
    held = allocate(3 << 30)
    assert held.ptr != 0 and used(device) == 3 << 30
    with pytest.raises(OutOfMemoryError, match="2,147,483,648 bytes.*so far: 3,221,225,472.*limit 4,294,967,296"):
        allocate(2 << 30)
    del held
    assert allocate(2 << 30).ptr != 0


def test_a_full_device_is_not_called_the_quota(adapter, gpu, device, used):
    gpushare.Simulation(gpu.runtime).inject("error call=cuMemAlloc code=2")
    gpushare.Simulation(gpu.runtime).inject("error call=cuMemAlloc_v2 code=2")
    with pytest.raises(OutOfMemoryError, match="limit 0"):
        adapter.allocator(device)(MIB)
    assert used(device) == 0


def test_the_pool_keeps_memory_and_gives_it_back_when_it_is_needed(adapter, device, used):
    allocate = adapter.allocator(device)
    allocate(3 << 30)
    assert used(device) == 3 << 30
    big = allocate(4 << 30)
    assert used(device) == 4 << 30
    del big
    adapter.free_all_blocks(device)
    assert used(device) == 0
    adapter.free_all_blocks(device.gpu.virtual_device("never used", memory="1MiB"))


def test_no_bytes(adapter, device, used):
    for pooled in (True, False):
        assert adapter.allocator(device, pooled=pooled)(0).ptr == 0
    assert used(device) == 0


def test_what_is_no_virtual_device(adapter, gpu, device):
    for call in (adapter.allocator, adapter.free_all_blocks, lambda wrong: adapter.tenant(wrong).__enter__()):
        with pytest.raises(TypeError, match="^device: Gpu given"):
            call(gpu)
    with pytest.raises(TypeError, match="^source: int given"):
        adapter.stream(5)
    with pytest.raises(TypeError, match="^on: int given"):
        adapter.tenant(device, on=5).__enter__()


def test_one_allocator_for_each_virtual_device(adapter, gpu, device, used):
    other = gpu.virtual_device("b", memory="1MiB")
    assert adapter.allocator(device) is adapter.allocator(device) is not adapter.allocator(other)
    kept = adapter.allocator(other)(1000)
    with pytest.raises(MemoryError):
        adapter.allocator(other)(MIB)
    assert (used(other), used(device)) == (1024, 0)  # CuPy's pool requests multiples of 512 bytes
    del kept


def test_a_closed_virtual_device(adapter, gpu):
    device = gpu.virtual_device("b", memory="1MiB")
    allocate = adapter.allocator(device)
    kept, passing = allocate(1000), allocate(2000)
    device.close()
    for call in (lambda: allocate(1), lambda: adapter.allocator(device)):
        with pytest.raises(gpushare.ClosedError):
            call()
    del passing
    again = gpu.virtual_device("c", memory="1MiB")
    adapter.allocator(again)
    assert (device, True) in adapter._allocators  # one of its arrays is alive
    del kept, allocate
    adapter.allocator(again)
    gc.collect()
    assert (device, True) not in adapter._allocators
    assert gpushare.Simulation(gpu.runtime).memory_used() == 0


def test_a_closed_virtual_device_leaves_nothing_to_its_pool(adapter, gpu):
    device, memory = gpu.virtual_device("b", memory="1MiB"), gpushare.Simulation(gpu.runtime).memory_used
    kept, passing = adapter.allocator(device)(1000), adapter.allocator(device)(2000)
    del passing
    device.close()
    assert memory() == 1024 + 2048
    adapter.free_all_blocks(device)
    assert memory() == 1024 and (device, True) in adapter._allocators  # one of its arrays is alive
    del kept
    adapter.free_all_blocks(device)
    gc.collect()
    assert memory() == 0 and (device, True) not in adapter._allocators


def test_within_the_block_work_that_does_not_say_is_the_tenants(adapter, gpu, device, used):
    assert gpushare.current_tenant() is None
    with adapter.tenant(device):
        assert gpushare.current_tenant() is device.tenant
        ours = gpu.alloc(1024)
        assert used(device) == 1024
    assert gpushare.current_tenant() is None and ours.nbytes == 1024


def test_arrays_that_outlive_everything(adapter, gpu, device):
    kept = [adapter.allocator(device)(1000), adapter.allocator(device, pooled=False)(1000)]
    gpu.runtime.close_all()
    kept.clear()
    adapter._allocators.clear()
    gc.collect()


def test_another_gpu_is_current(adapter, device, used):
    allocate = adapter.allocator(device)
    with Device(1), pytest.raises(RuntimeError, match="of GPU 0, and CuPy's current one is GPU 1"):
        allocate(8)
    assert used(device) == 0


def test_by_many_threads(adapter, device, in_threads, used):
    def work():
        for size in range(1, 200):
            adapter.allocator(device, pooled=False)(size)

    in_threads(work)
    assert used(device) == 0


# ---- with tenant(): ----


def test_threads_are_given_the_same_stream(adapter, device, in_threads):
    memory, got = adapter.allocator(device), []
    in_threads(lambda: got.append(memory.stream()), 8)
    assert len(got) == 8 and all(stream is got[0] for stream in got)


def test_a_block_is_memory_stream_device_and_lease(adapter, gpu, device, used):
    other = gpu.virtual_device("b", memory="1GiB")
    with adapter.tenant(device, hint="1ms") as stream:
        assert stream.virtual_device is device and [s.ptr for s in streams] == [stream.ptr]
        kept = array(MIB)
        assert used(device) == MIB
        # The lease is held, so a lease of another virtual device is refused on this thread.
        with pytest.raises(gpushare.FailedPreconditionError):
            other.lease(timeout=0).acquire()
    assert streams == [] and allocators.current is None
    with other.lease():
        pass
    with adapter.tenant(device) as again:
        assert again is stream  # a pool reuses a block only on its own stream
    assert used(device) == MIB
    del kept


def test_blocks_nest_and_end_with_an_exception(adapter, gpu, device, used):
    other = gpu.virtual_device("b", memory="1GiB")
    with pytest.raises(KeyError):
        with adapter.tenant(device, lease=False):
            with adapter.tenant(other, lease=False):
                array(1024)
                raise KeyError
    assert streams == [] and allocators.current is None and Device().id == 0
    assert (used(device), used(other)) == (0, 1024)  # the pool keeps it


def test_arrays_go_in_and_out_in_order(cupy, virtual_gpu, ptx):
    """As between CuPy's own streams, the block's work follows the earlier work, and later work follows the block's."""
    adapter = importlib.import_module("gpushare.cupy")
    spin = virtual_gpu.load(ptx)["spin"]
    device, caller = (virtual_gpu.virtual_device(name, memory="1MiB") for name in "ab")
    outside = caller.stream()
    moments = [gpushare.Event(device if 1 <= i < 3 else caller, timing=True) for i in range(4)]
    with Stream(outside):
        outside.record(moments[0])
        outside.launch(spin, 1, 32, 1_000_000)
        with adapter.tenant(device, lease=False) as inside:
            inside.record(moments[1])
            inside.launch(spin, 1, 32, 2_000_000)
            inside.record(moments[2])
        outside.launch(spin, 1, 32, 4_000_000)
        outside.record(moments[3])
    outside.synchronize()
    assert moments[1].since(moments[0]) >= 1e-3 and moments[3].since(moments[2]) >= 4e-3
    assert moments[3].since(moments[0]) >= 7e-3
    adapter._allocators.clear()


def test_a_stream_of_the_caller(adapter, gpu, device):
    with device.stream() as mine, adapter.tenant(device, on=mine) as stream:
        assert stream is mine
    with pytest.raises(ValueError, match="^on: "):
        with adapter.tenant(gpu.virtual_device("b"), on=device.stream()):
            pass


def test_a_lease_that_does_not_come(adapter, gpu, device):
    device.suspend()
    with pytest.raises(TimeoutError):
        with adapter.tenant(device, timeout="10ms"):
            raise AssertionError
    assert streams == [] and Device().id == 0
    device.resume()
    with pytest.raises(TypeError, match="^hint: for a lease"):
        with adapter.tenant(device, lease=False, hint=1):
            pass


def test_the_gpu_of_the_virtual_device_is_current(cupy):
    with gpushare.simulated_gpu(devices=2) as gpu:
        adapter = importlib.import_module("gpushare.cupy")
        device = gpushare.Gpu(gpu.runtime, 1).virtual_device("a", memory="1GiB")
        with adapter.tenant(device):
            assert Device().id == 1
            array(1024)
        assert gpushare.Simulation(gpu.runtime).memory_used(1) == 1024 and Device().id == 0
        adapter._allocators.clear()


def test_streams_before_cupy_14(adapter, cupy, device, monkeypatch):
    monkeypatch.delattr(Stream, "from_external")
    ours = device.stream()
    theirs = adapter.stream(ours)
    assert isinstance(theirs, ExternalStream) and (theirs.ptr, theirs.device_id) == (ours.ptr, 0)
    assert theirs.gpushare_stream is ours


def test_without_cupy(succeeds):
    succeeds("""
        import sys
        sys.modules["cupy"] = None
        try:
            import gpushare.cupy
        except ImportError as error:
            assert "pip install 'cupy-cuda12x>=13'" in str(error), error
        else:
            raise AssertionError
    """)


def test_a_forked_child_leaves_the_parents_memory_alone(succeeds):
    """CuPy's arrays are freed in the child too, when the child drops or collects them."""
    succeeds("""
        import ctypes, os, gpushare
        device = gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("a", memory="1MiB")
        allocator = device.allocator()
        parameter, malloc, free = allocator.c_functions()
        malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)
        pointer = malloc(parameter, 1000, 0)
        calls = gpushare.Simulation(device.gpu.runtime)
        child = os.fork()
        if child == 0:
            before = calls.calls("cuMemFree_v2")
            assert malloc(parameter, 1000, 0) is None
            free(parameter, pointer, 0)
            os._exit(0 if calls.calls("cuMemFree_v2") == before else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert device.stats().memory_used == 1000
        free(parameter, pointer, 0)
        assert device.stats().memory_used == 0
    """)


def test_a_fork_while_another_thread_holds_the_lock(adapter, device):
    with HeldByAThread(adapter):
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # so that it does not wait for ever
            adapter.free_all_blocks(device)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class HeldByAThread:
    def __init__(self, module):
        self.module, self.held, self.done = module, threading.Event(), threading.Event()

    def _hold(self):
        with self.module._lock:
            self.held.set()
            self.done.wait()

    def __enter__(self):
        self.thread = threading.Thread(target=self._hold)
        self.thread.start()
        self.held.wait()

    def __exit__(self, *error):
        self.done.set()
        self.thread.join()


# ---- The real one ----

real = pytest.mark.skipif(importlib.util.find_spec("cupy") is None,
                          reason="CuPy is not installed: pip install cupy-cuda12x")


@real
@pytest.mark.frameworks
def test_the_real_cupys_c_function_memory(gpu, device, used):
    from cupy.cuda import memory

    allocator = device.allocator()
    parameter, malloc, free = allocator.c_functions()
    block = memory.CFunctionAllocatorMemory(MIB, parameter, malloc, free, 0)
    assert (block.size, used(device)) == (MIB, MIB) and block.ptr != 0
    # Beyond the quota the result is a null pointer without an exception, which gpushare.cupy turns into one.
    assert memory.CFunctionAllocatorMemory(8 << 30, parameter, malloc, free, 0).ptr == 0
    allocator.close()
    del block
    assert used(device) == 0


@real
@pytest.mark.frameworks
def test_what_gpushare_calls_is_there(gpu):
    import cupy
    from cupy.cuda import memory
    from cupy.cuda.runtime import CUDARuntimeError as theirs

    assert issubclass(memory.OutOfMemoryError, MemoryError)
    assert str(memory.OutOfMemoryError(10, 5, 20)).count("bytes") == 3
    assert theirs(2).status == 2
    parameters = (1, 2, 3, None)
    given = cupy.cuda.CFunctionAllocator(*parameters).malloc
    with cupy.cuda.using_allocator(given):
        assert memory.get_allocator() == given
    assert cupy.cuda.MemoryPool(given) is not None
    assert cupy.cuda.Device(0).id == 0 and hasattr(cupy.cuda.Stream, "from_external")
    assert list(inspect.signature(cupy.cuda.using_allocator).parameters) == ["allocator"]
    assert callable(cupy.cuda.get_current_stream) and callable(cupy.cuda.Event)
    assert callable(cupy.cuda.Stream.record) and callable(cupy.cuda.Stream.wait_event)
