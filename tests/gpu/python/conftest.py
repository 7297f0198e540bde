# SPDX-License-Identifier: Apache-2.0
"""These tests use the machine's own GPU. Without one each test is skipped with the reason, or fails under
GPUSHARE_REQUIRE_GPU=1. A test whose framework is not installed is skipped in either case.

    PYTHONPATH=build/dev/python python -m pytest -c pyproject.toml tests/gpu/python
"""

import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
import textwrap
import warnings

import gpushare
import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # for preloaded.py

# Set before PyTorch's first use of cuBLAS, so that sums are the same on every stream.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

_numbers = itertools.count()


def absent(reason):
    if os.environ.get("GPUSHARE_REQUIRE_GPU") == "1":
        pytest.fail(f"GPUSHARE_REQUIRE_GPU=1, and {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(items):
    for item in items:  # Numba and NumPy warn of each other
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:numba"))


@pytest.fixture(scope="session")
def any_runtime():
    """A runtime; also on the simulated GPU if GPUSHARE_DRIVER asks for that."""
    try:
        yield gpushare.Runtime()
    except gpushare.UnavailableError as error:
        absent(f"no driver: {error}")


@pytest.fixture(scope="session")
def runtime(any_runtime):
    runtime = any_runtime
    if runtime.simulated:
        absent("the driver is the simulated one")
    if runtime.gpu_count == 0:
        absent("the driver has no GPU")
    yield runtime


@pytest.fixture
def gpu(runtime):
    with gpushare.Gpu(runtime) as gpu:
        yield gpu


@pytest.fixture
def device(gpu):
    # A unique name, so that the leftovers of a failed test do not fail the next one.
    with gpu.virtual_device(f"test-{next(_numbers)}", memory="1GiB") as device:
        yield device


@pytest.fixture
def framework():
    """framework("cupy", "cupy-cuda12x") returns the module, or skips the test."""

    def load(name, package):
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            pytest.skip(f"{name} is not installed: pip install {package}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a framework's warnings about its own parts
            return importlib.import_module(name)

    return load


@pytest.fixture
def make_tenant(framework, gpu):
    """make_tenant(memory="1GiB", weight=70): a virtual device of a new tenant for PyTorch, which ends with the test."""
    import gpushare.torch

    torch = framework("torch", "torch")
    if not torch.cuda.is_available():
        absent("PyTorch sees no GPU")
    made = []

    def make(**fields):
        made.append(gpu.virtual_device(f"test-{next(_numbers)}", **fields))
        return made[-1]

    yield make
    for device in made:
        gpushare.torch.release(device)
        device.close()


@pytest.fixture
def run_python():
    """Runs a program in a separate interpreter, which has to succeed, and returns its output."""

    def run(program, **environment):
        ran = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
                             env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run
