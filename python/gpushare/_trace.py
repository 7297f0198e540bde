# SPDX-License-Identifier: Apache-2.0
"""Records when things happened: waits, leases, device time and memory, from the GPUs' flight recorders.

    with gpushare.trace("out.json"):        # open it at ui.perfetto.dev, or in chrome://tracing
        serve()

    with gpushare.trace() as trace:         # or look at it from here
        serve()
    print(sum(event.duration for event in trace.events if event.kind == "wait"))
"""

from __future__ import annotations

import os
from typing import NamedTuple, Union

from . import _core
from ._errors import FailedPreconditionError
from ._turns import Block

__all__ = ["Trace", "TraceEvent", "trace"]

_AT_ONCE = 4096


class TraceEvent(NamedTuple):
    """One event of a trace. Times are in seconds on the runtime's clock, sizes in bytes."""

    kind: str  # "wait", "lease", "device", "copy_wait", "memory", "denied", "suspend"
    tenant: str
    gpu: int  # ordinal
    begin: float
    end: float  # equal to begin for "memory", "denied" and "suspend"
    value: float  # device time requested, hinted or charged in s; bytes copied, held or requested; 1: suspended
    other: int  # "memory": the limit; "denied": what was left; "copy_wait": 0 to the device, 1 from it
    commands: int  # for "device": kernels, graphs, leases
    gave_up: bool  # the wait ended without a turn
    for_lease: bool  # a wait for a lease, or device time of a lease
    exclusive: bool  # an exclusive lease
    overrun: bool  # the lease was held longer than its maximum
    overdue: bool  # device time charged before the work had ended
    device_full: bool  # refused by the driver, not by the quota

    @property
    def duration(self) -> float:
        return self.end - self.begin


class Trace(Block):
    """A recording, made by `gpushare.trace()`. A context manager that records within the block."""

    def __init__(self, path: str | os.PathLike[str] | None, of: _core.Runtime | _core.Gpu | None, capacity: int) -> None:
        if of is not None and not isinstance(of, (_core.Runtime, _core.Gpu)):
            raise TypeError(f"of: {type(of).__name__} given, a gpushare.Runtime or gpushare.Gpu wanted")
        self.path = None if path is None else os.fspath(path)
        self._of = of
        self._capacity = capacity
        self._core: _core.Trace | None = None
        self._events: list[TraceEvent] = []

    def start(self) -> None:
        """Starts recording. Raises AlreadyExistsError (ValueError) while another trace of the runtime is recording."""
        runtime = self._of.runtime if isinstance(self._of, _core.Gpu) else self._of
        if runtime is None:
            runtimes = _core._runtimes()
            if len(runtimes) != 1:
                raise FailedPreconditionError(
                    f"{len(runtimes)} runtimes are open, one was expected; " +
                    ("open one before" if not runtimes else "say which: trace(..., of=runtime)"),
                    code="FAILED_PRECONDITION")
            runtime = runtimes[0]
        core = _core.Trace(runtime, self._capacity)  # before opening the file: if this is refused, the file is unchanged
        if self.path is not None:
            try:
                with open(self.path, "w", encoding="utf-8"):
                    pass  # reports a file that cannot be written now rather than at the end
            except BaseException:
                core.close()
                raise
        self._core = core
        self._events = []

    def stop(self) -> None:
        """Stops recording, and writes the file if there is one."""
        core = self._recording()
        core.stop()
        if self.path is not None:
            core.write(self.path)  # this takes the events out

    @property
    def events(self) -> list[TraceEvent]:
        """The events recorded so far, one GPU after the other, in the order of their ends.

        Raises:
            FailedPreconditionError (RuntimeError): the trace has a path, so its events are only in that file; or the
                trace was not started.
        """
        core = self._recording()
        if self.path is not None:
            raise FailedPreconditionError(
                f"the events of this trace go to {self.path!r}, and an event is read only once: trace() without a path "
                "keeps them for Trace.events", code="FAILED_PRECONDITION")
        while read := core.read(_AT_ONCE):
            self._events += map(TraceEvent._make, read)
        return self._events

    @property
    def lost(self) -> int:
        """How many events were overwritten. A larger `capacity` keeps more."""
        return self._recording().lost

    def _recording(self) -> _core.Trace:
        if self._core is None:
            raise FailedPreconditionError("this trace was not started: use it in a `with` statement",
                                          code="FAILED_PRECONDITION")
        return self._core

    def __repr__(self) -> str:
        if self._core is None:
            return "<gpushare.Trace, not started>"
        if self.path is not None:
            return f"<gpushare.Trace into {self.path!r}>"
        return f"<gpushare.Trace: {len(self._events)} events read>"


def trace(path: str | os.PathLike[str] | None = None, *, of: Union[_core.Runtime, _core.Gpu, None] = None,
          capacity: int = 65536) -> Trace:
    """Records what the GPUs do within a ``with`` block.

    Args:
        path: the file to write at the end, even if the block raises; then the events are only in the file. None: no
            file; `Trace.events` has the events.
        of: the runtime, or one of its GPUs; None: the open runtime. All GPUs of the runtime are recorded.
        capacity: the number of events to keep for each GPU, the latest ones; 128 bytes each, at most 4194304.

    Raises:
        OSError: the file cannot be written.
        FailedPreconditionError (RuntimeError): no runtime is open, or several are.
        AlreadyExistsError (ValueError): another trace of the runtime is recording.
    """
    return Trace(path, of, capacity)
