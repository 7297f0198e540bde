#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs gpu-facts on the simulated GPU and checks its output.

Every fact must be there with unit, description and either a value or a reason; those that the simulator declares
must come out as declared; each must be named in the documentation.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# The simulator's settings here (gpushare/testing/sim.h) that differ from its defaults.
CONFIGURATION = ("clock=virtual,launch_host=3us,query_host=300ns,record_host=1us,record_device=1us,queue_depth=512,"
                 "h2d=40GB/s,d2h=30GB/s")
# Each fact with its least and greatest value.
EXPECTED = {
    "record_timing": (900, 1500),
    "query_ready": (250, 800),
    "query_not_ready": (250, 800),
    "launch": (2900, 3600),
    "launch_record_1": (3900, 5000),
    "launch_record_64": (2900, 3800),
    "launch_queue_depth": (400, 620),
    "record_bubble_timing": (900, 1200),
    "overlap_half_half": (0.97, 1.03),
    "overlap_full_full": (-0.03, 0.03),
    "probe_alone": (50_000, 65_000),
    "copy_h2d": (38, 41),
    "copy_d2h": (28, 31),
    "elapsed_error_8s": (100, 1100),
}
# These depend on what kernels write or on other processes' use of the device, and are not available here.
NOT_SUPPORTED = ["globaltimer_mean_step", "launch_to_start", "marker_lag_two_streams", "context_turn",
                 "kill_freed_64mib"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--docs", required=True, type=pathlib.Path)
    parser.add_argument("--rules", required=True)
    options = parser.parse_args()
    wrong = []

    listing = subprocess.run([options.program, "--list"], check=True, capture_output=True, text=True).stdout
    names = [line.split()[1] for line in listing.splitlines()]
    documented = set(re.findall(r"`([a-z0-9_]+)`", options.docs.read_text()))
    wrong += [f"{name} is not in {options.docs.name}" for name in names if name not in documented]

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "facts.json"
        environment = dict(os.environ, GPUSHARE_DRIVER=options.driver, GPUSHARE_SIM=CONFIGURATION)
        status = subprocess.run([options.program, "--out", out, "--date", "D", "--commit", "C"], env=environment,
                                check=False).returncode
        if status != 0 or not out.exists():
            sys.exit(f"gpu-facts ended with {status}")
        report = json.loads(out.read_text())
        judged = subprocess.run([sys.executable, options.rules, out, "--json"], capture_output=True, text=True,
                                check=False)

    if report["schema"] != 1 or report["date"] != "D" or report["commit"] != "C":
        wrong.append("schema, date or commit are not what was passed in")
    if report["machine"].get("simulated") is not True or report["machine"].get("sms") != 132:
        wrong.append(f"machine is {report['machine']}")
    facts = report["facts"]
    wrong += [f"{name} is missing" for name in names if name not in facts]
    for name, fact in facts.items():
        if not fact.get("unit") or not fact.get("how"):
            wrong.append(f"{name} has no unit or no description")
        if fact["value"] is None and fact.get("status") != "NOT_SUPPORTED":
            wrong.append(f"{name}: {fact.get('status')}: {fact.get('reason')}")
    for name, (least, most) in EXPECTED.items():
        value = facts[name]["value"]
        if value is None or not least <= value <= most:
            wrong.append(f"{name} is {value}, not in [{least}, {most}]")
    for name in NOT_SUPPORTED:
        if facts[name].get("status") != "NOT_SUPPORTED" or not facts[name].get("reason"):
            wrong.append(f"{name} is {facts[name]}, which cannot be measured here")
    high, equal = (facts[f"probe_beside_1ms_blocks_{which}"]["value"] for which in ("high", "equal"))
    if not (high is not None and equal is not None and high < 1_100_000 < 2_000_000 < equal):
        wrong.append(f"stream priority: {high} ns at the greatest, {equal} ns at an equal one")

    # The rules find the defaults that they refer to, and hold here, where the defaults come from.
    if judged.returncode != 0:
        wrong.append(f"rules: {judged.stdout}{judged.stderr}")
    elif sum(rule["state"] == "holds" for rule in json.loads(judged.stdout)) < 12:
        wrong.append(f"fewer than 12 rules could be judged: {judged.stdout}")

    # Without a driver: a message, and no file.
    broken = subprocess.run([options.program], env=dict(os.environ, GPUSHARE_DRIVER="/nowhere/libcuda.so.1"),
                            capture_output=True, text=True, check=False)
    if broken.returncode != 1 or broken.stdout or "/nowhere/libcuda.so.1" not in broken.stderr:
        wrong.append(f"without a driver: ended with {broken.returncode}, said {broken.stderr!r}")
    for arguments in (["--limit", "x"], ["--only", "nothing"], ["--nonsense", "1"], ["--out"]):
        if subprocess.run([options.program, *arguments], capture_output=True, check=False).returncode != 2:
            wrong.append(f"{arguments} was accepted")
    print("\n".join(wrong) if wrong else f"{len(names)} facts as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
