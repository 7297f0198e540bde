# SPDX-License-Identifier: Apache-2.0
"""`async with lease:` and `async with gang:`.

A wait at the gate blocks a thread, and it must not block the event loop's thread. So each virtual device and each gang
has one thread that acquires for all coroutines, one after the other in the order in which they asked. The thread ends
when nobody has asked for a while. Such leases belong to no thread, because coroutines of several tenants share the
event loop's thread.

Each acquisition is one call that waits up to the timeout; a coroutine that is cancelled ends the wait. While a request
is still behind another one, its event loop watches its timeout.
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

_IDLE_SECONDS = 5.0


def _late(why: str) -> DeadlineExceededError:
    return DeadlineExceededError(f"no lease before the timeout: {why}", code="DEADLINE_EXCEEDED")


class _Request:
    """One coroutine's wait. Its end is decided by whichever comes first: the line's thread, which then has the permit
    (`_served`), or the coroutine, which gives up (`abandon`)."""

    def __init__(self, lease: _core.Lease | _core.Gang, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self.lease, self.loop, self.future = lease, loop, future
        timeout_ns = lease._timeout_ns
        self.deadline = None if timeout_ns is None else time.monotonic_ns() + timeout_ns
        self._lock = threading.Lock()
        self._call_off = _core._CallOff()
        self._served = False

    def left_ns(self) -> int | None:
        return None if self.deadline is None else max(0, self.deadline - time.monotonic_ns())

    def serve(self) -> None:
        """Acquires, unless the coroutine has given up. Runs on the line's thread, which does not use the permit
        afterwards."""
        try:
            if self._call_off.is_set:
                return
            self.lease._acquire_for_nobody(self.left_ns(), self._call_off)
            with self._lock:
                self._served = not self._call_off.is_set
            if self._served:
                self._tell(None)
            else:
                self.lease.release()
        except DeadlineExceededError as error:
            self._tell(_late(str(error)))
        except BaseException as error:  # every error belongs to the coroutine
            self._tell(error)

    def abandon(self) -> None:
        """Called when the coroutine gives up. Releases what was acquired for it."""
        with self._lock:
            self._call_off.set()
            served, self._served = self._served, False
        if served and self.lease.held:
            self.lease.release()

    def _tell(self, error: BaseException | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self.finish, error)
        except RuntimeError:  # the loop is closed
            self.abandon()

    def finish(self, error: BaseException | None) -> None:
        if self.future.done():
            return  # cancelled: the coroutine calls abandon()
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class _Line:
    """The queue of requests for one virtual device or one gang."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Request] = collections.deque()
        self._runs = False
        self._serves = False

    def join(self, request: _Request) -> bool:
        """Adds the request. True if it is the next to be served."""
        with self._changed:
            if not self._runs:
                # May raise, for instance when the interpreter is finalizing. Then nobody waits for a thread that does
                # not exist.
                threading.Thread(target=self._run, name="gpushare-lease", daemon=True).start()
                self._runs = True
            first = not self._serves and not self._waiting
            self._waiting.append(request)
            self._changed.notify()
        return first

    def leave(self, request: _Request) -> bool:
        """Removes the request. False if it is being served or has been served."""
        with self._changed:
            try:
                self._waiting.remove(request)
            except ValueError:
                return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._serves = False
                if not self._waiting and not self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS):
                    self._runs = False
                    return
                request = self._waiting.popleft()
                self._serves = True
            request.serve()
            del request


_lines: weakref.WeakKeyDictionary[_core.VirtualDevice | _core.Gang, _Line] = weakref.WeakKeyDictionary()
_lines_lock = threading.Lock()


def _forget() -> None:
    """For a forked child, which has none of its parent's threads, and perhaps a lock that one of them held."""
    global _lines, _lines_lock
    _lines, _lines_lock = weakref.WeakKeyDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _time_out(line: _Line, request: _Request) -> None:
    # A request that is being served checks its own deadline.
    if line.leave(request):
        request.finish(_late("it is the turn of others of this virtual device that wait; wait longer ('timeout')"))


async def enter(lease: _Permit) -> _Permit:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    with _lines_lock:
        line = _lines.setdefault(lease if isinstance(lease, _core.Gang) else lease.virtual_device, _Line())
    request = _Request(lease, loop, future)
    timer = None
    if not line.join(request) and (left := request.left_ns()) is not None:
        timer = loop.call_later(left / 1e9, _time_out, line, request)
    try:
        await future
    except BaseException:  # cancelled, or destroyed with its loop
        line.leave(request)
        request.abandon()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    return lease


async def leave(lease: _core.Lease | _core.Gang) -> None:
    lease.release()
