# SPDX-License-Identifier: Apache-2.0
"""On a GPU: the traces that `gpushare bench record` makes of kernels with known lengths, and of a small network in PyTorch.

GPUSHARE_COMMAND names the command. If GPUSHARE_TRACES is set, a trace of an iteration of the network is kept there. The first test
does not need a real GPU: with GPUSHARE_DRIVER=sim it runs on the simulated one.
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

SPIN = """
    import ctypes, os, sys
    driver = ctypes.CDLL(os.environ["GPUSHARE_TEST_DRIVER"])
    PTX = b'''.version 7.0
    .target sm_70
    .address_size 64
    //gpushare.sim cost=param:0 blocks_per_sm=1
    .visible .entry spin(.param .u64 spin_param_0)
    {
      .reg .pred %p<1>;
      .reg .b64 %rd<4>;
      ld.param.u64 %rd0, [spin_param_0];
      mov.u64 %rd1, %globaltimer;
    SPIN:
      mov.u64 %rd2, %globaltimer;
      sub.u64 %rd3, %rd2, %rd1;
      setp.lt.u64 %p0, %rd3, %rd0;
      @%p0 bra SPIN;
      ret;
    }
    '''
    def ok(result): assert result == 0, result
    context, module, function, stream = (ctypes.c_void_p() for _ in range(4))
    ok(driver.cuInit(0))
    ok(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(driver.cuCtxSetCurrent(context))
    ok(driver.cuModuleLoadData(ctypes.byref(module), PTX))
    ok(driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    ok(driver.cuStreamCreate(ctypes.byref(stream), 1))
    for ns in map(int, sys.argv[1:]):
        length = ctypes.c_uint64(ns)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
        ok(driver.cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream, parameters, None))
    ok(driver.cuCtxSynchronize())
"""

NETWORK = """
    import sys, torch
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)).cuda()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(32, 3, 64, 64, device="cuda"), torch.randint(10, (32,), device="cuda")
    def step():
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        sgd.step()
    for _ in range(20): step()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20): step()
    end.record()
    torch.cuda.synchronize()
    print(begin.elapsed_time(end) / 20)
"""


@pytest.fixture
def record(tmp_path):
    """record(program, arguments...) returns the program's output, and its kernels as (name, sms, ns)."""
    command = os.environ.get("GPUSHARE_COMMAND")
    if not command:
        pytest.skip("GPUSHARE_COMMAND does not name the command")

    def run(program, *arguments, options=(), out=tmp_path / "trace.csv"):
        done = subprocess.run([command, "bench", "record", "--out", out, "--force", *options, "--", sys.executable, "-c",
                               textwrap.dedent(program), *map(str, arguments)], capture_output=True, text=True, timeout=300)
        print(done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [row.rsplit(",", 3) for row in out.read_text().splitlines()[1:]]
        return done.stdout, [(name, int(sms), int(ns)) for name, _, sms, ns in rows]

    return run


def test_known_lengths(any_runtime, record, record_property, monkeypatch):
    driver = os.environ.get("GPUSHARE_DRIVER") or "libcuda.so.1"
    if any_runtime.simulated:
        driver = os.environ.get("GPUSHARE_SIM_DRIVER") or str(
            pathlib.Path(os.environ["GPUSHARE_COMMAND"]).parent.parent / "lib/gpushare/sim/libcuda.so.1")
    monkeypatch.setenv("GPUSHARE_TEST_DRIVER", driver)
    lengths = [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 2_000_000] * 25
    _, rows = record(SPIN, *lengths)
    assert [row[0] for row in rows] == ["spin"] * len(lengths)
    off = sorted(row[2] - asked for row, asked in zip(rows, lengths))
    record_property("median_off_ns", off[len(off) // 2])
    record_property("most_off_ns", max(off, key=abs))
    # A tick of the device's clock may be a microsecond. A kernel that lost its turn is an outlier caused by the
    # machine.
    within = sum(abs(each) <= 2_000 for each in off)
    assert within >= 0.95 * len(off), off
    assert abs(off[len(off) // 2]) <= 1_000, off


def test_a_network(runtime, framework, record, record_property, tmp_path):
    if not framework("torch", "torch").cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    bare = subprocess.run([sys.executable, "-c", textwrap.dedent(NETWORK)], capture_output=True, text=True, timeout=300)
    assert bare.returncode == 0, bare.stderr
    step_ms = float(bare.stdout)
    folder = pathlib.Path(os.environ.get("GPUSHARE_TRACES") or tmp_path)
    folder.mkdir(exist_ok=True)
    steps = {}
    for by in "events", "auto":  # CUPTI if it is installed
        _, rows = record(NETWORK, options=("--iteration", "--by", by), out=folder / f"torch-small-{by}.csv")
        steps[by] = sum(row[2] for row in rows) / 1e6
        record_property(f"kernels_{by}", len(rows))
        record_property(f"step_kernels_ms_{by}", steps[by])
        # Kernels that run one after the other take no longer than the whole step.
        assert len(rows) > 20, rows
        assert steps[by] <= 1.1 * step_ms, (steps, step_ms)
    record_property("step_bare_ms", step_ms)
    assert abs(steps["auto"] / steps["events"] - 1) <= 0.2, steps
