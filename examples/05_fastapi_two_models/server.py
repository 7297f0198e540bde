#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two models in one FastAPI process, with and without gpushare.

    pip install gpushare fastapi uvicorn httpx
    python server.py --gpu sim

`chat` answers people: 2 ms of GPU time a request. `batch` summarises documents: 30 ms. Each is an engine that
launches on its own, here straight through the driver. A client sends both requests as a Poisson process, at times
that do not wait for answers (open loop), once past gpushare and once with it, and the latencies are compared.
The change to the server is what [gpushare] marks.

With `--gpu sim` the GPU keeps the wall clock, so both figures need idle processors: on a busy machine the latencies are
those of its processors. Without it, `GPUSHARE_DRIVER=sim` needs `GPUSHARE_SIM=clock=wall` beside it: the virtual clock
knows neither this server's threads nor its clients, and hours of it pass within a lease.
"""

import argparse
import asyncio
import contextlib
import ctypes
import random
import socket
import threading
import time

import fastapi
import gpushare
import httpx
import uvicorn

PTX = """.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
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


class Engine:
    """A model whose runtime knows nothing of gpushare: it launches layers on a stream that it is given."""

    def __init__(self, runtime, kernel, stream, layers, layer_ns):
        self.driver = ctypes.CDLL(runtime.driver_path)
        self.kernel, self.stream = kernel, stream
        self.layers, self.layer_ns = layers, layer_ns
        self.context = ctypes.c_void_p()
        self.driver.cuCtxGetCurrent(ctypes.byref(self.context))

    def execute(self, layers):
        ns = ctypes.c_uint64(self.layer_ns)
        self.driver.cuCtxSetCurrent(self.context)  # this thread may be new
        params = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
        for _ in layers:
            code = self.driver.cuLaunchKernel(ctypes.c_void_p(self.kernel.ptr), 132, 1, 1, 256, 1, 1, 0,
                                              ctypes.c_void_p(self.stream.ptr), params, None)
            if code != 0:
                raise RuntimeError(f"cuLaunchKernel: {code}")
        self.stream.synchronize()


class Model:
    def __init__(self, gpu, kernel, name, *, layers, layer_ns, step, **limits):
        self.device = gpu.virtual_device(name, memory="1GiB", **limits)  # [gpushare]
        self.stream = self.device.stream()  # [gpushare]
        self.engine = Engine(gpu.runtime, kernel, self.stream, layers, layer_ns)
        # [gpushare] A lease for `step` layers: between two of them the others get their turn.
        self.step = step
        self.lease = self.device.lease(hint=step * layer_ns / 1e9, streams=[self.stream])
        self.busy = asyncio.Lock()  # one request at a time, as they come

    async def answer(self, shared):
        async with self.busy:
            if not shared:
                await asyncio.to_thread(self.engine.execute, range(self.engine.layers))
                return
            for first in range(0, self.engine.layers, self.step):
                async with self.lease:  # [gpushare]
                    await asyncio.to_thread(self.engine.execute, range(first, min(first + self.step, self.engine.layers)))


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
    """The server on a thread of its own, on a port of 127.0.0.1 that is free."""
    listener = socket.socket()
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


async def load(url, rates, seconds, shared, seed):
    """Poisson arrivals; returns the latencies of each model, from when a request was due."""
    latencies = {name: [] for name in rates}
    rng = random.Random(seed)
    due = []
    for name, rate in rates.items():
        at = rng.expovariate(rate)
        while at < seconds:
            due.append((at, name))
            at += rng.expovariate(rate)
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=None)) as client:
        for name in rates:  # connections are open, code is imported
            (await client.post(f"/v1/models/{name}/infer")).raise_for_status()
        begin = time.perf_counter()

        async def request(at, name):
            await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
            response = await client.post(f"/v1/models/{name}/infer", params={"shared": shared})
            response.raise_for_status()
            latencies[name].append(time.perf_counter() - begin - at)

        await asyncio.gather(*(request(at, name) for at, name in due))
    return latencies


def quantile(values, q):
    return sorted(values)[min(int(q * len(values)), len(values) - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=["auto", "sim"], default="auto", help="sim: the simulated GPU")
    parser.add_argument("--seconds", type=float, default=4, help="of load, twice")
    parser.add_argument("--trace", metavar="FILE", help="what the GPU did with gpushare, for ui.perfetto.dev")
    options = parser.parse_args()

    simulated = gpushare.simulated_gpu(overlap="serial") if options.gpu == "sim" else None
    with simulated or contextlib.nullcontext() as gpu:
        gpu = gpu or gpushare.Gpu(gpushare.Runtime())
        kernel = gpu.load(PTX)["layer"]
        models = {
            "chat": Model(gpu, kernel, "chat", layers=4, layer_ns=500_000, step=4, priority="high", cap="50%"),
            "batch": Model(gpu, kernel, "batch", layers=15, layer_ns=2_000_000, step=3),
        }
        rates = {"chat": 30, "batch": 18}  # a second: 6 % and 54 % of the device
        print(f"{gpu.name}, {options.seconds:g} s each way")
        with serving(make_app(models)) as url:
            for shared in (False, True):
                record = gpushare.trace(options.trace) if shared and options.trace else contextlib.nullcontext()
                with record:
                    latencies = asyncio.run(load(url, rates, options.seconds, shared, seed=1))
                for name, values in latencies.items():
                    print(f"{'with   ' if shared else 'without'} gpushare  {name:5}  {len(values):3} requests  "
                          f"p50 {quantile(values, 0.5) * 1e3:6.1f} ms  p99 {quantile(values, 0.99) * 1e3:6.1f} ms")
        for stats in gpu.runtime.snapshot():
            print(f"{stats.tenant:5}  {stats.waits} waits, held {stats.throttled:.3f} s, "
                  f"{stats.measured:.3f} s of device time")


if __name__ == "__main__":
    main()
