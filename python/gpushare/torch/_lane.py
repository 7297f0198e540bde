# SPDX-License-Identifier: Apache-2.0
"""Lanes: a stream of a virtual device and the pool of PyTorch's cache that belongs to it.

A region has a lane to itself and returns it for the next region of the same virtual device, so that PyTorch's cache is
still there. The streams are gpushare's: PyTorch reuses its own 32 streams in turn, so two tenants would get the same
one.
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
    """See the module. Used by one thread at a time."""

    def __init__(self, device: _core.VirtualDevice) -> None:
        self.device = device
        self.index = device_index(device)
        import torch

        _core._torch_attach(device.gpu)
        self.stream = device.stream()
        self.torch_stream = torch.cuda.ExternalStream(self.stream.ptr, device=self.index)
        self.pool: torch.cuda.MemPool = _pool.new_pool(self.index)
        self.spent = False  # out of memory: the cached blocks of its pool do not fit what is requested
        self.pace = Pace()

    def renew(self) -> None:
        """Replaces the spent pool by an empty one. Not to be called while PyTorch allocates from it."""
        before, self.pool, self.spent = self.pool, _pool.new_pool(self.index), False
        _pool.routing.finish(before)

    def close(self) -> None:
        """Closes the stream when its work is done. The memory of live tensors stays charged."""
        import torch

        pool = self.pool
        del self.pool
        if not self.stream.closed:
            self.torch_stream.synchronize()
            # cuBLAS keeps one workspace per stream, in that stream's pool, and identifies streams by their address.
            torch._C._cuda_clearCublasWorkspaces()
            self.stream.close()
        _pool.routing.finish(pool)


class Lanes:
    """All lanes that are not in use, by virtual device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[_core.VirtualDevice, list[Lane]] = {}
        self._born = os.getpid()

    def take(self, device: _core.VirtualDevice) -> Lane:
        """Returns a lane for exclusive use: the one returned last, or a new one."""
        device.memory  # raises if it is closed or inherited by a fork
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
        """Closes the idle lanes of the device. Returns how many."""
        with self._lock:
            idle = self._idle.pop(device, [])
        for lane in idle:
            lane.close()
        return len(idle)

    def empty(self, device: _core.VirtualDevice) -> None:
        """Gives the idle lanes of the device new pools."""
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
        """Closes the idle lanes of closed virtual devices, because a stream keeps its share alive."""
        with self._lock:
            closed = [device for device in self._idle if device.closed]
        for device in closed:
            self.release(device)


lanes = Lanes()

# Objects that a forked child has from its parent are never destroyed in the child: CUDA does not survive a fork.
_inherited: list[Any] = []


def _forget() -> None:
    global lanes
    _inherited.extend((lanes, _pool.routing))
    lanes, _pool.routing = Lanes(), _pool.Routing()


os.register_at_fork(after_in_child=_forget)
# Runs before the interpreter is finalizing, when PyTorch can still free.
atexit.register(lambda: lanes.close())
