# SPDX-License-Identifier: Apache-2.0
"""What gpushare.jax puts into the environment, and what the real JAX reads from it."""

import importlib.util
import sys
import types

import gpushare
import gpushare.jax
import pytest

NAMES = ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE",
         "XLA_PYTHON_CLIENT_ALLOCATOR", "CUDA_VISIBLE_DEVICES", "GPUSHARE_SPEC", "GPUSHARE_TENANT"]

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install jax")


@pytest.fixture
def clean(monkeypatch):
    """Removes the variables from the environment, and restores it at the end."""
    for name in NAMES:
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def stand_in(clean):
    """The part of JAX 0.10 that apply() uses."""
    updates = []
    jax = types.ModuleType("jax")
    jax.config = types.SimpleNamespace(update=lambda name, value: updates.append((name, value)))
    jax.updates = updates
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge.up = False
    bridge.backends_are_initialized = lambda: bridge.up
    jax.bridge = bridge
    clean.setitem(sys.modules, "jax", jax)
    clean.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    jax.version = "0.10.2"
    clean.setattr("importlib.metadata.version", lambda name: jax.version if name == "jaxlib" else None)
    return jax


def test_a_virtual_device(gpu):
    device = gpu.virtual_device("trainer", memory="4GiB", compute="30%")
    assert gpushare.jax.env(device) == {
        "XLA_CLIENT_MEM_FRACTION": "0.25",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "bfc",
        "CUDA_VISIBLE_DEVICES": gpu.probe().uuid,
        "GPUSHARE_SPEC": str(device.spec),
        "GPUSHARE_TENANT": "trainer",
    }
    device.resize(memory="8GiB")
    assert gpushare.jax.env(device)["XLA_CLIENT_MEM_FRACTION"] == "0.5"
    assert gpushare.jax.env(device, preallocate=False)["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_a_spec(gpu):
    assert gpushare.jax.env("memory=25%")["XLA_CLIENT_MEM_FRACTION"] == "0.25"
    spec = gpushare.VirtualDeviceSpec(memory="4GiB")
    variables = gpushare.jax.env(spec, gpu=gpu)
    assert variables["XLA_CLIENT_MEM_FRACTION"] == "0.25" and "GPUSHARE_TENANT" not in variables
    assert "CUDA_VISIBLE_DEVICES" not in gpushare.jax.env("memory=25%")


@pytest.mark.parametrize("memory", [1_000_000_000, 5_368_709_119, (16 << 30) // 3, 123_456_789])
def test_never_more_than_the_quota(gpu, memory):
    fraction = float(gpushare.jax.env(f"memory={memory}", gpu=gpu)["XLA_CLIENT_MEM_FRACTION"])
    total = gpu.probe().memory_total
    assert memory - total / 1_000_000 < fraction * total <= memory


def test_a_share_of_everything(gpu):
    assert gpushare.jax.env("memory=100%")["XLA_CLIENT_MEM_FRACTION"] == "1"
    free = gpu.virtual_device("unlimited")
    assert gpushare.jax.env(free)["XLA_CLIENT_MEM_FRACTION"] == "1" and "GPUSHARE_SPEC" not in gpushare.jax.env(free)


@pytest.mark.parametrize("share, options, error, message", [
    ("compute=10%", {}, ValueError, "^share: its spec gives no memory"),
    ("memory=8GiB", {}, TypeError, "^gpu: None given"),
    ("memory=25%", {"allocator": "platform"}, ValueError, "^allocator: 'platform'"),
    ("memory=nonsense", {}, ValueError, "memory"),
    (5, {}, TypeError, "int"),
    ("memory=8GiB", {"gpu": "0"}, TypeError, "^gpu: str given"),
    ("memory=25%", {"preallocate": "false"}, TypeError, "^preallocate: str given, bool wanted"),
])
def test_what_is_refused(share, options, error, message):
    with pytest.raises(error, match=message):
        gpushare.jax.env(share, **options)


def test_too_little(gpu):
    with pytest.raises(ValueError, match="a millionth"):
        gpushare.jax.env("memory=1KiB", gpu=gpu)


def test_another_gpu():
    with gpushare.simulated_gpu(devices=2) as gpu:
        with pytest.raises(ValueError, match="GPU 1 given"):
            gpushare.jax.env(gpu.virtual_device("a", memory="1GiB"), gpu=gpushare.Gpu(gpu.runtime, 1))


def test_apply(stand_in, clean):
    import os

    clean.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")  # JAX refuses the old name together with the new one
    with gpushare.simulated_gpu(devices=2, memory="16GiB") as gpu:
        device = gpushare.Gpu(gpu.runtime, 1).virtual_device("a", memory="4GiB")
        put = gpushare.jax.apply(device)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.25" and os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == ""
    assert {name: os.environ[name] for name in put} == put
    # The driver has read CUDA_VISIBLE_DEVICES already; JAX is told by its own setting.
    assert "CUDA_VISIBLE_DEVICES" not in os.environ and stand_in.updates == [("jax_cuda_visible_devices", "1")]


def test_apply_too_late(stand_in):
    stand_in.bridge.up = True
    with pytest.raises(RuntimeError, match="before the first use of JAX"):
        gpushare.jax.apply("memory=25%")


def test_an_old_jax(stand_in):
    stand_in.version = "0.4.30"
    with pytest.raises(ImportError, match="0.4.35 or newer.*this is 0.4.30"):
        gpushare.jax.apply("memory=25%")


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is not None, reason="JAX is installed")
def test_without_jax():
    with pytest.raises(ImportError, match="pip install 'jax"):
        gpushare.jax.apply("memory=25%")


@needs_jax
@pytest.mark.frameworks
def test_the_real_jax_reads_them(run_python):
    ran = run_python("""
        import gpushare, gpushare.jax
        with gpushare.simulated_gpu(memory="16GiB") as gpu:
            gpushare.jax.apply(gpu.virtual_device("a", memory="4GiB"), preallocate=False)
        import jax, jaxlib.xla_client
        options = jaxlib.xla_client.generate_pjrt_gpu_plugin_options()
        assert (options["memory_fraction"], options["preallocate"], options["allocator"]) == (0.25, False, "bfc"), options
        assert jax._src.xla_bridge.CUDA_VISIBLE_DEVICES.value == "0"
        jax.numpy.arange(3).sum()
        try:
            gpushare.jax.apply("memory=25%")
        except RuntimeError as error:
            assert "already" in str(error)
        else:
            raise AssertionError
    """, XLA_PYTHON_CLIENT_MEM_FRACTION="0.9", JAX_PLATFORMS="cpu")
    assert ran.returncode == 0, ran.stderr
