#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A longer run of gpushare.ray: actors that are killed and restart repeatedly, tasks in sequence, placement groups, and a second
driver. After each step the broker's sums hold."""

import importlib
import os
import random
import signal
import subprocess
import sys
import unittest

import needed  # noqa: F401: or the test is skipped

import gpushare.ray
import ray
from cluster import GIB, Cluster, say, until
from work import Gpu

ROUNDS = int(os.environ.get("GPUSHARE_RAY_ROUNDS", "20"))


def setUpModule():
    global cluster
    cluster = Cluster(("a", 1, "16GiB"), ("b", 2, "8GiB"))
    unittest.addModuleCleanup(cluster.end)


def held(size):
    used = Gpu()
    return used.sees()[0], used.alloc(size)


class Churn(unittest.TestCase):
    def setUp(self):
        self.addCleanup(self.all_is_back)

    def all_is_back(self):
        for name in cluster.raylets:
            until(lambda node=cluster[name]: not node.list()["shares"], what="a worker's share stays")

    def sums_hold(self, name):
        for gpu in cluster[name].list()["gpus"]:
            self.assertLessEqual(gpu["guaranteed"], 1 + 1e-9)
            self.assertLessEqual(gpu["memory_promised"], gpu["memory"])

    def test_killed_again_and_again(self):
        order = random.Random(1)
        kind = gpushare.ray.remote(num_gpus=0.25, num_cpus=0, resources={"a": 1}, max_restarts=-1, max_task_retries=-1,
                                   wait=60)(Gpu)
        actors = [kind.remote() for _ in range(4)]
        tenants = [each.tenant for each in ray.get([one.share.remote() for one in actors])]
        for number in range(ROUNDS):
            victims = order.sample(range(4), order.randint(1, 4))
            for victim in victims:
                os.kill(ray.get(actors[victim].pid.remote()), signal.SIGKILL)
            self.sums_hold("a")
            # A restarted actor is the same tenant, and all its quota is available again.
            for victim in victims:
                self.assertEqual(ray.get(actors[victim].share.remote()).tenant, tenants[victim])
                until(lambda actor=actors[victim]: ray.get(actor.alloc.remote(4 * GIB)) == 0,
                      what=f"round {number}: the quota of a killed worker is not there again")
            self.sums_hold("a")
            # Taken again for the next round, as the quota of the others still is.
        self.assertEqual(cluster["a"].guaranteed(), [1])
        for actor in actors:
            ray.kill(actor)

    def test_tasks_one_after_the_other(self):
        task = gpushare.ray.remote(num_gpus=0.5, num_cpus=0, resources={"b": 1})(held)
        answers = ray.get([task.remote(4 * GIB) for _ in range(ROUNDS)])
        self.assertEqual(set(answers), {(4 * GIB, 0)})

    def test_a_placement_group(self):
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group([{"GPU": 0.5, "a": 1}, {"GPU": 0.25, "b": 1}])
        ray.get(group.ready())
        actors = [gpushare.ray.remote(num_gpus=gpus, num_cpus=0)(Gpu).options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)).remote()
            for index, gpus in enumerate((0.5, 0.25))]
        self.assertEqual([total for total, _, _ in ray.get([each.sees.remote() for each in actors])], [8 * GIB, 2 * GIB])
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)

    def test_a_node_without_a_broker_and_a_class_that_knows_nothing(self):
        plain = ray.remote(num_cpus=0, resources={"a": 1})(Gpu)
        unknown = plain.options(**gpushare.ray.options(num_gpus=0.25, broker="/nowhere/broker.sock")).remote()
        with self.assertRaisesRegex(ray.exceptions.RayActorError, "SYSTEM_NOT_READY"):
            ray.get(unknown.pid.remote())

    def test_what_uses_the_gpu_when_it_is_imported(self):
        """The actor has the declared share, without a name, and its constructor finds the driver ready."""

        class Imports:
            def __reduce__(self):
                return importlib.import_module, ("early",)

        class Early(Gpu):
            early = Imports()  # created in the worker, which imports the module when it reads the class

            def then(self):
                return self.early.TOTAL

        actor = gpushare.ray.remote(num_gpus=0.25, num_cpus=0, resources={"a": 1})(Early).remote()
        total, pid = ray.get([actor.then.remote(), actor.pid.remote()])
        self.assertEqual(total, 4 * GIB)
        self.assertRegex(cluster["a"].shares()[pid]["tenant"], r"^process-\d+$")
        ray.kill(actor)

    def test_a_second_cluster_on_the_same_node(self):
        """The actor assumes that the GPU is its own, but the broker enforces its share."""
        code = """
import os, ray, gpushare, gpushare.ray
ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False,
         logging_level="error")
def fits(wait, gpus):
    task = gpushare.ray.remote(num_gpus=gpus, num_cpus=0, wait=wait)(lambda: "has " + gpushare.ray.share().spec)
    try:
        return ray.get(task.remote())
    except gpushare.ResourceExhaustedError as error:
        return "compute: 50% asked, 25% not guaranteed" in str(error)
print(fits(0, 0.5), fits(20, 0.25))
ray.shutdown()
"""
        actor = gpushare.ray.remote(num_gpus=0.75, num_cpus=0, gpu_memory="1GiB", resources={"a": 1})(Gpu).remote()
        self.assertEqual(ray.get(actor.sees.remote())[0], GIB)
        folder = os.path.join(cluster.folder.name, "2")
        os.mkdir(folder)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **cluster["a"].environment, "RAY_TMPDIR": folder})
        self.assertEqual((done.stdout, done.returncode), ("True has memory=25%,compute=25%\n", 0), done.stderr)
        self.assertEqual(ray.get(actor.alloc.remote(GIB)), 0)
        ray.kill(actor)


if __name__ == "__main__":
    say(f"{ROUNDS} rounds (GPUSHARE_RAY_ROUNDS)")
    unittest.main(argv=sys.argv)
