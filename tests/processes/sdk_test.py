#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that use the SDK beside unmodified ones, on one simulated GPU with one clock, and one broker."""

import sys
import textwrap
import unittest

from together import Together, preloaded_sdk, sdk

MIB = 1 << 20


class Sdk(Together):
    def divided(self, tenants, want, busy, delta=0.01):
        got = self.together(tenants)
        flat = [part for each in got for part in (each if isinstance(each, list) else [each])]
        for part, share in zip(flat, want, strict=True):
            self.assertAlmostEqual(part / sum(flat), share, delta=delta)
        self.assertGreater(sum(flat), busy * 1000)

    # Over a second, within 1 pp, as between processes of one kind. Each has run its kernels alone before.
    def test_the_device_is_divided_between_a_program_with_the_sdk_and_an_unmodified_one(self):
        self.divided([("weight=3", sdk("""
            device = gpu.virtual_device("a")
            work(device, 1, end=20)
            print(json.dumps(work(device, 1, start=60, end=1060)))
            """)), ("weight=1", """
            work(0.1, start=30, end=50)
            print(json.dumps(work(0.1, start=60, end=1060)))
            """)], [0.75, 0.25], busy=0.95)

    def test_its_virtual_devices_divide_what_it_is_granted(self):
        self.divided([("weight=1", sdk("""
            one, other = gpu.virtual_device("one", weight=3), gpu.virtual_device("other", weight=1)
            for device in (one, other): work(device, 0.2, end=10)
            print(json.dumps(at_once(lambda: work(one, 0.2, start=60, end=1060),
                                     lambda: work(other, 0.2, start=60, end=1060))))
            """)), ("weight=1", """
            work(0.5, start=30, end=50)
            print(json.dumps(work(0.5, start=60, end=1060)))
            """)], [0.375, 0.125, 0.5], busy=0.95)

    def family(self, whole, code):
        return sdk(f"""
team = gpushare.Tenant(runtime, "team")
whole = gpu.virtual_device(team, memory="2GiB", {whole})
a = gpu.virtual_device(gpushare.Tenant(runtime, "a", parent=team), memory="1536MiB", weight=3)
b = gpu.virtual_device(gpushare.Tenant(runtime, "b", parent=team), weight=1)
""" + textwrap.dedent(code))

    def test_a_parent_and_its_children_divide_what_the_process_is_granted(self):
        self.divided([("", self.family("weight=1", """
            other = gpu.virtual_device("other", memory="1GiB", weight=1)
            for device in (a, b, other): work(device, 0.2, end=10)
            print(json.dumps(at_once(*(lambda d=d: work(d, 0.2, start=60, end=1060) for d in (a, b, other)))))
            """))], [0.375, 0.125, 0.5], busy=0.98)
        self.divided([("weight=1", self.family("weight=1", """
            for device in (a, b): work(device, 0.2, end=10)
            print(json.dumps(at_once(*(lambda d=d: work(d, 0.2, start=60, end=1060) for d in (a, b)))))
            """)), ("weight=1", """
            work(0.5, start=30, end=50)
            print(json.dumps(work(0.5, start=60, end=1060)))
            """)], [0.375, 0.125, 0.5], busy=0.95)

    def test_a_cap_of_a_parent_bounds_its_children_together(self):
        ((a, b),) = self.together([("", self.family("cap=0.25", """
            print(json.dumps(at_once(*(lambda d=d: work(d, 0.2, end=1000) for d in (a, b)))))
            """))])
        self.assertAlmostEqual((a + b) / 1000, 0.25, delta=0.01)
        self.assertAlmostEqual(a / (a + b), 0.75, delta=0.01)

    # The quota of the parent is taken from the tenant once, whatever its children hold, and comes back with the process.
    def test_the_quota_of_a_parent_bounds_its_children_and_is_no_other_processs(self):
        (held, refused), before, after = self.together([("memory=4GiB", self.family("weight=1", """
            pieces = [fill(device) for device in (a, b, whole)]
            held = [len(each) for each in pieces]
            until(20)
            try: refused = gpu.virtual_device("more", memory="3GiB") and "made"
            except gpushare.QuotaExceededError as error: refused = str(error)
            until(60)
            print(json.dumps([held, refused]))
            """)), ("", """
            until(40)
            print(json.dumps(len(fill())))
            """), ("", """
            until(400)
            print(json.dumps(len(fill())))
            """)], of=[0, 0, 0])
        self.assertEqual(held, [24, 8, 0])
        self.assertIn("2 GiB left of 4 GiB", refused)
        self.assertEqual(before, 32)
        self.assertEqual(after, 64)

    def test_a_cap_of_its_tenant_bounds_all_of_its_virtual_devices(self):
        ((one, other),) = self.together([("cap=25%", sdk("""
            one, other = gpu.virtual_device("one"), gpu.virtual_device("other")
            print(json.dumps(at_once(lambda: work(one, 0.5), lambda: work(other, 0.5))))
            """))])
        self.assertAlmostEqual((one + other) / 200, 0.25, delta=0.03)  # 5 ms of saved-up credit
        self.assertAlmostEqual(one, other, delta=2)

    # Exact to the byte, in any order: a quota is charged when it is promised, other memory when it is used.
    def test_memory_of_a_tenant_with_both_kinds_of_processes(self):
        code = """
        quota = gpu.virtual_device("quota", memory="512MiB")
        rest = gpu.virtual_device("rest")
        until(10)
        held = fill(rest)
        until(30)
        promised = fill(quota)
        print(json.dumps([len(held), len(promised), rest.memory, quota.memory, gpu.room["memory_total"]]))
        until(50)
        """
        others = """
        until(20)
        pieces = fill()
        print(json.dumps([len(pieces), ok(d.cuMemGetInfo()[:1] + (list(d.cuMemGetInfo()[1:]),))]))
        until(50)
        """
        mine, (pieces, seen) = self.together([("memory=1GiB", sdk(code)), ("", others)], of=[0, 0])
        held, promised, rest, quota, total = mine
        self.assertEqual(promised, 8)  # its quota was reserved for it all the time
        self.assertEqual(quota, [0, 512 * MIB])
        self.assertEqual(held + pieces, 8)  # the rest goes to the first that asks
        self.assertEqual(held, 8)
        self.assertEqual(rest, [0, 512 * MIB])
        self.assertEqual(seen, [0, 1024 * MIB])
        self.assertEqual(total, 1024 * MIB)

    def test_a_quota_that_the_tenants_others_have_used_up_is_refused(self):
        code = """
        until(20)
        try:
            gpu.virtual_device("late", memory="512MiB")
            said = "made"
        except gpushare.ResourceExhaustedError as error:
            said = str(error)
        fits = gpu.virtual_device("fits", memory="256MiB").memory
        until(40)
        grown = []
        device = gpu.virtual_device("grows", memory="64MiB")
        device.resize(memory="128MiB")
        grown.append(device.memory)
        try: device.resize(memory="1GiB")
        except gpushare.ResourceExhaustedError as error: grown.append(str(error)[:60])
        device.close()
        again = gpu.virtual_device("again", memory="768MiB").memory
        print(json.dumps([said, fits, grown, again]))
        """
        others = """
        pieces = [ok(d.cuMemAlloc(256 << 20)) for _ in range(3)]
        until(30)
        for piece in pieces[1:]: ok(d.cuMemFree(piece))
        until(60)
        ok(d.cuMemFree(pieces[0]))
        print(json.dumps(0))
        """
        (said, fits, grown, again), _ = self.together([("memory=1GiB", sdk(code)), ("", others)], of=[0, 0])
        self.assertIn("512 MiB of memory asked, and the broker has 256 MiB left", said)
        self.assertEqual(fits, [256 * MIB, 256 * MIB])
        self.assertEqual(grown[0], [128 * MIB, 128 * MIB])
        self.assertIn("asked", grown[1])
        self.assertEqual(again, [768 * MIB, 768 * MIB])

    # The memory of a closed runtime is available to the others, although its process lives on.
    def test_the_end_of_a_runtime_gives_all_back(self):
        code = """
        held = fill(gpu.virtual_device("a"))
        until(20)
        runtime.close_all()
        until(60)
        runtime = gpushare.Runtime()
        gpu = gpushare.Gpu(runtime)
        spin = gpu.load(PTX)["spin"]
        device = gpu.virtual_device("b")
        print(json.dumps([len(held), len(fill(device, 8)), work(device, 0.5, start=80, end=90)]))
        """
        others = """
        until(30)
        pieces = fill()
        for piece in pieces: ok(d.cuMemFree(piece))
        until(50)
        print(json.dumps(len(pieces)))
        until(100)
        """
        (held, later, worked), between = self.together([("memory=1GiB", sdk(code)), ("", others)], of=[0, 0])
        self.assertEqual((held, between, later), (16, 16, 8))
        self.assertGreaterEqual(worked, 9)

    def test_no_part_of_its_share_is_outside_it(self):
        said = self.together([("memory=1GiB,h2d=1GB/s", sdk("""
            said = [runtime.broker_tenant]
            for ask in (lambda: gpu.virtual_device("g", isolation="green", compute=0.5),
                        lambda: gpu.virtual_device("m", memory="2GiB")):
                try: said.append(ask() and "made")
                except Exception as error: said.append(f"{type(error).__name__}: {error}")
            half = gpu.virtual_device("h", memory="50%")
            said.append(half.memory)
            # The tenant's limit applies to its copies.
            stream, buffer = half.stream(), half.alloc("100MiB")
            data = bytes(100 << 20)
            begin = now()
            for _ in range(2): stream.copy_to_device(buffer, data)
            stream.synchronize()
            said.append(now() - begin)
            print(json.dumps(said))
            """))])[0]
        self.assertEqual(said[0], "t0")
        self.assertIn("UnimplementedError", said[1])
        self.assertIn("1 GiB left of 1 GiB", said[2])
        self.assertEqual(said[3], [512 * MIB, 512 * MIB])
        self.assertGreater(said[4], 190)

    # Each copy begins as soon as a single byte may be copied. Its debt outlives its virtual device and its runtime.
    def test_no_copy_passes_the_limit_by_being_the_last(self):
        code = sdk("""
            data = bytes(8 << 20)
            def copy():
                device = gpu.virtual_device("once")
                stream, buffer = device.stream(), device.alloc("8MiB")
                stream.copy_to_device(buffer, data)
                buffer.close(); stream.close(); device.close()
            took = []
            begin = now()
            for _ in range(12): copy()
            took.append(now() - begin)
            begin = now()
            for _ in range(12):
                runtime.close_all()
                runtime = gpushare.Runtime()
                gpu = gpushare.Gpu(runtime)
                copy()
            took.append(now() - begin)
            print(json.dumps(took))
            """)
        # The other program keeps the broker running.
        (devices, runtimes), _ = self.together([("h2d=200MB/s", code), ("", "until(2000); print(0)")], of=[0, 0])
        # 500 ms at the limit. Each copy pays for the previous one, and nobody pays for the last.
        self.assertGreater(devices, 440)
        self.assertLess(devices, 520)
        self.assertGreater(runtimes, 440)

    # Each waits for its own copy, and then for a piece of every other one.
    def test_virtual_devices_that_copy_at_once_take_turns(self):
        for sizes in ([1 << 20] * 3, [64 << 10, 4 << 20]):
            (got,) = self.together([("h2d=200MB/s", sdk(f"""
                def copy(device, size):
                    stream, buffer, data = device.stream(), device.alloc(size), bytes(size)
                    until(0)
                    sent = 0
                    while now() < START + 500:
                        stream.copy_to_device(buffer, data)
                        sent += size
                    return sent / 1e6
                devices = [(gpu.virtual_device(str(i)), size) for i, size in enumerate({sizes})]
                print(json.dumps(at_once(*[lambda d=d, s=s: copy(d, s) for d, s in devices])))
                """))])
            self.assertAlmostEqual(sum(got) / 100, 1, delta=0.08)  # 10 ms of saved-up credit, and a piece of each
            copies = [each * 1e6 / size for each, size in zip(got, sizes)]
            self.assertLess(max(copies) - min(copies), 4)

    # A program that is also preloaded has a single engine, and everything it creates belongs to the same share.
    def test_preloaded_it_has_one_share(self):
        code = """
        made = gpu.virtual_device("a", memory="512MiB")
        from cuda.bindings import driver as d
        pieces = 0
        d.cuInit(0); d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
        while int(d.cuMemAlloc(64 << 20)[0]) == 0: pieces += 1
        print(json.dumps([pieces, len(fill(made)), list(d.cuMemGetInfo())[1:]]))
        """
        ((pieces, made, seen),) = self.together([("memory=1GiB", preloaded_sdk(code))])
        self.assertEqual((pieces, made, seen), (8, 8, [0, 512 * MIB]))

    def test_preloaded_there_is_no_other_share(self):
        code = """
        told = {}
        for broker in "none", "", "/nowhere/broker.sock":
            try:
                gpushare.Runtime(broker=broker)
                told[broker] = "a runtime"
            except gpushare.FailedPreconditionError as error:
                told[broker] = "GPUSHARE_BROKER" in str(error)
        gpushare.Runtime(broker=os.environ["GPUSHARE_BROKER"])  # its own broker is accepted
        print(json.dumps(told))
        """
        (told,) = self.together([("memory=1GiB", preloaded_sdk(code))])
        self.assertEqual(told, {"none": True, "": True, "/nowhere/broker.sock": True})

    # The broker already applies the environment's limits. A part such as 50 % must not be applied again to its grant.
    def test_numba_has_all_of_the_processs_share(self):
        prologue, variables, code = sdk("""
        ctypes.CDLL(runtime.driver_path)  # Numba loads what is there by its name
        from numba import cuda
        array = cuda.device_array(768 << 20, "uint8")
        try: cuda.device_array(512 << 20, "uint8")
        except MemoryError: print(json.dumps(list(cuda.current_context().get_memory_info())))
        """)
        variables |= {"NUMBA_CUDA_MEMORY_MANAGER": "gpushare.numba", "GPUSHARE_SPEC": "memory=50%"}
        (seen,) = self.together([("memory=1GiB", (prologue, variables, code))])
        self.assertEqual(seen, [256 * MIB, 1024 * MIB])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
