#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes and a broker in different PID, mount, network and IPC namespaces, as containers have them: the quota holds across them,
and what a process held that is killed is the tenant's again."""

import os
import signal
import subprocess
import sys
import unittest

from node import ALLOCATES, OK, OUT_OF_MEMORY, Node

ALONE = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc"]


def setUpModule():
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise unittest.SkipTest("no namespaces can be made here") from None


class Namespaces(Node):
    TENANTS = "  - {name: a, spec: 'memory=1GiB'}\n"
    MORE = "operators: [%d]\n" % os.geteuid()

    def assert_one_quota(self):
        """Returns a program that holds 300 MiB outside, and the processes that are registered."""
        outside, inside = (self.program(ALLOCATES, self.of_tenant("a"), within) for within in ((), ALONE))
        self.assertEqual((inside("os.getpid()"), inside("alloc(700)")), (1, OK))
        self.assertEqual((outside("alloc(400)"), outside("alloc(300)")), (OUT_OF_MEMORY, OK))
        self.restart_broker()
        self.eventually(lambda: sum(not each["gone"] for each in self.share("a")["processes"]) == 2)
        self.assertEqual((inside("alloc(100)"), outside("alloc(100)")), (OUT_OF_MEMORY, OUT_OF_MEMORY))
        self.assertEqual(inside("alloc(20)"), OK)
        self.eventually(lambda: self.share("a")["memory_used"] >> 20 == 1020)
        return outside, inside, self.share("a")["processes"]

    def test_a_process_in_others_than_the_brokers(self):
        outside, _, processes = self.assert_one_quota()
        pids = {process["pid"] for process in processes}
        self.assertIn(outside.process.pid, pids)
        (inside,) = pids - {outside.process.pid}
        self.assertGreater(inside, 1)
        os.kill(inside, signal.SIGKILL)
        self.eventually(lambda: outside("alloc(700)") == OK)


class BrokerAlone(Namespaces):
    BROKER_WITHIN = ALONE

    def test_a_process_in_others_than_the_brokers(self):
        outside, inside, processes = self.assert_one_quota()
        self.assertEqual([process["pid"] for process in processes], [0, 0])
        inside.end()
        self.eventually(lambda: outside("alloc(700)") == OK)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
