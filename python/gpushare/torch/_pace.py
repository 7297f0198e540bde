# SPDX-License-Identifier: Apache-2.0
"""Predicts how much device time a lease will take, and takes the leases.

A lease is charged by its hint until its work has been measured, and where the work of two leases overlaps the meter can
only divide the time by their hints. So turns are exclusive by default, and the time that one takes is read from two
events on its own stream: it had the device alone, so the next hint does not depend on what the meter made of the
previous one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ._lane import Lane

_FIRST_HINT = 1e-3
_LEAST_HINT, _LARGEST_HINT = 2e-5, 10.0
# Two events cost a few microseconds, and the duration of steps changes slowly.
_FIRST_TIMED, _TIMED_EVERY = 4, 16


class Pace:
    """The pace of leases that take about the same time. Used by one thread at a time."""

    def __init__(self, fixed: float | None = None) -> None:
        self.hint = _FIRST_HINT if fixed is None else fixed
        self._fixed = fixed is not None
        self._count = 0
        self._timed: tuple[_core.Event, _core.Event] | None = None

    def start(self, lane: Lane) -> tuple[_core.Event, _core.Event] | None:
        """Returns events for the turn that begins, if it is to be timed. Updates the hint from the last timed turn."""
        self._count += 1
        if self._fixed:
            return None
        if self._timed is not None:
            if not self._timed[1].done:
                return None
            self._take(self._timed[1].since(self._timed[0]))
            self._timed = None
        if self._count > _FIRST_TIMED and self._count % _TIMED_EVERY != 0:
            return None
        return _core.Event(lane.device, timing=True), _core.Event(lane.device, timing=True)

    def end(self, events: tuple[_core.Event, _core.Event]) -> None:
        """Call when the events have been recorded."""
        self._timed = events

    def _take(self, seconds: float) -> None:
        # The first steps load libraries and choose algorithms, so the measurements after them get full weight.
        part = 1.0 if self._count <= 2 * _FIRST_TIMED else 0.25
        self.hint = min(max(self.hint + part * (seconds - self.hint), _LEAST_HINT), _LARGEST_HINT)


class Turn:
    """One lease on a lane's stream."""

    def __init__(self, lane: Lane, pace: Pace, exclusive: bool, timeout: Any) -> None:
        self._lane, self._pace = lane, pace
        # Only when nothing else runs meanwhile: otherwise its time would be included.
        self._events = pace.start(lane) if exclusive else None
        self._lease = lane.device.lease(hint=pace.hint, maximum=max(1.0, 4 * pace.hint), exclusive=exclusive,
                                        timeout=timeout, streams=[lane.stream])
        self._lease.acquire()
        if self._events is not None:
            try:
                lane.stream.record(self._events[0])
            except BaseException:
                self._lease.release()
                raise

    def end(self) -> None:
        """Releases the lease. Does not wait."""
        events, self._events = self._events, None
        try:
            if events is not None and not self._lane.stream.closed:
                self._lane.stream.record(events[1])
                self._pace.end(events)
        finally:
            if self._lease.held:
                self._lease.release()
