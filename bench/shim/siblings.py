#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures, under a broker, that the cost of an allocation and its free does not depend on how many other processes of the
same tenant there are.

    siblings.py --calls PROGRAM --preload OBJECT --command GPUSHARE [--siblings N] [--rounds N] [--check]

The siblings hold 1 MiB each and do nothing. Rounds with and without them alternate, and the fastest of each counts. --check
exits with 1 when the cost with siblings is more than 1.2 times the cost without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "broker"))
from broker_process import broker  # noqa: E402

BAR = 1.2
FIGURES = ("alloc_free", "alloc_free_100k_live")
CONFIG = "tenants: [{name: a, spec: memory=8GiB}]\n"


def measure(options: argparse.Namespace, environment: dict[str, str], figure: str) -> float:
    done = subprocess.run([options.calls, "3", figure], env=environment, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout.split()[1])


def measure_all(options: argparse.Namespace, environment: dict[str, str]) -> dict[tuple[str, int], float]:
    """The fastest round of each figure, by the number of siblings."""
    best: dict[tuple[str, int], float] = {}
    for _ in range(options.rounds):
        for count in (0, options.siblings):
            siblings = [subprocess.Popen([options.calls, "hold"], env=environment, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE) for _ in range(count)]
            for each in siblings:
                if each.stdout.readline() != b"ready\n":
                    sys.exit("siblings.py: a sibling has no share")
            for figure in FIGURES:
                took = measure(options, environment, figure)
                best[figure, count] = min(best.get((figure, count), took), took)
            for each in siblings:
                each.stdin.close()
            for each in siblings:
                each.wait()
                each.stdout.close()
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", required=True, help="the program bench/shim/calls.c")
    parser.add_argument("--preload", required=True, help="libgpushare_preload.so")
    parser.add_argument("--command", required=True, help="gpushare")
    parser.add_argument("--siblings", type=int, default=127)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the bar is missed")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="gpushare-siblings-") as folder:
        clock = {**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=wall"}
        with broker(options.command, folder, CONFIG, clock) as (_, socket):
            environment = {**clock, "LD_PRELOAD": options.preload, "GPUSHARE_BROKER": socket, "GPUSHARE_TENANT": "a"}
            best = measure_all(options, environment)

    missed = False
    for figure in FIGURES:
        alone, beside = best[figure, 0], best[figure, options.siblings]
        missed = missed or beside > BAR * alone
        print(f"{figure:22} {alone:8.2f} ns alone, {beside:8.2f} ns beside {options.siblings}: {beside / alone:.2f} times "
              f"(bar {BAR}){'' if beside <= BAR * alone else '  MISSED'}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
