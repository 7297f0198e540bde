# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs whose memory and whose replays are a tenant's."""

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

    Within a region or a step of the same virtual device that has a lease, a replay is covered by that, as
    any other work is, also by ``raw.replay()``.

    Attributes:
        raw: the `torch.cuda.CUDAGraph`.
        virtual_device: who is charged.
    """

    def __init__(self, raw: torch.cuda.CUDAGraph, device: _core.VirtualDevice, *, hint: Duration | None = None) -> None:
        self.raw = raw
        self.virtual_device = _given.virtual_device(device)
        self._pace = _given.pace(hint) or Pace()
        self._keeps: tuple[Any, ...] = ()

    def replay(self, *, timeout: Any = None) -> None:
        """Launches it on the region's stream, else on one of the virtual device, after what the current stream was
        given, which in turn waits for it.

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
    """`torch.cuda.graph()` for a tenant: what is launched within becomes a `Graph`, whose memory counts against the
    quota of `device` as long as the graph lives.

        with gpushare.torch.tenant(device):
            model(static_input)                           # warms up
        with gpushare.torch.capture(device) as graph:
            static_output = model(static_input)
        graph.replay()

    Captured work runs at no time, so capturing takes no lease.

    Args:
        raw: the graph to capture into; None for a new one.
        hint: device time of a replay: seconds, a timedelta, text such as "2ms"; to 60 s. None: what the last ones took.
        capture_error_mode: PyTorch's. Its own default "global" would fail other tenants' threads that allocate.

    Raises: as `tenant()`.
    """
    _given.virtual_device(device)
    _given.pace(hint)
    # A stream that no region diverts the allocations of: they are the graph's.
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
    """Has a pool end with the graph that it belongs to."""

    def __init__(self, pool: torch.cuda.MemPool) -> None:
        self._pool = pool

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end there may be nothing left to end it with
            _pool.routing.finish(self._pool)
