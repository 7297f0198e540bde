#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much more a call costs from Python than from C: leases, launches, the C-function allocator, the import.

    overhead.py [--baseline libpython_baseline.so] [--calls N] [--rounds N] [--json FILE] [--check]

Both sides run in this process on the same simulated GPU, in turns, and the fastest round of each counts,
because other load on the machine can only add time. bench/python/README.md has the bars; --check exits with 1
when one is missed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

import gpushare

SYNCHRONIZE_EVERY = 256  # as in baseline.c

PTX = """
.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1us
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a) { ret; }
"""


class Baseline:
    def __init__(self, path: pathlib.Path) -> None:
        library = ctypes.CDLL(str(path))
        for name in ("baseline_lease", "baseline_launch", "baseline_alloc"):
            function = getattr(library, name)
            function.restype, function.argtypes = ctypes.c_double, [ctypes.c_long]
            setattr(self, name.removeprefix("baseline_"), function)
        self.c_functions = library.c_functions_alloc
        self.c_functions.restype = ctypes.c_double
        self.c_functions.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]


def lease(calls: int) -> float:
    with gpushare.simulated_gpu() as gpu:
        device = gpu.virtual_device("python", memory="8GiB")
        permit = device.lease(hint="1us", streams=[device.stream()])  # short, so that no launch waits for a turn
        numbers = range(calls)
        began = time.perf_counter()
        for _ in numbers:
            with permit:
                pass
        return time.perf_counter() - began


def launch(calls: int) -> float:
    with gpushare.simulated_gpu() as gpu:
        device = gpu.virtual_device("python", memory="8GiB")
        stream, kernel = device.stream(), gpu.load(PTX)["saxpy"]
        x, y = device.alloc(4000), device.alloc(4000)
        numbers = range(calls)
        began = time.perf_counter()
        for i in numbers:
            stream.launch(kernel, 1, 256, x, y, 1000, 2.0)
            if i % SYNCHRONIZE_EVERY == 0:
                stream.synchronize()
        return time.perf_counter() - began


def allocator(baseline: Baseline, calls: int) -> float:
    with gpushare.simulated_gpu() as gpu:
        own = gpu.virtual_device("python", memory="8GiB").allocator()
        return baseline.c_functions(calls, *own.c_functions())


def import_seconds(statement: str) -> float:
    """Processor time of a new interpreter that runs the statement, including its start."""
    process = subprocess.Popen([sys.executable, "-c", statement])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return -1.0 if process.returncode != 0 else used.ru_utime + used.ru_stime


def fastest(rounds: int, *sides):
    """The fastest round of each side, in seconds."""
    best = [float("inf")] * len(sides)
    for _ in range(rounds):
        for i, side in enumerate(sides):
            seconds = side()
            if seconds < 0:
                raise SystemExit("overhead.py: the baseline failed")
            best[i] = min(best[i], seconds)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=pathlib.Path, required=True)
    parser.add_argument("--calls", type=int, default=1000, help="in a round, short so that some are undisturbed")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    baseline, calls, rounds = Baseline(options.baseline), options.calls, options.rounds

    results = []

    def add(name: str, unit: str, scale: float, raw: float, ours: float, bar: float) -> None:
        results.append({"what": name, "unit": unit, "raw": raw * scale, "python": ours * scale,
                        "beyond": (ours - raw) * scale, "bar": bar})

    raw, ours = fastest(rounds, lambda: baseline.lease(calls), lambda: lease(calls))
    add("with lease:", "ns", 1e9 / calls, raw, ours, 1000)
    raw, ours = fastest(rounds, lambda: baseline.launch(calls), lambda: launch(calls))
    add("Stream.launch", "ns", 1e9 / calls, raw, ours, 1000)
    raw, ours = fastest(rounds, lambda: baseline.alloc(calls), lambda: allocator(baseline, calls))
    add("C-function allocator, alloc + free", "ns", 1e9 / calls, raw, ours, 100)
    raw, ours = fastest(min(rounds, 20), lambda: import_seconds("pass"), lambda: import_seconds("import gpushare"))
    add("import gpushare", "ms", 1e3, raw, ours, 50)

    print(f"gpushare {gpushare.__version__}, Python {sys.version.split()[0]}, "
          f"the fastest of {rounds} rounds of {calls} calls")
    print(f"{'':36} {'from C':>10} {'Python':>10} {'beyond':>10} {'bar':>8}")
    missed = 0
    for r in results:
        short = r["beyond"] > r["bar"]
        missed += short
        print(f"{r['what']:36} {r['raw']:7.0f} {r['unit']} {r['python']:7.0f} {r['unit']} {r['beyond']:7.0f} {r['unit']} "
              f"{r['bar']:5} {r['unit']}{'  SHORT' if short else ''}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
