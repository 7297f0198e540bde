# SPDX-License-Identifier: Apache-2.0
"""Reports work that does not end, and a lost context."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import NamedTuple

from . import _core


class Incident(NamedTuple):
    """What a `Watchdog` reports."""

    kind: str
    """"stuck": work runs on for longer than the limit past what was predicted. "fault": the context is lost, for all
    of the process; one for each tenant that had work in flight, since the driver does not say which did it."""
    tenant: str
    late: float
    """Of "stuck": seconds past what was predicted; of a lease's work past its hint, of one held on past its maximum."""
    lease: bool
    """Of "stuck": the work of a lease."""
    stream: int
    """The address of a stream on which the tenant has work in flight; 0: none is known."""
    driver_result: int
    """Of "fault": the driver's CUresult."""


class Watchdog(_core.Watchdog):
    """Calls `callback(incident)` when work on a GPU does not end, once for each piece of work, and when the context is
    lost. A context manager; ends with `close()`.

        with gpushare.Watchdog(gpu, lambda incident: print(incident.tenant, incident.late), limit="5s"):
            serve()

    Args:
        callback: runs on a thread of the watchdog. It may do anything except closing the watchdog; its exceptions go to
            `sys.unraisablehook`.
        limit: seconds, a timedelta or text such as "5s"; at least 100 ms.

    A kernel cannot be stopped on a GPU that is shared within one process: suspend the tenant, or end the process.

    Raises:
        AlreadyExistsError (ValueError): the GPU already has a watchdog.
        InvalidArgumentError (ValueError): the limit is out of range.
    """

    def __init__(
        self,
        gpu: _core.Gpu,
        callback: Callable[[Incident], object],
        *,
        limit: float | str | datetime.timedelta = 10.0,
    ) -> None:
        if not callable(callback):
            raise TypeError(f"callback: {type(callback).__name__} given, a callable wanted")
        super().__init__(gpu, lambda *fields: callback(Incident(*fields)), limit)
