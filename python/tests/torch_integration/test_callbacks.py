# SPDX-License-Identifier: Apache-2.0
"""The callbacks for training frameworks, called in the same way. With the real frameworks: test_frameworks.py."""

import contextlib
import sys
import types

import gpushare
import gpushare.torch
import pytest

MIB = 1 << 20


@pytest.fixture(autouse=True)
def no_frameworks(monkeypatch):
    """Hides the frameworks, even if they are installed."""
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def lightning(monkeypatch):
    module = types.ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {"on_fit_start": lambda self, trainer, pl_module: None})
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    return module


def used(device):
    return device.stats().memory_used


def test_lightning_makes_the_model_the_tenants_and_each_batch_a_step(torch, trainer, lightning):
    callback = gpushare.torch.lightning_callback(trainer)
    assert isinstance(callback, lightning.Callback)
    callback.setup(None, None, "fit")
    model = torch.empty(8 * MIB)
    assert used(trainer) == 8 * MIB
    for batch in range(2):
        callback.on_train_batch_start(None, None, None, batch)
        assert gpushare.torch.region.innermost(trainer).leased
        callback.on_train_batch_end(None, None, None, None, batch)
        assert not gpushare.torch.region.innermost(trainer).leased
    callback.on_validation_batch_start(None, None, None, 0, 0)
    assert gpushare.torch.region.innermost(trainer).leased
    callback.on_validation_batch_end(None, None, None, None, 0, 0)
    callback.teardown(None, None, "fit")
    assert gpushare.torch.region.innermost(trainer) is None and not torch.underway
    del model


def test_lightning_ends_all_upon_an_exception(torch, gpu, trainer, lightning):
    callback = gpushare.torch.lightning_callback(trainer)
    callback.setup(None, None, "fit")
    callback.on_train_batch_start(None, None, None, 0)
    error = torch.cuda.OutOfMemoryError("CUDA out of memory.")
    callback.on_exception(None, None, error)
    callback.teardown(None, None, "fit")
    assert gpushare.torch.region.innermost(trainer) is None and not torch.underway
    with gpushare.torch.tenant(gpu.virtual_device("other", memory="1MiB")):  # would be refused if a lease were left
        pass


def test_without_lightning_the_callback_is_an_object_with_its_hooks(trainer):
    callback = gpushare.torch.lightning_callback(trainer)
    assert type(callback).__mro__[1] is object and callable(callback.on_test_batch_start)


def test_transformers(torch, trainer):
    callback = gpushare.torch.transformers_callback(trainer)
    callback.on_train_begin("args", "state", "control", model=None)
    for _ in range(2):
        callback.on_step_begin("args", "state", "control")
        assert gpushare.torch.region.innermost(trainer).leased
        callback.on_step_end("args", "state", "control")
    callback.on_step_begin("args", "state", "control")
    callback.end(KeyError("x"))
    assert gpushare.torch.region.innermost(trainer) is None and not torch.underway
    callback.on_train_end("args", "state", "control")  # there is nothing left to end


def test_accelerate(torch, trainer):
    order = []

    class Accelerator:
        @contextlib.contextmanager
        def accumulate(self, *models):
            order.append((models, gpushare.torch.region.innermost(trainer).leased))
            yield

    with gpushare.torch.accumulate(Accelerator(), trainer, "model"):
        order.append("body")
    assert order == [(("model",), True), "body"] and gpushare.torch.region.innermost(trainer) is None


@pytest.mark.parametrize("make", [gpushare.torch.lightning_callback, gpushare.torch.transformers_callback])
def test_wrong_arguments_are_refused_when_it_is_made(trainer, make):
    with pytest.raises(TypeError, match="^device: "):
        make("trainer")
    with pytest.raises(ValueError, match="^hint: "):
        make(trainer, hint=-1.0)
