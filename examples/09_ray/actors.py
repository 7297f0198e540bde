#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two Ray actors on one GPU, with three quarters and one quarter of it, and a third that Ray places when there is room.

    pip install gpushare 'ray>=2.40' cuda-bindings
    python actors.py --gpu sim

Ray itself counts fractions and does not enforce them. The change to the actors is `gpushare.ray.remote` in place of
`ray.remote`. They use the driver API, which knows nothing of gpushare. `--gpu sim` starts a separate node with a
simulated GPU; without it the example runs on the existing Ray cluster, with `gpushare broker` on its nodes
(docs/ray.md).
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import gpushare.ray
import ray

# Fills the GPU for the given number of nanoseconds.
PTX = b""".version 7.0
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
LAYER_NS = 1_000_000


class Model:
    def __init__(self):
        from cuda.bindings import driver

        self.cuda = driver
        self.call("cuInit", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", 0))
        self.layer = self.call("cuModuleGetFunction", self.call("cuModuleLoadData", PTX), b"layer")
        self.processors = self.call("cuDeviceGetAttribute",
                                    driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)

    def call(self, name, *arguments):
        code, *answer = getattr(self.cuda, name)(*arguments)
        if int(code) != 0:
            raise RuntimeError(f"{name}: {code.name}")
        return answer[0] if len(answer) == 1 else answer

    def memory(self):
        return int(self.call("cuDeviceTotalMem", 0))

    def hold(self, size):
        return int(self.call("cuMemAlloc", size))

    def serve(self, begin, end):
        """Runs layers as fast as the GPU can. Returns how many were done between two times."""
        count = 0
        while (now := time.time()) < end:
            self.call("cuLaunchKernel", self.layer, self.processors, 1, 1, 1024, 1, 1, 0, 0,
                      ((LAYER_NS,), (ctypes.c_uint64,)), 0)
            self.call("cuCtxSynchronize")
            count += now >= begin
        return count


@contextlib.contextmanager
def node_of_its_own():
    """Starts what docs/ray.md requires on each node: a broker, its socket in the environment, and Ray."""
    with tempfile.TemporaryDirectory(prefix="actors-") as folder:
        config, broker = pathlib.Path(folder, "broker.yaml"), pathlib.Path(folder, "broker.sock")
        config.write_text("unlisted: true\n")
        os.environ.update(GPUSHARE_DRIVER="sim", GPUSHARE_BROKER=str(broker), RAY_TMPDIR=folder,
                          GPUSHARE_SIM=f"memory=16GiB,clock=wall,shared={pathlib.Path(folder).name}",
                          RAY_USAGE_STATS_ENABLED="0")
        command = [sys.executable, "-m", "gpushare", "broker", "--config", str(config), "--socket", str(broker)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            process.stderr.readline()  # waits until it listens
            ray.init(num_cpus=4, num_gpus=1, include_dashboard=False, object_store_memory=80 << 20,
                     log_to_driver=False, logging_level="error")
            yield
        finally:
            ray.shutdown()
            process.terminate()
            process.wait()
            process.stderr.close()


@contextlib.contextmanager
def cluster_that_is_there():
    ray.init(address="auto", log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=["auto", "sim"], default="auto", help="sim: a node with a simulated GPU")
    parser.add_argument("--seconds", type=float, default=2, help="of work")
    options = parser.parse_args()

    with node_of_its_own() if options.gpu == "sim" else cluster_that_is_there():
        kind = gpushare.ray.remote(num_gpus=0.75, num_cpus=1)(Model)
        large, small = kind.remote(), kind.options(num_gpus=0.25).remote()
        memory = ray.get([large.memory.remote(), small.memory.remote()])
        for name, part, size in zip(("large", "small"), (0.75, 0.25), memory, strict=True):
            print(f"{name}  num_gpus={part}  sees {size / (1 << 30):.2f} GiB")
        try:
            ray.get(small.hold.remote(memory[0]))
        except RuntimeError as error:
            print(f"small  {memory[0] / (1 << 30):.2f} GiB: {str(error.args[0]).splitlines()[-1].split(': ', 1)[1]}")

        begin = time.time() + 0.5
        layers = ray.get([each.serve.remote(begin, begin + options.seconds) for each in (large, small)])
        for name, count in zip(("large", "small"), layers, strict=True):
            print(f"{name}  {count:4} layers of 1 ms in {options.seconds:g} s, {count / sum(layers):.0%} of all")

        third = kind.options(num_gpus=0.25).remote()
        ready = third.memory.remote()
        waits = not ray.wait([ready], timeout=0.5)[0]
        ray.kill(small)
        print(f"third  {'waits in Ray' if waits else 'did not wait'}; sees {ray.get(ready) / (1 << 30):.2f} GiB "
              "when small is gone")


if __name__ == "__main__":
    main()
