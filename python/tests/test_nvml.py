# SPDX-License-Identifier: Apache-2.0
"""The simulated libnvidia-ml.so.1 through NVIDIA's own Python binding of NVML."""

import importlib.util
import os

import pytest

if importlib.util.find_spec("pynvml") is None:
    pytest.skip("nvidia-ml-py is not installed; scripts/setup does", allow_module_level=True)

PROGRAM = """
    import ctypes, os, pynvml as nvml
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 2
    device = nvml.nvmlDeviceGetHandleByIndex(1)
"""
CONFIGURATION = "devices=2,memory=8GiB,name=Small One,compute_capability=8.9,clock=wall"


@pytest.fixture
def run_nvml(succeeds, gpu):
    """Runs a program that finds the simulated libraries by their names, as any other program does."""
    folder = os.path.dirname(gpu.runtime.driver_path)

    def run(program):
        succeeds(PROGRAM + program, LD_LIBRARY_PATH=folder, GPUSHARE_SIM=CONFIGURATION)

    return run


def test_without_a_driver_the_devices_are_idle(run_nvml):
    run_nvml("""
    assert nvml.nvmlDeviceGetName(device) == "Small One"
    assert nvml.nvmlDeviceGetCudaComputeCapability(device) == (8, 9)
    assert nvml.nvmlSystemGetCudaDriverVersion() >= 13000
    assert int(nvml.nvmlSystemGetDriverVersion().split(".")[0]) >= 580
    for version in (None, nvml.nvmlMemory_v2):
        memory = nvml.nvmlDeviceGetMemoryInfo(device, version)
        assert (memory.total, memory.free, memory.used) == (8 << 30, 8 << 30, 0)
    rates = nvml.nvmlDeviceGetUtilizationRates(device)
    assert (rates.gpu, rates.memory) == (0, 0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(device) == []
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v2(device) == []
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(device) == []
    assert nvml.nvmlDeviceGetMigMode(device) == [0, 0]

    pci = nvml.nvmlDeviceGetPciInfo(device)
    assert (pci.domain, pci.bus, pci.device) == (0, 2, 0)
    assert (pci.busId, pci.busIdLegacy) == ("00000000:02:00.0", "0000:02:00.0")
    uuid = nvml.nvmlDeviceGetUUID(device)
    for same in (nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)):
        assert nvml.nvmlDeviceGetIndex(same) == 1
    """)


def test_it_follows_the_driver_that_is_loaded_later(run_nvml):
    run_nvml("""
    cuda = ctypes.CDLL("libcuda.so.1")
    assert nvml.nvmlDeviceGetMemoryInfo(device).used == 0
    context, pointer, free, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(3 << 20)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    assert memory.used >= 3 << 20 and (memory.free, memory.total) == (free.value, total.value)
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert (process.pid, process.usedGpuMemory) == (os.getpid(), memory.used)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0)) == []
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used == 0
    """)


def test_errors_are_nvmls(run_nvml):
    run_nvml("""
    def refused(error, call, *arguments):
        try:
            call(*arguments)
        except error:
            return True

    assert refused(nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU)
    assert refused(nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetPowerUsage, device)
    assert refused(nvml.NVMLError_InvalidArgument, nvml.nvmlDeviceGetHandleByIndex, 2)
    assert refused(nvml.NVMLError_NotFound, nvml.nvmlDeviceGetHandleByUUID, "GPU-0")
    nvml.nvmlShutdown()
    assert refused(nvml.NVMLError_Uninitialized, nvml.nvmlDeviceGetCount)
    """)
