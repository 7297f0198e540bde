# SPDX-License-Identifier: Apache-2.0
"""Memory of a virtual device, as PyTorch holds it."""

from __future__ import annotations

import math

from .. import _core
from . import _lane
from ._given import virtual_device
from ._version import device_index

__all__ = ["cap_process", "empty_cache", "mem_get_info", "release"]


def cap_process(device: _core.VirtualDevice) -> int:
    """Keeps what PyTorch's own allocator takes in this whole process within the quota of `device`; no region is needed.
    For a process that is one tenant. Gives the limit in bytes, at most the quota.

        gpushare.torch.cap_process(trainer)
        model = Net().cuda()                    # torch.cuda.OutOfMemoryError over the quota

    It is `torch.cuda.set_per_process_memory_fraction()` with the quota for a fraction: the limit is PyTorch's, on that
    GPU, counts what it has reserved, and follows no later `resize()`; call it again, or with
    ``torch.cuda.set_per_process_memory_fraction(1.0)`` take it back. The virtual device is charged nothing, and device
    time is not limited. Not beside regions, whose memory would count for both.

    Raises:
        NotFoundError (LookupError): PyTorch does not see that GPU; a simulated one for instance.
        FailedPreconditionError (RuntimeError): PyTorch was told to allocate without its cache, which then limits nothing.
        ClosedError (ValueError): the virtual device has been closed.
    """
    quota = virtual_device(device).memory[1]
    index = device_index(device)
    import torch

    total = torch.cuda.mem_get_info(index)[1]
    fraction = min(1.0, quota / total)
    while int(fraction * total) > quota:  # PyTorch's product, and never more than the quota
        fraction = math.nextafter(fraction, 0.0)
    torch.cuda.set_per_process_memory_fraction(fraction, index)
    return int(fraction * total)


def mem_get_info(device: _core.VirtualDevice) -> tuple[int, int]:
    """(free, total) bytes of the quota: `torch.cuda.mem_get_info()`, which shows the whole GPU, for a tenant.

        free, total = gpushare.torch.mem_get_info(trainer)
    """
    return virtual_device(device).memory


def empty_cache(device: _core.VirtualDevice) -> None:
    """Gives back what PyTorch caches for `device` and no tensor uses: `torch.cuda.empty_cache()`, which does not
    reach pools that are in use, for a tenant. Call it outside of regions; it waits up to a second for the
    regions of other threads, and what could not be given back then goes when they end.

        gpushare.torch.empty_cache(trainer)
    """
    _lane.lanes.empty(virtual_device(device))


def release(device: _core.VirtualDevice) -> None:
    """Ends the streams and pools that are kept for the next region of `device`. Its share of the GPU ends with the
    last of its streams, so call it before or after `device.close()`; a later region of any virtual device does
    the same for those that are closed. Tensors stay, and stay charged.

        gpushare.torch.release(trainer)
        trainer.close()
    """
    _lane.lanes.release(virtual_device(device, usable=False))
