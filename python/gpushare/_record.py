# SPDX-License-Identifier: Apache-2.0
"""Records a series of snapshots, for gpushare.plot and for tables.

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

    ``with`` takes them on a thread of the runtime's clock, and a last one at the end of the block. `run()` takes them
    in the calling thread, and `take()` takes one now. An error on the thread ends it and is raised at the end of the
    block. Thread-safe.
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
        """The snapshots taken so far, oldest first."""
        return list(self._taken)

    def take(self) -> Snapshot:
        snapshot = self._runtime.snapshot()
        if self._gpu is not None:
            ordinal = self._gpu.ordinal
            snapshot = Snapshot(snapshot.time, tuple(d for d in snapshot if d.gpu == ordinal))
        self._taken.append(snapshot)
        return snapshot

    def between(self) -> list[Snapshot]:
        """The differences between each snapshot and the previous one."""
        taken = self.snapshots
        return [after - before for before, after in zip(taken, taken[1:])]  # noqa: B905

    def _turns(self, until: float | None = None) -> Iterator[float]:
        """Takes a snapshot at each turn. Yields the time that has passed since the last one."""
        last = next_time = self._runtime.now()
        self.take()
        while not self._stopping.is_set() and (until is None or until - last >= LEAST):
            next_time = self._turn_after(next_time, self.every)
            self._sleep_until(next_time if until is None else min(next_time, until))
            self.take()  # and a last one when it is stopped
            now = self._runtime.now()
            yield now - last
            last = now

    def run(self, seconds: Duration, *, progress: bool | None = None) -> Recorder:
        """Records in the calling thread for `seconds`: a number, a timedelta or text. `progress`: whether to show a
        progress bar on standard error; None: only if that is a terminal. The bar needs tqdm; without it there is none."""
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
    """Returns a Recorder of the virtual devices of one GPU, or of all GPUs of a runtime.

    Args:
        of: the GPU or the runtime.
        every: time between two snapshots on the runtime's clock: seconds, a timedelta or text; at most 10 s. A snapshot
            takes some microseconds per virtual device.
        keep: how many of the latest snapshots to keep; 36000 are one hour at ten per second.
    """
    return Recorder(of, every, keep)
