#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the examples in the comments of the public headers.

    header_examples.py --source FOLDER [--cxx COMPILER] [--cc COMPILER]

An example is a block of a header's first comment that is indented by three spaces and of which a line ends
as code does. `...` stands for anything. Names that it does not make itself are in header_context.h.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

# Headers that need more than Abseil; their tests compile the examples.
NEED_MORE = {"cuda_mr.h"}


def code_of(line):
    """The line without its trailing comment."""
    return re.sub(r"\s+//.*$", "", line).rstrip()


def examples_of(path):
    """Each example as (number of its first line, lines)."""
    blocks, current, start = [], [], 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            comment = re.match(r"(?://|/\*| \*)(.*)$", line)
            if comment is None:
                break  # the first comment ends
            text = comment.group(1).rstrip()
            if text.startswith("   "):
                if not current:
                    start = number
                current.append(text[3:])
            elif current:
                blocks.append((start, current))
                current = []
    if current:
        blocks.append((start, current))
    return [block for block in blocks if any(re.search(r"[;{}]$", code_of(line)) for line in block[1])]


def as_code(lines):
    out = []
    for line in lines:
        code = code_of(line)
        out.append("" if code.strip() == "..." else re.sub(r"\s\.\.\.$", " {}", code))
    return "\n".join(out)


def compiles(compiler, language, text, flags):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "examples." + language)
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        result = subprocess.run([*compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags, source],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        print(result.stdout.decode(errors="replace"))
    return result.returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, type=os.path.abspath)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cc", default="cc")
    options = parser.parse_args()
    include = os.path.join(options.source, "include")
    cxx = '#include "tests/lint/header_context.h"\nnamespace example {\n'
    c = "#include <stdio.h>\n#include <gpushare/c/gpushare.h>\n"
    found = {"C": 0, "C++": 0}
    for folder, _, files in sorted(os.walk(include)):
        for name in sorted(files):
            if name in NEED_MORE:
                continue
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, options.source)
            for start, lines in examples_of(path):
                where = '#line %d "%s"\n' % (start, shown)
                function = "Example%d" % sum(found.values())
                if os.path.basename(folder) == "c":
                    found["C"] += 1
                    c += "int %s(void);\nint %s(void) {\n%s%s\nreturn 0;\n}\n" % (function, function, where, as_code(lines))
                else:
                    found["C++"] += 1
                    cxx += "Anything %s() {\n%s%s\nreturn {};\n}\n" % (function, where, as_code(lines))
    cxx += "}  // namespace example\n"
    abseil = subprocess.run(["pkg-config", "--cflags", "absl_status", "absl_statusor"], check=True,
                            capture_output=True).stdout.decode().split()
    # An example may ignore a status and may leave results unused.
    lenient = ["-Wno-unused", "-Wno-unused-result"]
    good = compiles([options.cxx, "-std=c++20"], "cc", cxx, ["-I", include, "-I", options.source, *lenient, *abseil])
    good = compiles([options.cc, "-std=c11"], "c", c, ["-I", include, *lenient]) and good
    print("examples in headers: %d in C++, %d in C" % (found["C++"], found["C"]))
    return 0 if good and found["C++"] >= 12 and found["C"] >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
