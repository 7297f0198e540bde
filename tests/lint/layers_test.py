#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configures small trees that break one rule of cmake/GpushareLayer.cmake each, and one that breaks none."""

import argparse
import os
import subprocess
import sys
import tempfile

ROOT = """cmake_minimum_required(VERSION 3.25)
project(layers LANGUAGES NONE)
add_library(gpushare_options INTERFACE)
add_library(gpushare_cuda_headers INTERFACE)
include("{source}/cmake/GpushareLayer.cmake")
{layers}
get_property(layers GLOBAL PROPERTY GPUSHARE_LAYERS)
foreach(layer IN LISTS layers)  # headers only, in a project without a language
  set_target_properties(gpushare_${{layer}} PROPERTIES LINKER_LANGUAGE CXX)
endforeach()
"""
BASE = 'gpushare_layer(NAME base RANK 0 SOURCES src/base/a.h)\n'
SCHED = 'gpushare_layer(NAME sched RANK 1 SOURCES src/sched/a.h LAYERS base)\n'

# name, layers, text of src/<layer>/a.h by layer, and the configure step's message (None: it succeeds)
CASES = [
    ("a tree that keeps the rules", BASE + SCHED, {"base": "", "sched": '#include "base/a.h"\n'}, None),
    ("a dependency of the same rank",
     BASE + 'gpushare_layer(NAME sched RANK 0 SOURCES src/sched/a.h LAYERS base)\n', {"base": "", "sched": ""},
     "layer 'sched' (rank 0) may not depend on 'base' (rank 0)"),
    ("a dependency of higher rank",
     'gpushare_layer(NAME sched RANK 1 SOURCES src/sched/a.h)\n'
     'gpushare_layer(NAME base RANK 0 SOURCES src/base/a.h LAYERS sched)\n', {"base": "", "sched": ""},
     "layer 'base' (rank 0) may not depend on 'sched' (rank 1)"),
    ("a dependency that is not there", SCHED, {"sched": ""}, "depends on 'base'"),
    ("an include that is not declared",
     BASE + 'gpushare_layer(NAME sched RANK 1 SOURCES src/sched/a.h)\n',
     {"base": "", "sched": '#include "base/a.h"\n'}, "'base' is not among its LAYERS"),
    ("an include that goes around the declaration",
     BASE + 'gpushare_layer(NAME sched RANK 1 SOURCES src/sched/a.h)\n',
     {"base": "", "sched": '#include "../base/a.h"\n'}, 'includes "../base/a.h"; includes are relative to src'),
    ("the same through a folder of its own", BASE + SCHED,
     {"base": "", "sched": '#include "sched/../base/a.h"\n'}, "includes are relative to src"),
    ("a CUDA header", BASE, {"base": "#include <cuda.h>\n"}, "includes <cuda.h>"),
    ("an entry point of the driver", BASE, {"base": "int f() { return cuInit(0); }\n"}, "names 'cuInit'"),
    ("an entry point in a comment", BASE, {"base": "// as cuInit() does\n"}, None),
    ("an entry point where it may be",
     'gpushare_layer(NAME base RANK 0 NAMES_CUDA SOURCES src/base/a.h)\n',
     {"base": "#include <cuda.h>\nint f() { return cuInit(0); }\n"}, None),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    failed = 0
    for name, layers, texts, expected in CASES:
        with tempfile.TemporaryDirectory() as folder:
            for layer in ("base", "sched"):
                os.makedirs(os.path.join(folder, "src", layer))
            for layer, text in texts.items():
                with open(os.path.join(folder, "src", layer, "a.h"), "w", encoding="utf-8") as file:
                    file.write(text)
            with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write(ROOT.format(source=options.source, layers=layers.replace("src/", folder + "/src/")))
            result = subprocess.run([options.cmake, "-S", folder, "-B", os.path.join(folder, "build"), "-G", "Ninja"],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed = " ".join(result.stdout.decode().split())
        if expected is None:
            good = result.returncode == 0
        else:
            good = result.returncode != 0 and " ".join(expected.split()) in printed
        print("%s: %s" % ("ok" if good else "FAILED", name))
        if not good:
            failed += 1
            print(result.stdout.decode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
