# SPDX-License-Identifier: Apache-2.0
"""CuPy (13 or newer) within the quota of a virtual device.

    import cupy
    import gpushare.cupy

    with gpushare.cupy.tenant(device, hint="2ms"):       # a gpushare.VirtualDevice
        y = cupy.arange(1 << 20) * 2                     # its memory, on its stream, under its lease

    cupy.cuda.set_allocator(gpushare.cupy.allocator(device))     # or: the whole process's memory

Beyond the quota CuPy raises cupy.cuda.memory.OutOfMemoryError, a MemoryError. Freed arrays stay in a CuPy pool, one per
virtual device, and stay charged. An allocation that does not fit empties the pool first, and so does
`free_all_blocks()`. The pool of a virtual device that is closed stays until the next call of this module;
`free_all_blocks(device)`, before or after closing, releases it at once. Memory of CuPy's pinned pool is not charged.
`cupy.cuda.malloc_managed`, `malloc_async` and arrays made outside the block bypass gpushare.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from ._core import Stream, VirtualDevice
from ._given import given
from .scope import tenant_scope

try:
    import cupy
    from cupy.cuda import memory as _memory
    from cupy.cuda.runtime import CUDARuntimeError
except ImportError as error:
    raise ImportError("gpushare.cupy needs CuPy 13 or newer, in the build for the driver's CUDA: pip install "
                      f"'cupy-cuda12x>=13' or 'cupy-cuda13x' ({error})") from error

__all__ = ["VirtualDeviceAllocator", "allocator", "free_all_blocks", "stream", "tenant"]

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation: only for this error does a CuPy pool free its blocks and retry


class _Blocks:
    """Allocates from the driver. Separate from the pool, so that no reference cycle keeps memory until a collection."""

    def __init__(self, device: VirtualDevice) -> None:
        source = device.allocator()
        self._functions = cupy.cuda.CFunctionAllocator(*source.c_functions(), source)

    def __call__(self, size: int) -> Any:
        pointer = self._functions.malloc(size)
        if size > 0 and pointer.ptr == 0:  # CuPy itself accepts a null pointer as memory
            raise CUDARuntimeError(_OUT_OF_MEMORY)
        return pointer


class VirtualDeviceAllocator:
    """An allocator for cupy.cuda.set_allocator(): a function of bytes, within the quota of `device`.

    Made by `allocator()`. There is one for each virtual device, since a pool must live as long as the arrays allocated
    from it. May be called by any thread.
    """

    def __init__(self, device: VirtualDevice, pooled: bool) -> None:
        self._device = device
        self._ordinal = device.gpu.ordinal
        self._blocks = _Blocks(device)
        self._pool = cupy.cuda.MemoryPool(self._blocks) if pooled else None
        self._stream: Stream | None = None

    def __call__(self, size: int) -> Any:
        """Returns a cupy.cuda.MemoryPointer.

        Raises:
            OutOfMemoryError (MemoryError): over the quota, or the device is full.
            RuntimeError: CuPy's current GPU is another one.
            ClosedError (ValueError): the virtual device has been closed.
        """
        current = cupy.cuda.Device().id
        if current != self._ordinal:
            raise RuntimeError(f"this memory is of GPU {self._ordinal}, and CuPy's current one is GPU {current}: "
                               f"allocate within 'with cupy.cuda.Device({self._ordinal}):'")
        self._device.memory  # raises if it is closed
        try:
            return self._blocks(size) if self._pool is None else self._pool.malloc(size)
        except (CUDARuntimeError, _memory.OutOfMemoryError) as error:
            if isinstance(error, CUDARuntimeError) and error.status != _OUT_OF_MEMORY:
                raise
            free, total = self._device.memory
            # Reports the quota as the limit, unless the device itself is full.
            raise _memory.OutOfMemoryError(size, total - free, total if size > free else 0) from error

    def free_all_blocks(self) -> None:
        """Returns the memory of freed arrays that the pool keeps."""
        if self._pool is not None:
            with cupy.cuda.Device(self._ordinal):
                self._pool.free_all_blocks()

    def stream(self) -> Stream:
        """The stream of `tenant()`. It is always the same one, since a pool reuses a block only on its own stream."""
        with _lock:
            if self._stream is None or self._stream.closed:
                self._stream = self._device.stream()
            return self._stream

    def used_bytes(self) -> int:
        """Bytes of live arrays, rounded as the pool does."""
        if self._pool is None:
            return 0
        with cupy.cuda.Device(self._ordinal):
            return int(self._pool.used_bytes())


_lock = threading.RLock()
_allocators: dict[tuple[VirtualDevice, bool], VirtualDeviceAllocator] = {}


def _renew_lock() -> None:
    """For a forked child: a thread that does not exist in the child may have held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def allocator(device: VirtualDevice, *, pooled: bool = True) -> VirtualDeviceAllocator:
    """The allocator of `device` for cupy.cuda.set_allocator() and cupy.cuda.using_allocator().

    Args:
        pooled: keep freed memory in a CuPy pool, as CuPy does by default. Without a pool, every array is an allocation
            from the driver, and freeing it waits for the device.

    Raises:
        TypeError: not a VirtualDevice.
        ClosedError (ValueError): the virtual device has been closed.
    """
    _let_go_of_closed()
    given(device, VirtualDevice, "device").memory  # raises if it is closed
    with _lock:
        key = device, pooled
        if key not in _allocators:
            _allocators[key] = VirtualDeviceAllocator(device, pooled)
        return _allocators[key]


def free_all_blocks(device: VirtualDevice) -> None:
    """Returns to the quota the memory of freed arrays in the pool of `device`. Also works when `device` is closed; then
    the pool is dropped if no array in it is left."""
    with _lock:
        one = _allocators.get((given(device, VirtualDevice, "device"), True))
    if one is not None:
        one.free_all_blocks()
    _let_go_of_closed()


def _let_go_of_closed() -> None:
    """Frees what the pools of closed virtual devices keep, and drops the pools without live arrays."""
    with _lock:
        closed = [(key, one) for key, one in _allocators.items() if key[0].closed]
        for key, one in closed:
            one.free_all_blocks()
            if one.used_bytes() == 0:
                del _allocators[key]


def stream(source: Stream) -> Any:
    """Returns `source`, a gpushare.Stream, as a CuPy stream that keeps it alive.

    In the other direction, ``device.stream(cupy_stream)`` adopts a CuPy stream.
    """
    given(source, Stream, "source")
    if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14
        return cupy.cuda.Stream.from_external(source)
    made = cupy.cuda.ExternalStream(source.ptr, source.virtual_device.gpu.ordinal)
    made.gpushare_stream = source
    return made


@contextlib.contextmanager
def tenant(device: VirtualDevice, *, on: Stream | None = None, lease: bool = True, pooled: bool = True,
           **options: Any) -> Iterator[Stream]:
    """Makes CuPy work for `device` within the block, on this thread: its GPU is current, arrays are allocated within
    its quota, and kernels run on its stream under a lease. The block is also a `gpushare.tenant_scope`. Yields the
    stream.

    One block is one turn on the GPU, so put a batch into it, not a whole program. With ``lease=False`` there is only
    memory and stream; the program takes leases where it wants them (``with device.lease(streams=[stream]):``). Arrays
    can be passed into the block and out of it: its stream waits for the earlier work of the current stream, and
    afterwards that stream waits for the block's. The block belongs to the thread: no ``await`` inside.

    Args:
        on: the stream; None: one that the virtual device keeps for this.
        lease: whether a lease, acquired before the block, covers the kernels.
        pooled: as in `allocator()`.
        options: hint, maximum, exclusive, timeout of the lease.

    Raises:
        DeadlineExceededError (TimeoutError): no lease within `timeout`.
        ValueError: `on` belongs to another virtual device; ClosedError: closed.
    """
    if options and not lease:
        raise TypeError(f"{', '.join(sorted(options))}: for a lease, and lease=False was given")
    if on is not None and given(on, Stream, "on").virtual_device is not device:
        raise ValueError("on: a stream of another virtual device")
    memory = allocator(device, pooled=pooled)
    with contextlib.ExitStack() as block:
        block.enter_context(cupy.cuda.Device(device.gpu.ordinal))
        used = memory.stream() if on is None else on
        inside, outside = stream(used), cupy.cuda.get_current_stream()
        # gpushare's streams are not implicitly ordered with the default stream.
        _follow(inside, outside)
        block.callback(_follow, outside, inside)
        if lease:
            block.enter_context(device.lease(streams=[used], **options))
        if device.tenant is not None and not device.tenant.closed:
            block.enter_context(tenant_scope(device.tenant))
        block.enter_context(cupy.cuda.using_allocator(memory))
        block.enter_context(inside)
        yield used


def _follow(later: Any, earlier: Any) -> None:
    """Makes later work of `later` wait for the work that `earlier` has been given."""
    event = cupy.cuda.Event(disable_timing=True)
    earlier.record(event)
    later.wait_event(event)
