# SPDX-License-Identifier: Apache-2.0
"""PyTorch within the limits of a virtual device.

    import gpushare, torch
    import gpushare.torch

    gpu = gpushare.Gpu(gpushare.Runtime())
    trainer = gpu.virtual_device("trainer", memory="8 GiB", compute="30%")

    with gpushare.torch.tenant(trainer, lease=False):       # memory and stream: whose it is
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch, target in loader:
            with gpushare.torch.step(trainer):              # device time: waits for its turn
                loss = criterion(model(batch.cuda()), target.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

Beyond the quota PyTorch raises its own `torch.cuda.OutOfMemoryError`. PyTorch's allocator is not replaced, so
`torch.cuda.memory_allocated()` and cuDNN's benchmarking work. Only allocations on the region's stream come from the
virtual device, including those of autograd's threads.

Importing this module does not import torch. docs/pytorch.md says what is covered and what is not.
"""

from ._pool import ALLOCATOR_FUNCTIONS, allocator, allocator_path
from .callbacks import accumulate, lightning_callback, transformers_callback
from .graphs import Graph, capture
from .memory import cap_process, empty_cache, mem_get_info, release
from .region import Region, step, tenant

__all__ = [
    "ALLOCATOR_FUNCTIONS",
    "Graph",
    "Region",
    "accumulate",
    "allocator",
    "allocator_path",
    "cap_process",
    "capture",
    "empty_cache",
    "lightning_callback",
    "mem_get_info",
    "release",
    "step",
    "tenant",
    "transformers_callback",
]
