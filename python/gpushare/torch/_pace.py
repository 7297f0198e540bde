# SPDX-License-Identifier: Apache-2.0
"""How much device time a lease is going to take, and the leases themselves.

A lease is charged by its hint until its work has been measured, and where the work of two leases overlaps
the meter can only split the time by their hints. So turns are exclusive unless the caller wants otherwise,
and what one took is read from two events on its own stream: the device was its alone, so the hint does not
rest on what the meter made of the hint before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ._lane import Lane

_FIRST_HINT = 1e-3
_LEAST_HINT, _LARGEST_HINT = 2e-5, 10.0
# Two events take a few microseconds, and steps change slowly.
_FIRST_TIMED, _TIMED_EVERY = 4, 16


class Pace:
    """Of leases that take about as long as one another. Used by one thread at a time."""

    def __init__(self, fixed: float | None = None) -> None:
        self.hint = _FIRST_HINT if fixed is None else fixed
        self._fixed = fixed is not None
        self._count = 0
        self._timed: tuple[_core.Event, _core.Event] | None = None

    def start(self, lane: Lane) -> tuple[_core.Event, _core.Event] | None:
        """Events for the turn that begins, if it is one to be timed; takes in what the last such took."""
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
        """They are recorded."""
        self._timed = events

    def _take(self, seconds: float) -> None:
        # The first steps load libraries and choose algorithms: what comes after them counts at once.
        part = 1.0 if self._count <= 2 * _FIRST_TIMED else 0.25
        self.hint = min(max(self.hint + part * (seconds - self.hint), _LEAST_HINT), _LARGEST_HINT)


class Turn:
    """One lease on the stream of a lane."""

    def __init__(self, lane: Lane, pace: Pace, exclusive: bool, timeout: Any) -> None:
        self._lane, self._pace = lane, pace
        # Not while others run beside it: the time would be theirs too.
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
        """Gives it back; waits for nothing."""
        events, self._events = self._events, None
        try:
            if events is not None and not self._lane.stream.closed:
                self._lane.stream.record(events[1])
                self._pace.end(events)
        finally:
            if self._lease.held:
                self._lease.release()
