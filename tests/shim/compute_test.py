#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compute limits of a share, in unmodified programs: 400 ms of kernels under a cap take as long as the cap implies, in whichever
way the kernels reach the GPU."""

import os
import unittest

from command import python

# Relative to the expected share. A cap lets 5 ms pass at once, so the shares below are up to 1.5 % higher.
TOLERANCE = 0.02


class Capped(unittest.TestCase):
    def share(self, body, *options, **more):
        """The share of the GPU's time that `body`, 400 ms of kernels, gets."""
        done = python("from program import *\nimport ctypes\ncontext()\nkernel = spin()\n"
                      + body + "\nprint(400 / elapsed(work))", *options, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return float(done.stdout.split()[-1])

    def assert_capped(self, body, cap=25, **more):
        self.assertAlmostEqual(self.share(body, "--spec", f"cap={cap}%", **more), cap / 100, delta=TOLERANCE * cap / 100)

    LAUNCHES = "def work():\n    for _ in range(400): ok(launch(kernel, 1))"

    def test_launches(self):
        for cap in (10, 25, 50, 80):
            with self.subTest(cap=cap):
                self.assert_capped(self.LAUNCHES, cap)

    def test_without_a_cap(self):  # to show that the other cases can fail
        self.assertAlmostEqual(self.share(self.LAUNCHES, "--spec", "compute=30%", "--broker", "none"), 1, delta=0.01)

    def test_short_kernels(self):
        self.assert_capped("def work():\n    for _ in range(20000): launch(kernel, 0.02)")

    def test_kernels_shorter_than_a_launch_on_several_streams(self):
        # When the markers are recorded, all streams but the last have long been idle. The launches come in bursts,
        # since a program that changes the stream with each launch is measured less well.
        for streams, burst, ms in ((2, 30, 0.003), (4, 8, 0.002), (16, 30, 0.003)):
            with self.subTest(streams=streams, burst=burst, ms=ms):
                share = self.share(f"""
streams = [ok(d.cuStreamCreate(1)) for _ in range({streams})]
def work():
    for i in range({int(400 / ms)} // {burst}):
        for _ in range({burst}): launch(kernel, {ms}, streams[i % {streams}])
""", "--spec", "cap=10%")
                self.assertLess(share, 0.11)

    def test_a_program_that_waits_for_each(self):
        self.assert_capped("def work():\n    for _ in range(400): ok(launch(kernel, 1)); ok(d.cuCtxSynchronize())")

    def test_streams(self):
        self.assert_capped("""
streams = [ok(d.cuStreamCreate(flags)) for flags in (0, 1, 1, 1)]
def work():
    for i in range(400): ok(launch(kernel, 1, streams[i % 4]))
""")

    def test_new_streams_all_the_time(self):
        self.assert_capped("""
def work():
    for i in range(100):
        stream = ok(d.cuStreamCreate(1))
        for _ in range(4): ok(launch(kernel, 1, stream))
        ok(d.cuStreamSynchronize(stream))
        ok(d.cuStreamDestroy(stream))
""")

    def test_the_per_thread_stream(self):
        self.assert_capped(self.LAUNCHES, env={**os.environ, "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": "1"})
        self.assert_capped("""
def work():
    for _ in range(400): ok(launch(kernel, 1, 2))
""")

    def test_threads(self):
        self.assert_capped("""
import threading
made = ok(d.cuCtxGetCurrent())
def one():
    sim = simulated()
    sim.gpushare_sim_thread_enter(b"one of four")
    ok(d.cuCtxSetCurrent(made))
    stream = ok(d.cuStreamCreate(1))
    for _ in range(100): ok(launch(kernel, 1, stream))
    ok(d.cuStreamSynchronize(stream))
    sim.gpushare_sim_thread_leave()
def work():
    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
""")

    def test_other_ways_to_launch(self):
        for name, call in (
                ("extended", "d.cuLaunchKernelEx(config, kernel, parameters(1), 0)"),
                ("cooperative", "d.cuLaunchCooperativeKernel(kernel, EVERYWHERE, 1, 1, 1024, 1, 1, 0, 0, parameters(1))")):
            with self.subTest(name):
                self.assert_capped(f"""
config = d.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = EVERYWHERE, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 1024, 1, 1
def work():
    for _ in range(400): ok({call})
""")

    GRAPH = """
stream = ok(d.cuStreamCreate(1))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(4): ok(launch(kernel, 1, stream))
graph = ok(d.cuStreamEndCapture(stream))
assert d.cuGraphGetNodes(graph)[2] == 4, "nodes that the program did not make"
executable = ok(d.cuGraphInstantiate(graph, 0))
"""

    def test_graphs(self):
        self.assert_capped(self.GRAPH + "def work():\n    for _ in range(100): ok(d.cuGraphLaunch(executable, stream))")

    def test_graphs_that_change(self):
        self.assert_capped(self.GRAPH + """
def work():
    for _ in range(100):
        ok(d.cuGraphExecUpdate(executable, graph)[:1])
        ok(d.cuGraphLaunch(executable, stream))
""")

    def test_a_context_of_its_own(self):
        self.assert_capped("""
made = ok(d.cuCtxCreate(None, 0, 0))
kernel = spin()
def work():
    for _ in range(400): ok(launch(kernel, 1))
""")

    def test_contexts_one_after_the_other(self):
        self.assert_capped("""
first = ok(d.cuCtxGetCurrent())
def work():
    for _ in range(10):
        made = ok(d.cuCtxCreate(None, 0, 0))
        kernel = spin()
        for _ in range(40): ok(launch(kernel, 1))
        ok(d.cuCtxSynchronize())
        ok(d.cuCtxDestroy(made))
        ok(d.cuCtxSetCurrent(first))
""")

    def test_what_stays_on_the_device(self):
        self.assert_capped("""
memory = ok(d.cuMemAlloc(2_000_000))
def work():
    for _ in range(1000): ok(d.cuMemsetD8Async(memory, 0, 1_000_000, 0))
    for _ in range(1000): ok(d.cuMemcpyDtoDAsync(memory, int(memory) + 1_000_000, 1_000_000, 0))
""", env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,d2d=5GB/s"})

    def test_copies_to_the_device(self):
        done = python("""
            from program import *
            context()
            memory, host = ok(d.cuMemAlloc(64 << 20)), bytes(64 << 20)
            def work():
                for _ in range(8): ok(d.cuMemcpyHtoD(memory, host, len(host)))
            print(8 * len(host) / 1e6 / elapsed(work))
        """, "--spec", "h2d=1GB/s")
        self.assertEqual(done.returncode, 0, done)
        self.assertAlmostEqual(float(done.stdout), 1.0, delta=0.05, msg=done)

    def test_each_gpu(self):
        done = python("""
            from program import *
            for device in (1, 0):
                context(device)
                kernel = spin()
                def work():
                    for _ in range(400): ok(launch(kernel, 1))
                print(400 / elapsed(work))
        """, "--spec", "cap=25%", env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,devices=2"})
        self.assertEqual(done.returncode, 0, done)
        for share in done.stdout.split():
            self.assertAlmostEqual(float(share), 0.25, delta=TOLERANCE * 0.25, msg=done)


class PastTheLimits(unittest.TestCase):
    """Things that programs do, or may do, that could give them more than their share."""

    def test_a_refused_end_of_a_context_forgives_nothing(self):
        done = python("""
            from program import *
            made = context()
            kernel = spin()
            def work():
                for _ in range(400):
                    ok(launch(kernel, 1))
                    assert int(d.cuCtxDestroy(made)[0]) == 201  # the primary context is not destroyed so
                    d.cuCtxDestroy(0)
            print(400 / elapsed(work))
        """, "--cap", "25%")
        self.assertAlmostEqual(float(done.stdout), 0.25, delta=TOLERANCE * 0.25, msg=done)

    def test_memory_and_graphs_on_a_stream_without_a_current_context(self):
        done = python("""
            from program import *
            made = context()
            stream = ok(d.cuStreamCreate(1))
            what = d.CUDA_MEM_ALLOC_NODE_PARAMS()
            what.poolProps.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            what.poolProps.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            what.poolProps.location.id = 0
            what.bytesize = 600 << 20
            graphs = []
            for _ in range(2):
                graph = ok(d.cuGraphCreate(0))
                ok(d.cuGraphAddMemAllocNode(graph, None, 0, what)[:1])
                graphs.append(ok(d.cuGraphInstantiate(graph, 0)))
            ok(d.cuCtxSetCurrent(None))
            for take in (lambda: d.cuMemAllocAsync(600 << 20, stream), lambda: d.cuMemAllocAsync(300 << 20, stream),
                         lambda: d.cuMemAllocAsync(300 << 20, stream), lambda: d.cuGraphLaunch(graphs[0], stream)):
                print(int(take()[0]))
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["0", "0", "2", "2"]), done)

    def test_a_pool_that_is_destroyed_while_it_is_used_is_none_any_more(self):
        done = python("""
            from program import *
            context()
            stream = ok(d.cuStreamCreate(1))
            what = d.CUmemPoolProps()
            what.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            pool, keep = ok(d.cuMemPoolCreate(what)), d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            def calls():
                return [int(call[0]) for call in (
                    d.cuMemPoolTrimTo(pool, 0), d.cuMemPoolGetAttribute(pool, keep), d.cuMemPoolSetAccess(pool, [], 0),
                    d.cuMemPoolSetAttribute(pool, keep, d.cuuint64_t(0)), d.cuDeviceSetMemPool(0, pool))]
            before, pointer = calls(), ok(d.cuMemAllocFromPoolAsync(1 << 20, pool, stream))
            ok(d.cuMemPoolDestroy(pool))
            print(*before, *calls(), int(d.cuMemFreeAsync(pointer, stream)[0]))
        """, "--memory", "1GiB")
        self.assertEqual(done.stdout.split(), ["0"] * 5 + ["1"] * 5 + ["0"], done)

    def test_the_share_is_that_of_the_streams_gpu(self):
        done = python("""
            from program import *
            context(0)
            stream = ok(d.cuStreamCreate(1))
            context(1)
            print([int(d.cuMemAllocAsync(600 << 20, stream)[0]) for _ in range(2)], int(d.cuMemAlloc(600 << 20)[0]))
        """, "--memory", "1GiB", env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,devices=2"})
        self.assertEqual(done.stdout, "[0, 2] 0\n", done)


class NeverHeldForEver(unittest.TestCase):
    def test_work_behind_a_host_function_that_waits_for_the_program(self):
        done = python("""
            from program import *
            import threading
            context()
            kernel, go = spin(), threading.Event()
            wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait() and None)
            stream, other, event = ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1)), ok(d.cuEventCreate(0))
            cuda = ctypes.CDLL("libcuda.so.1")
            cuda.cuLaunchHostFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            assert cuda.cuLaunchHostFunc(int(stream), wait, None) == 0
            ok(d.cuEventRecord(event, stream))
            ok(d.cuStreamWaitEvent(other, event, 0))
            for i in range(6):
                ok(d.cuMemsetD8Async(memory, 0, 1000 << i, stream))  # of costs that nobody knows yet
                ok(d.cuLaunchKernel(kernel, i + 1, 1, 1, 64, 1, 1, 0, other, parameters(0.05), 0))
            go.set()
            ok(d.cuCtxSynchronize())
            print("done")
        """.replace("kernel, go = spin()", "memory, kernel, go = ok(d.cuMemAlloc(1 << 20)), spin()"),
            "--cap", "25%", env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=wall"})
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done)


class LimitsByOtherNames(unittest.TestCase):
    """The same program under each of the environment variables in use by others (docs/env.md)."""

    PROGRAM = """
        from program import *
        context()
        kernel = spin()
        print(ok(d.cuMemGetInfo()) and d.cuMemGetInfo()[2] >> 20, int(d.cuMemAlloc(5 << 29)[0]))
        def work():
            for _ in range(400): ok(launch(kernel, 1))
        print(400 / elapsed(work))
    """

    def run_under(self, **variables):
        done = python(self.PROGRAM, command=["env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"]],
                      env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,devices=2", **variables})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        memory, allocated, share = done.stdout.split()
        return int(memory), int(allocated), float(share)

    def test_memory(self):
        for variables in ({"NVIDIA_GPU_MEMORY_LIMIT": "2048"}, {"CUDA_DEVICE_MEMORY_LIMIT": "2g"},
                          {"CUDA_DEVICE_MEMORY_LIMIT_0": "2048m", "CUDA_DEVICE_MEMORY_LIMIT": "4g"},
                          {"ALIYUN_COM_GPU_MEM_CONTAINER": "2"}):
            with self.subTest(variables=variables):
                self.assertEqual(self.run_under(**variables)[:2], (2048, 2))

    def test_a_part_of_a_unit(self):
        for name, value, memory in (("CUDA_DEVICE_MEMORY_LIMIT", "1.5G", 1536), ("ALIYUN_COM_GPU_MEM_CONTAINER", "2.25", 2304)):
            self.assertEqual(self.run_under(**{name: value})[:2], (memory, 2))

    def test_which_one_goes_first(self):
        # Each variable together with all those of lower precedence, which allow more.
        names = [("GPUSHARE_SPEC", "memory=2GiB", "memory=16GiB"), ("NVIDIA_GPU_MEMORY_LIMIT", "2048", "16384"),
                 ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g", "16g"), ("CUDA_DEVICE_MEMORY_LIMIT", "2g", "16g"),
                 ("ALIYUN_COM_GPU_MEM_CONTAINER", "2", "16")]
        for i, (name, least, _) in enumerate(names):
            variables = {name: least, **{other: more for other, _, more in names[i + 1:]}}
            with self.subTest(variables=variables):
                self.assertEqual(self.run_under(**variables)[:2], (2048, 2))
        # A variable for another GPU has no effect on this one. A limit pinned by MPS holds whichever variable takes
        # precedence.
        self.assertEqual(self.run_under(CUDA_DEVICE_MEMORY_LIMIT_1="1g", CUDA_DEVICE_MEMORY_LIMIT="2g")[0], 2048)
        memory, allocated, _ = self.run_under(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G", NVIDIA_GPU_MEMORY_LIMIT="16384")
        self.assertEqual((memory, allocated), (2048, 2))

    def test_a_whole_card_is_what_can_be_had_of_it(self):
        memory, allocated, _ = self.run_under(NVIDIA_GPU_MEMORY_LIMIT=str(16 << 10))
        self.assertTrue(15 << 10 < memory < 16 << 10 and allocated == 0, memory)

    def test_compute(self):
        for variables, share in (({"CUDA_DEVICE_SM_LIMIT": "25"}, 0.25),
                                 ({"CUDA_DEVICE_SM_LIMIT_0": "25", "CUDA_DEVICE_SM_LIMIT": "50"}, 0.25),
                                 ({"CUDA_DEVICE_SM_LIMIT": "25", "GPU_CORE_UTILIZATION_POLICY": "force"}, 0.25),
                                 ({"CUDA_DEVICE_SM_LIMIT": "25", "GPU_CORE_UTILIZATION_POLICY": "disable"}, 1.0),
                                 ({"CUDA_DEVICE_SM_LIMIT": "25", "GPUSHARE_SPEC": "cap=50%"}, 0.5)):
            with self.subTest(variables=variables):
                self.assertAlmostEqual(self.run_under(**variables)[2], share, delta=TOLERANCE * share)

    def test_what_mps_pins(self):
        # This is the most that the program gets, with or without a limit by another variable.
        for variables, share in ({}, 1), ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": "25"}, 0.25):
            memory, allocated, got = self.run_under(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G", **variables)
            self.assertEqual((memory, allocated), (1024 if variables else 2048, 2))
            self.assertAlmostEqual(got, share, delta=TOLERANCE * share)

    def test_all_who_ask_are_told_what_mps_pins(self):
        code = """
            import ctypes, sys
            d, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
            device, said = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
            def by_nvml():
                nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
                return nvml.nvmlDeviceGetMemoryInfo(device, said), said[0] >> 20
            nvml.nvmlInit_v2()
            before, began = by_nvml(), d.cuInit(0)
            if began != 0: print(began); sys.exit()
            context, free, total, all = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
            d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); d.cuCtxSetCurrent(context)
            d.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)); d.cuDeviceTotalMem_v2(ctypes.byref(all), 0)
            address = ctypes.c_uint64()
            gets = [d.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) for mib in (1500, 600, 500)]
            print(before, free.value >> 20, total.value >> 20, all.value >> 20, by_nvml(), gets)
        """

        def told(**variables):
            done = python(code, command=["env", f"LD_PRELOAD={os.environ['GPUSHARE_PRELOAD']}:{os.environ['GPUSHARE_PRELOAD_NVML']}"],
                          env={**os.environ, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G", **variables})
            self.assertEqual(done.stderr, "")
            return done.stdout.strip()
        self.assertEqual(told(), "(0, 2048) 2048 2048 2048 (0, 2048) [0, 2, 0]")
        # Also beside other keys of the share. A larger limit cannot be met, and is not shown as if it could.
        self.assertEqual(told(GPUSHARE_SPEC="cap=50%"), "(0, 2048) 2048 2048 2048 (0, 2048) [0, 2, 0]")
        self.assertEqual(told(GPUSHARE_SPEC="memory=8GiB"), "(0, 2048) 0 2048 2048 (0, 2048) [2, 2, 2]")
        self.assertEqual(told(GPUSHARE_SPEC="memory=1GiB"), "(0, 1024) 1024 1024 1024 (0, 1024) [2, 0, 2]")

    def test_priority(self):
        # Alone, a program is equally fast with each priority. The doctor reports the priority, and a broker lists it.
        for priority in "0", "1":
            memory, allocated, share = self.run_under(CUDA_TASK_PRIORITY=priority, CUDA_DEVICE_MEMORY_LIMIT="2g")
            self.assertEqual((memory, allocated), (2048, 2))
            self.assertAlmostEqual(share, 1, delta=TOLERANCE)

    def test_nonsense_lets_nothing_through(self):
        for name, values in (("NVIDIA_GPU_MEMORY_LIMIT", ("2g", "-1", "18446744073709551616")),
                             ("CUDA_DEVICE_MEMORY_LIMIT", ("lots", "g", "-1m", "1gg", "18446744073709551616")),
                             ("ALIYUN_COM_GPU_MEM_CONTAINER", ("3g", "-3", "0x10")),
                             ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ("2G", "2GiB", "0=2Gb", "0=lots", "1=2G,x")),
                             ("CUDA_DEVICE_SM_LIMIT", ("150", "-1", "half")), ("CUDA_TASK_PRIORITY", ("2", "-1"))):
            for value in values:
                with self.subTest(name=name, value=value):
                    done = python("import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))",
                                  command=["env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"]],
                                  env={**os.environ, name: value})
                    self.assertEqual((done.stdout, done.stderr), ("1\n", ""), done)  # CUDA_ERROR_INVALID_VALUE


class Refused(unittest.TestCase):
    def test_no_share_to_be_had_is_no_launch(self):
        done = python("""
            from program import *
            context()
            print(int(launch(spin(), 1)[0]), int(d.cuMemsetD8Async(1 << 30, 0, 16, 0)[0]))
        """, env={**os.environ, "GPUSHARE_SPEC": "memory=1GiB"}, command=[
            "env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"], "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512M"])
        self.assertEqual(done.stdout.split(), ["701", "701"], done)  # CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES

    def test_a_forked_child_launches_nothing(self):
        done = python("""
            from program import *
            import os
            context()
            kernel = spin()
            for _ in range(40): ok(launch(kernel, 0.02)); ok(d.cuCtxSynchronize())
            for _ in range(3): ok(launch(kernel, 0.02))  # by now without a call of gpushare, from credit in hand
            child = os.fork()
            if child == 0: os._exit(int(launch(kernel, 0.02)[0]))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """, "--spec", "cap=25%")
        self.assertEqual(done.stdout, "3\n", done)


if __name__ == "__main__":
    unittest.main()
