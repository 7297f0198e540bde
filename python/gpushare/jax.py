# SPDX-License-Identifier: Apache-2.0
"""The environment with which a JAX process (jaxlib 0.4.35 or newer) keeps within a share's memory.

    import subprocess, sys
    import gpushare.jax

    subprocess.run([sys.executable, "train.py"], env={**os.environ, **gpushare.jax.env(device)})

    gpushare.jax.apply("memory=25%")         # or: this process, before its first use of JAX
    import jax

JAX has no hook for an allocator, so this uses JAX's own limit: XLA takes that fraction of the GPU and no more, either
at once or as needed. The limit does not include CUDA's context and modules, and JAX's kernels are not scheduled.
`env()` requires neither JAX nor a GPU.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import sys

from ._core import Gpu, VirtualDevice, VirtualDeviceSpec
from ._given import given

__all__ = ["apply", "env"]

_FLOOR = (0, 4, 35)
_NEEDED = "gpushare.jax needs jaxlib 0.4.35 or newer: pip install 'jax[cuda12]>=0.4.35'"
_STEPS = 1_000_000  # the fraction is in millionths: steps of 141 KB on a GPU of 141 GB
_BOUNDED = ("bfc", "default")


def env(share: VirtualDevice | VirtualDeviceSpec | str, *, gpu: Gpu | None = None, preallocate: bool = True,
        allocator: str = "bfc") -> dict[str, str]:
    """Returns environment variables to add for the process of `share`.

    Args:
        share: a VirtualDevice, or a spec ("memory=8GiB"), which may need `gpu`.
        gpu: the GPU to which a spec refers. Not needed if the spec gives memory as a fraction: "memory=25%".
        preallocate: whether JAX takes all of it at its first use; False: as needed, up to the same limit.
        allocator: XLA's: "bfc" or "default". The others ("platform", "cuda_async", "vmm") have no limit.

    Raises:
        ValueError: the spec has no memory, or less than a millionth of the GPU; another allocator.
        TypeError: the spec is in bytes and there is no `gpu`; an argument of another type.
    """
    given(preallocate, bool, "preallocate")
    if gpu is not None:
        given(gpu, Gpu, "gpu")
    if allocator not in _BOUNDED:
        raise ValueError(f"allocator: {allocator!r} given; {' or '.join(map(repr, _BOUNDED))} wanted, since XLA bounds "
                         "no other one by a fraction of the GPU")
    device = share if isinstance(share, VirtualDevice) else None
    if device is not None:
        if gpu is not None and gpu.ordinal != device.gpu.ordinal:
            raise ValueError(f"gpu: GPU {gpu.ordinal} given, the virtual device is on GPU {device.gpu.ordinal}")
        gpu = device.gpu
    spec = share.spec if isinstance(share, VirtualDevice) else VirtualDeviceSpec(share)
    variables = {
        "XLA_CLIENT_MEM_FRACTION": _text(_fraction(spec, device, gpu)),
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "",  # its old name: JAX refuses if both are set
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true" if preallocate else "false",
        "XLA_PYTHON_CLIENT_ALLOCATOR": allocator,
    }
    if gpu is not None:
        variables["CUDA_VISIBLE_DEVICES"] = gpu.probe().uuid  # otherwise JAX takes its fraction of every GPU
    if str(spec):
        variables["GPUSHARE_SPEC"] = str(spec)
    if device is not None:
        variables["GPUSHARE_TENANT"] = device.tenant_name
    return variables


def _fraction(spec: VirtualDeviceSpec, device: VirtualDevice | None, gpu: Gpu | None) -> int:
    """In steps, rounded down, so that XLA never takes more than the quota."""
    if device is None and spec.memory is None:
        raise ValueError("share: its spec gives no memory; 'memory=8GiB' or 'memory=25%' wanted")
    if device is None and isinstance(spec.memory, str):
        part = float(spec.memory.rstrip("% ")) / 100 * _STEPS
        steps = math.floor(part + 1e-6)
    else:
        if gpu is None:
            raise TypeError("gpu: None given, but memory is in bytes; name the Gpu, or give a part of it: 'memory=25%'")
        quota = device.memory[1] if device is not None else int(spec.memory or 0)
        steps = quota * _STEPS // gpu.probe().memory_total
    if steps < 1:
        raise ValueError("share: its memory is less than a millionth of the GPU, too little for JAX")
    return min(steps, _STEPS)


def _text(steps: int) -> str:
    return f"{steps / _STEPS:.6f}".rstrip("0").rstrip(".")


def apply(share: VirtualDevice | VirtualDeviceSpec | str, *, gpu: Gpu | None = None, preallocate: bool = True,
          allocator: str = "bfc") -> dict[str, str]:
    """Sets `env(...)` in this process's environment and returns what was set. Imports JAX to make it keep to the GPU.

    The driver has read CUDA_VISIBLE_DEVICES already, so that variable is left alone.

    Raises:
        RuntimeError: JAX has created its backend already, and reads no variables any more.
        ImportError: JAX is not installed, or its jaxlib is older than 0.4.35.
    """
    variables = env(share, gpu=gpu, preallocate=preallocate, allocator=allocator)
    _check_jax()
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ.update(variables)
    on = share.gpu if isinstance(share, VirtualDevice) else gpu
    if on is not None:
        importlib.import_module("jax").config.update("jax_cuda_visible_devices", str(on.ordinal))
    return variables


def _check_jax() -> None:
    try:
        version = importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(f"{_NEEDED} (there is no jaxlib)") from error
    if tuple(int(part) for part in version.split(".")[:3] if part.isdigit()) < _FLOOR:
        raise ImportError(f"{_NEEDED} (this is {version})")
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        raise RuntimeError("JAX has its backend already and reads no variables any more: call gpushare.jax.apply() "
                           "before the first use of JAX")
