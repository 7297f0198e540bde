#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare run`, and its effects that a preloaded program can notice."""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

from command import COMMAND, PYTHON, python, run

CHILD = os.environ["GPUSHARE_REACH"]


class Status(unittest.TestCase):
    def test_is_the_programs_own(self):
        self.assertEqual(run("--memory", "1GiB", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(run("--", "sh", "-c", "kill -TERM $$").returncode, -15)

    def test_no_such_program(self):
        done = run("--", "/nowhere/at/all")
        self.assertEqual((done.returncode, "No such file" in done.stderr), (127, True), done)
        self.assertEqual(run("--", "/etc/passwd").returncode, 126)

    def test_what_is_wrong_with_the_share_is_said_before(self):
        for options, words in ((["--memory", "x"], "spec field 'memory'"), (["--compute", "101%"], "compute"),
                               (["--memory", "100000GiB"], "tenant 'echo': 97.6 TiB of memory asked"),
                               (["--tenant", "mine", "--memory", "100000GiB"], "tenant 'mine': 97.6 TiB of memory asked"),
                               (["--spec", "memory=1GiB", "--memory", "2GiB"], "memory"),
                               (["--policy", "turbo"], "turbo"), (["--cap", "0%"], "cap"),
                               (["--memory", ""], "--memory: an empty value"), (["--cap", ""], "--cap: an empty value"),
                               (["--spec", ""], "--spec: an empty value"), (["--tenant", ""], "--tenant: an empty value"),
                               (["--spec", "isolation=context"], "isolation"), ([], "required")):
            with self.subTest(options=options):
                done = run(*options, *(["--", "echo", "ran"] if words != "required" else []))
                self.assertEqual((done.returncode, done.stdout), (2, ""), done)
                self.assertRegex(done.stderr, "^gpushare run: ")
                self.assertIn(words, done.stderr)

    def test_the_share_is_put_together(self):
        done = run("--spec", "weight=3", "--memory", "1GiB", "--priority", "low", "--", "sh", "-c", "echo $GPUSHARE_SPEC")
        self.assertEqual(done.stdout, "weight=3,memory=1GiB,priority=low\n", done)

    def test_what_has_no_effect_without_a_broker_is_said(self):
        def said(*options, **variables):
            done = run("--memory", "1GiB", *options, "--", "true", env={**os.environ, **variables})
            self.assertEqual(done.returncode, 0, done)
            return done.stderr

        for options, words in ((("--tenant", "a"), "tenant 'a' is asked of no broker; name a broker by --broker"),
                               (("--compute", "30%"), "'compute' limits nothing"), (("--spec", "compute=30%"), "'compute' limits nothing")):
            self.assertIn(words, said(*options))
            self.assertEqual(said(*options, "--broker", "none"), "")
            self.assertEqual(said(*options, GPUSHARE_BROKER="none"), "")
        for options in ((), ("--cap", "30%"), ("--compute", "30%", "--cap", "40%"), ("--compute", "30%", "--policy", "hard")):
            self.assertEqual(said(*options), "")

    def test_the_environment_says_what_options_leave_open(self):
        own = {"GPUSHARE_SPEC": "memory=1GiB,memory_cap=2GiB,compute=20%,h2d=1GB/s"}
        show = ("--", "sh", "-c", "echo $GPUSHARE_SPEC")
        for options, came in [
            ((), "memory=1GiB,memory_cap=2GiB,compute=20%,h2d=1GB/s\n"),
            (("--cap", "50%"), "cap=50%,memory=1GiB,memory_cap=2GiB,h2d=1GB/s\n"),
            (("--memory", "3GiB"), "memory=3GiB,compute=20%,h2d=1GB/s\n"),
        ]:
            self.assertEqual(run(*options, *show, env={**os.environ, **own}).stdout, came)
        for spec, words in [("memory=much", "GPUSHARE_SPEC: "), ("isolation=green", "which 'process' says")]:
            wrong = run("--", "true", env={**os.environ, "GPUSHARE_SPEC": spec})
            self.assertEqual(wrong.returncode, 2, wrong)
            self.assertIn(words, wrong.stderr)

    def test_which_gpu(self):
        show = ("--", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES:-all}")
        self.assertEqual(run(*show).stdout, "all\n")
        self.assertRegex(run("--device", "0", *show).stdout, r"^GPU-[0-9a-f-]+\n$")

    def test_no_variable_takes_the_limits_off_without_a_word(self):
        disabled = {**os.environ, "GPUSHARE_DISABLE": "1"}
        done = run("--memory", "1GiB", "--", "true", env=disabled)
        self.assertEqual((done.returncode, done.stderr), (2, "gpushare run: GPUSHARE_DISABLE: '1' given, and limits are asked for "
                                                             "(memory=1GiB), which would not hold; unset it, or ask for none\n"))
        # This also holds for limits that other variables ask for, or that a broker gives.
        done = run("--", "true", env={**disabled, "CUDA_DEVICE_MEMORY_LIMIT": "1g"})
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("limits are asked for (memory=1GiB), which would not hold", done.stderr)
        for options, more in ((), {"GPUSHARE_BROKER": "/nowhere"}), (("--broker", "/nowhere"), {}):
            done = run(*options, "--", "true", env={**disabled, **more})
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("the share is to be a broker's (/nowhere), which would not hold", done.stderr)
        self.assertEqual(run("--", "true", env=disabled).returncode, 0)
        self.assertEqual(run("--broker", "none", "--", "true", env={**disabled, "GPUSHARE_BROKER": "/nowhere"}).returncode, 0)
        done = run("--memory", "1GiB", "--", "sh", "-c", "echo ${GPUSHARE_RECORD-none}",
                   env={**os.environ, "GPUSHARE_RECORD": "/nowhere"})
        self.assertEqual((done.returncode, done.stdout), (0, "none\n"))

    def test_stands_behind_what_is_preloaded_already(self):
        done = run("--", "sh", "-c", "echo $LD_PRELOAD", env={**os.environ, "LD_PRELOAD": "libdl.so.2"})
        self.assertRegex(done.stdout, r"^libdl\.so\.2:.*libgpushare_preload\.so:.*libgpushare_preload_nvml\.so\n")



class Log(unittest.TestCase):
    """GPUSHARE_LOG: the log says which variables set a program's limits."""

    def logged(self, *options, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "shares.jsonl")
            done = python("""
                from program import *
                context()
                ok(d.cuMemAlloc(1 << 20))
                print(ok(d.cuMemGetInfo()[:1] + (d.cuMemGetInfo()[2],)))
            """, *options, env={**os.environ, "GPUSHARE_LOG": path, **variables})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            with open(path) as lines:
                (line,) = [json.loads(line) for line in lines]
        self.assertEqual((line["event"], line["gpu"]), ("share", 0))
        if line["memory"] is not None:
            self.assertEqual(line["memory"], int(done.stdout))  # the total that the program sees
        return line["memory"], [(each["key"], each["variable"]) for each in line["limits"]], [
            each["variable"] for each in line["overridden"]]

    def refused(self, options=(), **variables):
        """The lines of a program that asks for memory twice."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "shares.jsonl")
            done = python("""
                from program import *
                d.cuInit(0)
                d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
                print([int(d.cuMemAlloc(1 << 20)[0]) for _ in range(2)])
            """, command=["env"], env={**os.environ, "GPUSHARE_LOG": path, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], **variables})
            self.assertEqual((done.returncode, done.stderr), (0, ""), done)
            self.assertNotIn("0", done.stdout.strip("[]\n").split(", "))
            with open(path) as lines:
                return [(line["event"], line["gpu"], line["why"]) for line in map(json.loads, lines)]

    def test_why_a_program_got_nothing_is_logged_once(self):
        self.assertEqual(self.refused(CUDA_DEVICE_MEMORY_LIMIT="1x"),
                         [("refused", None, "CUDA_DEVICE_MEMORY_LIMIT: '1x' given; allowed: as in 1g, 1024m or 1048576k, or bytes")])
        ((event, gpu, why),) = self.refused(GPUSHARE_SPEC="memory=200GiB")
        self.assertEqual((event, gpu), ("refused", 0))
        self.assertIn("200 GiB of memory asked", why)
        ((event, gpu, why),) = self.refused(GPUSHARE_BROKER="/nowhere")
        self.assertEqual((event, gpu), ("refused", None))
        self.assertIn("/nowhere", why)

    def test_the_winner_is_logged(self):
        nvidia, hami, aliyun, mps = ({"NVIDIA_GPU_MEMORY_LIMIT": "1024"}, {"CUDA_DEVICE_MEMORY_LIMIT": "2g"},
                                     {"ALIYUN_COM_GPU_MEM_CONTAINER": "3"}, {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512M"})
        for variables, memory in (nvidia, 1 << 30), (hami, 2 << 30), (aliyun, 3 << 30):
            self.assertEqual(self.logged(**variables), (memory, [("memory", *variables)], []))
        self.assertEqual(self.logged(**aliyun, **hami, **nvidia), (1 << 30, [("memory", *nvidia)], []))
        self.assertEqual(self.logged(**aliyun, CUDA_DEVICE_SM_LIMIT="30", CUDA_TASK_PRIORITY="0"),
                         (3 << 30, [("memory", *aliyun), ("cap", "CUDA_DEVICE_SM_LIMIT"), ("priority", "CUDA_TASK_PRIORITY")], []))
        memory, limits, _ = self.logged(**nvidia, **mps)
        self.assertEqual(limits, [("memory", *nvidia), ("memory_at_most", *mps)])
        self.assertEqual(memory, 512 << 20)
        # GPUSHARE_SPEC takes precedence over them, key by key.
        self.assertEqual(self.logged("--memory", "4GiB", **nvidia, CUDA_DEVICE_SM_LIMIT="30"),
                         (4 << 30, [("spec", "GPUSHARE_SPEC"), ("cap", "CUDA_DEVICE_SM_LIMIT")], [*nvidia]))

    def test_what_cannot_be_written_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo, full = os.path.join(folder, "fifo"), os.path.join(folder, "full")
            os.mkfifo(fifo)
            for path in folder, fifo, "/dev/full", os.path.join(folder, "no", "such"), full:
                done = python("""
                    import resource
                    resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))  # beyond it a write ends the process
                    from program import *
                    context()
                    ok(d.cuMemAlloc(1 << 20))
                """, "--memory", "1GiB", env={**os.environ, "GPUSHARE_LOG": path})
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), path)
            self.assertEqual(os.path.getsize(full), 0)


class Doctor(unittest.TestCase):
    def ask(self, gpu="sim", without=(), **variables):
        environment = {name: value for name, value in os.environ.items() if name not in without}
        done = subprocess.run([COMMAND, "doctor", "--gpu", gpu, "--json"], capture_output=True, text=True, timeout=60,
                              env={**environment, **variables})
        return done.returncode, [(each["subject"], each["found"], each["ok"]) for each in json.loads(done.stdout)]

    def test_what_happens_over_the_quota(self):
        self.assertIn(("GPUSHARE_OVER_QUOTA", "wait=30s", True), self.ask(GPUSHARE_OVER_QUOTA="wait=30s")[1])
        status, findings = self.ask(GPUSHARE_OVER_QUOTA="never")
        why = "GPUSHARE_OVER_QUOTA: 'never' given; allowed: fail, or wait= and a time of more than 0 and at most 1h, such as wait=30s"
        self.assertEqual((status, [each for each in findings if not each[2]]),
                         (1, [("GPUSHARE_OVER_QUOTA", f"{why}: no program begins here", False)]))
        done = run("--", "echo", "ran", env={**os.environ, "GPUSHARE_OVER_QUOTA": "never"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"gpushare run: {why}\n"))

    def test_nothing_wrong(self):
        status, findings = self.ask()
        self.assertEqual((status, [each for each in findings if not each[2]]), (0, []))
        self.assertIn(("libgpushare_preload.so", os.path.realpath(os.environ["GPUSHARE_PRELOAD"]), True), findings)

    def test_launches_come_by_the_library(self):
        _, findings = self.ask(GPUSHARE_SPEC="memory=1GiB,cap=50%")
        self.assertIn(("shim coverage", "16 launches seen of 16 that reached the driver", True), findings)
        status, findings = self.ask(GPUSHARE_DISABLE="1")
        self.assertIn(("shim coverage", "0 launches seen of 16 that reached the driver: limits of compute do not hold", False), findings)
        self.assertEqual(status, 1)
        # A program whose driver does not start launches nothing; another line says why.
        _, findings = self.ask(GPUSHARE_SPEC="memory=nonsense")
        self.assertIn(("shim coverage", "not known: cuInit answers 1", True), findings)

    def test_every_simulated_gpu_where_there_is_no_other(self):
        _, findings = self.ask("auto", ("GPUSHARE_DRIVER", "LD_LIBRARY_PATH"), GPUSHARE_SIM="devices=2,memory=16GiB")
        if not any(found.startswith("simulated, because") for _, found, _ in findings):
            self.skipTest("there is an NVIDIA driver")
        said = [ok for subject, found, ok in findings if subject in ("GPU 0", "GPU 1") and "GPU-" in found]
        self.assertEqual(said, [True, True], findings)

    def test_which_variable_counts(self):
        _, findings = self.ask(CUDA_DEVICE_MEMORY_LIMIT="1g", CUDA_DEVICE_SM_LIMIT="50", GPUSHARE_SPEC="memory=2GiB")
        said = [found for subject, found, _ in findings if subject == "GPU 0"]
        self.assertIn("memory=2GiB (GPUSHARE_SPEC)", said)
        self.assertIn("memory=1GiB (CUDA_DEVICE_MEMORY_LIMIT), which GPUSHARE_SPEC overrides", said)
        self.assertIn("cap=50% (CUDA_DEVICE_SM_LIMIT)", said)

    def test_which_of_several_counts(self):
        variables = {"NVIDIA_GPU_MEMORY_LIMIT": "1024", "CUDA_DEVICE_MEMORY_LIMIT_0": "2g", "CUDA_DEVICE_MEMORY_LIMIT": "3g",
                     "ALIYUN_COM_GPU_MEM_CONTAINER": "4"}
        limits = ["memory=1024MiB", "memory=2GiB", "memory=3GiB", "memory=4GiB"]
        while variables:
            name = next(iter(variables))
            _, findings = self.ask(**variables)
            said = [found for subject, found, _ in findings if subject == "GPU 0" and found.startswith("memory=")]
            self.assertEqual(said, [f"{limits.pop(0)} ({name})"])
            del variables[name]

    def test_what_mps_and_hami_come_to(self):
        _, findings = self.ask(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G")
        self.assertIn(("GPU 0", "memory=2GiB (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)", True), findings)
        self.assertNotIn("no limit is set: `gpushare run` sets one", [found for _, found, _ in findings])
        _, findings = self.ask(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="2G")
        why = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '2G' given; allowed: GPUs by their number, as in 0=2G,1=512M"
        self.assertIn(why, [found for _, found, ok in findings if not ok])
        for policy, said in ("default", True), ("force", False):
            _, findings = self.ask(CUDA_DEVICE_SM_LIMIT="50", GPU_CORE_UTILIZATION_POLICY=policy)
            self.assertEqual(any(found.startswith("cap=50% holds also while no other tenant has work")
                                 for _, found, _ in findings), said, findings)

    def test_what_a_limit_is_cut_to(self):
        _, findings = self.ask(NVIDIA_GPU_MEMORY_LIMIT="409600")
        said = [found for subject, found, _ in findings if subject == "GPU 0"]
        self.assertIn("memory=409600MiB (NVIDIA_GPU_MEMORY_LIMIT), cut to 16128 MiB, which the GPU can promise", said)

    def test_limits_of_others_that_are_wrong(self):
        for name, value, allowed in (("CUDA_TASK_PRIORITY", "7", "0, which is high, or 1, low"),
                                     ("CUDA_DEVICE_MEMORY_LIMIT", "bogus", "as in 1g, 1024m or 1048576k, or bytes")):
            why = f"{name}: '{value}' given; allowed: {allowed}"
            _, findings = self.ask(**{name: value})
            self.assertIn(("GPU 0", why, False), findings)
            # The value is not shown as a limit either.
            self.assertEqual([found for _, found, _ in findings if found.endswith(f"({name})")], [])
            done = run("--", "true", env={**os.environ, name: value})
            self.assertEqual((done.returncode, done.stderr), (2, f"gpushare run: {why}\n"))
        _, findings = self.ask(GPUSHARE_SPEC="memory=x")
        self.assertTrue(any(found.startswith("GPUSHARE_SPEC: ") and not ok for _, found, ok in findings), findings)

    def test_nothing_is_said_of_nvml_where_no_gpu_was_opened(self):
        for variables in {"GPUSHARE_MEMORY_RESERVE": "900GiB"}, {"GPUSHARE_SIM": "memory=foo"}:
            _, findings = self.ask(**variables)
            self.assertEqual([subject for subject, _, ok in findings if not ok], ["driver"], findings)
            self.assertNotIn("NVML", [subject for subject, _, _ in findings])

    def test_a_small_limit_of_mps_leaves_a_share(self):
        variables = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=100M", "CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_SM_LIMIT": "50",
                     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
        status, findings = self.ask(**variables)
        self.assertEqual(status, 0, findings)
        self.assertIn(("GPU 0", "memory=2GiB (CUDA_DEVICE_MEMORY_LIMIT), cut to 100 MiB, which the GPU can promise", True), findings)
        self.assertIn(("shim coverage", "16 launches seen of 16 that reached the driver", True), findings)

    def test_what_mps_allows(self):
        _, findings = self.ask(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
        self.assertIn(("GPU 0", "at most 50 % of the SMs, by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", True), findings)
        probe = subprocess.run([COMMAND, "probe", "--gpu", "sim"], capture_output=True, text=True, timeout=60,
                               env={**os.environ, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})
        self.assertRegex(probe.stdout, r"\nMPS active threads +50 %\n")

    def test_what_nvml_would_show(self):
        for shown, variables in ((16384, {}), (2048, {"GPUSHARE_SPEC": "memory=2GiB"}), (1024, {"CUDA_DEVICE_MEMORY_LIMIT": "1g"})):
            _, findings = self.ask(**variables)
            told = [found for subject, found, ok in findings if subject == "NVML" and ok]
            self.assertEqual((len(told), told[0].endswith("/sim/libnvidia-ml.so.1")), (2, True), findings)
            self.assertRegex(told[1], f"^shows {shown} MiB of GPU-")
        _, findings = self.ask(GPUSHARE_NVML="/nowhere")
        self.assertIn(("NVML", "there is none: programs that ask it are told so", True), findings)

    def test_what_is_wrong(self):
        for variables in ({"GPUSHARE_DISABLE": "1"}, {"GPUSHARE_RECORD": "/nowhere"}, {"CUDA_DEVICE_SM_LIMIT": "abc"}, {"GPUSHARE_SPEC": "memory=100TiB"},
                          {"GPUSHARE_PRELOAD_DIR": "/nowhere"}):
            with self.subTest(variables=variables):
                status, findings = self.ask(**variables)
                self.assertEqual((status, all(ok for _, _, ok in findings)), (1, False), findings)


class Host(unittest.TestCase):
    def test_is_left_as_it_is(self):
        done = python("""
            import ctypes
            from host_state import *
            before, open_before = state(), descriptors()
            cuda = ctypes.CDLL("libcuda.so.1")
            assert cuda.cuInit(0) == 0
            pointer = ctypes.c_uint64()
            context = ctypes.c_void_p()
            assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert cuda.cuCtxSetCurrent(context) == 0
            assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(2 << 30)) == 2
            assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
            after = state()
            assert before == after, [(key, before[key], after[key]) for key in before if before[key] != after[key]]
            assert descriptors() == open_before, (open_before, descriptors())
            print("same")
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "same\n", ""), done)

    def test_what_it_starts_and_becomes_has_the_share_anew(self):
        """posix_spawn and exec by a process that has initialized the driver."""
        done = python("""
            import os, sys
            from program import *
            context()
            print(int(d.cuMemAlloc(700 << 20)[0]), int(d.cuMemAlloc(700 << 20)[0]), flush=True)
            if "--again" not in sys.argv:
                again = [sys.executable, "-c", CODE, "--again"]
                assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(again[0], again, os.environ), 0)[1]) == 0
                os.execv(again[0], again)
        """.replace("CODE", "open('/proc/self/cmdline').read().split(chr(0))[2]"), "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0 2\n" * 3, ""), done)

    def test_however_it_ends(self):
        for way in "return", "thread", "atexit", "destructor", "quick_exit", "dlclose", "small_stacks":
            for preload in {"LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_SPEC": "memory=1GiB,cap=60%"}, {}:
                if not preload and way == "dlclose":
                    continue  # it asks for the limit
                with self.subTest(way=way, preload=bool(preload)):
                    done = subprocess.run([os.environ["GPUSHARE_ENDS"], way], capture_output=True, text=True, timeout=60,
                                          check=False, env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=wall", **preload})
                    self.assertEqual((done.returncode, done.stderr), (7, ""), done)

    def test_it_ends_with_its_last_thread(self):
        # The main thread has left by pthread_exit(), and the others call the driver until the end.
        for way in "last_thread", "last_thread_first", "last_thread_of_a_callback":
            for run in [], ["--cap", "60%"], ["--cap", "60%", "--audit"], ["--cap", "60%", "--broker", "private"]:
                if way == "last_thread_of_a_callback" and not run:
                    continue  # without gpushare, the simulated GPU's thread for host functions keeps the process alive
                for clock in ("wall",) if "private" in run else ("wall", "virtual"):
                    with self.subTest(way=way, run=run, clock=clock):
                        command = [COMMAND, "run", "--gpu", "sim", "--memory", "1GiB", *run, "--"] if run else []
                        done = subprocess.run([*command, os.environ["GPUSHARE_ENDS"], way], capture_output=True, text=True, timeout=60,
                                              env={**os.environ, "GPUSHARE_SIM": f"memory=16GiB,clock={clock}"}, check=False)
                        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "last\n", ""), done)

    def test_its_threads_may_be_cancelled(self):
        for run in [], ["--cap", "60%"], ["--cap", "60%", "--audit"], ["--cap", "60%", "--broker", "private"]:
            with self.subTest(run=run):
                command = [COMMAND, "run", "--gpu", "sim", "--memory", "1GiB", *run, "--"] if run else []
                done = subprocess.run([*command, os.environ["GPUSHARE_ENDS"], "cancel"], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=wall"}, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "", ""), done)

    def test_its_threads_may_be_cancelled_in_the_driver(self):
        calls = ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuMemFree", "cuMemFreeHost", "cuArrayDestroy",
                 "cuMemcpyDtoH", "cuMemcpyHtoD", "cuLaunchKernel"]
        for call in calls:
            depth = ",queue_depth=2" if call == "cuLaunchKernel" else ""
            for run in [], ["--spec", "memory=1GiB"], ["--spec", "memory=1GiB,cap=60%", "--audit"], ["--spec", "memory=1GiB", "--broker", "private"]:
                with self.subTest(call=call, run=run):
                    command = [COMMAND, "run", "--gpu", "sim", *run, "--"] if run else []
                    # If the books cannot undo the call it is completed before the cancellation. A bare program never
                    # does that.
                    made_first = bool(run) and call == "cuArrayDestroy"
                    done = subprocess.run([*command, os.environ["GPUSHARE_CANCELLED"], call, "5", "5" if made_first else "100"],
                                          capture_output=True, text=True, timeout=60,
                                          env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,clock=wall,cancellable=1" + depth},
                                          check=False)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), done)
                    cancelled, before, after = re.fullmatch(r"(\d+) cancelled, used (\d+) before, (\d+) after\n", done.stdout).groups()
                    self.assertEqual(before, after)
                    self.assertEqual(int(cancelled), 0 if made_first else 5)

    def test_its_signals_are_its_own(self):
        done = python("""
            import ctypes, os, signal
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            cuda = ctypes.CDLL("libcuda.so.1")
            pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
            assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
            assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0  # the engine's threads are there
            os.kill(os.getpid(), signal.SIGTERM)
            print(signal.sigwait({signal.SIGTERM}) == signal.SIGTERM)
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"), done)

    def test_a_forked_child_takes_nothing(self):
        done = python("""
            import ctypes, os
            cuda = ctypes.CDLL("libcuda.so.1")
            assert cuda.cuInit(0) == 0
            child = os.fork()
            if child == 0:
                pointer = ctypes.c_uint64()
                os._exit(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """, "--memory", "1GiB")
        self.assertEqual(done.stdout, "3\n", done)  # CUDA_ERROR_NOT_INITIALIZED, as of the driver

    def test_who_asks_for_the_version_alone_may_fork_afterwards(self):
        done = python("""
            import ctypes, os
            cuda = ctypes.CDLL("libcuda.so.1")
            version, text = ctypes.c_int(), ctypes.c_char_p()
            assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value == 13000
            assert cuda.cuGetErrorName(2, ctypes.byref(text)) == 0 and text.value == b"CUDA_ERROR_OUT_OF_MEMORY"
            assert not [l for l in open('/proc/self/maps') if 'libgpushare.so' in l]
            child = os.fork()
            if child == 0:
                pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
                assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
                assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(2 << 30)) == 2
                os._exit(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """, "--memory", "1GiB")
        self.assertEqual((done.stdout, done.stderr), ("0\n", ""), done)

    def test_a_program_without_cuda_never_loads_the_engine(self):
        done = python("print([l for l in open('/proc/self/maps') if 'libgpushare.so' in l])", "--memory", "1GiB")
        self.assertEqual(done.stdout, "[]\n", done)

    def test_says_nothing(self):
        done = subprocess.run([CHILD, "linked", ""], capture_output=True, text=True, timeout=60, env={
            **os.environ, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_SPEC": "memory=nonsense"})
        self.assertEqual((done.stdout, done.stderr), ("failed\n", ""), done)  # nothing ran without its limit

    def test_no_driver(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                [PYTHON, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"], capture_output=True,
                text=True, timeout=60, env={"LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"],
                                            "GPUSHARE_DRIVER": empty + "/libcuda.so.1"})
        self.assertEqual((done.stdout, done.stderr), ("100\n", ""), done)


class Closed(unittest.TestCase):
    def test_a_standard_descriptor_that_is_closed(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
            for broker in ("private", "none"):
                done = subprocess.run(["bash", "-c", f'"$0" run --gpu sim --memory 1GiB --broker {broker} -- true {closed}', COMMAND],
                                      timeout=60, check=False)
                self.assertEqual(done.returncode, 0, (closed, broker))
        done = subprocess.run(["bash", "-c", '"$0" policies >&-', COMMAND], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, "standard output" in done.stderr), (5, True), done)
        # The program's descriptors are unchanged.
        program = "import os, sys; sys.exit(sum(1 << fd for fd in range(3) if os.path.exists('/proc/self/fd/%d' % fd)))"
        done = subprocess.run(["bash", "-c", '"$0" run --gpu sim -- "$1" -c "$2" <&-', COMMAND, PYTHON, program], timeout=60, check=False)
        bare = subprocess.run(["bash", "-c", '"$1" -c "$2" <&-', COMMAND, PYTHON, program], timeout=60, check=False)
        self.assertEqual(done.returncode, bare.returncode)


class Programs(unittest.TestCase):
    def test_what_there_is_with_what_may_be_borrowed(self):
        done = python("""
            from cuda.bindings import driver as d
            import ctypes
            n = ctypes.CDLL("libnvidia-ml.so.1"); n.nvmlInit_v2()
            device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
            n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
            def of_nvml():
                assert n.nvmlDeviceGetMemoryInfo(device, memory) == 0
                return memory[0] >> 20
            print(of_nvml())
            d.cuInit(0)
            print(d.cuDeviceTotalMem(0)[1] >> 20)
            d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
            print(d.cuDeviceTotalMem(0)[1] >> 20, d.cuMemGetInfo()[2] >> 20, of_nvml())
        """, "--spec", "memory=1GiB,memory_cap=4GiB")
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["4096"] * 5), done)

    def test_the_driver_is_asked_once_for_an_entry_point(self):
        # Programs ask for hundreds of entry points when they start. The driver's answer says which hook to return.
        done = python("""
            import ctypes, os
            cuda, simulated = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(os.environ["GPUSHARE_SIMULATED"])
            simulated.gpushare_sim_calls.restype = ctypes.c_uint64
            assert cuda.cuInit(0) == 0
            calls = lambda: simulated.gpushare_sim_calls(b"cuGetProcAddress_v2")
            names = ["cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuMemcpyHtoDAsync", "cuStreamCreate", "cuGraphLaunch", "cuMemGetInfo",
                     "cuDeviceGetCount", "cuEventRecord", "cuMemAllocAsync", "cuCtxSynchronize", "cuMemsetD8Async"]
            found, status = ctypes.c_void_p(), ctypes.c_int(7)
            before = calls()
            for version, flags in (12000, 0), (12050, 0), (12000, 2):
                for name in names:
                    assert cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags),
                                                    ctypes.byref(status)) == status.value == 0, name
            print(calls() - before - 3 * len(names))
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done)

    def test_what_there_is_in_32_bits(self):
        # The 32-bit entry points from before CUDA 3.2, which LLVM's OpenMP asks for: values are capped at 32 bits,
        # and nothing is written beyond them.
        for memory, told in ("1GiB", 1 << 30), ("8GiB", (1 << 32) - 1):
            done = python("""
                import ctypes
                cuda = ctypes.CDLL("libcuda.so.1")
                context, words, none = ctypes.c_void_p(), (ctypes.c_uint32 * 4)(7, 7, 7, 7), ctypes.c_void_p()
                assert cuda.cuInit(0) == 0
                print(cuda.cuDeviceTotalMem(words, 0), *words, cuda.cuDeviceTotalMem(none, 0), cuda.cuDeviceTotalMem(words, 9))
                assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
                words[0] = 7
                print(cuda.cuMemGetInfo(ctypes.byref(words, 4), ctypes.byref(words, 8)), *words, cuda.cuMemGetInfo(none, none))
            """, "--memory", memory)
            self.assertEqual((done.returncode, done.stdout), (0, f"0 {told} 7 7 7 1 101\n0 7 {told} {told} 7 0\n"), done)

    def test_cuda_bindings(self):
        done = python("""
            from cuda.bindings import driver as d
            def ok(answer):
                assert answer[0] == 0, answer
                return answer[1]
            d.cuInit(0)
            ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))) + (None,))
            print(ok(d.cuDeviceTotalMem(0)) >> 20, d.cuMemGetInfo()[1] >> 20)
            held = ok(d.cuMemAlloc(600 << 20))
            print(int(d.cuMemAlloc(600 << 20)[0]), int(d.cuMemAllocManaged(600 << 20, 1)[0]),
                  int(d.cuMemAllocAsync(600 << 20, 0)[0]), d.cuMemGetInfo()[1] >> 20)
            d.cuMemFree(held)
            print(int(d.cuMemAllocManaged(600 << 20, 1)[0]))
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout.split()),
                         (0, ["1024", "1024", "2", "2", "2", "424", "0"]), done)

    # Another limiter says that no memory is managed, and shows a GPU without a limit as one without memory.
    def test_what_the_driver_says_of_memory_is_its_own(self):
        code = """
            from program import *
            managed = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
            context()
            kept = ok(d.cuMemAlloc(1 << 20)), ok(d.cuMemAllocManaged(1 << 20, 1))
            print(*(int(ok(d.cuPointerGetAttribute(managed, each))) for each in kept), ok(d.cuDeviceTotalMem(0)))
        """
        bare = python(code, command=["env"])
        self.assertEqual((bare.returncode, bare.stdout.split()[:2]), (0, ["0", "1"]), bare)
        self.assertEqual(python(code).stdout, bare.stdout)
        self.assertEqual(python(code, "--memory", "1GiB").stdout, f"0 1 {1 << 30}\n")

    def test_a_program_that_is_linked_with_the_sdk_has_one_engine(self):
        done = run("--memory", "1GiB", "--", COMMAND, "probe", "--gpu", "sim")
        self.assertEqual((done.returncode, "simulated           yes" in done.stdout), (0, True), done)

    def test_memory_of_a_gpu_that_is_not_current(self):
        done = python("""
            from cuda.bindings import driver as d
            d.cuInit(0)
            what = d.CUmemAllocationProp()
            what.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            what.location.id = 1
            print(int(d.cuMemCreate(600 << 20, what, 0)[0]), int(d.cuMemCreate(600 << 20, what, 0)[0]))
            what.location.id = 2
            print(int(d.cuMemCreate(600 << 20, what, 0)[0]) not in (0, 2))
        """, "--memory", "1GiB", env={**os.environ, "GPUSHARE_SIM": "memory=16GiB,devices=2"})
        self.assertEqual(done.stdout.split(), ["0", "2", "True"], done)

    def test_a_null_pointer_is_the_drivers_to_answer_for(self):
        done = python("""
            import ctypes
            import program
            program.context()
            total = ctypes.c_size_t()
            cuda = ctypes.CDLL("libcuda.so.1")
            assert cuda.cuMemGetInfo_v2(None, ctypes.byref(total)) in (0, 1)
            assert cuda.cuDeviceTotalMem_v2(None, 0) in (0, 1)
            print(total.value)
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout), (0, f"{1 << 30}\n"), done)

    def test_an_upload_that_is_part_of_an_instantiation_is_paid_for(self):
        done = python("""
            import program
            from cuda.bindings import driver as d
            from program import ok
            program.context()
            def instantiated(mib):
                node = d.CUDA_MEM_ALLOC_NODE_PARAMS()
                node.poolProps.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
                node.poolProps.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
                node.bytesize = mib << 20
                graph = ok(d.cuGraphCreate(0))
                ok(d.cuGraphAddMemAllocNode(graph, None, 0, node))
                how = d.CUDA_GRAPH_INSTANTIATE_PARAMS()
                how.flags = int(d.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
                return int(d.cuGraphInstantiateWithParams(graph, how)[0])
            def used():
                free, total = d.cuMemGetInfo()[1:]
                return (total - free) >> 20
            print(instantiated(2048), used(), instantiated(512), used())
        """, "--memory", "1GiB")
        self.assertEqual(done.stdout.split(), ["2", "0", "0", "512"], done)

    def test_no_share_to_be_had_is_no_memory_at_all(self):
        done = python("""
            import ctypes
            cuda = ctypes.CDLL("libcuda.so.1")
            pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
            print(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
                  or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 << 30)))
        """, env={**os.environ, "GPUSHARE_SPEC": "memory=1GiB"}, command=[
            "env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"], "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512M"])
        self.assertEqual(done.stdout.split(), ["2"], done)

    def test_every_family_at_the_quota(self):
        done = python("""
            from cuda.bindings import driver as d
            def ok(answer):
                assert answer[0] == 0, answer
                return answer[1] if len(answer) > 1 else None
            d.cuInit(0)
            ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(0))))
            def share():
                return ok(d.cuMemGetInfo()) >> 20
            whole = share()
            kept = d.CUmemAllocationProp()
            kept.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            kept.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            def array(width):
                what = d.CUDA_ARRAY_DESCRIPTOR()
                what.Width, what.Height = width, 32768
                what.Format, what.NumChannels = d.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 1
                return d.cuArrayCreate(what)
            stream = ok(d.cuStreamCreate(0))
            families = {
                "direct": (lambda mib: d.cuMemAlloc(mib << 20), d.cuMemFree),
                "pitched": (lambda mib: d.cuMemAllocPitch(mib << 10, 1024, 4), d.cuMemFree),
                "managed": (lambda mib: d.cuMemAllocManaged(mib << 20, 1), d.cuMemFree),
                "array": (lambda mib: array(mib * 32), d.cuArrayDestroy),
                "virtual": (lambda mib: d.cuMemCreate(mib << 20, kept, 0), d.cuMemRelease),
                "pool": (lambda mib: d.cuMemAllocAsync(mib << 20, stream), lambda p: d.cuMemFreeAsync(p, stream)),
            }
            for name, (take, give) in families.items():
                fits = ok(take(512))
                left = share()
                refused = int(take(640)[0])
                ok(give(fits))
                ok(d.cuStreamSynchronize(stream))
                print(name, refused, whole - left >= 512, int(take(2048)[0]), share() == whole)
        """, "--memory", "1GiB")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([line.split()[1:] for line in done.stdout.splitlines()], [["2", "True", "2", "True"]] * 6, done)

    def test_a_program_without_a_share_is_told_so_by_the_driver(self):
        # cuda-python asks for all entry points by cuGetProcAddress before it calls the first one.
        ask = """
            from cuda.bindings import driver as d
            print(int(d.cuInit(0)[0]), int(d.cuMemAlloc(1 << 20)[0]))
        """
        for variables, why in (({"GPUSHARE_SPEC": "memory=8Gib"}, 1), ({"GPUSHARE_BROKER": "/nowhere"}, 802),
                               ({"CUDA_VISIBLE_DEVICES": "3"}, 100), ({"GPUSHARE_DRIVER": "/nowhere.so"}, 100)):
            done = subprocess.run([PYTHON, "-c", textwrap.dedent(ask)], capture_output=True, text=True, timeout=60, check=False,
                                  env={**os.environ, "GPUSHARE_DRIVER": "sim", "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"],
                                       **variables})
            self.assertEqual((done.returncode, done.stdout.split()[:2], done.stderr), (0, [str(why)] * 2, ""), variables)

    def test_numba(self):
        done = python("""
            import numpy
            from numba import cuda
            print(cuda.current_context().get_memory_info().total >> 20)
            kept = cuda.to_device(numpy.arange(1000))
            try:
                cuda.device_array(2000 << 20, numpy.uint8)
            except Exception as error:
                print("OUT_OF_MEMORY" in str(error))
            print(int(kept.copy_to_host()[999]))
        """, "--memory", "1GiB")
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["1024", "True", "999"]), done)


if __name__ == "__main__":
    unittest.main()
