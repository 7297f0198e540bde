# SPDX-License-Identifier: Apache-2.0
"""Objects that a ``with`` block starts and stops, and work that runs periodically on a thread of a runtime's clock."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from ._core import Runtime

Self = TypeVar("Self", bound="Block")  # in typing from Python 3.11

# Seconds. A shorter sleep may be rounded to nothing, and then virtual time would stand still.
LEAST = 1e-6
_SLICE = 0.05  # so that stop() does not have to wait for a whole period


class Block:
    """``with`` starts and stops the object."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            self.stop()
        except Exception:
            if error is None:  # otherwise the block's own error is more informative
                raise


class Turns(Block):
    """A thread that runs `_work()` from `start()` to `stop()`. An exception in `_work()` ends the thread and is raised
    by `stop()`."""

    _kind: ClassVar[str]

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stopping = threading.Event()
        self._thread: Any = None
        self._error: BaseException | None = None

    def _prepare(self) -> None:
        """Called before the thread starts."""

    def _work(self) -> None:
        """Runs on the thread; returns once `_stopping` is set."""
        raise NotImplementedError

    def _sleep_until(self, end: float) -> bool:
        """False if it was stopped meanwhile."""
        while not self._stopping.is_set():
            left = end - self._runtime.now()
            if left < LEAST:
                return True
            self._runtime.sleep(min(left, _SLICE))
        return False

    def _turn_after(self, turn: float, every: float) -> float:
        """When the next turn is. Missed turns are skipped: making up for them in a burst would measure moments instead
        of intervals."""
        now = self._runtime.now()
        return turn + every if turn + every > now else now + every

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def _begin(self) -> None:
        if self._thread is not None:
            raise RuntimeError(f"this {self._kind} runs already")
        self._stopping.clear()
        self._error = None

    def start(self) -> None:
        self._begin()
        self._prepare()
        self._thread = self._runtime.start_thread(self._run, name=self._kind)

    def stop(self) -> None:
        """Stops after the current turn, and raises the thread's error, if any."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join()
        if self._error is not None:
            raise self._error
