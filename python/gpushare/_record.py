# SPDX-License-Identifier: Apache-2.0
"""Snapshots taken again and again, for gpushare.plot and for tables.

    with gpushare.record(gpu, every="100ms") as recorder:
        serve()
    gpushare.plot.shares(recorder)
    recorder.between()[-1]["trainer"].charged        # device time of the last interval
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from ._core import Gpu, Runtime
from ._given import Duration, duration, whole
from ._progress import Progress
from ._turns import LEAST, Turns
from .snapshot import Snapshot

__all__ = ["Recorder", "record"]

_LONGEST = 10.0  # seconds


class Recorder(Turns):
    """Snapshots over time; made by `record()`.

    ``with`` takes them on a thread of the runtime's clock, the last one at its end; `run()` in the calling
    one; `take()` takes one now. What goes wrong on the thread ends it and is raised at the end of the block. Thread-safe.
    """

    _kind = "recorder"

    def __init__(self, of: Gpu | Runtime, every: Duration, keep: int) -> None:
        if not isinstance(of, (Gpu, Runtime)):
            raise TypeError(f"of: {type(of).__name__} given, a gpushare.Gpu or gpushare.Runtime wanted")
        keep = whole(keep, "keep")
        if keep < 2:
            raise ValueError(f"keep: {keep} given, 2 or more wanted")
        super().__init__(of.runtime if isinstance(of, Gpu) else of)
        self.every = duration(every, "every", most=_LONGEST)
        self._gpu = of if isinstance(of, Gpu) else None
        self._taken: collections.deque[Snapshot] = collections.deque(maxlen=keep)

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
        while not self._stopping.is_set() and (until is None or until - last >= LEAST):
            next_time = self._turn_after(next_time, self.every)
            self._sleep_until(next_time if until is None else min(next_time, until))
            self.take()  # also the last one, when it is stopped
            now = self._runtime.now()
            yield now - last
            last = now

    def run(self, seconds: Duration, *, progress: bool | None = None) -> Recorder:
        """Records for so long, in the calling thread: seconds, a timedelta or text. `progress`: a bar on standard
        error; None: if that is a terminal. It needs tqdm; without there is none."""
        length = duration(seconds, "seconds")
        self._begin()
        with Progress(length, "recording", unit="s", show=progress) as bar:
            for passed in self._turns(self._runtime.now() + length):
                bar.update(passed)
        return self

    def _work(self) -> None:
        for _ in self._turns():
            pass

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    def __repr__(self) -> str:
        return f"<gpushare.Recorder: {len(self)} snapshots, every {self.every:g} s>"


def record(of: Gpu | Runtime, every: Duration = "100ms", *, keep: int = 36_000) -> Recorder:
    """A Recorder of the virtual devices of a GPU, or of all GPUs of a runtime.

    Args:
        of: the GPU or the runtime.
        every: time between two snapshots, on the runtime's clock: seconds, a timedelta or text; to 10 s. One
            takes some microseconds per virtual device.
        keep: how many snapshots, the latest; 36000 are an hour of ten a second.
    """
    return Recorder(of, every, keep)
