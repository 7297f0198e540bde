#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the preloaded libraries add to calls of the driver and of NVML, and to the start of a process.

    overhead.py --calls PROGRAM --nvml-calls PROGRAM --preload OBJECT:OBJECT [--rounds N] [--json FILE] [--check]

The same program runs bare and preloaded in turns, with a memory quota and a cap that it never reaches. The fastest round of each
side counts, because other load on the machine can only add time. When preloaded, the program makes each call directly as
well, past gpushare, in turns with the other way. "within" is the difference in that process, the median of the rounds.
--check exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# The bars: nanoseconds more than the bare call, or times the bare call.
BARS = {
    "passed_on": ("ns more", 1.5),
    "mem_get_info": ("ns more", 15),
    "alloc_free": ("ns more", 45),
    "alloc_free_100k_live": ("ns more", 45),
    "launch": ("ns more", 8),
    "launch_4_kernels": ("ns more", 8),
    "launch_4_streams": ("ns more", 8),
    "launch_legacy": ("ns more", 8),
    "launch_per_thread": ("ns more", 8),
    "get_proc_address": ("times", 1.2),
    "nvml_passed_on": ("ns more", 1.5),
    "nvml_memory_info": ("ns more", 5000),
    "nvml_utilization": ("ns more", 5000),
    "nvml_processes": ("ns more", 5000),
    "monitor_memory_info": ("ns more", 20000),
    "process_start_us": ("us more", 200),
}


def calls(program: str, environment: dict[str, str]) -> dict[str, list[float]]:
    """The values of each line. For calls of the driver, the second value is the call past the preloaded library."""
    done = subprocess.run([program, "3"], env=environment, capture_output=True, text=True, check=True, timeout=300)
    return {name: [float(value) for value in values] for name, *values in map(str.split, done.stdout.splitlines())}


def start(environment: dict[str, str]) -> float:
    """Microseconds that a process which does nothing takes: the fastest of several."""
    best = float("inf")
    for _ in range(100):
        began = time.perf_counter()
        subprocess.run(["/bin/true"], env=environment, check=True)
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", required=True, help="the program bench/shim/calls.c")
    parser.add_argument("--nvml-calls", required=True, help="the program bench/shim/nvml_calls.c")
    parser.add_argument("--preload", required=True, help="libgpushare_preload.so:libgpushare_preload_nvml.so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    options = parser.parse_args()

    sides = {
        "bare": dict(os.environ),
        "preloaded": {**os.environ, "LD_PRELOAD": options.preload, "GPUSHARE_SPEC": "memory=8GiB,cap=99%"},
    }
    best: dict[str, dict[str, float]] = {name: {} for name in sides}
    within: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, environment in sides.items():
            for figure, values in {**calls(options.calls, environment), **calls(options.nvml_calls, environment),
                                   "process_start_us": [start(environment)]}.items():
                best[name][figure] = min(best[name].get(figure, values[0]), values[0])
                if name == "preloaded" and len(values) > 1:
                    within.setdefault(figure, []).append(values[0] - values[1])

    missed = False
    rows = []
    print(f"{'':22} {'bare':>9} {'preloaded':>9} {'within':>8}   difference")
    for figure, (unit, bar) in BARS.items():
        bare, ours = best["bare"][figure], best["preloaded"][figure]
        cost = ours / bare if unit == "times" else ours - bare
        missed = missed or cost > bar
        beside = statistics.median(within[figure]) if figure in within else None
        rows.append({"figure": figure, "bare": bare, "preloaded": ours, "within": beside, "cost": cost, "unit": unit,
                     "bar": bar})
        inside = f"{beside:8.2f}" if beside is not None else " " * 8
        print(f"{figure:22} {bare:9.2f} {ours:9.2f} {inside}   {cost:.2f} {unit} (bar {bar})"
              f"{'' if cost <= bar else '  MISSED'}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
