# SPDX-License-Identifier: Apache-2.0
"""On a GPU: the device time of steps and graphs in PyTorch; and training gives the same numbers as without gpushare."""

import threading
import time

import pytest


def work(torch, size, count):
    """A function that launches `count` products of matrices on the current stream."""
    left, right = (torch.randn(size, size, device="cuda") for _ in range(2))
    out = torch.empty_like(left)

    def run():
        for _ in range(count):
            torch.mm(left, right, out=out)

    return run


def alone(torch, run, times=30):
    """The seconds of device time that it takes on an otherwise idle GPU."""
    for _ in range(5):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / times


def test_two_loops_share_70_to_30_over_each_second(make_tenant, record_property):
    import gpushare.torch
    import torch

    devices = [make_tenant(memory="2GiB", weight=70), make_tenant(memory="2GiB", weight=30)]
    cost, done, ready = [0.0, 0.0], [[], []], threading.Barrier(3)
    stop, failed = threading.Event(), []

    def loop(index):
        try:
            device = devices[index]
            with gpushare.torch.tenant(device, lease=False) as region:
                run = work(torch, 2048, (4, 8)[index])
                with turn:
                    cost[index] = alone(torch, run)
                ready.wait()
                while not stop.is_set():
                    with gpushare.torch.step(device):
                        run()
                    region.stream.synchronize()
                    done[index].append(time.monotonic())
        except BaseException as error:  # noqa: BLE001
            failed.append(error)
            ready.abort()

    turn = threading.Lock()
    threads = [threading.Thread(target=loop, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    try:
        ready.wait(60)
        begin = time.monotonic() + 1
        stop.wait(6)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed
    shares = []
    for second in range(4):
        took = [cost[index] * sum(begin + second <= at < begin + second + 1 for at in done[index]) for index in range(2)]
        shares.append(took[0] / sum(took))
        record_property(f"share_{second}", shares[-1])
        record_property(f"busy_{second}", sum(took))
    assert shares == pytest.approx([0.7] * 4, abs=0.02 + 2 * max(cost))


def test_replays_of_a_graph_are_charged(make_tenant, record_property):
    import gpushare.torch
    import torch

    device = make_tenant(memory="2GiB")
    with gpushare.torch.tenant(device):
        run = work(torch, 2048, 8)
        cost = alone(torch, run)
    with gpushare.torch.capture(device) as graph:
        run()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    time.sleep(0.1)  # until the last marker has been counted
    before = device.stats().measured
    for _ in range(100):
        graph.replay()
        torch.cuda.synchronize()
    time.sleep(0.1)
    charged = device.stats().measured - before
    record_property("charged_ratio", charged / (100 * cost))
    assert charged == pytest.approx(100 * cost, rel=0.15)


def test_training_gives_the_same_losses(make_tenant):
    import contextlib

    import gpushare.torch
    import torch

    def losses(region, step):
        torch.manual_seed(1)
        found = []
        with region():
            model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            inputs = torch.randn(128, 64, device="cuda")
            for _ in range(50):
                with step():
                    loss = model(inputs).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    found.append(loss.item())
        return found

    device = make_tenant(memory="1GiB", compute="50%")
    torch.use_deterministic_algorithms(True)
    try:
        expected = losses(contextlib.nullcontext, contextlib.nullcontext)
        assert losses(lambda: gpushare.torch.tenant(device, lease=False), lambda: gpushare.torch.step(device)) == expected
    finally:
        torch.use_deterministic_algorithms(False)
    assert expected[-1] < expected[0]
