# SPDX-License-Identifier: Apache-2.0
"""Runtime, Gpu, Tenant and VirtualDevice: their attributes, their refusals, and what closing does."""

import gc
import types

import gpushare
import pytest


def test_runtime(gpu):
    runtime = gpu.runtime
    assert runtime.gpu_count == 1 and runtime.simulated and runtime.driver_path.endswith("libcuda.so.1")
    assert runtime.driver_version >= 12000
    before = runtime.now()
    runtime.sleep("1ms")
    assert runtime.now() >= before + 0.001


def test_no_driver_says_how_to_get_the_simulated_gpu():
    with pytest.raises(ConnectionError, match="GPUSHARE_DRIVER=sim") as caught:
        gpushare.Runtime("/nowhere/libcuda.so.1")
    assert isinstance(caught.value, gpushare.UnavailableError) and caught.value.code == "UNAVAILABLE"
    with pytest.raises(TypeError, match="^driver: int given"):
        gpushare.Runtime(5)
    with pytest.raises(ValueError, match="^memory_reserve: "):
        gpushare.Runtime("sim", memory_reserve="8 XB")


def test_gpu(gpu):
    probe = gpu.probe()
    assert probe.healthy and probe.memory_total == 16 << 30 and probe.sm_count == 100
    assert gpushare.Gpu(gpu.runtime, probe.uuid).ordinal == gpushare.Gpu(gpu.runtime, probe.pci_id).ordinal == 0
    with pytest.raises(LookupError, match="there is no GPU '7'"):
        gpushare.Gpu(gpu.runtime, 7)
    assert not gpushare.Gpu.probe_name(gpu.runtime, 7).healthy
    with pytest.raises(TypeError, match="^runtime: int given"):
        gpushare.Gpu(5)
    with pytest.raises(TypeError, match="^name: float given"):
        gpushare.Gpu(gpu.runtime, 0.5)


def test_scheduler_options():
    with gpushare.simulated_gpu() as gpu:
        gpu.close()
        other = gpushare.Gpu(gpu.runtime, min_commands=8, window="300us", idle_budget="1%")
        assert other.scheduler["min_commands"] == 8 and other.scheduler["window"] == pytest.approx(300e-6)
        assert other.scheduler["idle_budget"] == pytest.approx(0.01)
        with pytest.raises(ValueError, match="scheduler"):
            gpushare.Gpu(gpu.runtime, min_commands=4)
        with pytest.raises(TypeError, match="no scheduler option 'windw'"):
            gpushare.Gpu(gpu.runtime, windw=1)


def test_scheduler_options_of_exactly_zero():
    with gpushare.simulated_gpu() as gpu:
        gpu.close()
        other = gpushare.Gpu(gpu.runtime, idle_budget=0)
        assert other.scheduler["idle_budget"] == 0
        with pytest.raises(ValueError, match="'anticipation': 0ns given"):
            gpushare.Gpu(gpu.runtime, anticipation=0)


def test_tenants(gpu):
    tenant = gpushare.Tenant(gpu.runtime, "team", priority="high", labels={"pod": "x"})
    assert tenant.name == "team" and tenant.label("pod") == "x"
    with pytest.raises(LookupError):
        tenant.label("nope")
    with pytest.raises(ValueError, match="'team'") as caught:
        gpushare.Tenant(gpu.runtime, "team")
    assert isinstance(caught.value, gpushare.AlreadyExistsError)
    with gpu.virtual_device(tenant) as device:
        assert device.stats().priority == "high" and device.tenant is tenant
        with pytest.raises(gpushare.AlreadyExistsError):
            gpu.virtual_device(tenant)
    tenant.close()
    gpushare.Tenant(gpu.runtime, "team").close()
    for wrong in (5, None, b"x"):
        with pytest.raises(TypeError, match="^name: "):
            gpushare.Tenant(gpu.runtime, wrong)
    with pytest.raises(TypeError, match="^labels: "):
        gpushare.Tenant(gpu.runtime, "x", labels={"a": 1})
    for wrong in ([], None, "a=b", [("a", "b")]):
        with pytest.raises(TypeError, match="^labels: .* given, a dict of str to str wanted$"):
            gpushare.Tenant(gpu.runtime, "x", labels=wrong)


def test_tenants_with_a_parent(gpu):
    team = gpushare.Tenant(gpu.runtime, "team")
    whole = gpu.virtual_device(team, memory="2 GiB", compute="50%")
    user = gpushare.Tenant(gpu.runtime, "user", parent=team)
    assert user.parent is team and team.parent is None
    part = gpu.virtual_device(user, memory="8 GiB", weight=2)
    assert (part.stats().parent, whole.stats().parent) == ("team", "")
    assert part.memory == (2 << 30, 2 << 30)
    held = part.alloc("1 GiB")
    assert whole.stats().memory_used == 1 << 30
    with pytest.raises(MemoryError, match="the memory quota of its parent 'team'") as caught:
        part.alloc("2 GiB")
    assert (caught.value.tenant, caught.value.left) == ("team", 1 << 30)
    held.close()
    with pytest.raises(NotImplementedError, match="one level deep"):
        gpushare.Tenant(gpu.runtime, "deeper", parent=user)
    with pytest.raises(TypeError, match="^parent: str given, a gpushare.Tenant wanted"):
        gpushare.Tenant(gpu.runtime, "other", parent="team")
    # A parent goes with the last of its children, whatever is closed first.
    team.close()
    whole.close()
    with pytest.raises(gpushare.AlreadyExistsError):
        gpushare.Tenant(gpu.runtime, "team")
    part.close()
    user.close()
    gpushare.Tenant(gpu.runtime, "team").close()


def test_virtual_device(gpu):
    with gpu.virtual_device("a", "memory=1GiB,compute=30%", priority="low") as device:
        assert str(device.spec) == "memory=1GiB,compute=30%,priority=low"
        assert device.memory == (1 << 30, 1 << 30) and device.gpu is gpu and device.tenant_name == "a"
        device.resize(memory="2 GiB")
        device.resize("cap=50%")
        assert device.memory[1] == 2 << 30 and device.spec.cap == 0.5 and device.spec.compute == 0.3
    with pytest.raises(TypeError, match="^tenant: int given"):
        gpu.virtual_device(5)


def test_a_service_that_others_may_delay(gpu):
    with gpu.virtual_device("service", memory="1GiB", priority="high", delay=0.05) as device:
        assert str(device.spec) == "memory=1GiB,priority=high,delay=5%"
        device.resize(delay="0%")
        assert device.spec.delay == 0
        with pytest.raises(ValueError, match="delay.*0% to 20%"):
            device.resize(delay="30%")
        assert device.spec.delay == 0


def test_promises_are_kept_within_the_device(gpu):
    keep = gpu.virtual_device("a", memory="12GiB", guarantee="70%")
    with pytest.raises(MemoryError, match="left of") as caught:
        gpu.virtual_device("b", memory="8GiB")
    assert (caught.value.limit, caught.value.tenant) == ("memory", "b")
    assert caught.value.left == 4 << 30
    with pytest.raises(gpushare.ResourceExhaustedError, match="guarantee") as caught:
        gpu.virtual_device("c", guarantee=0.5)
    assert not isinstance(caught.value, MemoryError)
    assert (caught.value.asked, caught.value.left) == (500_000, 300_000)
    keep.close()


def test_a_share_returns_when_its_last_holder_goes(gpu):
    device = gpu.virtual_device("a", memory="12GiB")
    stream = device.stream()
    device.close()
    with pytest.raises(MemoryError):
        gpu.virtual_device("b", memory="12GiB")
    del stream
    gc.collect()
    gpu.virtual_device("c", memory="12GiB").close()


def test_objects_keep_what_they_stand_on(gpu, spin):
    stream = gpushare.Stream(gpu.virtual_device(gpushare.Tenant(gpu.runtime, "x"), memory="1GiB"))
    buffer = stream.virtual_device.alloc(100)
    gc.collect()
    stream.launch(spin, 1, 1, 1000)
    stream.synchronize()
    assert buffer.nbytes == 100


def test_closed_objects_say_so(gpu, device, stream, spin):
    buffer, event, lease = device.alloc(8), gpushare.Event(device), device.lease()
    module = gpu.load("""
.version 7.0
.target sm_70
.address_size 64
.visible .entry k() { ret; }""")
    allocator = device.allocator()
    runtime = gpu.runtime
    for close in (buffer, event, module, allocator, stream, device, gpu, runtime):
        close.close()
        close.close()  # closing twice is allowed
        assert close.closed
        assert "closed" in repr(close) or not hasattr(type(close), "__repr__") or type(close).__repr__ is object.__repr__
    for call in (lambda: buffer.ptr, lambda: event.done, lambda: module["k"], lambda: allocator.alloc(1),
                 lambda: stream.synchronize(), lambda: stream.launch(spin, 1, 1, 1), lambda: device.memory,
                 lambda: device.alloc(1), lambda: device.resize("cap=5%"), lambda: gpu.probe(), lambda: device.stream(),
                 lambda: runtime.now(), lambda: runtime.snapshot(), lambda: buffer.__dlpack__(), lambda: lease.acquire(),
                 lambda: device.__enter__(), lambda: stream.ptr):
        with pytest.raises(gpushare.ClosedError, match="has been closed"):
            call()


def test_closing_while_a_call_waits_lets_the_call_end(gpu, device, spin):
    """The other thread's launch is held; closing its stream must not destroy the stream during the launch."""
    import threading
    stream = device.stream()
    device.suspend()
    failures = []

    def launch():
        try:
            stream.launch(spin, 1, 1, 1000)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    while not device.stats().suspended:
        pass
    stream.close()
    device.resume()
    thread.join()
    assert not failures or isinstance(failures[0], gpushare.ClosedError)


def test_close_all(gpu):
    runtime = gpu.runtime
    device = gpu.virtual_device("a", memory="1GiB")
    objects = [device, device.stream(), device.alloc(100), gpushare.Event(device), gpu, runtime]
    runtime.close_all()
    assert all(o.closed for o in objects)


def test_objects_that_were_never_initialised(gpu):
    for name in ("Allocator", "Buffer", "ClockThread", "Event", "Gpu", "Graph", "Kernel", "Lease", "Module", "Runtime",
                 "Simulation", "Stream", "Tenant", "VirtualDevice", "VirtualDeviceSpec"):
        cls = getattr(gpushare, name)
        empty = cls.__new__(cls)
        for method in ("close", "__repr__", "acquire", "__enter__", "launch", "synchronize", "alloc", "join", "now", "kernel"):
            if method in vars(cls) and method != "__repr__" or method == "__repr__" and cls.__repr__ is not object.__repr__:
                with pytest.raises((TypeError, RuntimeError)):
                    getattr(empty, method)()


def test_subclasses(gpu, device):
    class MyStream(gpushare.Stream):
        pass

    class MyLease(gpushare.Lease):
        pass

    with MyStream(device) as stream, MyLease(device, streams=[stream]) as lease:
        assert type(stream) is MyStream and type(lease) is MyLease
        stream.fill(device.alloc(8), 0)
        stream.synchronize()


def test_texts_that_the_library_cannot_take(gpu, device, ptx):
    module = gpu.load(ptx)
    for bad, message in (("\0", "a zero byte at"), ("\ud800", "surrogate")):
        for call in (lambda text: gpu.virtual_device("b" + text), lambda text: gpushare.Tenant(gpu.runtime, "b" + text),
                     lambda text: gpushare.Tenant(gpu.runtime, "b", labels={"k" + text: "v"}),
                     lambda text: gpushare.Gpu(gpu.runtime, "0" + text), lambda text: device.resize(memory="1GiB" + text),
                     lambda text: device.resize(policy="burst-share" + text), lambda text: device.alloc("1KiB" + text),
                     lambda text: device.empty(3, "float32" + text), lambda text: device.lease(hint="1ms" + text),
                     lambda text: device.resize("memory=1GiB" + text), lambda text: gpushare.VirtualDeviceSpec("cap=0.5" + text),
                     lambda text: device.resize(**{"cap" + text: 0.5}), lambda text: device.lease(**{"hint" + text: 1}),
                     lambda text: gpushare.Gpu(gpu.runtime, **{"spin" + text: 1}),
                     lambda text: device.empty(3, types.SimpleNamespace(str="<f4" + text)),
                     lambda text: module["spin" + text], lambda text: gpu.load(ptx + text)):
            with pytest.raises(ValueError, match=message):
                call(bad)


def test_closing_tells_of_work_that_never_ends(virtual_gpu, ptx):
    gpushare.Simulation(virtual_gpu.runtime).inject("hang kernel=spin")
    stream = virtual_gpu.virtual_device("a").stream()
    stream.launch(virtual_gpu.load(ptx)["spin"], 1, 32, 1000)
    with pytest.warns(RuntimeWarning, match=r"tenant 'a' \(1 stream\) still runs after 5 s"):
        virtual_gpu.runtime.close_all()
