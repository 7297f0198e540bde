# SPDX-License-Identifier: Apache-2.0
"""Checks arguments."""

from __future__ import annotations

from .. import _core
from .._given import Duration, duration
from ._pace import Pace


def virtual_device(device: _core.VirtualDevice, *, usable: bool = True) -> _core.VirtualDevice:
    """Returns `device`. Raises TypeError for anything else, ClosedError or ForkedError when it is not `usable`."""
    if not isinstance(device, _core.VirtualDevice):
        raise TypeError(f"device: {type(device).__name__} given, gpushare.VirtualDevice wanted")
    if usable:
        device.memory
    return device


def pace(hint: Duration | None) -> Pace | None:
    """The pace of leases that take `hint`; None for the stream's own pace."""
    return None if hint is None else Pace(duration(hint, "hint", most=60))


def flag(value: bool, field: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{field}: {type(value).__name__} given, bool wanted")
    return value
