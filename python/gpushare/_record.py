# SPDX-License-Identifier: Apache-2.0
"""Snapshots taken again and again, for gpushare.plot and for tables.

    with gpushare.record(gpu, every="100ms") as recorder:
        serve()
    gpushare.plot.shares(recorder)
    recorder.between()[-1]["trainer"].charged        # device time of the last interval
"""

from __future__ import annotations

import collections
import datetime
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Union

from ._core import Gpu, Runtime, VirtualDeviceSpec
from ._progress import Progress
from .snapshot import Snapshot

__all__ = ["Recorder", "record"]

_Duration = Union[float, str, datetime.timedelta]

# Seconds. Less may round to a sleep of nothing, and virtual time would stand still.
_LEAST = 1e-6


class Recorder:
    """Snapshots over time; made by `record()`.

    ``with`` takes them on a thread of the runtime's clock; `run()` in the calling one; `take()` takes one now.
    What goes wrong on the thread ends it and is raised at the end of the block. Thread-safe.
    """

    def __init__(self, of: Gpu | Runtime, every: _Duration, keep: int) -> None:
        if not isinstance(of, (Gpu, Runtime)):
            raise TypeError(f"of: {type(of).__name__} given, a gpushare.Gpu or gpushare.Runtime wanted")
        if keep < 2:
            raise ValueError(f"keep: {keep} given, 2 or more wanted")
        interval = VirtualDeviceSpec(burst=every).burst  # the library's own parser of durations
        if not interval:
            raise ValueError("every: 0 s given, above 0 wanted")
        self.every = interval
        self._gpu = of if isinstance(of, Gpu) else None
        self._runtime = of.runtime if isinstance(of, Gpu) else of
        self._taken: collections.deque[Snapshot] = collections.deque(maxlen=keep)
        self._stopping = threading.Event()
        self._thread: Any = None
        self._error: BaseException | None = None

    @property
    def snapshots(self) -> list[Snapshot]:
        """What was taken so far, the oldest first."""
        return list(self._taken)

    def take(self) -> Snapshot:
        snapshot = self._runtime.snapshot()
        if self._gpu is not None:
            ordinal = self._gpu.ordinal
            snapshot = Snapshot(snapshot.time, tuple(d for d in snapshot if d.gpu == ordinal))
        self._taken.append(snapshot)
        return snapshot

    def between(self) -> list[Snapshot]:
        """What happened between each snapshot and the one before."""
        taken = self.snapshots
        return [after - before for before, after in zip(taken, taken[1:])]  # noqa: B905

    def _turns(self, until: float | None = None) -> Iterator[float]:
        """Takes a snapshot at each turn; yields what time has passed since the last."""
        last = next_time = self._runtime.now()
        self.take()
        while not self._stopping.is_set() and (until is None or until - last >= _LEAST):
            next_time += self.every
            end = next_time if until is None else min(next_time, until)
            while not self._stopping.is_set():
                left = end - self._runtime.now()
                if left < _LEAST:
                    break
                self._runtime.sleep(min(left, 0.05))  # so that stop() does not take an interval
            self.take()
            now = self._runtime.now()
            yield now - last
            last = now

    def run(self, seconds: _Duration, *, progress: bool | None = None) -> Recorder:
        """Records for so long, in the calling thread. `progress`: a bar on standard error; None: if that is a
        terminal. It needs tqdm; without there is none."""
        length = VirtualDeviceSpec(burst=seconds).burst if not isinstance(seconds, (int, float)) else float(seconds)
        assert length is not None
        with Progress(length, "recording", unit="s", show=progress) as bar:
            for passed in self._turns(self._runtime.now() + length):
                bar.update(passed)
        return self

    def _run(self) -> None:
        try:
            for _ in self._turns():
                pass
        except BaseException as error:
            self._error = error

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this recorder runs already")
        self._stopping.clear()
        self._error = None
        self._thread = self._runtime.start_thread(self._run, name="recorder")

    def stop(self) -> None:
        """Takes the last snapshot and raises what went wrong on the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            self.stop()
        except BaseException:
            if error is None:
                raise

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    def __repr__(self) -> str:
        return f"<gpushare.Recorder: {len(self)} snapshots, every {self.every:g} s>"


def record(of: Gpu | Runtime, every: _Duration = "100ms", *, keep: int = 36_000) -> Recorder:
    """A Recorder of the virtual devices of a GPU, or of all GPUs of a runtime.

    Args:
        of: the GPU or the runtime.
        every: time between two snapshots, on the runtime's clock: seconds, a timedelta or text; to 10 s. One
            takes some microseconds per virtual device.
        keep: how many snapshots, the latest; 36000 are an hour of ten a second.
    """
    return Recorder(of, every, keep)
