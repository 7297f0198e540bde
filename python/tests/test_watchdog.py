# SPDX-License-Identifier: Apache-2.0
"""The watchdog."""

import gpushare
import pytest


@pytest.fixture
def kernel(virtual_gpu, ptx):
    return virtual_gpu.load(ptx)["spin"]


def spin(stream, kernel, seconds):
    stream.launch(kernel, 100, 1024, int(seconds * 1e9))


def test_work_that_does_not_end_is_told_of(virtual_gpu, kernel):
    told = []
    device = virtual_gpu.virtual_device("a")
    stream = device.stream()
    with gpushare.Watchdog(virtual_gpu, told.append, limit="200ms") as watchdog:
        spin(stream, kernel, 1e-3)
        stream.synchronize()
        spin(stream, kernel, 0.6)
        virtual_gpu.runtime.sleep(0.4)
        stream.synchronize()
    assert watchdog.closed
    [incident] = told
    assert incident.kind == "stuck" and incident.tenant == "a" and incident.stream == stream.ptr
    assert incident.late == pytest.approx(0.2, abs=0.02) and not incident.lease and incident.driver_result == 0
    spin(stream, kernel, 0.6)  # there is no watchdog
    virtual_gpu.runtime.sleep(1)
    assert len(told) == 1


def test_what_the_callback_raises_is_not_lost(virtual_gpu, kernel, monkeypatch):
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: seen.append(unraisable.exc_value))
    watchdog = gpushare.Watchdog(virtual_gpu, lambda incident: watchdog.close(), limit=0.2)
    stream = virtual_gpu.virtual_device("a").stream()
    spin(stream, kernel, 1e-3)
    stream.synchronize()
    spin(stream, kernel, 0.5)
    stream.synchronize()
    watchdog.close()
    [error] = seen
    assert isinstance(error, gpushare.FailedPreconditionError) and "its own callback" in str(error)


def test_nonsense_is_refused(virtual_gpu):
    with pytest.raises(TypeError, match="callback"):
        gpushare.Watchdog(virtual_gpu, None)
    for limit in (0, "99ms"):
        with pytest.raises(ValueError, match="100ms or more"):
            gpushare.Watchdog(virtual_gpu, print, limit=limit)
    with gpushare.Watchdog(virtual_gpu, print), pytest.raises(gpushare.AlreadyExistsError):
        gpushare.Watchdog(virtual_gpu, print)
    with pytest.raises(TypeError, match="gpushare.Gpu wanted"):
        gpushare.Watchdog(3, print)
