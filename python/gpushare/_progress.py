# SPDX-License-Identifier: Apache-2.0
"""A progress bar, if tqdm is installed and the output is a terminal."""

from __future__ import annotations

import importlib
import sys
from types import TracebackType
from typing import Any

__all__ = ["Progress"]


class Progress:
    """with Progress(10.0, "recording", unit="s") as progress: progress.update(0.1)"""

    def __init__(self, total: float, what: str, *, unit: str, show: bool | None = None) -> None:
        """`show`: whether to show the bar; None: only if standard error is a terminal."""
        self._bar: Any = None
        if show is None:
            show = sys.stderr is not None and sys.stderr.isatty()
        if not show:
            return
        try:
            tqdm = importlib.import_module("tqdm").tqdm
        except ImportError:
            return
        self._bar = tqdm(total=round(total, 9), desc=what, unit=unit, leave=False,
                         bar_format="{desc} {bar} {n:.1f} of {total:.1f} {unit}")

    def update(self, by: float) -> None:
        if self._bar is not None:
            self._bar.update(by)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
