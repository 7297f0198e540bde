#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training job that keeps to its share of the GPU while another tenant uses it too.

    python train.py --gpu sim --plot training.png

The job finds the largest batch that fits its memory quota, trains with one lease per step, gives up its turn while it
works on the host, and writes what happened: a plot of the shares and, with --trace, a file for ui.perfetto.dev.
"""

import argparse
import contextlib
import threading

import gpushare

PTX = """.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry work(.param .u64 ns)
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

SAMPLE_BYTES = 24 << 20  # activations of one sample
SAMPLE_NS = 40_000  # device time of one sample, forward and backward


def largest_batch(device, first=512):
    """Halves the batch until its activations fit into the rest of the quota."""
    batch = first
    while True:
        try:
            return batch, device.alloc(batch * SAMPLE_BYTES)
        except MemoryError as error:
            if batch == 1 or error.left < SAMPLE_BYTES:
                raise
            print(f"batch {batch}: {error.asked >> 20} MiB asked, {error.left >> 20} MiB left of the quota")
            batch //= 2


def progress(steps):
    """tqdm, if it is installed and the output is a terminal."""
    with contextlib.suppress(ImportError):
        from tqdm import tqdm

        return tqdm(steps, unit="step", disable=None)
    return steps


def train(device, kernel, steps):
    stream = device.stream()
    parameters = device.alloc("1 GiB")  # with gradients and the state of the optimizer
    batch, activations = largest_batch(device)
    lease = device.lease(hint=batch * SAMPLE_NS / 1e9, streams=[stream])
    for step in progress(range(steps)):
        with lease:
            for _ in range(8):
                stream.launch(kernel, 132, 256, batch * SAMPLE_NS // 8)
            stream.synchronize()
        if step % 20 == 19:
            stream.yield_point()  # the checkpoint is work on the host: meanwhile others may have the device
            device.gpu.runtime.sleep("5ms")
    activations.close()
    parameters.close()
    return batch


def serve_beside(device, kernel, stop):
    """The other tenant launches kernels of 1 ms, one after the other."""
    stream = device.stream()
    while not stop.is_set():
        stream.launch(kernel, 132, 256, 1_000_000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=["auto", "sim"], default="auto", help="sim: the simulated GPU")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plot", metavar="FILE", help="shares and memory over time (needs matplotlib)")
    parser.add_argument("--trace", metavar="FILE", help="a trace for ui.perfetto.dev")
    options = parser.parse_args()

    # On the virtual clock a run takes no real time and is always the same.
    simulated = gpushare.simulated_gpu(clock="virtual", memory="16GiB", overlap="serial") if options.gpu == "sim" else None
    with simulated or contextlib.nullcontext() as gpu:
        gpu = gpu or gpushare.Gpu(gpushare.Runtime())
        kernel = gpu.load(PTX)["work"]
        trainer = gpu.virtual_device("trainer", memory="8GiB", compute="60%")
        other = gpu.virtual_device("service", memory="2GiB", compute="40%")
        stop = threading.Event()
        trace = gpushare.trace(options.trace) if options.trace else contextlib.nullcontext()
        with trace, gpushare.record(gpu, every="100ms") as recorder:
            thread = gpu.runtime.start_thread(lambda: serve_beside(other, kernel, stop))
            batch = train(trainer, kernel, options.steps)
            stop.set()
            thread.join()
        change = recorder.snapshots[-1] - recorder.snapshots[0]
        seconds = recorder.snapshots[-1].time - recorder.snapshots[0].time
        print(f"{options.steps} steps of {batch} samples in {seconds:.2f} s of the clock")
        for stats in change:
            print(f"{stats.tenant:8} {stats.measured / seconds:4.0%} of the device, held {stats.throttled:.2f} s, "
                  f"peak {stats.memory_peak / 2**30:.2f} GiB")
        if options.plot:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(9, 6), layout="constrained")
            top, bottom = figure.subplots(2, sharex=True)
            gpushare.plot.shares(recorder, ax=top)
            gpushare.plot.memory(recorder, ax=bottom)
            figure.savefig(options.plot)
            print("wrote", options.plot)


if __name__ == "__main__":
    main()
