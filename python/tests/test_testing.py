# SPDX-License-Identifier: Apache-2.0
"""simulated_gpu() and the pytest plugin, as users of gpushare have them in their tests."""

import subprocess
import sys

import gpushare
import pytest


def test_each_is_as_new():
    for memory in ("4GiB", "8 GiB"):
        with gpushare.simulated_gpu(memory=memory, sms=10, name="A test's GPU") as gpu:
            probe = gpu.probe()
            assert (probe.memory_total >> 30, probe.sm_count, probe.name) == (int(memory[0]), 10, "A test's GPU")
            device = gpu.virtual_device("a", memory=memory)
            buffer = device.alloc("1GiB")
        assert device.closed and buffer.closed and gpu.closed and gpu.runtime.closed


def test_an_exception_leaves_it_clean():
    with pytest.raises(KeyError), gpushare.simulated_gpu() as gpu:
        keep = gpu.virtual_device("a").stream()
        raise KeyError
    assert keep.closed
    with gpushare.simulated_gpu():
        pass


def test_a_runtime_that_could_not_be_leaves_it_clean():
    for clock in ("wall", "virtual"):
        for _ in range(2):  # the second must not find the simulated GPU in use: nothing is there to be closed
            with pytest.raises(gpushare.UnavailableError, match="no broker at '/nonexistent/broker.sock'"):
                gpushare.Runtime("sim", simulation=f"clock={clock},memory=1GiB", broker="/nonexistent/broker.sock")
    with gpushare.simulated_gpu(memory="2GiB") as gpu:
        assert gpu.probe().memory_total == 2 << 30
        # A simulated GPU in use is left alone.
        with pytest.raises(gpushare.FailedPreconditionError, match="in use already"):
            gpushare.Runtime("sim", simulation="memory=1GiB", broker="/nonexistent/broker.sock")
        gpu.virtual_device("a", memory="1GiB").alloc("1GiB")


@pytest.mark.parametrize(("options", "error"), [
    ({"memry": "8GiB"}, ValueError), ({"memory": "x"}, ValueError), ({"memory": []}, TypeError),
    ({"sms": "1,devices=2"}, ValueError), ({"ordinal": 5}, LookupError),
])
def test_options_that_cannot_be(options, error):
    with pytest.raises(error), gpushare.simulated_gpu(**options):
        pass
    with gpushare.simulated_gpu():
        pass


def test_one_at_a_time():
    for options in ({}, {"memory": "1GiB"}):
        with gpushare.simulated_gpu(), pytest.raises(RuntimeError, match="one at a time in a process") as raised, \
                gpushare.simulated_gpu(**options):
            pass
        assert "gpushare_sim_reset" not in str(raised.value)


def test_a_runtime_that_comes_too_late_to_configure_says_what_to_do():
    first = gpushare.Runtime("sim")
    simulation = gpushare.Simulation(first)
    with pytest.raises(gpushare.FailedPreconditionError, match=r"^simulation: .*Simulation\(runtime\)\.reset\(\)") as raised:
        gpushare.Runtime("sim", simulation="memory=1GiB")
    assert "gpushare_sim" not in str(raised.value)
    first.close_all()
    simulation.reset()
    second = gpushare.Runtime("sim", simulation="memory=1GiB")
    assert gpushare.Gpu(second).probe().memory_total == 1 << 30
    second.close_all()
    simulation.reset()


def test_an_unknown_option_is_named():
    with pytest.raises(gpushare.InvalidArgumentError, match="foo") as raised, gpushare.simulated_gpu(foo=3):
        pass
    assert "gpushare_sim" not in str(raised.value)


def test_faults_and_truth(gpu, device, stream, spin):
    simulation = gpushare.Simulation(gpu.runtime)
    stream.launch(spin, 1, 1, 1000)
    stream.synchronize()
    assert simulation.truth()["kernels"] == 1 and simulation.busy() > 0 and simulation.memory_used() == 0
    for call, message in ((lambda: simulation.inject("nonsense"), "^fault: "), (lambda: simulation.truth(0, 9), "GPU 9"),
                          (lambda: simulation.calls("cuNothing"), "^name: "), (lambda: simulation.busy(9), "GPU 9")):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="^runtime: "):
        gpushare.Simulation(5)


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_hung_kernel_ends_with_the_block(clock, ptx):
    with gpushare.simulated_gpu(clock=clock) as gpu:
        device = gpu.virtual_device("a")
        held, stream, spin = device.alloc("1MiB"), device.stream(), gpu.load(ptx)["spin"]
        gpushare.Simulation(gpu.runtime).inject("hang kernel=spin")
        stream.launch(spin, 1, 1, 1000)
        assert held.nbytes == 1 << 20 and device.stats().launches == 1


def test_a_hung_kernel_ends_when_faults_are_cleared(virtual_gpu, ptx):
    simulation = gpushare.Simulation(virtual_gpu.runtime)
    stream, spin = virtual_gpu.virtual_device("a").stream(), virtual_gpu.load(ptx)["spin"]
    simulation.inject("hang kernel=spin")
    stream.launch(spin, 1, 1, 1000)
    simulation.inject("clear")
    stream.synchronize()
    assert simulation.truth()["kernels"] == 1


def test_blocking_outside_the_virtual_clock(virtual_gpu, ptx):
    import threading
    device, spin = virtual_gpu.virtual_device("a"), virtual_gpu.load(ptx)["spin"]
    stream = device.stream()
    thread = threading.Thread(target=lambda: (stream.launch(spin, 1, 1, 1000), stream.synchronize()))
    thread.start()
    with gpushare.Simulation(virtual_gpu.runtime).outside():
        thread.join()
    assert device.stats().launches == 1


def test_the_plugin(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["gpushare.pytest_plugin"]\n')
    (tmp_path / "test_it.py").write_text('''
import pytest

@pytest.mark.simulated_gpu(memory="8GiB")
def test_marked(simulated_gpu):
    assert simulated_gpu.probe().memory_total == 8 << 30

def test_plain(simulated_gpu):
    assert simulated_gpu.probe().healthy
''')
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", str(tmp_path)],
                          capture_output=True, text=True, timeout=50, cwd=tmp_path)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_calls_of_other_threads_end_first(ptx):
    """A call that outlasts the block must not reach into the next test's simulation."""
    import threading
    for _ in range(20):
        with gpushare.simulated_gpu() as gpu:
            device, spin = gpu.virtual_device("a"), gpu.load(ptx)["spin"]
            stream = device.stream()
            stream.launch(spin, 1, 1, 3_000_000)
            thread = threading.Thread(target=stream.synchronize)
            thread.start()
        thread.join()


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_forked_child_may_leave_the_block(run_python, clock):
    ran = run_python(f"""
        import os, signal, sys, gpushare

        with gpushare.simulated_gpu(clock="{clock}") as gpu:
            device = gpu.virtual_device("a", memory="1GiB")
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            device.alloc("1MiB")
    """)
    assert ran.returncode == 0, ran.stderr
