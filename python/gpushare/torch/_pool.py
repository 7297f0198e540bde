# SPDX-License-Identifier: Apache-2.0
"""The allocator behind PyTorch's pools, and the routing of PyTorch's allocations to pools.

PyTorch diverts allocations to a pool by a filter. `torch.cuda.use_mem_pool()` filters by thread, which misses the
backward pass on autograd's threads. Here the filter is the stream, because the backward pass runs on the streams of the
forward pass.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from ._version import require

if TYPE_CHECKING:
    import torch

__all__ = ["ALLOCATOR_FUNCTIONS", "allocator", "allocator_path"]

ALLOCATOR_FUNCTIONS = ("gpushare_torch_alloc", "gpushare_torch_free")

_made: torch.cuda.memory.CUDAPluggableAllocator | None = None
_made_lock = threading.Lock()


def allocator_path() -> str:
    """The path of the shared object with the functions `ALLOCATOR_FUNCTIONS`, for programs that make pools themselves:

        path, (alloc, free) = gpushare.torch.allocator_path(), gpushare.torch.ALLOCATOR_FUNCTIONS
        mine = torch.cuda.memory.CUDAPluggableAllocator(path, alloc, free)

    They allocate for the virtual device to which the current stream is bound, else for the thread's `tenant_scope`,
    else for the tenant "default". They work on GPUs on which a region has been entered before.
    """
    return _core.__file__


def allocator() -> torch.cuda.memory.CUDAPluggableAllocator:
    """The `CUDAPluggableAllocator` of all regions. There is one for the process, and it is never destroyed, because a
    pool must not outlive its allocator.

    Raises:
        ImportError: PyTorch is not installed, or too old; the message says what to install.
    """
    global _made
    require()
    from torch.cuda.memory import CUDAPluggableAllocator

    with _made_lock:
        if _made is None:
            _made = CUDAPluggableAllocator(allocator_path(), *ALLOCATOR_FUNCTIONS)
        return _made


def new_pool(device: int) -> torch.cuda.MemPool:
    """Creates a pool on PyTorch's GPU `device`."""
    import torch

    with torch.cuda.device(device):  # a pool belongs to the GPU that is current when it is created
        return torch.cuda.MemPool(allocator().allocator())


class Routing:
    """The pools from which PyTorch currently allocates, and the pools that are no longer used.

    A pool must not be destroyed while PyTorch diverts allocations to any pool: PyTorch then assumes that a graph is
    being captured, and refuses to free. So unused pools are kept until a moment without any region. `drain()` creates
    such a moment by holding threads that enter one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._regions = 0
        self._drains = 0
        self._done_with: list[Any] = []
        self._of_thread = threading.local()

    @property
    def wanted_empty(self) -> bool:
        """Whether a thread waits until all regions have been left."""
        return self._drains > 0

    @contextlib.contextmanager
    def to(self, pool: torch.cuda.MemPool, device: int) -> Iterator[None]:
        """Allocations on the current stream, by any thread, come from `pool`."""
        self.begin(pool, device)
        try:
            yield
        finally:
            self.end(pool, device)

    def begin(self, pool: torch.cuda.MemPool, device: int) -> None:
        import torch

        with self._changed:
            if self._depth() == 0:  # a thread that is already in a region must not wait here: drain() would wait for it
                self._changed.wait_for(lambda: self._drains == 0, timeout=_DRAIN_SECONDS)
            self._regions += 1
        self._of_thread.depth = self._depth() + 1
        try:
            torch._C._cuda_beginAllocateCurrentStreamToPool(device, pool.id)
        except BaseException:
            self._left()
            raise

    def end(self, pool: torch.cuda.MemPool, device: int) -> None:
        import torch

        try:
            # As torch.cuda.use_mem_pool() does. The function was renamed in 2.9.
            end = getattr(torch._C, "_cuda_endAllocateToPool", None) or getattr(
                torch._C, "_cuda_endAllocateCurrentStreamToPool")
            end(device, pool.id)
            torch._C._cuda_releasePool(device, pool.id)
        finally:
            self._left()

    def _depth(self) -> int:
        return getattr(self._of_thread, "depth", 0)

    def _left(self) -> None:
        self._of_thread.depth = self._depth() - 1
        with self._changed:
            self._regions -= 1
            if self._regions == 0:
                self._end_pools()
                self._changed.notify_all()

    def _end_pools(self) -> None:
        if self._done_with:
            import torch

            self._done_with.clear()
            torch.cuda.empty_cache()  # also frees what tensors of earlier pools have left behind

    def finish(self, pool: torch.cuda.MemPool) -> None:
        """Destroys the pool at the next moment without a region. Its tensors stay valid."""
        with self._changed:
            self._done_with.append(pool)
            if self._regions == 0:
                self._end_pools()

    def drain(self) -> bool:
        """Waits up to a second for a moment without a region. False if there was none, or if called within a region."""
        if self._depth() > 0:
            return False
        with self._changed:
            self._drains += 1
            try:
                end = time.monotonic() + _DRAIN_SECONDS
                while self._regions > 0:
                    if not self._changed.wait(end - time.monotonic()):
                        return self._regions == 0
                self._end_pools()
                return True
            finally:
                self._drains -= 1
                self._changed.notify_all()


_DRAIN_SECONDS = 1.0

routing = Routing()
