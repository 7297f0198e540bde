# SPDX-License-Identifier: Apache-2.0
"""On a GPU: PyTorch's allocations within a region are charged to the tenant, and no others are."""

import gc

import pytest

MIB = 1 << 20


def used(device):
    return device.stats().memory_used


def test_memory_and_pytorchs_own_figures(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="1GiB")
    before = torch.cuda.memory_allocated()
    with gpushare.torch.tenant(device):
        tensor = torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() - before == 256 * MIB
    assert used(device) == 256 * MIB
    assert gpushare.torch.mem_get_info(device) == (768 * MIB, 1024 * MIB)
    outside = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    assert used(device) == 256 * MIB and int(tensor.sum()) == 0
    del tensor, outside
    gpushare.torch.empty_cache(device)
    assert used(device) == 0


def test_over_the_quota_and_back(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="1GiB")
    with gpushare.torch.tenant(device):
        keep = torch.zeros(768 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        small = torch.zeros(128 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught, gpushare.torch.tenant(device):
        torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    assert "'memory'" in str(caught.value).split("\n")[-1]
    assert int(keep.sum()) == int(small.sum()) == 0
    # 768 MiB are cached in one piece, into which 900 MiB do not fit.
    del keep, small, caught
    gc.collect()
    with gpushare.torch.tenant(device):
        tensor = torch.zeros(900 * MIB, dtype=torch.uint8, device="cuda")
    assert 900 * MIB <= used(device) <= 1024 * MIB
    del tensor


def test_a_process_is_capped_without_a_region(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="1GiB")
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()  # from other tests; PyTorch counts it
    try:
        limit = gpushare.torch.cap_process(device)
        assert 1024 * MIB - 8 <= limit <= 1024 * MIB
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(1200 * MIB, dtype=torch.uint8, device="cuda")
        fits = torch.zeros(900 * MIB - before, dtype=torch.uint8, device="cuda")
        assert used(device) == 0 and int(fits[-1]) == 0
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_the_backward_pass_is_the_tenants(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="2GiB")
    others = torch.cuda.memory_reserved() - used(device)
    with gpushare.torch.tenant(device):
        model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
        loss = model(torch.randn(512, 2048, device="cuda")).square().mean()
        loss.backward()
    torch.cuda.synchronize()
    parameters = sum(p.numel() * 4 for p in model.parameters())
    assert used(device) >= 2 * parameters
    assert torch.cuda.memory_reserved() - used(device) == others  # nothing bypassed the quota
    del model, loss


def test_cudnn_chooses_within_the_quota(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="1GiB")
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        with gpushare.torch.tenant(device):
            convolution = torch.nn.Conv2d(64, 64, 3, padding=1).cuda()
            result = convolution(torch.randn(8, 64, 112, 112, device="cuda"))
            assert result.isfinite().all()
    finally:
        torch.backends.cudnn.benchmark = benchmark
    assert 0 < used(device) <= 1024 * MIB
    del convolution, result


def test_a_graphs_memory_is_the_tenants(make_tenant):
    import gpushare.torch
    import torch

    device = make_tenant(memory="1GiB")
    static = torch.ones(64 * MIB // 4, device="cuda")
    with gpushare.torch.capture(device) as graph:
        result = static + 1
    assert used(device) >= 64 * MIB
    static.fill_(4)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 5).all())
    del graph, result
    gc.collect()
    gpushare.torch.empty_cache(device)
    assert used(device) == 0
