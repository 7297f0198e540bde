#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gpushare cdi generate`: its output follows the Container Device Interface's specification 1.1.0."""

import json
import os
import re
import subprocess
import tempfile
import unittest

COMMAND = os.environ["GPUSHARE_COMMAND"]
LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
# Fields by the first version of the specification that has them.
SPEC = {"cdiVersion": "0.3.0", "kind": "0.3.0", "devices": "0.3.0", "containerEdits": "0.3.0", "annotations": "0.6.0"}
EDITS = {"env": "0.3.0", "deviceNodes": "0.3.0", "mounts": "0.3.0", "hooks": "0.3.0", "intelRdt": "0.7.0",
         "additionalGids": "0.7.0", "netDevices": "1.1.0"}
NODE = {"path": "0.3.0", "hostPath": "0.5.0", "type": "0.3.0", "major": "0.3.0", "minor": "0.3.0",
        "fileMode": "0.3.0", "permissions": "0.3.0", "uid": "0.3.0", "gid": "0.3.0"}
MOUNT = {"hostPath": "0.3.0", "containerPath": "0.3.0", "options": "0.3.0", "type": "0.4.0"}


def version(text):
    return tuple(int(part) for part in text.split("."))


class Rules:
    """Raises AssertionError for a document that a container engine may refuse."""

    def __init__(self, document):
        self.version = version(document["cdiVersion"])
        assert (0, 3, 0) <= self.version <= (1, 1, 0), self.version
        self.known(document, SPEC)
        vendor, name = document["kind"].split("/")
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", vendor), vendor
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", name), name
        assert document["devices"]
        names = [device["name"] for device in document["devices"]]
        assert len(set(names)) == len(names), names
        for device in document["devices"]:
            assert set(device) <= {"name", "containerEdits", "annotations"}, device
            assert re.fullmatch(LABEL, device["name"]), device
            if device["name"][0].isdigit():
                assert self.version >= (0, 5, 0)
            self.edits(device["containerEdits"])
        self.edits(document.get("containerEdits", {}))

    def known(self, given, fields):
        for field in given:
            assert self.version >= version(fields[field]), field

    def edits(self, edits):
        self.known(edits, EDITS)
        for variable in edits.get("env", []):
            assert re.fullmatch(r"[^=\0]+=[^\0]*", variable), variable
        for node in edits.get("deviceNodes", []):
            self.known(node, NODE)
            assert node["path"].startswith("/"), node
        for mount in edits.get("mounts", []):
            self.known(mount, MOUNT)
            assert mount["hostPath"].startswith("/") and mount["containerPath"].startswith("/"), mount


def generate(*arguments, environment=None):
    return subprocess.run([COMMAND, "cdi", "generate", *arguments], capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, **(environment or {})})


class Cdi(unittest.TestCase):
    def made(self, *arguments, **keywords):
        result = generate(*arguments, **keywords)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        document = json.loads(result.stdout)
        Rules(document)
        return document

    def test_tenants_are_devices(self):
        document = self.made("--tenant", "online", "--tenant", "batch", "--socket", "/run/g/b.sock")
        self.assertEqual(document["kind"], "gpushare.dev/vgpu")
        self.assertEqual([(device["name"], device["containerEdits"]["env"]) for device in document["devices"]],
                         [("online", ["GPUSHARE_TENANT=online"]), ("batch", ["GPUSHARE_TENANT=batch"])])
        edits = document["containerEdits"]
        self.assertIn("GPUSHARE_BROKER=/run/g/b.sock", edits["env"])
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
        self.assertEqual(mounts["/run/g"], "/run/g")
        # A mount provides the file that LD_PRELOAD names, and the files that it needs are beside it, as on the host.
        preload = next(each for each in edits["env"] if each.startswith("LD_PRELOAD=")).split("=")[1]
        folder, file = os.path.split(preload)
        self.assertTrue(os.path.isfile(os.path.join(mounts[folder], file)))
        engine = os.path.normpath(os.path.join(folder, "../.."))
        engines = [path for path in mounts if os.path.dirname(path) == engine and "libgpushare.so" in path]
        self.assertEqual(len(engines), 1)
        self.assertTrue(os.path.isfile(mounts[engines[0]]))
        self.assertTrue(all(mount["options"][0] == "ro" for mount in edits["mounts"]))

    def test_tenants_of_a_configuration(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("tenants: [{name: online}, {name: b.2}]\n")
            config.flush()
            document = self.made("--config", config.name, "--tenant", "online")
            self.assertEqual([device["name"] for device in document["devices"]], ["online", "b.2"])
            self.assertIn("GPUSHARE_BROKER=/run/gpushare/broker.sock", document["containerEdits"]["env"])
            config.write("tenants: []\n")
            config.flush()
            self.assertEqual(generate("--config", config.name).returncode, 2)
        self.assertEqual(generate("--config", "/nonexistent").returncode, 2)

    def test_the_socket_of_a_configuration(self):
        def edits(*options, **variables):
            edits = self.made("--config", config.name, *options, environment=variables)["containerEdits"]
            return edits["env"][0], edits["mounts"][-1]["hostPath"]

        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("socket: /srv/g/a.sock\ntenants: [{name: online}]\n")
            config.flush()
            self.assertEqual(edits(GPUSHARE_BROKER="/other/b.sock"), ("GPUSHARE_BROKER=/srv/g/a.sock", "/srv/g"))
            self.assertEqual(edits("--socket", "/run/c/d/../c.sock"), ("GPUSHARE_BROKER=/run/c/c.sock", "/run/c"))
        relative = generate("--tenant", "a", environment={"GPUSHARE_BROKER": "b.sock"})
        self.assertEqual((relative.returncode, "'b.sock' given; an absolute path" in relative.stderr), (2, True), relative)

    def test_fractions_fit_together(self):
        for count in 1, 3, 7, 100:
            devices = self.made("--fractions", str(count))["devices"]
            self.assertEqual(len(devices), count)
            shares = []
            for device in devices:
                spec = next(each for each in device["containerEdits"]["env"] if each.startswith("GPUSHARE_SPEC="))
                memory, compute = re.fullmatch(r"GPUSHARE_SPEC=memory=(.*)%,compute=(.*)%", spec).groups()
                self.assertEqual(memory, compute)
                shares.append(float(memory))
            self.assertLessEqual(sum(shares), 100 + 1e-9)
            self.assertGreater(sum(shares), 99)
            checked = subprocess.run([COMMAND, "run", "--gpu", "sim", "--spec", spec.split("=", 1)[1], "--", "true"],
                                     capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_the_drivers_device_nodes(self):
        with tempfile.TemporaryDirectory() as dev:
            for name in "nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia1x", "null":
                os.symlink("/dev/null", os.path.join(dev, name))
            os.mkdir(os.path.join(dev, "nvidia3"))
            nodes = self.made("--tenant", "a", "--dev", dev)["containerEdits"]["deviceNodes"]
            self.assertEqual([node["path"] for node in nodes],
                             ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl"])
            self.assertEqual(nodes[1]["hostPath"], os.path.join(dev, "nvidia0"))
        self.assertNotIn("deviceNodes", self.made("--tenant", "a", "--dev", "/nonexistent")["containerEdits"])

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gpushare.json")
            self.assertEqual(generate("--tenant", "a", "--output", path).stdout, "")
            with open(path, encoding="utf-8") as file:
                Rules(json.load(file))
            self.assertEqual(generate("--tenant", "a", "--output", folder + "/none/x").returncode, 5)
            said = json.loads(generate("--tenant", "a", "--output", path, "--json").stdout)
            self.assertEqual(said, {"file": path, "devices": ["gpushare.dev/vgpu=a"]})

    def test_what_is_wrong_is_refused(self):
        for arguments, why in (([], "there is no device"), (["--tenant", "a b"], "cannot be a device"),
                               (["--tenant", "-a"], "cannot be a device"), (["--tenant", "\u00fc"], "cannot be a device"),
                               (["--fractions", "101"], "101"), (["--tenant", "a", "--socket", "b.sock"], "absolute"),
                               (["--tenant", "a", "--socket", "/run/" + 81 * "b"], "80 bytes"), (["--tenant", "a", "--socket", "/run/"], "80 bytes"),
                               (["--tenant", "a", "--socket", b"/run/\xff/b.sock"], "/run/\\xff/b.sock")):
            result = generate(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(why, result.stderr)

    def test_a_folder_that_is_not_the_brokers_alone_is_not_mounted(self):
        for socket in "/b.sock", "/run/b.sock", "/tmp/b.sock", "/var/run//b.sock", "/run/g/../b.sock", "/run/../../b.sock":
            result = generate("--tenant", "a", "--socket", socket)
            self.assertEqual((result.returncode, result.stdout), (2, ""), socket)
            self.assertIn("is not the broker's alone", result.stderr)

    def test_the_rules_find_mistakes(self):
        good = self.made("--fractions", "2")
        for change in ({"cdiVersion": "0.3.0"}, {"kind": "vgpu/gpushare.dev/x"}, {"devices": []}, {"more": 1},
                       {"devices": good["devices"] * 2}, {"containerEdits": {"env": ["A"]}},
                       {"containerEdits": {"mounts": [{"hostPath": "a", "containerPath": "/a"}]}}):
            with self.assertRaises((AssertionError, KeyError, ValueError), msg=change):
                Rules({**good, **change})


if __name__ == "__main__":
    unittest.main()
