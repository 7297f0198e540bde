# SPDX-License-Identifier: Apache-2.0
"""Placement on several GPUs, and gangs over several GPUs."""

import asyncio
import contextlib
import threading

import gpushare
import pytest


@pytest.fixture
def gpus():
    with gpushare.simulated_gpu(clock="virtual", devices=3, memory="8GiB", sms=100, overlap="serial") as gpu:
        yield [gpu, *(gpushare.Gpu(gpu.runtime, i) for i in (1, 2))]


def test_place_chooses_and_creates(gpus):
    first = gpushare.place(gpus, "a", memory="4GiB", compute="50%")
    assert first.gpu is gpus[0] and first.tenant_name == "a"
    assert gpushare.place(gpus, "b", "memory=1GiB", placement="spread").gpu is gpus[1]
    packed = gpushare.place(gpus, "c", "memory=1GiB", placement="binpack")
    assert packed.gpu is gpus[0] and packed.tenant.name == "c"
    room = gpus[0].room
    assert room["virtual_devices"] == 2 and room["guarantee_left"] == pytest.approx(0.5)
    assert room["memory_left"] == room["memory_total"] - (5 << 30)


def test_overhead_is_what_the_process_takes_beside_its_tenants():
    with gpushare.simulated_gpu(clock="virtual", memory="8GiB", context_memory="300MiB", memory_reserve="512MiB") as gpu:
        device = gpu.virtual_device("a", memory="1GiB")
        buffer = device.alloc("100MiB")
        assert gpu.overhead == {"by_driver": 400 << 20, "charged": 100 << 20, "overhead": 300 << 20, "reserve": 512 << 20}
        buffer.close()
        assert gpu.overhead["overhead"] == 300 << 20


def test_place_says_what_would_fit(gpus):
    devices = [gpushare.place(gpus, f"t{i}", memory="5GiB", placement="spread") for i in range(3)]
    assert [device.gpu.ordinal for device in devices] == [0, 1, 2]
    with pytest.raises(MemoryError, match="GPU 0: .*GPU 1: .*GPU 2: ") as refused:
        gpushare.place(gpus, "d", memory="4GiB")
    assert refused.value.left == gpus[0].room["memory_left"]
    tenant = gpushare.Tenant(gpus[0].runtime, "everywhere")
    held = [gpushare.place(gpus, tenant, memory="1GiB") for _ in range(3)]
    with pytest.raises(gpushare.AlreadyExistsError):
        gpushare.place(gpus, tenant, memory="1GiB")
    assert len({device.gpu.ordinal for device in held}) == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([], "a"), ValueError),
        ((3, "a"), TypeError),
        (([3], "a"), TypeError),
        ((None, 7), TypeError),
    ],
)
def test_place_refuses_nonsense(gpus, arguments, error):
    given, tenant = arguments
    with pytest.raises(error):
        gpushare.place(gpus if given is None else given, tenant)
    with pytest.raises(ValueError, match="best-fit, binpack, spread allowed"):
        gpushare.place(gpus, "b", placement="worst")


def test_a_gang_is_held_within_the_block(gpus):
    tenant = gpushare.Tenant(gpus[0].runtime, "a")
    devices = [gpu.virtual_device(tenant) for gpu in gpus]
    other = gpus[1].virtual_device("b")
    gang = gpushare.Gang([(devices[2], [devices[2].stream()]), devices[1]], exclusive=True, timeout="1s")
    assert not gang.held and gang.virtual_devices == (devices[2], devices[1])
    for _ in range(2):
        with gang as entered:
            assert entered is gang and gang.held
            with pytest.raises(TimeoutError):
                other.lease(timeout="1ms").acquire()
            with pytest.raises(gpushare.FailedPreconditionError, match="held"):
                gang.acquire()
            gpus[0].runtime.sleep("2ms")
        assert not gang.held and not gang.overrun and gang.held_seconds == pytest.approx(0.003, abs=5e-4)
    with other.lease(timeout="1s"):
        pass
    with pytest.raises(gpushare.FailedPreconditionError, match="not held"):
        gang.release()


@pytest.fixture
def two_gpus():
    """On the machine's clock: the virtual clock does not know an event loop's threads."""
    with gpushare.simulated_gpu(clock="wall", devices=2) as gpu:
        yield [gpu, gpushare.Gpu(gpu.runtime, 1)]


def test_coroutines_hold_gangs_in_turn(two_gpus):
    devices = [[gpu.virtual_device("%s%d" % (name, gpu.ordinal)) for gpu in two_gpus] for name in "ab"]
    inside, served = [], 0

    async def work(name, pair):
        nonlocal served
        async with gpushare.Gang(pair, exclusive=True) as gang:
            assert gang.held
            inside.append(name)
            assert set(inside) == {name}  # leases of the same tenant may be held together, but not with another tenant's
            await asyncio.sleep(0)
            inside.remove(name)
            served += 1
        assert not gang.held

    async def main():
        await asyncio.gather(
            *(work(name, pair if i % 2 else pair[::-1]) for i in range(10) for name, pair in enumerate(devices))
        )

    asyncio.run(main())
    assert served == 20


def test_a_coroutine_that_gives_up_leaves_no_gang_behind(two_gpus):
    mine = [gpu.virtual_device("a%d" % gpu.ordinal) for gpu in two_gpus]
    other = two_gpus[1].virtual_device("b")

    async def main():
        with other.lease(exclusive=True, maximum=60):
            with pytest.raises(TimeoutError):
                async with gpushare.Gang(mine, exclusive=True, timeout="5ms"):
                    pass
            waiting = gpushare.Gang(mine, exclusive=True)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiting.__aenter__(), 0.02)

    asyncio.run(main())
    for gpu in two_gpus:  # what it got in the end was released
        with gpu.virtual_device("c%d" % gpu.ordinal).lease(exclusive=True, timeout=20):
            pass


def test_all_or_none(gpus):
    tenant = gpushare.Tenant(gpus[0].runtime, "a")
    devices = [gpu.virtual_device(tenant) for gpu in gpus]
    others = [gpu.virtual_device("b%d" % gpu.ordinal) for gpu in gpus]
    with gpushare.Gang([others[2]], exclusive=True):
        with pytest.raises(TimeoutError):
            gpushare.Gang(devices, exclusive=True, timeout="5ms").acquire()
        with others[0].lease(timeout="1ms"), others[1].lease(timeout="1ms"):
            pass  # no part of it is held


@pytest.mark.parametrize("kind", ["coroutine", "main", "thread"])
def test_an_exclusive_member_keeps_its_gpu_while_the_gang_waits(two_gpus, kind):
    """It keeps the GPU for its maximum, however long the gang waits."""
    gpus = two_gpus  # in the order of the UUIDs
    a, b = gpushare.Tenant(gpus[0].runtime, "a"), gpushare.Tenant(gpus[0].runtime, "b")
    mine, other = [gpu.virtual_device(a) for gpu in gpus], gpus[0].virtual_device(b)
    mine[1].suspend()
    gang, late = gpushare.Gang(mine, exclusive=True, maximum=20), []

    async def hold():
        async with gang:
            pass

    def acquire():
        with gang:
            pass

    def watch():
        with contextlib.suppress(TimeoutError):
            while True:  # until the gang has the first GPU; long enough that a busy machine is not taken for it
                with other.lease(timeout="200ms"):
                    pass
        try:
            with other.lease(timeout=1.3):
                late.append(False)
        except TimeoutError:
            late.append(True)
        mine[1].resume()

    watcher = threading.Thread(target=watch)
    watcher.start()
    if kind == "coroutine":
        asyncio.run(hold())
    elif kind == "main":
        acquire()
    else:
        thread = threading.Thread(target=acquire)
        thread.start()
        thread.join()
    watcher.join()
    assert late == [True]


def test_gangs_refuse_nonsense(gpus):
    a = gpus[0].virtual_device("a")
    b = gpus[0].virtual_device("b")
    with pytest.raises(ValueError, match="none given"):
        gpushare.Gang([])
    with pytest.raises(TypeError, match="members"):
        gpushare.Gang([3])
    with pytest.raises(TypeError, match="members"):
        gpushare.Gang([(a, [], 1)])
    with pytest.raises(TypeError, match="no keyword 'streams'"):
        gpushare.Gang([a], streams=[])
    with pytest.raises(ValueError, match="two of its members are on GPU 0"):
        gpushare.Gang([a, b]).acquire()


def test_ctrl_c_ends_the_wait_for_a_gang(succeeds):
    succeeds("""
        import signal, threading, _thread
        import gpushare
        with gpushare.simulated_gpu(clock="wall", devices=2) as gpu:
            second = gpushare.Gpu(gpu.runtime, 1)
            tenant = gpushare.Tenant(gpu.runtime, "a")
            mine = [g.virtual_device(tenant) for g in (gpu, second)]
            other = second.virtual_device("b")
            with other.lease(exclusive=True, maximum=60):
                threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
                try:
                    gpushare.Gang(mine, exclusive=True, maximum=60).acquire()
                except KeyboardInterrupt:
                    interrupted = True
            assert interrupted
            with gpu.virtual_device("c").lease(timeout=20):  # what it got in the end was given back
                pass
    """)
