#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare bench record`: the traces of programs on the simulated GPU, with kernels of known length."""

import gzip
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from command import COMMAND, HERE, PYTHON

HEADER = "kernel,bound,sms,duration_ns"
# Events return milliseconds as floats, so a duration has 24 bits.
STEP = 1e-7

# Plays a trace: for each row it launches a PTX kernel of the same name, width and duration.
PLAYER = """
import ctypes, sys
from program import *
rows = [line.rsplit(",", 3) for line in open(sys.argv[1]).read().splitlines()[1:]]
names = sorted({row[0] for row in rows})
entry = "//gpushare.sim cost=param:0 blocks_per_sm=1\\n.visible .entry {}(.param .u64 ns) {{ ret; }}\\n"
text = ".version 7.5\\n.target sm_90\\n.address_size 64\\n" + "".join(entry.format(name) for name in names)
context()
module = ok(d.cuModuleLoadData(text.encode()))
functions = {name: ok(d.cuModuleGetFunction(module, name.encode())) for name in names}
stream = ok(d.cuStreamCreate(1))
for name, _, sms, ns in rows:
    assert d.cuLaunchKernel(functions[name], int(sms), 1, 1, 256, 1, 1, 0, stream, ((int(ns),), (ctypes.c_uint64,)), 0)[0] == 0
ok(d.cuCtxSynchronize())
"""


class Record(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "trace.csv"

    def record(self, *command, options=(), status=0, simulated="memory=16GiB", **more):
        """Runs the command and returns its messages; the trace is in self.out."""
        done = subprocess.run([COMMAND, "bench", "record", "--gpu", "sim", "--out", self.out, *options, "--", *command],
                              capture_output=True, text=True, timeout=100,
                              env={**os.environ, "PYTHONPATH": HERE, "GPUSHARE_SIM": simulated, **more})
        self.assertEqual(done.returncode, status, done)
        return done.stderr

    def python(self, code, *arguments, **options):
        return self.record(PYTHON, "-c", textwrap.dedent("import ctypes, os, sys\nfrom program import *\n") + textwrap.dedent(code),
                           *map(str, arguments), **options)

    def rows(self, path=None):
        header, *rows = (path or self.out).read_text().splitlines()
        self.assertEqual(header, HEADER)
        rows = [row.rsplit(",", 3) for row in rows]
        return [(name, int(sms), int(ns)) for name, _, sms, ns in rows]

    def assert_same(self, recorded, played, tolerance=STEP):
        self.assertEqual([row[:2] for row in recorded], [row[:2] for row in played])
        for one, other in zip(recorded, played):
            self.assertLessEqual(abs(one[2] - other[2]), max(1, tolerance * other[2]), (one, other))

    def assert_nothing_else_is_left(self, *names):
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(names))


class Traces(Record):
    def trace(self, seed=1):
        # Of many lengths and widths, from a part of the device to several waves.
        rows = [(f"kernel_{i % 7}", 1 + i * 37 % 300, 1_000 + (i * i * i * 7919 + seed) % 3_000_000) for i in range(300)]
        path = self.folder / "played.csv"
        path.write_text(HEADER + "\n" + "".join(f"{name},unknown,{sms},{ns}\n" for name, sms, ns in rows))
        return path, rows

    def test_what_was_played_is_recorded_and_replayed(self):
        played, rows = self.trace()
        said = self.record(PYTHON, "-c", PLAYER, played)
        self.assertRegex(said, r"trace.csv: 300 kernels of python\S* \(process \d+\), 7 names, [0-9.]+ ms of device time; measured by "
                               r"events, 1.00 us taken off each \(CUPTI knows no simulated GPU\)\n$")
        self.assert_same(self.rows(), rows)
        once = self.rows()
        again = self.folder / "again.csv"
        self.out.rename(again)
        self.record(PYTHON, "-c", PLAYER, again)
        self.assertEqual(self.rows(), once)
        self.assert_nothing_else_is_left("played.csv", "again.csv", "trace.csv")

    def test_whatever_launches_and_events_cost(self):
        played, rows = self.trace()
        for number, costs in enumerate(("record_device=4us", "launch_latency=9us,launch_host=15us", "record_host=30us,launch_host=100us",
                                        "launch_host=0,record_host=0,launch_latency=0,record_device=0", "overlap=serial")):
            with self.subTest(costs):
                self.out = self.folder / f"{number}.csv"
                self.record(PYTHON, "-c", PLAYER, played, simulated="memory=16GiB," + costs)
                self.assert_same(self.rows(), rows)

    def test_noise_is_the_devices_own(self):
        played, rows = self.trace()
        self.record(PYTHON, "-c", PLAYER, played, simulated="memory=16GiB,noise=0.05")
        ratios = [one[2] / other[2] for one, other in zip(self.rows(), rows) if other[2] > 100_000]
        self.assertLess(abs(sum(ratios) / len(ratios) - 1), 0.01)
        self.assertGreater(max(ratios), 1.05)

    def test_scenarios_replay_it(self):
        played, rows = self.trace()
        self.record(PYTHON, "-c", PLAYER, played)
        scenario = self.folder / "replay.yaml"
        scenario.write_text("about: A recorded trace.\nquestion: share\nlength: 1s\nwarm_up: 200ms\nwindow: 200ms\ncases:\n"
                            "  - name: it\n    tenants: [{name: a, share: 100%, work: {trace: trace.csv}}]\n")
        done = subprocess.run([COMMAND, "bench", "run", str(scenario), "--method", "native", "--repetitions", "1", "--quiet"],
                              capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("100", done.stdout)

    def test_compressed_it_is_the_same(self):
        played, _ = self.trace()
        self.out = self.folder / "small.csv.gz"
        self.record(PYTHON, "-c", PLAYER, played, options=("--kernels", "200"))
        rows = gzip.decompress(self.out.read_bytes())
        self.assertEqual(len(rows.splitlines()), 201)
        self.assertLess(self.out.stat().st_size * 3, len(rows))
        replayed = subprocess.run([COMMAND, "demo", "--gpu", "sim", "--seconds", "1", "--trace", self.out], capture_output=True, text=True,
                                  timeout=100)
        self.assertEqual(replayed.returncode, 0, replayed)
        self.assertIn("small", replayed.stdout)
        self.assertNotIn("small.csv", replayed.stdout)

    def test_the_demonstration_is_recorded_as_well(self):
        self.record(COMMAND, "demo", "--gpu", "sim", "--seconds", "1", options=("--kernels", "200"))
        self.assertEqual(len(self.rows()), 200)
        replayed = subprocess.run([COMMAND, "demo", "--gpu", "sim", "--seconds", "1", "--trace", self.out], capture_output=True, text=True,
                                  timeout=100)
        self.assertEqual(replayed.returncode, 0, replayed)


class Launches(Record):
    def test_every_family(self):
        self.python("""
            context()
            kernel, stream = spin(), ok(d.cuStreamCreate(1))
            ex = d.CUlaunchConfig()
            ex.gridDimX, ex.gridDimY, ex.gridDimZ, ex.blockDimX, ex.blockDimY, ex.blockDimZ, ex.hStream = 2, 1, 1, 64, 1, 1, stream
            ok(d.cuLaunchKernelEx(ex, kernel, parameters(0.002), 0))
            ok(d.cuLaunchCooperativeKernel(kernel, 3, 1, 1, 64, 1, 1, 0, stream, parameters(0.003)))
            ok(d.cuLaunchKernel(kernel, 2, 2, 1, 64, 1, 1, 0, 2, parameters(0.004), 0))  # on the per-thread stream
            flags = d.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
            address = ok(d.cuGetProcAddress(b"cuLaunchKernel", 12000, flags)[:2])
            call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)(int(address))
            ns = ctypes.c_uint64(5000)
            assert call(int(kernel), 5, 1, 1, 64, 1, 1, 0, None, (ctypes.c_void_p * 1)(ctypes.addressof(ns)), None) == 0
            library = ok(d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
            ok(d.cuLaunchKernel(d.CUfunction(int(ok(d.cuLibraryGetKernel(library, b"spin")))), 6, 1, 1, 64, 1, 1, 0, stream,
                                parameters(0.006), 0))
            of_kernel = ok(d.cuKernelGetFunction(ok(d.cuLibraryGetKernel(library, b"spin"))))
            ok(d.cuLaunchKernel(of_kernel, 7, 1, 1, 64, 1, 1, 0, stream, parameters(0.007), 0))
            """)
        self.assert_same(self.rows(), [("spin", i, i * 1000) for i in range(2, 8)])

    def test_what_is_refused_is_not_there(self):
        self.python("""
            context()
            kernel = spin()
            assert int(d.cuLaunchKernel(kernel, 1, 1, 1, 4096, 1, 1, 0, 0, parameters(1), 0)[0]) == 1
            ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            """)
        self.assert_same(self.rows(), [("spin", 1, 1_000_000)])

    def test_kernels_of_several_streams_are_each_alone(self):
        self.python("""
            context()
            kernel, streams = spin(), [ok(d.cuStreamCreate(1)) for _ in range(4)]
            memory = ok(d.cuMemAlloc(1 << 20))
            for i in range(100):
                ok(d.cuMemsetD8Async(memory, 1, 1 << 20, streams[(i + 1) % 4]))
                ok(d.cuLaunchKernel(kernel, 132, 1, 1, 64, 1, 1, 0, streams[i % 4], parameters(0.05), 0))
            ok(d.cuCtxSynchronize())
            """)
        self.assert_same(self.rows(), [("spin", 132, 50_000)] * 100)

    def test_threads(self):
        """The host may be slow while others work. The command then says how many kernels are affected."""
        said = self.python("""
            import threading
            shared, kernel = context(), spin()
            def play():
                ok(d.cuCtxSetCurrent(shared))
                for _ in range(50):
                    ok(d.cuLaunchKernel(kernel, 132, 1, 1, 64, 1, 1, 0, 2, parameters(0.05), 0))
            threads = [threading.Thread(target=play) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            ok(d.cuCtxSynchronize())
            """)
        rows, late = self.rows(), re.search(r"(\d+) kernels? may be shorter", said)
        self.assertEqual([row[:2] for row in rows], [("spin", 132)] * 200)
        wrong = [row for row in rows if row[2] != 50_000]
        self.assertTrue(all(row[2] > 50_000 for row in wrong), wrong)
        self.assertLessEqual(len(wrong), int(late[1]) if late else 0, said)

    def test_graphs_and_captures(self):
        self.python("""
            context()
            kernel, stream = spin(), ok(d.cuStreamCreate(1))
            ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, parameters(0.001), 0))
            ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
            for width in 5, 40, 3:
                ok(d.cuLaunchKernel(kernel, width, 1, 1, 64, 1, 1, 0, stream, parameters(0.1), 0))
            graph = ok(d.cuStreamEndCapture(stream))
            assert len(ok(d.cuGraphGetNodes(graph, 8)[:2])) >= 3
            run = ok(d.cuGraphInstantiate(graph, 0))
            ok(d.cuGraphLaunch(run, stream))
            ok(d.cuGraphLaunch(run, stream))
            ok(d.cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, stream, parameters(0.002), 0))
            ok(d.cuCtxSynchronize())
            """)
        rows = self.rows()
        self.assertEqual([row[:2] for row in rows], [("spin", 1), *[("graph 1 of 3 kernels", 40)] * 2, ("spin", 2)])
        for row in rows[1:3]:
            self.assertTrue(300_000 <= row[2] <= 310_000, rows)

    def test_contexts_that_end_and_come_again(self):
        self.python("""
            d.cuInit(0)
            for i in range(1, 4):
                made = ok(d.cuCtxCreate(None, 0, 0))
                ok(d.cuLaunchKernel(spin(), i, 1, 1, 64, 1, 1, 0, 0, parameters(0.01 * i), 0))
                ok(d.cuCtxDestroy(made))
                context()
                ok(d.cuLaunchKernel(spin(), i, 1, 1, 64, 1, 1, 0, 0, parameters(0.1 * i), 0))
                ok(d.cuDevicePrimaryCtxReset(0))
            """)
        self.assert_same(self.rows(), [("spin", i, i * ns) for i in range(1, 4) for ns in (10_000, 100_000)])

    def test_a_kernel_that_waits_for_what_comes_later(self):
        """If the recording waited for a kernel here, the kernel would never end."""
        said = self.python("""
            context()
            kernel, held, free = spin(), ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1))
            word = ok(d.cuMemAlloc(4))
            ok(d.cuMemsetD32(word, 0, 1))
            for i in range(1, 6):
                ok(d.cuStreamWaitValue32(held, word, i, 0))
                ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, held, parameters(0.05), 0))
                ok(d.cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, free, parameters(0.07), 0))
                ok(d.cuStreamWriteValue32(free, word, i, 0))
            ok(d.cuCtxSynchronize())
            """)
        self.assert_same(self.rows(), [("spin", 1, 50_000), ("spin", 2, 70_000)] * 5)
        self.assertIn("may have run beside others", said)

    def test_a_host_that_is_slow(self):
        said = self.python("""
            context()
            kernel = spin()
            ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(0.001), 0))
            ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(0.001), 0))
            """, simulated="memory=16GiB,first_launch_host=5ms")
        self.assertIn("1 kernel may be shorter than recorded", said)
        (_, _, first), second = self.rows()
        self.assertGreater(first, 1_000_000)
        self.assert_same([second], [("spin", 1, 1000)])

    def test_numba(self):
        if subprocess.run([PYTHON, "-c", "import numba.cuda"], capture_output=True, timeout=60).returncode != 0:
            self.skipTest("Numba is not installed")
        code = """
            import numpy
            from numba import cuda
            @cuda.jit
            def twice(x):
                i = cuda.grid(1)
                if i < x.size: x[i] *= 2
            x = cuda.to_device(numpy.ones(1 << 16, numpy.float32))
            for _ in range(20): twice[256, 256](x)
            cuda.synchronize()
            """
        self.python(code)
        rows = self.rows()
        self.assertEqual((len(rows), len(set(rows))), (20, 1), rows)
        self.assertIn("twice", rows[0][0])


class Cupti(Record):
    """Records by CUPTI, with a stand-in, since NVIDIA's does not support the simulated GPU."""

    PLAY = """
        context()
        kernel, stream = spin(), ok(d.cuStreamCreate(1))
        for i in range(1, 201):
            ok(d.cuLaunchKernel(kernel, i, 1, 1, 64, 1, 1, 0, stream, parameters(0.01), 0))
        ok(d.cuCtxSynchronize())
        print(launches())
        """

    def told(self, lines, code=PLAY, **more):
        told = self.folder / "told"
        told.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
        said = self.python(code, GPUSHARE_CUPTI=os.environ["CUPTI_OF_ANOTHER_LIBRARY"], CUPTI_OF_ANOTHER=str(told), **more)
        told.unlink()
        return said

    def test_each_kernel_as_it_is_told(self):
        for at_once in 64, 1000:  # delivered as they are launched, and all at the end
            lines = [("spin", i, 64, 0, 1000 * i, 1000 * i + i) for i in range(1, 201)]
            said = self.told(lines, CUPTI_AT_ONCE=str(at_once), options=("--force",))
            self.assertRegex(said, r"200 kernels of .*; measured by CUPTI\n$")
            self.assertEqual(self.rows(), [("spin", i, i) for i in range(1, 201)])

    def test_nothing_else_is_launched(self):
        said = subprocess.run([COMMAND, "bench", "record", "--gpu", "sim", "--out", self.out, "--", PYTHON, "-c",
                               "from program import *\n" + textwrap.dedent(self.PLAY)], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": HERE, "GPUSHARE_CUPTI": os.environ["CUPTI_OF_ANOTHER_LIBRARY"],
                                   "CUPTI_OF_ANOTHER": "/dev/null"})
        self.assertEqual(said.stdout, "200\n", said)

    def test_how_wide_they_are(self):
        """The width follows from the block size and shared memory that CUPTI reports; also for kernels of graphs, and an unknown one."""
        said = self.told([("wide", 100, 1024, 0, 10, 20), ("wide", 100, 64, 0, 30, 40), ("wide", 100, 64, 65536, 50, 60),
                          ("wide", 100, 512, 0, 70, 80), ("who", 7, 32, 0, 90, 100)], """
            context()
            text = b".version 7.5\\n.target sm_90\\n.address_size 64\\n.visible .entry wide() { ret; }\\n"
            kernel, stream = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(text)), b"wide")), ok(d.cuStreamCreate(1))
            ok(d.cuFuncSetAttribute(kernel, d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536))
            for threads, shared in (1024, 0), (64, 0), (64, 65536):
                ok(d.cuLaunchKernel(kernel, 100, 1, 1, threads, 1, 1, shared, stream, 0, 0))
            ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
            ok(d.cuLaunchKernel(kernel, 100, 1, 1, 512, 1, 1, 0, stream, 0, 0))
            ok(d.cuGraphLaunch(ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0)), stream))
            ok(d.cuCtxSynchronize())
            """)
        self.assertIn("5 kernels", said)
        self.assertEqual(self.rows(), [("wide", 50, 10), ("wide", 4, 10), ("wide", 34, 10), ("wide", 25, 10), ("who", 7, 10)])

    def test_limits(self):
        self.told([("spin", i, 64, 0, 1000 * i, 1000 * i + i) for i in range(1, 201)], CUPTI_AT_ONCE="10",
                  options=("--kernels", "10"))
        self.assertEqual(self.rows(), [("spin", i, i) for i in range(1, 11)])

    def test_what_it_has_no_time_of(self):
        said = self.told([("spin", 1, 64, 0, 5, 10), ("spin", 1, 64, 0, 0, 0), ("spin", 1, 64, 0, 30, 20)], CUPTI_DROPS="2")
        self.assertEqual(self.rows(), [("spin", 1, 5)])
        self.assertRegex(said, r"\d+ launches are missing: the driver gave no time of them")

    def test_where_it_cannot_be_had(self):
        for words, variables in (("CUPTI refuses: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
                                  {"CUPTI_REFUSES": "1", "GPUSHARE_CUPTI": os.environ["CUPTI_OF_ANOTHER_LIBRARY"]}),
                                 ("there is no CUPTI", {"GPUSHARE_CUPTI": "/nowhere"}),
                                 ("this CUPTI knows no simulated GPU", {"GPUSHARE_CUPTI": "libm.so.6"}),
                                 ("CUPTI knows no simulated GPU", {})):
            with self.subTest(words):
                said = self.python(self.PLAY, options=("--force",), **variables)
                self.assertRegex(said, rf"measured by events, 1.00 us taken off each \(.*{words}")
                self.assertEqual(len(self.rows()), 200)
                said = self.python(self.PLAY, options=("--force", "--by", "cupti"), status=1, **variables)
                self.assertRegex(said, f"nothing was recorded of .*{words}.*; `--by events` does without")
        said = self.python(self.PLAY, options=("--force", "--by", "events"), GPUSHARE_CUPTI="/nowhere")
        self.assertRegex(said, "taken off each\n$")


class Limits(Record):
    KERNELS = """
        context()
        kernel = spin()
        for i in range(1, 101):
            ok(d.cuLaunchKernel(kernel, i, 1, 1, 64, 1, 1, 0, 0, parameters(10), 0))
        ok(d.cuCtxSynchronize())
        print(launches())
        """

    def test_some_kernels(self):
        self.python(self.KERNELS, options=("--skip", "10", "--kernels", "20"))
        self.assert_same(self.rows(), [("spin", i, 10_000_000) for i in range(11, 31)])

    def test_one_iteration(self):
        """The result has neither noise nor the kernels before the first iteration."""
        code = """
            context()
            kernel, stream = spin(), ok(d.cuStreamCreate(1))
            for i in range(7): ok(d.cuLaunchKernel(kernel, 100 + i, 1, 1, 64, 1, 1, 0, stream, parameters(1), 0))
            for i in range(41):
                for width in 5, 9, 7, 7, 7, 7: ok(d.cuLaunchKernel(kernel, width, 1, 1, 64, 1, 1, 0, stream, parameters(0.1 * width), 0))
            """
        said = self.python(code, options=("--iteration",), simulated="memory=16GiB,noise=0.1")
        self.assertIn("an iteration, the medians of 41 among the 253 kernels that were recorded", said)
        rows = self.rows()
        self.assertEqual([row[1] for row in rows], [5, 9, 7, 7, 7, 7])
        for _, width, ns in rows:
            self.assertLess(abs(ns / (1e5 * width) - 1), 0.06, rows)  # 3.5 standard deviations of such a median
        said = self.python(code, options=("--iteration", "--kernels", "10", "--force"), status=1)
        self.assertIn("all of it, since no sequence of kernels stands 3 times at the end of the 10 that were recorded", said)
        self.assertEqual(len(self.rows()), 10)

    def test_some_time(self):
        self.python(self.KERNELS, options=("--seconds", "0.5"))
        self.assertTrue(48 <= len(self.rows()) <= 50, len(self.rows()))

    def test_the_program_ends_with_the_recording(self):
        code = """
            context()
            kernel = spin()
            while True: ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            """
        self.python(code, options=("--kernels", "30", "--stop"))
        self.assertEqual(len(self.rows()), 30)
        self.out.unlink()
        self.assertIn("--stop wants --kernels or --seconds", self.python("", options=("--stop",), status=2))

    def test_nvml_tells_of_the_whole_gpu(self):
        """Same as without the recording; if the driver's object is preloaded, NVML's is found by its name too."""
        code = """
            import pynvml as nvml
            nvml.nvmlInit()
            device = nvml.nvmlDeviceGetHandleByIndex(0)
            for _ in range(2):
                for version in None, nvml.nvmlMemory_v2:
                    told = nvml.nvmlDeviceGetMemoryInfo(device, version)
                    print(told.total, told.used, told.free)
                print([each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(device)])
                context()
                memory = ok(d.cuMemAlloc(300 << 20))
            ok(launch(spin(), 1))
            """
        code = "from program import *\n" + textwrap.dedent(code)
        environment = {**os.environ, "PYTHONPATH": HERE, "GPUSHARE_SIM": "memory=16GiB"}
        bare = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
        recorded = subprocess.run([COMMAND, "bench", "record", "--gpu", "sim", "--out", self.out, "--", PYTHON, "-c", code],
                                  capture_output=True, text=True, timeout=60, env={**environment, "GPUSHARE_SPEC": "memory=1GiB"})
        self.assertEqual((bare.returncode, bare.stderr, len(bare.stdout.splitlines())), (0, "", 6), bare)
        self.assertEqual(recorded.returncode, 0, recorded)
        # CUPTI is loaded once a kernel has been launched, and not earlier.
        self.assertEqual(recorded.stdout, bare.stdout)

    def test_nothing_is_limited(self):
        said = self.python(self.KERNELS, GPUSHARE_SPEC="cap=1%,memory=1MiB", GPUSHARE_BROKER="/nowhere")
        self.assertIn("100 kernels", said)


class Ends(Record):
    def test_the_status_is_the_programs(self):
        said = self.python("""
            context()
            ok(d.cuLaunchKernel(spin(), 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            sys.exit(7)
            """, status=7)
        self.assertIn("the program ended with status 7", said)
        self.assertEqual(len(self.rows()), 1)

    def test_it_ends_where_ends_of_children_are_ignored(self):
        """SIGCHLD may be ignored if a daemon started the command."""
        def record(code, simulated, how=signal.SIG_IGN):
            return subprocess.run([COMMAND, "bench", "record", "--gpu", "sim", "--force", "--out", self.out, "--", PYTHON, "-c", code],
                                  capture_output=True, text=True, timeout=60, preexec_fn=lambda: signal.signal(signal.SIGCHLD, how),
                                  env={**os.environ, "PYTHONPATH": HERE, "GPUSHARE_SIM": simulated})
        done = record("from program import *; context(); ok(launch(spin(), 1)); raise SystemExit(7)", "memory=16GiB")
        self.assertEqual(done.returncode, 7, done)
        self.assertIn("the program ended with status 7", done.stderr)
        self.assertEqual(len(self.rows()), 1)
        self.assert_nothing_else_is_left("trace.csv")
        # A GPU that cannot be opened counts as absent, too.
        absent = record("print('there')", "memory=none")
        self.assertEqual((absent.returncode, absent.stdout), (record("", "memory=none", signal.SIG_DFL).returncode, ""), absent)
        self.assertNotEqual(absent.returncode, 0)

    def test_a_program_that_is_killed_leaves_what_was_recorded(self):
        said = self.python("""
            context()
            kernel = spin()
            for i in range(25): ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            os.kill(os.getpid(), 9)
            """, status=137)
        self.assertIn("ended by signal 9; what was recorded until then is kept", said)
        self.assert_same(self.rows(), [("spin", 1, 1_000_000)] * 25)
        self.assert_nothing_else_is_left("trace.csv")

    def test_a_signal_to_the_command_is_the_programs(self):
        code = """
            from program import *
            context()
            kernel = spin()
            print("there", flush=True)
            while True: ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            """
        command = subprocess.Popen(
            [COMMAND, "bench", "record", "--gpu", "sim", "--out", self.out, "--", PYTHON, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": HERE})
        self.assertEqual(command.stdout.readline(), "there\n")
        while not any(path.stat().st_size > 1000 for path in self.folder.glob("*/*.csv")):
            self.assertIsNone(command.poll())
        command.send_signal(signal.SIGTERM)
        _, said = command.communicate(timeout=60)
        self.assertEqual(command.returncode, 128 + signal.SIGTERM, said)
        self.assertGreater(len(self.rows()), 10)
        self.assert_nothing_else_is_left("trace.csv")

    def test_each_process_has_a_trace(self):
        said = self.python("""
            for child in 1, 2:
                if os.fork() == 0:
                    context()
                    for i in range(child): ok(d.cuLaunchKernel(spin(), child, 1, 1, 64, 1, 1, 0, 0, parameters(child), 0))
                    os._exit(0)
                os.wait()
            os.execvp(sys.executable, [sys.executable, "-c", "from program import *; context(); "
                      "ok(d.cuLaunchKernel(spin(), 3, 1, 1, 64, 1, 1, 0, 0, parameters(3), 0))"])
            """)
        self.assertEqual(len(re.findall("process", said)), 3, said)
        for number, length in (1, 1), (2, 2), (3, 1):
            self.assert_same(self.rows(self.folder / f"trace-{number}.csv"), [("spin", number, number * 1_000_000)] * length)
        self.assert_nothing_else_is_left("trace-1.csv", "trace-2.csv", "trace-3.csv")

    def test_a_process_that_outlives_the_program_is_told_of(self):
        said = self.python("""
            import pathlib, signal
            told, tells = os.pipe()
            if os.fork() == 0:
                context()
                ok(d.cuLaunchKernel(spin(), 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
                pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
                for number in 0, 1, 2: os.close(number)
                os.write(tells, b".")
                signal.pause()
            os.read(told, 1)
            """, self.folder / "pid")
        left = int((self.folder / "pid").read_text())
        os.kill(left, signal.SIGKILL)
        self.assertIn(f"(process {left}) goes on; what it launches from here on is not recorded", said)
        self.assert_same(self.rows(), [("spin", 1, 1_000_000)])

    def test_a_forked_child_is_no_part_of_it(self):
        self.python("""
            context()
            kernel = spin()
            ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            if os.fork() == 0:
                d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0)  # whatever the driver has to say
                os._exit(0)
            assert os.wait()[1] == 0
            ok(d.cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, 0, parameters(2), 0))
            """)
        self.assert_same(self.rows(), [("spin", 1, 1_000_000), ("spin", 2, 2_000_000)])

    def test_a_disk_that_is_full(self):
        said = self.python("""
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # more than the state of a process
            context()
            kernel = spin()
            for i in range(1000): ok(d.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            print(launches())
            """)
        self.assertRegex(said, r"the rest of python\S* \(process \d+\) is lost: File too large")
        rows = self.rows()
        self.assertTrue(100 < len(rows) < 300, len(rows))
        self.assert_same(rows, [("spin", 1, 1_000_000)] * len(rows))

    def test_an_output_that_cannot_be_written_any_more(self):
        said = self.python("""
            context()
            ok(d.cuLaunchKernel(spin(), 1, 1, 1, 64, 1, 1, 0, 0, parameters(1), 0))
            os.mkdir(sys.argv[1])
            """, self.out, status=5, options=("--force",))
        kept = re.search(r"cannot write .*trace.csv.*; what was recorded is in (.*\.csv)\n", said)
        self.assertEqual(self.rows(pathlib.Path(kept[1])), [("spin", 1, 1_000_000)])


class Wrong(Record):
    def test_nothing_to_record(self):
        for words, code in (("did not use the GPU", "print('hello')"),
                            ("launched no kernel", "context()"),
                            ("--skip left out all 1 kernels", "context(); ok(launch(spin(), 1))")):
            with self.subTest(words):
                self.assertIn(words, self.python(code, status=1, options=("--skip", "1")))
                self.assert_nothing_else_is_left()

    def test_what_is_wrong_is_said_before(self):
        ran = ("sh", "-c", f"touch {self.folder}/ran")
        self.assertIn("required", subprocess.run([COMMAND, "bench", "record"], capture_output=True, text=True, timeout=60).stderr)
        self.record("/nowhere/at/all", status=127)
        self.record("/etc/passwd", status=126)
        for options in ("--kernels", "0"), ("--seconds", "-1"), ("--seconds", "nan"), ("--skip", "x"), ("--gpu", "what"):
            self.record(*ran, status=2, options=options)
        self.out.write_text("something")
        self.assertIn("is there already; --force writes it anew", self.record(*ran, status=5))
        self.assertEqual(self.out.read_text(), "something")
        self.out = self.folder / "none" / "trace.csv"
        self.assertIn("cannot write", self.record(*ran, status=5))
        for self.out in "", str(self.folder) + "/trace/":
            self.assertIn("cannot write", self.record(*ran, status=5))
        self.out = self.folder
        self.assertIn("Is a directory", self.record(*ran, status=5))
        self.assert_nothing_else_is_left("trace.csv")

    def test_orders_that_are_none(self):
        """The program continues unrecorded."""
        (self.folder / "orders").write_text("what")
        for folder in "/nowhere", self.folder:
            done = subprocess.run([PYTHON, "-c", "from program import *\ncontext()\nok(launch(spin(), 1))\nprint(launches())"],
                                  capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "PYTHONPATH": HERE, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_RECORD": str(folder)})
            self.assertEqual((done.returncode, done.stdout), (0, "1\n"), done)
        self.assert_nothing_else_is_left("orders")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
