# SPDX-License-Identifier: Apache-2.0
"""Checks arguments that must be gpushare's own objects, bools, whole numbers or durations. Invalid ones are refused by
name at the call and not somewhere later."""

from __future__ import annotations

import datetime
import operator
from typing import Any, TypeVar, Union

from ._core import _duration
from ._errors import InvalidArgumentError

T = TypeVar("T")

Duration = Union[float, str, datetime.timedelta]


def given(value: Any, cls: type[T], field: str) -> T:
    """Returns `value`. Raises TypeError, "device: str given, gpushare.VirtualDevice wanted", if it is not a `cls`."""
    if not isinstance(value, cls):
        name = cls.__name__ if cls.__module__ == "builtins" else f"gpushare.{cls.__name__}"
        raise TypeError(f"{field}: {type(value).__name__} given, {name} wanted")
    return value


def whole(value: Any, field: str) -> int:
    """Returns `value` as an int; accepts numpy's integers. Raises TypeError for anything else, including a bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{field}: {type(value).__name__} given, int wanted")
    return operator.index(value)


def duration(value: Duration, field: str, *, most: float | None = None) -> float:
    """Returns `value` in seconds. With `most`, it must be above 0 and at most that.

    Raises:
        TypeError: neither a number nor a timedelta nor text.
        InvalidArgumentError (ValueError): negative, not a number, text without a unit, or out of the range.
    """
    seconds = _duration(value, field)
    if most is not None and not 0 < seconds <= most:
        unit = "" if isinstance(value, (str, datetime.timedelta)) else " s"
        raise InvalidArgumentError(f"{field}: {value}{unit} given, above 0 s and at most {most:g} s wanted",
                                   code="INVALID_ARGUMENT")
    return seconds
