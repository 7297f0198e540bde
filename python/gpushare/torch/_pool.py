# SPDX-License-Identifier: Apache-2.0
"""The allocator that PyTorch's pools ask, and which of PyTorch's memory goes to which pool.

PyTorch diverts allocations to a pool by a filter. `torch.cuda.use_mem_pool()` filters by thread, and so
leaves out the backward pass, whose threads are autograd's. Here the filter is the stream: the backward pass
runs on the streams of the forward pass.
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
    """The shared object that has the functions `ALLOCATOR_FUNCTIONS`, for whoever makes pools by hand:

        path, (alloc, free) = gpushare.torch.allocator_path(), gpushare.torch.ALLOCATOR_FUNCTIONS
        mine = torch.cuda.memory.CUDAPluggableAllocator(path, alloc, free)

    They allocate for the virtual device to which the current stream is bound, else for the thread's
    `tenant_scope`, else for the tenant "default"; on GPUs of which a region has been entered once.
    """
    return _core.__file__


def allocator() -> torch.cuda.memory.CUDAPluggableAllocator:
    """The `CUDAPluggableAllocator` of all regions: one for the process, which never ends, since a pool must not
    outlive its allocator.

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
    """A pool on PyTorch's GPU `device`."""
    import torch

    with torch.cuda.device(device):  # a pool is of the GPU that is current when it is made
        return torch.cuda.MemPool(allocator().allocator())


class Routing:
    """Which pools PyTorch allocates from at the moment, and the memory of those that are done with.

    A pool must not end while PyTorch diverts allocations to any pool: up to now PyTorch takes that for the
    capture of a graph, during which it refuses to free. So pools that are done with are kept until a moment
    at which there is no region; `drain()` makes one, by holding those who begin.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._regions = 0
        self._drains = 0
        self._done_with: list[Any] = []
        self._of_thread = threading.local()

    @property
    def wanted_empty(self) -> bool:
        """Whether somebody waits for all regions to be left."""
        return self._drains > 0

    @contextlib.contextmanager
    def to(self, pool: torch.cuda.MemPool, device: int) -> Iterator[None]:
        """What is allocated on the current stream, on whichever thread, is `pool`'s."""
        self.begin(pool, device)
        try:
            yield
        finally:
            self.end(pool, device)

    def begin(self, pool: torch.cuda.MemPool, device: int) -> None:
        import torch

        with self._changed:
            if self._depth() == 0:  # a thread within another region cannot be waited for, so it does not wait
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
            # As torch.cuda.use_mem_pool() does; renamed in 2.9.
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
            torch.cuda.empty_cache()  # also what tensors of pools that ended before have left behind

    def finish(self, pool: torch.cuda.MemPool) -> None:
        """Ends the pool, at the next moment without a region. Tensors in it stay."""
        with self._changed:
            self._done_with.append(pool)
            if self._regions == 0:
                self._end_pools()

    def drain(self) -> bool:
        """Waits, for a second at most, for a moment without a region; false when none came, and within one."""
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
