#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Third-party programs, as installed from Debian and PyPI, under `gpushare run`. For a program that cannot be queried, a witness
(witness.c) reports what the simulated GPU saw of it."""

import glob
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from command import COMMAND, PYTHON, python

WITNESS = os.environ["GPUSHARE_WITNESS"]
BEGIN = 1_000_000_000  # of the simulated clock
# A cap lets 5 ms pass at once, and the first launches come before their cost is known.
TOLERANCE = 0.03


def loads(library):
    """Whether NVIDIA's `library` is installed, from PyPI or a toolkit."""
    code = f"from cuda.pathfinder import load_nvidia_dynamic_lib as load; load({library!r})"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, timeout=60).returncode == 0


def installed(module):
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, timeout=60).returncode == 0


class Seen:
    """The result of a program, and what the GPU saw of it."""

    def __init__(self, done, account):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        seen = dict(item.split("=") for item in account.split())
        self.launches = int(seen.get("cuLaunchKernel", 0))
        self.busy, self.elapsed = float(seen.get("busy_ns", 0)), float(seen.get("ns", BEGIN)) - BEGIN
        self.share = self.busy / self.elapsed if self.elapsed else 0

    def __repr__(self):
        return repr(vars(self))


def seen(*arguments, simulated="memory=16GiB", **more):
    """Runs `arguments` under `gpushare run`, with the witness."""
    with tempfile.NamedTemporaryFile("r") as account:
        done = subprocess.run(
            [COMMAND, "run", "--gpu", "sim", *arguments], capture_output=True, text=True, timeout=100,
            env={**os.environ, "LD_PRELOAD": WITNESS, "WITNESS_FILE": account.name, "GPUSHARE_SIM": simulated, **more})
        return Seen(done, account.read())


@unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is not installed; `scripts/setup --programs` does")
class Ffmpeg(unittest.TestCase):
    ON_GPU = ("-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu")

    COPIES = (*ON_GPU, ("-vf", "format=yuv420p,hwupload,hwdownload,format=yuv420p"))
    OVERLAY = (*ON_GPU, ("-filter_complex", "[0]format=yuv420p,hwupload[a];[1]format=yuv420p,hwupload[b];"
                         "[a][b]overlay_cuda,hwdownload,format=yuv420p"))

    @staticmethod
    def command(frames, *arguments, source="testsrc", size="1280x720", inputs=1):
        source = ("-f", "lavfi", "-i", f"{source}=duration={frames / 25}:size={size}:rate=25")
        return ("ffmpeg", "-hide_banner", "-nostdin", "-v", "error", *arguments[:-1], *source * inputs,
                *arguments[-1], "-f", "md5", "-")

    def test_frames_come_back_as_they_went(self):
        there = subprocess.run(self.command(10, ("-vf", "format=yuv420p")), capture_output=True, text=True, timeout=100)
        self.assertRegex(there.stdout, "^MD5=[0-9a-f]{32}\n$")
        back = seen("--memory", "64MiB", "--", *self.command(10, *self.COPIES))
        self.assertEqual((back.status, back.out, back.err), (0, there.stdout, ""), back)
        self.assertGreater(back.elapsed, 0, back)  # the program used the GPU

    def test_over_the_quota_is_its_own_error(self):
        # A frame takes 1.3 MiB, and two are alive at a time.
        done = seen("--memory", "2MiB", "--", *self.command(10, *self.COPIES))
        self.assertNotEqual(done.status, 0, done)
        self.assertIn("cuMemAlloc(&data, size) failed -> CUDA_ERROR_OUT_OF_MEMORY", done.err)
        self.assertEqual(seen("--memory", "4MiB", "--", *self.command(10, *self.COPIES)).status, 0)

    def test_a_cap_holds_its_kernels(self):
        for options, least, most in ((("--cap", "25%"), 0.25, 0.25), (("--cap", "50%"), 0.5, 0.5),
                                     (("--compute", "25%", "--broker", "none"), 0.9, 1)):  # without a cap, to show that the other cases can fail
            with self.subTest(options):
                # On one SM with room for one block, a frame's three planes take 3.5 ms, and its copies next to
                # nothing.
                done = seen(*options, "--", *self.command(100, *self.OVERLAY, source="color", size="640x360", inputs=2),
                            simulated="memory=16GiB,sms=1,max_threads_per_sm=512")
                self.assertEqual((done.status, done.launches), (0, 300), done)
                self.assertGreater(done.share, least * (1 - TOLERANCE), done)
                self.assertLess(done.share, most * (1 + TOLERANCE), done)

    def test_filters_that_read_textures(self):
        for name, launches in (("scale_cuda=320:180", 20), ("yadif_cuda", 30)):
            with self.subTest(name):
                filters = f"format=yuv420p,hwupload,{name},hwdownload,format=yuv420p"
                done = seen("--memory", "16MiB", "--", *self.command(10, *self.ON_GPU, ("-vf", filters), size="640x360"))
                self.assertEqual((done.status, done.err, done.launches), (0, "", launches), done)

    def test_a_limit_holds_its_uploads(self):
        frames = 50
        done = seen("--spec", "h2d=1GB/s", "--", *self.command(frames, *self.COPIES, source="color"))
        self.assertEqual(done.status, 0, done)
        self.assertAlmostEqual(frames * 1280 * 720 * 1.5 / done.elapsed, 1, delta=TOLERANCE, msg=done)  # bytes per ns


class Offload(unittest.TestCase):
    """OpenMP target regions with LLVM: clang, libomptarget, and the NVIDIA tools that they need to compile and link."""

    HERE = os.path.dirname(os.path.abspath(__file__))
    CLANG = shutil.which("clang")
    LLVM = os.path.dirname(os.path.dirname(os.path.realpath(CLANG))) if CLANG else "/"
    CUDA = [os.path.join(HERE, "../../.deps/offload"), *(os.environ.get(name, "/") for name in ("CUDA_HOME", "CUDA_PATH")),
            "/usr/local/cuda"]

    @classmethod
    def setUpClass(cls):
        needed = "bin/ptxas", "bin/nvlink", "nvvm/libdevice"
        cuda = next((path for path in cls.CUDA if all(os.path.exists(os.path.join(path, file)) for file in needed)), None)
        # Some LLVM builds lack the run-time library for NVIDIA GPUs: Debian's 14 has it, and its 19 does not.
        if not glob.glob(cls.LLVM + "/lib/libomptarget*nvptx-sm_80.bc") or cuda is None:
            raise unittest.SkipTest("LLVM's libomptarget, or NVIDIA's ptxas and nvlink, are not installed; "
                                    "`scripts/setup --programs` does")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.program = folder.name + "/offload"
        # Compiles for the simulated GPU below. Clang's warning about a newer CUDA does not matter.
        subprocess.run([cls.CLANG, "-O2", "-fopenmp", "-fopenmp-targets=nvptx64-nvidia-cuda", "-Xopenmp-target", "-march=sm_80",
                        f"--cuda-path={cuda}", "-Wno-unknown-cuda-version", f"-Wl,-rpath,{cls.LLVM}/lib", "-o", cls.program,
                        cls.HERE + "/offload.c"], check=True, timeout=100)

    def seen(self, *options, rounds, elements):
        # One SM, and copies that take no time: a kernel over a million elements takes 2.4 ms.
        return seen(*options, "--", self.program, str(rounds), str(elements), OMP_TARGET_OFFLOAD="MANDATORY",
                    simulated="memory=16GiB,compute_capability=8.0,sms=1,h2d=1000GB/s,d2h=1000GB/s")

    def test_a_cap_holds_its_kernels(self):
        for options, least, most in ((("--cap", "25%"), 0.25, 0.25), (("--cap", "50%"), 0.5, 0.5), (("--compute", "25%", "--broker", "none"), 0.95, 1)):
            with self.subTest(options):
                done = self.seen(*options, rounds=400, elements=1_000_000)
                self.assertEqual((done.status, done.out, done.err, done.launches), (0, "99\n", "", 400), done)
                self.assertGreater(done.share, least * (1 - TOLERANCE), done)
                self.assertLess(done.share, most * (1 + TOLERANCE), done)

    def test_over_the_quota_is_its_own_error(self):
        # Two arrays of 4 MB, and the memory of its run-time library.
        done = self.seen("--memory", "6MiB", rounds=1, elements=1_000_000)
        self.assertNotEqual(done.status, 0, done)
        self.assertIn("CUDA error: out of memory", done.err)
        self.assertEqual(self.seen("--memory", "10MiB", rounds=1, elements=1_000_000).status, 0)


class Compiled(unittest.TestCase):
    """Programs that compile their kernels at run time."""

    def share(self, code, launches, *options):
        """The share of the GPU's time, measured with 400 ms of kernels."""
        done = python(code, *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        got, launched = done.stdout.split()
        self.assertEqual(int(launched), launches)
        return float(got)

    def assert_capped(self, code, launches, caps=(0.25, 0.5)):
        for cap in caps:
            self.assertAlmostEqual(self.share(code, launches, "--spec", f"cap={cap:.0%}"), cap, delta=TOLERANCE * cap)
        self.assertGreater(self.share(code, launches, "--compute", "25%", "--broker", "none"), 0.95)  # to show that the other cases can fail


@unittest.skipUnless(loads("nvrtc"), "NVRTC is not installed; scripts/setup does")
class Nvrtc(Compiled):
    COMPILE = """
from program import *
from cuda.bindings import nvrtc
SOURCE = b'''
__device__ __noinline__ float twice(float x) { return x + x; }
__constant__ float table[16];
template <int kTimes> __global__ void scale(float* x, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = twice(x[i]) * kTimes + table[i % 16];
}'''
program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcAddNameExpression(program, b"scale<3>"))
ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
ptx = bytes(ok(nvrtc.nvrtcGetPTXSize(program)))
ok(nvrtc.nvrtcGetPTX(program, ptx))
context()
module = ok(d.cuModuleLoadData(ptx))
kernel = ok(d.cuModuleGetFunction(module, ok(nvrtc.nvrtcGetLoweredName(program, b"scale<3>"))))
memory = ok(d.cuMemAlloc(64 << 20))
"""

    def test_kernels_are_limited(self):
        # Without a declared cost, a wave of a kernel takes 5 us.
        self.assert_capped(self.COMPILE + """
given = (int(memory), 16 << 20), (ctypes.c_uint64, ctypes.c_uint32)
def work():
    for _ in range(400): ok(d.cuLaunchKernel(kernel, 2 * EVERYWHERE * 200, 1, 1, 1024, 1, 1, 0, 0, given, 0))
print(400 / elapsed(work), launches())
""", 400)

    def test_memory_is_limited(self):
        done = python(self.COMPILE + "print(ok(d.cuMemGetInfo()) >> 20, int(d.cuMemAlloc(64 << 20)[0]))", "--memory", "96MiB")
        self.assertEqual((done.returncode, done.stdout), (0, "32 2\n"), done)


@unittest.skipUnless(installed("numba_cuda") and loads("nvvm") and loads("nvrtc"),
                     "numba-cuda, NVVM or NVRTC is not installed; scripts/setup does")
class Numba(Compiled):
    """Numba's compiler, arrays, streams and events, with its own loader and with PTX that it compiled."""

    COMPILE = """
from program import *
import math, re
import numpy
from numba import cuda, types
def grow(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] = math.sqrt(x[i]) * 2
ptx, _ = cuda.compile(grow, types.void(types.CPointer(types.float32), types.uint32), device=False, abi="numba", output="ptx")
x = cuda.to_device(numpy.ones(1 << 20, numpy.float32))
name = re.search(r"[.]entry (\\w+)", ptx)[1]
kernel = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(ptx.encode() + bytes(1))), name.encode()))
streams = [cuda.stream() for _ in range(2)]
given = (x.device_ctypes_pointer.value, x.size), (ctypes.c_uint64, ctypes.c_uint32)
begin, end = cuda.event(), cuda.event()
"""

    def test_kernels_are_limited(self):
        self.assert_capped(self.COMPILE + """
begin.record()
for i in range(400):
    ok(d.cuLaunchKernel(kernel, 2 * EVERYWHERE * 200, 1, 1, 1024, 1, 1, 0, streams[i % 2].handle, given, 0))
for stream in streams: stream.synchronize()
end.record()
end.synchronize()
print(400 / begin.elapsed_time(end), launches())
""", 400, caps=(0.25,))


    # Written as people write it: a library is loaded, from a cubin that nvJitLink made, and its kernel is launched.
    OWN = """
import math
import numpy
from numba import cuda
from program import launches
@cuda.jit
def grow(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = math.sqrt(x[i]) * 2
BLOCKS = 2 * 132 * 200
x = cuda.to_device(numpy.ones(1 << 20, numpy.float32))
"""

    @unittest.skipUnless(loads("nvJitLink"), "nvJitLink is not installed; scripts/setup does")
    def test_its_own_loader_is_limited(self):
        self.assert_capped(self.OWN + """
streams = [cuda.stream() for _ in range(2)]
begin, end = cuda.event(), cuda.event()
begin.record()
for i in range(400): grow[BLOCKS, 1024, streams[i % 2]](x)
for stream in streams: stream.synchronize()
end.record()
end.synchronize()
print(400 / begin.elapsed_time(end), launches())
""", 400)

    @unittest.skipUnless(loads("nvJitLink"), "nvJitLink is not installed; scripts/setup does")
    def test_its_own_programs_memory_is_limited(self):
        done = python(self.OWN + """
grow[1, 1024](x)
cuda.synchronize()
free, total = cuda.current_context().get_memory_info()
try:
    cuda.device_array(16 << 20, numpy.float32)
except Exception as error:
    print(total >> 20, free < total, "OUT_OF_MEMORY" in str(error))
""", "--memory", "48MiB")
        self.assertEqual((done.returncode, done.stdout), (0, "48 True True\n"), done)


@unittest.skipUnless(installed("cuda.core") and loads("nvrtc"), "cuda.core or NVRTC is not installed; scripts/setup does")
class CudaCore(Compiled):
    """Its Program class compiles to a cubin, loads that as a library, and launches the kernel by its own handle."""

    def test_kernels_are_limited(self):
        self.assert_capped("""
import numpy
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from program import elapsed, launches
device = Device(0)
device.set_current()
stream = device.create_stream()
source = 'extern "C" __global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }'
kernel = Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin").get_kernel("twice")
memory = device.allocate(4096, stream=stream)
config = LaunchConfig(grid=2 * 132 * 200, block=1024)
def work():
    for _ in range(400): launch(stream, config, kernel, memory.handle, numpy.int32(1024))
print(400 / elapsed(work, stream.handle), launches())
""", 400, caps=(0.25,))


@unittest.skipUnless(installed("gpustat"), "gpustat is not installed; scripts/setup does")
class Gpustat(unittest.TestCase):
    def test_the_command(self):
        done = seen("--memory", "2GiB", "--", PYTHON, "-m", "gpustat", "--json")
        self.assertEqual((done.status, done.err, done.elapsed), (0, "", 0), done)  # the GPU was not used
        gpu, = json.loads(done.out)["gpus"]
        self.assertEqual((gpu["memory.total"], gpu["memory.used"], gpu["processes"]), (2048, 0, []))

    def test_within_a_program(self):
        done = python("""
            import os
            import gpustat
            from program import *
            context()
            held = ok(d.cuMemAlloc(300 << 20))
            gpu, = gpustat.new_query()
            print(gpu.memory_total, gpu.memory_used, [(each["pid"] == os.getpid(), each["gpu_memory_usage"]) for each in gpu.processes])
        """, "--memory", "1GiB")
        self.assertEqual((done.stdout, done.stderr), ("1024 300 [(True, 300)]\n", ""), done)


if __name__ == "__main__":
    unittest.main()
