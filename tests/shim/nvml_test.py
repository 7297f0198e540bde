#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an unmodified program under gpushare sees through NVML, using NVIDIA's Python binding."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import textwrap
import unittest

from command import COMMAND, HERE, PYTHON

PRELOAD, NVML, AUDIT = (os.environ["GPUSHARE_" + name] for name in ("PRELOAD", "PRELOAD_NVML", "AUDIT"))
# How a program that opens NVML by its name, like the binding, can be run.
WAYS = {"run": {}, "run --audit": {}, "both preloaded": {"LD_PRELOAD": PRELOAD + ":" + NVML},
        "the driver's alone": {"LD_PRELOAD": PRELOAD}, "audit": {"LD_AUDIT": AUDIT}}

PROGRAM = """
    import ctypes, os, sys
    import pynvml as nvml
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByIndex(0)
    MIB = 1 << 20
    def memory(of=device):
        first, second = nvml.nvmlDeviceGetMemoryInfo(of), nvml.nvmlDeviceGetMemoryInfo(of, nvml.nvmlMemory_v2)
        assert first.total == first.free + first.used
        assert second.total == second.free + second.used + second.reserved
        assert first.total == second.total
        return [x // MIB for x in (first.total, first.used)]
    def processes(of=device):
        lists = [f(of) for f in (nvml.nvmlDeviceGetComputeRunningProcesses_v2, nvml.nvmlDeviceGetComputeRunningProcesses_v3)]
        lists = [[(each.pid == os.getpid(), each.usedGpuMemory // MIB) for each in some] for some in lists]
        assert lists[0] == lists[1]
        return lists[0]
    class Cuda:
        def __init__(self, ordinal=0):
            self.cuda = ctypes.CDLL("libcuda.so.1")
            context = ctypes.c_void_p()
            assert self.cuda.cuInit(0) == 0
            assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
            assert self.cuda.cuCtxSetCurrent(context) == 0
        def take(self, mib):
            pointer = ctypes.c_uint64()
            assert self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)) == 0
            return pointer
        def free(self, pointer):
            assert self.cuda.cuMemFree_v2(pointer) == 0
    def objects():
        with open("/proc/self/maps") as maps:
            return {line.split("/")[-1].strip() for line in maps if ".so" in line}
    def cuda_init_calls():
        calls = ctypes.CDLL(os.environ["GPUSHARE_SIMULATED"]).gpushare_sim_calls
        calls.restype = ctypes.c_uint64
        return calls(b"cuInit")
    def refused(call, *arguments):
        try:
            call(*arguments)
        except nvml.NVMLError as error:
            return error.value
"""


def program(code, way="both preloaded", spec="memory=1GiB", **variables):
    environment = {**os.environ, "PYTHONPATH": HERE, **variables}
    command = [PYTHON, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(code)]
    if way.startswith("run"):
        limits = ["--spec", spec] if spec else []
        command = [COMMAND, *way.split()[:1], "--gpu", "sim", *way.split()[1:], *limits, "--", *command]
    else:
        environment |= {**WAYS.get(way, {}), **({"GPUSHARE_SPEC": spec} if spec else {})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@unittest.skipIf(importlib.util.find_spec("pynvml") is None, "nvidia-ml-py is not installed; scripts/setup does")
class Nvml(unittest.TestCase):
    maxDiff = None

    def tells(self, code, *expected, **more):
        done = program(code, **more)
        self.assertEqual((done.returncode, done.stdout.splitlines(), done.stderr), (0, [str(each) for each in expected], ""))


class Memory(Nvml):
    def test_is_the_shares_before_and_after_the_first_call_of_the_driver(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.tells("""
                    print(memory(), processes())
                    cuda = Cuda()
                    print(memory())
                    some = cuda.take(300)
                    more = cuda.take(200)
                    print(memory(), processes())
                    cuda.free(some)
                    print(memory(), processes())
                    cuda.free(more)
                    print(memory(), processes())
                """, "[1024, 0] []", "[1024, 0]", "[1024, 500] [(True, 500)]", "[1024, 200] [(True, 200)]",
                    "[1024, 0] [(True, 0)]", way=way)

    def test_is_the_devices_without_a_quota(self):
        for spec in ("", "cap=50%"):
            self.tells("""
                print(memory(), processes())
                cuda = Cuda()
                before = memory()[1]
                cuda.take(300)
                print(memory()[0], memory()[1] - before, processes())
            """, "[16384, 0] []", "16384 300 [(True, 300)]", spec=spec)

    def test_is_what_the_driver_says(self):
        self.tells("""
            from cuda.bindings import driver as d
            cuda = Cuda()
            cuda.take(100)
            free, total = d.cuMemGetInfo()[1:]
            print(memory() == [total // MIB, (total - free) // MIB])
        """, True, spec="memory=25%")

    def test_a_part_of_the_device_before_the_first_call_of_the_driver(self):
        self.tells("""
            before = memory()
            Cuda()
            print(before == memory(), before[0])
        """, "True 4032", spec="memory=25%")  # of what is not kept back: 256 MiB

    def test_limits_by_others_names(self):
        self.tells("""
            print(memory())
            Cuda().take(100)
            print(memory())
        """, "[2048, 0]", "[2048, 100]", spec="", CUDA_DEVICE_MEMORY_LIMIT="2g")

    def test_freed_in_the_order_of_a_stream(self):
        self.tells("""
            from cuda.bindings import driver as d
            cuda = Cuda()
            stream = d.cuStreamCreate(0)[1]
            pointer = d.cuMemAllocAsync(64 << 20, stream)[1]
            print(memory()[1] >= 64)
            d.cuMemFreeAsync(pointer, stream)
            d.cuStreamSynchronize(stream)
            print(memory())
        """, True, "[1024, 0]")

    def test_a_spec_that_nobody_can_have(self):
        self.tells("""
            print(refused(memory), nvml.nvmlDeviceGetCount(), nvml.nvmlDeviceGetName(device) != "")
        """, "999 1 True", spec="memory=nonsense")

    def test_switched_off(self):
        self.tells("print(memory(), 'libgpushare.so' in str(objects()))", "[16384, 0] False", GPUSHARE_DISABLE="1")


class Monitor(Nvml):
    def test_never_touches_the_driver(self):
        self.tells("""
            memory(), processes(), nvml.nvmlDeviceGetUtilizationRates(device)
            print([name for name in objects() if name.startswith("libcuda")])
        """, "[]")

    def test_what_is_passed_on_needs_no_engine(self):
        self.tells("""
            print(nvml.nvmlDeviceGetName(device) != "", nvml.nvmlDeviceGetCount(), nvml.nvmlDeviceGetMigMode(device))
            print([name for name in objects() if name.startswith("libgpushare.so")])
        """, "True 1 [0, 0]", "[]")

    def test_errors_are_nvmls(self):
        self.tells("""
            print(refused(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU))
            print(refused(nvml.nvmlDeviceGetMemoryInfo, ctypes.c_void_p(1)), refused(nvml.nvmlDeviceGetMemoryInfo, device, 7))
            for call in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetComputeRunningProcesses):
                print(refused(call, ctypes.c_void_p(1)))
            nvml.nvmlShutdown()
            print(refused(nvml.nvmlDeviceGetMemoryInfo, device), refused(nvml.nvmlDeviceGetComputeRunningProcesses, device))
        """, 3, "2 25", 2, 2, "1 1")

    def test_a_machine_without_nvml(self):
        with tempfile.TemporaryDirectory() as empty:
            done = program("", GPUSHARE_NVML=empty + "/libnvidia-ml.so.1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NVMLError_LibraryNotFound", done.stderr)

    def test_its_error_texts_without_nvml(self):
        code = """
            import ctypes
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            print(nvml.nvmlInit_v2(), nvml.nvmlErrorString(12).decode())
        """
        done = subprocess.run([PYTHON, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, env={
            **os.environ, "LD_PRELOAD": PRELOAD, "GPUSHARE_NVML": "/nowhere"})
        self.assertEqual((done.stdout, done.stderr), ("12 NVML is not here\n", ""))


class Processes(Nvml):
    def test_a_forked_child_before_the_first_call(self):
        self.tells("""
            child = os.fork()
            if child == 0:
                print(memory(), processes())
                Cuda().take(100)
                print(memory(), processes(), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print(memory(), processes())
        """, "[1024, 0] []", "[1024, 100] [(True, 100)]", "[1024, 0] []")

    def test_a_forked_child_holds_nothing_of_its_parents(self):
        self.tells("""
            cuda = Cuda()
            cuda.take(100)
            print(memory(), flush=True)
            child = os.fork()
            if child == 0:
                print(memory(), nvml.nvmlDeviceGetUtilizationRates(device).gpu, flush=True)
                os._exit(0)
            print(os.waitpid(child, 0)[1], memory())
        """, "[1024, 100]", "[1024, 0] 0", "0 [1024, 100]")

    def test_many_threads_ask_at_once(self):
        self.tells("""
            import threading
            cuda = Cuda()
            wrong = []
            def ask():
                for _ in range(200):
                    if memory()[0] != 1024 or len(nvml.nvmlDeviceGetComputeRunningProcesses(device)) > 1:
                        wrong.append(1)
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(200):
                cuda.free(cuda.take(10))
            for thread in threads:
                thread.join()
            print(wrong, memory())
        """, "[] [1024, 0]", GPUSHARE_SIM="memory=16GiB,clock=wall")


class InPlaceOfTheLibraries(Nvml):
    def test_as_a_container_may_have_it(self):
        libraries = os.path.dirname(os.path.dirname(os.path.dirname(PRELOAD)))
        with tempfile.TemporaryDirectory() as folder:
            for place, files in {"system": {"libcuda.so.1": PRELOAD, "libnvidia-ml.so.1": NVML},
                                 "moved": {name: f"{libraries}/gpushare/sim/{name}" for name in ("libcuda.so.1", "libnvidia-ml.so.1")}}.items():
                os.mkdir(f"{folder}/{place}")
                for name, file in files.items():
                    shutil.copy(file, f"{folder}/{place}/{name}")
            self.tells("""
                print(memory(), processes())
                cuda = Cuda()
                cuda.take(300)
                print(memory(), processes(), cuda.cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 30)))
            """, "[1024, 0] []", "[1024, 300] [(True, 300)] 2", way="in place", GPUSHARE_DRIVER=folder + "/moved/libcuda.so.1",
                LD_LIBRARY_PATH=f"{folder}/system:{libraries}")


class Utilization(Nvml):
    LOAD = """
        import program as p
        p.context()
        kernel = p.spin()
        def busy(ms, of):
            '''A kernel of `ms` in each `of` milliseconds, on the simulated clock.'''
            sim = p.simulated()
            for _ in range(int(1000 / of)):
                p.ok(p.launch(kernel, ms))
                p.ok(p.d.cuCtxSynchronize())
                sim.gpushare_sim_spend(ctypes.c_uint64(int((of - ms) * 1e6)))
        def rates():
            return nvml.nvmlDeviceGetUtilizationRates(device)
        p.ok(p.d.cuMemAlloc(1 << 20))
    """

    def near(self, got, expected):
        self.assertLessEqual(abs(got - expected), 3, (got, expected))

    def ask(self, code, **more):
        done = program(textwrap.dedent(self.LOAD) + textwrap.dedent(code), **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return [int(word) for word in done.stdout.split()]

    def test_is_of_the_device_without_a_cap(self):
        busy, idle = self.ask("""
            busy(3, of=10); busy(3, of=10)
            print(rates().gpu)
            p.simulated().gpushare_sim_spend(ctypes.c_uint64(10**9))
            print(rates().gpu)
        """, spec="memory=1GiB,weight=3")
        self.near(busy, 30)
        self.near(idle, 0)

    def test_is_of_the_cap_where_there_is_one(self):
        half, = self.ask("busy(2, of=10); busy(2, of=10); print(rates().gpu)", spec="cap=40%")
        self.near(half, 50)
        whole, = self.ask("""
            rates()
            for _ in range(200):
                p.ok(p.launch(kernel, 2))
            p.ok(p.d.cuCtxSynchronize())
            print(rates().gpu)
        """, spec="cap=40%")
        self.near(whole, 100)

    def test_looks_that_follow_each_other_agree(self):
        first, second = self.ask("busy(3, of=10); print(rates().gpu, rates().gpu)", spec="memory=1GiB")
        self.assertEqual(first, second)


class OtherMachine(Nvml):
    """With an NVML that lists other processes too and numbers the devices in another order."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([PYTHON, "-c", textwrap.dedent("""
            import pynvml as nvml
            nvml.nvmlInit()
            print(*(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in (0, 1)))
        """)], env={**os.environ, "GPUSHARE_SIM": "devices=2"}, capture_output=True, text=True, timeout=60, check=True)
        cls.uuids = done.stdout.split()

    def other(self, code, *expected, **more):
        self.tells(code, *expected, **{
            "GPUSHARE_NVML": os.environ["NVML_OF_ANOTHER"], "NVML_UUIDS": ",".join(reversed(self.uuids)),
            "GPUSHARE_SIM": "memory=16GiB,devices=2", **more})

    def test_devices_meet_by_their_uuids(self):
        limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "1g", "CUDA_DEVICE_MEMORY_LIMIT_1": "2g", "spec": ""}
        code = """
            other = nvml.nvmlDeviceGetHandleByIndex(1)
            Cuda(0).take(100)
            print(memory(), memory(other))
            Cuda(1).take(50)
            print(memory(), memory(other), processes(), processes(other))
        """
        self.other(code, "[2048, 0] [1024, 100]", "[2048, 50] [1024, 100] [(True, 50)] [(True, 100)]", **limits)
        # The same before the driver has been initialized, if the environment names the devices.
        self.other("print(memory(), memory(nvml.nvmlDeviceGetHandleByIndex(1)))", "[2048, 0] [1024, 0]",
                   CUDA_VISIBLE_DEVICES=",".join(self.uuids), **limits)
        self.other("print(memory(), memory(nvml.nvmlDeviceGetHandleByIndex(1)))", "[1024, 0] [2048, 0]", **limits)

    def test_a_device_that_the_process_does_not_get_is_shown_as_it_is(self):
        self.other("""
            first = nvml.nvmlDeviceGetMemoryInfo(device)
            print(first.total // MIB, first.used // MIB, len(nvml.nvmlDeviceGetComputeRunningProcesses(device)))
            print(nvml.nvmlDeviceGetUtilizationRates(device).gpu, memory(nvml.nvmlDeviceGetHandleByIndex(1)))
        """, "16384 5632 3", "100 [1024, 0]", CUDA_VISIBLE_DEVICES=self.uuids[0])

    def test_instances_of_a_gpu_have_no_index(self):
        shown = "print(*(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(i)).total // MIB for i in (0, 1)))"
        self.other(shown, "16384 1024", NVML_INSTANCES="1", CUDA_VISIBLE_DEVICES=self.uuids[0])
        self.other(shown, "16384 16384", NVML_INSTANCES="1", CUDA_VISIBLE_DEVICES="0")
        self.other(shown, "1024 1024", NVML_INSTANCES="1")

    def test_the_drivers_version_is_asked_without_initialising_it(self):
        for way in ("both preloaded", "audit"):
            self.other("""
                print(nvml.nvmlSystemGetCudaDriverVersion_v2(), memory())
                print([name for name in objects() if "libgpushare_preload.so" in name], cuda_init_calls())
            """, "13000 [1024, 0]", "['libgpushare_preload.so'] 0", way=way)

    def test_what_is_not_hooked_is_that_machines(self):
        self.other("""
            print(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
            print(refused(nvml.nvmlDeviceGetPowerUsage, device))
        """, 50, 13)

    def test_memory_that_the_driver_keeps_for_itself(self):
        self.other("""
            second = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
            print(second.total // MIB, second.reserved, second.used)
        """, "1024 0 0")
        self.other("""
            second = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
            print(second.total // MIB, second.reserved // MIB, second.used // MIB)
        """, "16384 512 5120", spec="")

    LISTS = """
        def shown():
            compute = nvml.nvmlDeviceGetComputeRunningProcesses(device)
            graphics = nvml.nvmlDeviceGetGraphicsRunningProcesses(device)
            details = nvml.nvmlDeviceGetRunningProcessDetailList(device, nvml.nvmlProcessDetailList_v1, 0)
            print(*([(each.pid == os.getpid(), each.usedGpuMemory // MIB) for each in some]
                    for some in (compute, graphics, details)))
    """

    def test_others_processes_are_not_shown(self):
        self.other(self.LISTS + """
        shown()
        Cuda(1).take(50)
        shown()
        """, "[(True, 0)] [(True, 0)] [(True, 0)]", "[(True, 50)] [(True, 50)] [(True, 50)]")

    def test_nor_is_the_process_missing_where_ids_are_of_another_namespace(self):
        self.other(self.LISTS + """
        shown()
        Cuda(1).take(50)
        shown()
        """, "[] [] []", "[(True, 50)] [] [(True, 50)]", NVML_NAMESPACE="other")

    def test_samples_are_this_processes(self):
        code = """
            print([(each.pid == os.getpid(), each.smUtil) for each in nvml.nvmlDeviceGetProcessUtilization(device, 0)])
            print([(each.pid == os.getpid(), each.smUtil) for each in nvml.nvmlDeviceGetProcessesUtilizationInfo(device, 0)])
        """
        self.other(code, "[(True, 20)]", "[(True, 20)]")
        self.other("print(refused(nvml.nvmlDeviceGetProcessUtilization, device, 0))", 6, NVML_NAMESPACE="other")
        self.other("print(refused(nvml.nvmlDeviceGetProcessUtilization, device, 1))", 6)

    def test_utilization_of_the_memory_is_of_the_part_of_the_kernels_time(self):
        self.other(Utilization.LOAD + """
        busy(3, of=10)
        rates = nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(1))
        print(27 <= rates.gpu <= 33, 11 <= rates.memory <= 13)  # of 100 and 40
        """, "True True")

    def test_too_little_room(self):
        self.other("""
            count = ctypes.c_uint(0)
            real = nvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses")
            print(real(device, ctypes.byref(count), None), count.value)
            room = (nvml.c_nvmlProcessInfo_v2_t * 1)()
            print(real(device, ctypes.byref(count), None), real(device, None, None))
        """, "7 1", "2 2")


if __name__ == "__main__":
    unittest.main()
