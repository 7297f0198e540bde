#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs in separate processes with a broker, on one simulated GPU with one clock."""

import sys
import unittest

from together import Together, copies


class Processes(Together):
    # Over a second, within 1 pp, as in one process. The sum is less than the whole second since, among other things,
    # the GPU's context switches take 100 us of every 4 ms.
    def test_weights_divide_the_device(self):
        code = "print(json.dumps(work({}, end=1000)))"
        a, b = self.together([("weight=3", code.format(1)), ("weight=1", code.format(0.1))])
        self.assertAlmostEqual(a / (a + b), 0.75, delta=0.01)
        self.assertGreater(a + b, 950)

    def test_weights_of_three(self):
        code = "print(json.dumps(work({}, end=1000)))"
        got = self.together([("weight=1", code.format(0.1)), ("weight=1", code.format(1)),
                             ("weight=2", code.format(0.3))])
        for part, want in zip(got, (0.25, 0.25, 0.5)):
            self.assertAlmostEqual(part / sum(got), want, delta=0.01)
        self.assertGreater(sum(got), 950)

    def test_kernels_that_neither_has_run_before(self):
        # One begins while the other's first kernels are measured.
        a, b = self.together([("", "print(json.dumps(work(0.5, end=150)))"),
                              ("", "print(json.dumps(work(0.5, start=0.5, end=150)))")])
        self.assertAlmostEqual(a / (a + b), 0.5, delta=0.015)

    def test_a_cap_alone(self):
        (a,) = self.together([("cap=25%", "print(json.dumps(work(0.5)))")])
        self.assertAlmostEqual(a / 200, 0.25, delta=0.03)  # 5 ms of saved-up credit

    def test_a_cap_of_threads_with_a_context_each(self):
        (a,) = self.together([("cap=10%", """
        import threading
        begun = []
        def go():
            sim.gpushare_sim_thread_enter(b"thread")
            ok(d.cuCtxSetCurrent(ok(d.cuCtxCreate(None, 0, 0))))
            own = spin()
            until(200)
            while now() < START + 1200: ok(launch(own, 0.5)); begun.append(0.5)
            ok(d.cuCtxSynchronize())
            sim.gpushare_sim_thread_leave()
        threads = [threading.Thread(target=go) for _ in range(4)]
        sim.gpushare_sim_thread_leave()
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        sim.gpushare_sim_thread_enter(b"main")
        print(json.dumps(sum(begun) / 1000))
        """)])
        self.assertAlmostEqual(a, 0.1, delta=0.01)  # 5 ms of saved-up credit

    # Also at the beginning, when the cost of its kernels is unknown.
    def test_a_cap_of_high_priority_alone(self):
        (a,) = self.together([("priority=high,cap=60%", "print(json.dumps(work(5)))")])
        self.assertAlmostEqual(a / 200, 0.6, delta=0.06)  # 5 ms of saved-up credit, and one kernel

    def test_what_a_cap_of_high_priority_leaves_is_the_others(self):
        # With short kernels, with long ones, and with a program that waits for each kernel.
        for high, other in ("1", "1"), ("0.5", "0.5"), ("0.5, wait=True", "1"), ("3", "1"):
            with self.subTest(high=high, other=other):
                a, b = self.together([("priority=high,cap=60%", f"print(json.dumps(work({high}, end=1000)))"),
                                      ("guarantee=30%", f"print(json.dumps(work({other}, end=1000)))")])
                self.assertAlmostEqual(a / 1000, 0.6, delta=0.01)
                self.assertGreaterEqual(b / 1000, 0.3)

    # The service runs a kernel of 0.1 ms now and then. Two context switches of 100 us fall between two such kernels:
    # the one to the service counts in the time for which it waits for its kernel, the one back does not. When the
    # service arrives, at most two kernels of the others are in flight.
    def test_what_a_service_leaves_is_the_others(self):
        service = """
        period, took = {}, []
        until(0)
        begin = START
        while now() < START + 500:
            begin = max(begin + period, now())
            until(begin - START)
            ok(launch(kernel, 0.1)); ok(d.cuCtxSynchronize())
            # Before that the cost of its kernels is unknown, and slices are divided.
            if begin > START + 50: took.append(now() - begin)
        print(json.dumps(sorted(took)))
        """
        for period in 0.6, 3:
            with self.subTest(period=period):
                took, other = self.together([("priority=high", service.format(period)), ("", "print(json.dumps(work(0.1, end=500)))")])
                self.assertLess(took[len(took) // 2], 0.1 + 0.1 + 0.2)
                self.assertLess(took[int(len(took) * .99)], 0.1 + 0.1 + 0.25)
                # Excludes the grace of 30 us.
                left = 1 - (sum(took) / len(took) + 0.03) / period
                self.assertGreater(other / 500, 0.95 * left)

    # The first launch makes the engine, which measures what a marker takes: that waits for one slice of the GPU (2 ms, and
    # a context switch), and not for one with each marker.
    def test_a_first_launch_waits_about_as_long_as_the_next_ones(self):
        now_and_then = """
        took = []
        for i in range(12):
            until(100 + 37 * i)
            began = now()
            ok(launch(kernel, 0.1)); ok(d.cuCtxSynchronize())
            took.append(now() - began)
        print(json.dumps(took))
        """
        for spec, busy in ("", 0.1), ("", 1), ("priority=high", 0.1), ("priority=high", 1):
            with self.subTest(spec=spec, busy=busy):
                took, _ = self.together([(spec, now_and_then), ("", f"print(json.dumps(work({busy}, end=550)))")])
                self.assertLess(took[0], max(took[1:]) + 2.1)

    def test_a_floor_is_kept_beside_one_that_wants_all(self):
        service, job = "print(json.dumps(work(0.3, wait=True, end=500)))", "print(json.dumps(work({}, end=500)))"
        for others in "0.1", "1":
            with self.subTest(others=others):
                a, b = self.together([("priority=high", service), ("", job.format(others))], floor="10%")
                self.assertAlmostEqual(b / 500, 0.1, delta=0.025)
                # Two context switches every 10 ms, and the time to launch each of its kernels.
                self.assertGreater(a / 500, 0.8)
        a, b = self.together([("priority=high", service), ("", job.format(0.1))])
        self.assertLess(b / 500, 0.03)

    # Nothing fits into a pause that is shorter than two context switches, so the service must not have to wait for
    # unusable time.
    def test_what_is_too_short_for_others_is_not_taken_from_a_service(self):
        took, _ = self.together([("priority=high", """
        took = []
        until(0)
        while now() < START + 200:
            sim.gpushare_sim_spend(ctypes.c_uint64(150_000))
            begin = now()
            ok(launch(kernel, 0.1)); ok(d.cuCtxSynchronize())
            took.append(now() - begin)
        print(json.dumps(sorted(took)))
        """), ("", "print(json.dumps(work(0.1)))")])
        self.assertLess(took[int(len(took) * .8)], 0.12)

    def test_a_guarantee_and_a_program_that_waits_for_each(self):
        a, b = self.together([("guarantee=60%", "print(json.dumps(work(0.2, wait=True)))"),
                              ("", "print(json.dumps(work(1)))")])
        self.assertGreater(a / 200, 0.5)

    def test_processes_of_a_tenant_copy_by_one_limit(self):
        code = """
        host, memory = bytearray(4 << 20), ok(d.cuMemAlloc(4 << 20))
        until({})
        copied = 0
        while now() < START + {}:
            ok(d.cuMemcpyHtoD(memory, host, {})); copied += {}
        begin = now()
        ok(d.cuMemcpyDtoH(host, memory, 4 << 20))
        print(json.dumps([copied / 1e6, now() - begin]))
        """

        def copies(size, start=0, end=1000):
            return "h2d=200MB/s", code.format(start, end, size, size)
        # In large and in small pieces, beside another tenant without a limit. 5 ms at the limit are 1 MB.
        (a, _), (b, _), (c, _), (other, _) = self.together(
            [copies(4 << 20), copies(64 << 10), copies(1 << 20), ("", copies(1 << 20)[1])], of=[0, 0, 0, 3])
        self.assertAlmostEqual((a + b + c) / 200, 1, delta=0.07)  # one more piece of each, and the saved-up credit
        for each in a, b, c:
            self.assertAlmostEqual(each / (a + b + c), 1 / 3, delta=0.04)
        self.assertGreater(other, 2000)
        # The other process gets at once what one leaves. The other direction has no limit.
        (a, back), (b, _) = self.together([copies(1 << 20), copies(1 << 20, 500, 750)], of=[0, 0])
        self.assertAlmostEqual((a + b) / 200, 1, delta=0.03)
        self.assertAlmostEqual(b / 200, 0.125, delta=0.015)
        self.assertLess(back, 5)

    # The link of the simulated GPU copies 50 bytes per nanosecond in each direction.
    def divided(self, tenants, weights, **more):
        got = self.together(tenants, **more)
        for part, weight in zip(got, weights):
            self.assertAlmostEqual(part / sum(got), weight / sum(weights), delta=0.01, msg=got)
        self.assertGreater(sum(got), 0.98 * 50)

    def test_weights_divide_the_link(self):
        self.divided([("weight=3", copies(64 << 20)), ("weight=1", copies(64 << 20))], (3, 1))
        self.divided([("weight=3", copies(64 << 20, to_host=True)), ("weight=1", copies(16 << 20, to_host=True))], (3, 1))

    def test_weights_divide_the_link_among_large_and_small_copies(self):
        self.divided([("weight=1", copies(64 << 20)), ("weight=2", copies(1 << 20)), ("weight=4", copies(256 << 10, depth=32))],
                     (1, 2, 4))
        self.divided([("weight=3", copies(64 << 20, blocks=True)), ("weight=1", copies(256 << 10, depth=16))], (3, 1))

    # With what it has in flight it can have, at most, 33 GB/s while its copies are counted.
    def test_who_has_little_in_flight_has_most_of_its_part(self):
        for depth in 2, 8:
            with self.subTest(depth=depth):
                little, other = self.together([("", copies(128 << 10, depth=depth)), ("", copies(64 << 20))])
                self.assertGreater(little, 0.4 * 50)
                self.assertGreater(little + other, 0.97 * 50)

    def test_processes_of_a_tenant_divide_its_part_of_the_link(self):
        self.divided([("", copies(64 << 20)), ("", copies(1 << 20)), ("", copies(16 << 20))], (1, 1, 2), of=[0, 0, 2])

    def test_a_limit_of_copies_leaves_the_rest_of_the_link_to_the_others(self):
        held, other = self.together([("h2d=5GB/s", copies(64 << 20)), ("", copies(64 << 20))])
        self.assertAlmostEqual(held, 5, delta=0.1)
        self.assertGreater(held + other, 0.98 * 50)

    def test_who_copies_a_little_at_a_time_does_not_keep_the_others_from_the_link(self):
        seldom, other = self.together([("", copies(64 << 10, blocks=True)), ("", copies(64 << 20))])
        self.assertGreater(seldom + other, 0.95 * 50)

    def test_a_services_input_waits_for_little_of_the_copies_of_who_is_below_it(self):
        begin = """
        size = 64 << 20
        host, memory = ok(d.cuMemAllocHost(size)), ok(d.cuMemAlloc(size))
        stream = ok(d.cuStreamCreate(1))
        def copy(n): ok(d.cuMemcpyHtoDAsync(memory, host, n, stream))
        """
        service = begin + """
        def took(n):
            began = now()
            copy(n); ok(d.cuStreamSynchronize(stream))
            return now() - began
        def requests(start, end):
            until(start)
            all = []
            while now() < START + end:
                all.append(took(1 << 20)); sim.gpushare_sim_spend(ctypes.c_uint64(3_000_000))
            return sorted(all)[int(len(all) * .99)]
        alone, residual = requests(0, 300), took(8 << 20)
        print(json.dumps([alone, residual, requests(420, 920)]))
        """
        train = begin + """
        until(400)
        copied = 0
        while now() < START + 1000: copy(size); copied += size
        ok(d.cuStreamSynchronize(stream))
        print(json.dumps(copied / (now() - START - 400)))
        """
        (alone, residual, beside), rate = self.together([("priority=high", service), ("priority=low", train)])
        self.assertLess(beside, 1.05 * alone + residual)
        self.assertGreater(beside, alone)
        # The service has 1 MiB every 3 ms, and the low tenant the rest of the link.
        self.assertGreater(rate, 0.95 * ((8 << 20) / residual - (1 << 20) / 3))

    def test_copies_of_graphs_keep_to_the_limit_of_their_tenant(self):
        code = """
        host, memory = ok(d.cuMemAllocHost(4 << 20)), ok(d.cuMemAlloc(4 << 20))
        stream = ok(d.cuStreamCreate(1))
        ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        for _ in range(2): ok(d.cuMemcpyHtoDAsync(memory, host, 2 << 20, stream))
        launchable = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0))
        until(0)
        copied = 0
        while now() < START + 1000:
            ok(d.cuGraphLaunch(launchable, stream)); copied += 4 << 20
        ok(d.cuStreamSynchronize(stream))
        print(json.dumps(copied / 1e6))
        """
        # Two processes of one tenant, one with graphs and one without. 5 ms at the limit are 1 MB.
        eager = """
        host, memory = ok(d.cuMemAllocHost(4 << 20)), ok(d.cuMemAlloc(4 << 20))
        until(0)
        copied = 0
        while now() < START + 1000:
            ok(d.cuMemcpyHtoDAsync(memory, host, 4 << 20, 0)); copied += 4 << 20
        ok(d.cuCtxSynchronize())
        print(json.dumps(copied / 1e6))
        """
        a, b = self.together([("h2d=200MB/s", code), ("h2d=200MB/s", eager)], of=[0, 0])
        self.assertAlmostEqual((a + b) / 200, 1, delta=0.07)
        self.assertAlmostEqual(a / (a + b), 1 / 2, delta=0.05)

    def test_memory_of_each(self):
        code = """
        pieces = []
        while True:
            answer = d.cuMemAlloc(64 << 20)
            if int(answer[0]) != 0: break
            pieces.append(answer[1])
        print(json.dumps([len(pieces), int(answer[0]), ok(d.cuMemGetInfo()[:1] + (list(d.cuMemGetInfo()[1:]),))]))
        """
        a, b = self.together([("memory=1GiB", code), ("memory=2GiB", code)])
        self.assertEqual(a, [16, 2, [0, 1 << 30]])
        self.assertEqual(b, [32, 2, [0, 2 << 30]])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
