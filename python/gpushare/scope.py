# SPDX-License-Identifier: Apache-2.0
"""The tenant for work that does not name one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from . import _core
from ._errors import FailedPreconditionError

__all__ = ["carry_tenant", "current_tenant", "tenant_scope"]

P = ParamSpec("P")
R = TypeVar("R")


def current_tenant() -> _core.Tenant | None:
    """The tenant of the innermost tenant_scope in the calling context; None if there is none."""
    return _core._tenant_var.get()


def _in_coroutine() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class tenant_scope:
    """Within ``with tenant_scope(tenant):`` unattributed work belongs to this tenant: `Gpu.alloc()`, `Gpu.resolve()`,
    and native code on this thread that asks gpushare for the tenant.

    The scope is part of the context (contextvars). Each asyncio task has its own context; `asyncio.to_thread()` and
    `contextvars.copy_context().run()` pass it on, and `carry_tenant()` does so for thread pools:

        with gpushare.tenant_scope(tenant):
            pool.submit(gpushare.carry_tenant(work), batch)

    Scopes nest. In a coroutine, other tasks run on the same thread at every ``await``, so there the scope applies only
    to calls from Python, not to native code.

    Raises:
        TypeError: not a Tenant.
        ClosedError: the tenant is closed.
        ValueError: left in another context than it was entered in, for instance by a generator.
        FailedPreconditionError (RuntimeError): left on another thread, or before a scope within it.
    """

    def __init__(self, tenant: _core.Tenant) -> None:
        if not isinstance(tenant, _core.Tenant):
            raise TypeError(f"tenant: {type(tenant).__name__} given, gpushare.Tenant wanted")
        self._tenant = tenant
        self._entered: list[tuple[Token[_core.Tenant | None], int]] = []

    def __enter__(self) -> _core.Tenant:
        scope = 0 if _in_coroutine() else _core._scope_enter(self._tenant)
        self._entered.append((_core._tenant_var.set(self._tenant), scope))
        return self._tenant

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self._entered:
            raise FailedPreconditionError("this tenant_scope is not entered; use it by 'with'", code="FAILED_PRECONDITION")
        token, scope = self._entered.pop()
        try:
            _core._tenant_var.reset(token)
        finally:  # reset() may refuse in another context; even then this thread's native scope must not outlive the block
            if scope:
                _core._scope_leave(scope)


def carry_tenant(function: Callable[P, R]) -> Callable[P, R]:
    """Returns `function` so that other threads can call it on behalf of the caller's current tenant.

        pool.submit(gpushare.carry_tenant(work), batch)
    """
    tenant = current_tenant()
    if tenant is None:
        return function

    @functools.wraps(function)
    def carried(*args: Any, **kwargs: Any) -> R:
        with tenant_scope(tenant):
            return function(*args, **kwargs)

    return carried
