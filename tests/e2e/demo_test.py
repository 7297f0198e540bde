#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare demo` on the simulated GPU: what it prints, writes and answers to wrong input.

Figures are of the virtual clock, so a failure is a change of behaviour, not noise.
"""
import fcntl
import json
import os
import pathlib
import pty
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import unittest
import xml.etree.ElementTree

COMMAND = os.environ["GPUSHARE_COMMAND"]
SECONDS = 3


def run(*arguments, environment=None):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=200,
                          env={**os.environ, **(environment or {})}, check=False)


def demo(*arguments, **keywords):
    return run("demo", "--gpu", "sim", "--seconds", str(SECONDS), *arguments, **keywords)


class DemoInterrupted(unittest.TestCase):
    def test_ctrl_c_ends_it_where_the_shell_had_it_ignored(self):
        process = subprocess.Popen(
            [COMMAND, "demo", "--gpu", "sim", "--seconds", "3600", "--progress"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        try:
            self.assertIn("%", process.stderr.readline())  # the run has started
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(out, "")
        self.assertIn("gpushare demo: interrupted", err)


class DemoRun(unittest.TestCase):
    """One run, whose results are checked in all respects."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.json_path = pathlib.Path(cls.folder.name, "out.json")
        cls.plot_path = pathlib.Path(cls.folder.name, "out.svg")
        cls.result = demo("--json", str(cls.json_path), "--plot", str(cls.plot_path))
        if cls.result.returncode != 0:
            raise AssertionError(f"gpushare demo: {cls.result.returncode}\n{cls.result.stderr}")
        cls.report = json.loads(cls.json_path.read_text())
        cls.tenants = {tenant["name"]: tenant for tenant in cls.report["tenants"]}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_stdout_has_the_tables_and_stderr_nothing(self):
        for word in ["tenant", "asked", "online", "train-a", "train-b", "batch", "denied", "throttled",
                     "p99", "Device busy"]:
            self.assertIn(word, self.result.stdout)
        self.assertEqual(self.result.stderr, "")  # without a terminal there is no progress

    def test_stdout_fits_eighty_columns(self):
        for line in self.result.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_same_seed_same_output(self):
        again = demo("--json", str(self.json_path) + ".again")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, self.result.stdout)
        self.assertEqual(pathlib.Path(str(self.json_path) + ".again").read_text(),
                         self.json_path.read_text())

    def test_guarantees_hold_while_all_are_there(self):
        # The windows are short (about 1 s) and jobs wait for the device after each iteration: tolerance 2.5 points.
        for phase in (0, 2):
            for name in ("train-a", "train-b"):
                tenant = self.tenants[name]
                self.assertGreater(tenant["got"][phase], tenant["asked"] - 0.025, (name, phase))

    def test_a_stopped_tenants_share_is_lent_and_returns(self):
        away = self.tenants["train-a"]
        self.assertLess(away["got"][1], 0.001)
        lent = sum(self.tenants[name]["got"][1] - self.tenants[name]["got"][0]
                   for name in ("train-b", "batch"))
        self.assertGreater(lent, 0.9 * away["got"][0])
        self.assertGreater(away["got"][2], away["asked"] - 0.025)

    def test_shares_are_parts_of_one_device(self):
        for phase in range(3):
            total = sum(tenant["got"][phase] for tenant in self.tenants.values())
            self.assertLessEqual(total, 1.001)
            self.assertGreater(total, 0.9)

    def test_the_meter_agrees_with_the_device(self):
        # Four tenants whose kernels overlap: 4 points (the bound is 2.5 for three tenants, and 3.5 for sixteen).
        for tenant in self.tenants.values():
            for got, metered in zip(tenant["got"], tenant["metered"]):
                self.assertAlmostEqual(got, metered, delta=0.04, msg=tenant["name"])

    def test_the_service_keeps_its_latency(self):
        alone, shared = (self.report["latency"][key] for key in ("alone", "shared"))
        self.assertEqual(alone["requests"], shared["requests"])
        self.assertGreater(alone["requests"], 100)
        # 1.05 times, and one command that was running when the request arrived; the longest takes 0.5 ms.
        self.assertLess(shared["p99_s"], 1.05 * alone["p99_s"] + 0.0005)

    def test_memory_is_limited_and_denials_are_counted(self):
        for tenant in self.tenants.values():
            memory = tenant["memory"]
            self.assertLessEqual(memory["peak_bytes"], memory["limit_bytes"])
            self.assertGreater(memory["peak_bytes"], 0.59 * memory["limit_bytes"])
        # Once a second while it is present: at 1 s, and within its first pass after 1.8 s.
        self.assertEqual(self.tenants["train-a"]["memory"]["denied"], 2)
        self.assertEqual(self.tenants["batch"]["memory"]["denied"], 1)
        self.assertEqual(self.tenants["online"]["memory"]["denied"], 0)

    def test_the_device_is_busy(self):
        self.assertGreater(self.report["device"]["busy"], 0.95)

    def test_plot_is_well_formed_and_complete(self):
        root = xml.etree.ElementTree.parse(self.plot_path).getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, space + "svg")
        self.assertEqual(len(root.findall(space + "polyline")), 4)
        texts = [text.text for text in root.iter(space + "text")]
        for name in self.tenants:
            self.assertIn(name, texts)
        self.assertTrue(any("stopped" in text for text in texts))


class DemoOptions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def trace(self, text):
        path = pathlib.Path(self.folder.name, "trace.csv")
        path.write_text(text)
        return str(path)

    def test_another_seed_is_another_run(self):
        first, second = (run("demo", "--gpu", "sim", "--seconds", "1", "--seed", seed) for seed in "12")
        self.assertEqual((first.returncode, second.returncode), (0, 0))
        self.assertNotEqual(first.stdout, second.stdout)

    def test_traces_replace_the_workloads_in_order(self):
        path = self.trace("kernel,bound,sms,duration_ns\n" + "gemm,compute,132,40000\nadd,memory,40,9000\n" * 9)
        result = run("demo", "--gpu", "sim", "--seconds", "1", "--trace", path, "--trace", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line.split() for line in result.stdout.splitlines()]
        for name, workload in (("online", "trace"), ("train-a", "trace"), ("train-b", "BERT-base")):
            self.assertIn([name, workload], [line[:2] for line in lines])

    def test_progress_on_request(self):
        result = run("demo", "--gpu", "sim", "--seconds", "1", "--progress")
        self.assertEqual(result.returncode, 0)
        self.assertIn("[####", result.stderr)
        self.assertIn("100 %", result.stderr)

    @staticmethod
    def on_terminal(columns, term):
        """The output of a short run on a terminal of the given width."""
        terminal, stderr = pty.openpty()
        fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        process = subprocess.Popen([COMMAND, "demo", "--gpu", "sim", "--seconds", "1"], stdout=subprocess.DEVNULL,
                                   stderr=stderr, env={**os.environ, "TERM": term})
        os.close(stderr)
        got = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other side is closed
                piece = b""
            if not piece:
                break
            got += piece
        os.close(terminal)
        assert process.wait(200) == 0, got
        return got.decode()

    def test_progress_fits_the_terminal(self):
        for columns in (40, 100):
            shown = self.on_terminal(columns, "xterm")
            self.assertIn("%", shown)
            for line in shown.split("\r"):
                self.assertLess(len(line.replace("\x1b[2K", "").rstrip("\n")), columns, line)
        self.assertEqual(self.on_terminal(80, "dumb"), "")

    def test_fixed_share_is_a_ceiling(self):
        result = demo("--policy", "fixed-share", "--json", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        tenants = {tenant["name"]: tenant for tenant in json.loads(result.stdout)["tenants"]}
        for phase in range(3):  # also while the other one is away
            self.assertLess(tenants["train-b"]["got"][phase], 0.325)
        self.assertGreater(tenants["batch"]["got"][1], 0.35)

    def test_every_policy_runs(self):
        for policy in run("policies").stdout.split():
            result = run("demo", "--gpu", "sim", "--seconds", "1", "--policy", policy)
            self.assertEqual(result.returncode, 0, (policy, result.stderr))

    def expect(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_bad_traces_name_file_line_and_field(self):
        path = self.trace("kernel,bound,sms,duration_ns\na,memory,0,5\n")
        self.expect(demo("--trace", path), 4, path + ":2", "sms", "1 to 1000000")
        self.expect(demo("--trace", self.trace("")), 4, "empty")
        self.expect(demo("--trace", path + ".none"), 4, "trace.csv.none")
        self.expect(demo("--trace", self.folder.name), 4, self.folder.name)

    def test_bad_options_are_usage_errors(self):
        self.expect(demo("--policy", "no-such"), 2, "no-such", "best-effort", "fixed-share")
        self.expect(demo("--no-such"), 2, "no-such")
        self.expect(run("demo", "--gpu", "sim", "--seconds", "0"), 2, "seconds")
        self.expect(run("demo", "--gpu", "sim", "--seconds", "nan"), 2, "seconds")
        self.expect(run("demo", "--gpu", "sim", "--seconds", "1e9"), 2, "seconds")
        self.expect(run("demo", "--gpu", "paper"), 2, "'paper' given, real, sim or auto allowed")
        self.expect(run("probe", "--gpu", "2"), 2, "'2' given, real, sim or auto allowed")
        for seed in ("-1", "9223372036854775808", "abc", ""):
            self.expect(demo("--seed", seed), 2, "seed")
        self.expect(demo(*["--trace", "x"] * 5), 2, "trace")
        self.expect(run(), 2, "demo, probe")
        self.expect(run("frobnicate"), 2, "frobnicate")

    def test_no_gpu_says_how_to_get_one(self):
        # A driver that was named is not ignored silently.
        missing = {"GPUSHARE_DRIVER": "/nonexistent/libcuda.so.1"}
        for command in (["demo", "--gpu", "real"], ["demo", "--gpu", "auto"], ["demo"], ["probe"]):
            self.expect(run(*command, environment=missing), 3, "/nonexistent/libcuda.so.1", "--gpu sim")
        # Nor does the loader wait for somebody to write to it.
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "libcuda.so.1")
            os.mkfifo(fifo)
            self.expect(run("probe", environment={"GPUSHARE_DRIVER": fifo}), 3, fifo + ": it is not a file", "--gpu sim")
        # A user of the simulated GPU is not advised to use it.
        lost = {"GPUSHARE_DRIVER": "sim", "GPUSHARE_SIM_DRIVER": "/nonexistent/sim.so"}
        result = run("probe", environment=lost)
        self.expect(result, 3, "/nonexistent/sim.so")
        self.assertNotIn("--gpu sim", result.stderr)
        self.assertNotIn("GPUSHARE_DRIVER=sim", result.stderr)

    def test_auto_takes_the_simulated_gpu_where_there_is_none(self):
        unset = {"GPUSHARE_DRIVER": ""}
        if run("probe", "--gpu", "real", environment=unset).returncode == 0:
            self.skipTest("this machine has a GPU")
        result = run("demo", "--seconds", "1", environment=unset)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("on the simulated GPU, because there is no NVIDIA driver", result.stderr)
        result = run("probe", environment=unset)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("of the simulated GPU, because there is no NVIDIA driver", result.stderr)
        # The requested GPU is used, and not another one.
        two = {**unset, "GPUSHARE_SIM": "devices=2"}
        self.assertIn("02:00.0", run("probe", "--device", "1", environment=two).stdout)
        self.expect(run("probe", "--device", "99", environment=unset), 3, "'99'", "simulated GPU was taken because there is no NVIDIA driver")

    def test_a_wrong_environment_is_wrong_usage(self):
        for variable, value in (("GPUSHARE_MEMORY_RESERVE", "-1"), ("GPUSHARE_MEMORY_RESERVE", "200GiB"),
                                ("GPUSHARE_SIM", "memry=3")):
            result = run("probe", environment={"GPUSHARE_DRIVER": "sim", variable: value})
            self.expect(result, 2, variable)
            self.assertEqual(result.stderr.count(variable), 1)

    def test_trace_out(self):
        report, trace = (pathlib.Path(self.folder.name, name) for name in ("traced.json", "trace.json"))
        plain = run("demo", "--gpu", "sim", "--seconds", "1")
        result = run("demo", "--gpu", "sim", "--seconds", "1", "--json", str(report), "--trace-out", str(trace))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, plain.stdout)  # the plot does not change the results
        data = json.loads(trace.read_text())
        self.assertEqual(data["otherData"]["lost"], 0)
        threads = {event["tid"]: event["args"]["name"] for event in data["traceEvents"]
                   if event["name"] == "thread_name"}
        for tenant in json.loads(report.read_text())["tenants"]:
            waits = [event["dur"] for event in data["traceEvents"] if event["ph"] == "X" and
                     threads[event["tid"]].startswith(tenant["name"] + ": waits") and event["name"] != "gave up"]
            self.assertEqual(len(waits), tenant["waits"])
            self.assertAlmostEqual(sum(waits) / 1e6, tenant["throttled_s"], places=6)
        same = str(pathlib.Path(self.folder.name, "same"))
        self.expect(run("demo", "--gpu", "sim", "--json", same, "--trace-out", same), 2, same)

    def test_unwritable_output(self):
        result = run("demo", "--gpu", "sim", "--seconds", "1", "--json", "/nonexistent/out.json")
        self.assertEqual(result.returncode, 5)
        self.assertIn("/nonexistent/out.json", result.stderr)
        self.assertEqual(result.stdout, "")  # detected before the run
        self.expect(run("demo", "--gpu", "sim", "--seconds", "1", "--plot", self.folder.name), 5, self.folder.name)
        same = str(pathlib.Path(self.folder.name, "out"))
        self.expect(run("demo", "--gpu", "sim", "--seconds", "1", "--json", same, "--plot", same), 2, same)
        self.expect(run("demo", "--gpu", "sim", "--seconds", "1", "--json", ""), 2, "--json")
        self.assertFalse(pathlib.Path(same).exists())

    def test_full_disk(self):
        path = pathlib.Path(self.folder.name, "out.svg")
        with open("/dev/full", "w", encoding="utf-8") as full:
            for arguments in (["demo", "--gpu", "sim", "--seconds", "1", "--plot", str(path)],
                              ["probe", "--gpu", "sim"], ["policies"], ["version"], ["--help"], ["--version"],
                              ["completion", "bash"]):
                result = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                        timeout=200, check=False)
                self.assertEqual(result.returncode, 5, arguments)
                self.assertIn("cannot write standard output: No space left on device", result.stderr)
        self.assertIn("</svg>", path.read_text())  # the other output is written all the same
        result = demo("--json", "/dev/full")
        self.assertEqual(result.returncode, 5)
        self.assertIn("/dev/full: No space left", result.stderr)

    def test_any_file_name_gives_valid_json(self):
        path = os.path.join(os.fsencode(self.folder.name), b'a"\xff\x01.csv')
        with open(path, "w", encoding="utf-8") as trace:
            trace.write("kernel,bound,sms,duration_ns\na,memory,40,900000\n")
        out = pathlib.Path(self.folder.name, "out.json")
        result = subprocess.run([COMMAND, "demo", "--gpu", "sim", "--seconds", "1", "--quiet", "--trace", path,
                                 "--json", str(out)], capture_output=True, timeout=200, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(out.read_text())["tenants"][0]["workload"], 'a"\ufffd\x01')


    def test_a_host_without_memory_ends_with_a_message(self):
        trace = self.trace("kernel,bound,sms,duration_ns\na,memory,1,20000\n")

        def leave_little():
            resource.setrlimit(resource.RLIMIT_AS, (240 << 20, 240 << 20))

        # 9 million requests take up to 192 MiB while they are generated.
        result = subprocess.run([COMMAND, "demo", "--gpu", "sim", "--seconds", "3600", "--load", "0.05", "--trace",
                                 trace], preexec_fn=leave_little, capture_output=True, text=True, timeout=200,
                                check=False)
        self.expect(result, 1, "no memory left")


class SmallCommands(unittest.TestCase):
    def test_policies(self):
        result = run("policies")
        self.assertEqual(result.returncode, 0)
        names = result.stdout.split()
        for name in ("best-effort", "fixed-share", "burst-share", "fair-share"):
            self.assertIn(name, names)

    def test_version(self):
        self.assertRegex(run("version").stdout, r"^gpushare \d+\.\d+\.\d+\n$")

    def test_probe(self):
        result = run("probe", "--gpu", "sim")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("simulated", result.stdout)
        self.assertIn("132", result.stdout)

    def test_as_json(self):
        probe = json.loads(run("probe", "--gpu", "sim", "--json").stdout)
        self.assertEqual((probe["sm_count"], probe["simulated"], probe["mps_memory_limit"]), (132, True, None))
        self.assertIn({"name": "fixed-share"}, json.loads(run("policies", "--json").stdout))
        self.assertRegex(json.loads(run("version", "--json").stdout)["version"], r"^\d+\.\d+\.\d+$")

    def test_a_mistyped_command_names_the_one_that_is_like_it(self):
        result = run("lsit")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'list'", result.stderr)
        self.assertIn("gpushare: no command is called 'frob\\x1b'\n", run("frob\x1b").stderr)
        self.assertEqual(run("bench", "shwo").stderr, "gpushare bench: no command is called 'shwo'\n"
                         "Run with --help for all of them.\nIs 'show' meant?\n")
        self.assertIn("gpushare bench: A subcommand is required\n", run("bench").stderr)
        self.assertNotIn("meant", run("--lsit").stderr)
        self.assertNotIn("meant", run("list", "--lsit").stderr)
        self.assertEqual(run("cdi", "generate", "--fracttions=3").stderr,
                         "gpushare cdi generate: The following argument was not expected: --fracttions=3\n"
                         "Run with --help for more information.\nIs '--fractions' meant?\n")
        self.assertIn("Is '--memory' meant?", run("run", "--memroy", "8GiB", "--", "true", "--capp").stderr)

    def test_without_its_benchmarks_the_command_says_where_they_come_from(self):
        with tempfile.TemporaryDirectory() as prefix:  # as in a wheel
            alone = pathlib.Path(prefix, "bin", "gpushare")
            alone.parent.mkdir()
            shutil.copy2(os.path.realpath(COMMAND), alone)
            done = subprocess.run([alone, "bench", "scenarios"], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "install gpushare with CMake\n$")
        self.assertEqual(done.stderr.count("share/gpushare/scenarios"), 1)

    def test_a_reader_that_has_had_enough_is_no_news(self):
        reads, writes = os.pipe()
        os.close(reads)
        done = subprocess.run([COMMAND, "completion", "bash"], stdout=writes, stderr=subprocess.PIPE, timeout=60,
                              restore_signals=False, check=False)  # like a child of a parent that ignores SIGPIPE, as Python does
        os.close(writes)
        self.assertEqual((done.returncode, done.stderr), (5, b""))

    def test_help(self):
        for arguments in (["--help"], ["demo", "--help"], ["probe", "--help"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("--gpu" if len(arguments) > 1 else "demo", result.stdout)
        self.assertRegex(run("probe", "--help").stdout, r"--gpu real\|sim\|auto=auto")


if __name__ == "__main__":
    unittest.main()
