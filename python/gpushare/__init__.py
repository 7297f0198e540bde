# SPDX-License-Identifier: Apache-2.0
"""Splits one NVIDIA GPU into virtual devices, each with a memory quota, a compute share and a priority.

    import gpushare

    with gpushare.simulated_gpu(memory="16GiB") as gpu:   # or gpushare.Runtime().gpu...
        with gpu.virtual_device("trainer", memory="1 GiB", compute="30%") as device:
            weights = device.alloc("768 MiB")             # a Buffer: DLPack, __cuda_array_interface__
            with device.lease(hint="2ms"):
                ...                                       # whatever runs here is covered

Units: sizes are bytes as int or text ("8 GB", "8GiB"); shares are fractions of 1 or text ("30%"); durations are
seconds, a timedelta or text ("20ms"). Importing this package does not load the driver.
"""

from ._core import (
    Allocator,
    Buffer,
    ClockThread,
    Event,
    Gang,
    Gpu,
    Graph,
    Kernel,
    Lease,
    Module,
    Runtime,
    Simulation,
    Stream,
    Tenant,
    VirtualDevice,
    VirtualDeviceSpec,
    place,
    policy_names,
)
from ._core import version as _version
from ._errors import *  # noqa: F403
from ._errors import __all__ as _error_names
from ._record import Recorder, record
from ._trace import Trace, TraceEvent, trace
from . import plot
from .policy import Epoch, PolicyLoop, Usage
from .probe import GpuProbe
from .scope import carry_tenant, current_tenant, tenant_scope
from .snapshot import PoolStats, Snapshot, VirtualDeviceStats
from .testing import simulated_gpu
from .watchdog import Incident, Watchdog
from .yielding import yield_point

__version__ = _version()

__all__ = [
    "Allocator",
    "Buffer",
    "ClockThread",
    "Epoch",
    "Event",
    "Gang",
    "Gpu",
    "GpuProbe",
    "Graph",
    "Incident",
    "Kernel",
    "Lease",
    "Module",
    "PolicyLoop",
    "PoolStats",
    "Recorder",
    "Runtime",
    "Simulation",
    "Snapshot",
    "Stream",
    "Tenant",
    "Trace",
    "TraceEvent",
    "Usage",
    "VirtualDevice",
    "VirtualDeviceSpec",
    "VirtualDeviceStats",
    "Watchdog",
    "carry_tenant",
    "current_tenant",
    "place",
    "plot",
    "policy_names",
    "record",
    "simulated_gpu",
    "tenant_scope",
    "trace",
    "yield_point",
    *_error_names,
]
