# SPDX-License-Identifier: Apache-2.0
"""gpushare.record: snapshots over time."""

import datetime
import sys

import gpushare
import numpy as np
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


def test_snapshots_that_were_lost_are_not_made_up_for(virtual_gpu):
    runtime, recorder = virtual_gpu.runtime, gpushare.record(virtual_gpu, every="10ms")
    take, taken = recorder.take, []

    def slow():
        taken.append(runtime.now())
        if len(taken) == 3:
            runtime.sleep(0.295)
        return take()

    recorder.take = slow
    with recorder:
        runtime.sleep(0.4)
    gaps = [b - a for a, b in zip(taken, taken[1:-1], strict=False)]
    assert len(taken) < 15 and min(gaps) >= 0.0099 and max(gaps) == pytest.approx(0.305, abs=1e-3)


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


def record_every(gpu, value):
    gpushare.record(gpu, every=value)


def run_for(gpu, value):
    gpushare.record(gpu).run(value)


def policy_epoch(gpu, value):
    gpushare.PolicyLoop([gpu.virtual_device("a")], print, epoch=value)


@pytest.mark.parametrize(("call", "field"), [(record_every, "every"), (run_for, "seconds"), (policy_epoch, "epoch")])
@pytest.mark.parametrize(("wrong", "error"), [
    (None, TypeError), (True, TypeError), ([], TypeError), (float("nan"), ValueError), (-1, ValueError),
    ("-1s", ValueError), ("1", ValueError), ("burst", ValueError), (datetime.timedelta(seconds=-1), ValueError),
])
def test_durations_that_cannot_be(virtual_gpu, call, field, wrong, error):
    with pytest.raises(error, match=f"^{field}: ") as raised:
        call(virtual_gpu, wrong)
    assert wrong == "burst" or "burst" not in str(raised.value)


@pytest.mark.parametrize(("call", "field"), [(record_every, "every"), (policy_epoch, "epoch")])
@pytest.mark.parametrize(("wrong", "given"), [
    (0, "0 s"), (10.5, "10.5 s"), ("11s", "11s"), (datetime.timedelta(0), "0:00:00"),
])
def test_intervals_out_of_range(virtual_gpu, call, field, wrong, given):
    with pytest.raises(gpushare.InvalidArgumentError,
                       match=f"^{field}: {given} given, above 0 s and at most 10 s wanted$"):
        call(virtual_gpu, wrong)


def test_durations_of_all_kinds(virtual_gpu):
    for value in (0.25, "250ms", datetime.timedelta(milliseconds=250), np.float32(0.25)):
        recorder = gpushare.record(virtual_gpu, every=value)
        assert recorder.every == 0.25
        begin = virtual_gpu.runtime.now()
        assert len(recorder.run(value)) == 2
        assert virtual_gpu.runtime.now() - begin == pytest.approx(0.25, abs=0.001)
    begin = virtual_gpu.runtime.now()
    gpushare.record(virtual_gpu, every="10s").run("1min")  # longer than the maximum interval
    assert virtual_gpu.runtime.now() - begin == pytest.approx(60, abs=0.001)


@pytest.mark.parametrize("wrong", ["x", None, 2.5, True])
def test_keep_is_a_whole_number(virtual_gpu, wrong):
    with pytest.raises(TypeError, match="^keep: .* given, int wanted$"):
        gpushare.record(virtual_gpu, keep=wrong)
    assert len(gpushare.record(virtual_gpu, every="10ms", keep=np.int64(3)).run("1s")) == 3


def test_a_recorder_that_was_stopped_runs_again(virtual_gpu):
    recorder = gpushare.record(virtual_gpu, every="10ms")
    with recorder:
        with pytest.raises(RuntimeError, match="runs already"):
            recorder.run("50ms")
    taken = len(recorder)
    assert len(recorder.run("50ms")) == taken + 6


def test_the_error_of_the_block_is_the_one_that_is_raised(virtual_gpu):
    def fail(epoch):
        raise KeyError("of the policy")

    device = virtual_gpu.virtual_device("a")
    with pytest.raises(ZeroDivisionError), gpushare.PolicyLoop([device], fail, epoch="1ms") as loop:
        virtual_gpu.runtime.sleep(0.01)
        assert isinstance(loop.error, KeyError)
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), gpushare.record(virtual_gpu, every="1ms"):
        virtual_gpu.runtime.close()
        1 / 0  # noqa: B018
