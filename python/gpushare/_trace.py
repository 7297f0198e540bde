# SPDX-License-Identifier: Apache-2.0
"""What happened when: waits, leases, device time, memory, from the GPUs' flight recorders.

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
    """One event of a trace. Times in seconds of the runtime's clock, sizes in bytes."""

    kind: str  # "wait", "lease", "device", "copy_wait", "memory", "denied", "suspend"
    tenant: str
    gpu: int  # ordinal
    begin: float
    end: float  # equal to begin for "memory", "denied" and "suspend"
    value: float  # device time asked for, hinted, charged in s; bytes copied, held, asked; 1: suspended
    other: int  # "memory": the limit; "denied": what was left; "copy_wait": 0 to the device, 1 from it
    commands: int  # of "device": kernels, graphs, leases
    gave_up: bool  # a wait that ended without a turn
    for_lease: bool  # a wait for a lease; device time of one
    exclusive: bool  # a lease
    overrun: bool  # a lease that was held longer than its maximum
    overdue: bool  # device time charged before the work has ended
    device_full: bool  # refused by the driver, not by the quota

    @property
    def duration(self) -> float:
        return self.end - self.begin


class Trace(Block):
    """A recording; made by `gpushare.trace()`. A context manager: it records within the block."""

    def __init__(self, path: str | os.PathLike[str] | None, of: _core.Runtime | _core.Gpu | None, capacity: int) -> None:
        if of is not None and not isinstance(of, (_core.Runtime, _core.Gpu)):
            raise TypeError(f"of: {type(of).__name__} given, a gpushare.Runtime or gpushare.Gpu wanted")
        self.path = None if path is None else os.fspath(path)
        self._of = of
        self._capacity = capacity
        self._core: _core.Trace | None = None
        self._events: list[TraceEvent] = []

    def start(self) -> None:
        """Begins to record. Raises AlreadyExistsError (ValueError) while another trace of the runtime does."""
        runtime = self._of.runtime if isinstance(self._of, _core.Gpu) else self._of
        if runtime is None:
            runtimes = _core._runtimes()
            if len(runtimes) != 1:
                raise FailedPreconditionError(
                    f"{len(runtimes)} runtimes are open, one was expected; " +
                    ("open one before" if not runtimes else "say which: trace(..., of=runtime)"),
                    code="FAILED_PRECONDITION")
            runtime = runtimes[0]
        core = _core.Trace(runtime, self._capacity)  # before the file: if it is refused, that stays as it is
        if self.path is not None:
            try:
                with open(self.path, "w", encoding="utf-8"):
                    pass  # what cannot be written is better known before than after
            except BaseException:
                core.close()
                raise
        self._core = core
        self._events = []

    def stop(self) -> None:
        """Ends it, and writes the file if there is one."""
        core = self._recording()
        core.stop()
        if self.path is not None:
            core.write(self.path)  # which takes the events

    @property
    def events(self) -> list[TraceEvent]:
        """What was recorded so far, of one GPU after the other, in the order in which it ended.

        Raises:
            FailedPreconditionError (RuntimeError): of a trace with a path, whose events are in that file alone; of one
                that was not started.
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
        """How many events were overwritten: more `capacity` keeps more."""
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
        path: the file to write at the end, also when the block raises; the events are then in it alone.
            None: none, `Trace.events` has them.
        of: the runtime, or a GPU of it; None: the one that is open. All its GPUs are recorded.
        capacity: events kept for each GPU, the latest; 128 bytes each, at most 4194304.

    Raises:
        OSError: the file cannot be written.
        FailedPreconditionError (RuntimeError): no runtime is open, or several are.
        AlreadyExistsError (ValueError): another trace of the runtime is recording.
    """
    return Trace(path, of, capacity)
