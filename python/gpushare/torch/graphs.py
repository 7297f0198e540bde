# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs with memory and replays that belong to a tenant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._given import Duration
from . import _given, _lane, _pool, region
from ._pace import Pace

if TYPE_CHECKING:
    import torch

__all__ = ["Graph", "capture"]


class Graph:
    """A `torch.cuda.CUDAGraph` of a virtual device: each replay waits for its turn and is charged.

        graph = gpushare.torch.Graph(raw, device)         # one that was captured without gpushare
        graph.replay()

    Within a region or a step of the same virtual device that has a lease, that lease covers a replay, like any other
    work, including ``raw.replay()``.

    Attributes:
        raw: the `torch.cuda.CUDAGraph`.
        virtual_device: the virtual device that is charged.
    """

    def __init__(self, raw: torch.cuda.CUDAGraph, device: _core.VirtualDevice, *, hint: Duration | None = None) -> None:
        self.raw = raw
        self.virtual_device = _given.virtual_device(device)
        self._pace = _given.pace(hint) or Pace()
        self._keeps: tuple[Any, ...] = ()

    def replay(self, *, timeout: Any = None) -> None:
        """Launches the graph on the region's stream, or else on a stream of the virtual device. The replay waits for
        the earlier work of the current stream, and later work of the current stream waits for the replay.

        Raises: as `tenant()`.
        """
        around = region.innermost(self.virtual_device)
        if around is not None and around.leased:
            self.raw.replay()
            return
        with region.Region(self.virtual_device, True, self._pace, True, timeout):
            self.raw.replay()


@contextlib.contextmanager
def capture(device: _core.VirtualDevice, raw: torch.cuda.CUDAGraph | None = None, *, hint: Duration | None = None,
            capture_error_mode: str = "thread_local") -> Iterator[Graph]:
    """`torch.cuda.graph()` for a tenant: work launched within it becomes a `Graph`. The graph's memory counts against
    the quota of `device` as long as the graph lives.

        with gpushare.torch.tenant(device):
            model(static_input)                           # warms up
        with gpushare.torch.capture(device) as graph:
            static_output = model(static_input)
        graph.replay()

    Captured work does not run, so capturing takes no lease.

    Args:
        raw: the graph to capture into; None for a new one.
        hint: device time of a replay: seconds, a timedelta, text such as "2ms"; at most 60 s. None: as the last replays
            took.
        capture_error_mode: PyTorch's. PyTorch's default "global" would make allocations on other tenants' threads fail.

    Raises: as `tenant()`.
    """
    _given.virtual_device(device)
    _given.pace(hint)
    # A stream to which no region diverts allocations, so that its allocations belong to the graph.
    lane = _lane.lanes.take(device)
    try:
        import torch

        graph = Graph(torch.cuda.CUDAGraph() if raw is None else raw, device, hint=hint)
        pool = _pool.new_pool(lane.index)
        graph._keeps = (_Ended(pool),)
        handle: Any = pool.id
        with torch.cuda.graph(graph.raw, pool=handle, stream=lane.torch_stream, capture_error_mode=capture_error_mode):
            yield graph
    finally:
        _lane.lanes.give_back(lane)


class _Ended:
    """Makes a pool end with the graph to which it belongs."""

    def __init__(self, pool: torch.cuda.MemPool) -> None:
        self._pool = pool

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # when the interpreter is finalizing, nothing may be left that could end it
            _pool.routing.finish(self._pool)
