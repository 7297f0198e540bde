# SPDX-License-Identifier: Apache-2.0
"""gpushare.cuda_core with the real cuda.core, on the simulated driver."""

import gc
import inspect

import gpushare
import numpy as np
import pytest

cuda_core = pytest.importorskip("cuda.core", reason="cuda-core is not installed; scripts/setup does")

from cuda.bindings import driver  # noqa: E402
from gpushare.cuda_core import VirtualDeviceMemoryResource, as_core_buffer  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def core(gpu):
    """GPU 0 as a device of cuda.core, on the simulated driver that `gpu` has loaded."""
    device = cuda_core.Device(0)
    device.set_current()
    return device


@pytest.fixture
def resource(device):
    return VirtualDeviceMemoryResource(device)


@pytest.fixture
def core_stream(core):
    stream = core.create_stream()
    yield stream
    stream.close()


def test_buffers_are_charged_until_they_are_closed(core, device, resource, core_stream, used):
    core.memory_resource = resource
    buffer = core.allocate(3 * MIB, stream=core_stream)
    assert used(device) == 3 * MIB
    assert (buffer.size, buffer.device_id) == (3 * MIB, 0)
    assert buffer.is_device_accessible and not buffer.is_host_accessible
    assert buffer.__dlpack_device__() == (2, 0)
    buffer.close()
    assert used(device) == 0
    forgotten = resource.allocate(MIB, stream=core_stream)
    assert used(device) == MIB
    del forgotten
    gc.collect()
    assert used(device) == 0


def test_over_the_quota(core, device, resource, core_stream):
    held = resource.allocate(3 << 30, stream=core_stream)
    with pytest.raises(MemoryError) as failed:
        resource.allocate(2 << 30, stream=core_stream)
    assert isinstance(failed.value, gpushare.QuotaExceededError)
    assert (failed.value.asked, failed.value.left) == (2 << 30, 1 << 30)
    held.close()
    resource.allocate(2 << 30, stream=core_stream).close()


def test_reclaiming(core, device, core_stream):
    cache = [device.alloc("3GiB")]

    def reclaim(asked, left):
        cache.clear()
        return True

    resource = VirtualDeviceMemoryResource(device, device.allocator(reclaim=reclaim))
    resource.allocate(2 << 30, stream=core_stream).close()
    with pytest.raises(ValueError, match="another virtual device"):
        VirtualDeviceMemoryResource(device.gpu.virtual_device("b", memory="1GiB"), device.allocator())


def test_no_bytes(core, device, resource, core_stream, used):
    buffer = resource.allocate(0, stream=core_stream)
    assert (buffer.size, used(device)) == (0, 0)
    buffer.close()


def test_streams_of_either_are_streams_of_the_other(core, device, resource, core_stream):
    ours = device.stream()
    theirs = core.create_stream(ours)
    assert int(theirs.handle) == ours.ptr
    source = resource.allocate(4096, stream=theirs)
    target = resource.allocate(4096, stream=ours)
    source.fill(7, stream=theirs)
    target.copy_from(source, stream=theirs)
    host = np.zeros(4096, "uint8")
    with device.stream(core_stream) as adopted:
        assert adopted.ptr == int(core_stream.handle)
        theirs.sync()
        adopted.copy_to_host(host, int(target.handle))
    assert (host == 7).all()


def test_a_stream_of_gpushare_lives_as_long_as_cuda_core_has_it(core, device):
    theirs = core.create_stream(device.stream())
    gc.collect()
    theirs.sync()


def test_kernels_on_an_adopted_stream_under_a_lease_are_charged(virtual_gpu, ptx):
    core = cuda_core.Device(0)
    core.set_current()
    theirs = core.create_stream()
    device = virtual_gpu.virtual_device("a", memory="1GiB")
    spin = virtual_gpu.load(ptx)["spin"]
    argument = np.array([2_000_000], "uint64")  # ns
    arguments = np.array([argument.ctypes.data], "uint64")
    with device.stream(theirs) as adopted:
        with device.lease(streams=[adopted], hint="2ms"):
            (result,) = driver.cuLaunchKernel(spin.ptr, 1, 1, 1, 1, 1, 1, 0, theirs.handle, arguments.ctypes.data, 0)
            assert result == driver.CUresult.CUDA_SUCCESS
            theirs.sync()
        virtual_gpu.runtime.sleep("1ms")
        assert device.stats().measured == pytest.approx(2e-3, rel=0.02)
    theirs.close()


def test_what_is_no_stream(core, resource, core_stream):
    for wrong in (None, 5, object()):
        with pytest.raises(TypeError, match="^stream: "):
            resource.allocate(8, stream=wrong)
    with pytest.raises(TypeError, match="no node of a graph"):
        resource.allocate(8, stream=core_stream.create_graph_builder())


def test_what_is_no_virtual_device(core, gpu, device):
    with pytest.raises(TypeError, match="^device: Gpu given"):
        VirtualDeviceMemoryResource(gpu)
    with pytest.raises(TypeError, match="^allocator: str given"):
        VirtualDeviceMemoryResource(device, "direct")
    with pytest.raises(TypeError, match="^buffer: int given"):
        as_core_buffer(0)
    device.close()
    with pytest.raises(gpushare.ClosedError):
        VirtualDeviceMemoryResource(device)


def test_buffers_outlive_the_virtual_device(core, gpu, core_stream):
    device = gpu.virtual_device("short", memory="1GiB")
    resource = VirtualDeviceMemoryResource(device)
    buffer = resource.allocate(MIB, stream=core_stream)
    device.close()
    with pytest.raises(gpushare.ClosedError):
        resource.allocate(MIB, stream=core_stream)
    buffer.fill(1, stream=core_stream)
    buffer.close()
    assert gpushare.Simulation(gpu.runtime).memory_used() == 0


def test_buffers_outlive_their_stream(core, device, resource, used):
    stream = device.stream()
    buffer = resource.allocate(MIB, stream=stream)
    stream.close()
    del buffer
    gc.collect()
    assert used(device) == 0


def test_buffers_that_outlive_everything():
    with gpushare.simulated_gpu(memory="1GiB") as gpu:
        core = cuda_core.Device(0)
        core.set_current()
        stream = core.create_stream()
        buffer = VirtualDeviceMemoryResource(gpu.virtual_device("a", memory="1MiB")).allocate(8, stream=stream)
        stream.close()
    buffer.close()


def test_by_many_threads(core, device, resource, core_stream, in_threads, used):
    def work():
        cuda_core.Device(0).set_current()
        for size in range(1, 60):
            resource.allocate(size, stream=core_stream).close()

    in_threads(work)
    assert used(device) == 0


def test_the_number_is_the_physical_gpus(succeeds):
    succeeds("""
        import cuda.core, gpushare
        from gpushare.cuda_core import VirtualDeviceMemoryResource
        with gpushare.simulated_gpu(devices=2, memory="1GiB") as gpu:
            other = gpushare.Gpu(gpu.runtime, 1).virtual_device("b", memory="1MiB")
            core = cuda.core.Device(1)
            core.set_current()
            stream = core.create_stream()
            cuda.core.Device(0).set_current()  # somebody else's context is current
            buffer = VirtualDeviceMemoryResource(other).allocate(8, stream=stream)
            assert (buffer.device_id, other.stats().memory_used) == (1, 8)
            assert gpushare.Simulation(gpu.runtime).memory_used(1) == 8
            buffer.close()
            assert gpushare.Simulation(gpu.runtime).memory_used(1) == 0
    """)


def test_a_buffer_of_gpushare_as_one_of_cuda_core(core, device, core_stream, used):
    ours = device.alloc(4096)
    theirs = as_core_buffer(ours)
    assert (int(theirs.handle), theirs.size) == (ours.ptr, 4096)
    del ours
    theirs.fill(3, stream=core_stream)
    assert used(device) == 4096
    del theirs
    gc.collect()
    assert used(device) == 0


def test_dlpack_and_array_interface_of_gpushares_buffers(core, device, core_stream):
    buffer = device.empty((3, 4), "float32")
    view_of, stream = cuda_core.utils.StridedMemoryView, int(core_stream.handle)
    for view in (view_of.from_dlpack(buffer, stream_ptr=stream),
                 view_of.from_cuda_array_interface(buffer, stream_ptr=stream)):
        assert (view.ptr, tuple(view.shape), view.device_id) == (buffer.ptr, (3, 4), 0)


def test_signatures_are_those_of_the_interface():
    for name in ("allocate", "deallocate"):
        interface = inspect.signature(getattr(cuda_core.MemoryResource, name)).parameters
        ours = inspect.signature(getattr(VirtualDeviceMemoryResource, name)).parameters
        assert [(p.name, p.kind) for p in ours.values()] == [(p.name, p.kind) for p in interface.values()], name
    for name in ("is_device_accessible", "is_host_accessible", "is_managed", "device_id"):
        assert hasattr(cuda_core.MemoryResource, name)
        assert isinstance(getattr(VirtualDeviceMemoryResource, name), property)


def test_without_cuda_core(succeeds):
    succeeds("""
        import sys
        sys.modules["cuda.core"] = None
        try:
            import gpushare.cuda_core
        except ImportError as error:
            assert "pip install 'cuda-core[cu13]>=1.2'" in str(error), error
        else:
            raise AssertionError
        import gpushare
    """)


def test_importing_gpushare_imports_no_framework(run_python):
    ran = run_python("""
        import sys, gpushare
        print(sorted({name.split(".")[0] for name in sys.modules} & {"cuda", "cupy", "jax", "numba", "torch"}))
    """)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
