#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare broker` and its commands with unmodified programs: an operator sees and changes their shares. The tests use the machine's
clock, but do not depend on its speed."""

import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import unittest

from broker_programs import Programs
from command import HERE, python, run

sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from broker_process import Broker  # noqa: E402

MIB = 1 << 20
CONFIG = """
tenants:
  - {name: online, spec: "memory=1GiB,compute=50%%", users: [%d]}
  - {name: batch, spec: "memory=1GiB"}
""" % os.getuid()


class Brokers(Programs):
    config = CONFIG

    def setUp(self):
        super().setUp()
        os.environ["GPUSHARE_SIM"] = self.environment["GPUSHARE_SIM"]
        self.broker = Broker(self.config, "--gpu", "sim")
        self.addCleanup(self.broker.__exit__)
        self.environment["GPUSHARE_BROKER"] = self.broker.path

    def until(self, condition):
        while not condition():
            pass


class Compose(Brokers):
    """share/container: containers that find the broker, and a broker whose metrics are found."""

    FOLDER = os.path.join(HERE, "..", "..", "share", "container")

    def test_the_services(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("scripts/setup has not installed PyYAML")
        with open(os.path.join(self.FOLDER, "compose.yaml")) as compose, open(os.path.join(self.FOLDER, "broker.yaml")) as config:
            services, configuration = yaml.safe_load(compose)["services"], yaml.safe_load(config)
        checked = self.broker.command("broker", "--check", "--config", os.path.join(self.FOLDER, "broker.yaml"))
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        broker = services.pop("broker")
        # A published port reaches the container's address, and not its loopback.
        (published,) = broker["ports"]
        self.assertEqual(configuration["metrics"], "0.0.0.0:" + published.split(":")[-1])
        _, command, *arguments = broker["healthcheck"]["test"]
        self.assertEqual((command, self.broker.command(*arguments).returncode), ("/opt/gpushare/bin/gpushare", 0))
        self.assertEqual({service["environment"]["GPUSHARE_TENANT"] for service in services.values()},
                         {tenant["name"] for tenant in configuration["tenants"]})
        for service in services.values():
            self.assertEqual(service["depends_on"]["broker"]["condition"], "service_healthy")
            self.assertIn(f"broker:{os.path.dirname(service['environment']['GPUSHARE_BROKER'])}:ro", service["volumes"])
            self.assertTrue(os.environ["GPUSHARE_PRELOAD"].endswith(service["environment"]["LD_PRELOAD"].split("/opt/gpushare", 1)[1]))


class Kubernetes(Brokers):
    """The manifests of share/kubernetes: a container gets the share that they and HAMi's device plugin set in it."""

    SHARE = os.path.join(HERE, "..", "..", "share")
    config = "unlisted: true\n"

    def read(self, name):
        try:
            import yaml
        except ImportError:
            self.skipTest("scripts/setup has not installed PyYAML")
        with open(os.path.join(self.SHARE, "kubernetes", name)) as file:
            return list(yaml.safe_load_all(file))

    def test_the_brokers_configuration_and_image(self):
        config, daemons = self.read("broker.yaml")
        written = config["data"]["broker.yaml"]
        file = os.path.join(self.folder.name, "broker.yaml")
        with open(file, "w") as out:
            out.write(written)
        checked = self.broker.command("broker", "--check", "--config", file)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.assertIn(self.config.strip(), written)
        pod = daemons["spec"]["template"]["spec"]
        with open(os.path.join(self.SHARE, "container", "Containerfile")) as image:
            copied = next(line for line in image if line.startswith("COPY ")).split()[2]
        self.assertIn(f"cp -a {copied}/. ", pod["initContainers"][0]["command"][2])
        self.assertEqual(pod["containers"][0]["args"], ["--config", "/etc/gpushare/broker.yaml"])

    def test_what_pods_have_mapped_is_replaced_and_not_written_over(self):
        _, daemons = self.read("broker.yaml")
        shell, options, script = daemons["spec"]["template"]["spec"]["initContainers"][0]["command"]
        image, host = (os.path.join(self.folder.name, name) for name in ("image", "host"))
        library, link = os.path.join("lib", "library.so.0.1.0"), os.path.join("lib", "library.so")
        os.makedirs(os.path.join(image, "lib"))
        os.mkdir(host)
        os.symlink("library.so.0.1.0", os.path.join(image, link))

        def install(content):
            with open(os.path.join(image, library), "w") as file:
                file.write(content)
            subprocess.run([shell, options, script.replace("/opt/gpushare", image).replace("/host", host)], check=True)
            with open(os.path.join(host, link)) as file:
                return file.read()

        self.assertEqual(install("the old one"), "the old one")
        with open(os.path.join(host, library)) as held:
            self.assertEqual(install("new"), "new")
            self.assertEqual(held.read(), "the old one")
        self.assertEqual(os.listdir(host), ["lib"])

    def test_a_pod_that_hami_has_placed(self):
        (pod,) = self.read("pod-hami.yaml")
        (container,) = pod["spec"]["containers"]
        set_here = {entry["name"]: entry.get("value") for entry in container["env"]}
        limits = container["resources"]["limits"]
        # The variables that HAMi's device plugin sets.
        variables = {"CUDA_DEVICE_MEMORY_LIMIT_0": f"{limits['nvidia.com/gpumem']}m",
                     "CUDA_DEVICE_SM_LIMIT": str(limits["nvidia.com/gpucores"]),
                     "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/cache",
                     "CUDA_DISABLE_CONTROL": set_here["CUDA_DISABLE_CONTROL"]}
        self.assertTrue(os.environ["GPUSHARE_PRELOAD"].endswith(set_here["LD_PRELOAD"].split("/opt/gpushare", 1)[1]))
        first, second = self.program("a-uid", **variables), self.program("a-uid", **variables)
        self.assertEqual((first("total()"), first("alloc(8000)"), first("alloc(300)")), (8192, 0, 2))
        self.assertEqual(second("alloc(300)"), 2)  # both are in one pod and share its limit
        (share,) = self.broker.list()["shares"]
        # By HAMi's default, the only tenant of a GPU is not limited.
        self.assertEqual((share["tenant"], share["memory_limit"], share["guarantee"], share["cap"]),
                         ("a-uid", 8192 * MIB, 0.5, 1))
        # Fewer than 8 GiB are left, so it does not run without its limit.
        self.assertNotEqual(self.initializes(GPUSHARE_TENANT="another-uid", **variables), "0\n")
        for program in first, second:
            program.end()
        self.until(lambda: not self.broker.list()["shares"])
        forced = self.program("a-uid", GPU_CORE_UTILIZATION_POLICY="force", **variables)
        self.assertEqual(forced("total()"), 8192)
        (share,) = self.broker.list()["shares"]
        self.assertEqual((share["guarantee"], share["cap"]), (0, 0.5))

    def test_a_device_that_the_specification_has(self):
        (pod,) = self.read("pod-cdi.yaml")
        import yaml
        (named,) = pod["metadata"]["annotations"].values()
        shares = [name for name in yaml.safe_load(named) if name.startswith("gpushare.dev/")]
        made = json.loads(self.broker.command("cdi", "generate", "--fractions", "4").stdout)
        self.assertIn(shares[0], [f"{made['kind']}={device['name']}" for device in made["devices"]])


class Unlisted(Brokers):
    config = "unlisted: true\n"

    def test_what_there_is_no_room_for_is_said_before_the_program_starts(self):
        def runs(*options):
            done = python("print('it ran')", *options, env=self.environment)
            return done.returncode, done.stdout, done.stderr

        program = self.program("a", GPUSHARE_SPEC="memory=12GiB,compute=60%")
        self.assertEqual(program("alloc(1)"), 0)
        for options, why in ((("--compute", "50%"), "compute: 50% asked, 40% not guaranteed"),
                             (("--memory", "8GiB", "--tenant", "b"), "memory: 8 GiB asked, ")):
            status, out, error = runs(*options)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(why, error)
        self.assertEqual(runs("--compute", "40%"), (0, "it ran\n", ""))
        # The message names this command's option, and not a variable that is not set.
        self.assertRegex(run("--broker", "/nowhere", "--", "true").stderr,
                         r"^gpushare run: no broker at '/nowhere': [^(]*; start one with .*, or name another by --broker\n")
        # The query leaves nothing behind.
        self.until(lambda: len(self.broker.list()["shares"]) == 1)
        program.end()
        self.until(lambda: not self.broker.list()["shares"])
        self.assertEqual(runs("--compute", "100%"), (0, "it ran\n", ""))

    # Otherwise the program's first allocation waits for what nobody has held.
    def test_what_was_only_asked_for_is_not_reclaimed(self):
        for _ in range(3):
            self.assertEqual(run("--tenant", "a", "--memory", "15GiB", "--", "true", env=self.environment).returncode, 0)
            self.assertEqual(sum(share["memory_reclaiming"] for share in self.broker.list()["shares"]), 0)


class Commands(Brokers):
    def share(self, tenant="online"):
        return next(share for share in self.broker.list()["shares"] if share["tenant"] == tenant)

    def command(self, *arguments, status=0):
        result = self.broker.command(*arguments)
        self.assertEqual(result.returncode, status, result)
        return result

    def test_what_programs_have_is_seen(self):
        first, second = self.program("online"), self.program("online")
        self.assertEqual((first("alloc(600)"), second("alloc(100)"), first("work(50, 1)")), (0, 0, 50))
        self.until(lambda: self.share()["launches"] >= 50 and self.share()["time_used_ns"] >= 45_000_000)
        share = self.share()
        self.assertEqual((share["memory_used"], share["memory_limit"]), (700 * MIB, 1024 * MIB))
        self.assertEqual({process["pid"]: process["memory_used"] for process in share["processes"]},
                         {first.process.pid: 600 * MIB, second.process.pid: 100 * MIB})
        self.assertIn("python", share["processes"][0]["program"])
        self.assertEqual(first("alloc(400)"), 2)
        self.until(lambda: self.share()["allocations_denied"] >= 1)
        metrics = self.command("metrics").stdout
        self.assertIn('gpushare_memory_used_bytes{device_uuid="%s",tenant="online"} %d\n'
                      % (share["gpu"], 700 * MIB), metrics)
        top = json.loads(self.command("top", "--json", "--once", "--interval", "0.1").stdout)
        self.assertEqual({each["tenant"] for each in top["shares"]}, {"online", "batch"})

    def test_options_that_do_not_count_are_said(self):
        program = "import program as p; p.context(); print(int(p.d.cuMemGetInfo()[2]) >> 20)"
        done = python(program, "--tenant", "online", "--memory", "512MiB", "--cap", "10%", env=self.environment)
        self.assertEqual((done.returncode, done.stdout), (0, "1024\n"), done)
        self.assertEqual(done.stderr, "gpushare run: memory=512MiB,cap=10% is not what counts: tenant 'online' has the broker's, "
                         "memory=1GiB,compute=50%\n")
        for options in ((), ("--memory", "1GiB", "--compute", "50%")):
            self.assertEqual(run("--tenant", "online", *options, "--", "true", env=self.environment).stderr, "")

    def doctor(self, **variables):
        done = subprocess.run([os.environ["GPUSHARE_COMMAND"], "doctor", "--gpu", "sim", "--json"], capture_output=True,
                              text=True, timeout=60, env={**self.environment, **variables})
        return done.returncode, [(each["subject"], each["found"], each["ok"]) for each in json.loads(done.stdout)]

    def test_doctor_shows_what_the_broker_gives(self):
        status, findings = self.doctor(GPUSHARE_TENANT="batch", GPUSHARE_SPEC="memory=512MiB")
        self.assertEqual(status, 0, findings)
        self.assertIn(("broker", f"'{self.broker.path}' (GPUSHARE_BROKER), as tenant 'batch'", True), findings)
        self.assertIn(("GPU 0", "memory=1GiB (the broker's share of the tenant)", True), findings)
        self.assertIn(("GPU 0", "memory=512MiB (GPUSHARE_SPEC), which the broker's overrides", True), findings)
        self.assertFalse(any("no limit is set" in found for _, found, _ in findings), findings)
        self.until(lambda: not any(share["processes"] for share in self.broker.list()["shares"]))  # the query's process is gone again

    def test_doctor_shows_what_the_broker_refuses(self):
        status, findings = self.doctor(GPUSHARE_TENANT="online", GPUSHARE_ON_BROKER_LOSS="perhaps")
        (said,) = [found for _, found, ok in findings if not ok]
        self.assertEqual((status, "GPUSHARE_ON_BROKER_LOSS: 'perhaps' given; allowed: open, closed" in said), (1, True))
        status, findings = self.doctor(GPUSHARE_TENANT="nobody")
        (said,) = [found for subject, found, ok in findings if subject == "broker" and not ok]
        self.assertEqual((status, "no tenant 'nobody'" in said), (1, True), findings)
        self.broker.process.kill()
        self.broker.process.wait()
        status, findings = self.doctor(GPUSHARE_TENANT="online")
        (said,) = [found for subject, found, ok in findings if not ok]
        self.assertEqual((status, f"no broker at '{self.broker.path}'" in said), (1, True), findings)

    def test_a_quota_changes_while_programs_run(self):
        program = self.program("online")
        self.assertEqual(program("alloc(600)"), 0)
        self.command("set", "online", "memory=700MiB")
        self.until(lambda: program("total()") == 700)
        # Memory that it was granted stays usable until it has given it back.
        self.until(lambda: self.share()["memory_granted"] == 700 * MIB)
        self.assertEqual(program("alloc(200)"), 2)
        self.command("set", "online", "memory=900MiB")
        self.until(lambda: program("alloc(200)") == 0)

    def test_whoever_is_asked_says_what_the_quota_is_now(self):
        program = self.program("online")
        ways = ["total()", "of_device()"] + (["of_nvml()"] if importlib.util.find_spec("pynvml") else [])
        self.assertEqual([program(way) for way in ways], [1024] * len(ways))
        for mib in 2048, 512:
            self.command("set", "online", f"memory={mib}MiB")
            self.until(lambda: program("total()") == mib)
            self.assertEqual([program(way) for way in ways], [mib] * len(ways))

    def test_a_suspended_tenant_waits(self):
        program, other = self.program("online"), self.program("batch")
        self.assertEqual(program("work(5, 1)"), 5)
        self.command("suspend", "online")
        program.process.stdin.write("work(200, 1)\n")
        program.process.stdin.flush()
        self.assertEqual(other("work(20, 1)"), 20)
        self.assertEqual(select.select([program.process.stdout], [], [], 0.5)[0], [])
        self.command("resume", "online")
        self.assertEqual(program.process.stdout.readline(), "200\n")

    def test_drained_means_that_they_have_left(self):
        program = self.program("online")
        self.assertEqual(program("alloc(100)"), 0)
        late = self.command("drain", "online", "--timeout", "0.2", status=7)
        self.assertIn("online: %d (" % program.process.pid, late.stderr)
        self.assertEqual(self.initializes(GPUSHARE_TENANT="online"), "802\n")
        refused = run("--tenant", "online", "--", "true", env=self.environment)
        self.assertEqual((refused.returncode, refused.stderr), (1, "gpushare run: tenant 'online' is being drained\n"))
        program.end()
        self.command("drain", "online")
        self.assertEqual(self.share()["memory_used"], 0)
        self.command("drain", "online", "--undo")
        self.assertEqual(self.initializes(GPUSHARE_TENANT="online"), "0\n")

    def test_what_an_evicted_program_launches_is_refused(self):
        waits, later = self.program("online"), self.program("online")
        self.assertEqual((waits("work(5, 1)"), later("work(5, 1)")), (5, 5))
        self.command("suspend", "online")
        waits.process.stdin.write("launched_until_refused()\n")
        waits.process.stdin.flush()
        self.assertEqual(select.select([waits.process.stdout], [], [], 0.3)[0], [])
        self.command("evict", "online")
        out_of_resources = 701
        self.assertEqual(waits.process.stdout.readline(), "%d\n" % out_of_resources)
        self.assertEqual(later("launched_until_refused()"), out_of_resources)
        self.assertEqual(later("int(launch(kernel, 1)[0])"), out_of_resources)
        self.assertEqual((later("int(d.cuCtxSynchronize()[0])"), later("alloc(2000)")), (0, 2))  # the driver's own; no more memory

    def test_an_evicted_program_that_lives_on_is_not_called_gone(self):
        program = self.program("online")
        self.assertEqual(program("alloc(100)"), 0)
        self.assertIn(" evicted, its memory is not free yet\n", self.command("evict", "online").stdout)
        (process,) = self.share()["processes"]
        self.assertEqual((process["gone"], process["evicted"], process["memory_used"]), (True, True, 1024 * MIB))
        program.end()
        self.until(lambda: not self.share()["processes"])

    def trace(self, file, *options):
        """Starts `gpushare trace` and waits until it records."""
        process = subprocess.Popen([os.environ["GPUSHARE_COMMAND"], "trace", file, "--socket", self.broker.path, *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        self.broker.until("trace_begins")
        return process

    def test_a_trace_has_grants_waits_and_memory(self):
        first, second = self.program("online"), self.program("batch")
        self.assertEqual(first("alloc(100)"), 0)  # before the change
        file, other = os.path.join(self.folder.name, "trace.json"), os.path.join(self.folder.name, "batch.json")
        trace = self.trace(file, "--json")
        self.assertEqual(second("alloc(50)"), 0)
        working = [program.process for program in (first, second)]
        for process in working:
            process.stdin.write("work(120, 1)\n")
            process.stdin.flush()
        self.assertEqual([process.stdout.readline() for process in working], ["120\n"] * 2)
        self.assertEqual(first("alloc(2000)"), 2)
        self.until(lambda: self.share()["allocations_denied"] >= 1)
        begun = time.monotonic()
        said = self.command("trace", other, "--seconds", "0.1", "--tenant", "batch").stdout
        self.assertRegex(said, r"events of 1 tenants in [0-9.]+ s")
        lasted = float(re.search(r" in ([0-9.]+) s", said)[1])
        self.assertTrue(0.1 <= lasted <= time.monotonic() - begun + 0.05, said)  # the output is rounded
        with open(other) as text:
            self.assertNotIn("online", text.read())
        nobody = self.command("trace", other, "--seconds", "0.1", "--tenant", "nobody")
        self.assertEqual(nobody.stderr, "gpushare trace: nothing was seen of tenant 'nobody'\n")
        trace.send_signal(signal.SIGINT)
        out, error = trace.communicate(timeout=30)
        self.assertEqual((trace.returncode, error), (0, ""))
        told = json.loads(out)
        self.assertEqual((told["file"], told["lost"], told["tenants"]), (file, 0, ["batch", "online"]))
        with open(file) as text:
            events = json.load(text)["traceEvents"]
        threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        of_kind = lambda kind: [event for event in events if event.get("cat") == kind]  # noqa: E731
        for name, program, held in (("online", first, 100), ("batch", second, 50)):
            known = f"{name} [{program.process.pid}]"
            grants = [each["args"]["hint_ns"] for each in of_kind("lease") if threads[each["tid"]] == known + ": leases"]
            self.assertGreaterEqual(sum(grants), 120_000_000, threads)
            self.assertEqual([each["args"]["bytes"] for each in events if each["name"] == f"memory of {known}"][-1], held * MIB)
        self.assertTrue(of_kind("wait"))  # both wanted the device
        self.assertEqual([each["args"]["refusals"] for each in of_kind("denied")], [1])

    def test_the_trace_of_a_broker_that_ends_is_written(self):
        program = self.program("online")
        self.assertEqual(program("alloc(100)"), 0)
        file = os.path.join(self.folder.name, "trace.json")
        trace = self.trace(file)
        self.broker.signal(signal.SIGTERM)
        out, error = trace.communicate(timeout=30)
        self.assertEqual(trace.returncode, 6, error)
        self.assertIn("of 1 tenants", out)
        with open(file) as text:
            self.assertIn(f"memory of online [{program.process.pid}]", text.read())

    def test_a_device_of_a_container_is_a_tenant(self):
        document = json.loads(self.command("cdi", "generate", "--tenant", "batch").stdout)
        edits = document["containerEdits"]
        environment = dict(each.split("=", 1) for each in edits["env"] + document["devices"][0]["containerEdits"]["env"])
        # Replaces container paths by host paths, as if they were mounted.
        for mount in edits["mounts"]:
            environment = {name: value.replace(mount["containerPath"] + "/", mount["hostPath"] + "/")
                           for name, value in environment.items()}
        program = self.start_program(environment)
        self.assertEqual((program("total()"), program("alloc(1000)"), program("alloc(100)")), (1024, 0, 2))
        self.assertEqual(self.share("batch")["processes"][0]["pid"], program.process.pid)


if __name__ == "__main__":
    unittest.main()
