# SPDX-License-Identifier: Apache-2.0
"""Snapshots, and policies written in Python."""

import dataclasses

import gpushare
import pytest


def test_snapshots(gpu, device, stream, spin):
    before = gpu.runtime.snapshot()
    stream.launch(spin, 1, 1, 1000)
    stream.synchronize()
    buffer = device.alloc(100)
    after = gpu.runtime.snapshot()
    assert before["a"].launches == 0 and after["a"].launches == 1
    change = (after - before)["a"]
    assert change.launches == 1 and change.memory_used == 100 and change.tenant == "a"
    assert after.find("a", 0) is after["a"] and after.find("b") is None and len(after) == 1
    with pytest.raises(KeyError, match="there are a"):
        after["b"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        after["a"].launches = 5
    table = after.to_dict()
    assert table["tenant"] == ["a"] and table["memory_used"] == [buffer.nbytes]
    assert {len(column) for column in table.values()} == {1}
    assert after.to_records()[0]["launches"] == 1 and after["a"].to_dict()["gpu"] == 0
    with pytest.raises(TypeError):
        after - 5


def test_a_difference_over_a_device_that_was_made_again(gpu, spin):
    """It counts from zero, like a device that did not exist before."""
    def work(launches):
        with gpu.virtual_device("a", memory="1GiB") as device, device.stream() as stream:
            for _ in range(launches):
                stream.launch(spin, 1, 1, 1_000_000)
            stream.synchronize()
            return gpu.runtime.snapshot(), device.stats()

    before, first = work(20)
    after, second = work(3)
    difference = (after - before)["a"]
    assert difference.launches == second.launches == 3 and first.launches == 20
    assert difference.charged == second.charged > 0
    assert all(value >= 0 for value in difference.to_dict().values() if isinstance(value, (int, float)))


def test_turns_that_were_lost_are_not_made_up_for(virtual_gpu):
    """A turn that takes as long as 29 others is followed by the next one a whole epoch later."""
    device, epochs = virtual_gpu.virtual_device("a"), []

    def policy(epoch):
        epochs.append(epoch.seconds)
        if epoch.number == 2:
            virtual_gpu.runtime.sleep(0.295)

    with gpushare.PolicyLoop([device], policy, epoch="10ms"):
        virtual_gpu.runtime.sleep(0.4)
    assert len(epochs) < 15
    assert min(epochs) >= 0.0099 and max(epochs) == pytest.approx(0.305, abs=1e-3)


def test_a_policy_step_by_step(virtual_gpu, ptx):
    a, b = (virtual_gpu.virtual_device(name) for name in "ab")
    stream, spin = a.stream(), virtual_gpu.load(ptx)["spin"]
    seen = []

    def policy(epoch):
        seen.append(epoch)
        return {usage.device: {"weight": 1 + 9 * usage.share} for usage in epoch}

    loop = gpushare.PolicyLoop([a, b], policy)
    for _ in range(10):
        stream.launch(spin, 100, 256, 1_000_000)
    stream.synchronize()
    virtual_gpu.runtime.sleep(0.01)
    epoch = loop.step()
    assert epoch.number == 1 and epoch.seconds == pytest.approx(0.02, rel=0.05)
    assert epoch[a].share == pytest.approx(0.5, abs=0.03) and epoch[b].share == 0
    assert a.spec.weight == pytest.approx(5.5, abs=0.3) and b.spec.weight == 1
    loop.step()
    assert seen[1].number == 2 and seen[1][a].stats.launches == 0


def test_a_policy_on_a_thread(virtual_gpu):
    device = virtual_gpu.virtual_device("a")
    epochs = []

    def policy(epoch):
        epochs.append(epoch.seconds)
        return {device: f"weight={epoch.number}"}

    with gpushare.PolicyLoop([device], policy, epoch="100ms"):
        virtual_gpu.runtime.sleep(1.05)
    assert epochs == pytest.approx([0.1] * 10, rel=0.01)
    assert device.spec.weight == 10


def test_an_exception_ends_the_loop_and_is_raised(virtual_gpu):
    device = virtual_gpu.virtual_device("a", weight=2)
    calls = []

    def policy(epoch):
        calls.append(epoch)
        raise ZeroDivisionError

    loop = gpushare.PolicyLoop([device], policy, epoch="10ms")
    with pytest.raises(ZeroDivisionError), loop:
        virtual_gpu.runtime.sleep(0.1)
        assert isinstance(loop.error, ZeroDivisionError)
    assert len(calls) == 1 and device.spec.weight == 2
    # An exception of the block itself takes precedence.
    with pytest.raises(KeyError), loop:
        virtual_gpu.runtime.sleep(0.1)
        raise KeyError


@pytest.mark.parametrize(("answer", "error", "message"), [
    (5, TypeError, "returned int"), ({"a": {}}, ValueError, "not one of its devices"),
])
def test_answers_that_cannot_be(device, answer, error, message):
    with pytest.raises(error, match=message):
        gpushare.PolicyLoop([device], lambda epoch: answer).step()


def test_limits_that_cannot_be(device):
    with pytest.raises(TypeError, match="no limit 'wait'"):
        gpushare.PolicyLoop([device], lambda epoch: {device: {"wait": 1}}).step()
    with pytest.raises(ValueError, match="weight"):
        gpushare.PolicyLoop([device], lambda epoch: {device: {"weight": -1}}).step()


def test_arguments(device):
    for arguments, options, error in (
        (([], print), {}, ValueError), (([5], print), {}, TypeError), (([device], 5), {}, TypeError),
        (([device], print), {"epoch": 0}, ValueError), (([device], print), {"epoch": "x"}, ValueError),
        (([device], print), {"epoch": []}, TypeError),
    ):
        with pytest.raises(error):
            gpushare.PolicyLoop(*arguments, **options)
