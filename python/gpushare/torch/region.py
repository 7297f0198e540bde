# SPDX-License-Identifier: Apache-2.0
"""Regions: parts of a program with memory, stream and device time that belong to a tenant."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._errors import FailedPreconditionError
from .._given import Duration
from ..scope import tenant_scope
from . import _given, _lane, _pool
from ._pace import Pace, Turn

if TYPE_CHECKING:
    import torch

__all__ = ["Region", "step", "tenant"]


class _Thread(threading.local):
    def __init__(self) -> None:
        self.regions: list[Region] = []


_thread = _Thread()


def innermost(device: _core.VirtualDevice) -> Region | None:
    """The calling thread's current region, if it is one of `device`."""
    regions = _thread.regions
    return regions[-1] if regions and regions[-1].virtual_device is device else None


class Region:
    """The context manager that `tenant()` returns.

    Attributes:
        virtual_device: the virtual device to which the region belongs.
    """

    def __init__(self, device: _core.VirtualDevice, lease: bool, pace: Pace | None, exclusive: bool,
                 timeout: Any) -> None:
        self.virtual_device = device
        self._lease_wanted, self._pace, self._exclusive, self._timeout = lease, pace, exclusive, timeout
        self._lane: _lane.Lane | None = None
        self._outer: Region | None = None  # an enclosing region of the same virtual device, with which this one shares the lane
        self._turn: Turn | None = None
        self._exits = contextlib.ExitStack()

    @property
    def stream(self) -> torch.cuda.ExternalStream:
        """The stream that is current within the region."""
        return self._entered().torch_stream

    @property
    def leased(self) -> bool:
        """Whether this region, or an enclosing one of the same virtual device, has its turn on the device now."""
        return self._turn is not None or (self._outer is not None and self._outer.leased)

    def __enter__(self) -> Region:
        if self._lane is not None:
            raise FailedPreconditionError("this region is entered already; make another one with tenant()",
                                          code="FAILED_PRECONDITION")
        device = _given.virtual_device(self.virtual_device)
        with contextlib.ExitStack() as exits:
            self._outer = innermost(device)
            if self._outer is not None:
                self._lane = self._outer._entered()
                exits.callback(self._drop_lane)
                if self._lease_wanted and not self._outer.leased:
                    self.acquire()
                    exits.callback(self.let_go)
            else:
                self._enter(device, exits)
            _thread.regions.append(self)
            exits.callback(_thread.regions.pop)
            self._exits = exits.pop_all()
        return self

    def _enter(self, device: _core.VirtualDevice, exits: contextlib.ExitStack) -> None:
        lane = self._lane = _lane.lanes.take(device)
        exits.callback(_lane.lanes.give_back, lane)
        exits.callback(self._drop_lane)
        _refuse_capture()
        if device.tenant is not None and not device.tenant.closed:
            exits.enter_context(tenant_scope(device.tenant))
        # Before the lease, because that is charged from its beginning.
        exits.enter_context(_current(lane))
        if self._lease_wanted:
            self.acquire()
            exits.callback(self.let_go)
        self._divert(lane)
        exits.callback(self._restore, lane)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not _thread.regions or _thread.regions[-1] is not self:
            raise FailedPreconditionError("regions are left on the thread that entered them, the last one first",
                                          code="FAILED_PRECONDITION")
        self.note(error)
        exits, self._exits = self._exits, contextlib.ExitStack()
        exits.close()

    def acquire(self) -> None:
        """Waits for the turn."""
        lane = self._entered()
        self._turn = Turn(lane, self._pace or lane.pace, self._exclusive, self._timeout)

    def let_go(self) -> None:
        """Ends the turn, if there is one."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def note(self, error: BaseException | None) -> None:
        """Handles an out-of-memory error of PyTorch: adds gpushare's reason to its text, and marks the lane's pool as
        spent."""
        if error is None or self._lane is None:
            return
        import torch

        if isinstance(error, torch.cuda.OutOfMemoryError):
            self._lane.spent = True
            reason = _core._torch_refusal(self.virtual_device.tenant_name)
            if reason is not None:
                error.args = (f"{error}\n{reason}", *error.args[1:])

    def between_steps(self) -> None:
        """Lets threads proceed that wait for a moment without regions, and replaces a spent pool."""
        lane = self._entered()
        if not lane.spent and not _pool.routing.wanted_empty:
            return
        self._restore(lane)
        try:
            if lane.spent:
                _lane.lanes.renew(lane)
        finally:
            self._divert(lane)

    def _divert(self, lane: _lane.Lane) -> None:
        import torch

        self._routed = lane.pool
        with torch.cuda.stream(lane.torch_stream):  # the program may have changed the current stream
            _pool.routing.begin(self._routed, lane.index)

    def _restore(self, lane: _lane.Lane) -> None:
        _pool.routing.end(self._routed, lane.index)

    def _drop_lane(self) -> None:
        self._lane = self._outer = None

    def _entered(self) -> _lane.Lane:
        if self._lane is None:
            raise FailedPreconditionError("this region is not entered; use it by 'with'", code="FAILED_PRECONDITION")
        return self._lane


@contextlib.contextmanager
def _current(lane: _lane.Lane) -> Iterator[None]:
    """Makes the lane's stream current. It waits for the earlier work of the previous stream, which in turn waits for
    the lane's work at the end, so that tensors can be passed in and out as without a region."""
    import torch

    before = torch.cuda.current_stream(lane.index)
    lane.torch_stream.wait_stream(before)
    try:
        with torch.cuda.stream(lane.torch_stream):
            yield
    finally:
        before.wait_stream(lane.torch_stream)


def _refuse_capture() -> None:
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise FailedPreconditionError(
            "a graph is being captured on the current stream, and a region would break that: capture by "
            "gpushare.torch.capture()", code="FAILED_PRECONDITION")


def tenant(device: _core.VirtualDevice, *, lease: bool = True, hint: Duration | None = None, exclusive: bool = True,
           timeout: Any = None) -> Region:
    """Within ``with tenant(device):`` PyTorch works for `device` on the calling thread: a separate stream is current,
    allocations on that stream count against the quota of `device`, and a lease covers its work.

        with gpushare.torch.tenant(online):
            scores = model(batch)

        with gpushare.torch.tenant(trainer, lease=False):     # memory is limited, device time is not
            model = Net().cuda()

    The backward pass is included if it is started within: autograd's threads use the same stream. The region waits for
    the earlier work of the previous stream, which in turn waits for the region's work at the end. Within another region
    of the same virtual device, on the same thread, it takes a lease if there is none, and changes nothing else.

    A lease is charged from its beginning to the end of the work on the stream, including pauses. So for a loop use
    ``lease=False`` around it and `step()` within.

    Args:
        lease: False: device time is neither waited for nor limited.
        hint: device time that it will take: seconds, a timedelta, text such as "2ms"; at most 60 s. None: as the last
            leases of its stream took.
        exclusive: False: work of others may run at the same time, which uses the device better when the kernels are
            small. The time that two such tenants share is divided by their hints, so give both the same hint: their
            shares are then accurate to some percentage points instead of one.
        timeout: how long to wait for the lease: seconds, text such as "20ms", None for ever.

    Raises:
        torch.cuda.OutOfMemoryError: from PyTorch, over the quota; the last line of its text says how much is left.
        DeadlineExceededError (TimeoutError): no lease before the timeout.
        FailedPreconditionError (RuntimeError): the thread has a lease of another virtual device; a graph is being
            captured; PyTorch was told to allocate without its cache.
        NotFoundError (LookupError): PyTorch does not see the GPU of `device`.
        ClosedError, ForkedError: `device` is closed; it belongs to the parent process, for instance in a DataLoader
            worker.
        ImportError: PyTorch is missing or too old.

    Do not use it across an ``await``: PyTorch's current stream belongs to the thread.
    """
    _given.virtual_device(device)
    _given.flag(lease, "lease")
    return Region(device, lease, _given.pace(hint), _given.flag(exclusive, "exclusive"), timeout)


class step:
    """``with step(device):`` is one step of a loop. It waits for the turn of `device`, holds it for the work launched
    within, and gives it up at the end, so that others have the GPU while the program loads its next batch.

        with gpushare.torch.tenant(trainer, lease=False):
            for batch in loader:
                with gpushare.torch.step(trainer):
                    train(batch)

    Outside a region of `device`, the step is a region itself. Within a region that has a lease, the first step ends
    that lease: from then on each step has its own.

    Args, Raises: as `tenant()`. After a step that ran out of memory, the next one starts with an empty cache.
    """

    def __init__(self, device: _core.VirtualDevice, *, hint: Duration | None = None, exclusive: bool = True,
                 timeout: Any = None) -> None:
        self._device = _given.virtual_device(device)
        self._exclusive = _given.flag(exclusive, "exclusive")
        self._pace, self._timeout = _given.pace(hint), timeout
        self._region: Region | None = None

    def __enter__(self) -> Region:
        if self._region is not None:
            raise FailedPreconditionError("this step is entered already; make another one with step()",
                                          code="FAILED_PRECONDITION")
        outer = innermost(self._device)
        if outer is not None and outer._outer is None:
            outer.let_go()
            outer.between_steps()
        region = Region(self._device, True, self._pace, self._exclusive, self._timeout)
        region.__enter__()
        self._region = region
        return region

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        region, self._region = self._region, None
        if region is None:
            raise FailedPreconditionError("this step is not entered; use it by 'with'", code="FAILED_PRECONDITION")
        region.__exit__(kind, error, trace)
        if not self._device.closed:
            self._device.yield_point()
