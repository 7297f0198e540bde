#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare.ray on a Ray cluster of two nodes, each with simulated GPUs and a broker: fractions of a GPU are enforced in the workers,
and come back when a worker ends in any way. The tests use the machine's clock."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import needed  # noqa: F401: or the test is skipped

import gpushare.ray
import ray
from cluster import GIB, Cluster, say, until
from work import Gpu

PYTHON = sys.executable


def setUpModule():
    global cluster
    cluster = Cluster(("a", 1, "16GiB"), ("b", 2, "8GiB"))
    unittest.addModuleCleanup(cluster.end)


def actor(num_gpus=None, on="a", **options):
    return gpushare.ray.remote(num_gpus=num_gpus, num_cpus=0, resources={on: 1}, **options)(Gpu)


class Cases(unittest.TestCase):
    def setUp(self):
        self.actors = []
        self.began = time.monotonic()
        self.addCleanup(self.end_actors)

    def start(self, kind, *arguments):
        made = kind.remote(*arguments)
        self.actors.append(made)
        return made

    def end_actors(self):
        say(f"{time.monotonic() - self.began:.1f} s ")
        for each in self.actors:
            ray.kill(each)
        for name in cluster.raylets:
            until(lambda node=cluster[name]: not node.list()["shares"], what="a worker's share stays")


class Shares(Cases):
    def test_memory_is_the_fraction(self):
        quarter = self.start(actor(0.25))
        # The fraction that Ray accounts for at the end is the one that the worker has.
        half = self.start(actor(0.25, on="b").options(num_gpus=0.5))
        # Bytes, with a fraction and alone: alone they become a fraction of the cluster's smallest GPU.
        one, two = self.start(actor(0.25, gpu_memory="1GiB")), self.start(actor(gpu_memory="2GiB"))
        seen = ray.get([each.sees.remote() for each in (quarter, half, one, two)])
        self.assertEqual(seen, [(size * GIB,) * 3 for size in (4, 4, 1, 2)])
        shares = cluster["a"].shares()
        of_a = [shares[pid]["guarantee"] for pid in ray.get([each.pid.remote() for each in (quarter, one, two)])]
        self.assertEqual((of_a, cluster["b"].guaranteed()), ([0.25, 0.25, 0.25], [0.5, 0]))
        with self.assertRaisesRegex(ValueError, "the smallest GPU of this cluster has 8589934592"):
            gpushare.ray.options(gpu_memory="9GiB")
        self.assertEqual(ray.get([quarter.alloc.remote(3 * GIB), quarter.alloc.remote(2 * GIB)]), [0, 2])
        self.assertEqual(ray.get(quarter.alloc.remote(GIB)), 0)
        share = cluster["a"].shares()[ray.get(quarter.pid.remote())]
        self.assertEqual((share["memory_limit"], share["guarantee"]), (4 * GIB, 0.25))
        # Named by the class and by Ray's number of the actor, as in `gpushare list`.
        self.assertEqual(share["tenant"], "Gpu-" + quarter._ray_actor_id.hex())
        self.assertEqual(ray.get(quarter.share.remote()).tenant, share["tenant"])

    def test_the_gpu_is_the_one_that_ray_assigned(self):
        each = [self.start(actor(0.75, on="b")) for _ in range(2)]
        assigned = ray.get([one.gpus.remote() for one in each])
        self.assertEqual(sorted(visible for visible, _, _ in assigned), ["0", "1"])
        shares = cluster["b"].shares()
        for (visible, numbers, count), pid in zip(assigned, ray.get([one.pid.remote() for one in each]), strict=True):
            self.assertEqual((numbers, count), ([int(visible)], 1))
            self.assertEqual(shares[pid]["gpu"], cluster["b"].list()["gpus"][int(visible)]["uuid"])
        self.assertEqual(cluster["b"].guaranteed(), [0.75, 0.75])
        whole = self.start(actor(2, on="b"))  # waits in Ray until both GPUs are free
        for one in each:
            ray.kill(one)
        self.assertEqual(ray.get(whole.sees.remote())[0], 8 * GIB)
        self.assertEqual(ray.get(whole.gpus.remote())[2], 2)
        self.assertEqual(cluster["b"].guaranteed(), [1, 1])

    def test_device_time(self):
        large, small = self.start(actor(0.75)), self.start(actor(0.25))
        ray.get([large.pid.remote(), small.pid.remote()])
        # This runs on the machine's clock. If the programs get so little processor time that the GPU idles, each gets
        # all that it asks for, which says nothing about shares.
        contended = False
        for _ in range(6):
            begin = time.time() + 0.3
            got = ray.get([each.work.remote(begin, begin + 1.5, 1) for each in (large, small)])
            part, busy = got[0] / sum(got), sum(got) / 1.5
            say(f"0.75 and 0.25: {part:.1%} and {1 - part:.1%} of the time used, {busy:.0%} of 1.5 s")
            if abs(part - 0.75) <= 0.1:
                return
            contended |= busy > 0.8
        self.assertFalse(contended, "in 6 windows of 1.5 s, one of them contended, it was never 75 % within 10 points")

    def test_what_the_documentation_has_in_blocks(self):
        with open(os.path.join(os.environ["GPUSHARE_SOURCE"], "docs", "ray.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        printed = io.StringIO()
        for block in blocks:
            with contextlib.redirect_stdout(printed):
                exec(block, names := {"__name__": "__main__"})  # noqa: S102: it is ours
            self.actors += names["models"]
        # Ray may place each on either node.
        self.assertRegex(printed.getvalue(), rf"^\[({4 * GIB}|{2 * GIB}), ({4 * GIB}|{2 * GIB})\]\n$")

    def test_tasks(self):
        task = gpushare.ray.remote(num_gpus=0.5, num_cpus=0, resources={"a": 1})
        one, some = task(in_a_task).remote(GIB), task(some_of_it).remote(2)
        self.assertEqual((ray.get(one), [ray.get(each) for each in some]), ((8 * GIB, 0), [8 * GIB, 1]))

    def test_a_class_that_knows_nothing(self):
        plain = ray.remote(num_cpus=0, resources={"a": 1})(Gpu)
        asked = gpushare.ray.options(num_gpus=0.25, spec="cap=50%", runtime_env={"env_vars": {"MINE": "1"}})
        first, second = self.start(plain.options(**asked)), self.start(plain.options(**asked))
        self.assertEqual(ray.get([first.alloc.remote(4 * GIB), second.alloc.remote(4 * GIB)]), [0, 0])
        self.assertEqual(ray.get([first.alloc.remote(1), second.alloc.remote(1)]), [2, 2])
        shares = cluster["a"].shares()
        self.assertEqual([shares[pid]["cap"] for pid in ray.get([first.pid.remote(), second.pid.remote()])], [0.5, 0.5])


def in_a_task(size):
    used = Gpu()
    return used.sees()[0], used.alloc(size)


def some_of_it(count):
    yield Gpu().sees()[0]
    yield count - 1


class Ends(Cases):
    def test_nothing_is_oversubscribed_and_a_killed_worker_gives_its_share_back(self):
        kind = actor(0.25)
        four = [self.start(kind) for _ in range(4)]
        self.assertEqual(ray.get([each.alloc.remote(4 * GIB) for each in four]), [0] * 4)
        fifth = self.start(kind)
        waits = fifth.alloc.remote(4 * GIB)
        self.assertEqual(ray.wait([waits], timeout=0.5)[0], [])
        state = cluster["a"].list()
        self.assertEqual((state["gpus"][0]["memory_promised"], state["gpus"][0]["guaranteed"]), (16 * GIB, 1))
        # Nor may a user whom Ray does not know.
        self.assertEqual(self.foreign("memory=1MiB"), "2")
        self.assertEqual(self.foreign("compute=1%"), "2")
        pids = ray.get([each.pid.remote() for each in four])
        os.kill(pids[0], signal.SIGKILL)
        self.assertEqual(ray.get([waits, fifth.alloc.remote(1)]), [0, 2])
        until(lambda: cluster["a"].shares().keys() == {*pids[1:], ray.get(fifth.pid.remote())})
        self.assertEqual(cluster["a"].guaranteed(), [1])

    def test_a_refusal_says_why(self):
        with self.foreigner("memory=10GiB,compute=80%"):
            task = gpushare.ray.remote(num_gpus=0.5, num_cpus=0, resources={"a": 1}, wait=0)(in_a_task).remote(1)
            refused = self.start(actor(0.25, wait=0)).pid.remote()
            late = self.start(actor(0.25, wait=60)).sees.remote()  # waits for memory that is about to be free
            with self.assertRaisesRegex(gpushare.ResourceExhaustedError, "memory: 8 GiB asked, 6 GiB not promised"):
                ray.get(task)
            with self.assertRaises(ray.exceptions.RayActorError) as why:
                ray.get(refused)
            self.assertIn("ResourceExhaustedError", str(why.exception))
            self.assertIn("'memory=25%,compute=25%' at the broker " + cluster["a"].socket, str(why.exception))
            self.assertIn("compute: 25% asked, 20% not guaranteed", str(why.exception))
            self.assertEqual(ray.wait([late], timeout=1)[0], [])
        self.assertEqual(ray.get(late)[0], 4 * GIB)

    def test_no_broker(self):
        with self.assertRaises(ray.exceptions.RayActorError) as why:
            ray.get(self.start(actor(0.25, broker="/nowhere/broker.sock", wait=0)).pid.remote())
        self.assertIn("no broker at '/nowhere/broker.sock'", str(why.exception))
        # options() for a node that does not say where its broker is: nothing runs without its limit.
        self.assertEqual(self.foreign("memory=1GiB", GPUSHARE_BROKER="/"), "802")

    def environment(self, spec, **variables):
        return {**os.environ, **cluster["a"].environment, "GPUSHARE_SPEC": spec, "GPUSHARE_TENANT": "foreign",
                "LD_PRELOAD": os.environ["GPUSHARE_PRELOAD"], **variables}

    def foreign(self, spec, **variables):
        """The result of cuInit() in a process that does not belong to Ray."""
        code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        return subprocess.run([PYTHON, "-c", code], env=self.environment(spec, **variables), capture_output=True, text=True,
                              timeout=60, check=True).stdout.strip()

    def foreigner(self, spec):
        code = "import ctypes, sys; print(ctypes.CDLL('libcuda.so.1').cuInit(0), flush=True); sys.stdin.read()"
        process = subprocess.Popen([PYTHON, "-c", code], env=self.environment(spec), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "0\n")
        return process


class ZNode(Cases):
    """Runs last, since the node does not come back."""

    def test_a_killed_node_gives_its_shares_back(self):
        here, there = self.start(actor(0.5)), [actor(0.5, on="b").remote() for _ in range(2)]
        self.assertEqual(ray.get([each.alloc.remote(4 * GIB) for each in (here, *there)]), [0, 0, 0])
        self.assertEqual(sum(cluster["b"].guaranteed()), 1)
        before = cluster["a"].shares()
        cluster.remove("b")
        until(lambda: not cluster["b"].list()["shares"], what="the workers of a killed node have their shares still")
        state = cluster["b"].list()
        self.assertEqual([(gpu["memory_promised"], gpu["guaranteed"]) for gpu in state["gpus"]], [(0, 0), (0, 0)])
        with self.assertRaises(ray.exceptions.RayActorError):
            ray.get(there[0].pid.remote())
        self.assertEqual(ray.get([here.alloc.remote(4 * GIB), here.alloc.remote(1)]), [0, 2])
        self.assertEqual(list(cluster["a"].shares()), list(before))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
