#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the facts of a GPU with the defaults of gpushare.

  bench/gpu/rules.py FACTS.json [--json]

FACTS.json was written by scripts/gpu-facts or scripts/gpu-suite. Prints each rule of docs/on-a-gpu.md with its figures:
holds, BROKEN, or unknown if a fact could not be measured. The exit status is 1 when a rule is broken.
The defaults are read from the headers that define them.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNITS_NS = {"Nanos": 1, "Micros": 1_000, "Millis": 1_000_000, "Seconds": 1_000_000_000}


def defaults():
    """The defaults of EngineOptions and ArbiterOptions by name, as nanoseconds or numbers."""
    found = {}
    for header in ("src/sched/arbiter.h", "src/gate/engine.h"):  # the engine overrides the arbiter
        text = (ROOT / header).read_text()
        for name, unit, number in re.findall(r"Nanos (\w+)\s*=\s*(Nanos|Micros|Millis|Seconds)\((\d+)\);", text):
            found[name] = int(number) * UNITS_NS[unit]
        for name, unit, number in re.findall(r"Nanos (\w+)\{()(\d+)\};", text):
            found[name] = int(number)
        for name, unit, number in re.findall(r"options\.(\w+) = (Nanos|Micros|Millis|Seconds)\((\d+)\);", text):
            found[name] = int(number) * UNITS_NS[unit]
        for name, number in re.findall(r"(?:int |options\.)(\w+) = (\d+);", text):
            found[name] = int(number)
    return found


class Unknown(Exception):
    """A fact that the rule needs has no value."""


class Facts:
    def __init__(self, facts):
        self.facts = facts

    def get(self, name, field="value"):
        value = self.facts.get(name, {}).get(field)
        if value is None:
            raise Unknown(name)
        return value

    def spread(self, name):
        low, high = self.get(name, "iqr")
        return high - low

    def green(self, asked):
        for row in self.get("green_split"):
            if row["asked"] == asked:
                return row.get("sms", 0)
        raise Unknown(f"green_split of {asked}")


def ns(value):
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ns"


def at_most(value, limit, show=ns):
    return value <= limit, f"{show(value)} <= {show(limit)}"


def at_least(value, limit, show=ns):
    return value >= limit, f"{show(value)} >= {show(limit)}"


def plain(value):
    return f"{value:.4g}"


# Each rule's text and its test, which returns whether the rule holds, and the figures.
RULES = [
    ("a marker each grant_commands costs a launch at most 60 ns",
     lambda f, d: at_most(f.get("record_timing_busy") / d["grant_commands"], 60)),
    ("recording costs the host at most 2 % of a lone grant",
     lambda f, d: at_most(f.get("record_timing_busy"), 0.02 * d["lone_grant"])),
    ("a record costs the device at most 10 % of a contended grant, in which others have work",
     lambda f, d: at_most(f.get("record_bubble_timing"), 0.1 * d["grant"])),
    ("a record costs the device at most 1.5 % of a lone grant, in which nobody fills the pause",
     lambda f, d: at_most(f.get("record_bubble_timing"), 0.015 * d["lone_grant"])),
    ("markers of two streams lag their kernels evenly: spread at most 5 % of a grant",
     lambda f, d: at_most(f.spread("marker_lag_two_streams"), 0.05 * d["grant"])),
    ("elapsed times counted from 4 s before err by at most 5 % of a grant",
     lambda f, d: at_most(f.get("elapsed_error_4s"), 0.05 * d["grant"])),
    ("anticipation covers three launches",
     lambda f, d: at_least(d["anticipation"], 3 * f.get("launch"))),
    ("high_grace covers three launches",
     lambda f, d: at_least(d["high_grace"], 3 * f.get("launch"))),
    ("low_window covers waking a thread and its launch reaching the device",
     lambda f, d: at_least(d["low_window"], f.get("launch_to_start") + f.get("futex_wake"))),
    ("window is two low_windows and a wake-up",
     lambda f, d: at_least(d["window"], 2 * d["low_window"] + f.get("futex_wake"))),
    ("the driver's launch queue is deeper than a window of empty kernels",
     lambda f, d: at_least(f.get("launch_queue_depth"), d["window"] / f.get("empty_kernel_interval"), plain)),
    ("stream priority acts at block boundaries: 1 ms blocks hold the probe for one block at most",
     lambda f, d: at_most(f.get("probe_beside_1ms_blocks_high", "p99"), f.get("probe_alone", "p99") + 1.1e6)),
    ("stream priority acts at block boundaries: 50 us blocks hold the probe for one block at most",
     lambda f, d: at_most(f.get("probe_beside_50us_blocks_high", "p99"), f.get("probe_alone", "p99") + 75e3)),
    ("kernels that fill the device run in turn",
     lambda f, d: at_most(abs(f.get("overlap_full_full")), 0.05, plain)),
    ("kernels on halves of the device run together",
     lambda f, d: at_least(f.get("overlap_half_half"), 0.95, plain)),
    ("copies in chunks of 4 MiB reach 95 % of the bandwidth",
     lambda f, d: at_least(f.get("copy_h2d_4mib_chunks"), 0.95 * f.get("copy_h2d"), plain)),
    ("a spatial share can be as small as 8 SMs",
     lambda f, d: at_most(f.green(8), 8, plain)),
]


def judge(facts):
    """Each rule as {"rule", "state", "figures"}."""
    known = defaults()
    judged = []
    for rule, test in RULES:
        try:
            holds, figures = test(Facts(facts), known)
            judged.append({"rule": rule, "state": "holds" if holds else "BROKEN", "figures": figures})
        except Unknown as missing:
            judged.append({"rule": rule, "state": "unknown", "figures": f"no {missing}"})
    return judged


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    data = json.loads(options.file.read_text())
    facts = data["facts"] if "facts" in data else data["steps"]["facts"]["facts"]
    judged = judge(facts)
    if options.json:
        print(json.dumps(judged, indent=1))
    else:
        for rule in judged:
            print(f"{rule['state']:8} {rule['rule']}: {rule['figures']}")
    return 1 if any(rule["state"] == "BROKEN" for rule in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
