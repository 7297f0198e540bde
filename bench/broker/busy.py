#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much of a core a broker uses while all its tenants are busy. Each tenant is a process that waits for each
160 us of its kernels, and allocates and copies in between (tests/processes/victim.c).

    busy.py --program VICTIM --preload OBJECT --command GPUSHARE [--tenants N] [--seconds S] [--rounds N] [--check]

The figure is the median of the rounds: on a busy machine the broker and its tenants get only what other programs leave of the
cores, so in a single round the broker may have had nothing to do. --check exits with 1 when the median is above 2 % of a core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from broker_process import broker

BAR = 2.0  # percent of a core


def run_ns(pid: int) -> int:
    """Processor time of all threads, in nanoseconds."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as figures:
            total += int(figures.read().split()[0])
    return total


def switches(pid: int) -> int:
    """How often the process's threads have gone to sleep. They do so after each look."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))
    return total


def measure(options: argparse.Namespace, environment: dict[str, str], broker_pid: int) -> list[tuple[float, float]]:
    """For each round, how much of a core the broker used in percent, and how often it slept per second."""
    tenants = [subprocess.Popen([options.program], stdout=subprocess.DEVNULL, env={**environment, "GPUSHARE_TENANT": f"t{i}"})
               for i in range(options.tenants)]
    rounds = []
    try:
        time.sleep(1)  # by then they have started
        for _ in range(options.rounds):
            began, used, slept = time.monotonic(), run_ns(broker_pid), switches(broker_pid)
            time.sleep(options.seconds)
            took = time.monotonic() - began
            rounds.append((100e-9 * (run_ns(broker_pid) - used) / took, (switches(broker_pid) - slept) / took))
        if any(tenant.poll() is not None for tenant in tenants):
            sys.exit("busy.py: a tenant has ended")
        if not any(looks for _, looks in rounds):
            sys.exit("busy.py: the broker has not been woken, so the tenants are not its own")
    finally:
        for tenant in tenants:
            tenant.kill()
            tenant.wait()
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program tests/processes/victim.c")
    parser.add_argument("--preload", required=True, help="libgpushare_preload.so")
    parser.add_argument("--command", required=True, help="gpushare")
    parser.add_argument("--tenants", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the bar is missed")
    options = parser.parse_args()
    for name in (options.program, options.preload, options.command):
        if not os.path.isfile(name):
            parser.error(f"{name} is not there")

    with tempfile.TemporaryDirectory(prefix="gpushare-busy-") as folder:
        tenants_of = "".join(f"  - {{name: t{i}, spec: 'memory=64MiB'}}\n" for i in range(options.tenants))
        # The programs find the preloaded library as libcuda.so.1. The simulated GPU behind it is shared by all of them.
        environment = {**os.environ, "GPUSHARE_DRIVER": "sim",
                       "GPUSHARE_SIM": f"memory=16GiB,clock=wall,shared={os.path.basename(folder)}"}
        with broker(options.command, folder, "tenants:\n" + tenants_of, environment) as (process, socket):
            rounds = measure(options, {**environment, "LD_PRELOAD": options.preload, "GPUSHARE_BROKER": socket}, process.pid)

    percent, looks = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"{options.tenants} busy tenants: {percent:.2f} % of a core (bar {BAR:.0f} %), "
          f"{min(rounds)[0]:.2f} to {max(rounds)[0]:.2f}; woken {looks:.0f} times a second"
          f"{'' if percent <= BAR else '  MISSED'}")
    return 1 if percent > BAR and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
