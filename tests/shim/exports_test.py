#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An object that stands in for a library exports every entry point of its list, and besides these only the given names.

    exports_test.py OBJECT LIST [NAME...]
"""

import re
import subprocess
import sys


def main():
    library, listed, *more = sys.argv[1:]
    with open(listed, encoding="utf-8") as file:
        wanted = set(re.findall(r"^X\((\w+),", file.read(), re.M)) | set(more)
    out = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True)
    found = {line.split()[0].split("@")[0] for line in out.stdout.splitlines() if line.split()[1] != "A"}
    for name in sorted(wanted ^ found):
        print(name, "is missing" if name in wanted else "should not be exported")
    print(len(found), "exported")
    return 0 if wanted == found and len(found) > 100 else 1


if __name__ == "__main__":
    sys.exit(main())
