# SPDX-License-Identifier: Apache-2.0
"""Enforces Ray's fractions of a GPU (ray 2.40 or newer): an actor or a task gets the share that Ray counts for it.

    import gpushare.ray

    @gpushare.ray.remote(num_gpus=0.25)          # in place of ray.remote; the rest is Ray's
    class Model:
        def __init__(self): ...                  # sees a GPU of a quarter of the memory, and gets a quarter of its time

    models = [Model.remote() for _ in range(4)]  # placed by Ray, admitted by the broker of the node

    third = ThirdParty.options(**gpushare.ray.options(num_gpus=0.5))     # a class that knows nothing of gpushare

Each node runs `gpushare broker` with ``unlisted: true``, and has its socket in GPUSHARE_BROKER before `ray start`. The
worker process is started under the preloaded library. The worker asks its node's broker for Ray's final fraction
(``Model.options(num_gpus=0.5)``), as a tenant of its own; see docs/ray.md. Ray is imported when it is first used.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib
import inspect
import math
import os
import pathlib
import re
import subprocess
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from ._core import Gpu, Runtime, VirtualDeviceSpec
from ._errors import FailedPreconditionError, GpuShareError, NotFoundError, ResourceExhaustedError, UnavailableError
from ._given import Duration, duration

__all__ = ["Share", "options", "remote", "share"]

_NEEDED = "gpushare.ray needs Ray: pip install 'ray>=2.40'"
_SOCKET = "/run/gpushare/broker.sock"
_STEP = 10_000  # Ray counts GPUs in ten thousandths
_OBJECTS = ("libgpushare_preload.so", "libgpushare_preload_nvml.so")
# The driver's results when the broker refuses: there is no room now, or no broker. Both may pass.
_OUT_OF_MEMORY, _SYSTEM_NOT_READY, _NO_DEVICE = 2, 802, 100
_LONGEST_WAIT = 600.0


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"{_NEEDED} ({error})") from error


# ---- What is asked for


@dataclasses.dataclass(frozen=True)
class _Terms:
    """A share as far as it is known before Ray has placed the worker."""

    more: str  # keys of the spec besides those that follow from Ray's fraction
    memory: int | None  # bytes of device memory; None: according to the fraction
    wait: float
    preload: str

    def spec(self, gpus: float) -> str:
        part = f"{math.floor(min(gpus, 1) * _STEP + 1e-6) / 100:g}%"
        given = dict(key.split("=", 1) for key in self.more.replace(" ", "").split(",") if "=" in key)
        fields: dict[str, Any] = {}
        if "memory" not in given:
            fields["memory"] = part if self.memory is None else self.memory
        if not given.keys() & {"compute", "guarantee"} and given.get("policy", _SHARED[0]) in _SHARED:
            fields["compute"] = part
        return str(VirtualDeviceSpec(self.more, **fields))


# Policies that need a share of the device's time.
_SHARED = ("fixed-share", "hard", "force", "burst-share", "soft", "default", "request-limit")


def _fraction(num_gpus: float) -> float:
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, (int, float)):
        raise TypeError(f"num_gpus: {type(num_gpus).__name__} given, int or float wanted")
    if not math.isfinite(num_gpus) or num_gpus <= 0:
        raise ValueError(f"num_gpus: {num_gpus} given, above 0 wanted")
    if num_gpus > 1 and num_gpus != int(num_gpus):
        raise ValueError(f"num_gpus: {num_gpus} given; a part of one GPU, or whole ones, wanted")
    if num_gpus * _STEP < 1 - 1e-6:
        raise ValueError(f"num_gpus: {num_gpus} given, 0.0001 or more wanted, which is the least that Ray counts")
    return num_gpus


def _bytes(gpu_memory: int | str) -> int:
    memory = VirtualDeviceSpec(memory=gpu_memory).memory
    if not isinstance(memory, int):
        raise ValueError(f"gpu_memory: {gpu_memory!r} given; bytes wanted, as in '2GiB': parts of a GPU are `num_gpus`")
    return memory


def _terms(num_gpus: float | None, gpu_memory: int | str | None, spec: str | VirtualDeviceSpec,
           wait: Duration) -> tuple[float, _Terms]:
    if not isinstance(spec, (str, VirtualDeviceSpec)):
        raise TypeError(f"spec: {type(spec).__name__} given, str or gpushare.VirtualDeviceSpec wanted")
    memory = _bytes(gpu_memory) if gpu_memory is not None else None
    if memory is not None and re.search(r"(^|,)\s*memory\s*=", str(spec)):
        raise ValueError(f"gpu_memory: {gpu_memory!r} given, and 'memory' in the spec: one of them wanted")
    if num_gpus is None and memory is None:
        raise TypeError("num_gpus: none given; it, or `gpu_memory`, wanted")
    if num_gpus is None:
        num_gpus = _fraction_of(memory or 0)
    terms = _Terms(more=str(spec), memory=memory, wait=duration(wait, "wait", most=_LONGEST_WAIT) if wait else 0,
                   preload=":".join(str(_preload_folder() / name) for name in _OBJECTS))
    num_gpus = _fraction(num_gpus)
    terms.spec(num_gpus)  # raises if the terms contradict each other
    return num_gpus, terms


# ---- Where things are


def _command() -> str:
    own = pathlib.Path(__file__).parent / "_native" / "bin" / "gpushare"
    return str(own) if own.is_file() else "gpushare"


def _preload_folder() -> pathlib.Path:
    """The folder of this installation's preload libraries: GPUSHARE_PRELOAD_DIR, in the package, or beside the command."""
    places = []
    if asked := os.environ.get("GPUSHARE_PRELOAD_DIR"):
        places = [pathlib.Path(asked)]
    else:
        native = pathlib.Path(__file__).parent / "_native"
        command = (native / "bin" / "gpushare").resolve()
        places = [native / "lib" / "gpushare" / "preload", command.parents[1] / "lib" / "gpushare" / "preload"]
    for place in places:
        if all((place / name).is_file() for name in _OBJECTS):
            place = place.resolve()
            if set(str(place)) & set(" \t\n:"):
                raise FailedPreconditionError(f"the loader cannot preload from '{place}', whose path has a blank or a "
                                              "colon; install gpushare elsewhere", code="FAILED_PRECONDITION")
            return place
    raise NotFoundError(f"the preloaded library was not found; looked in {', '.join(map(str, places))}; "
                        "GPUSHARE_PRELOAD_DIR names its folder", code="NOT_FOUND")


def _fraction_of(memory: int) -> float:
    """The fraction of the cluster's smallest GPU that these bytes are, rounded up."""
    ray = _ray()
    if not ray.is_initialized():
        raise FailedPreconditionError("gpu_memory: which part of a GPU it is, the cluster's nodes are asked: call "
                                      "ray.init() before, or give `num_gpus` too", code="FAILED_PRECONDITION")
    strategy = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) > 0]
    if not nodes:
        raise NotFoundError("gpu_memory: no node of this cluster has a GPU", code="NOT_FOUND")
    new = [node for node in nodes if node not in _memory_of_nodes]
    look = ray.remote(num_cpus=0, max_calls=1)(_gpu_memory)
    answers = ray.get([look.options(scheduling_strategy=strategy(node, soft=False)).remote() for node in new])
    _memory_of_nodes.update(zip(new, answers, strict=True))
    smallest = min(_memory_of_nodes[node] for node in nodes)
    if memory > smallest:
        raise ValueError(f"gpu_memory: {memory} bytes given, and the smallest GPU of this cluster has {smallest} to give")
    return math.ceil(memory / smallest * _STEP - 1e-6) / _STEP


_memory_of_nodes: dict[str, int] = {}  # by node ID, which Ray does not reuse


def _gpu_memory() -> int:
    """Runs on a node: the memory that the smallest of its GPUs can still promise."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # older versions of Ray hide all GPUs from a task that requests none
        del os.environ["CUDA_VISIBLE_DEVICES"]
    with Runtime() as runtime:
        return min(int(Gpu(runtime, ordinal).room["memory_left"]) for ordinal in range(runtime.gpu_count))


# ---- What Ray is told


def options(*, num_gpus: float | None = None, gpu_memory: int | str | None = None,
            spec: str | VirtualDeviceSpec = "", broker: str | None = None,
            runtime_env: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Returns options for any actor or task of Ray, including classes that know nothing of gpushare, and for Serve's
    ``ray_actor_options``: `num_gpus`, and a `runtime_env` that starts the worker within the share.

    The worker registers at its first call of the driver, as a tenant of its own without a name. A process that it
    starts and that uses the GPU is another tenant. If the broker refuses, calls of the driver fail; `remote()` says
    why.

    Args:
        num_gpus: a fraction of one GPU, or whole GPUs: Ray's number, and the fraction of memory and time.
        gpu_memory: bytes ("2GiB") in place of that fraction of the memory. Given alone, it also determines the
            fraction: of the smallest GPU of the cluster; its nodes are asked once.
        spec: other keys of the share: "cap=50%,priority=high". They take precedence over those that follow from
            `num_gpus`.
        broker: the socket on every node; without it, each node's own GPUSHARE_BROKER.
        runtime_env: your own runtime_env, which is merged; what it preloads comes first.
        more: any other options of Ray, passed on.

    Raises:
        ValueError: more than one GPU but not whole ones, less than Ray's smallest fraction, or a contradictory share.
        NotFoundError: the preloaded library is not in this installation.
    """
    num_gpus, terms = _terms(num_gpus, gpu_memory, spec, 0)
    return {**more, "num_gpus": num_gpus, "runtime_env": _runtime_env(terms, num_gpus, broker, runtime_env)}


def _runtime_env(terms: _Terms, num_gpus: float, broker: str | None, given: Mapping[str, Any] | None) -> dict[str, Any]:
    theirs = dict(given or {})
    variables = dict(theirs.get("env_vars") or {})
    for name in ("GPUSHARE_SPEC", "GPUSHARE_TENANT", "GPUSHARE_BROKER"):
        if name in variables:
            raise ValueError(f"runtime_env: {name} given among its env_vars; `num_gpus`, `spec` and `broker` set it")
    # Ray substitutes the node's own values. Our library comes after the existing ones, so that a library which looks up
    # the next definition finds ours. On a node that names no broker the variable names a place without one, so that
    # nothing runs without its limit.
    variables["LD_PRELOAD"] = f"{variables.get('LD_PRELOAD', '${LD_PRELOAD}')}:{terms.preload}"
    variables["GPUSHARE_BROKER"] = broker if broker is not None else "/${GPUSHARE_BROKER}"
    variables["GPUSHARE_SPEC"] = terms.spec(num_gpus)
    return {**theirs, "env_vars": variables}


def remote(*, num_gpus: float | None = None, gpu_memory: int | str | None = None,
           spec: str | VirtualDeviceSpec = "", broker: str | None = None, wait: Duration = 10.0,
           runtime_env: Mapping[str, Any] | None = None, **more: Any) -> Callable[[Any], Any]:
    """`ray.remote` for a class or a function. Its worker gets the share of a GPU that Ray counts for it.

    Before the constructor or the function runs, the worker takes its share from its node's broker, as a tenant of its
    own, named after the class and Ray's ID of the actor or task. `share()` returns what it got.

    Args:
        num_gpus, gpu_memory, spec, broker, runtime_env, more: as in `options()`.
        wait: how long to wait for a share that is not available yet, for instance that of an earlier worker about to
            end.

    Raises: as `options()`; ValueError for a `max_calls` other than 1, since a worker returns its share only by ending.
        In the worker, and so from the actor or task: ResourceExhaustedError if the broker has no such share to give,
        UnavailableError without a broker, FailedPreconditionError if the worker was not started under gpushare.
    """
    ray = _ray()
    num_gpus, terms = _terms(num_gpus, gpu_memory, spec, wait)
    if more.get("max_calls", 1) != 1:
        raise ValueError(f"max_calls: {more['max_calls']} given, 1 wanted: a worker gives its share back by its end")
    more.update(num_gpus=num_gpus, runtime_env=_runtime_env(terms, num_gpus, broker, runtime_env))

    def within_share(target: Any) -> Any:
        if inspect.isclass(target):
            return ray.remote(**more)(_class_within(target, terms))
        return ray.remote(**more)(_function_within(target, terms))

    return within_share


def _class_within(target: type, terms: _Terms) -> type:
    name = target.__name__

    init: Any = inspect.getattr_static(target, "__init__")

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        _enter(terms, name)
        init(self, *args, **kwargs)

    if inspect.isfunction(init):  # Ray checks arguments against its signature
        functools.update_wrapper(begin, init)
    return types.new_class(name, (target,), exec_body=lambda body: body.update(
        __init__=begin, __doc__=target.__doc__, __module__=target.__module__, __qualname__=target.__qualname__))


def _function_within(target: Callable[..., Any], terms: _Terms) -> Callable[..., Any]:
    name = target.__name__
    if inspect.isgeneratorfunction(target):

        @functools.wraps(target)
        def generator(*args: Any, **kwargs: Any) -> Any:
            _enter(terms, name)
            return (yield from target(*args, **kwargs))

        return generator

    @functools.wraps(target)
    def function(*args: Any, **kwargs: Any) -> Any:
        _enter(terms, name)
        return target(*args, **kwargs)

    return function


# ---- In the worker


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of this worker."""

    tenant: str  # the tenant's name at the broker, as in `gpushare list`
    spec: str  # as requested
    broker: str  # the socket


_share: Share | None = None


def share() -> Share:
    """In an actor or task of `remote()`: the share of its worker.

    Raises:
        FailedPreconditionError (RuntimeError): called elsewhere.
    """
    if _share is None:
        raise FailedPreconditionError("this process is no worker of gpushare.ray.remote()", code="FAILED_PRECONDITION")
    return _share


def _enter(terms: _Terms, name: str) -> None:
    """Takes the share that Ray has assigned. Raises the reason if there is none."""
    global _share
    context = _ray().get_runtime_context()
    gpus = context.get_assigned_resources().get("GPU", 0)
    if not gpus:
        raise FailedPreconditionError(f"{name}: Ray has assigned no GPU; num_gpus above 0 wanted",
                                      code="FAILED_PRECONDITION")
    spec = terms.spec(gpus)
    if _share is not None:
        if _share.spec == spec:
            return
        raise FailedPreconditionError(f"{name}: this worker has '{_share.spec}', and '{spec}' is wanted; a worker keeps "
                                      "its share until it ends", code="FAILED_PRECONDITION")
    if not hasattr(ctypes.CDLL(None), "gpushare_preload_version"):
        raise FailedPreconditionError(f"{name}: this worker was not started under gpushare: is {terms.preload} on its "
                                      "node? GPUSHARE_PRELOAD_DIR names the folder that it is in on every one",
                                      code="FAILED_PRECONDITION")
    broker = _socket(os.environ.get("GPUSHARE_BROKER", ""))
    number = context.get_actor_id() or context.get_task_id()
    tenant = f"{name.encode()[:30].decode(errors='ignore')}-{number[:32]}"
    os.environ.update(GPUSHARE_BROKER=broker, GPUSHARE_TENANT=tenant, GPUSHARE_SPEC=spec)
    _wait(Share(tenant, spec, broker), terms.wait)
    _share = Share(tenant, spec, broker)


def _socket(given: str) -> str:
    """Undoes what _runtime_env() did with the node's own value: it has one more '/' in front, which stands alone if the
    node has none."""
    return "/" + given.lstrip("/") if given.strip("/") else _SOCKET


def _wait(wanted: Share, seconds: float) -> None:
    driver = ctypes.CDLL("libcuda.so.1")  # the preloaded object answers by that name
    until = time.monotonic() + seconds
    while (result := driver.cuInit(0)) != 0:
        if result not in (_OUT_OF_MEMORY, _SYSTEM_NOT_READY) or time.monotonic() >= until:
            raise _refusal(wanted, result)
        time.sleep(0.25)


def _refusal(wanted: Share, result: int) -> GpuShareError:
    where = f"{wanted.tenant}: '{wanted.spec}' at the broker {wanted.broker} of this node"
    said = _why(wanted) or f"the driver answers {result}"
    if result == _OUT_OF_MEMORY:
        return ResourceExhaustedError(f"{where}: {said}", code="RESOURCE_EXHAUSTED", driver_result=result)
    if result in (_SYSTEM_NOT_READY, _NO_DEVICE):
        return UnavailableError(f"{where}: {said}", code="UNAVAILABLE", driver_result=result)
    return FailedPreconditionError(f"{where}: {said}", code="FAILED_PRECONDITION", driver_result=result)


def _why(wanted: Share) -> str:
    """The reason for the broker's refusal, from the command, because the preloaded library cannot report it."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run([_command(), "run", "--broker", wanted.broker, "--tenant", wanted.tenant,
                               "--spec", wanted.spec, "--", "true"],
                              env=environment, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.strip().removeprefix("gpushare run: ") if done.returncode else ""
