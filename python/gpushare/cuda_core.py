# SPDX-License-Identifier: Apache-2.0
"""Memory and streams of a virtual device for cuda.core (1.2 or newer).

    from cuda.core import Device
    from gpushare.cuda_core import VirtualDeviceMemoryResource

    gpu = Device(device.gpu.ordinal)         # `device`: a gpushare.VirtualDevice
    gpu.set_current()
    gpu.memory_resource = VirtualDeviceMemoryResource(device)
    buffer = gpu.allocate(1 << 20, stream=stream)        # within the quota, else QuotaExceededError (MemoryError)

Streams need no adapter: ``gpu.create_stream(gpushare_stream)`` makes a stream of cuda.core that keeps gpushare's alive,
and ``device.stream(core_stream)`` adopts a stream of cuda.core. Launches of cuda.core are held and charged when a lease
of the virtual device covers the stream.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ._core import Allocator, Buffer, VirtualDevice
from ._given import given

_NEEDED = "gpushare.cuda_core needs cuda-core 1.2 or newer: pip install 'cuda-core[cu13]>=1.2'"
try:
    from cuda.core import Buffer as CoreBuffer
    from cuda.core import Device as CoreDevice
    from cuda.core import MemoryResource
    from cuda.core import Stream as CoreStream
    from cuda.core import __version__ as _version
    from cuda.core.graph import GraphBuilder
except ImportError as error:
    raise ImportError(f"{_NEEDED} ({error})") from error
if tuple(int(part) for part in _version.split(".")[:2]) < (1, 2):
    raise ImportError(f"{_NEEDED} (this is {_version})")

__all__ = ["VirtualDeviceMemoryResource", "as_core_buffer"]


class VirtualDeviceMemoryResource(MemoryResource):  # type: ignore[misc, unused-ignore]  # untyped where it is missing
    """Allocates device memory within the quota of `device`.

    Not ordered by streams: memory can be used at once. It is freed when the stream that `Buffer.close()` names, or else
    the stream that it was allocated with, has done its work; freeing waits for that. Buffers keep the resource and its
    share alive, and outlive `device.close()`. May be used by any thread.

    Args:
        device: the virtual device with the quota. Consumers see the number of the physical GPU.
        allocator: one of its allocators, as made by ``device.allocator(reclaim=...)``; None: `device` itself.

    Raises:
        TypeError: not a VirtualDevice, or not an Allocator. ValueError: an allocator of another virtual device.
        ClosedError (ValueError): the virtual device has been closed.
    """

    def __init__(self, device: VirtualDevice, allocator: Allocator | None = None) -> None:
        given(device, VirtualDevice, "device").memory  # raises if it is closed
        if allocator is not None and given(allocator, Allocator, "allocator").virtual_device is not device:
            raise ValueError("allocator: it is one of another virtual device")
        self._device = device
        self._source: Any = device if allocator is None else allocator
        self._live: dict[int, Buffer] = {}

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Returns a cuda.core Buffer of `size` bytes. Freeing it waits for the work of `stream`.

        Args:
            stream: a stream of cuda.core, or any object with ``__cuda_stream__``.

        Raises:
            QuotaExceededError, DeviceOutOfMemoryError (both MemoryError): over the quota; the device is full.
            TypeError: `stream` is a GraphBuilder: the memory would not belong to the graph.
            ClosedError (ValueError): the virtual device has been closed.
        """
        core = _core_stream(self.device_id, stream)
        if size == 0:
            return CoreBuffer.from_handle(0, 0, mr=self, stream=core)
        memory = self._source.alloc(size)
        self._live[memory.ptr] = memory
        try:
            return CoreBuffer.from_handle(memory.ptr, size, mr=self, stream=core)
        except BaseException:
            del self._live[memory.ptr]
            raise

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Called when a Buffer is closed: frees memory from `allocate()` once `stream` has done its work."""
        memory = self._live.pop(int(ptr), None)
        if memory is None:
            return
        # A destroyed stream or a lost context must not keep the memory allocated; the driver's free waits by itself.
        with contextlib.suppress(Exception):
            if stream is not None and not memory.closed:
                _core_stream(self.device_id, stream).sync()
        memory.close()

    @property
    def virtual_device(self) -> VirtualDevice:
        """The virtual device with the quota."""
        return self._device

    @property
    def is_device_accessible(self) -> bool:
        return True

    @property
    def is_host_accessible(self) -> bool:
        return False

    @property
    def is_managed(self) -> bool:
        return False

    @property
    def device_id(self) -> int:
        """The driver's number of the physical GPU."""
        return self._device.gpu.ordinal


def _core_stream(ordinal: int, stream: Any) -> Any:
    if isinstance(stream, CoreStream):
        return stream
    if isinstance(stream, GraphBuilder):
        raise TypeError("stream: GraphBuilder given; memory of a virtual device is no node of a graph: allocate it "
                        "before the capture")
    if not hasattr(stream, "__cuda_stream__"):
        raise TypeError(f"stream: {type(stream).__name__} given, a Stream of cuda.core or an object with "
                        "__cuda_stream__ wanted")
    return CoreDevice(ordinal).create_stream(stream)


def as_core_buffer(buffer: Buffer) -> Any:
    """Returns `buffer`, a gpushare.Buffer, as a Buffer of cuda.core. Both share the memory, and each keeps it alive."""
    return CoreBuffer.from_handle(given(buffer, Buffer, "buffer").ptr, buffer.nbytes, owner=buffer)
