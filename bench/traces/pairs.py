#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes scenarios from real kernel traces: every pair in a folder side by side, and services beside training jobs.

    bench/traces/pairs.py FOLDER --out made --three bert_b2,resnet50_b32,resnet50_b4
    gpushare bench run made/pairs.yaml made/services.yaml --repetitions 3

FOLDER has traces as `gpushare bench record` writes them (docs/recording.md), NAME.csv or NAME.csv.gz. Traces with
"inference" in their names are services, those with "training" are the jobs beside them. `pairs.yaml` measures whether each
tenant gets its share: 70 and 30 % for every pair in both orders, and 50, 30 and 20 % for each --three, which names three files
by the beginnings of their names. `services.yaml` measures how much longer the requests of a service with a load of 20 or 50 %
take beside a job, and how much of its work the job gets done.
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
    """The paths of the traces, by names that are valid in a scenario."""
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
