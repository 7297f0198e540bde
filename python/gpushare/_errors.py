# SPDX-License-Identifier: Apache-2.0
"""The exceptions of gpushare.

All derive from `GpuShareError` and, if Python has a matching built-in exception, from that too, so that ``except
MemoryError`` and ``except TimeoutError`` work as usual.
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
    """An operation was refused by gpushare or the driver. `str()` says what was asked, what was left and which setting
    changes it. The numbers are also attributes; do not parse the text for them.

    Attributes:
        code: the canonical code, for instance ``"RESOURCE_EXHAUSTED"``; see docs/errors.md.
        driver_result: the driver's own code (CUresult) if the driver refused, else 0.
        tenant: the tenant that reached its limit; "" when no limit was reached.
        limit: the limit that was reached: a key of the spec (``"memory"``, ``"guarantee"``) or ``"device"``.
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
    """A field is out of its range. The message names it and says what is allowed."""


class OutOfRangeError(GpuShareError, ValueError):
    """The request exceeds what exists."""


class NotFoundError(GpuShareError, LookupError):
    """There is no such GPU, kernel, label or pointer. The message lists what exists."""


class AlreadyExistsError(GpuShareError, ValueError):
    """The tenant's name, its device on this GPU or the stream's binding is taken."""


class ResourceExhaustedError(GpuShareError):
    """A limit is reached; `limit` says which. Raised as this class when something cannot be promised any more, for
    instance guarantees beyond the whole device."""


class QuotaExceededError(ResourceExhaustedError, MemoryError):
    """More memory was requested than the quota, or the device, has left. `asked`, `left` and `total` are bytes."""


class DeviceOutOfMemoryError(ResourceExhaustedError, MemoryError):
    """The request is within the quota, but the device itself is full."""


class DeadlineExceededError(GpuShareError, TimeoutError):
    """The timeout of a launch, a lease or an allocation passed."""


class CancelledError(GpuShareError, RuntimeError):
    """The virtual device was closed while the call waited."""


class FailedPreconditionError(GpuShareError, RuntimeError):
    """The operation is not possible in this state: a nested lease of another tenant, or a call that is illegal during a
    capture."""


class ClosedError(GpuShareError, ValueError):
    """The object has been closed."""


class ForkedError(GpuShareError, RuntimeError):
    """The object belongs to the process from which this one was forked. CUDA does not survive a fork: start processes
    with `multiprocessing`'s "spawn" or "forkserver" method."""


class PermissionDeniedError(GpuShareError, PermissionError):
    """The driver does not permit it."""


class UnimplementedError(GpuShareError, NotImplementedError):
    """The request is valid but not implemented yet. The message names it."""


class UnavailableError(GpuShareError, ConnectionError):
    """There is no driver or no usable GPU, or the device is in exclusive use. The message says how to get the simulated
    GPU."""


class AbortedError(GpuShareError, RuntimeError):
    """The GPU's context is lost (illegal address, failed kernel). All tenants of this process must start over in a new
    one."""


class InternalError(GpuShareError, RuntimeError):
    """A fault of gpushare, of the driver or of the device; see `driver_result`."""


# By canonical code; the extension raises these.
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
    """Makes the exception for a failed call of the library."""
    cls = _BY_CODE.get(code, InternalError)
    if cls is ResourceExhaustedError:
        if driver_result != 0 or limit == "device":
            cls = DeviceOutOfMemoryError
        elif limit == "memory":
            cls = QuotaExceededError
    return cls(message, code=code, driver_result=driver_result, tenant=tenant, limit=limit, asked=asked,
               left=left, total=total)
