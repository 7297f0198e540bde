# SPDX-License-Identifier: Apache-2.0
"""Yield points."""

from __future__ import annotations

from . import _core

__all__ = ["yield_point"]


def yield_point(of: _core.VirtualDevice | _core.Stream) -> None:
    """Returns device time that was granted to `of` and not used, so that others have it while the caller computes on
    the host. The next launch asks again.

    Raises:
        ClosedError: `of` is closed.
    """
    if not isinstance(of, (_core.VirtualDevice, _core.Stream)):
        raise TypeError(f"of: {type(of).__name__} given, a VirtualDevice or a Stream wanted")
    of.yield_point()
