# SPDX-License-Identifier: Apache-2.0
"""Regions and steps: what they divert, which tenant it belongs to, and what is left afterwards. With a stand-in for
PyTorch."""

import datetime
import gc
import threading

import gpushare
import gpushare.torch
import pytest

MIB = 1 << 20


def used(device):
    return device.stats().memory_used


def test_memory_of_a_region_is_the_tenants(torch, trainer):
    before = torch.empty(2 * MIB)
    with gpushare.torch.tenant(trainer) as region:
        inside = torch.empty(3 * MIB)
        assert used(trainer) == 4 * MIB and torch.current_stream() is region.stream
        assert region.stream.cuda_stream not in (0, before._block.stream)
    after = torch.empty(2 * MIB)
    assert used(trainer) == 4 * MIB and torch.default_live == 2
    assert inside.pool is not None and after.pool is None
    assert torch.cuda.memory_allocated() == 8 * MIB  # PyTorch's own figures still work


def test_streams_wait_for_each_other_at_both_ends(torch, trainer):
    with gpushare.torch.tenant(trainer) as region:
        mine = region.stream.cuda_stream
    assert torch.calls("wait_stream") == [("wait_stream", mine, 0), ("wait_stream", 0, mine)]


def test_the_backward_pass_is_the_tenants_too(torch, trainer):
    """Autograd's threads have the stream of the forward pass as current stream, and nothing else from the forward pass."""
    gradients = []

    def backward(stream):
        with torch.cuda.stream(stream):
            gradients.append(torch.empty(8 * MIB))

    with gpushare.torch.tenant(trainer) as region:
        thread = threading.Thread(target=backward, args=(region.stream,))
        thread.start()
        thread.join()
    assert used(trainer) == 8 * MIB and gradients[0].pool is not None


def test_what_is_cached_is_used_by_the_next_region(torch, trainer):
    with gpushare.torch.tenant(trainer) as first:
        tensor = torch.empty(40 * MIB)
        stream = first.stream
        del tensor
    with gpushare.torch.tenant(trainer) as second:
        assert second.stream is stream
        tensor = torch.empty(40 * MIB)  # two of them would exceed the quota
    assert used(trainer) == 40 * MIB


def test_threads_have_a_stream_and_a_pool_each(torch, trainer):
    seen, together = [], threading.Barrier(2)

    def work():
        with gpushare.torch.tenant(trainer, lease=False) as region:
            together.wait()
            tensor = torch.empty(2 * MIB)
            seen.append((region.stream.cuda_stream, tensor.pool.id))
            together.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream for stream, _ in seen}) == len({pool for _, pool in seen}) == 2


def test_tenants_never_share_a_stream(torch, gpu, trainer):
    other = gpu.virtual_device("other", memory="64MiB")
    with gpushare.torch.tenant(trainer) as region:
        first = region.stream.cuda_stream
    with gpushare.torch.tenant(other) as region:
        assert region.stream.cuda_stream != first
        tensor = torch.empty(2 * MIB)
    assert (used(trainer), used(other)) == (0, 2 * MIB)
    del tensor


def test_a_region_has_a_lease_and_cap_only_has_none(torch, trainer):
    with gpushare.torch.tenant(trainer) as region:
        assert region.leased
    assert not region.leased
    with gpushare.torch.tenant(trainer, lease=False) as region:
        assert not region.leased
        with gpushare.torch.tenant(trainer) as inner:
            assert inner.leased and inner.stream is region.stream and not region.leased


def test_cap_only_does_not_wait_for_a_turn(torch, trainer):
    trainer.suspend()
    with gpushare.torch.tenant(trainer, lease=False):
        torch.empty(2 * MIB)
    with pytest.raises(TimeoutError), gpushare.torch.tenant(trainer, timeout="10ms"):
        pytest.fail("entered without a turn")
    trainer.resume()
    with gpushare.torch.tenant(trainer):  # the failure left nothing behind
        pass


def test_of_another_tenant_within_a_lease_is_an_error(torch, gpu, trainer):
    other = gpu.virtual_device("other", memory="64MiB")
    with gpushare.torch.tenant(trainer):
        with pytest.raises(gpushare.FailedPreconditionError), gpushare.torch.tenant(other):
            pytest.fail("entered")
        tensor = torch.empty(2 * MIB)
    assert (used(trainer), used(other)) == (2 * MIB, 0)
    with gpushare.torch.tenant(trainer, lease=False), gpushare.torch.tenant(other):
        second = torch.empty(2 * MIB)
    assert (used(trainer), used(other)) == (2 * MIB, 2 * MIB)
    del tensor, second


def test_nested_of_the_same_tenant_changes_nothing(torch, trainer):
    with gpushare.torch.tenant(trainer) as outer:
        with gpushare.torch.tenant(trainer) as inner:
            assert inner.stream is outer.stream
        assert torch.current_stream() is outer.stream and outer.leased
        tensor = torch.empty(2 * MIB)
    assert len(torch.calls("begin")) == 1 and used(trainer) == 2 * MIB
    del tensor


def test_an_exception_leaves_nothing_behind(torch, gpu, trainer):
    with pytest.raises(KeyError), gpushare.torch.tenant(trainer) as region:
        raise KeyError("x")
    assert torch.current_stream().cuda_stream == 0 and not torch.underway and not region.leased
    assert gpushare.current_tenant() is None
    other = gpu.virtual_device("other", memory="64MiB")
    with gpushare.torch.tenant(other):  # would be refused if a lease were left
        assert gpushare.current_tenant() is other.tenant


def test_over_the_quota_is_pytorchs_own_error(torch, trainer):
    with gpushare.torch.tenant(trainer):
        keep = torch.empty(60 * MIB)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(8 * MIB)
        small = torch.empty(4 * MIB)  # allocations that fit still work
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught, gpushare.torch.tenant(trainer):
        torch.empty(8 * MIB)
    first, last = str(caught.value).split("\n")
    assert "CUDA out of memory" in first
    assert "'trainer'" in last and "8 MiB asked, 0 B left of its memory quota of 64 MiB" in last and "'memory'" in last
    del keep, small


def test_recovery_from_a_fragmented_cache(torch, trainer):
    """40 MiB are cached and 48 of 64 requested. PyTorch frees nothing from a pool in use, so the region has to."""
    with gpushare.torch.tenant(trainer):
        del (tensor := [torch.empty(40 * MIB)])[:]
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(48 * MIB)
    with pytest.raises(torch.cuda.OutOfMemoryError), gpushare.torch.tenant(trainer):
        torch.empty(48 * MIB)
    gc.collect()
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(48 * MIB)
    assert used(trainer) == 48 * MIB
    del tensor


def test_recovery_between_steps_of_one_region(torch, trainer):
    with gpushare.torch.tenant(trainer, lease=False):
        with gpushare.torch.step(trainer):
            del (kept := [torch.empty(40 * MIB)])[:]
        with pytest.raises(torch.cuda.OutOfMemoryError), gpushare.torch.step(trainer):
            torch.empty(48 * MIB)
        gc.collect()
        with gpushare.torch.step(trainer):
            kept = torch.empty(48 * MIB)
        assert used(trainer) == 48 * MIB
        del kept


def test_a_program_may_change_streams_within_a_region(torch, trainer):
    """Allocations on the region's stream stay the tenant's, even after a step that began on another stream."""
    with gpushare.torch.tenant(trainer, lease=False) as region:
        with pytest.raises(torch.cuda.OutOfMemoryError), gpushare.torch.step(trainer):
            torch.empty(65 * MIB)
        with torch.cuda.stream(torch.cuda.ExternalStream(0x1230, device=0)):
            with gpushare.torch.step(trainer):  # replaces the pool
                pass
            elsewhere = torch.empty(2 * MIB)
        assert torch.current_stream() is region.stream
        inside = torch.empty(4 * MIB)
    assert elsewhere.pool is None and used(trainer) == 4 * MIB
    del elsewhere, inside


def test_regions_are_left_by_their_thread_and_in_order(torch, gpu, trainer):
    other = gpu.virtual_device("other", memory="64MiB")
    first, second = gpushare.torch.tenant(trainer, lease=False), gpushare.torch.tenant(other, lease=False)
    refused = []

    def leave():
        with pytest.raises(gpushare.FailedPreconditionError, match="thread"):
            first.__exit__(None, None, None)
        refused.append(True)

    with first, second:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        with pytest.raises(gpushare.FailedPreconditionError, match="the last one first"):
            first.__exit__(None, None, None)
    assert refused and not torch.underway


def test_pools_end_when_no_region_is_entered(torch, gpu, trainer):
    """Also no region of others: PyTorch would take their regions for captures, and end the process."""
    entered, leave = threading.Event(), threading.Event()
    other = gpu.virtual_device("other", memory="64MiB")

    def occupy():
        with gpushare.torch.tenant(other, lease=False):
            entered.set()
            leave.wait()

    with gpushare.torch.tenant(trainer):
        torch.empty(40 * MIB)
    thread = threading.Thread(target=occupy)
    thread.start()
    entered.wait()
    try:
        gpushare.torch.release(trainer)
        meanwhile = used(trainer)
    finally:
        leave.set()
        thread.join()
    assert meanwhile == 40 * MIB and used(trainer) == 0 and not torch.mistakes


def test_steps_make_room_for_those_who_wait_to_free(torch, gpu, trainer):
    """A loop that is never without a region still lets another tenant's memory be freed, between its steps."""
    other = gpu.virtual_device("other", memory="64MiB")
    with gpushare.torch.tenant(trainer):
        torch.empty(40 * MIB)
    begun, freed = threading.Event(), threading.Event()

    def loop():
        with gpushare.torch.tenant(other, lease=False):
            while not freed.is_set():
                with gpushare.torch.step(other):
                    begun.set()

    thread = threading.Thread(target=loop)
    thread.start()
    begun.wait()
    try:
        gpushare.torch.empty_cache(trainer)
        left = used(trainer)
    finally:
        freed.set()
        thread.join()
    assert left == 0


def test_a_step_is_a_turn_and_a_yield_point(torch, trainer):
    with gpushare.torch.tenant(trainer, lease=False) as region:
        for _ in range(3):
            with gpushare.torch.step(trainer) as step:
                assert step.leased and step.stream is region.stream
            assert not region.leased
    assert len(torch.calls("begin")) == 1


def test_steps_take_over_the_regions_lease(torch, trainer):
    with gpushare.torch.tenant(trainer) as region:
        assert region.leased
        with gpushare.torch.step(trainer) as step:
            assert step.leased
        assert not region.leased
    assert not region.leased


def test_a_step_alone_is_a_region(torch, trainer):
    with gpushare.torch.step(trainer) as region:
        tensor = torch.empty(2 * MIB)
        assert region.leased and torch.current_stream() is region.stream
    assert used(trainer) == 2 * MIB and torch.current_stream().cuda_stream == 0
    del tensor


def test_capturing_refuses_a_region(torch, gpu, trainer):
    torch.capturing = True
    with pytest.raises(gpushare.FailedPreconditionError, match="capture"), gpushare.torch.tenant(trainer):
        pytest.fail("entered")
    torch.capturing = False
    with gpushare.torch.tenant(gpu.virtual_device("other", memory="1MiB")):
        pass


def test_regions_and_steps_are_entered_once(torch, trainer):
    region, step = gpushare.torch.tenant(trainer), gpushare.torch.step(trainer)
    with region, pytest.raises(gpushare.FailedPreconditionError):
        region.__enter__()
    with step, pytest.raises(gpushare.FailedPreconditionError):
        step.__enter__()
    with pytest.raises(gpushare.FailedPreconditionError):
        region.stream  # noqa: B018


@pytest.mark.parametrize("call", [gpushare.torch.tenant, gpushare.torch.step, gpushare.torch.mem_get_info,
                                  gpushare.torch.empty_cache, gpushare.torch.release])
@pytest.mark.parametrize("wrong", [None, "trainer", 0])
def test_wrong_devices_are_type_errors(call, wrong):
    with pytest.raises(TypeError, match="^device: "):
        call(wrong)


@pytest.mark.parametrize("wrong, error", [("2", ValueError), ("2 minutes", ValueError), ([], TypeError), (True, TypeError), (0, ValueError), (-1, ValueError),
                                          (61, ValueError)])
def test_wrong_hints(trainer, wrong, error):
    with pytest.raises(error, match="^hint: "):
        gpushare.torch.tenant(trainer, hint=wrong)


@pytest.mark.parametrize("hint", [0.002, "2ms", datetime.timedelta(milliseconds=2)])
@pytest.mark.parametrize("call", [gpushare.torch.tenant, gpushare.torch.step])
def test_hints_of_all_kinds(torch, trainer, call, hint):
    with call(trainer, hint=hint) as region:
        assert region._pace.hint == pytest.approx(0.002)


def test_mem_get_info_is_of_the_quota(torch, trainer):
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(16 * MIB)
    assert gpushare.torch.mem_get_info(trainer) == (48 * MIB, 64 * MIB)
    del tensor


@pytest.mark.parametrize("quota", [64 * MIB, 64 * MIB + 1, (1 << 30) // 3])
def test_a_process_can_be_capped_without_a_region(torch, gpu, quota):
    torch.total = 16 * (1 << 30) - 4321  # what is left of a GPU: an odd number
    device = gpu.virtual_device("process", memory=quota)
    limit = gpushare.torch.cap_process(device)
    assert quota - 8 <= limit <= quota and limit == int(torch.fractions[0] * torch.total)
    fits = torch.empty(quota // (2 * MIB) * 2 * MIB - 2 * MIB)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(4 * MIB)
    del fits
    assert used(device) == 0  # PyTorch enforces the limit
    device.resize(memory=2 * quota)
    assert gpushare.torch.cap_process(device) == pytest.approx(2 * quota, abs=8)


def test_a_cap_of_the_whole_gpu_and_of_what_is_closed(torch, gpu):
    torch.total = 1 << 30
    device = gpu.virtual_device("process")
    assert gpushare.torch.cap_process(device) == 1 << 30 and torch.fractions == {0: 1.0}
    device.close()
    with pytest.raises(gpushare.ClosedError):
        gpushare.torch.cap_process(device)
    with pytest.raises(TypeError, match="^device: Gpu given"):
        gpushare.torch.cap_process(gpu)
