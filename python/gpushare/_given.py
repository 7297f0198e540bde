# SPDX-License-Identifier: Apache-2.0
"""Arguments that have to be gpushare's own objects, or bools: refused by name at the call, not somewhere behind it."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def given(value: Any, cls: type[T], field: str) -> T:
    """`value`; raises TypeError, "device: str given, gpushare.VirtualDevice wanted", when it is no `cls`."""
    if not isinstance(value, cls):
        name = cls.__name__ if cls.__module__ == "builtins" else f"gpushare.{cls.__name__}"
        raise TypeError(f"{field}: {type(value).__name__} given, {name} wanted")
    return value
