#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the symbols that a library exports with a golden list.

    exports_test.py LIBRARY GOLDEN [--update]

A removed symbol breaks programs that are already built, and a new one has to be kept. Run with --update after an intended change,
and state it in CHANGELOG.md. What the library imports must not tie it to a newer glibc than its own code needs.
"""

import subprocess
import sys


# Of glibc 2.36. Only parts of libstdc++ call it that the library does not use.
UNWANTED = {"arc4random"}


def imported(library):
    out = subprocess.run(["nm", "-D", "--undefined-only", "--format=posix", library], check=True,
                         capture_output=True).stdout.decode()
    return {line.split()[0].split("@")[0] for line in out.splitlines()}


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
    unwanted = imported(library) & UNWANTED
    for name in sorted(unwanted):
        print("imported: %s, which makes containers with an older glibc refuse the library" % name)
    return 0 if found and found == promised and not unwanted else 1


if __name__ == "__main__":
    sys.exit(main())
