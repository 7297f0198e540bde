# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of gpushare.torch."""

import gc
import importlib.util
import pathlib
import sys

import gpushare.torch
import pytest
from gpushare.torch import _lane, _pool

_path = pathlib.Path(__file__).with_name("stand_in.py")
_spec = importlib.util.spec_from_file_location("gpushare_torch_stand_in", _path)
stand_in = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)


@pytest.fixture
def make_torch(monkeypatch):
    """Installs a stand-in in place of PyTorch: make_torch(uuids, version="2.8.0")."""

    def make(uuids, **options):
        torch = stand_in.StandIn([stand_in.bare(uuid) for uuid in uuids], **options)
        for name, module in torch.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
        return torch

    monkeypatch.setattr(_pool, "_made", None)
    monkeypatch.setattr(_pool, "routing", _pool.Routing())
    monkeypatch.setattr(_lane, "lanes", _lane.Lanes())
    yield make


@pytest.fixture
def torch(gpu, make_torch):
    """A stand-in that sees the simulated GPU. The test must not break any of PyTorch's rules."""
    torch = make_torch([gpu.probe().uuid])
    yield torch
    gc.collect()
    _lane.lanes.close()
    torch.cuda.empty_cache()
    assert not torch.mistakes
    assert not torch.underway, "allocations are still diverted"


@pytest.fixture
def trainer(gpu):
    return gpu.virtual_device("trainer", memory="64MiB")
