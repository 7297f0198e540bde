# SPDX-License-Identifier: Apache-2.0
"""Leases, blocking and in coroutines."""

import asyncio
import gc
import threading
import time

import gpushare
import pytest


def test_a_lease_is_held_within_the_block(device, stream):
    lease = device.lease(hint="1ms", maximum="1s", streams=[stream])
    assert not lease.held
    for _ in range(3):
        with lease as entered:
            assert entered is lease and lease.held
        assert not lease.held and not lease.overrun and lease.held_seconds > 0
    with pytest.raises(gpushare.FailedPreconditionError, match="not held"):
        lease.release()
    with lease, pytest.raises(gpushare.FailedPreconditionError, match="held"):
        lease.acquire()


def test_nesting(gpu, device):
    other = gpu.virtual_device("b")
    with device.lease(), device.lease() as inner:
        assert inner.held
        with pytest.raises(RuntimeError, match="another virtual device"):
            other.lease().acquire()
    with other.lease():
        pass


def test_an_exception_releases(device):
    lease = device.lease()
    with pytest.raises(KeyError), lease:
        raise KeyError
    assert not lease.held


def test_an_overrun_is_told(gpu, device):
    with device.lease(hint="50us", maximum="100us") as lease:
        gpu.runtime.sleep("2ms")
    assert lease.overrun and lease.held_seconds > 0.002


def test_a_leap_of_the_virtual_clock_within_a_lease_is_told():
    runtime = gpushare.Runtime("sim", simulation="clock=virtual")
    simulation, device = gpushare.Simulation(runtime), gpushare.Gpu(runtime).virtual_device("a")
    with pytest.warns(RuntimeWarning, match=r"held for 60 s of the simulated GPU's virtual clock.*start_thread\(\)"):
        with device.lease():
            runtime.sleep(60)
    with device.lease(maximum=100):  # a maximum this long is intentional
        runtime.sleep(60)
    with device.lease():  # the clock hardly leaps
        runtime.sleep(5)
    simulation.enter()
    with device.lease():  # on a registered thread this is ordinary time
        runtime.sleep(60)
    runtime.close_all()
    simulation.leave()
    simulation.reset()


def test_timeouts(device):
    device.suspend()
    for timeout in (0, "5ms", 0.06):
        with pytest.raises(TimeoutError), device.lease(timeout=timeout):
            pass
    device.resume()
    with device.lease(timeout=1):
        pass


@pytest.mark.parametrize("on", ["main", "other"])
def test_a_wait_counts_once_and_for_all_of_its_time(device, on):
    device.suspend()
    threading.Timer(0.3, device.resume).start()

    def hold():
        with device.lease():
            pass

    if on == "main":  # the main thread checks for signals
        hold()
    else:
        thread = threading.Thread(target=hold)
        thread.start()
        thread.join()
    stats = device.stats()
    assert stats.waits == 1 and 0.25 < stats.throttled < 5 and stats.wait_p99 > 0.1


def test_options_are_checked(device):
    for options, error, message in (
        ({"hint": -1}, ValueError, "^hint: "), ({"hint": "x"}, ValueError, "^hint: "), ({"hint": []}, TypeError, "^hint: "),
        ({"exclusive": 1}, TypeError, "^exclusive: "), ({"streams": 5}, TypeError, "^streams: "),
        ({"streams": ["x"]}, TypeError, "^adopt: "), ({"length": 5}, TypeError, "no keyword 'length'"),
        ({"hint": 0}, ValueError, "^hint: "),
    ):
        with pytest.raises(error, match=message):
            device.lease(**options)
    with pytest.raises(ValueError, match="hint"):
        device.lease(hint=2, maximum=1).acquire()
    with pytest.raises(TypeError, match="^device: "):
        gpushare.Lease(5)


def test_a_lease_can_be_released_by_another_thread(device):
    lease = device.lease()
    lease.acquire()
    thread = threading.Thread(target=lease.release)
    thread.start()
    thread.join()
    assert not lease.held


def test_streams_of_another_tenant_are_refused(gpu, device):
    theirs = gpu.virtual_device("b").stream()
    with pytest.raises(ValueError, match="belongs to tenant"):
        device.lease(streams=[theirs]).acquire()


def test_coroutines_of_several_tenants(gpu):
    devices = [gpu.virtual_device(name) for name in "abc"]
    inside, order = [], []

    async def serve(device, i):
        async with device.lease(hint="100us") as lease:
            assert lease.held
            inside.append(device)
            await asyncio.sleep(0)  # another coroutine may acquire meanwhile: leases are shared
            order.append(i)

    async def main():
        await asyncio.gather(*(serve(device, i) for i in range(20) for device in devices))

    asyncio.run(main())
    assert len(order) == 60


def test_a_coroutine_that_waits_leaves_the_loop_free(device):
    device.suspend()
    ticks = 0

    async def main():
        nonlocal ticks

        async def tick():
            nonlocal ticks
            for _ in range(5):
                ticks += 1
                await asyncio.sleep(0)
            device.resume()

        task = asyncio.create_task(tick())
        async with device.lease():
            pass
        await task

    asyncio.run(main())
    assert ticks == 5


def test_a_coroutine_can_be_cancelled_while_it_waits(device):
    async def main():
        device.suspend()
        lease = device.lease()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lease.__aenter__(), 0.02)
        device.resume()
        async with device.lease():
            pass
        return lease

    lease = asyncio.run(main())
    for _ in range(1000):
        if not lease.held:
            break
        threading.Event().wait(0.01)
    assert not lease.held


def test_a_coroutines_timeout(device):
    async def main():
        async with device.lease(timeout="5ms"):
            pass

    device.suspend()
    with pytest.raises(TimeoutError, match="lease"):
        asyncio.run(main())
    device.resume()
    device.close()
    with pytest.raises(gpushare.ClosedError):
        asyncio.run(main())


@pytest.mark.parametrize("first", [1.0, None])
def test_timeouts_of_coroutines_behind_one_that_waits(device, first):
    """Each times out at its own deadline, whatever is ahead of it."""
    took = {}

    async def wait(timeout):
        began = time.monotonic()
        with pytest.raises((TimeoutError, asyncio.CancelledError)):
            async with device.lease(timeout=timeout):
                pass
        took[timeout] = time.monotonic() - began

    async def main():
        tasks = [asyncio.create_task(wait(timeout)) for timeout in (first, 0.1, 0)]
        await asyncio.wait(tasks[1:])
        assert first not in took
        if first is None:
            tasks[0].cancel()
        await tasks[0]

    device.suspend()
    asyncio.run(main())
    assert took[0] < 0.1 <= took[0.1] < 0.7  # by the machine's clock, far from the deadline of the first
    assert first is None or took[first] >= 1
    device.resume()


def test_a_lease_is_used_again_after_it_was_cancelled(device):
    """Whether the cancellation came in the queue, during the acquisition, or just after it."""
    async def main():
        lease = device.lease()
        for i in range(60):
            device.suspend()
            task = asyncio.create_task(lease.__aenter__())
            await asyncio.sleep(0.002 * (i % 3))
            if i % 2:
                device.resume()
                time.sleep(0.0005 * (i % 7))  # acquired, and the event loop does not know yet
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            device.resume()
            async with lease:
                assert lease.held
            assert not lease.held

    asyncio.run(main())


def test_a_permit_of_a_loop_that_is_gone_goes_back(device):
    """A permit acquired when nobody waits any more is released."""
    lease, loop = device.lease(), asyncio.new_event_loop()
    device.suspend()
    task = loop.create_task(lease.__aenter__())
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    loop.close()
    device.resume()
    del task
    for _ in range(1000):
        gc.collect()
        if not lease.held:
            break
        threading.Event().wait(0.01)

    async def again():
        async with lease:
            return lease.held

    assert asyncio.run(again())


def test_a_coroutine_of_a_forked_child(run_python):
    """The thread that acquires for coroutines does not exist in the child."""
    ran = run_python("""
        import asyncio, os, signal, gpushare

        async def use(lease):
            async with lease:
                pass

        with gpushare.simulated_gpu() as gpu:
            lease = gpu.virtual_device("a").lease()
            asyncio.run(use(lease))
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                try:
                    asyncio.run(use(lease))
                except gpushare.ForkedError:
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            asyncio.run(use(lease))
    """)
    assert ran.returncode == 0, ran.stderr


def test_a_thread_that_cannot_be_started_is_tried_again(device, monkeypatch):
    async def main():
        async with device.lease(timeout=5):
            return True

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="start"):
        patch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        asyncio.run(main())
    assert asyncio.run(main())
