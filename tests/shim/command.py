# SPDX-License-Identifier: Apache-2.0
"""Runs programs under `gpushare run` on the simulated GPU."""

import os
import subprocess
import textwrap

COMMAND = os.environ["GPUSHARE_COMMAND"]
PYTHON = os.environ["GPUSHARE_PYTHON"]
HERE = os.path.dirname(os.path.abspath(__file__))


def run(*arguments, **options):
    return subprocess.run([COMMAND, "run", "--gpu", "sim", *arguments], capture_output=True, text=True, timeout=60, **options)


def python(code, *options, command=None, **more):
    """Runs the Python program `code`, which may import tests/shim/program.py. `command` replaces `gpushare run`."""
    environment = {**more.pop("env", os.environ), "PYTHONPATH": HERE}
    program = [PYTHON, "-c", textwrap.dedent(code)]
    if command:
        return subprocess.run([*command, *program], capture_output=True, text=True, timeout=60, env=environment, **more)
    return run(*options, "--", *program, env=environment, **more)
