# SPDX-License-Identifier: Apache-2.0
"""How objects are displayed: one line for `repr()`, a table for notebooks.

The table loads nothing from elsewhere. It uses the colours of the page around it, so that it is readable on dark pages,
and escapes names, so that they are shown as text whatever they contain.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ._errors import GpuShareError

if TYPE_CHECKING:
    from . import _core
    from .snapshot import Snapshot, VirtualDeviceStats

_MOST = 6  # devices named in one line


def amount(nbytes: float) -> str:
    """1610612736 -> "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


def duration(seconds: float) -> str:
    """0.0012 -> "1.2 ms"."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _share(part: float) -> str:
    return f"{part * 100:.4g} %"


def _memory(stats: VirtualDeviceStats) -> str:
    return f"{amount(stats.memory_used)} of {amount(stats.memory_limit)}"


def _names(devices: Iterable[VirtualDeviceStats]) -> str:
    listed = [f"{d.tenant!r} {_memory(d)}" for d in devices]
    if not listed:
        return "no virtual devices"
    more = [f"and {len(listed) - _MOST} more"] if len(listed) > _MOST else []
    return ", ".join(listed[:_MOST] + more)


# ---- One line ----


def snapshot_line(snapshot: Snapshot) -> str:
    return f"<gpushare.Snapshot at {snapshot.time:.6f} s: {_names(snapshot.devices)}>"


def stats_line(stats: VirtualDeviceStats) -> str:
    return (f"<gpushare.VirtualDeviceStats of {stats.tenant!r} on GPU {stats.gpu}: {_memory(stats)}, "
            f"{stats.launches} launches, {duration(stats.charged)} of device time, {stats.waits} waits, "
            f"held {duration(stats.throttled)}>")


def virtual_device_line(device: _core.VirtualDevice) -> str:
    where = f"<gpushare.VirtualDevice of {device.tenant_name!r} on GPU {device.gpu.ordinal}"
    try:
        stats = device.stats()
    except GpuShareError:  # a repr() must not raise
        return where + ">"
    suspended = ", suspended" if stats.suspended else ""
    return (f"{where}: {_memory(stats)}, {stats.priority}, weight {stats.weight:g}, "
            f"guarantee {_share(stats.guarantee)}, cap {_share(stats.cap)}{suspended}>")


def gpu_line(gpu: _core.Gpu) -> str:
    where = f"<gpushare.Gpu {gpu.ordinal} {gpu.name!r}"
    try:
        return f"{where}: {_names(_devices(gpu))}>"
    except GpuShareError:
        return where + ">"


def _devices(gpu: _core.Gpu) -> list[VirtualDeviceStats]:
    return [d for d in gpu.runtime.snapshot() if d.gpu == gpu.ordinal]


# ---- A table ----

_CELL = "padding:2px 10px;border:0;text-align:right;white-space:nowrap"
_NAME = "padding:2px 10px;border:0;text-align:left;white-space:nowrap"


def _text(text: str) -> str:
    # <bdi> isolates a name that changes the direction of writing.
    return f"<bdi>{html.escape(text)}</bdi>"


def _bar(part: float, text: str) -> str:
    width = min(max(part, 0.0), 1.0) * 100
    return ('<div style="display:inline-block;width:72px;height:8px;margin-right:8px;border:1px solid currentColor;'
            'border-radius:3px;overflow:hidden;opacity:.8">'
            f'<div style="width:{width:.1f}%;height:100%;background:currentColor"></div></div>{html.escape(text)}')


def _row(stats: VirtualDeviceStats) -> str:
    used = stats.memory_used / stats.memory_limit if stats.memory_limit else 0.0
    cells = [
        str(stats.gpu), _bar(used, _memory(stats)), amount(stats.memory_peak), str(stats.memory_denied),
        stats.priority + (", suspended" if stats.suspended else ""), f"{stats.weight:g}", _share(stats.guarantee),
        _share(stats.cap), str(stats.launches), duration(stats.charged), str(stats.waits), duration(stats.throttled),
        duration(stats.wait_p99),
    ]
    return (f'<tr><th scope="row" style="{_NAME}">{_text(stats.tenant)}</th>' +
            "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")


def table(title: str, devices: Iterable[VirtualDeviceStats]) -> str:
    """Returns an HTML table. `title` is HTML."""
    heads = ["GPU", "memory", "peak", "refused", "priority", "weight", "guarantee", "cap", "launches", "device time",
             "waits", "held", "p99 of waits"]
    rows = "".join(map(_row, devices))
    if not rows:
        return f'<div style="color:inherit">{title}: no virtual devices</div>'
    return (f'<div style="color:inherit;overflow-x:auto"><div style="margin:2px 0">{title}</div>'
            '<table style="border-collapse:collapse;background:transparent;color:inherit;font-size:90%">'
            '<thead><tr style="border-bottom:1px solid currentColor">'
            f'<th scope="col" style="{_NAME}">tenant</th>' +
            "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads) +
            f"</tr></thead><tbody>{rows}</tbody></table></div>")


def snapshot_html(snapshot: Snapshot) -> str:
    return table(f"<b>Snapshot</b> at {snapshot.time:.6f} s", snapshot.devices)


def virtual_device_html(device: _core.VirtualDevice) -> str:
    try:
        stats = device.stats()
    except GpuShareError:
        return html.escape(repr(device))
    return table(f"<b>Virtual device</b> of {_text(stats.tenant)}", [stats])


def gpu_html(gpu: _core.Gpu) -> str:
    try:
        devices, probe = _devices(gpu), gpu.probe()
    except GpuShareError:
        return html.escape(repr(gpu))
    return table(f"<b>GPU {gpu.ordinal}</b> {_text(gpu.name)}, {probe.state}, {amount(probe.memory_total)}, of which "
                 f"{amount(probe.memory_promised)} promised; {_share(probe.guarantees_promised)} of its time guaranteed",
                 devices)
