#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The broker's audit compares the reports of processes with the driver's counts. It finds processes that understate their memory, hold
more than their grant, run longer than they report, bypass gpushare, or have not registered. The tests use the machine's clock, but
do not depend on its speed."""

import os
import re
import sys
import unittest

from broker_programs import Programs
from command import HERE, PYTHON

E2E = os.path.join(HERE, "..", "e2e")
sys.path.insert(0, E2E)
from broker_process import Broker  # noqa: E402

MIB = 1 << 20
CONFIG = """
audit: {interval: 100ms, allowance: 64MiB}
tenants:
  - {name: honest, spec: memory=8GiB}
  - {name: liar, spec: memory=2GiB}
"""

# Bypasses gpushare: it calls the driver itself, and tells the broker anything.
LIAR = """
import sys, threading
from program import *
from broker_process import Process
context()
held = []
def hold(mib):
    error, pointer = d.cuMemAlloc(mib << 20)
    held.append(pointer)
    return int(error)
process = None
def register(path, gpu):
    global process
    process = Process(path, "liar").open(gpu, 16 << 30)
    return 0
def say(mib):
    process.says(next(iter(process.pages)), memory_charged=mib << 20)
    return 0
runs = None
def run(said_ms=None):
    global runs
    running = ok(d.cuCtxGetCurrent())
    def work():
        ok(d.cuCtxSetCurrent(running))
        kernel, launches = spin(), 0
        while runs is not None:
            ok(launch(kernel, 20))
            ok(d.cuCtxSynchronize())
            launches += 1
            if said_ms is not None:
                process.says(next(iter(process.pages)), launches=launches, time_used=launches * said_ms * 1000000)
    runs = threading.Thread(target=work, daemon=True)
    runs.start()
    return 0
def rest():
    global runs
    runner, runs = runs, None
    runner.join()
    return 0
print("ready", flush=True)
for line in sys.stdin: print(eval(line), flush=True)
"""


class Audit(Programs):
    def setUp(self):
        super().setUp()
        # All processes share one GPU, including the broker.
        self.environment["GPUSHARE_SIM"] = "memory=16GiB,clock=wall,shared=audit-%d" % os.getpid()
        os.environ["GPUSHARE_SIM"] = self.environment["GPUSHARE_SIM"]
        self.broker = Broker(CONFIG, "--gpu", "sim")
        self.addCleanup(self.broker.__exit__)
        self.environment["GPUSHARE_BROKER"] = self.broker.path
        self.gpu = self.broker.list()["gpus"][0]["uuid"]

    def liar(self):
        liar = self.start([PYTHON, "-c", LIAR], env={**self.environment, "PYTHONPATH": HERE + ":" + E2E,
                                                    "GPUSHARE_COMMAND": os.environ["GPUSHARE_COMMAND"]})
        return liar

    def registered(self):
        liar = self.liar()
        liar("register(%r, %r)" % (self.broker.path, self.gpu))
        return liar

    def test_one_that_says_less_than_it_holds_is_found(self):
        liar = self.registered()
        self.assertEqual((liar("say(100)"), liar("hold(1000)")), (0, 0))
        said = self.broker.until("audit_finding")
        self.assertEqual((said["level"], said["tenant"], said["pid"], said["gpu"]),
                         ("warning", "liar", liar.process.pid, self.gpu))
        self.assertEqual((said["by_driver"], said["says"], said["granted"]), (1000 * MIB, 100 * MIB, 2048 * MIB))
        process = self.broker.share("liar", self.gpu)["processes"][0]
        self.assertEqual((process["audit"], process["memory_by_driver"]), ("understates", 1000 * MIB))
        self.assertIn("holds more than it says: 1000 MiB", self.broker.command("list").stdout)
        metrics = self.broker.command("metrics").stdout
        self.assertRegex(metrics, r'gpushare_audit_findings\{.*tenant="liar"\} 1\n')
        self.assertRegex(metrics, r'gpushare_memory_by_driver_bytes\{.*tenant="liar"\} %d\n' % (1000 * MIB))
        # The finding is not repeated until it changes.
        liar("say(1000)")
        self.assertEqual(self.broker.until("audit_cleared")["tenant"], "liar")
        self.assertEqual([event["event"] for event in self.broker.events].count("audit_finding"), 1)
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "")

    def test_one_that_holds_more_than_it_was_granted_is_found_whatever_it_says(self):
        liar = self.registered()
        self.assertEqual((liar("say(1 << 40)"), liar("hold(3000)")), (0, 0))
        said = self.broker.until("audit_finding")
        self.assertEqual((said["tenant"], said["why"]), ("liar", "holds more than it was granted"))
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "over_grant")

    def test_one_that_has_not_registered_is_no_tenants(self):
        liar = self.liar()
        self.assertEqual(liar("hold(10)"), 0)
        said = self.broker.until("stranger")
        self.assertEqual((said["pid"], said["by_driver"]), (liar.process.pid, 10 * MIB))
        self.assertTrue(re.match("python", said["program"]))
        (gpu,) = self.broker.list()["gpus"]
        self.assertEqual([stranger["pid"] for stranger in gpu["strangers"]], [liar.process.pid])
        self.assertRegex(self.broker.command("list").stdout, r"\(none\) +%d +10 MiB .*no tenant's" % liar.process.pid)
        self.assertRegex(self.broker.command("metrics").stdout, r"gpushare_device_strangers\{.*\} 1\n")
        liar.end()
        self.assertEqual(self.broker.until("audit_cleared")["pid"], liar.process.pid)

    def test_one_that_runs_and_has_launched_nothing_is_found(self):
        liar = self.registered()
        self.assertEqual(liar("run()"), 0)
        said = self.broker.until("audit_finding")
        self.assertEqual((said["tenant"], said["pid"], said["gpu"], said["why"]),
                         ("liar", liar.process.pid, self.gpu, "runs past gpushare"))
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "runs_past_gpushare")
        self.assertIn("runs past gpushare", self.broker.command("list").stdout)
        self.assertRegex(self.broker.command("metrics").stdout, r'gpushare_audit_findings\{.*tenant="liar"\} 1\n')
        self.assertEqual(liar("rest()"), 0)
        self.assertEqual(self.broker.until("audit_cleared")["tenant"], "liar")
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "")

    def test_one_that_says_it_ran_less_than_it_did_is_found(self):
        liar = self.registered()
        self.assertEqual(liar("run(said_ms=2)"), 0)  # but each takes 20 ms
        said = self.broker.until("audit_finding")
        self.assertEqual((said["tenant"], said["why"]), ("liar", "runs longer than it says"))
        self.assertGreater(said["ran_ns"], 1.5 * said["says_ran_ns"])
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "understates_time")
        self.assertIn("runs longer than it says", self.broker.command("list").stdout)

    def test_one_that_runs_all_the_time_and_says_so_is_not_found(self):
        program = self.program("honest")
        self.assertEqual(program("work(600, 10)"), 600)
        share = self.broker.share("honest", self.gpu)
        self.assertGreater(share["time_used_ns"], 5 * 10**9)
        self.assertEqual(share["processes"][0]["audit"], "")
        program.end()
        self.broker.until("ended")
        self.assertEqual([event for event in self.broker.events if event["event"] == "audit_finding"], [])

    def test_honest_ones_are_not_found_however_busily_they_allocate(self):
        programs = [self.program("honest") for _ in range(3)]
        programs[0]("alloc(3000)")  # and reports it
        audits = 0
        while audits < 12:
            for each, most in zip(programs, (900, 1500, 300)):
                # Allocates and frees most of its memory, faster than its page is updated.
                self.assertEqual(each("sum(alloc(m) or free(m) for _ in range(50) for m in (%d, 7, 200))" % most), 0)
            audits = self.broker.list()["audits"]
        held = 0
        while held < 3000 * MIB:  # an audit that saw no memory would prove nothing
            processes = self.broker.share("honest", self.gpu)["processes"]
            self.assertEqual([process["audit"] for process in processes], ["", "", ""])
            held = max(process["memory_by_driver"] or 0 for process in processes)
        for each in programs:
            each.end()
        self.broker.until("ended")
        self.assertEqual([event for event in self.broker.events
                          if event["event"] in ("audit_finding", "stranger", "audit_failed")], [])

    def test_what_contexts_and_modules_take_is_in_a_column_of_its_own(self):
        # The amount is within the audit's allowance, and charged to no quota.
        sim = self.environment["GPUSHARE_SIM"] + ",context_memory=40MiB"
        program = self.program("honest", GPUSHARE_SIM=sim)
        self.assertEqual(program("alloc(1000)"), 0)
        (process,) = [{}]
        while process.get("memory_by_driver") != 1040 * MIB:
            (process,) = self.broker.share("honest", self.gpu)["processes"]
        self.assertEqual((process["memory_used"], process["memory_overhead"]), (1000 * MIB, 40 * MIB))
        self.assertRegex(self.broker.command("list").stdout, r"\n +%d +1000 MiB .* 40 MiB " % process["pid"])
        self.assertRegex(self.broker.command("metrics").stdout,
                         r'gpushare_memory_overhead_bytes\{.*tenant="honest"\} %d\n' % (40 * MIB))
        program.end()

    def test_it_can_be_turned_off_while_it_runs(self):
        liar = self.registered()
        self.broker.configure(CONFIG.replace("100ms", "off"))
        self.assertEqual(self.broker.command("reload").returncode, 0)
        self.assertEqual((liar("say(0)"), liar("hold(1000)")), (0, 0))
        self.broker.configure(CONFIG.replace("64MiB", "1200MiB"))
        self.assertEqual(self.broker.command("reload").returncode, 0)
        audits = self.broker.list()["audits"]
        while self.broker.list()["audits"] < audits + 3:
            pass
        self.assertEqual(self.broker.share("liar", self.gpu)["processes"][0]["audit"], "")
        self.broker.configure(CONFIG)
        self.assertEqual(self.broker.command("reload").returncode, 0)
        self.assertEqual(self.broker.until("audit_finding")["tenant"], "liar")


if __name__ == "__main__":
    unittest.main()
