#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the blocks of C++ in the pages of docs/.

    page_examples.py --source FOLDER [--cxx COMPILER]

A block that begins with a type or a template is at namespace scope, any other within a function. Names that it does not
make itself are in page_context.h. The README's blocks are run by readme_blocks.py.
"""

import argparse
import glob
import os
import re
import subprocess
import sys

from header_examples import compiles

NEED_MORE = {"rmm.md"}  # CCCL; tests/unit/device/cuda_mr_test.cc compiles similar code


def blocks_of(path):
    """Each block of C++ as (number of its first line, text)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for block in re.finditer(r"^```cpp\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield text[:block.start()].count("\n") + 2, block.group(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, type=os.path.abspath)
    parser.add_argument("--cxx", default="c++")
    options = parser.parse_args()
    code, found = '#include "tests/lint/page_context.h"\nnamespace page {\n', 0
    for path in sorted(glob.glob(os.path.join(options.source, "docs", "*.md"))):
        if os.path.basename(path) in NEED_MORE:
            continue
        for start, text in blocks_of(path):
            where = '#line %d "%s"\n' % (start, os.path.relpath(path, options.source))
            if re.match(r"(struct|class|template)\b", text):
                code += "namespace n%d {\n%s%s}\n" % (found, where, text)
            else:
                code += "Anything Example%d() {\n%s%sreturn {};\n}\n" % (found, where, text)
            found += 1
    abseil = subprocess.run(["pkg-config", "--cflags", "absl_status", "absl_statusor"], check=True,
                            capture_output=True).stdout.decode().split()
    good = compiles([options.cxx, "-std=c++20"], "cc", code + "}  // namespace page\n",
                    ["-I", os.path.join(options.source, "include"), "-I", options.source, "-Wno-unused", *abseil])
    print("blocks of C++ in pages: %d" % found)
    return 0 if good and found >= 4 else 1


if __name__ == "__main__":
    sys.exit(main())
