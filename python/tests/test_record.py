# SPDX-License-Identifier: Apache-2.0
"""gpushare.record: snapshots over time."""

import sys

import gpushare
import pytest
from gpushare._progress import Progress


def test_takes_a_snapshot_per_interval(virtual_gpu, ptx):
    device = virtual_gpu.virtual_device("a")
    stream, spin = device.stream(), virtual_gpu.load(ptx)["spin"]
    recorder = gpushare.record(virtual_gpu, every="10ms")
    with recorder:
        for _ in range(50):
            stream.launch(spin, 100, 256, 1_000_000)
        stream.synchronize()
        virtual_gpu.runtime.sleep(0.05)
    times = [snapshot.time for snapshot in recorder]
    assert len(recorder) == len(times) >= 10
    assert all(b - a == pytest.approx(0.01, abs=0.0015) for a, b in zip(times[:-2], times[1:-1], strict=True))
    assert sum(change["a"].charged for change in recorder.between()) == pytest.approx(0.05, rel=0.02)
    assert recorder.snapshots[-1]["a"].launches == 50
    assert "every 0.01 s" in repr(recorder)


def test_run_and_keep(virtual_gpu):
    recorder = gpushare.record(virtual_gpu.runtime, every=0.01, keep=5).run("200ms")
    assert len(recorder) == 5
    assert recorder.snapshots[-1].time - recorder.snapshots[0].time == pytest.approx(0.04, abs=0.001)


def test_only_the_gpu_that_is_asked_for():
    with gpushare.simulated_gpu(clock="virtual", devices=2) as first:
        second = gpushare.Gpu(first.runtime, 1)
        devices = [first.virtual_device("a"), second.virtual_device("b")]
        assert [d.tenant for d in gpushare.record(second).take()] == ["b"]
        assert [d.tenant for d in gpushare.record(first.runtime).take()] == ["a", "b"]
        assert len(devices) == 2


def test_what_goes_wrong_is_raised_at_the_end(virtual_gpu):
    with pytest.raises(gpushare.ClosedError), gpushare.record(virtual_gpu, every="1ms"):
        virtual_gpu.runtime.close()


def test_misuse(virtual_gpu):
    with pytest.raises(TypeError, match="of: int given"):
        gpushare.record(5)
    with pytest.raises(ValueError, match="2 or more"):
        gpushare.record(virtual_gpu, keep=1)
    with pytest.raises(ValueError):
        gpushare.record(virtual_gpu, every=0)
    with gpushare.record(virtual_gpu) as recorder, pytest.raises(RuntimeError, match="runs already"):
        recorder.start()


def test_progress_is_silent_without_a_terminal(virtual_gpu, capfd):
    gpushare.record(virtual_gpu, every="10ms").run("50ms")
    assert capfd.readouterr() == ("", "")


def test_progress_shows_a_bar_when_told_to(virtual_gpu, capfd):
    pytest.importorskip("tqdm")
    gpushare.record(virtual_gpu, every="10ms").run("50ms", progress=True)
    assert "recording" in capfd.readouterr().err


def test_progress_without_tqdm(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with Progress(1, "x", unit="s", show=True) as progress:
        progress.update(1)
    assert capfd.readouterr() == ("", "")
