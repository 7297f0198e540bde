#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what `gpushare bench` itself adds to a scenario, besides the programs that it starts.

    bench/harness/own_cost.py build/release/bin/gpushare share:native share:gpushare cap:gpushare latency:gpushare

For each SCENARIO:METHOD, runs one repetition and prints: the length of its runs according to the scenario, including the runs of
tenants alone; the command's own processor time, without its programs'; the time during which none of its programs existed; and
the time of the whole command. Each is the minimum of --times repetitions. The second and the third are in ms and in % of the
length. Whether a program exists is checked every half millisecond. The exit status is 1 if one of them exceeds 1 %. To quote
figures, run nothing else on the machine.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def runs_ms(results):
    """The total length of the runs in the results, including one run alone for each tenant that had one."""
    length = 0
    for line in results.read_text().splitlines()[1:]:
        run = json.loads(line)
        alone = sum("alone_us" in tenant for tenant in run["course"]["tenants"])
        length += (1 + alone) * run["length_ns"] / 1e6
    return length


def own_ms(pid):
    """Processor time, without its children's, of a process that had one thread and has ended."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def once(command, scenario, method, out):
    running = subprocess.Popen([command, "bench", "run", scenario, "--method", method, "--repetitions", "1", "--quiet", "--force",
                                "--out", out], stdout=subprocess.DEVNULL)
    children = f"/proc/{running.pid}/task/{running.pid}/children"
    begun = before = time.monotonic()
    by_itself = 0
    while os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        time.sleep(0.0005)
        with open(children) as file:
            is_alone = not file.read()
        now = time.monotonic()
        by_itself += now - before if is_alone else 0
        before = now
    took = time.monotonic() - begun
    processor = own_ms(running.pid)
    if running.wait() != 0:
        sys.exit(f"gpushare bench run {scenario} --method {method} exits with {running.returncode}")
    return processor, by_itself * 1000, took * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("runs", nargs="+", metavar="SCENARIO:METHOD")
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    print("| | length of its runs | the command's own processor time | time without its programs | the command took |\n"
          "|---|---|---|---|---|")
    too_much = False
    for run in arguments.runs:
        scenario, method = run.rsplit(":", 1)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "results.jsonl")
            found = [once(arguments.command, scenario, method, out) for _ in range(arguments.times)]
            length = runs_ms(out)
        processor, outside, took = (min(each) for each in zip(*found))
        too_much = too_much or max(processor, outside) > length / 100
        print(f"| {scenario}, {method} | {length / 1000:.0f} s | {processor:.0f} ms, {100 * processor / length:.2f} % "
              f"| {outside:.0f} ms, {100 * outside / length:.2f} % | {took / 1000:.1f} s |", flush=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
