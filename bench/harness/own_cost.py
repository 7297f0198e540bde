#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `gpushare bench` itself takes of a scenario, beside the programs that it starts.

    bench/harness/own_cost.py build/release/bin/gpushare share:native share:gpushare cap:gpushare latency:gpushare

For each SCENARIO:METHOD, one repetition: the length of its runs as the scenario has them, with those alone; the command's own
processor time, without its programs'; the machine's time in which none of its programs was there; and that of all of it, the
least of --times each. The first two in ms and in % of that length. Whether a program is there is looked at every half millisecond. Exits with 1 where one of
them is more than 1 %. For figures to quote nothing else runs on the machine.
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
    """How long the runs of the results are, with those alone: one for each tenant that was played so."""
    length = 0
    for line in results.read_text().splitlines()[1:]:
        run = json.loads(line)
        alone = sum("alone_us" in tenant for tenant in run["course"]["tenants"])
        length += (1 + alone) * run["length_ns"] / 1e6
    return length


def own_ms(pid):
    """Processor time of the process, which has ended and had one thread, without its children's."""
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
