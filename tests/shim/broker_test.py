#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs under a broker: the processes of a tenant have its share in common, and they outlive the broker. The tests use
the machine's clock, but do not depend on its speed."""

import json
import os
import select
import signal
import subprocess
import textwrap
import unittest

from broker_programs import Programs
from command import PYTHON, python

HOST = os.environ["GPUSHARE_BROKER_HOST"]


class Broker(Programs):
    def broker(self, *tenants):
        return self.start([HOST, self.socket, *tenants])

    def test_processes_of_a_tenant_have_its_memory_in_common(self):
        self.broker("a:memory=1GiB", "b:memory=1GiB")
        first, second, other = self.program(), self.program(), self.program("b")
        self.assertEqual((first("total()"), first("alloc(600)")), (1024, 0))
        self.assertEqual(second("alloc(600)"), 2)
        self.assertEqual(second("alloc(400)"), 0)
        self.assertEqual(first("alloc(100)"), 2)
        self.assertEqual((first("left()"), second("left()")), (24, 24))
        self.assertEqual(other("alloc(1000)"), 0)
        # Memory that one process frees is available to the other, as is memory that a process never frees, once it
        # has ended.
        self.assertEqual((first("free(600)"), second("alloc(600)")), (0, 0))
        self.assertEqual(first("alloc(600)"), 2)
        second.end()
        while (error := first("alloc(1000)")) == 2:
            pass
        self.assertEqual(error, 0)

    def test_nothing_runs_without_the_broker(self):
        self.assertEqual(self.initializes(), "802\n")
        self.assertEqual(self.initializes(GPUSHARE_SPEC="memory=1GiB"), "802\n")
        self.broker("a:memory=1GiB")
        self.assertEqual(self.initializes(GPUSHARE_TENANT="a"), "0\n")
        # It also refuses an unknown tenant, and a value of GPUSHARE_ON_BROKER_LOSS that is not known.
        self.assertEqual(self.initializes(GPUSHARE_TENANT="b"), "802\n")
        self.assertEqual(self.initializes(GPUSHARE_TENANT="a", GPUSHARE_ON_BROKER_LOSS="perhaps"), "1\n")

    def test_the_command_says_why_before_the_program_starts(self):
        def why(**variables):
            done = python("print('it ran')", env={**self.environment, **variables})
            self.assertEqual(done.stdout, "")
            return done.returncode, done.stderr
        self.assertIn("no broker at", why()[1])
        self.assertEqual(why()[0], 6)
        self.broker("a:memory=1GiB")
        self.assertIn("there is no tenant 'b'", why(GPUSHARE_TENANT="b")[1])
        self.assertEqual(why(GPUSHARE_TENANT="b")[0], 1)

    def test_device_time_comes_in_grants(self):
        self.broker("a:compute=30%", "b:compute=30%")
        first, second = self.program("a"), self.program("b")
        self.assertEqual((first("work(100, 1)"), second("work(100, 1)")), (100, 100))

    def test_without_the_broker_it_goes_on_at_its_guarantee(self):
        broker = self.broker("a:memory=1GiB,compute=50%")
        program = self.program()
        self.assertEqual((program("alloc(600)"), program("work(20, 1)")), (0, 20))
        broker.process.kill()
        broker.process.wait()
        self.assertEqual(program("work(40, 1)"), 40)
        # The next broker learns what the process holds, and takes no more from what it says.
        self.broker("a:memory=700MiB,compute=50%")
        while program("total()") != 700:
            pass
        other = self.program()
        self.assertEqual((other("alloc(200)"), other("alloc(90)")), (2, 0))
        self.assertEqual((program("alloc(20)"), program("work(40, 1)")), (2, 40))

    def test_without_the_broker_it_stops_if_it_is_told_to(self):
        broker = self.broker("a:memory=1GiB,compute=50%")
        program = self.program(GPUSHARE_ON_BROKER_LOSS="closed")
        self.assertEqual((program("alloc(600)"), program("work(20, 1)")), (0, 20))
        broker.process.kill()
        broker.process.wait()
        program.process.stdin.write("work(40, 1)\n")  # ten grants, which by the clock alone would take 80 ms
        program.process.stdin.flush()
        self.assertEqual(select.select([program.process.stdout], [], [], 1)[0], [])
        self.broker("a:memory=1GiB,compute=50%")
        self.assertEqual(program.process.stdout.readline(), "40\n")
        self.assertEqual((program("alloc(400)"), program("alloc(100)")), (0, 2))

    def test_each_gpu_has_the_limits_that_are_its_own(self):
        self.broker("unlisted")
        totals = lambda **variables: self.totals({"GPUSHARE_SIM": "memory=16GiB,clock=wall,devices=3", **variables})
        limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "4g", "CUDA_DEVICE_MEMORY_LIMIT_1": "1g", "CUDA_DEVICE_MEMORY_LIMIT": "2g"}
        self.assertEqual(totals(**limits), [4096, 1024, 2048])
        del limits["CUDA_DEVICE_MEMORY_LIMIT"]
        self.assertEqual(totals(**limits)[:2], [4096, 1024])
        self.assertGreater(totals(**limits)[2], 15000)  # this GPU has no limit of its own
        self.assertEqual(totals(**limits, GPUSHARE_SPEC="memory=3GiB"), [3072] * 3)

    def totals(self, variables):
        code = """
            from cuda.bindings import driver as d
            d.cuInit(0)
            print([int(d.cuDeviceTotalMem(i)[1]) >> 20 for i in range(3)])
        """
        done = python(code, command=["env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"]],
                      env={**self.environment, "GPUSHARE_TENANT": "x", **variables})
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_a_broker_that_is_stopped_stops_nobody(self):
        broker = self.broker("a:memory=1GiB,compute=50%")
        program = self.program()
        self.assertEqual((program("alloc(100)"), program("work(20, 1)")), (0, 20))
        broker.process.send_signal(signal.SIGSTOP)
        self.assertEqual(program("work(100, 1)"), 100)
        # The process continues its session and keeps its figures.
        broker.process.send_signal(signal.SIGCONT)
        while (error := program("alloc(700)")) == 2:
            pass
        other = self.program()
        self.assertEqual((error, other("alloc(300)"), other("alloc(200)")), (0, 2, 0))
        self.assertEqual((program("work(40, 1)"), other("work(40, 1)")), (40, 40))

    def test_a_program_is_left_as_it_is(self):
        self.broker("a:memory=1GiB")
        done = python("""
            import ctypes, re
            from host_state import *
            before, open_before = state(), descriptors()
            d = ctypes.CDLL("libcuda.so.1")
            context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
            assert d.cuInit(0) == d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == d.cuCtxSetCurrent(context) == 0
            assert d.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(600 << 20)) == 0
            assert state() == before, (state(), before)
            now = descriptors()
            assert open_before.items() <= now.items()
            new = {number: what for number, what in now.items() if number not in open_before}
            assert all(number > 2 and closed_at_exec(number) for number in new), new
            print(*sorted(re.sub(r"\\d+", "", what) for what in new.values()))
        """, command=["env", "LD_PRELOAD=" + os.environ["GPUSHARE_PRELOAD"]], env={**self.environment, "GPUSHARE_TENANT": "a"})
        # The connection, the event that ends waits for it, and the GPU's doorbell.
        self.assertEqual((done.returncode, done.stderr, done.stdout),
                         (0, "", "anon_inode:[eventfd] anon_inode:[eventfd] socket:[]\n"), done)

    def test_what_it_starts_and_becomes_has_the_share_anew(self):
        self.broker("a:memory=1GiB")
        code = textwrap.dedent("""
            import os, sys
            from program import *
            context()
            print(int(d.cuMemAlloc(400 << 20)[0]), int(d.cuMemAlloc(700 << 20)[0]), flush=True)
            if sys.argv[2:]:
                again = [sys.executable, "-c", sys.argv[1], sys.argv[1]]
                child = os.posix_spawn(again[0], again, os.environ)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                os.execv(again[0], again)
        """)
        done = subprocess.run([PYTHON, "-c", code, code, "first"], capture_output=True, text=True, timeout=60,
                              env={**self.environment, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_TENANT": "a"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0 2\n" * 3, ""), done)

    def test_a_program_that_becomes_another_tenant_leaves_its_memory(self):
        self.broker("a:memory=1GiB", "b:memory=300MiB")
        code = textwrap.dedent("""
            import os, sys
            from program import *
            context()
            print(os.environ["GPUSHARE_TENANT"], [int(d.cuMemAlloc(size << 20)[0]) for size in (250, 250)], flush=True)
            if os.environ["GPUSHARE_TENANT"] == "a":
                os.environ["GPUSHARE_TENANT"] = "b"
                os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[1]])
            sys.stdin.readline()
        """)
        process = subprocess.Popen([PYTHON, "-c", code, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**self.environment, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_TENANT": "a"})
        self.addCleanup(process.communicate)
        said = process.stdout.readline() + process.stdout.readline()
        self.assertEqual(said, "a [0, 0]\nb [0, 2]\n")
        other = self.program()
        while (error := other("alloc(1000)")) == 2:
            pass
        self.assertEqual((error, process.poll()), (0, None))

    def test_nothing_is_opened_where_a_program_has_closed_its_standard_streams(self):
        self.broker("a:memory=1GiB")
        code = textwrap.dedent("""
            import ctypes, os
            d = ctypes.CDLL("libcuda.so.1")
            context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
            assert d.cuInit(0) == d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == d.cuCtxSetCurrent(context) == 0
            assert d.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(600 << 20)) == 0
            for fd in map(int, os.environ["CLOSED"]):
                try: os.write(fd, b"warning!")
                except OSError: continue
                os._exit(10 + fd)
            assert d.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(600 << 20)) == 2
            assert d.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(300 << 20)) == 0
            os._exit(0)
        """)
        environment = {**self.environment, "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], "GPUSHARE_TENANT": "a"}
        for closed in "2", "12", "012":
            with self.subTest(closed):
                shell = 'exec "$@" ' + " ".join(f"{fd}>&-" for fd in closed)
                done = subprocess.run(["sh", "-c", shell, "sh", PYTHON, "-c", code], env={**environment, "CLOSED": closed},
                                      timeout=60)
                self.assertEqual(done.returncode, 0)  # 10 and a descriptor: that descriptor was open

    def test_a_child_that_lives_on_holds_nothing(self):
        self.broker("a:memory=1GiB")
        program = self.program()
        self.assertEqual(program("alloc(1000)"), 0)
        child = program("(lambda pid: pid if pid else (d.cuInit(0), __import__('signal').pause()))(__import__('os').fork())")
        self.addCleanup(os.kill, child, 9)
        program.process.kill()
        other = self.program()
        while (error := other("alloc(1000)")) == 2:
            pass
        self.assertEqual(error, 0)


if __name__ == "__main__":
    unittest.main()
