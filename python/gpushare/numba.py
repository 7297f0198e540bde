# SPDX-License-Identifier: Apache-2.0
"""Device arrays of Numba (numba-cuda 0.22 or newer) within the quota of a virtual device.

    import gpushare.numba
    from numba import cuda

    gpushare.numba.use(device)               # a gpushare.VirtualDevice
    a = cuda.device_array(1 << 20)           # charged to it; over its quota: CUDA_ERROR_OUT_OF_MEMORY
    with device.lease(streams=[stream]):     # kernels of Numba are held and charged by a lease
        kernel[64, 256, gpushare.numba.stream(stream)](a)

This is an External Memory Manager plugin. A program that does not know gpushare gets a share through its environment:
``NUMBA_CUDA_MEMORY_MANAGER=gpushare.numba GPUSHARE_SPEC="memory=8GiB"``, and ``GPUSHARE_TENANT`` for a name. With a
broker (``GPUSHARE_BROKER``) the share is everything that the broker grants the process.

Within ``with gpushare.tenant_scope(tenant):`` arrays are charged to that tenant's virtual device. The memory of freed
arrays is returned when Numba empties its list of pending deallocations: at the latest when they reach a fifth of the
quota, or when an allocation does not fit. Pinned and mapped host memory is not charged. Managed memory is refused,
since a quota of device memory cannot limit it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any

from ._core import Gpu, Runtime, Stream, VirtualDevice
from ._errors import GpuShareError, UnimplementedError
from ._given import given
from .scope import current_tenant

_NEEDED = "gpushare.numba needs numba-cuda 0.22 or newer: pip install 'numba-cuda>=0.22'"
try:
    import numba_cuda
    from cuda.bindings.driver import CUresult
    from numba import cuda
    from numba.cuda.cudadrv import driver as _driver
    from numba.cuda.cudadrv.driver import AutoFreePointer, CudaAPIError
except ImportError as error:
    raise ImportError(f"{_NEEDED} ({error})") from error
if not str(cuda.__file__).startswith(os.path.dirname(str(numba_cuda.__file__))):
    raise ImportError(f"{_NEEDED} (numba.cuda is the one built into Numba: {cuda.__file__})")

__all__ = ["OutOfMemoryError", "VirtualDeviceMemory", "stream", "use"]

_lock = threading.Lock()
_shares: dict[int, VirtualDevice] = {}  # by the driver's number for the GPU


def _renew_lock() -> None:
    """For a forked child: a thread that does not exist in the child may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class OutOfMemoryError(CudaAPIError, MemoryError):  # type: ignore[misc, unused-ignore]  # untyped
    """Over the quota, or the device is full. Both the error that Numba raises for this, and a MemoryError.

    `code` is CUDA_ERROR_OUT_OF_MEMORY, and `__cause__` is gpushare's own error with `asked`, `left` and `total`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(CUresult.CUDA_ERROR_OUT_OF_MEMORY, message)


def _from_environment(ordinal: int) -> VirtualDevice:
    runtime, spec = Runtime(), os.environ.get("GPUSHARE_SPEC", "")
    tenant = os.environ.get("GPUSHARE_TENANT") or "numba"
    if runtime.broker_tenant:  # the process's share already follows the spec: use all of it
        return Gpu(runtime, ordinal).virtual_device(tenant)
    if not spec:
        raise RuntimeError(f"GPU {ordinal} has no virtual device for Numba's memory: call gpushare.numba.use(device), "
                           "or set GPUSHARE_SPEC, for instance to 'memory=8GiB'")
    return Gpu(runtime, ordinal).virtual_device(tenant, spec)


def _share(ordinal: int) -> VirtualDevice:
    """The virtual device for Numba's memory outside a tenant_scope."""
    with _lock:
        if ordinal not in _shares:
            _shares[ordinal] = _from_environment(ordinal)
        return _shares[ordinal]


def _free(buffer: Any) -> None:
    buffer.close()


class VirtualDeviceMemory(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc, unused-ignore]
    """The plugin; Numba creates one for each of its contexts. See `use()`."""

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        """Does nothing: the share of a GPU is looked up when it is needed."""

    def memalloc(self, size: int) -> Any:
        """Allocates `size` bytes of device memory.

        Raises:
            OutOfMemoryError (CudaAPIError, MemoryError): over the quota.
            CudaAPIError: another refusal by the driver.
            ClosedError (ValueError): the virtual device has been closed.
        """
        if size == 0:
            raise CudaAPIError(CUresult.CUDA_ERROR_INVALID_VALUE, "0 bytes of device memory asked")
        buffer = self._attempt_allocation(lambda: self._alloc(size))
        pending, allocations = self.deallocations, self.allocations

        # Keyed by the Buffer, not by its address: the address may be reused before the old array's entry is removed.
        def finalizer() -> None:
            allocations.pop(buffer, None)
            pending.add_item(_free, buffer, size)

        pointer = AutoFreePointer(weakref.proxy(self.context), ctypes.c_void_p(buffer.ptr), size, finalizer=finalizer)
        allocations[buffer] = pointer
        return pointer.own()

    def _alloc(self, size: int) -> Any:
        share = _share(self.context.device.id)
        try:
            if current_tenant() is not None:
                return share.gpu.alloc(size)
            self.deallocations.memory_capacity = share.memory[1]
            return share.alloc(size)
        except GpuShareError as error:
            if isinstance(error, MemoryError):
                raise OutOfMemoryError(str(error)) from error
            if error.driver_result != 0:
                raise CudaAPIError(CUresult(error.driver_result), str(error)) from error
            raise

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        """Refuses managed memory.

        Raises:
            UnimplementedError (NotImplementedError): always.
        """
        raise UnimplementedError(f"{size} bytes of managed memory asked: a quota of device memory cannot hold it; "
                                 "use cuda.device_array() or cuda.mapped_array()", code="UNIMPLEMENTED")

    def get_memory_info(self) -> Any:
        """(free, total) bytes of the virtual device, not of the GPU."""
        share = _share(self.context.device.id)
        return cuda.MemoryInfo(*(share if current_tenant() is None else share.gpu.resolve()).memory)


_numba_memory_manager = VirtualDeviceMemory


def use(device: VirtualDevice) -> None:
    """From here on, Numba's allocations on the GPU of `device` come from `device`.

    May be called again with another virtual device, for later allocations; existing memory stays charged where it was.
    One virtual device per GPU; call it for each.

    Raises:
        TypeError: not a VirtualDevice.
        RuntimeError: Numba has its own memory on this GPU already: call this before Numba first uses the GPU. Or Numba
            and gpushare have loaded different drivers.
        ClosedError (ValueError): the virtual device has been closed.
    """
    given(device, VirtualDevice, "device").memory  # raises if it is closed
    ordinal, probe = device.gpu.ordinal, device.gpu.probe()
    known = cuda.gpus[ordinal].uuid if ordinal < len(cuda.gpus) else "not there"
    if not probe.mig and known.lower() != probe.uuid.lower():
        raise RuntimeError(f"GPU {ordinal} is {probe.uuid} to gpushare and {known} to Numba: they have loaded "
                           "different drivers; docs/arrays.md says how both get the simulated one")
    with _lock:
        before = _driver.driver.devices.get(ordinal)
        context = None if before is None else before.primary_context
        if context is not None and not isinstance(context.memory_manager, VirtualDeviceMemory):
            raise RuntimeError(f"Numba has used GPU {ordinal} before: call gpushare.numba.use() first, or set "
                               "NUMBA_CUDA_MEMORY_MANAGER=gpushare.numba")
        cuda.set_memory_manager(VirtualDeviceMemory)
        _shares[ordinal] = device


def stream(source: Stream) -> Any:
    """Returns `source` as a Numba stream that keeps it alive.

    In the other direction, ``device.stream(numba_stream)`` adopts a Numba stream.
    """
    made = cuda.external_stream(given(source, Stream, "source").ptr)
    made.gpushare_stream = source
    return made
