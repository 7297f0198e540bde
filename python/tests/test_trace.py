# SPDX-License-Identifier: Apache-2.0
"""gpushare.trace: the file and the events, which both agree with the snapshot."""

import collections
import json

import gpushare
import pytest


def contend(gpu, ptx, names=("a", "b")):
    """Two tenants that compete on the virtual clock with launches and leases."""
    spin = gpu.load(ptx)["spin"]
    devices = [gpu.virtual_device(name, memory="2GiB") for name in names]

    def work(device):
        stream = device.stream()
        for _ in range(100):
            stream.launch(spin, 100, 256, 50_000)
        stream.synchronize()
        with device.lease(hint="200us", streams=[stream]):
            stream.launch(spin, 100, 256, 150_000)
            stream.synchronize()

    threads = [gpu.runtime.start_thread(lambda device=device: work(device)) for device in devices]
    for thread in threads:
        thread.join()
    gpu.runtime.sleep(0.02)  # on the virtual clock: everything is settled afterwards
    return devices


def test_events_add_up_to_the_snapshot(virtual_gpu, ptx):
    with gpushare.trace() as trace:
        devices = contend(virtual_gpu, ptx)
        buffer = devices[0].alloc("1 GiB")
        with pytest.raises(MemoryError):
            devices[0].alloc("1.5 GiB")
        buffer.close()
    assert trace.lost == 0
    by_kind = collections.defaultdict(list)
    for event in trace.events:
        assert event.begin <= event.end and event.gpu == 0
        by_kind[event.kind, event.tenant].append(event)
    assert not any(kind == "unknown" for kind, _ in by_kind)
    snapshot = virtual_gpu.runtime.snapshot()
    for stats in snapshot:
        waits, used = by_kind["wait", stats.tenant], by_kind["device", stats.tenant]
        assert len(waits) == stats.waits > 10
        assert sum(event.duration for event in waits) == pytest.approx(stats.throttled, abs=1e-8)
        assert sum(event.value for event in used) == pytest.approx(stats.measured, abs=1e-8)
        assert len(by_kind["lease", stats.tenant]) == 1
        assert by_kind["lease", stats.tenant][0].value == pytest.approx(200e-6)
    memory = by_kind["memory", "a"]
    assert max(event.value for event in memory) == snapshot["a"].memory_peak == 2**30
    assert memory[-1].value == 0 and {event.other for event in memory} == {2**31}
    denied, = by_kind["denied", "a"]
    assert (denied.value, denied.other, denied.device_full) == (3 * 2**29, 2**30, False)


def test_the_file(virtual_gpu, ptx, tmp_path):
    hostile = '"</script>\\ $x$ \u202e\u00e4'
    path = tmp_path / "out.json"
    with gpushare.trace(path) as trace:
        devices = contend(virtual_gpu, ptx, names=(hostile, "b"))
    with pytest.raises(gpushare.FailedPreconditionError, match="out.json.*without a path"):
        trace.events  # noqa: B018  # they are in the file
    assert repr(trace) == f"<gpushare.Trace into {str(path)!r}>"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["otherData"]["lost"] == 0
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    processes = [e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"]
    assert processes == [f"GPU 0 {virtual_gpu.name}"]
    assert {hostile, "b", "b: waits", f"{hostile}: leases"} <= set(names.values())
    slices = collections.defaultdict(list)
    for e in data["traceEvents"]:
        if e["ph"] == "X":
            slices[names[e["pid"], e["tid"]]].append(e)
    # Slices of one thread must not overlap, or the viewer would nest them.
    for thread, row in slices.items():
        row.sort(key=lambda e: e["ts"])
        for before, after in zip(row, row[1:], strict=False):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6, thread
    assert len(virtual_gpu.runtime.snapshot()) == len(devices)
    for stats in virtual_gpu.runtime.snapshot():
        waits = [e for thread, row in slices.items() if thread.startswith(stats.tenant + ": waits") for e in row]
        assert len(waits) == stats.waits
        assert sum(e["dur"] for e in waits) == pytest.approx(stats.throttled * 1e6)  # microseconds
        device = [e for thread, row in slices.items() if thread == stats.tenant or
                  thread.startswith(stats.tenant + " (") for e in row]
        assert sum(e["args"]["device_ns"] for e in device) == pytest.approx(stats.measured * 1e9)
    counters = [e for e in data["traceEvents"] if e["ph"] == "C"]
    assert {e["name"] for e in counters} == {f"memory of {hostile}", "memory of b"}


def test_what_is_lost_is_said(virtual_gpu, ptx, tmp_path):
    path = tmp_path / "out.json"
    with gpushare.trace(path, capacity=16) as trace:
        contend(virtual_gpu, ptx)
    data = json.loads(path.read_text())
    assert trace.lost > 100 and data["otherData"]["lost"] == trace.lost
    assert data["otherData"]["events"] == 16
    assert f"({trace.lost} older events were lost)" in data["traceEvents"][0]["args"]["name"]


def test_misuse(tmp_path):
    with pytest.raises(gpushare.FailedPreconditionError, match="0 runtimes are open"):
        gpushare.trace().start()
    with gpushare.simulated_gpu() as gpu:
        with pytest.raises(TypeError, match="of: str given"):
            gpushare.trace(of="gpu")
        with pytest.raises(FileNotFoundError):
            gpushare.trace(tmp_path / "no" / "out.json").start()
        with pytest.raises(ValueError, match="4194304 allowed"):
            gpushare.trace(capacity=0).start()
        with pytest.raises(RuntimeError, match="was not started"):
            gpushare.trace().events  # noqa: B018
        with gpushare.trace(of=gpu) as trace:
            with pytest.raises(gpushare.AlreadyExistsError, match="another trace"):
                gpushare.trace(of=gpu.runtime).start()
            assert "0 events read" in repr(trace)
        with gpushare.trace():
            pass  # the previous trace has ended


def test_a_block_that_raises_writes_its_file(gpu, tmp_path):
    path = tmp_path / "out.json"
    with pytest.raises(ZeroDivisionError), gpushare.trace(path):
        1 / 0  # noqa: B018
    assert json.loads(path.read_text())["traceEvents"]


def test_a_trace_that_is_refused_leaves_the_file_as_it_is(gpu, tmp_path):
    path = tmp_path / "before.json"
    path.write_text("before")
    with gpushare.trace(of=gpu):
        with pytest.raises(gpushare.AlreadyExistsError):
            gpushare.trace(path, of=gpu).start()
    assert path.read_text() == "before"
    with pytest.raises(IsADirectoryError):
        gpushare.trace(tmp_path, of=gpu).start()
    with gpushare.trace(path, of=gpu):  # the trace that could not be written does not record
        pass
    assert json.loads(path.read_text())


def test_events_are_not_taken_out_of_a_file(gpu, device, tmp_path):
    path = tmp_path / "out.json"
    with gpushare.trace(path) as trace:
        device.alloc(1000).close()
        with pytest.raises(gpushare.FailedPreconditionError):
            trace.events  # noqa: B018
    assert 1000 in [e["args"]["bytes"] for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "C"]
