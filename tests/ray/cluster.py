# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of several nodes on loopback, each with its own simulated GPUs and broker."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

COMMAND = os.environ["GPUSHARE_COMMAND"]
GIB = 1 << 30
CONFIG = 'unlisted: true\nreserve: {"*": 0B}\n'


class Node:
    """A broker, and the environment of its node's processes."""

    def __init__(self, folder, name, gpus, memory):
        self.name, self.gpus = name, gpus
        self.socket = os.path.join(folder, name + ".sock")
        config = os.path.join(folder, name + ".yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        self.environment = {
            "GPUSHARE_BROKER": self.socket, "GPUSHARE_DRIVER": "sim", "GPUSHARE_MEMORY_RESERVE": "0B",
            "GPUSHARE_SIM": f"memory={memory},devices={gpus},clock=wall,teardown=0ns,shared={os.path.basename(folder)}-{name}"}
        self.broker = subprocess.Popen(
            [COMMAND, "broker", "--config", config, "--socket", self.socket, "--gpu", "sim", "--log-format", "json"],
            env={**os.environ, **self.environment}, stderr=subprocess.PIPE, text=True)
        assert '"started"' in self.broker.stderr.readline()

    def list(self):
        done = subprocess.run([COMMAND, "list", "--json", "--socket", self.socket], capture_output=True, text=True,
                              timeout=60, check=True)
        return json.loads(done.stdout)

    def shares(self):
        """The share of each process, by pid."""
        return {process["pid"]: share for share in self.list()["shares"] for process in share["processes"]}

    def guaranteed(self):
        return [round(gpu["guaranteed"], 6) for gpu in self.list()["gpus"]]

    def end(self):
        self.broker.terminate()
        try:
            self.broker.wait(20)
        finally:
            self.broker.kill()
            self.broker.stderr.close()


class Cluster:
    """Starts a cluster like Ray's own tests. `nodes`: (name, number of GPUs, memory of each), the head first. Each node has its own
    address on loopback, and a resource with its name, by which a test places actors."""

    def __init__(self, *nodes):
        self.folder = tempfile.TemporaryDirectory(prefix="gpsray-")
        self.nodes, self.raylets = {}, {}
        # Set before Ray is imported, and for all its processes. No worker is started before it is needed.
        os.environ.update(RAY_TMPDIR=self.folder.name, RAY_USAGE_STATS_ENABLED="0", RAY_prestart_worker_first_driver="0")
        import ray
        from ray.cluster_utils import Cluster as Nodes
        self.ray = ray
        self.cluster = Nodes()
        try:
            for number, (name, gpus, memory) in enumerate(nodes):
                node = self.nodes[name] = Node(self.folder.name, name, gpus, memory)
                self.raylets[name] = self.cluster.add_node(
                    num_cpus=2, num_gpus=gpus, object_store_memory=80 << 20, env_vars=node.environment,
                    node_ip_address=f"127.0.0.{number + 2}", resources={name: 100}, include_dashboard=False,
                    include_log_monitor=False, no_monitor=True)
            ray.init(address=self.cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False,
                     logging_level="warning")
        except BaseException:
            self.end()
            raise

    def __getitem__(self, name):
        return self.nodes[name]

    def remove(self, name):
        """Kills the node's processes. Its broker lives on, like a service of the machine."""
        self.cluster.remove_node(self.raylets.pop(name), allow_graceful=False)

    def end(self):
        self.ray.shutdown()
        self.cluster.shutdown()
        for node in self.nodes.values():
            node.end()
        left = self.processes()
        for process in left:
            os.kill(process, signal.SIGKILL)
        self.folder.cleanup()
        assert not left, f"Ray has left {left} behind"

    def processes(self):
        """The cluster's Ray processes that still exist after its end, when the time that they may take to end is over."""
        until = time.monotonic() + 10
        while True:
            left = [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(name)]
            if not left or time.monotonic() > until:
                return left

    def _is_ours(self, process):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                environment = file.read()
            return int(process) != os.getpid() and f"RAY_TMPDIR={self.folder.name}\0".encode() in environment + b"\0"
        except OSError:
            return False


def until(condition, seconds=30, what="it does not come to be"):
    """Waits until `condition` is true, and returns its value."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > end:
            raise AssertionError(what)
    return answer


def say(text):
    print(text, file=sys.stderr)
