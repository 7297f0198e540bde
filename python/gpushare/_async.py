# SPDX-License-Identifier: Apache-2.0
"""`async with lease:` and `async with gang:`.

A wait at the gate blocks a thread, and the event loop's must not be. So each virtual device has one thread
that acquires for all coroutines, one after the other, as they came; so has each gang. It ends when nobody has
asked for a while. Such leases belong to no thread: coroutines of several tenants share the loop's.
"""

from __future__ import annotations

import asyncio
import collections
import os
import threading
import time
import weakref
from typing import TypeVar

from . import _core
from ._errors import DeadlineExceededError

_Permit = TypeVar("_Permit", _core.Lease, _core.Gang)

_SLICE_NS = 50_000_000  # after which a request that was cancelled meanwhile is dropped
_GANG_SLICE_NS = 1_000_000_000  # longer: a gang gives back what it has and begins anew
_IDLE_SECONDS = 5.0


class _Request:
    def __init__(self, lease: _core.Lease | _core.Gang, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self.lease, self.loop, self.future = lease, loop, future
        timeout_ns = lease._timeout_ns
        self.slice_ns = _GANG_SLICE_NS if isinstance(lease, _core.Gang) else _SLICE_NS
        self.deadline = None if timeout_ns is None else time.monotonic_ns() + timeout_ns

    def serve(self) -> None:
        """Acquires, unless nobody waits any more."""
        try:
            acquired = False
            while not acquired and not self.future.cancelled():
                left = self.slice_ns if self.deadline is None else max(0, self.deadline - time.monotonic_ns())
                acquired = self.lease._try_acquire(min(left, self.slice_ns), True)
                if not acquired and left <= self.slice_ns and self.deadline is not None:
                    raise DeadlineExceededError("no lease before the timeout", code="DEADLINE_EXCEEDED")
            self._tell(None)
        except BaseException as error:  # whatever it is belongs to the coroutine
            self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._finish, error)
        except RuntimeError:  # the loop is closed
            self._drop()

    def _finish(self, error: BaseException | None) -> None:
        if self.future.cancelled():
            self._drop()
        elif error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)

    def _drop(self) -> None:
        if self.lease.held:
            self.lease.release()


class _Line:
    """The requests of one virtual device, or of one gang."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Request] = collections.deque()
        self._runs = False

    def join(self, request: _Request) -> None:
        with self._changed:
            if not self._runs:
                # May raise, at the interpreter's end for instance; then nobody waits for a thread that is not there.
                threading.Thread(target=self._run, name="gpushare-lease", daemon=True).start()
                self._runs = True
            self._waiting.append(request)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS):
                    self._runs = False
                    return
                request = self._waiting.popleft()
            request.serve()
            del request


_lines: weakref.WeakKeyDictionary[_core.VirtualDevice | _core.Gang, _Line] = weakref.WeakKeyDictionary()
_lines_lock = threading.Lock()


def _forget() -> None:
    """A forked child has none of its parent's threads, and perhaps a lock that one of them held."""
    global _lines, _lines_lock
    _lines, _lines_lock = weakref.WeakKeyDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


async def enter(lease: _Permit) -> _Permit:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    with _lines_lock:
        line = _lines.setdefault(lease if isinstance(lease, _core.Gang) else lease.virtual_device, _Line())
    line.join(_Request(lease, loop, future))
    try:
        await future
    except asyncio.CancelledError:
        # Acquired in the moment of the cancellation.
        if future.done() and not future.cancelled() and lease.held:
            lease.release()
        raise
    return lease


async def leave(lease: _core.Lease | _core.Gang) -> None:
    lease.release()
