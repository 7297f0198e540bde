# SPDX-License-Identifier: Apache-2.0
"""gpushare.plot: the axes show what the counters say."""

import gpushare
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def serve(gpu, ptx, launches=60, names=("a", "b"), weights=(3, 1)):
    spin = gpu.load(ptx)["spin"]
    devices = [gpu.virtual_device(name, memory="4GiB", weight=weight)
               for name, weight in zip(names, weights, strict=True)]

    def work(device):
        buffer = device.alloc("1GiB")
        stream = device.stream()
        for _ in range(launches):
            stream.launch(spin, 100, 256, 1_000_000)
        stream.synchronize()
        buffer.close()

    threads = [gpu.runtime.start_thread(lambda device=device: work(device)) for device in devices]
    for thread in threads:
        thread.join()
    gpu.runtime.sleep(0.02)
    return devices


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def area(line):
    """The area under a step line drawn with where="pre"."""
    x, y = line.get_xdata(), line.get_ydata()
    return sum((x[i] - x[i - 1]) * y[i] for i in range(1, len(x)))


def test_from_snapshots(virtual_gpu, ptx):
    with gpushare.record(virtual_gpu, every="5ms") as recorder:
        devices = serve(virtual_gpu, ptx)
    stats = recorder.snapshots[-1]
    assert len(stats) == len(devices)
    shares = lines(gpushare.plot.shares(recorder))
    assert set(shares) == {"a", "b"}
    for name, line in shares.items():
        assert area(line) / 100 == pytest.approx(stats[name].charged, rel=1e-6)
    # While both launch, the ratio is three to one: 60 of a's kernels take until 80 ms.
    at = {name: line.get_ydata()[8] for name, line in shares.items()}
    assert at["a"] == pytest.approx(75, abs=10) and at["b"] == pytest.approx(25, abs=10)
    waits = lines(gpushare.plot.waits(recorder))
    for name, line in waits.items():
        assert area(line) == pytest.approx(stats[name].throttled, rel=1e-6)
    memory = gpushare.plot.memory(recorder)
    assert max(lines(memory)["a"].get_ydata()) == 1 and lines(memory)["a"].get_ydata()[-1] == 0
    limits = [line for line in memory.get_lines() if line.get_label() == "_limit"]
    assert len(limits) == 2 and set(limits[0].get_ydata()) == {4}


def test_from_a_trace(virtual_gpu, ptx):
    with gpushare.trace() as trace:
        devices = serve(virtual_gpu, ptx)
    stats = virtual_gpu.runtime.snapshot()
    assert len(stats) == len(devices)
    for plot, counter, scale in ((gpushare.plot.shares, "measured", 100), (gpushare.plot.waits, "throttled", 1)):
        for name, line in lines(plot(trace)).items():
            assert area(line) / scale == pytest.approx(getattr(stats[name], counter), rel=1e-6)
    assert max(lines(gpushare.plot.memory(trace))["a"].get_ydata()) == 1


def test_draws_where_it_is_told(virtual_gpu, ptx, tmp_path):
    from matplotlib.figure import Figure

    names = ("$x_1$", "_hidden")
    with gpushare.record(virtual_gpu, every="5ms") as recorder:
        devices = serve(virtual_gpu, ptx, launches=20, names=names)
    assert len(recorder.snapshots[-1]) == len(devices)
    figure = Figure(figsize=(8, 8), layout="constrained")
    top, middle, bottom = figure.subplots(3)
    assert gpushare.plot.shares(recorder, ax=top) is top
    gpushare.plot.memory(recorder, ax=middle)
    gpushare.plot.waits(recorder, ax=bottom)
    figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    texts = [text.get_text() for text in top.get_legend().get_texts()]
    assert [text.replace("\\", "").lstrip("\u200b") for text in texts] == list(names)
    # Only colour and dashes together distinguish tenants, and both are the same in every plot.
    styles = [[(line.get_color(), line.get_linestyle()) for line in lines(axes).values()] for axes in (top, middle, bottom)]
    assert styles[0] == styles[1] == styles[2]
    assert len({colour for colour, _ in styles[0]}) == len({style for _, style in styles[0]}) == 2


def test_misuse(virtual_gpu):
    with pytest.raises(ValueError, match="1 snapshots given, 2 or more"):
        gpushare.plot.shares([virtual_gpu.runtime.snapshot()])
    with pytest.raises(TypeError, match="a Recorder, a Trace"):
        gpushare.plot.memory([1, 2])


def test_without_matplotlib(run_python):
    done = run_python("""
        import sys
        sys.modules["matplotlib"] = None
        import gpushare
        with gpushare.simulated_gpu() as gpu:
            recorder = gpushare.record(gpu)
            recorder.take(), recorder.take()
            try:
                gpushare.plot.shares(recorder)
            except ImportError as error:
                print(error)
    """)
    assert done.stdout == "gpushare.plot needs matplotlib: pip install 'gpushare[plot]'\n", done.stderr


def test_importing_gpushare_imports_no_matplotlib(run_python):
    done = run_python("import sys, gpushare; print('matplotlib' in sys.modules, 'tqdm' in sys.modules)")
    assert done.stdout == "False False\n"
