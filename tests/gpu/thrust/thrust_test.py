#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles sort.cu with nvcc against CCCL 3.1 or newer and runs it on a GPU.

    thrust_test.py --source FOLDER --library LIBGPUSHARE --cccl FOLDER

Exits with 77, which counts as skipped, without nvcc, CCCL or a GPU; with 1 instead under GPUSHARE_REQUIRE_GPU=1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile


def skip(why):
    print("skipped: " + why)
    return 1 if os.environ.get("GPUSHARE_REQUIRE_GPU") == "1" else 77


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--cccl", default="")
    options = parser.parse_args()
    if not os.path.exists("/dev/nvidiactl"):
        return skip("there is no GPU (/dev/nvidiactl)")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        return skip("there is no nvcc")
    if not options.cccl:
        return skip("there is no CCCL 3.1 or newer; scripts/setup fetches its headers")
    abseil = subprocess.run(["pkg-config", "--cflags", "--libs", "absl_status", "absl_statusor", "absl_time"],
                            check=True, capture_output=True, text=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "sort")
        # nvcc passes options for the linker and the host compiler on only under special names.
        passed = [word for flag in abseil
                  for word in (["-Xlinker", flag[4:]] if flag.startswith("-Wl,") else [flag])]
        subprocess.run([nvcc, "-std=c++20", "-O2", "-arch=native", "--expt-relaxed-constexpr", "-I", options.cccl,
                        "-I", os.path.join(options.source, "include"),
                        os.path.join(os.path.dirname(os.path.abspath(__file__)), "sort.cu"),
                        options.library, *passed, "-o", program], check=True)
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(options.library))
        code = subprocess.run([program], env=environment, check=False).returncode
    return skip("the GPU cannot be used") if code == 77 else code


if __name__ == "__main__":
    sys.exit(main())
