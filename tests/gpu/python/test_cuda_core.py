# SPDX-License-Identifier: Apache-2.0
"""gpushare.cuda_core with cuda.core: a kernel of cuda.core's on gpushare's stream and memory, charged by a lease.
Everything else is tested on the simulated driver too: python/tests/test_cuda_core.py."""

import numpy as np
import pytest

COUNT = 1 << 20

# x[i] += 1 for 32-bit integers.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 x, .param .u32 n) {
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd3], %r5;
done:
  ret;
}
"""


@pytest.fixture
def core(framework, gpu):
    module = framework("cuda.core", "'cuda-core[cu12]>=1.2'")
    device = module.Device(gpu.ordinal)
    device.set_current()
    return device


def test_a_kernel_on_our_stream_and_memory_under_a_lease(core, device):
    from cuda.core import LaunchConfig, ObjectCode, launch
    from gpushare.cuda_core import VirtualDeviceMemoryResource

    kernel = ObjectCode.from_ptx(PTX).get_kernel("add_one")
    with device.stream() as ours:
        stream = core.create_stream(ours)
        buffer = VirtualDeviceMemoryResource(device).allocate(4 * COUNT, stream=stream)
        assert device.stats().memory_used == 4 * COUNT
        buffer.fill(0, stream=stream)
        for _ in range(3):
            with device.lease(streams=[ours], hint="1ms"):
                launch(stream, LaunchConfig(grid=COUNT // 256, block=256), kernel, buffer, np.uint32(COUNT))
        host = np.empty(COUNT, "uint32")
        ours.copy_to_host(host, int(buffer.handle))
        assert (host == 3).all()
        buffer.close()
        stream.close()
    assert device.stats().memory_used == 0 and device.stats().charged > 0


def test_over_the_quota(core, device):
    from gpushare.cuda_core import VirtualDeviceMemoryResource

    resource, stream = VirtualDeviceMemoryResource(device), core.create_stream()
    held = resource.allocate(768 << 20, stream=stream)
    with pytest.raises(MemoryError):
        resource.allocate(512 << 20, stream=stream)
    held.close()
    resource.allocate(1 << 30, stream=stream).close()
    stream.close()


def test_the_end_of_a_buffer_waits_for_its_stream(core, device):
    from gpushare.cuda_core import VirtualDeviceMemoryResource

    resource, stream = VirtualDeviceMemoryResource(device), core.create_stream()
    for round_ in range(50):
        buffer = resource.allocate(64 << 20, stream=stream)
        buffer.fill(round_, stream=stream)
        buffer.close()
    stream.sync()
    assert device.stats().memory_used == 0
    stream.close()
