# SPDX-License-Identifier: Apache-2.0
"""Arguments."""

from __future__ import annotations

from .. import _core
from .._errors import InvalidArgumentError
from ._pace import Pace


def virtual_device(device: _core.VirtualDevice, *, usable: bool = True) -> _core.VirtualDevice:
    """`device`; raises TypeError when it is something else, ClosedError or ForkedError when it is not `usable`."""
    if not isinstance(device, _core.VirtualDevice):
        raise TypeError(f"device: {type(device).__name__} given, gpushare.VirtualDevice wanted")
    if usable:
        device.memory
    return device


def pace(hint: float | None) -> Pace | None:
    """Of leases that take `hint` seconds; None for the stream's own."""
    value = hint
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"hint: {type(value).__name__} given, seconds as float wanted")
    if not 0 < value <= 60:
        raise InvalidArgumentError(f"hint: {value} s given, above 0 and at most 60 wanted", code="INVALID_ARGUMENT")
    return Pace(float(value))


def flag(value: bool, field: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{field}: {type(value).__name__} given, bool wanted")
    return value
