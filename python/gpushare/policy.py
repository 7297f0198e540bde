# SPDX-License-Identifier: Apache-2.0
"""Policies written in Python: they change shares once per epoch, outside the launch path.

    def by_backlog(epoch):                  # twice the weight for whoever had to wait
        return {usage.device: {"weight": 2 if usage.stats.waits else 1} for usage in epoch}

    with gpushare.PolicyLoop([a, b], by_backlog, epoch="100ms"):
        serve()

Presets by name (``policy="burst-share"`` in a spec) do not need this: the library implements them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from ._core import VirtualDevice, VirtualDeviceSpec
from ._given import Duration, duration
from ._turns import Turns
from .snapshot import VirtualDeviceStats, _difference

__all__ = ["Epoch", "PolicyLoop", "Usage"]

_LONGEST = 10.0  # seconds

Limits = Union[str, VirtualDeviceSpec, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Usage:
    """What one virtual device used in an epoch."""

    device: VirtualDevice
    share: float  # of the device's time, as charged; a fraction of 1
    stats: VirtualDeviceStats  # counters for the epoch; states (memory_used, weight, ...) at its end


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The input for one turn of a policy. Iterates over the usages; `epoch[device]` is one of them."""

    number: int  # from 1
    seconds: float  # its length, on the runtime's clock
    usages: tuple[Usage, ...]  # in the order of PolicyLoop's devices

    def __iter__(self) -> Iterator[Usage]:
        return iter(self.usages)

    def __getitem__(self, device: VirtualDevice) -> Usage:
        for usage in self.usages:
            if usage.device is device:
                return usage
        raise KeyError(device)


class PolicyLoop(Turns):
    """Calls `policy` once per epoch and resizes virtual devices as it says.

    Args:
        devices: virtual devices of one runtime.
        policy: called with an Epoch; returns limits by device (text, a VirtualDeviceSpec or a dict of fields, as
            VirtualDevice.resize() takes them), or None to leave all unchanged.
        epoch: the length of an epoch: seconds, a timedelta or text such as "100ms"; at most 10 s.

    ``with`` runs it on a thread of the runtime's clock (with a simulated GPU on the virtual clock, a registered
    thread). `step()` runs one turn, for programs that have a loop of their own.

    An exception in the policy ends the loop. The limits stay as they are, and the exception is raised by `stop()` and
    at the end of the ``with`` block. Until then `error` has it.
    """

    _kind = "policy"

    def __init__(self, devices: Sequence[VirtualDevice], policy: Callable[[Epoch], Mapping[VirtualDevice, Limits] | None],
                 *, epoch: Duration = 1.0) -> None:
        self.devices = tuple(devices)
        if not self.devices:
            raise ValueError("devices: none given, at least one wanted")
        for device in self.devices:
            if not isinstance(device, VirtualDevice):
                raise TypeError(f"devices: {type(device).__name__} given, gpushare.VirtualDevice wanted")
        if not callable(policy):
            raise TypeError(f"policy: {type(policy).__name__} given, a function of an Epoch wanted")
        super().__init__(self.devices[0].gpu.runtime)
        self.epoch_seconds = duration(epoch, "epoch", most=_LONGEST)
        self._policy = policy
        self._number = 0
        self._before = self._read()

    def _read(self) -> list[VirtualDeviceStats]:
        return [device.stats() for device in self.devices]

    def step(self) -> Epoch:
        """Runs one turn now: determines what happened since the last turn, calls the policy, and resizes. Returns the
        epoch. Raises what the policy or resize() raises; then the devices before the failing one have been resized."""
        after = self._read()
        seconds = max(after[0].time - self._before[0].time, 1e-9)
        usages = []
        for device, new, old in zip(self.devices, after, self._before, strict=True):
            changed = _difference(new, old)
            usages.append(Usage(device, changed.charged / seconds, changed))
        self._before = after
        self._number += 1
        epoch = Epoch(self._number, seconds, tuple(usages))
        answer = self._policy(epoch)
        if answer is None:
            return epoch
        if not isinstance(answer, Mapping):
            raise TypeError(f"the policy returned {type(answer).__name__}; limits by virtual device, or None, wanted")
        for device, limits in answer.items():
            if device not in self.devices:
                raise ValueError(f"the policy returned limits for {device!r}, which is not one of its devices")
            if isinstance(limits, Mapping):
                device.resize(**limits)
            else:
                device.resize(limits)
        return epoch

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the loop, or None."""
        return self._error

    def _prepare(self) -> None:
        self._before = self._read()

    def _work(self) -> None:
        next_time = self._runtime.now() + self.epoch_seconds
        while self._sleep_until(next_time):
            self.step()
            next_time = self._turn_after(next_time, self.epoch_seconds)
