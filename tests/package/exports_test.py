#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the symbols that a library exports with a golden list.

    exports_test.py LIBRARY GOLDEN [--update]

A removed symbol breaks programs that are already built, and a new one has to be kept. Run with --update after an intended change,
and state it in CHANGELOG.md.
"""

import subprocess
import sys


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True,
                         capture_output=True).stdout.decode()
    return sorted({line.split()[0] for line in out.splitlines() if line.split()[1] != "A"})


def main():
    library, golden = sys.argv[1], sys.argv[2]
    found = exported(library)
    if "--update" in sys.argv[3:]:
        with open(golden, "w", encoding="utf-8") as file:
            file.write("".join(name + "\n" for name in found))
        return 0
    with open(golden, encoding="utf-8") as file:
        promised = sorted(file.read().split())
    for name in promised:
        if name not in found:
            print("gone: %s" % name)
    for name in found:
        if name not in promised:
            print("new: %s" % name)
    if not found:
        print("the library exports nothing")
    print("%d symbols exported, %d promised" % (len(found), len(promised)))
    if found != promised:
        print("if this is meant: python3 %s" % " ".join(sys.argv[:3] + ["--update"]))
    return 0 if found and found == promised else 1


if __name__ == "__main__":
    sys.exit(main())
