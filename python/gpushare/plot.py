# SPDX-License-Identifier: Apache-2.0
"""Plots of what tenants got over time. They need matplotlib: ``pip install 'gpushare[plot]'``.

    with gpushare.record(gpu, every="100ms") as recorder:
        serve()
    axes = gpushare.plot.shares(recorder)          # gpushare.plot.memory, gpushare.plot.waits
    axes.figure.savefig("shares.png")

Each function takes a Recorder, a list of Snapshots, a Trace or a list of its events, and draws on `ax`, or on new axes.
They work without a display. A tenant has the same colour and the same dashes in all plots; only both together
distinguish it from others. With several GPUs the lines are labelled "tenant (GPU 1)".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

from ._record import Recorder
from ._trace import Trace, TraceEvent
from .snapshot import Snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["memory", "shares", "waits"]

Source = Union[Recorder, Trace, Iterable[Snapshot], Iterable[TraceEvent]]

# The palette of Okabe and Ito, which colour-blind people can distinguish, without its yellow, which is too light.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (9, 2)))
_BINS = 200  # for a trace


@dataclasses.dataclass
class _Lines:
    """The data of one tenant's line; times are in seconds since the first."""

    times: list[float] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)
    limits: list[float] = dataclasses.field(default_factory=list)


_Key = tuple[int, str]  # GPU and tenant


def _given(source: Source) -> tuple[list[Snapshot], list[TraceEvent]]:
    if isinstance(source, Recorder):
        source = source.snapshots
    elif isinstance(source, Trace):
        source = source.events
    items = list(source)
    snapshots = [item for item in items if isinstance(item, Snapshot)]
    events = [item for item in items if isinstance(item, TraceEvent)]
    if len(snapshots) == len(items) and len(items) > 1:
        return snapshots, []
    if len(events) == len(items) and items:
        return [], events
    if len(items) < 2 and len(snapshots) == len(items):
        raise ValueError(f"{len(items)} snapshots given, 2 or more wanted: a plot is of what happened between them")
    raise TypeError("a Recorder, a Trace, or a list of Snapshots or of TraceEvents wanted")


def _between(snapshots: list[Snapshot], field: str) -> dict[_Key, _Lines]:
    """How fast a counter grew, by tenant: one value for each interval, at its end."""
    lines: dict[_Key, _Lines] = {}
    for before, after in zip(snapshots, snapshots[1:]):  # noqa: B905
        seconds = after.time - before.time
        if seconds <= 0:
            continue
        for device in after - before:
            line = lines.setdefault((device.gpu, device.tenant), _Lines())
            line.times.append(after.time - snapshots[0].time)
            line.values.append(getattr(device, field) / seconds)
    return lines


def _binned(events: list[TraceEvent], kind: str, weigh: bool) -> dict[_Key, _Lines]:
    """Spreads the events of a kind over their duration. Each bin's value is the part of its length that the events
    cover. `weigh`: use the events' values instead of their durations."""
    begin = min(event.begin for event in events)
    width = max(max(event.end for event in events) - begin, 1e-9) / _BINS
    lines: dict[_Key, _Lines] = {}
    for event in events:
        if event.kind != kind:
            continue
        line = lines.setdefault((event.gpu, event.tenant), _Lines(
            [(i + 1) * width for i in range(_BINS)], [0.0] * _BINS))
        amount = event.value if weigh else event.duration
        first = min(int((event.begin - begin) / width), _BINS - 1)
        last = min(int((event.end - begin) / width), _BINS - 1)
        for i in range(first, last + 1):
            part = 1.0
            if event.duration > 0:
                inside = min(event.end, begin + (i + 1) * width) - max(event.begin, begin + i * width)
                part = max(inside, 0.0) / event.duration
            elif i != first:
                continue
            line.values[i] += amount * part / width
    return lines


def _used(snapshots: list[Snapshot], events: list[TraceEvent]) -> dict[_Key, _Lines]:
    lines: dict[_Key, _Lines] = {}
    for snapshot in snapshots:
        for device in snapshot:
            line = lines.setdefault((device.gpu, device.tenant), _Lines())
            line.times.append(snapshot.time - snapshots[0].time)
            line.values.append(device.memory_used)
            line.limits.append(device.memory_limit)
    begin = min((event.begin for event in events), default=0.0)
    for event in events:
        if event.kind != "memory":
            continue
        line = lines.setdefault((event.gpu, event.tenant), _Lines())
        line.times.append(event.begin - begin)
        line.values.append(event.value)
        line.limits.append(event.other)
    return lines


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("gpushare.plot needs matplotlib: pip install 'gpushare[plot]'") from error
    return plt.subplots(figsize=(8, 3.5), layout="constrained")[1]


def _draw(ax: Axes | None, lines: dict[_Key, _Lines], ylabel: str, where: Literal["pre", "post"],
          scale: float = 1.0) -> Axes:
    ax = _axes(ax)
    several = len({gpu for gpu, _ in lines}) > 1
    for i, ((gpu, tenant), line) in enumerate(sorted(lines.items())):
        colour = _COLOURS[i % len(_COLOURS)]
        times, values = line.times, [value * scale for value in line.values]
        if where == "pre":  # the value of an interval begins where the interval does
            step = times[0] - (times[1] - times[0]) if len(times) > 1 else 0.0
            times, values = [max(step, 0.0), *times], [values[0], *values]
        label = f"{tenant} (GPU {gpu})" if several else tenant
        # A name with "$" is not a formula, and a name that begins with "_" must not be hidden.
        label = "\u200b" + label.replace("$", r"\$") if label.startswith("_") else label.replace("$", r"\$")
        ax.step(times, values, where=where, color=colour, linestyle=_DASHES[i % len(_DASHES)], linewidth=1.6,
                label=label)
        if line.limits:
            ax.step(times, [limit * scale for limit in line.limits], where=where, color=colour, linestyle=(0, (1, 3)),
                    linewidth=1.0, label="_limit")
    ax.set_xlabel("time (s)")
    ax.set_ylabel(ylabel)
    ax.margins(x=0)
    if all(value >= 0 for line in lines.values() for value in line.values):
        ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if lines:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def shares(source: Source, *, ax: Axes | None = None) -> Axes:
    """Plots the device time that each tenant was charged, in percent of the elapsed time. For snapshots this is what
    was charged in an interval, including corrections of earlier charges; for a trace, what was measured.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: fewer than two snapshots.
    """
    snapshots, events = _given(source)
    lines = _between(snapshots, "charged") if snapshots else _binned(events, "device", True)
    return _draw(ax, lines, "share of the device (%)", "pre", 100)


def memory(source: Source, *, ax: Axes | None = None) -> Axes:
    """Plots the memory that each tenant held, in GiB, and its limit as a thin dotted line of the same colour."""
    snapshots, events = _given(source)
    return _draw(ax, _used(snapshots, events), "memory (GiB)", "post", 2.0**-30)


def waits(source: Source, *, ax: Axes | None = None) -> Axes:
    """Plots how many threads of each tenant were held at the gate, on average."""
    snapshots, events = _given(source)
    lines = _between(snapshots, "throttled") if snapshots else _binned(events, "wait", False)
    return _draw(ax, lines, "threads held (mean)", "pre")
