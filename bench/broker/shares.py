#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports how a broker divides the device on the wall clock: two tenants, each an unmodified program that keeps the device busy
(tenant.c), by the part of each second that their kernels took.

    shares.py --program TENANT --preload OBJECT --command GPUSHARE [--kernels US,US] [--shares PERCENT,PERCENT] [--seconds S]

The tests of the shares run on the virtual clock (tests/processes). Here threads are woken when the machine gets round to it,
so this only reports.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from broker_process import broker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pair = lambda text: [float(part) for part in text.split(",", 1)]
    parser.add_argument("--program", required=True, help="the program tenant.c")
    parser.add_argument("--preload", required=True, help="libgpushare_preload.so")
    parser.add_argument("--command", required=True, help="gpushare")
    parser.add_argument("--kernels", type=pair, default=[500, 1000], metavar="US,US", help="their kernels' lengths in microseconds")
    parser.add_argument("--shares", type=pair, default=[70, 30], metavar="PERCENT,PERCENT", help="their shares")
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    for name in (options.program, options.preload, options.command):
        if not os.path.isfile(name):
            parser.error(f"{name} is not there")

    with tempfile.TemporaryDirectory(prefix="gpushare-shares-") as folder:
        config = "tenants:\n" + "".join(f"  - {{name: t{i}, spec: 'compute={share:g}%'}}\n"
                                        for i, share in enumerate(options.shares))
        environment = {**os.environ, "GPUSHARE_DRIVER": "sim",
                       "GPUSHARE_SIM": f"memory=16GiB,clock=wall,shared={os.path.basename(folder)}"}
        with broker(options.command, folder, config, environment) as (_, socket):
            programs = [subprocess.Popen([options.program, f"{us:g}", str(options.seconds)], stdout=subprocess.PIPE, text=True,
                                         env={**environment, "LD_PRELOAD": options.preload, "GPUSHARE_BROKER": socket,
                                              "GPUSHARE_TENANT": f"t{i}"})
                        for i, us in enumerate(options.kernels)]
            printed = [program.communicate()[0].split() for program in programs]
    if any(program.returncode != 0 for program in programs):
        sys.exit("shares.py: a program has failed")
    # The second in which one of them begins or ends is not both's.
    parts = [[100 * float(word) for word in words][1:-1] for words in printed]
    means = [sum(seconds) / len(seconds) for seconds in parts]
    for share, us, seconds, mean in zip(options.shares, options.kernels, parts, means, strict=True):
        print(f"{share:g} % of the device, kernels of {us:g} us: {mean:.1f} % of the time, {min(seconds):.1f} to "
              f"{max(seconds):.1f} of a second; {100 * mean / sum(means):.1f} % of what both had")
    return 0


if __name__ == "__main__":
    sys.exit(main())
