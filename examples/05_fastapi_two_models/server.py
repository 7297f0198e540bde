#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two models in one FastAPI process, with and without gpushare.

    pip install gpushare fastapi uvicorn httpx
    python server.py --gpu sim

`chat` answers people: 2 ms of GPU time per request, 30 requests per second. `batch` summarises documents, 30 ms each,
and is greedy: it always has 4 in flight, so the GPU is never idle. Each model is an engine that launches on its own,
straight through the driver. client.py, a process of its own, sends load to both: once without gpushare, on plain
streams, and once with it. The change to the server is marked with [gpushare].

Without gpushare, each of chat's 4 layers queues behind a layer of each document. With gpushare, chat waits only for
what the GPU has at that moment, and a document asks before each of its layers. The GPU may have two of them, so that it
has one to run while the host learns that the other has ended. `--in-flight 1` answers chat a layer sooner, at the
expense of batch.

`--priorities` gives the plain streams CUDA priorities: between short kernels of one process these do as much for chat.
They provide no quotas, shares or caps.

"in the server" excludes HTTP and the client. With `--gpu sim` the GPU uses the wall clock, so the figures need idle
processors: on a busy machine they show the load of its processors. Without it, `GPUSHARE_DRIVER=sim` also needs
`GPUSHARE_SIM=clock=wall`: the virtual clock knows neither this server's threads nor its clients.
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time

import fastapi
import gpushare
import uvicorn

# Every kernel fills the GPU: 8 blocks of 256 threads on each multiprocessor.
BLOCKS_PER_SM = 8
PTX = """.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=8
.visible .entry layer(.param .u64 ns)
{
  .reg .u64 %begin, %now, %want;
  .reg .pred %more;
  ld.param.u64 %want, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %want;
  @%more bra again;
  ret;
}
"""


class Driver:
    """The driver API as the engine uses it."""

    NON_BLOCKING, MULTIPROCESSORS = 1, 16  # CU_STREAM_NON_BLOCKING, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

    def __init__(self, gpu):
        self.library = ctypes.CDLL(gpu.runtime.driver_path)
        self.context, processors = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuCtxGetCurrent", ctypes.byref(self.context))
        self.call("cuDeviceGetAttribute", ctypes.byref(processors), self.MULTIPROCESSORS, gpu.ordinal)
        self.blocks = processors.value * BLOCKS_PER_SM

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code}")

    def stream(self, priority):
        made = ctypes.c_void_p()
        self.call("cuStreamCreateWithPriority", ctypes.byref(made), self.NON_BLOCKING, priority)
        return made.value


class Engine:
    """A model with a runtime that knows nothing of gpushare: it launches layers on a given stream, and waits."""

    def __init__(self, driver, kernel, layer_ns):
        self.driver, self.kernel = driver, ctypes.c_void_p(kernel.ptr)
        self.ns = ctypes.c_uint64(layer_ns)

    def execute(self, stream, layers):
        self.driver.call("cuCtxSetCurrent", self.driver.context)  # this thread may be new
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self.ns))
        for _ in range(layers):
            self.driver.call("cuLaunchKernel", self.kernel, self.driver.blocks, 1, 1, 256, 1, 1, 0,
                             ctypes.c_void_p(stream), parameters, None)
        self.driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))


class Slot:
    """What one request needs to run; used by one request at a time."""

    def __init__(self, driver, device, step_ns, priority):
        self.plain = driver.stream(priority)
        self.stream = device.stream()  # [gpushare] instead of the plain stream
        # [gpushare] A lease for `step` layers: between two leases others get their turn.
        self.lease = device.lease(hint=step_ns / 1e9, streams=[self.stream])


class Model:
    def __init__(self, driver, gpu, kernel, name, *, layers, layer_ns, step, at_once, cuda_priority, **limits):
        self.device = gpu.virtual_device(name, memory="1GiB", **limits)  # [gpushare]
        self.engine = Engine(driver, kernel, layer_ns)
        self.layers, self.step = layers, step
        self.free = asyncio.Queue()
        for _ in range(at_once):
            self.free.put_nowait(Slot(driver, self.device, step * layer_ns, cuda_priority))

    async def answer(self, shared):
        slot = await self.free.get()
        try:
            if not shared:
                await asyncio.to_thread(self.engine.execute, slot.plain, self.layers)
            elif self.step < self.layers:
                await asyncio.to_thread(self.in_steps, slot)  # [gpushare]
            else:
                async with slot.lease:  # [gpushare]
                    await asyncio.to_thread(self.engine.execute, slot.stream.ptr, self.layers)
        finally:
            self.free.put_nowait(slot)

    def in_steps(self, slot):
        """Runs on a thread of the pool: otherwise the GPU would be idle between two steps while the event loop is
        involved."""
        for first in range(0, self.layers, self.step):
            with slot.lease:  # [gpushare]
                self.engine.execute(slot.stream.ptr, min(self.step, self.layers - first))


def make_app(models):
    app = fastapi.FastAPI()

    @app.post("/v1/models/{name}/infer")
    async def infer(name: str, shared: bool = True):
        if name not in models:
            raise fastapi.HTTPException(404, f"there is no model {name!r}; there are {', '.join(models)}")
        begin = time.perf_counter()
        await models[name].answer(shared)
        return {"model": name, "seconds": time.perf_counter() - begin}

    return app


@contextlib.contextmanager
def serving(app):
    """Runs the server on a thread of its own, on a free port of 127.0.0.1."""
    # IPPROTO_TCP is explicit because asyncio sets TCP_NODELAY only on such sockets. Without TCP_NODELAY, the body of
    # each answer waits for the acknowledgement of its head, which is delayed by 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def load(url, seconds, rate, documents, shared):
    client = pathlib.Path(__file__).with_name("client.py")
    done = subprocess.run([sys.executable, str(client), url, "--seconds", str(seconds), "--rate", str(rate),
                           "--documents", str(documents), "--shared", str(shared).lower()],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def quantiles(seconds):
    values = sorted(seconds)
    return "  ".join(f"p{q} {values[min(len(values) * q // 100, len(values) - 1)] * 1e3:5.1f}" for q in (50, 99)) + " ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=["auto", "sim"], default="auto", help="sim: the simulated GPU")
    parser.add_argument("--seconds", type=float, default=4, help="of load, twice")
    parser.add_argument("--rate", type=float, default=30, help="chat requests a second")
    parser.add_argument("--documents", type=int, default=4, help="of the batch job at a time")
    parser.add_argument("--in-flight", type=int, default=2, help="layers of batch that the GPU may have at a time")
    parser.add_argument("--priorities", action="store_true", help="the plain streams have CUDA priorities")
    parser.add_argument("--trace", metavar="FILE", help="what the GPU did with gpushare, for ui.perfetto.dev")
    options = parser.parse_args()

    runtime = gpushare.Runtime("sim", simulation="clock=wall") if options.gpu == "sim" else gpushare.Runtime()
    if runtime.simulated and gpushare.Simulation(runtime).virtual:
        parser.error("the simulated GPU keeps its virtual clock, which knows neither this server's threads nor its "
                     "clients: set GPUSHARE_SIM=clock=wall, or take --gpu sim")
    gpu = gpushare.Gpu(runtime, high_band_min_commands=options.in_flight)  # [gpushare]
    driver, kernel = Driver(gpu), gpu.load(PTX)["layer"]
    models = {
        "chat": Model(driver, gpu, kernel, "chat", layers=4, layer_ns=500_000, step=4, at_once=2,
                      cuda_priority=-5 if options.priorities else 0, priority="high", cap="50%"),
        "batch": Model(driver, gpu, kernel, "batch", layers=15, layer_ns=2_000_000, step=1,
                       at_once=options.documents, cuda_priority=0),
    }
    print(f"{gpu.name}, {options.seconds:g} s each way")
    with serving(make_app(models)) as url:
        for shared in (False, True):
            record = gpushare.trace(options.trace) if shared and options.trace else contextlib.nullcontext()
            with record:
                answers = load(url, options.seconds, options.rate, options.documents, shared)
            label = f"{'with   ' if shared else 'without'} gpushare"
            for name, answered in answers.items():
                print(f"{label}  {name:5}  {len(answered):3} answers  {quantiles(total for total, _ in answered)}"
                      f"  in the server {quantiles(inside for _, inside in answered)}")
    for stats in runtime.snapshot():
        print(f"{stats.tenant:5}  {stats.waits} waits, held {stats.throttled:.3f} s, "
              f"{stats.measured:.3f} s of device time")


if __name__ == "__main__":
    main()
