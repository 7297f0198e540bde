# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, fork, the interpreter's end, and the cost of the import."""

import signal
import threading

import gpushare
import pytest

PROLOGUE = """
import os, signal, sys, threading, time
import gpushare
runtime = gpushare.Runtime("sim", simulation="clock=wall,memory=16GiB", memory_reserve=0)
gpu = gpushare.Gpu(runtime)
device = gpu.virtual_device("a", memory="1GiB")
stream = device.stream()
spin = gpu.load('''
.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0
.visible .entry spin(.param .u64 ns) { ret; }
''')["spin"]
"""


class Interrupt(Exception):
    pass


@pytest.fixture
def interrupt_soon():
    """Once the main thread waits, sends this process a signal with a handler that raises."""

    def handler(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    timers = []

    def soon():
        timers.append(threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1]))
        timers[-1].start()

    yield soon
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGUSR1, before)


WAITS = {
    "launch": lambda d, s, k: s.launch(k, 1, 1, 1000),
    "lease": lambda d, s, k: d.lease().acquire(),
    "copy": lambda d, s, k: s.copy_to_device(d.alloc(8), bytes(8)),
    "alloc": lambda d, s, k: (d.alloc("3GiB"), d.alloc("4GiB", timeout=None)),
    "sleep": lambda d, s, k: d.gpu.runtime.sleep(60),
}


@pytest.mark.parametrize("what", WAITS)
def test_a_signal_ends_a_wait(gpu, device, stream, spin, interrupt_soon, what):
    device.suspend()
    keep = device.alloc("1GiB")
    interrupt_soon()
    with pytest.raises(Interrupt):
        WAITS[what](device, stream, spin)
    device.resume()
    keep.close()
    stream.launch(spin, 1, 1, 1000)
    stream.synchronize()


def test_a_lease_that_a_handler_takes_and_keeps_ends_the_wait_and_with_its_release(gpu, device):
    other = gpu.virtual_device("other", memory="1GiB")
    device.suspend()
    kept = []

    def handler(number, frame):
        device.resume()
        kept.append(device.lease(exclusive=True, timeout=10))
        kept[0].acquire()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(gpushare.CancelledError):
            device.lease().acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(gpushare.FailedPreconditionError):
        other.lease().acquire()
    kept[0].release()
    other.lease(timeout=10).acquire()


def test_a_signal_ends_synchronize_and_not_the_work(gpu, device, stream, spin, interrupt_soon):
    stream.launch(spin, 1, 1, 300_000_000)
    interrupt_soon()
    with pytest.raises(Interrupt):
        stream.synchronize()
    stream.synchronize()
    assert gpushare.Simulation(gpu.runtime).truth()["kernels"] == 1


def test_ctrl_c(run_python):
    done = run_python(PROLOGUE + """
device.suspend()
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    stream.launch(spin, 1, 1, 1000)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_other_threads_run_while_one_waits(device, stream, spin):
    device.suspend()
    waiting = threading.Thread(target=stream.launch, args=(spin, 1, 1, 1000))
    waiting.start()
    assert sum(range(1000)) == 499500  # this thread holds the interpreter's lock
    device.resume()
    waiting.join()


def test_a_forked_child_is_told(run_python):
    done = run_python(PROLOGUE + """
buffer, lease = device.alloc(100), device.lease()
pid = os.fork()
if pid == 0:
    count = 0
    for call in (lambda: stream.launch(spin, 1, 1, 1), lambda: stream.synchronize(), lambda: device.alloc(1),
                 lambda: device.memory, lambda: buffer.ptr, lambda: runtime.snapshot(), lambda: gpu.probe(),
                 lambda: lease.acquire(), lambda: spin.ptr, lambda: runtime.sleep(1), lambda: gpushare.Runtime("sim")):
        try:
            call()
        except RuntimeError as error:
            assert isinstance(error, gpushare.ForkedError) and "spawn" in str(error), error
            count += 1
    print(count, flush=True)
    del buffer, lease, stream, spin, device, gpu, runtime  # frees nothing of the parent's
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
stream.launch(spin, 1, 1, 1000)
stream.synchronize()
print(device.stats().memory_used)
""")
    assert (done.stdout, done.stderr, done.returncode) == ("11\n100\n", "", 0)


def test_a_child_forked_before_is_free_to_use_it(run_python):
    done = run_python("""
import os, gpushare
pid = os.fork()
if pid == 0:
    with gpushare.simulated_gpu() as gpu:
        print(gpu.name, flush=True)
    os._exit(0)
raise SystemExit(os.waitpid(pid, 0)[1])
""")
    assert (done.stdout, done.returncode) == ("Simulated H200\n", 0)


ENDINGS = {
    "everything alive": "buffer = device.alloc(100); lease = device.lease(); lease.acquire()",
    "a daemon thread waits at the gate": """
device.suspend()
threading.Thread(target=lambda: stream.launch(spin, 1, 1, 1000), daemon=True).start()
time.sleep(0.02)""",
    "a daemon thread launches": """
def work():
    while True:
        stream.launch(spin, 1, 1, 1000)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.02)""",
    "a daemon thread waits for a copy": """
device.suspend()
threading.Thread(target=lambda: stream.copy_to_device(device.alloc(8), bytes(8)), daemon=True).start()
time.sleep(0.02)""",
    "a coroutine's lease is being acquired": """
import asyncio
device.suspend()
async def main():
    asyncio.create_task(device.lease().__aenter__())
    await asyncio.sleep(0.02)
asyncio.run(main())""",
    "a clock thread was never joined": "thread = runtime.start_thread(lambda: time.sleep(60)); time.sleep(0.02)",
    "a clock thread works in Python": """
def work():
    while True:
        pass
for _ in range(3):
    runtime.start_thread(work)
time.sleep(0.05)""",
    "finalizers work": """
class Model:
    def __init__(self):
        self.device, self.stream, self.buffer = device, stream, device.alloc(100)
    def __del__(self):
        self.stream.copy_to_device(self.buffer, bytes(100))
        self.stream.synchronize()
        with self.device.lease(streams=[self.stream]):
            self.device.alloc(100)
model = Model()
model.cycle = model""",
    "daemon threads allocate": """
def work():
    while True:
        device.alloc(100)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)""",
    "daemon threads are refused memory, and asked to free some": """
allocator = device.allocator(reclaim=lambda asked, left: sum(range(1000)) < 0)
def work():
    while True:
        try:
            allocator.alloc("1TiB")
        except MemoryError:
            device.stats()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)""",
    "a synchronize was interrupted": """
stream.launch(spin, 1, 1, 5_000_000_000)
def handler(*_): raise KeyError
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    stream.synchronize()
except KeyError:
    pass""",
    "a callback's cycle": """
class Cache: pass
cache = Cache(); cache.allocator = device.allocator(reclaim=lambda a, b: bool(cache)); cache.self = cache""",
    "work in atexit": """
import atexit
atexit.register(lambda: (stream.launch(spin, 1, 1, 1000), stream.synchronize()))""",
}


@pytest.mark.parametrize("what", ENDINGS)
def test_the_interpreters_end(run_python, what):
    done = run_python(PROLOGUE + ENDINGS[what] + "\nprint('end', flush=True)\n", timeout=20)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_objects_end_in_any_order(run_python):
    done = run_python(PROLOGUE + """
import gc, itertools
for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 37):
    d = gpu.virtual_device("b", memory="1GiB")
    objects = [d, d.stream(), d.alloc(8), gpushare.Event(d), d.lease(), d.allocator()]
    del d
    for i in order:
        objects[i] = None
    gc.collect()
print("end")
""")
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_an_import_loads_neither_a_driver_nor_other_packages(run_python):
    done = run_python("""
import sys
import gpushare
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"numpy", "pandas", "torch", "cupy", "pytest", "asyncio", "matplotlib"}, loaded
with open("/proc/self/maps") as maps:
    assert "libcuda" not in maps.read()
print("ok")
""")
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_the_command(run_python):
    import subprocess
    import sys
    done = subprocess.run([sys.executable, "-m", "gpushare", "demo", "--gpu", "sim", "--seconds", "2", "--quiet"],
                          capture_output=True, text=True, timeout=50)
    assert done.returncode == 0 and "Simulated H200" in done.stdout, done.stderr
