# SPDX-License-Identifier: Apache-2.0
"""Runs the Python examples as a reader would, on the simulated GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"

if not EXAMPLES.is_dir():
    pytest.skip("the examples are not beside these tests", allow_module_level=True)


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"scripts/setup installs {', '.join(missing)}")


def run(path: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLES / path), *arguments], capture_output=True, text=True,
                          timeout=50, env={**os.environ, "MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@needs("fastapi", "uvicorn", "httpx")
def test_two_models_in_one_server(tmp_path):
    trace = tmp_path / "trace.json"
    out = run("05_fastapi_two_models/server.py", "--gpu", "sim", "--seconds", "1.5", "--trace", str(trace))
    times = r"p50 +([\d.]+) +p99 +([\d.]+) ms"
    rows = re.findall(rf"^(with|without) +gpushare +(chat|batch) +(\d+) answers +{times} +in the server {times}$", out, re.M)
    assert [row[:2] for row in rows] == [("without", "chat"), ("without", "batch"), ("with", "chat"), ("with", "batch")]
    # An open loop: the same requests both times, all answered, and none faster than the GPU can.
    assert rows[0][2] == rows[2][2] and int(rows[0][2]) > 20
    in_server = {}
    for how, name, _, p50, p99, server_p50, server_p99 in rows:
        assert {"chat": 2.0, "batch": 30.0}[name] <= float(server_p50) <= float(p50) <= float(p99)
        assert float(server_p50) <= float(server_p99) <= float(p99)
        in_server[how, name] = float(server_p50)
    # Without gpushare: four layers, each behind those of four documents: 34 ms. With gpushare: the running layer and
    # its own: 4 ms. On the wall clock only the order is certain on a busy machine.
    assert in_server["without", "chat"] > 20 and in_server["with", "chat"] < in_server["without", "chat"]
    # 1.5 s of load and what was still queued then. On the virtual clock it would be hours.
    used = [float(seconds) for seconds in re.findall(r"([\d.]+) s of device time$", out, re.M)]
    assert len(used) == 2 and 0 < sum(used) < 15
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {"lease", "device"}


@needs("fastapi", "uvicorn")
def test_the_server_refuses_the_virtual_clock():
    environment = {**os.environ, "GPUSHARE_DRIVER": "sim", "GPUSHARE_SIM": "clock=virtual"}
    done = subprocess.run([sys.executable, str(EXAMPLES / "05_fastapi_two_models/server.py")], capture_output=True,
                          text=True, timeout=50, env=environment)
    assert done.returncode == 2 and "set GPUSHARE_SIM=clock=wall" in done.stderr


@needs("matplotlib")
def test_training(tmp_path):
    plot, trace = tmp_path / "training.png", tmp_path / "trace.json"
    out = run("06_training/train.py", "--gpu", "sim", "--plot", str(plot), "--trace", str(trace))
    assert "batch 512: 12288 MiB asked, 7168 MiB left of the quota" in out
    assert re.search(r"^100 steps of 256 samples in \d\.\d\d s", out, re.M)
    shares = {name: int(share) for name, share in re.findall(r"^(\w+) +(\d+)% of the device", out, re.M)}
    # 60 % and 40 % are promised. What the trainer leaves unused at its checkpoints goes to others.
    assert shares["trainer"] == pytest.approx(58, abs=6) and shares["service"] == pytest.approx(40, abs=6)
    assert plot.read_bytes().startswith(b"\x89PNG") and json.loads(trace.read_text())["traceEvents"]


@needs("nbclient", "ipykernel", "matplotlib")
def test_the_notebook(tmp_path):
    # In a new interpreter, because the client has an event loop and a kernel process.
    program = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
nbclient.NotebookClient(notebook, timeout=40, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""
    out = tmp_path / "executed.ipynb"
    notebook = EXAMPLES / "07_notebook/sharing.ipynb"
    folders = {"IPYTHONDIR": "ipython", "MPLCONFIGDIR": "matplotlib", "JUPYTER_RUNTIME_DIR": "jupyter"}
    environment = {**os.environ, "JUPYTER_PATH": "", **{name: str(tmp_path / path) for name, path in folders.items()}}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(notebook), str(out)],
                          capture_output=True, text=True, timeout=55, env=environment)
    assert done.returncode == 0, done.stderr
    outputs = [output for cell in json.loads(out.read_text())["cells"] for output in cell.get("outputs", [])]
    text = "".join("".join(output.get("text", "")) for output in outputs)
    assert "3 GiB asked, 2 GiB left of its memory quota of 8 GiB" in text
    used = {name: float(seconds) for name, seconds in re.findall(r"^(\w+): ([\d.]+) s of device time", text, re.M)}
    assert sum(used.values()) == pytest.approx(0.4, abs=0.01)
    # 60 % of the 0.2 s in which both launch, plus up to the burst of 20 ms, within two kernels. The rest goes to train.
    assert 0.2 * 0.6 - 0.002 <= used["online"] <= 0.2 * 0.6 + 0.02 + 0.002
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds


def test_a_policy_in_python():
    out = run("08_python_policy/policy.py")
    assert out == run("08_python_policy/policy.py")  # the virtual clock makes every run the same
    rows = [[float(x.rstrip("%")) for x in line.split()] for line in out.splitlines()[1:]]
    assert len(rows) == pytest.approx(12, abs=1)
    share = {int(row[0]): row[2::2] for row in rows}
    # b pauses from 0.2 s to 0.4 s, epochs 5 to 8; meanwhile the others get its share.
    assert share[6][1] <= 5 and share[3][1] > 15 and share[11][1] > 15
    assert share[3][0] < share[3][1] < share[3][2]  # in the order of their backlogs
