#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scenarios of real kernel traces: every two of a folder's beside one another, and services beside training jobs.

    bench/traces/pairs.py FOLDER --out made --three bert_b2,resnet50_b32,resnet50_b4
    gpushare bench run made/pairs.yaml made/services.yaml --repetitions 3

FOLDER has traces as `gpushare bench record` writes them (docs/recording.md), NAME.csv or NAME.csv.gz; those whose name has
"inference" in it are services, those with "training" the jobs beside them. `pairs.yaml` asks whether each tenant gets its
share: 70 and 30 % of every two in both orders, 50, 30 and 20 % of each --three, whose names are begins of files' names.
`services.yaml` asks how much longer requests at 20 and at 50 % of the time take beside a job, and what the job has.
"""

import argparse
import itertools
import json
import pathlib
import re
import sys

HEAD = """# Made by bench/traces/pairs.py.
about: {about}
question: {question}
length: {length}
warm_up: 1s
window: 1s
cases:
"""


def traces(folder):
    """Paths by names that a scenario takes."""
    found = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        if not re.search(r"\.csv(\.gz)?$", path.name):
            continue
        name = re.sub("[^a-z0-9]+", "-", re.sub(r"\.csv(\.gz)?$", "", path.name).lower()).strip("-")[:31]
        if name in found:
            sys.exit(f"{path}: a scenario would call it '{name}', as {found[name]}")
        found[name] = path.resolve()
    return found


def tenant(name, path, asks):
    return f"      - {{name: {name}, {asks}, work: {{trace: {json.dumps(str(path))}}}}}\n"


def case(name, tenants):
    return f"  - name: {name}\n    gpu: noise=0.03\n    tenants:\n" + "".join(tenants)


def one_of(known, begin):
    names = [name for name in known if name.startswith(begin.replace("_", "-"))]
    if len(names) != 1:
        sys.exit(f"--three: '{begin}' is the begin of {len(names)} of {', '.join(known)}")
    return names[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", required=True, help="a folder, which is made")
    parser.add_argument("--three", action="append", default=[], metavar="A,B,C")
    arguments = parser.parse_args()
    known = traces(arguments.folder)
    if len(known) < 2:
        sys.exit(f"{arguments.folder}: two traces are wanted, NAME.csv or NAME.csv.gz; there is {len(known)}")
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)

    pairs = [case(f"{first}--{second}", [tenant(first, known[first], "share: 70%"), tenant(second, known[second], "share: 30%")])
             for first, second in itertools.permutations(known, 2)]
    for number, three in enumerate(arguments.three, 1):
        names = [one_of(known, begin) for begin in three.split(",")]
        if len(set(names)) != 3:
            sys.exit(f"--three: '{three}': three different ones are wanted")
        pairs.append(case(f"three-{number}", [tenant(name, known[name], f"share: {share}%")
                                             for name, share in zip(names, (50, 30, 20))]))
    (out / "pairs.yaml").write_text(
        HEAD.format(about="Real networks beside one another, each launching without end.", question="share", length="3s") +
        "".join(pairs))

    services = [case(f"{service[:24]}--{job[:24]}--at-{load}",
                     [tenant(service, known[service], f"priority: high, mode: requests, load: {load}%"),
                      f"      - {{name: {job}, work: {{trace: {json.dumps(str(known[job]))}}}}}\n"])
                for service in known if "inference" in service
                for load in (20, 50)
                for job in known if "training" in job]
    if services:
        (out / "services.yaml").write_text(
            HEAD.format(about="A service beside a training job.", question="latency", length="10s") + "".join(services))


if __name__ == "__main__":
    main()
