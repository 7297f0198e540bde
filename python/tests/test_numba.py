# SPDX-License-Identifier: Apache-2.0
"""gpushare.numba with the real numba-cuda, on the simulated driver. Numba's kernels need NVVM and a GPU: tests/gpu."""

import gc
import importlib.util
import inspect

import gpushare
import numpy as np
import pytest

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("numba-cuda is not installed; scripts/setup does", allow_module_level=True)

MIB = 1 << 20


@pytest.fixture
def numba(gpu, device):
    """gpushare.numba in use for `device`. Imported here, because Numba looks for a driver when it is imported."""
    import gpushare.numba

    gpushare.numba.use(device)
    yield gpushare.numba
    if not gpu.closed:
        context().reset()


@pytest.fixture
def cuda(numba):
    from numba import cuda

    return cuda


def context():
    from numba import cuda

    return cuda.current_context()


def flush():
    gc.collect()
    context().memory_manager.deallocations.clear()


def test_arrays_and_copies(cuda, device, used):
    host = np.arange(1000)
    array = cuda.to_device(host)
    assert used(device) == 8000
    assert (array.copy_to_host() == host).all()
    other = cuda.device_array_like(array)
    other.copy_to_device(array)
    assert (other.copy_to_host() == host).all()
    del array, other
    flush()
    assert used(device) == 0


def test_views_keep_the_memory(cuda, device, used):
    array = cuda.to_device(np.arange(1000))
    part = array[10:20]
    del array
    flush()
    assert used(device) == 8000 and part.copy_to_host().tolist() == list(range(10, 20))
    del part
    flush()
    assert used(device) == 0


def test_over_the_quota_is_numbas_own_error_and_a_memory_error(cuda, numba, device):
    from numba.cuda.cudadrv.driver import CudaAPIError

    held = cuda.device_array(3 << 30, "uint8")
    with pytest.raises(CudaAPIError) as failed:
        cuda.device_array(2 << 30, "uint8")
    assert failed.value.code == 2  # CUDA_ERROR_OUT_OF_MEMORY
    assert isinstance(failed.value, MemoryError) and isinstance(failed.value, numba.OutOfMemoryError)
    cause = failed.value.__cause__
    assert (cause.asked, cause.left, cause.total) == (2 << 30, 1 << 30, 4 << 30)
    assert "tenant 'a'" in str(failed.value)
    del held


def test_freed_arrays_that_wait_make_room(cuda, device, used):
    array = cuda.device_array(700 * MIB, "uint8")  # below a fifth of the quota, so its deallocation is pending
    del array
    gc.collect()
    assert used(device) == 700 * MIB
    cuda.device_array(4 << 30, "uint8")


def test_freed_arrays_wait_while_cleanup_is_deferred(cuda, device):
    with cuda.defer_cleanup():
        cuda.device_array(2 << 30, "uint8")
        gc.collect()
        with pytest.raises(MemoryError):
            cuda.device_array(3 << 30, "uint8")
    cuda.device_array(3 << 30, "uint8")


def test_memory_info_is_the_virtual_devices(cuda, device):
    array = cuda.device_array(MIB, "uint8")
    assert cuda.current_context().get_memory_info() == ((4 << 30) - MIB, 4 << 30)
    device.resize(memory="2GiB")
    assert tuple(cuda.current_context().get_memory_info()) == ((2 << 30) - MIB, 2 << 30)
    del array


def test_host_memory_is_not_charged(cuda, device, used):
    pinned, mapped = cuda.pinned_array(MIB), cuda.mapped_array(MIB)
    own = np.zeros(1000)
    with cuda.pinned(own):
        assert used(device) == 0
    mapped[:] = 1
    del pinned, mapped
    flush()


def test_managed_memory_is_refused(cuda, device):
    with pytest.raises(NotImplementedError, match="quota of device memory"):
        cuda.managed_array(10)


def test_no_bytes(cuda, device, used):
    assert cuda.device_array(0).copy_to_host().size == 0
    with pytest.raises(Exception, match="0 bytes") as failed:
        cuda.current_context().memalloc(0)
    assert failed.value.code == 1  # CUDA_ERROR_INVALID_VALUE, from the driver
    assert used(device) == 0


def test_tenants_by_scope(cuda, gpu, device, used):
    tenant = gpushare.Tenant(gpu.runtime, "b")
    other = gpu.virtual_device(tenant, memory="1MiB")
    with gpushare.tenant_scope(tenant):
        array = cuda.device_array(1000, "uint8")
        assert tuple(cuda.current_context().get_memory_info()) == (MIB - 1000, MIB)
        with pytest.raises(MemoryError, match="tenant 'b'"):
            cuda.device_array(2 * MIB, "uint8")
    assert (used(other), used(device)) == (1000, 0)
    del array
    flush()  # outside of the scope, the memory is credited to the tenant that was charged
    assert (used(other), used(device)) == (0, 0)


def test_another_virtual_device_for_what_comes(cuda, numba, gpu, device, used):
    before = cuda.device_array(1000, "uint8")
    other = gpu.virtual_device("b", memory="1MiB")
    numba.use(other)
    after = cuda.device_array(2000, "uint8")
    assert (used(device), used(other)) == (1000, 2000)
    device.close()
    assert before.copy_to_host().size == 1000  # the array outlives the virtual device
    other.close()
    with pytest.raises(gpushare.ClosedError):
        cuda.device_array(1)
    with pytest.raises(gpushare.ClosedError):
        numba.use(other)
    numba.use(gpu.virtual_device("c", memory="1MiB"))
    del before, after


def test_what_is_no_virtual_device(numba, gpu):
    with pytest.raises(TypeError, match="^device: Gpu given, gpushare.VirtualDevice wanted"):
        numba.use(gpu)
    with pytest.raises(TypeError, match="^source: int given, gpushare.Stream wanted"):
        numba.stream(0)


def test_reset_gives_everything_back(cuda, device, used):
    array = cuda.device_array(MIB, "uint8")
    cuda.current_context().reset()
    assert used(device) == 0
    del array
    gc.collect()
    assert used(device) == 0


def test_arrays_that_outlive_everything(cuda, numba, gpu, device):
    array = cuda.device_array(MIB, "uint8")
    gpu.runtime.close_all()
    del array
    gc.collect()


def test_streams_of_either_are_streams_of_the_other(cuda, numba, device):
    ours = device.stream()
    theirs = numba.stream(ours)
    host = np.arange(100)
    array = cuda.to_device(host, stream=theirs)
    del ours
    gc.collect()
    assert (array.copy_to_host(stream=theirs) == host).all()
    theirs.synchronize()
    native = cuda.stream()
    with device.stream(native) as adopted:
        assert adopted.ptr == int(native.handle)
        array.copy_to_host(stream=native)
        adopted.synchronize()


def test_by_many_threads(cuda, device, in_threads, used):
    def work():
        for size in range(1, 40):
            assert cuda.to_device(np.full(size, size)).copy_to_host().sum() == size * size

    in_threads(work)
    flush()
    assert used(device) == 0


def test_interprocess_handles_are_asked_of_the_driver(cuda):
    array = cuda.device_array(10)
    with pytest.raises(Exception, match="NOT_SUPPORTED"):  # from the simulated GPU
        array.get_ipc_handle()


def test_gpushares_buffers_are_numba_arrays(cuda, device):
    buffer = device.empty((3, 4), "float32")
    array = cuda.as_cuda_array(buffer)
    array.copy_to_device(np.full((3, 4), 2, "float32"))
    assert array.copy_to_host().tolist() == [[2] * 4] * 3
    assert array.__cuda_array_interface__["data"][0] == buffer.ptr


def test_the_interface_is_numbas(cuda, numba):
    base = cuda.BaseCUDAMemoryManager
    assert numba._numba_memory_manager is numba.VirtualDeviceMemory and issubclass(numba.VirtualDeviceMemory, base)
    assert numba.VirtualDeviceMemory.__abstractmethods__ == frozenset()
    for name in ("memalloc", "memallocmanaged", "get_memory_info", "initialize"):
        theirs = inspect.signature(getattr(cuda.HostOnlyCUDAMemoryManager, name))
        assert list(inspect.signature(getattr(numba.VirtualDeviceMemory, name)).parameters) == list(theirs.parameters)
    assert numba.VirtualDeviceMemory(context=None).interface_version == 1


# ---- In processes of their own ----


# Both use the driver that was loaded first, found by its soname.
LOADED = """
    import ctypes, os, gpushare
    ctypes.CDLL(gpushare.Runtime("sim").driver_path)
    from numba import cuda
"""


def test_a_program_that_does_not_know_gpushare(succeeds):
    succeeds(LOADED + """
    import numpy as np
    assert (cuda.to_device(np.arange(10)).copy_to_host() == np.arange(10)).all()
    assert cuda.current_context().get_memory_info().total == 64 << 20
    try:
        cuda.device_array(65 << 20, "uint8")
    except MemoryError as error:
        assert "tenant 'job'" in str(error), error
    else:
        raise AssertionError
    """, NUMBA_CUDA_MEMORY_MANAGER="gpushare.numba", GPUSHARE_SPEC="memory=64MiB", GPUSHARE_TENANT="job")


def test_a_share_of_each_gpu_by_the_environment(succeeds):
    succeeds(LOADED + """
    for ordinal in (0, 1):
        with cuda.gpus[ordinal]:
            array = cuda.device_array(1000, "uint8")
            assert tuple(cuda.current_context().get_memory_info()) == ((1 << 20) - 1000, 1 << 20)
            del array
    """, NUMBA_CUDA_MEMORY_MANAGER="gpushare.numba", GPUSHARE_SPEC="memory=1MiB", GPUSHARE_SIM="devices=2")


def test_without_a_share(succeeds):
    succeeds(LOADED + """
    try:
        cuda.device_array(1)
    except RuntimeError as error:
        assert "gpushare.numba.use(device)" in str(error) and "GPUSHARE_SPEC" in str(error), error
    else:
        raise AssertionError
    """, NUMBA_CUDA_MEMORY_MANAGER="gpushare.numba", GPUSHARE_SPEC="")


def test_too_late(succeeds):
    succeeds(LOADED + """
    cuda.device_array(1)
    import gpushare.numba
    device = gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("a", memory="1MiB")
    try:
        gpushare.numba.use(device)
    except RuntimeError as error:
        assert "call gpushare.numba.use() first" in str(error), error
    else:
        raise AssertionError
    """)


def test_two_gpus(succeeds):
    succeeds(LOADED + """
    import gpushare.numba
    gpu = gpushare.Gpu(gpushare.Runtime("sim"), 1)
    device = gpu.virtual_device("a", memory="1MiB")
    gpushare.numba.use(device)
    with cuda.gpus[1]:
        array = cuda.device_array(1000, "uint8")
        assert device.stats().memory_used == 1000
        del array
    try:
        with cuda.gpus[0]:
            cuda.device_array(1)
    except RuntimeError as error:
        assert "GPU 0 has no virtual device" in str(error), error
    else:
        raise AssertionError
    """, GPUSHARE_SIM="devices=2", GPUSHARE_SPEC="")


def test_after_fork(succeeds):
    succeeds(LOADED + """
    import gpushare.numba
    gpushare.numba.use(gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("a", memory="1MiB"))
    array = cuda.device_array(10)
    child = os.fork()
    if child == 0:
        try:
            cuda.device_array(10)
        except gpushare.ForkedError:
            del array  # nothing is freed here
            cuda.current_context().memory_manager.deallocations.clear()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert array.copy_to_host().size == 10
    """)


def test_a_fork_while_another_thread_holds_the_lock(succeeds):
    succeeds(LOADED + """
    import signal, threading
    import gpushare.numba
    gpushare.numba.use(gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("a", memory="1MiB"))
    held, done = threading.Event(), threading.Event()
    def hold():
        with gpushare.numba._lock:
            held.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # instead of waiting for ever
        try:
            cuda.device_array(10)
        except gpushare.ForkedError:
            os._exit(0)
        os._exit(1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


@pytest.mark.parametrize("missing", ["numba_cuda", "cuda.bindings.driver"])
def test_without_numba_cuda(succeeds, missing):
    succeeds(f"""
    import sys
    sys.modules["{missing}"] = None
    try:
        import gpushare.numba
    except ImportError as error:
        assert "pip install 'numba-cuda>=0.22'" in str(error), error
    else:
        raise AssertionError
    """)
