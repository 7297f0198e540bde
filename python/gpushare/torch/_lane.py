# SPDX-License-Identifier: Apache-2.0
"""Lanes: a stream of a virtual device and the pool of PyTorch's cache that goes with it.

A region has one to itself and gives it back for the next region of the same virtual device, so that what
PyTorch cached is still there. Streams are gpushare's: PyTorch's own come from a pool of 32 that goes round,
so that two tenants would be given the same one.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

from .. import _core
from . import _pool
from ._pace import Pace
from ._version import device_index

if TYPE_CHECKING:
    import torch

class Lane:
    """See above. Used by one thread at a time."""

    def __init__(self, device: _core.VirtualDevice) -> None:
        self.device = device
        self.index = device_index(device)
        import torch

        _core._torch_attach(device.gpu)
        self.stream = device.stream()
        self.torch_stream = torch.cuda.ExternalStream(self.stream.ptr, device=self.index)
        self.pool: torch.cuda.MemPool = _pool.new_pool(self.index)
        self.spent = False  # out of memory: what its pool has cached does not fit what is asked for
        self.pace = Pace()

    def renew(self) -> None:
        """An empty pool in place of the one that is spent. Not while PyTorch allocates from it."""
        before, self.pool, self.spent = self.pool, _pool.new_pool(self.index), False
        _pool.routing.finish(before)

    def close(self) -> None:
        """Ends the stream when its work is done; the memory of tensors that still live stays charged."""
        import torch

        pool = self.pool
        del self.pool
        if not self.stream.closed:
            self.torch_stream.synchronize()
            # cuBLAS keeps a workspace a stream, in that stream's pool, and knows streams by their address.
            torch._C._cuda_clearCublasWorkspaces()
            self.stream.close()
        _pool.routing.finish(pool)


class Lanes:
    """All that are not in use, by virtual device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[_core.VirtualDevice, list[Lane]] = {}
        self._born = os.getpid()

    def take(self, device: _core.VirtualDevice) -> Lane:
        """One for the caller alone, the last that was given back first."""
        device.memory  # raises when it is closed or inherited by a fork
        self._sweep()
        with self._lock:
            idle = self._idle.get(device)
            lane = idle.pop() if idle else None
        if lane is None:
            return Lane(device)
        if lane.spent:
            self.renew(lane)
        return lane

    def give_back(self, lane: Lane) -> None:
        if lane.device.closed:
            lane.close()
            return
        with self._lock:
            self._idle.setdefault(lane.device, []).append(lane)

    def renew(self, lane: Lane) -> None:
        lane.renew()
        _pool.routing.drain()

    def release(self, device: _core.VirtualDevice) -> int:
        """Closes the idle ones of the device; how many."""
        with self._lock:
            idle = self._idle.pop(device, [])
        for lane in idle:
            lane.close()
        return len(idle)

    def empty(self, device: _core.VirtualDevice) -> None:
        """New pools for the idle ones of the device."""
        with self._lock:
            idle = self._idle.pop(device, [])
        try:
            for lane in idle:
                lane.renew()
        finally:
            with self._lock:
                self._idle.setdefault(device, []).extend(idle)
        _pool.routing.drain()

    def close(self) -> None:
        for device in list(self._idle):
            self.release(device)

    def _sweep(self) -> None:
        """A stream keeps its share alive: those of virtual devices that were closed go."""
        with self._lock:
            closed = [device for device in self._idle if device.closed]
        for device in closed:
            self.release(device)


lanes = Lanes()

# What a forked child has from its parent is never destroyed there: CUDA does not survive a fork.
_inherited: list[Any] = []


def _forget() -> None:
    global lanes
    _inherited.extend((lanes, _pool.routing))
    lanes, _pool.routing = Lanes(), _pool.Routing()


os.register_at_fork(after_in_child=_forget)
# Before the interpreter goes away, when PyTorch can still free.
atexit.register(lambda: lanes.close())
