# SPDX-License-Identifier: Apache-2.0
"""The fixture `simulated_gpu` for pytest: ``pytest_plugins = ["gpushare.pytest_plugin"]`` in conftest.py.

    @pytest.mark.simulated_gpu(memory="8GiB", clock="wall")     # options of gpushare.simulated_gpu()
    def test_something(simulated_gpu):
        device = simulated_gpu.virtual_device("a", memory="1GiB")
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ._core import Gpu
from .testing import simulated_gpu as _simulated_gpu


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "simulated_gpu(**options): options of gpushare.simulated_gpu()")


@pytest.fixture
def simulated_gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    """Yields a Gpu on a simulated device of its own."""
    marker = request.node.get_closest_marker("simulated_gpu")
    with _simulated_gpu(**(marker.kwargs if marker else {})) as gpu:
        yield gpu
