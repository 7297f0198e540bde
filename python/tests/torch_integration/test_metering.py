# SPDX-License-Identifier: Apache-2.0
"""Device time of steps on the simulated GPU's virtual clock: work launched past gpushare on the region's stream is
charged, and two loops get their shares."""

import ctypes

import gpushare
import gpushare.torch
import pytest
from gpushare.torch import _lane

MS = 1_000_000


@pytest.fixture
def torch(virtual_gpu, make_torch):
    torch = make_torch([virtual_gpu.probe().uuid])
    yield torch
    _lane.lanes.close()
    assert not torch.mistakes


@pytest.fixture
def launch(virtual_gpu, ptx):
    """Launches a kernel of so many ns on a stream without gpushare, as PyTorch does."""
    driver = ctypes.CDLL(virtual_gpu.runtime.driver_path)
    kernel = virtual_gpu.load(ptx)["spin"]

    def launch(stream, ns):
        value = ctypes.c_uint64(ns)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        result = driver.cuLaunchKernel(ctypes.c_void_p(kernel.ptr), 100, 1, 1, 1024, 1, 1, 0,
                                       ctypes.c_void_p(stream.cuda_stream), arguments, None)
        assert result == 0

    return launch


def test_steps_are_charged_what_their_work_took(virtual_gpu, torch, launch):
    device = virtual_gpu.virtual_device("trainer", memory="64MiB")
    with gpushare.torch.tenant(device, lease=False):
        for _ in range(50):
            with gpushare.torch.step(device) as step:
                for _ in range(4):
                    launch(step.stream, MS)
            virtual_gpu.runtime.sleep("8ms")
    assert device.stats().measured == pytest.approx(0.2, rel=0.03)


def test_the_hint_is_what_steps_take(virtual_gpu, torch, launch):
    device = virtual_gpu.virtual_device("trainer", memory="64MiB")
    for _ in range(8):
        with gpushare.torch.step(device) as step:
            launch(step.stream, 5 * MS)
    assert _lane.lanes.take(device).pace.hint == pytest.approx(5e-3, rel=0.05)


def test_graph_replays_are_charged(virtual_gpu, torch, launch):
    device = virtual_gpu.virtual_device("trainer", memory="64MiB")
    raw = torch.cuda.CUDAGraph()
    raw.replay = lambda: launch(torch.current_stream(), 2 * MS)
    graph = gpushare.torch.Graph(raw, device)
    for _ in range(50):
        graph.replay()
        virtual_gpu.runtime.sleep("5ms")
    assert device.stats().measured == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize("kernels, ns", [((4, 8), MS // 4), ((16, 4), MS // 4), ((1, 8), 4 * MS), ((4, 4), MS // 40)])
@pytest.mark.parametrize("waits", [False, True])
def test_two_loops_share_70_to_30(virtual_gpu, torch, launch, kernels, ns, waits):
    """Steps of any length, with and without loss.item() at their end. In each second the shares are right within one
    point and the longest step, which is not interrupted."""
    runtime = virtual_gpu.runtime
    simulation = gpushare.Simulation(runtime)
    devices = [virtual_gpu.virtual_device("a", memory="64MiB", weight=70),
               virtual_gpu.virtual_device("b", memory="64MiB", weight=30)]
    until = runtime.now() + 4.0

    def loop(account):
        device = devices[account - 1]
        with gpushare.torch.tenant(device, lease=False) as region:
            simulation.set_account(region.stream.cuda_stream, account)
            stream = region._lane.stream
            while runtime.now() < until:
                with gpushare.torch.step(device) as step:
                    for _ in range(kernels[account - 1]):
                        launch(step.stream, ns)
                    if waits:
                        stream.synchronize()

    threads = [runtime.start_thread(lambda: loop(1)), runtime.start_thread(lambda: loop(2))]
    shares, busy = [], []
    runtime.sleep("1s")
    for _ in range(3):
        before = [simulation.truth(account)["used"] for account in (1, 2)]
        runtime.sleep("1s")
        took = [simulation.truth(account)["used"] - at for account, at in zip((1, 2), before, strict=True)]
        shares.append(took[0] / sum(took))
        busy.append(sum(took))
    for thread in threads:
        thread.join()
    longest = max(kernels) * ns / 1e9
    assert shares == pytest.approx([0.7] * 3, abs=0.01 + longest)
    # Between two turns the device is idle for the host's work, some 25 us.
    shortest = min(kernels) * ns / 1e9
    assert min(busy) > shortest / (shortest + 50e-6)
