# SPDX-License-Identifier: Apache-2.0
"""Callbacks for training frameworks: one region around the training, one step per batch.

A framework is only imported when its callback is made. None of them requires another.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._given import Duration
from . import _given, region

__all__ = ["accumulate", "lightning_callback", "transformers_callback"]


class _Loop:
    """A region around a loop and the step within it, entered and left by calls."""

    def __init__(self, device: _core.VirtualDevice, hint: Duration | None) -> None:
        _given.pace(hint)  # refuses an invalid hint now instead of in the first step
        self._device, self._hint = _given.virtual_device(device), hint
        self._region: region.Region | None = None
        self._step: region.step | None = None

    def begin(self) -> None:
        if self._region is None:
            entered = region.tenant(self._device, lease=False)
            entered.__enter__()
            self._region = entered

    def begin_step(self) -> None:
        self.end_step()
        entered = region.step(self._device, hint=self._hint)
        entered.__enter__()
        self._step = entered

    def end_step(self, error: BaseException | None = None) -> None:
        entered, self._step = self._step, None
        if entered is not None:
            entered.__exit__(type(error) if error else None, error, None)

    def end(self, error: BaseException | None = None) -> None:
        try:
            self.end_step(error)
        finally:
            entered, self._region = self._region, None
            if entered is not None:
                entered.__exit__(type(error) if error else None, error, None)


def _base(names: tuple[str, ...]) -> Any:
    """The first available class in the list of "module:Class"; `object` if there is none."""
    for name in names:
        module, _, cls = name.partition(":")
        with contextlib.suppress(ImportError):
            return getattr(importlib.import_module(module), cls)
    return object


def lightning_callback(device: _core.VirtualDevice, *, hint: Duration | None = None) -> Any:
    """A callback for Lightning's `Trainer`. The model and its training belong to `device`, and each batch of training,
    validation, test and prediction waits for its turn.

        trainer = lightning.Trainer(callbacks=[gpushare.torch.lightning_callback(device)])

    Lightning moves a batch to the GPU before it calls the step's hook, so this happens within the region and outside
    the turn.
    """
    base: Any = _base(("lightning.pytorch:Callback", "pytorch_lightning:Callback"))
    loop = _Loop(device, hint)

    class Steps(base):  # type: ignore[misc]
        """Made by gpushare.torch.lightning_callback()."""

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            loop.begin()

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            loop.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            loop.end(exception)

        def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
            loop.begin_step()

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            loop.end_step()

        on_validation_batch_start = on_test_batch_start = on_predict_batch_start = on_train_batch_start
        on_validation_batch_end = on_test_batch_end = on_predict_batch_end = on_train_batch_end

    return Steps()


def transformers_callback(device: _core.VirtualDevice, *, hint: Duration | None = None) -> Any:
    """A callback for the `Trainer` of Hugging Face's transformers, which uses Accelerate. The training belongs to
    `device` from beginning to end, and each optimizer step waits for its turn.

        trainer = transformers.Trainer(model, args, callbacks=[gpushare.torch.transformers_callback(device)], ...)

    The trainer moves the model to the GPU when it is created, so create it within ``tenant(device, lease=False)``. It
    has no hook for exceptions: after one, call ``callback.end()`` to end the region.
    """
    base: Any = _base(("transformers:TrainerCallback",))
    loop = _Loop(device, hint)

    class Steps(base):  # type: ignore[misc]
        """Made by gpushare.torch.transformers_callback()."""

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            loop.begin()

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            loop.begin_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            loop.end_step()

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            loop.end()

        def end(self, error: BaseException | None = None) -> None:
            """Ends the step and the region, if there are any."""
            loop.end(error)

    return Steps()


@contextlib.contextmanager
def accumulate(accelerator: Any, device: _core.VirtualDevice, *models: Any,
               hint: Duration | None = None) -> Iterator[None]:
    """`accelerator.accumulate(*models)` of Accelerate, as a `step()` of `device`:

        with gpushare.torch.tenant(device, lease=False):
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for batch in loader:
                with gpushare.torch.accumulate(accelerator, device, model):
                    accelerator.backward(model(batch).loss)
                    optimizer.step()
                    optimizer.zero_grad()
    """
    with region.step(device, hint=hint), accelerator.accumulate(*models):
        yield
