# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the part of PyTorch that gpushare.torch uses. A test double: no arithmetic, no GPU.

It has a cache with pools like PyTorch's, which gets its memory from the C functions named by a CUDAPluggableAllocator.
It checks the rules of PyTorch that a real program must not break: `mistakes` lists violations. `log` has the calls in
order. test_frameworks.py compares it with the real PyTorch.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import threading
import types

SEGMENT = 2 << 20


class OutOfMemoryError(RuntimeError):
    pass


class Stream:
    def __init__(self, torch, address, device):
        self._torch, self.cuda_stream, self.device_index = torch, address, device

    def wait_stream(self, other):
        self._torch.note("wait_stream", self.cuda_stream, other.cuda_stream)

    def synchronize(self):
        self._torch.note("synchronize", self.cuda_stream)


class Tensor:
    """Memory from the cache, returned to it with the last reference."""

    def __init__(self, torch, block):
        self._torch, self._block = torch, block
        self.pool, self.nbytes = block.pool, block.size

    def __del__(self):
        self._torch.give_back(self._block)


class _Block:
    def __init__(self, pool, stream, size, pointer):
        self.pool, self.stream, self.size, self.pointer = pool, stream, size, pointer


class _Pool:
    """The cache's state of a pool; PyTorch calls it PrivatePool."""

    def __init__(self, identity, allocator):
        self.id, self.allocator, self.uses, self.cached, self.live = identity, allocator, 1, [], 0


class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        self.alloc, self.free = getattr(library, alloc), getattr(library, free)
        self.alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.alloc.restype = ctypes.c_void_p
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free.restype = None

    def allocator(self):
        return self


class StandIn(types.ModuleType):
    """The module `torch`."""

    def __init__(self, uuids, version="2.8.0"):
        super().__init__("torch")
        self.__version__, self.uuids, self.backend = version, list(uuids), "native"
        self.log, self.mistakes, self.capturing = [], [], False
        self.lock, self.numbers = threading.RLock(), itertools.count(1)
        self.pools, self.underway, self.thread = {}, [], threading.local()
        self.default_live, self.initialized, self.allocated = 0, False, 0
        self._C = types.ModuleType("torch._C")
        self._C._cuda_beginAllocateCurrentStreamToPool = self._begin
        self._C._cuda_endAllocateToPool = self._end
        self._C._cuda_releasePool = self._release
        self._C._cuda_clearCublasWorkspaces = lambda: self.note("clear_workspaces")
        self.cuda = cuda = types.ModuleType("torch.cuda")
        cuda.memory = types.ModuleType("torch.cuda.memory")
        cuda.memory.CUDAPluggableAllocator = CUDAPluggableAllocator
        cuda.OutOfMemoryError = OutOfMemoryError
        cuda.init = self._init
        cuda.get_allocator_backend = lambda: self.backend
        cuda.device_count = lambda: len(self.uuids)
        cuda.get_device_properties = lambda index: types.SimpleNamespace(uuid=self.uuids[index])
        cuda.device = lambda index: self._set("device", index)
        cuda.stream = lambda stream: self._set("stream", stream)
        cuda.current_stream = lambda index: self.current_stream()
        cuda.is_current_stream_capturing = lambda: self.capturing
        cuda.ExternalStream = lambda address, device: Stream(self, address, device)
        cuda.empty_cache = self._empty_cache
        cuda.memory_allocated = lambda: self.allocated
        self.total, self.fractions = 0, {}  # bytes of a GPU; limits on the allocator, by index
        cuda.mem_get_info = lambda index: (self.total - self.allocated, self.total)
        cuda.set_per_process_memory_fraction = self._limit
        torch = self

        class MemPool:
            def __init__(self, allocator):
                if not torch.initialized:
                    torch.mistakes.append("a pool before torch.cuda.init()")
                self.id = (0, next(torch.numbers))
                self.device = getattr(torch.thread, "device", 0)
                with torch.lock:
                    torch.pools[self.id] = _Pool(self.id, allocator)

            def __del__(self):
                torch._release(self.device, self.id)
                with torch.lock:
                    if torch.underway:  # in PyTorch this is an assertion in a destructor, which ends the process
                        torch.mistakes.append("a pool ended while allocations are diverted")
                    torch._trim(self.id)

        class CUDAGraph:
            def __init__(self):
                self.pool = None

            def __del__(self):
                if self.pool is not None:
                    torch._release(0, self.pool)

            def replay(self):
                torch.note("replay", torch.current_stream().cuda_stream)

        @contextlib.contextmanager
        def graph(raw, *, pool, stream, capture_error_mode):
            torch.note("capture", pool, capture_error_mode)
            with torch._set("stream", stream):
                torch._begin(0, pool)
                raw.pool = pool  # the graph uses it as long as it lives
                try:
                    yield
                finally:
                    torch._end(0, pool)

        cuda.MemPool, cuda.CUDAGraph, cuda.graph = MemPool, CUDAGraph, graph

    def modules(self):
        """The entries for sys.modules."""
        return {"torch": self, "torch._C": self._C, "torch.cuda": self.cuda, "torch.cuda.memory": self.cuda.memory}

    def note(self, *what):
        with self.lock:
            self.log.append(what)

    def calls(self, name):
        return [entry for entry in self.log if entry[0] == name]

    def current_stream(self):
        return getattr(self.thread, "stream", None) or Stream(self, 0, 0)

    def empty(self, nbytes):
        """A tensor of so many bytes, from the pool that PyTorch would use."""
        stream = self.current_stream()
        with self.lock:
            # The latest first, as in PyTorch.
            pool = next((self.pools[identity] for identity, filtered in reversed(self.underway)
                         if filtered == stream.cuda_stream), None)
            size = -(-nbytes // SEGMENT) * SEGMENT
            limit = self.fractions.get(stream.device_index)
            if limit is not None and self.allocated + size > int(limit * self.total):
                raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes. {limit:.2%} allowed")
            self.allocated += size
            if pool is None:
                self.default_live += 1
                return Tensor(self, _Block(None, stream.cuda_stream, size, None))
            for block in pool.cached:
                if block.stream == stream.cuda_stream and block.size >= size:
                    pool.cached.remove(block)
                    self.allocated += block.size - size
                    pool.live += 1
                    return Tensor(self, block)
            pointer = pool.allocator.alloc(size, stream.device_index, stream.cuda_stream)
            if not pointer:
                self.allocated -= size
                raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
            pool.live += 1
            return Tensor(self, _Block(pool, stream.cuda_stream, size, pointer))

    def give_back(self, block):
        with self.lock:
            self.allocated -= block.size
            if block.pool is None:
                self.default_live -= 1
            else:
                block.pool.live -= 1
                block.pool.cached.append(block)

    def _init(self):
        self.initialized = True
        self.note("init")

    def _limit(self, fraction, index):
        if not isinstance(fraction, float) or not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        self.fractions[index] = fraction

    @contextlib.contextmanager
    def _set(self, what, value):
        before = getattr(self.thread, what, None)
        setattr(self.thread, what, value)
        self.note(what, getattr(value, "cuda_stream", value))
        try:
            yield
        finally:
            setattr(self.thread, what, before)

    def _begin(self, device, pool):
        with self.lock:
            if any(identity == pool for identity, _ in self.underway):
                raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
            self.pools[pool].uses += 1
            self.underway.append((pool, self.current_stream().cuda_stream))
            self.note("begin", pool)

    def _end(self, device, pool):
        with self.lock:
            self.underway = [entry for entry in self.underway if entry[0] != pool]
            self.note("end", pool)

    def _release(self, device, pool):
        with self.lock:
            self.pools[pool].uses -= 1

    def _empty_cache(self):
        with self.lock:
            self.note("empty_cache")
            for identity in list(self.pools):
                self._trim(identity)

    def _trim(self, identity):
        pool = self.pools[identity]
        if pool.uses > 0:  # PyTorch frees nothing from a pool in use
            return
        for block in pool.cached:
            pool.allocator.free(block.pointer, block.size, 0, block.stream)
        pool.cached.clear()
        if pool.live == 0:
            del self.pools[identity]


def bare(uuid):
    """A UUID in the form that PyTorch uses."""
    return re.sub("^GPU-", "", uuid)
