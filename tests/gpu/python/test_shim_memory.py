# SPDX-License-Identifier: Apache-2.0
"""Unmodified frameworks under the preloaded library with 2 GiB: each gets its own out-of-memory error and continues. Without the
library the same program gets what it asks for, which shows that the tests can fail."""

import shutil
import subprocess

import preloaded
import pytest

LIMIT_MIB = 2048
SPEC = f"memory={LIMIT_MIB}MiB"

TORCH = """
    import json, torch
    refused = 0
    total = torch.cuda.mem_get_info()[1] >> 20
    try:
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        refused = 1
    torch.cuda.empty_cache()
    left = torch.ones(256, 256, device="cuda")
    print(json.dumps([total, refused, int((left @ left).sum().item())]))
"""
CUPY = """
    import json, cupy
    refused = 0
    total = cupy.cuda.runtime.memGetInfo()[1] >> 20
    try:
        cupy.empty(3 << 30, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        refused = 1
    cupy.get_default_memory_pool().free_all_blocks()
    left = cupy.ones((256, 256), dtype=cupy.float32)
    print(json.dumps([total, refused, int((left * 256).sum())]))
"""
JAX = """
    import json, jax, jax.numpy as jnp
    refused, total = 0, None
    try:
        jnp.zeros((3, 1 << 30), dtype=jnp.uint8).block_until_ready()
    except Exception as error:
        refused = int("RESOURCE_EXHAUSTED" in str(error))
        if not refused: raise
    left = jnp.ones((256, 256), dtype=jnp.float32)
    print(json.dumps([total, refused, int((left * 256).sum())]))
"""
NUMBA = """
    import json
    from numba import cuda
    refused = 0
    total = cuda.current_context().get_memory_info().total >> 20
    try:
        cuda.device_array(3 << 30, "uint8")
    except Exception as error:
        refused = int("OUT_OF_MEMORY" in str(error))
        if not refused: raise
    @cuda.jit
    def fill(array):
        i = cuda.grid(1)
        if i < array.size: array[i] = 256
    left = cuda.device_array(256 * 256, "int32")
    fill[256, 256](left)
    print(json.dumps([total, refused, int(left.copy_to_host().sum())]))
"""
FRAMEWORKS = {
    "torch": ("torch", TORCH, {}),
    "cupy": ("cupy-cuda12x", CUPY, {}),
    # Otherwise it takes three quarters of the memory that it sees when it starts.
    "jax": ("'jax[cuda12]'", JAX, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": "cuda"}),
    "numba": ("'numba-cuda[cu12]'", NUMBA, {}),
}


FREE = """
    import ctypes, json
    d = ctypes.CDLL("libcuda.so.1")
    context, left, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    assert d.cuInit(0) == d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == d.cuCtxSetCurrent(context) == 0
    assert d.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    print(json.dumps(left.value))
"""


@pytest.fixture
def room(runtime):
    """More than the tests ask for."""
    if preloaded.run_python(FREE) < 6 << 30:
        pytest.skip("the GPU has less than 6 GiB free")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_meets_its_own_error_and_recovers(name, framework, room):
    package, program, variables = FRAMEWORKS[name]
    framework(name, package)
    total, refused, computed = preloaded.need_bare(program, **variables)
    assert (refused, computed) == (0, 256**3)
    total, refused, computed = preloaded.run_python(program, SPEC, **variables)
    assert total in (LIMIT_MIB, None)
    assert (refused, computed) == (1, 256**3)


@pytest.fixture(scope="session")
def static_program(tmp_path_factory, runtime):
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        pytest.skip("there is no nvcc")
    program = tmp_path_factory.mktemp("static") / "static_runtime"
    source = preloaded.SOURCES / "static_runtime.cu"
    subprocess.run([nvcc, "-cudart", "static", "-arch=native", "-O2", source, "-o", program], check=True)
    return program


def test_a_program_with_the_runtime_inside_it(static_program, room):
    no_memory, no_error = 2, 0  # cudaErrorMemoryAllocation
    total, error, computed = preloaded.run([static_program, str(LIMIT_MIB)], SPEC).split()
    assert [int(total), int(error), int(computed)] == [LIMIT_MIB, no_memory, 1000]
    total, error, computed = preloaded.run([static_program, str(LIMIT_MIB)]).split()
    assert int(total) > LIMIT_MIB
    assert [int(error), int(computed)] == [no_error, 1000]


CHARGED = """
    import ctypes, json, sys
    d = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert d.cuInit(0) == d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == d.cuCtxSetCurrent(context) == 0
    def charged():
        assert d.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
        return total.value - left.value
    def say():
        print(charged(), flush=True)
        sys.stdin.readline()
    say()
    for mib in 512, 1, 3, 700:
        assert d.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)) == 0
    say()
"""


def used_by_driver():
    """The memory used on the whole device, in bytes: nothing else runs on it."""
    asked = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                           capture_output=True, text=True, timeout=60, check=True)
    return int(asked.stdout.split()[0]) << 20


def test_what_the_driver_reports_is_what_is_charged(room, record_property):
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi")
    before = used_by_driver()
    with subprocess.Popen(preloaded.python(CHARGED), env=preloaded.environment(SPEC), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        charged, reported = [], []
        for _ in range(2):
            charged.append(int(process.stdout.readline()))
            reported.append(used_by_driver())
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0
    assert charged[0] == 0
    record_property("process_overhead_mib", (reported[0] - before) / 2**20)
    record_property("charged_mib", charged[1] / 2**20)
    record_property("reported_mib", (reported[1] - reported[0]) / 2**20)
    # Within a page of 2 MiB for each allocation, and the MiB to which the figure is rounded.
    assert abs((reported[1] - reported[0]) - charged[1]) <= 4 * (2 << 20) + (1 << 20)
