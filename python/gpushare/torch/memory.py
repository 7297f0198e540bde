# SPDX-License-Identifier: Apache-2.0
"""Memory of a virtual device, as PyTorch holds it."""

from __future__ import annotations

from .. import _core
from . import _lane
from ._given import virtual_device

__all__ = ["empty_cache", "mem_get_info", "release"]


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
