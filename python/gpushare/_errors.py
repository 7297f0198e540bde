# SPDX-License-Identifier: Apache-2.0
"""The exceptions of gpushare.

All derive from `GpuShareError` and, where Python has a natural one, from that too, so that
``except MemoryError`` and ``except TimeoutError`` work as they do elsewhere.
"""

from __future__ import annotations

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "ClosedError",
    "DeadlineExceededError",
    "DeviceOutOfMemoryError",
    "FailedPreconditionError",
    "ForkedError",
    "GpuShareError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "QuotaExceededError",
    "ResourceExhaustedError",
    "UnavailableError",
    "UnimplementedError",
]


class GpuShareError(Exception):
    """What gpushare or the driver refused. `str()` says what was asked, what was left and which
    setting changes it; the numbers are attributes, never to be read out of the text.

    Attributes:
        code: the canonical code, for instance ``"RESOURCE_EXHAUSTED"``; see docs/errors.md.
        driver_result: the driver's own code (CUresult) when it refused, else 0.
        tenant: whose limit it was; "" when no limit was hit.
        limit: which limit: a key of the spec (``"memory"``, ``"guarantee"``) or ``"device"``.
        asked, left, total: in the limit's unit: bytes; shares in parts per million.
    """

    def __init__(self, message: str = "", *, code: str = "UNKNOWN", driver_result: int = 0, tenant: str = "",
                 limit: str = "", asked: int = 0, left: int = 0, total: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.driver_result = driver_result
        self.tenant = tenant
        self.limit = limit
        self.asked = asked
        self.left = left
        self.total = total

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class InvalidArgumentError(GpuShareError, ValueError):
    """A field out of its range; the message names it and says what is allowed."""


class OutOfRangeError(GpuShareError, ValueError):
    """Beyond what there is."""


class NotFoundError(GpuShareError, LookupError):
    """No such GPU, kernel, label or pointer; the message lists what there is."""


class AlreadyExistsError(GpuShareError, ValueError):
    """The tenant's name, its device on this GPU or the stream's binding is taken."""


class ResourceExhaustedError(GpuShareError):
    """A limit is reached: `limit` says which. Raised as such for what cannot be promised any more, for
    instance guarantees of more than the device."""


class QuotaExceededError(ResourceExhaustedError, MemoryError):
    """More memory than the quota, or than the device can still promise: `asked`, `left` and `total` are bytes."""


class DeviceOutOfMemoryError(ResourceExhaustedError, MemoryError):
    """Within the quota, but the device itself is full."""


class DeadlineExceededError(GpuShareError, TimeoutError):
    """The timeout of a launch, a lease or an allocation passed."""


class CancelledError(GpuShareError, RuntimeError):
    """The virtual device went away while the call waited."""


class FailedPreconditionError(GpuShareError, RuntimeError):
    """Not in this state: a nested lease of another tenant, a call that is illegal while capturing."""


class ClosedError(GpuShareError, ValueError):
    """The object has been closed."""


class ForkedError(GpuShareError, RuntimeError):
    """The object belongs to the process that this one was forked from. CUDA does not survive a fork:
    start processes with `multiprocessing`'s "spawn" or "forkserver" method."""


class PermissionDeniedError(GpuShareError, PermissionError):
    """The driver does not permit it."""


class UnimplementedError(GpuShareError, NotImplementedError):
    """Valid, and not offered yet; the message names it."""


class UnavailableError(GpuShareError, ConnectionError):
    """No driver, no usable GPU, or the device is in exclusive use; the message says how to get the simulated GPU."""


class AbortedError(GpuShareError, RuntimeError):
    """The GPU's context is lost (illegal address, failed kernel): all tenants of this process start over in a new one."""


class InternalError(GpuShareError, RuntimeError):
    """A fault of gpushare, of the driver or of the device; see `driver_result`."""


# By canonical code; what the extension raises.
_BY_CODE: dict[str, type[GpuShareError]] = {
    "CANCELLED": CancelledError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "ABORTED": AbortedError,
    "OUT_OF_RANGE": OutOfRangeError,
    "UNIMPLEMENTED": UnimplementedError,
    "UNAVAILABLE": UnavailableError,
}


def _make(message: str, code: str, driver_result: int, tenant: str, limit: str, asked: int, left: int,
          total: int) -> GpuShareError:
    """The exception for a failed call of the library."""
    cls = _BY_CODE.get(code, InternalError)
    if cls is ResourceExhaustedError:
        if driver_result != 0 or limit == "device":
            cls = DeviceOutOfMemoryError
        elif limit == "memory":
            cls = QuotaExceededError
    return cls(message, code=code, driver_result=driver_result, tenant=tenant, limit=limit, asked=asked,
               left=left, total=total)
