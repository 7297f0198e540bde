# SPDX-License-Identifier: Apache-2.0
"""What happened: every counter of every virtual device at one instant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import _core, _show

__all__ = ["PoolStats", "Snapshot", "VirtualDeviceStats"]


@dataclasses.dataclass(frozen=True, repr=False)
class VirtualDeviceStats:
    """The counters of one virtual device. Sizes in bytes, durations in seconds, shares as parts of 1. The
    counters only grow, so the difference of two tells what happened between them."""

    tenant: str
    gpu: int  # ordinal
    time: float  # when it was taken, on the runtime's clock
    suspended: bool
    priority: str
    weight: float  # this and the two below: in force
    guarantee: float
    cap: float
    memory_limit: int
    memory_used: int
    memory_peak: int
    memory_denied: int  # allocations refused at the quota
    memory_denied_bytes: int
    memory_borrowed: int  # beyond what the spec guarantees (`memory_cap`)
    memory_lent: int  # to others, of what it guarantees
    allocations: int  # live
    launches: int  # kernels, graphs, sets and copies within the device that were handed to it
    graph_launches: int
    waits: int  # launches that were held
    throttled: float  # time of the host that they were held
    wait_p50: float
    wait_p99: float
    wait_histogram: tuple[int, ...]  # [2^i, 2^(i+1)) microseconds
    predicted: float  # device time of the settled work, as predicted
    measured: float  # the same work, as measured
    charged: float  # device time in all, corrected by measurement
    markers: int  # timing events recorded
    markers_failed: int  # refused by the driver: that work is charged as predicted and not measured
    driver_error: str  # the latest of these refusals, with the call's name; empty: none
    held_past_bound: int  # let through at the bound of a hold
    h2d_bytes: int
    d2h_bytes: int
    h2d_throttled: float
    d2h_throttled: float
    parent: str = ""  # the tenant's; empty: it has none. A parent's memory is that of its children as well

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return _show.stats_line(self)


@dataclasses.dataclass(frozen=True)
class PoolStats:
    """What the pool of an Allocator has at one moment. Sizes in bytes."""

    reserved: int  # of its segments, or of the driver's pool: charged to the quota
    live: int  # of its allocations
    peak_reserved: int
    peak_live: int
    largest_free: int  # this and the two below: 0 with the strategy 'pool', whose driver does not tell
    set_apart: int
    segments: int
    allocations: int
    waiting: int  # threads that wait for memory
    served: int  # allocations so far
    hits: int  # of them, those for which the pool did not have to grow

    @property
    def idle(self) -> int:
        return self.reserved - self.live

    @property
    def fragmentation(self) -> float:
        """Of what is idle, the part that no single allocation could have; 0 where the driver does not tell."""
        return 1 - self.largest_free / self.idle if self.segments and self.idle else 0.0


# What is the state at one instant rather than a counter: a difference keeps the later one's.
_STATES = frozenset({
    "tenant", "gpu", "time", "suspended", "priority", "weight", "guarantee", "cap", "memory_limit", "memory_used",
    "memory_peak", "memory_borrowed", "memory_lent", "allocations", "wait_p50", "wait_p99", "driver_error",
})


# What is corrected when work is measured, and so may fall.
_CORRECTED = frozenset({"predicted", "measured", "charged"})


def _was_made_again(after: VirtualDeviceStats, before: VirtualDeviceStats) -> bool:
    """Whether they are of two devices of one tenant, the later one made when the first was gone: counters only grow."""
    for field in dataclasses.fields(after):
        if field.name in _STATES or field.name in _CORRECTED:
            continue
        new, old = getattr(after, field.name), getattr(before, field.name)
        if any(a < b for a, b in zip(new, old, strict=True)) if isinstance(new, tuple) else new < old:
            return True
    return after.memory_peak < before.memory_peak


def _difference(after: VirtualDeviceStats, before: VirtualDeviceStats) -> VirtualDeviceStats:
    if _was_made_again(after, before):
        return after
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(after):
        if field.name in _STATES:
            continue
        new, old = getattr(after, field.name), getattr(before, field.name)
        changes[field.name] = (tuple(a - b for a, b in zip(new, old, strict=True))
                               if isinstance(new, tuple) else new - old)
    return dataclasses.replace(after, **changes)


@dataclasses.dataclass(frozen=True, repr=False)
class Snapshot:
    """Every counter of every virtual device of a runtime at one instant.

        before = runtime.snapshot()
        ...
        for device in runtime.snapshot() - before:
            print(device.tenant, "was held", device.throttled, "s")

        pandas.DataFrame(snapshot.to_dict())
    """

    time: float  # seconds of the runtime's clock
    devices: tuple[VirtualDeviceStats, ...]  # by GPU, then in order of creation

    @classmethod
    def take(cls, runtime: _core.Runtime) -> Snapshot:
        return cls(*_core._snapshot(runtime))

    def find(self, tenant: str, gpu: int = 0) -> VirtualDeviceStats | None:
        """The counters of a tenant's device; None: it has none on that GPU."""
        return next((d for d in self.devices if d.gpu == gpu and d.tenant == tenant), None)

    def __getitem__(self, tenant: str) -> VirtualDeviceStats:
        """The counters of the tenant's device on the first GPU where it has one. Raises KeyError."""
        for device in self.devices:
            if device.tenant == tenant:
                return device
        raise KeyError(f"{tenant!r}; there are {', '.join(sorted({d.tenant for d in self.devices})) or 'none'}")

    def __iter__(self) -> Iterator[VirtualDeviceStats]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __sub__(self, before: Snapshot) -> Snapshot:
        """What happened since `before`: counters are differences, states (memory_used, weight, ...) are the
        later ones. Devices that were not there before count from zero, as do those that were made again meanwhile, which is
        seen by a counter that has fallen."""
        if not isinstance(before, Snapshot):
            return NotImplemented
        old = {(d.tenant, d.gpu): d for d in before.devices}
        return Snapshot(self.time, tuple(
            _difference(d, old[d.tenant, d.gpu]) if (d.tenant, d.gpu) in old else d for d in self.devices))

    def __repr__(self) -> str:
        return _show.snapshot_line(self)

    def _repr_html_(self) -> str:
        return _show.snapshot_html(self)

    def to_records(self) -> list[dict[str, Any]]:
        """A dict for each virtual device."""
        return [device.to_dict() for device in self.devices]

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each counter, one entry a virtual device: what pandas.DataFrame() takes."""
        return {field.name: [getattr(device, field.name) for device in self.devices]
                for field in dataclasses.fields(VirtualDeviceStats)}
