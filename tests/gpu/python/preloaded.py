# SPDX-License-Identifier: Apache-2.0
"""Runs unmodified programs under the preloaded library of the same build."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import gpushare._core
import pytest

BUILD = pathlib.Path(gpushare._core.__file__).resolve().parents[2]
PRELOAD = BUILD / "lib/gpushare/preload/libgpushare_preload.so"
BROKER = BUILD / "tests/gpu/gpushare_gpu_broker"
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "shim"
LIMITERS = ("GPUSHARE_SPEC", "GPUSHARE_BROKER", "GPUSHARE_TENANT", "LD_PRELOAD")


def need(path):
    if not path.exists():
        pytest.skip(f"{path} is not built: cmake --build {BUILD} --target {path.stem.removeprefix('lib')}")
    return path


def environment(spec=None, **variables):
    """The environment. Without `spec` and a broker it is as if there were no gpushare."""
    bare = {name: value for name, value in os.environ.items() if name not in LIMITERS}
    if spec is not None:
        bare |= {"LD_PRELOAD": str(need(PRELOAD)), "GPUSHARE_SPEC": spec}
    return {**bare, **variables}


def python(program):
    return [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)]


def run(command, spec=None, **variables):
    """The output of the program, which has to succeed."""
    done = subprocess.run(command, env=environment(spec, **variables), capture_output=True, text=True, timeout=110,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need_bare(program, **variables):
    """What `run_python` returns of it without gpushare. Skips the test if the program fails even so."""
    done = subprocess.run(python(program), env=environment(**variables), capture_output=True, text=True, timeout=110,
                          check=False)
    if done.returncode != 0:
        pytest.skip(f"the program fails without gpushare too: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_python(program, spec=None, **variables):
    """The JSON in the last line of its output."""
    return json.loads(run(python(program), spec, **variables).splitlines()[-1])


class Broker:
    """broker_host: a broker for `tenants`, as in "a:weight=70"."""

    def __init__(self, folder, *tenants):
        self.socket = str(folder / "broker")
        self.process = subprocess.Popen([need(BROKER), self.socket, *tenants], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment())
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
