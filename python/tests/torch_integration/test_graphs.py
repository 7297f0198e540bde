# SPDX-License-Identifier: Apache-2.0
"""Captured graphs: their memory, and the lease of a replay. With a stand-in for PyTorch."""

import gc

import gpushare
import gpushare.torch
import pytest

MIB = 1 << 20


def used(device):
    return device.stats().memory_used


def test_memory_of_a_graph_is_the_tenants_as_long_as_it_lives(torch, trainer):
    with gpushare.torch.capture(trainer) as graph:
        tensor = torch.empty(16 * MIB)
    assert used(trainer) == 16 * MIB
    with gpushare.torch.tenant(trainer):
        other = torch.empty(2 * MIB)  # not from memory to which the graph will write again
    assert other.pool is not tensor.pool and used(trainer) == 18 * MIB
    del tensor, graph, other
    gc.collect()
    gpushare.torch.empty_cache(trainer)
    assert used(trainer) == 0


def test_a_graph_within_a_region_does_not_use_the_regions_pool(torch, trainer):
    with gpushare.torch.tenant(trainer, lease=False) as region:
        mine = torch.empty(2 * MIB)
        with gpushare.torch.capture(trainer) as graph:
            captured = torch.empty(2 * MIB)
            assert torch.current_stream() is not region.stream
        after = torch.empty(2 * MIB)
    assert captured.pool is not mine.pool and after.pool is mine.pool
    assert used(trainer) == 6 * MIB
    assert graph.virtual_device is trainer
    del mine, captured, after


def test_other_threads_may_allocate_during_a_capture(torch, trainer):
    with gpushare.torch.capture(trainer):
        pass
    with gpushare.torch.capture(trainer, capture_error_mode="relaxed"):
        pass
    assert [mode for _, _, mode in torch.calls("capture")] == ["thread_local", "relaxed"]


def test_a_replay_has_a_lease_on_a_stream_of_the_tenant(torch, trainer):
    with gpushare.torch.capture(trainer) as graph:
        pass
    trainer.suspend()
    with pytest.raises(TimeoutError):
        graph.replay(timeout="10ms")
    assert not torch.calls("replay")
    trainer.resume()
    graph.replay()
    ((_, stream),) = torch.calls("replay")
    assert stream != 0 and torch.current_stream().cuda_stream == 0


def test_a_replay_in_cap_only_waits_for_a_turn_too(torch, trainer):
    graph = gpushare.torch.Graph(torch.cuda.CUDAGraph(), trainer)
    with gpushare.torch.tenant(trainer, lease=False) as region:
        trainer.suspend()
        with pytest.raises(TimeoutError):
            graph.replay(timeout="10ms")
        trainer.resume()
        graph.replay()
        assert torch.calls("replay") == [("replay", region.stream.cuda_stream)]


def test_a_step_covers_the_replays_in_it(torch, trainer):
    graph = gpushare.torch.Graph(torch.cuda.CUDAGraph(), trainer)
    with gpushare.torch.step(trainer) as step:
        trainer.suspend()
        graph.replay(timeout=0)  # needs no other lease
        trainer.resume()
        assert torch.calls("replay") == [("replay", step.stream.cuda_stream)]


def test_over_the_quota_in_a_capture(torch, trainer):
    with pytest.raises(torch.cuda.OutOfMemoryError), gpushare.torch.capture(trainer):
        torch.empty(65 * MIB)
    gc.collect()
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(64 * MIB)
    del tensor


def test_wrong_arguments(torch, trainer):
    with pytest.raises(TypeError, match="^device: "):
        gpushare.torch.Graph(torch.cuda.CUDAGraph(), "trainer")
    with pytest.raises(ValueError, match="^hint: "), gpushare.torch.capture(trainer, hint=0):
        pytest.fail("entered")
