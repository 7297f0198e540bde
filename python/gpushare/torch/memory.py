# SPDX-License-Identifier: Apache-2.0
"""The memory of a virtual device, as PyTorch holds it."""

from __future__ import annotations

import math

from .. import _core
from . import _lane
from ._given import virtual_device
from ._version import device_index

__all__ = ["cap_process", "empty_cache", "mem_get_info", "release"]


def cap_process(device: _core.VirtualDevice) -> int:
    """Limits PyTorch's own allocator in this whole process to the quota of `device`, without regions. For a process
    that is one tenant. Returns the limit in bytes, at most the quota.

        gpushare.torch.cap_process(trainer)
        model = Net().cuda()                    # torch.cuda.OutOfMemoryError over the quota

    It calls `torch.cuda.set_per_process_memory_fraction()` with the quota as a fraction. The limit is PyTorch's, on
    that GPU, and counts what PyTorch has reserved. It does not follow a later `resize()`: call it again, or remove it
    with ``torch.cuda.set_per_process_memory_fraction(1.0)``. The virtual device is not charged, and device time is not
    limited. Do not combine it with regions: their memory would count twice.

    Raises:
        NotFoundError (LookupError): PyTorch does not see that GPU, for instance because it is simulated.
        FailedPreconditionError (RuntimeError): PyTorch was told to allocate without its cache, and then has no limit.
        ClosedError (ValueError): the virtual device has been closed.
    """
    quota = virtual_device(device).memory[1]
    index = device_index(device)
    import torch

    total = torch.cuda.mem_get_info(index)[1]
    fraction = min(1.0, quota / total)
    while int(fraction * total) > quota:  # as PyTorch computes it, and never more than the quota
        fraction = math.nextafter(fraction, 0.0)
    torch.cuda.set_per_process_memory_fraction(fraction, index)
    return int(fraction * total)


def mem_get_info(device: _core.VirtualDevice) -> tuple[int, int]:
    """(free, total) bytes of the quota. Use it for a tenant in place of `torch.cuda.mem_get_info()`, which shows the
    whole GPU.

        free, total = gpushare.torch.mem_get_info(trainer)
    """
    return virtual_device(device).memory


def empty_cache(device: _core.VirtualDevice) -> None:
    """Returns cached memory of `device` that no tensor uses. Use it for a tenant in place of
    `torch.cuda.empty_cache()`, which does not reach pools in use. Call it outside of regions. It waits up to a second
    for the regions of other threads; memory that could not be returned by then is returned when they end.

        gpushare.torch.empty_cache(trainer)
    """
    _lane.lanes.empty(virtual_device(device))


def release(device: _core.VirtualDevice) -> None:
    """Closes the streams and pools that are kept for the next region of `device`. Its share of the GPU ends with the
    last of its streams, so call this before or after `device.close()`. A later region of any virtual device does the
    same for closed devices. Tensors stay valid, and stay charged.

        gpushare.torch.release(trainer)
        trainer.close()
    """
    _lane.lanes.release(virtual_device(device, usable=False))
