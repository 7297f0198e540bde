#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare broker` and the commands that speak to it, as an operator uses them."""

import json
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from broker_process import COMMAND, GIB, GPU, OTHER_GPU, Broker, Process, Refused

TWO = """
tenants:
  - {name: online, spec: "memory=8GiB,compute=50%,priority=high", labels: {team: search}}
  - {name: batch, spec: "memory=4GiB,policy=best-effort"}
"""
# A sanitizer needs more address space than these tests allow.
with open(COMMAND, "rb") as file:
    SANITIZED = re.search(rb"lib[at]san\.so|__[at]san_init", file.read()) is not None
STATUS_REFUSED, STATUS_USAGE, STATUS_NO_GPU, STATUS_NO_BROKER, STATUS_TIMEOUT = 1, 2, 3, 6, 7


def run(*arguments, **options):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


def broker(config=TWO, *options):
    return Broker(config, "--gpu", "none", *options)


class Daemon(unittest.TestCase):
    def test_sigterm_and_sigint_end_it_and_its_socket_is_gone(self):
        for number in signal.SIGTERM, signal.SIGINT:
            with broker() as running:
                self.assertTrue(os.path.exists(running.path))
                running.signal(number)
                self.assertEqual(running.until("stopping")["signal"], number)
                running.until("stopped")
                self.assertEqual(running.process.wait(20), 0)
                self.assertFalse(os.path.exists(running.path))

    def test_it_begins_anew_where_one_was_killed(self):
        with broker() as running:
            running.process.kill()
            running.process.wait()
            again = subprocess.Popen([COMMAND, "broker", "--gpu", "none", "--socket", running.path],
                                     stderr=subprocess.PIPE, text=True)
            try:
                self.assertIn("event=doubt", again.stderr.readline())  # it has no configuration
                self.assertIn("event=started", again.stderr.readline())
                self.assertEqual(running.command("list").returncode, 0)
            finally:
                again.terminate()
                again.communicate(timeout=20)

    def test_root_of_a_container_does_not_operate_it(self):
        container = ["unshare", "--pid", "--fork"]
        try:
            subprocess.run([*container, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no PID namespace can be made here")
        change = [COMMAND, "set", "online", "memory=1GiB", "--socket"]
        with broker() as running, Process(running.path, "online") as process:
            process.open()
            done = subprocess.run([*container, *change, running.path], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, STATUS_REFUSED, done)
            self.assertIn("PID namespace", done.stderr)
            self.assertEqual(running.share("online")["memory_limit"], 8 * GIB)
            running.configure(TWO + f"operators: [{os.geteuid()}]\n")
            self.assertEqual(running.command("reload").returncode, 0)
            done = subprocess.run([*container, *change, running.path], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(running.share("online")["memory_limit"], GIB)

    def test_a_second_one_does_not_take_its_place(self):
        with broker() as running:
            second = run("broker", "--gpu", "none", "--socket", running.path)
            self.assertEqual(second.returncode, 1)
            self.assertIn("event=failed", second.stderr)
            self.assertEqual(running.command("list").returncode, 0)

    def test_check(self):
        with broker() as running:
            good = run("broker", "--check", "--config", running.config)
            self.assertEqual((good.returncode, good.stdout), (0, running.config + " is valid: 2 tenants\n"))
            running.configure("tenants:\n- {name: a, spec: priority=high}\n- {name: b, spec: guarantee=30%}\n")
            doubtful = run("broker", "--check", "--config", running.config)
            self.assertEqual((doubtful.returncode, doubtful.stdout), (0, running.config + " is valid: 2 tenants\n"))
            self.assertRegex(doubtful.stderr, "^gpushare broker: 'a': priority=high without a cap; .*guaranteed to 'b'.*\n$")
            running.configure("tenants:\n- name: a\n")
            self.assertEqual(run("broker", "--check", "--config", running.config).stdout, running.config + " is valid: 1 tenant\n")
            self.assertEqual(run("broker", "--check").stdout, "no --config is given: there are no tenants\n")
            running.configure("tenants:\n- name: a\n  spec: compute=130%\n")
            bad = run("broker", "--check", "--config", running.config)
            self.assertEqual(bad.returncode, STATUS_USAGE)
            self.assertRegex(bad.stderr, r"broker.yaml:3: tenants\[0\].spec: spec field 'compute'.*allowed")
            self.assertEqual(run("broker", "--config", "/nonexistent/broker.yaml").returncode, STATUS_USAGE)

    def test_check_as_json(self):
        with broker() as running:
            def check(status: int, *options: str) -> dict:
                result = run("broker", "--check", "--json", "--config", running.config, *options)
                self.assertEqual(result.returncode, status, result.stderr)
                return json.loads(result.stdout)

            self.assertEqual(check(0), {"config": running.config, "valid": True, "error": "", "tenants": ["online", "batch"], "doubts": []})
            self.assertIn("--metrics", check(STATUS_USAGE, "--metrics", "nowhere")["error"])
            running.configure("tenants:\n- {name: a, spec: priority=high}\n- {name: b, spec: guarantee=30%}\n")
            self.assertRegex(check(0)["doubts"][0], "without a cap")
            running.configure("tenants:\n- name: a\n  spec: compute=130%\n")
            bad = check(STATUS_USAGE)
            self.assertEqual((bad["valid"], bad["tenants"]), (False, []))
            self.assertRegex(bad["error"], r"broker.yaml:3: tenants\[0\].spec")
            self.assertEqual(run("broker", "--json", "--config", running.config).returncode, STATUS_USAGE)

    def test_without_the_gpu_that_it_is_to_have(self):
        result = run("broker", "--gpu", "real", "--socket", "/nonexistent/broker.sock",
                     env={**os.environ, "GPUSHARE_DRIVER": "/nonexistent/libcuda.so.1"})
        self.assertEqual(result.returncode, STATUS_NO_GPU)
        self.assertRegex(result.stderr, "event=failed .*/nonexistent/libcuda.so.1")

    def test_a_soft_limit_of_descriptors_is_not_that_of_processes(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 1000:
            self.skipTest(f"no more descriptors than {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        try:
            running = broker("unlisted: true")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with running:
            processes = [Process(running.path, "a").open() for _ in range(200)]
            self.assertEqual(running.list()["sessions"], 200)
            for process in processes:
                process.close()

    def test_options_that_are_wrong(self):
        for options in (["--metrics", "localhost"], ["--log", "loud"], ["--socket-mode", "999"], ["--gpu", "x"]):
            result = run("broker", *options)
            self.assertEqual(result.returncode, STATUS_USAGE, options)
            self.assertIn("allowed", result.stderr, options)

    def test_hangup_reads_the_configuration_again_and_a_wrong_one_changes_nothing(self):
        with broker() as running, Process(running.path, "online").open():
            running.configure(TWO.replace("8GiB", "9GiB"))
            running.signal(signal.SIGHUP)
            self.assertEqual(running.until("reloaded")["tenants"], 2)
            self.assertEqual(running.share("online")["memory_limit"], 9 * GIB)
            running.configure(TWO.replace("8GiB", "lots"))
            running.signal(signal.SIGHUP)
            self.assertIn("broker.yaml:3: tenants[0].spec", running.until("reload_refused")["why"])
            self.assertEqual(running.share("online")["memory_limit"], 9 * GIB)
            self.assertEqual(running.command("reload").returncode, STATUS_REFUSED)
            running.configure(TWO)
            self.assertEqual(running.command("reload").returncode, 0)
            self.assertEqual(running.share("online")["memory_limit"], 8 * GIB)

    @unittest.skipIf(SANITIZED, "of a build without sanitizers")
    def test_without_a_thread_it_does_not_begin_and_says_so(self):
        def no_room_for_stacks():
            resource.setrlimit(resource.RLIMIT_STACK, (2 * GIB, resource.getrlimit(resource.RLIMIT_STACK)[1]))
            resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))
        with tempfile.TemporaryDirectory() as folder:
            ended = run("broker", "--gpu", "none", "--socket", os.path.join(folder, "broker.sock"), preexec_fn=no_room_for_stacks)
        self.assertEqual(ended.returncode, STATUS_REFUSED, ended)
        self.assertIn("no more threads", ended.stderr)

    @unittest.skipIf(SANITIZED, "of a build without sanitizers")
    def test_without_a_thread_to_read_it_the_configuration_stays(self):
        with broker() as running, Process(running.path, "online").open():
            with open(f"/proc/{running.process.pid}/statm", encoding="ascii") as statm:
                size = int(statm.read().split()[0]) * resource.getpagesize()
            before = resource.prlimit(running.process.pid, resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
            running.configure(TWO.replace("8GiB", "9GiB"))
            refused = running.command("reload")
            self.assertEqual(refused.returncode, STATUS_REFUSED)
            self.assertIn("no more threads", refused.stderr)
            self.assertEqual(running.share("online")["memory_limit"], 8 * GIB)
            resource.prlimit(running.process.pid, resource.RLIMIT_AS, before)
            self.assertEqual(running.command("reload").returncode, 0)
            self.assertEqual(running.share("online")["memory_limit"], 9 * GIB)

    def test_what_waits_for_a_restart_is_said(self):
        with broker() as running, Process(running.path, "online").open():
            self.assertEqual(running.command("reload").stderr, "")
            running.configure(TWO + "socket: /elsewhere/broker.sock\nmetrics: 9410\n")
            for _ in range(2):  # the state lasts until then
                done = running.command("reload")
                self.assertEqual(done.returncode, 0, done)
                self.assertRegex(done.stderr, r"started again: socket, metrics\n$")
            running.signal(signal.SIGHUP)
            self.assertEqual(running.until("restart_wanted")["keys"], "socket, metrics")

    def test_its_log_is_one_line_an_event(self):
        with broker() as running:
            with Process(running.path, "online", program="a\nlevel=error"):
                said = running.until("registered")
                self.assertEqual((said["tenant"], said["pid"], said["level"]), ("online", os.getpid(), "info"))
                self.assertEqual(said["program"], "a\nlevel=error")
            ended = running.until("ended")
            self.assertEqual((ended["tenant"], ended["why"]), ("online", "its connection was closed"))
            running.command("drain", "--gpu", OTHER_GPU, "--timeout", "0")
            self.assertEqual(running.until("change")["gpu"], OTHER_GPU)
            with self.assertRaises(Refused):
                Process(running.path, "nobody")
            self.assertEqual(running.until("refused")["level"], "warning")


class Lists(unittest.TestCase):
    def test_list_shows_gpus_tenants_and_processes(self):
        with broker() as running, Process(running.path, "online", "serve").open() as first, \
                Process(running.path, "batch").open():
            first.says(memory_charged=0, launches=5)
            shown = running.command("list")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertRegex(shown.stdout, GPU + r": 12 GiB of .* GiB promised, 50.0 % guaranteed\n")
            self.assertRegex(shown.stdout, r"\nonline +.* 8 GiB .*memory=8GiB,compute=50%,priority=high\n")
            self.assertRegex(shown.stdout, r"\n +%d .* serve\n" % os.getpid())
            self.assertRegex(shown.stdout, r"\nbatch ")
            listed = running.list()
            self.assertEqual([share["tenant"] for share in listed["shares"]], ["batch", "online"])
            self.assertEqual(listed["shares"][1]["labels"], {"team": "search"})
            self.assertEqual(listed["sessions"], 2)

    def test_a_script_is_shown_with_what_runs_it(self):
        with broker() as running, Process(running.path, "online", "/usr/bin/python3.11 /home/me/train.py").open():
            self.assertRegex(running.command("list").stdout, r" python3.11 train.py\n")
            self.assertEqual(running.share("online")["processes"][0]["program"], "/usr/bin/python3.11 /home/me/train.py")

    def test_before_anybody_has_come(self):
        with broker(None) as running:
            self.assertEqual(running.command("list").stdout, "no process has opened a GPU yet\n")
            self.assertEqual(running.list()["shares"], [])

    def test_an_answer_of_many_parts(self):
        tenants = "".join('- {name: "%s%d", spec: weight=2}\n' % ("\u00fc" * 25, each) for each in range(300))
        with broker("tenants:\n" + tenants) as running:
            processes = [Process(running.path, "%s%d" % ("\u00fc" * 25, each)).open() for each in range(300)]
            self.assertEqual(len(running.list()["shares"]), 300)
            for process in processes:
                process.close()

    def test_names_cannot_garble_a_terminal(self):
        with broker("unlisted: true") as running, \
                Process(running.path, "a", "\x1b[2J\u202e", "weight=1").open():
            for command in (["list"], ["top", "--once", "--interval", "0.1"]):
                shown = running.command(*command).stdout
                self.assertNotIn("\x1b", shown)
                self.assertNotIn("\u202e", shown)
                self.assertIn(r"\x1b[2J", shown)

    def test_no_broker(self):
        for command in (["list"], ["top"], ["metrics"], ["set", "a", "cap=5%"], ["suspend", "a"], ["drain"]):
            result = run(*command, "--socket", "/nonexistent/broker.sock")
            self.assertEqual(result.returncode, STATUS_NO_BROKER, command)
            self.assertEqual(result.stdout, "")
            self.assertRegex(result.stderr, r"^gpushare \w+: no broker at '/nonexistent/broker.sock'.*; start one")

    def test_one_that_is_stopped_is_there(self):
        with broker() as running:
            running.process.send_signal(signal.SIGSTOP)
            try:
                result = running.command("list")
            finally:
                running.process.send_signal(signal.SIGCONT)
            self.assertEqual(result.returncode, STATUS_NO_BROKER)
            self.assertEqual(result.stderr, f"gpushare list: the broker at '{running.path}' has not answered for 10 s: "
                                            "it is stopped, or hangs; continue it, or name another by --socket\n")

    def test_the_socket_by_its_variable(self):
        result = run("list", env={**os.environ, "GPUSHARE_BROKER": "/nonexistent/by-variable"})
        self.assertIn("/nonexistent/by-variable", result.stderr)
        none = run("list", env={**os.environ, "GPUSHARE_BROKER": "none"})  # as if it were not set
        self.assertNotIn("'none'", none.stdout + none.stderr)
        self.assertNotIn("(GPUSHARE_BROKER)", none.stderr)


def documented_family():
    """The example of docs/broker.md, for whoever runs this test."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "broker.md")
    with open(page, encoding="utf-8") as file:
        section = file.read().split("\n## Budgets inside budgets\n")[1]
    example = section.split("```yaml\n")[1].split("```")[0]
    return re.sub(r"\n +(users|groups): .*", "", example)


class Families(unittest.TestCase):
    def test_children_are_within_their_parent(self):
        with broker(documented_family()) as running, Process(running.path, "alice").open() as alice, \
                Process(running.path, "bob").open() as bob:
            for process in alice, bob:
                process.says(memory_charged=0, time_used=1_000_000_000)
            shares = {share["tenant"]: share for share in running.list()["shares"]}
            self.assertEqual({name: share["parent"] for name, share in shares.items()},
                             {"alice": "research", "bob": "research", "research": ""})
            memory = running.list()["gpus"][0]
            self.assertEqual(memory["memory_promised"], shares["research"]["memory_limit"])
            self.assertEqual(memory["guaranteed"], 0.6)
            granted = sum(shares[name]["memory_granted"] for name in ("alice", "bob"))
            self.assertEqual(shares["research"]["memory_granted"], granted)
            self.assertLessEqual(granted, shares["research"]["memory_limit"])
            for command in ["list"], ["top", "--once", "--interval", "0.1"]:
                self.assertRegex(running.command(*command).stdout, r"\nresearch .*\n  alice .*\n.*\n  bob ")
            self.assertRegex(running.command("metrics").stdout,
                             r'gpushare_memory_used_bytes{device_uuid="%s",tenant="bob",parent="research"} ' % GPU)

    def test_a_change_is_within_both(self):
        with broker(documented_family()) as running, Process(running.path, "alice").open(), Process(running.path, "bob").open():
            refused = running.command("set", "bob", "guarantee=50%")
            self.assertEqual(refused.returncode, STATUS_REFUSED)
            self.assertIn("40% left of the 60% of its parent 'research'", refused.stderr)
            self.assertEqual(running.command("set", "bob", "guarantee=40%").returncode, 0)
            lower = running.command("set", "research", "guarantee=50%")
            self.assertEqual(lower.returncode, STATUS_REFUSED)
            self.assertIn("then its child does not fit: tenant 'bob'", lower.stderr)
            shown = running.command("set", "research", "memory=30%")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertRegex(shown.stdout, r"\n  bob ")
            self.assertEqual(running.share("bob")["memory_limit"], running.share("research")["memory_limit"])

    def test_the_configuration_read_again_moves_tenants_without_processes(self):
        example = documented_family()
        with broker(example) as running, Process(running.path, "alice").open():
            running.configure(example.replace("name: bob\n    parent: research", "name: bob\n    parent: online"))
            self.assertEqual(running.command("reload").returncode, 0)
            with Process(running.path, "bob").open():
                self.assertEqual(running.share("bob")["parent"], "online")
                running.configure(example)
                refused = running.command("reload")
                self.assertEqual(refused.returncode, STATUS_REFUSED)
                self.assertIn("tenant 'bob': its parent cannot be another one while its processes run", refused.stderr)
                self.assertEqual(running.share("bob")["parent"], "online")
            running.configure(example.replace("parent: research", "parent: nobody"))
            refused = running.command("reload")
            self.assertEqual(refused.returncode, STATUS_REFUSED)
            self.assertRegex(refused.stderr, r"broker.yaml:5: tenants\[1\].parent: there is no tenant 'nobody'")


class Top(unittest.TestCase):
    def test_rates_are_of_the_interval(self):
        with broker() as running, Process(running.path, "online", "serve").open() as process:
            process.says(time_used=5_000_000_000, launches=100, waits=10, throttled=1_000_000_000)
            top = subprocess.Popen([COMMAND, "top", "--json", "--interval", "0.5", "--socket", running.path],
                                   stdout=subprocess.PIPE, text=True)
            try:
                json.loads(top.stdout.readline())
                before = running.share("online")
                # Not while a snapshot is taken: each snapshot lies completely within one interval.
                process.says(time_used=5_100_000_000, launches=300, waits=20, throttled=1_200_000_000)
                got = launches = waits = throttled = 0.0
                for _ in range(4):
                    line = json.loads(top.stdout.readline())
                    share = next(share for share in line["shares"] if share["tenant"] == "online")
                    length = line["interval_s"]
                    self.assertGreater(length, 0.4)
                    got += share["got"] * length
                    launches += share["launches_per_s"] * length
                    waits += share["waits_per_s"] * length
                    throttled += share["throttled"] * length
                self.assertAlmostEqual(launches, 200, places=3)
                self.assertAlmostEqual(waits, 10, places=3)
                self.assertAlmostEqual(throttled, 0.2, places=6)
                self.assertAlmostEqual(got, 0.1, places=6)
                self.assertEqual(before["launches"], 100)
            finally:
                top.kill()
                top.communicate()

    def test_once(self):
        with broker() as running, Process(running.path, "online", "serve").open():
            shown = running.command("top", "--once", "--interval", "0.1")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertRegex(shown.stdout, r"tenant +pid +memory +of +asked +got +throttled +waits +launches")
            self.assertRegex(shown.stdout, r"\nonline .* 8 GiB +50 %, high +0\.0 % +0\.0 % +0\.0/s +0\.0/s")
            self.assertEqual(running.command("top", "--interval", "0").returncode, STATUS_USAGE)

    def test_a_terminal_is_redrawn(self):
        with broker() as running, Process(running.path, "online", "serve").open():
            parent, child = pty.openpty()
            top = subprocess.Popen([COMMAND, "top", "--interval", "0.1", "--socket", running.path], stdout=child,
                                   stderr=subprocess.PIPE)
            os.close(child)
            shown = b""
            end = time.monotonic() + 30
            while shown.count(b"\x1b[H") < 3 and time.monotonic() < end:
                if select.select([parent], [], [], 1)[0]:
                    shown += os.read(parent, 4096)
            self.assertGreaterEqual(shown.count(b"\x1b[H"), 3)
            self.assertIn(b"\x1b[J", shown)
            for line in re.sub(rb"\x1b\[[HJK]", b"", shown).split(b"\r\n"):
                self.assertLessEqual(len(line.decode()), 80, line)
            top.send_signal(signal.SIGINT)
            top.wait(20)
            top.stderr.close()
            os.close(parent)
            self.assertEqual(top.returncode, -signal.SIGINT)

    def test_it_ends_with_the_broker(self):
        with broker() as running:
            top = subprocess.Popen([COMMAND, "top", "--json", "--interval", "0.1", "--socket", running.path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            top.stdout.readline()
            running.signal(signal.SIGTERM)
            _, said = top.communicate(timeout=30)
            self.assertEqual(top.returncode, STATUS_NO_BROKER)
            self.assertRegex(said, "the broker at .* does not answer")


class Changes(unittest.TestCase):
    def test_set_changes_a_share_while_it_runs(self):
        with broker() as running, Process(running.path, "online").open().open(OTHER_GPU):
            result = running.command("set", "online", "memory=2GiB")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"\nonline .* 2 GiB ")
            result = running.command("set", "online", "memory=3GiB", "--gpu", OTHER_GPU, "--json")
            self.assertEqual(result.returncode, 0)
            self.assertEqual({share["gpu"]: share["memory_limit"] for share in json.loads(result.stdout)["shares"]},
                             {GPU: 2 * GIB, OTHER_GPU: 3 * GIB})

    def test_what_is_wrong_is_refused(self):
        with broker() as running, Process(running.path, "online").open():
            for arguments, status, why in ((["online", "memory=lots"], STATUS_USAGE, "spec field 'memory'"),
                                           (["online", ""], STATUS_USAGE, "it is empty"),
                                           (["nobody", "cap=5%"], STATUS_REFUSED, "nobody"),
                                           (["online", "memory=8TiB"], STATUS_REFUSED, "not promised")):
                result = running.command("set", *arguments)
                self.assertEqual(result.returncode, status, result)
                self.assertIn(why, result.stderr)
            self.assertEqual(running.share("online")["memory_limit"], 8 * GIB)

    def test_suspend_and_resume(self):
        with broker() as running, Process(running.path, "online").open():
            self.assertIn(" suspended\n", running.command("suspend", "online").stdout)
            self.assertTrue(running.share("online")["suspended"])
            self.assertNotIn("suspended", running.command("resume", "online").stdout)
            self.assertFalse(running.share("online")["suspended"])

    def test_evict_ends_sessions(self):
        with broker() as running, Process(running.path, "online").open() as process:
            self.assertEqual(running.command("evict", "online").returncode, 0)
            self.assertIn(b"evicted", process.socket.recv(4096))  # so that the process does not register again
            self.assertEqual(process.socket.recv(16), b"")
            self.assertEqual(running.command("evict", "online").returncode, STATUS_REFUSED)

    def test_drain_waits_and_names_who_is_there(self):
        with broker() as running, Process(running.path, "online", "serve").open():
            late = running.command("drain", "online", "--timeout", "0.3")
            self.assertEqual(late.returncode, STATUS_TIMEOUT)
            self.assertRegex(late.stderr, r"still there after 0.3 s:\n  online: %d \(serve\), 0 B on %s\n"
                             % (os.getpid(), GPU))
            # The drain is in force: no process may register.
            with self.assertRaises(Refused):
                Process(running.path, "online")
            self.assertEqual(running.command("drain", "online", "--undo").returncode, 0)
            with Process(running.path, "online").open():
                pass

    def test_one_gpu_is_drained_and_no_other(self):
        with broker() as running, Process(running.path, "online", "serve").open() as there:
            late = running.command("drain", "--gpu", GPU, "--timeout", "0.3")
            self.assertEqual(late.returncode, STATUS_TIMEOUT)
            self.assertRegex(late.stderr, r"  online: %d \(serve\), 0 B on %s\n" % (os.getpid(), GPU))
            self.assertIn("`gpushare drain --gpu %s --undo`" % GPU, late.stderr)
            self.assertTrue(running.share("online")["draining"])
            self.assertIn(", draining", running.command("list").stdout)
            there.open(OTHER_GPU)  # a registered process may open another GPU
            with self.assertRaisesRegex(Refused, "is being drained"):
                Process(running.path, "batch").open()
            both = running.command("drain", "online", "--gpu", GPU)
            self.assertEqual(both.returncode, STATUS_USAGE, both.stderr)
            unknown = running.command("drain", "--gpu", "GPU-none", "--timeout", "0")
            self.assertIn("no GPU GPU-none", unknown.stderr)
            self.assertEqual(running.command("drain", "--gpu", GPU, "--undo").returncode, 0)
            self.assertFalse(running.share("online")["draining"])
            with Process(running.path, "batch").open():
                pass

    def test_a_new_policy_says_what_it_ends(self):
        with broker() as running, Process(running.path, "online").open():
            self.assertEqual(running.command("set", "online", "weight=2").stderr, "")
            ended = running.command("set", "online", "policy=best-effort")
            self.assertEqual(ended.returncode, 0)
            self.assertIn("contradicts what was set before and has ended it: compute=50%\n", ended.stderr)
            self.assertNotIn("compute", running.share("online")["spec"])
            self.assertEqual(running.command("set", "online", "policy=best-effort").stderr, "")

    def test_a_key_that_changes_nothing_is_told(self):
        with broker() as running, Process(running.path, "online").open():
            self.assertEqual(running.command("set", "online", "compute=40%").stderr, "")
            self.assertEqual(running.share("online")["guarantee"], 0.4)
            self.assertEqual(running.command("set", "online", "guarantee=30%").stderr, "")
            told = running.command("set", "online", "compute=10%")
            self.assertEqual(told.returncode, 0)
            self.assertIn("'compute' changes nothing on GPU " + GPU + ": the tenant has guarantee=30%", told.stderr)
            self.assertEqual(running.share("online")["guarantee"], 0.3)
            self.assertEqual(running.command("set", "online", "compute=10%,guarantee=20%").stderr, "")
            self.assertEqual(running.command("set", "online", "cap=90%").stderr, "")

    def test_drain_ends_when_all_have_left(self):
        with broker() as running:
            code = ("import sys; sys.path.insert(0, %r); import broker_process as b\n"
                    "b.Process(%r, 'online').open(); print('there', flush=True); sys.stdin.read()"
                    % (os.path.dirname(os.path.abspath(__file__)), running.path))
            child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(child.stdout.readline(), b"there\n")
            drain = subprocess.Popen([COMMAND, "drain", "--json", "--socket", running.path], stdout=subprocess.PIPE)
            while running.until("change")["what"] != "drain":
                pass
            self.assertIsNone(drain.poll())
            child.communicate()
            out, _ = drain.communicate(timeout=30)
            self.assertEqual((drain.returncode, json.loads(out)), (0, {"draining": True, "drained": True, "holders": []}))

    def test_drain_without_waiting_and_as_json(self):
        def drain(*options):
            result = running.command("drain", "online", "--timeout", "0", *options)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            return result.stdout

        with broker() as running:
            self.assertEqual(drain(), "")  # no process is connected
            drain("--undo")
            with Process(running.path, "online", "serve").open():
                self.assertEqual(drain(), "draining; still there:\n  online: %d (serve), 0 B on %s\n" % (os.getpid(), GPU))
                holder = {"tenant": "online", "gpu": GPU, "pid": os.getpid(), "program": "serve", "memory_used": 0,
                          "gone": False, "evicted": False}
                self.assertEqual(json.loads(drain("--json")), {"draining": True, "drained": False, "holders": [holder]})
                self.assertEqual(json.loads(drain("--undo", "--json")),
                                 {"draining": False, "drained": False, "holders": [holder]})
                self.assertEqual(drain("--undo"), "")


class Metrics(unittest.TestCase):
    def test_they_are_printed_and_served(self):
        with broker(TWO, "--metrics", "0") as running, Process(running.path, "online").open() as process:
            process.says(launches=7, time_used=2_500_000_000)
            served_at = next(said for said in running.events if said["event"] == "metrics_served")
            self.assertEqual(served_at["address"], "127.0.0.1:0")
            while running.share("online")["launches"] != 7:
                pass
            printed = running.command("metrics").stdout
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % served_at["port"], timeout=20) as answer:
                served = answer.read().decode()
            series = 'gpushare_launches_total{device_uuid="%s",tenant="online",team="search"} 7\n' % GPU
            self.assertIn(series, printed)
            self.assertIn(series, served)
            families = {family["name"]: family for family in json.loads(running.command("metrics", "--json").stdout)}
            self.assertEqual(families["gpushare_launches_total"]["type"], "counter")
            self.assertIn({"name": "gpushare_launches_total", "value": 7,
                           "labels": {"device_uuid": GPU, "tenant": "online", "team": "search"}},
                          families["gpushare_launches_total"]["samples"])
            self.assertEqual(families["gpushare_memory_limit_bytes"]["samples"][0]["value"], 8 * GIB)

    def test_half_requests_do_not_stop_the_metrics(self):
        with broker(TWO, "--metrics", "0") as running:
            port = next(said for said in running.events if said["event"] == "metrics_served")["port"]
            halves = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
            for half in halves:
                half.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=15) as answer:
                self.assertIn(b"gpushare_build_info", answer.read())
            for half in halves:
                half.close()

    def test_the_port_is_taken(self):
        with broker(TWO, "--metrics", "0") as running:
            port = next(said for said in running.events if said["event"] == "metrics_served")["port"]
            second = run("broker", "--gpu", "none", "--socket", running.path + "2", "--metrics", str(port))
            self.assertEqual(second.returncode, 1)
            self.assertIn("metrics cannot be served at 127.0.0.1:%d" % port, second.stderr)

    def test_prometheus_own_parser_takes_them(self):
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            self.skipTest("scripts/setup has not installed prometheus_client")
        labels = TWO.replace("search", r"'a \"b\" \\ c'")
        with broker(labels) as running, Process(running.path, "online").open():
            families = {family.name: family for family in
                        text_string_to_metric_families(running.command("metrics").stdout)}
        limit = families["gpushare_memory_limit_bytes"]
        self.assertEqual((limit.type, limit.samples[0].value), ("gauge", 8 * GIB))
        self.assertEqual(limit.samples[0].labels,
                         {"device_uuid": GPU, "tenant": "online", "team": r"a \"b\" \\ c"})
        self.assertEqual(families["gpushare_launches"].type, "counter")
        self.assertTrue(all(family.documentation for family in families.values()))


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = run("completion", "bash").stdout
        script += "\nCOMP_WORDS=(%s)\nCOMP_CWORD=%d\n_gpushare\nprintf '%%s\\n' \"${COMPREPLY[@]}\"\n" % (
            " ".join("'%s'" % word for word in words), len(words) - 1)
        result = subprocess.run(["bash", "--norc"], input=script, capture_output=True, text=True, timeout=20, check=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("gpushare", "to"), ["top"])
        self.assertIn("broker", self.complete("gpushare", ""))
        self.assertEqual(self.complete("gpushare", "top", "--i"), ["--interval"])
        self.assertEqual(self.complete("gpushare", "probe", "--gpu", ""), ["real", "sim", "auto"])
        self.assertEqual(self.complete("gpushare", "completion", "z"), ["zsh"])
        self.assertEqual(self.complete("gpushare", "run", "--priority", ""), ["high", "normal", "low"])
        self.assertEqual(self.complete("gpushare", "run", "--broker", ""), ["private", "none", "auto"])
        self.assertIn("touch", self.complete("gpushare", "run", "--memory", "1GiB", "--", "to"))  # a command, and nothing of gpushare's
        self.assertEqual(self.complete("gpushare", "run", "--", "touch", "to"), [])
        self.assertIn("--undo", self.complete("gpushare", "drain", "online", "--"))

    def test_each_script_is_one_of_its_shell(self):
        for shell in "bash", "zsh", "fish":
            script = run("completion", shell)
            self.assertEqual(script.returncode, 0)
            for command in "broker", "list", "top", "drain", "completion":
                self.assertIn(command, script.stdout)
            try:
                checked = subprocess.run([shell, "-n"], input=script.stdout, capture_output=True, text=True,
                                         timeout=20, check=False)
            except FileNotFoundError:
                continue
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), shell)
        self.assertEqual(run("completion", "tcsh").returncode, STATUS_USAGE)


if __name__ == "__main__":
    unittest.main()
