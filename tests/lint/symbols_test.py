#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check-symbols finds each kind of mistake: it runs on copies of the tree with one mistake each."""

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = ("scripts/check-symbols", "src/driver/symbols.def", "src/driver/symbols.h", "src/driver/errors.cc",
         *glob.glob("src/sim/api/*.cc", root_dir=ROOT))

# The change, the file in which it is made, and what the check must report.
MISTAKES = (
    ("src/driver/symbols.def", "X(cuMemAlloc_v2, 3020, memory, 1, 1)\n", "", "cuMemAlloc_v2 is not classified"),
    ("src/driver/symbols.def", "X(cuInit, 2000, loader, 0, 1)\n", "X(cuInit, 2000, loader, 0, 1)\n" * 2,
     "cuInit is listed 2 times"),
    ("src/driver/symbols.def", "X(cuInit, 2000, loader,", "X(cuInit, 2000, magic,", "unknown class 'magic'"),
    ("src/driver/symbols.def", "X(cuMemAlloc_v2, 3020,", "X(cuMemAlloc_v2, 3010,",
     "cuMemAlloc_v2 has version 3010, the toolkit says 3020"),
    ("src/driver/symbols.def", "X(cuInit, 2000, loader, 0, 1)", "X(cuInit 2000 loader 0 1)", "not an entry"),
    ("src/driver/symbols.def", "X(cuInit, 2000, loader, 0, 1)\n",
     "X(cuInit, 2000, loader, 0, 1)\nX(cuNoSuchCall, 2000, loader, 0, 0)\n", "cuNoSuchCall is in no header"),
    ("src/driver/symbols.def", "X(cuInit, 2000, loader, 0, 1)", "X(cuInit, 2000, loader, 0, 0)",
     "cuInit is marked not simulated, but src/sim defines it"),
    ("src/sim/api/init.cc", "SIM_API(cuInit)", "static CUresult (cuInit)",
     "cuInit is marked simulated, but src/sim does not define it"),
    ("src/driver/errors.cc", '{719, "CUDA_ERROR_LAUNCH_FAILED"', '{717, "CUDA_ERROR_LAUNCH_FAILED"',
     "CUDA_ERROR_LAUNCH_FAILED = 719 is missing"),
)


def run(tree, include):
    return subprocess.run([sys.executable, os.path.join(tree, "scripts/check-symbols"), "--include", include],
                          capture_output=True, text=True, check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", required=True)
    include = parser.parse_args().include
    failures = 0
    with tempfile.TemporaryDirectory() as tree:
        def reset():
            for file in FILES:
                os.makedirs(os.path.dirname(os.path.join(tree, file)), exist_ok=True)
                shutil.copy(os.path.join(ROOT, file), os.path.join(tree, file))

        reset()
        clean = run(tree, include)
        if clean.returncode == 77:
            print(clean.stdout, end="")
            return 77
        if clean.returncode != 0:
            print(f"the tree itself fails:\n{clean.stdout}{clean.stderr}")
            return 1
        # Versions and surplus names are only checked with the toolkit for which the list is complete.
        complete = "CUDA 13000:" in clean.stdout
        for file, old, new, expected in MISTAKES:
            if not complete and ("toolkit says" in expected or "in no header" in expected):
                print(f"not tried with this toolkit: {expected}")
                continue
            reset()
            path = os.path.join(tree, file)
            with open(path, encoding="utf-8") as source:
                text = source.read()
            if old not in text:
                print(f"{file} no longer contains {old!r}")
                failures += 1
                continue
            with open(path, "w", encoding="utf-8") as target:
                target.write(text.replace(old, new))
            result = run(tree, include)
            found = result.returncode == 1 and expected in result.stdout
            print(f"{'found' if found else 'NOT FOUND'}: {expected}")
            failures += not found
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
