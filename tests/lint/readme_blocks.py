#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of a Markdown file that are marked to run and compares what they print.

    readme_blocks.py FILE --build FOLDER [--source FOLDER]

A block opened with "```sh run" is a shell script, one with "```cpp run" a program that is compiled
against the build tree, "```python run" one of Python with the build's package (left out when there is
none); all run in an empty folder, with the build's programs and libraries in reach and
the simulated GPU as driver. If a block opened with "```output" follows (prose may stand between), what was
printed must match it line by line: `...` stands for any text, a line of only `...` for any lines.

A block opened with "```sh" alone is not run, but every script and preset it names must exist.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile


class Block:
    def __init__(self, language, runnable, line, text):
        self.language, self.runnable, self.line, self.text = language, runnable, line, text
        self.expected = None


def blocks_of(path):
    blocks, current, language, runnable, start = [], None, "", False, 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if current is None and line.startswith("```"):
                words = line[3:].split()
                language, runnable = (words + [""])[0], "run" in words[1:]
                current, start = [], number
            elif current is not None and line.startswith("```"):
                text = "".join(current)
                if language == "output":
                    if not blocks or not blocks[-1].runnable or blocks[-1].expected is not None:
                        raise SystemExit("%s:%d: an output block that follows no block to run" % (path, start))
                    blocks[-1].expected = text
                else:
                    blocks.append(Block(language, runnable, start, text))
                current = None
            elif current is not None:
                current.append(line)
    if current is not None:
        raise SystemExit("%s:%d: this block is never closed" % (path, start))
    return blocks


def pattern_of(expected):
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ ]*\n"
    return re.compile(pattern + r"\Z")


def run(block, options):
    environment = dict(os.environ)
    libraries = os.path.join(options.build, "lib")
    environment["PATH"] = os.path.join(options.build, "bin") + ":" + environment.get("PATH", "")
    environment["LD_LIBRARY_PATH"] = libraries
    environment.setdefault("GPUSHARE_DRIVER", "sim")
    with tempfile.TemporaryDirectory() as folder:
        if block.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", block.text]
        elif block.language == "python":
            environment["PYTHONPATH"] = os.path.join(options.build, "python")
            command = [interpreter(options), "-c", block.text]
        else:
            source, program = os.path.join(folder, "block.cc"), os.path.join(folder, "block")
            with open(source, "w", encoding="utf-8") as file:
                file.write(block.text)
            flags = subprocess.run(["pkg-config", "--cflags", "--libs", "absl_status", "absl_statusor"],
                                   check=True, capture_output=True).stdout.decode().split()
            compiled = subprocess.run(
                [options.cxx, "-std=c++20", "-Wall", "-Wextra", "-I", os.path.join(options.source, "include"),
                 source, "-o", program, "-L", libraries, "-lgpushare"] + flags,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if compiled.returncode:
                return "does not compile:\n" + compiled.stdout.decode()
            command = [program]
        result = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=300)
    printed = result.stdout.decode(errors="replace")
    if result.returncode:
        return "exits with %d and prints:\n%s" % (result.returncode, printed)
    if block.expected is not None and not pattern_of(block.expected).match(printed):
        return "prints:\n%s\nwhere the file says:\n%s" % (printed, block.expected)
    return None


def python_package(options):
    """The extension in the build tree, if it was built."""
    return glob.glob(os.path.join(options.build, "python", "gpushare", "_core.*.so"))


def interpreter(options):
    """The interpreter for which the extension was built: the project's own if there is one."""
    own = os.path.join(options.source, ".deps", "venv", "bin", "python3")
    return own if os.access(own, os.X_OK) else sys.executable


def names(block, options):
    """The scripts and presets that a block names, if the block is not run."""
    for script in re.findall(r"(?:^|\s)(?:\./)?((?:scripts|\.ci)/[\w-]+)", block.text):
        if not os.access(os.path.join(options.source, script), os.X_OK):
            return "names %s, which is not there" % script
    with open(os.path.join(options.source, "CMakePresets.json"), encoding="utf-8") as file:
        presets = file.read()
    for preset in re.findall(r"--preset[ =](\w+)", block.text):
        if '"name": "%s"' % preset not in presets:
            return "names the preset %s, which is not there" % preset
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--build", required=True, type=os.path.abspath)
    parser.add_argument("--source", type=os.path.abspath, default=os.getcwd())
    parser.add_argument("--cxx", default=shutil.which("g++") or "c++")
    options = parser.parse_args()
    ran = failed = 0
    for block in blocks_of(options.file):
        problem = None
        if block.runnable and block.language == "python" and not python_package(options):
            print("%s:%d: not run, the Python package was not built" % (options.file, block.line))
        elif block.runnable and block.language in ("sh", "cpp", "python"):
            problem = run(block, options)
            ran += 1
        elif block.language == "sh":
            problem = names(block, options)
        else:
            continue
        if problem:
            failed += 1
            print("%s:%d: this block %s" % (options.file, block.line, problem))
    print("%s: %d blocks run, %d wrong" % (options.file, ran, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
