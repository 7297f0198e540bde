# SPDX-License-Identifier: Apache-2.0
"""PyTorch as it is, under the preloaded library: shares of the GPU's time over each second, by what each step takes
alone; and what a launch costs there."""

import json
import shutil
import subprocess
import threading

import preloaded
import pytest

SECONDS = 6

# Trains a network, or replays a graph of its step. The steps are long, so that the time that the host takes to begin one, in
# which the device idles, hardly counts. When told to, it measures a step alone, and then steps for
# the given time and reports the end of each step, by a clock that all processes share.
PROGRAM = """
    import json, sys, time, torch
    kind, width = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(6)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(2048, width, device="cuda")
    def train():
        optimizer.zero_grad(set_to_none=False)
        model(data).square().mean().backward()
        optimizer.step()
    def warm():
        for _ in range(5): train()
    step = train
    if kind == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side): warm()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): train()
        step = graph.replay
    else:
        warm()
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        what, length = line.split()
        torch.cuda.synchronize()
        begin, ends = time.monotonic(), []
        while time.monotonic() < begin + float(length):
            step()
            torch.cuda.current_stream().synchronize()
            ends.append(time.monotonic())
        print(json.dumps(ends if what == "log" else (ends[-1] - begin) / len(ends)), flush=True)
"""


class Training:
    def __init__(self, kind="train", width=2048, spec=None, **variables):
        self.process = subprocess.Popen([*preloaded.python(PROGRAM), kind, str(width)],
                                        env=preloaded.environment(spec, **variables), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", "it has not begun"

    def __call__(self, what, length):
        self.process.stdin.write(f"{what} {length}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def torch_on_gpu(framework, runtime):
    torch = framework("torch", "torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")


def alone(kind, width):
    """The time of a step without gpushare, on an otherwise idle GPU."""
    with Training(kind, width) as training:
        training("time", 1)
        return training("time", 2)


def in_seconds(ends, cost, begin):
    """The fraction of each whole second of device time that the steps took."""
    return [sum(begin + i <= end < begin + i + 1 for end in ends) * cost for i in range(1, SECONDS - 1)]


def test_two_trainings_share_70_to_30_over_each_second(torch_on_gpu, tmp_path, record_property):
    widths, tenants = (2048, 3072), ("a", "b")
    costs = [alone("train", width) for width in widths]
    logs = {}
    with preloaded.Broker(tmp_path, "a:weight=70", "b:weight=30") as broker:
        of = {"spec": "", "GPUSHARE_BROKER": broker.socket}
        with Training("train", widths[0], **of, GPUSHARE_TENANT="a") as first, \
                Training("train", widths[1], **of, GPUSHARE_TENANT="b") as second:
            def log(name, training):
                logs[name] = training("log", SECONDS)

            threads = [threading.Thread(target=log, args=each) for each in zip(tenants, (first, second))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    begin = max(logs[name][0] for name in tenants)
    used = [in_seconds(logs[name], cost, begin) for name, cost in zip(tenants, costs)]
    shares = [a / (a + b) for a, b in zip(*used)]
    record_property("share_least", min(shares))
    record_property("share_most", max(shares))
    record_property("busy_least", min(a + b for a, b in zip(*used)))
    # A step is the unit here, so a second is right to one step of each. The two also change each other's cost.
    tolerance = 0.02 + max(costs)
    assert all(abs(share - 0.7) <= tolerance for share in shares), shares


@pytest.mark.parametrize("kind", ["train", "graph"])
def test_a_cap_of_30_percent_holds_over_each_second(kind, torch_on_gpu, record_property):
    cost = alone(kind, 2048)
    with Training(kind, 2048, spec="cap=30%") as capped:
        ends = capped("log", SECONDS)
    parts = in_seconds(ends, cost, ends[0])
    record_property("part_least", min(parts))
    record_property("part_most", max(parts))
    assert all(0.25 <= part <= 0.31 + cost for part in parts), parts
    with Training(kind, 2048, spec="memory=8GiB") as free:  # to show that the test can fail
        ends = free("log", SECONDS)
    assert min(in_seconds(ends, cost, ends[0])) > 0.5


@pytest.fixture(scope="session")
def launch_program(tmp_path_factory, runtime):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("launch") / "launch"
    subprocess.run([compiler, "-O2", preloaded.SOURCES / "launch.c", "-o", program, "-ldl"], check=True)
    return program


def test_what_a_launch_costs_with_the_library_and_without(launch_program, record_property):
    bare, limited = [], []
    for _ in range(5):  # alternating, since clock rates vary
        bare.append(float(preloaded.run([launch_program])))
        limited.append(float(preloaded.run([launch_program], "memory=1GiB")))
    record_property("bare_ns", sorted(bare)[2])
    record_property("with_library_ns", sorted(limited)[2])
    # One of ten launches has a marker; the spread of a run is printed too.
    assert sorted(limited)[2] - sorted(bare)[2] <= 500 + (max(bare) - min(bare))
