# SPDX-License-Identifier: Apache-2.0
"""Checks the version of PyTorch."""

from __future__ import annotations

import os
import re

from .. import _core
from .._errors import FailedPreconditionError, NotFoundError

# Up to 2.7 PyTorch found the allocator of a pool through the calling thread. The backward pass, which has threads of
# its own, would have bypassed the quota.
OLDEST = (2, 8)


def require() -> None:
    """Raises ImportError unless a version of PyTorch is installed with which this module works."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # a dependency of PyTorch is missing
            raise
        raise ImportError("gpushare.torch needs PyTorch, which is not installed: pip install 'torch>=2.8'",
                          name="torch") from error
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise ImportError(
            f"gpushare.torch needs PyTorch 2.8 or newer, {torch.__version__} is installed: in older ones the memory "
            "of the backward pass is not a pool's; pip install 'torch>=2.8'", name="torch")


def _switched_on(variable: str) -> bool:
    return os.environ.get(variable) == "1"


def device_index(device: _core.VirtualDevice) -> int:
    """PyTorch's number for the GPU of `device`. Initialises CUDA in PyTorch.

    Raises:
        NotFoundError (LookupError): PyTorch does not see that GPU, for instance because it is simulated.
        FailedPreconditionError (RuntimeError): PyTorch was told to allocate without its cache.
    """
    require()
    import torch

    torch.cuda.init()
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise FailedPreconditionError(
            f"PyTorch allocates by its backend '{backend}', which has no pools; leave 'backend' out of "
            "PYTORCH_ALLOC_CONF, and use neither change_current_allocator()", code="FAILED_PRECONDITION")
    if _switched_on("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise FailedPreconditionError(
            "PYTORCH_NO_CUDA_MEMORY_CACHING=1 makes PyTorch allocate past every pool, and so past the quota; unset it",
            code="FAILED_PRECONDITION")
    probe = device.gpu.probe()
    wanted = _bare(probe.uuid)
    uuids = [_bare(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    if wanted in uuids:
        return uuids.index(wanted)
    if probe.mig and probe.ordinal < len(uuids):  # PyTorch reports the GPU that the instance is part of
        return probe.ordinal
    raise NotFoundError(
        f"PyTorch does not see {probe.name} ({probe.uuid}), of which tenant '{device.tenant_name}' has a share; it sees "
        f"{', '.join(uuids) or 'no GPU'}: CUDA_VISIBLE_DEVICES must be the same for both, and a simulated GPU is not "
        "for PyTorch", code="NOT_FOUND")


def _bare(uuid: object) -> str:
    return str(uuid).lower().removeprefix("gpu-").removeprefix("mig-")
