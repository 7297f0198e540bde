#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A policy of your own: Python code sets the shares every 50 ms.

    python policy.py

There are three tenants. The policy sets each tenant's weight to its backlog, the time for which its launches were held
in the last epoch, but never less than a tenth of the others'. An idle tenant returns to 1. In the middle, `b` pauses.
On the simulated GPU's virtual clock every run prints the same.
"""

import gpushare

PTX = """.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry work(.param .u64 ns) { ret; }
"""


def by_backlog(epoch):
    held = {usage.device: usage.stats.throttled for usage in epoch}
    most = max(held.values())
    if most == 0:
        return None  # nobody waited: leave everything unchanged
    return {device: {"weight": max(round(10 * seconds / most), 1)} for device, seconds in held.items()}


def work(device, kernel, threads_of_work, pause):
    """Keeps `threads_of_work` requests in flight; each kernel takes 500 us."""
    runtime, stream = device.gpu.runtime, device.stream()

    def one():
        end = runtime.now() + 0.6
        while runtime.now() < end:
            if pause and 0.2 < runtime.now() - begin < 0.4:
                runtime.sleep("10ms")
                continue
            stream.launch(kernel, 132, 256, 500_000)

    begin = runtime.now()
    return [runtime.start_thread(one) for _ in range(threads_of_work)]


def main():
    with gpushare.simulated_gpu(clock="virtual", overlap="serial") as gpu:
        kernel = gpu.load(PTX)["work"]
        devices = [gpu.virtual_device(name) for name in "abc"]
        print("epoch    " + "".join(f"{device.tenant_name}: weight  share  " for device in devices))

        def policy(epoch):
            limits = by_backlog(epoch)
            print(f"{epoch.number:5}    " + "".join(
                f"{usage.stats.weight:9g} {usage.share:6.0%}  " for usage in epoch))
            return limits

        loop = gpushare.PolicyLoop(devices, policy, epoch="50ms")
        with loop:
            threads = [thread for device, n, pause in zip(devices, (1, 2, 4), (False, True, False), strict=True)
                       for thread in work(device, kernel, n, pause)]
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main()
