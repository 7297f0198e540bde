# SPDX-License-Identifier: Apache-2.0
"""Every counter of every virtual device at one instant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import _core, _show

__all__ = ["PoolStats", "Snapshot", "VirtualDeviceStats"]


@dataclasses.dataclass(frozen=True, repr=False)
class VirtualDeviceStats:
    """The counters of one virtual device. Sizes are in bytes, durations in seconds, shares are fractions of 1. Counters
    only grow, so the difference of two shows what happened between them."""

    tenant: str
    gpu: int  # ordinal
    time: float  # when the snapshot was taken, on the runtime's clock
    suspended: bool
    priority: str
    weight: float  # this and the next two: the values in force
    guarantee: float
    cap: float
    memory_limit: int
    memory_used: int
    memory_peak: int
    memory_denied: int  # allocations refused because of the quota
    memory_denied_bytes: int
    memory_borrowed: int  # beyond what the spec guarantees (`memory_cap`)
    memory_lent: int  # lent to others from what the spec guarantees
    memory_swapped: int  # host memory that holds swapped-out memory: not in memory_used
    swaps_out: int  # how often suspend() moved swappable memory to the host
    swaps_in: int  # how often resume() moved it back
    swapped_out_bytes: int  # these two are in d2h_bytes and h2d_bytes too
    swapped_in_bytes: int
    swap_time: float  # host time that the moves took
    allocations: int  # number of live allocations
    launches: int  # kernels, graphs, sets and copies within the device that were submitted
    graph_launches: int
    waits: int  # launches that were held
    throttled: float  # how long host threads were held
    wait_p50: float
    wait_p99: float
    wait_histogram: tuple[int, ...]  # [2^i, 2^(i+1)) microseconds
    predicted: float  # device time of the settled work, as predicted
    measured: float  # the same work, as measured
    charged: float  # total device time, corrected by measurement
    markers: int  # timing events recorded
    markers_failed: int  # refused by the driver: the work is charged as predicted and not measured
    driver_error: str  # the latest such refusal, with the name of the call; empty: none
    held_past_bound: int  # commands let through when a hold reached its bound
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
    """The state of an Allocator's pool at one moment. Sizes are in bytes."""

    reserved: int  # by its segments or by the driver's pool; charged to the quota
    live: int  # in live allocations
    peak_reserved: int
    peak_live: int
    largest_free: int  # this and the next two: 0 with the strategy 'pool', where the driver does not report it
    set_apart: int
    segments: int
    allocations: int
    waiting: int  # threads that wait for memory
    served: int  # allocations so far
    hits: int  # allocations for which the pool did not have to grow

    @property
    def idle(self) -> int:
        return self.reserved - self.live

    @property
    def fragmentation(self) -> float:
        """The part of the idle memory that no single allocation could get; 0 where the driver does not report it."""
        return 1 - self.largest_free / self.idle if self.segments and self.idle else 0.0


# Fields that are states at one instant, not counters: a difference keeps the later value.
_STATES = frozenset({
    "tenant", "gpu", "time", "suspended", "priority", "weight", "guarantee", "cap", "memory_limit", "memory_used",
    "memory_peak", "memory_borrowed", "memory_lent", "memory_swapped", "allocations", "wait_p50", "wait_p99", "driver_error",
    "parent",
})


# Counters that are corrected when work is measured, and so may decrease.
_CORRECTED = frozenset({"predicted", "measured", "charged"})


def _was_made_again(after: VirtualDeviceStats, before: VirtualDeviceStats) -> bool:
    """Whether the later stats are of a new device of the same tenant, made after the first was gone: counters only
    grow."""
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

    time: float  # in seconds on the runtime's clock
    devices: tuple[VirtualDeviceStats, ...]  # by GPU, then in order of creation

    @classmethod
    def take(cls, runtime: _core.Runtime) -> Snapshot:
        return cls(*_core._snapshot(runtime))

    def find(self, tenant: str, gpu: int = 0) -> VirtualDeviceStats | None:
        """The counters of a tenant's device, or None if it has none on that GPU."""
        return next((d for d in self.devices if d.gpu == gpu and d.tenant == tenant), None)

    def __getitem__(self, tenant: str) -> VirtualDeviceStats:
        """The counters of the tenant's device on the first GPU where it has one. Raises KeyError if there is none."""
        for device in self.devices:
            if device.tenant == tenant:
                return device
        raise KeyError(f"{tenant!r}; there are {', '.join(sorted({d.tenant for d in self.devices})) or 'none'}")

    def __iter__(self) -> Iterator[VirtualDeviceStats]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __sub__(self, before: Snapshot) -> Snapshot:
        """What happened since `before`: counters are differences, states (memory_used, weight, ...) are the later
        values. Devices that did not exist before count from zero, and so do devices that were made again meanwhile,
        which is recognised by a counter that has decreased."""
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
        """One dict per virtual device."""
        return [device.to_dict() for device in self.devices]

    def to_dict(self) -> dict[str, list[Any]]:
        """One list per counter, with one entry per virtual device, as pandas.DataFrame() takes it."""
        return {field.name: [getattr(device, field.name) for device in self.devices]
                for field in dataclasses.fields(VirtualDeviceStats)}
