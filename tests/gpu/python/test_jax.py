# SPDX-License-Identifier: Apache-2.0
"""gpushare.jax with JAX's CUDA plugin, in processes of their own."""

import importlib.util

import pytest

PROGRAM = """
import jax, jax.numpy as jnp
devices = jax.devices()
assert [device.platform for device in devices] == ["gpu"], devices
limit = devices[0].memory_stats()["bytes_limit"]
assert float(jnp.arange(1000.0).sum()) == 499500
try:
    jnp.zeros(limit + (64 << 20), "uint8").block_until_ready()
except Exception as error:
    assert "RESOURCE_EXHAUSTED" in str(error), error
    print(limit)
"""


@pytest.fixture
def jax_cuda(framework):
    framework("jax", "'jax[cuda12]'")
    if not any(map(importlib.util.find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin"))):
        pytest.skip("JAX has no CUDA plugin: pip install 'jax[cuda12]'")


@pytest.mark.parametrize("preallocate", [True, False])
def test_a_process_keeps_to_the_quota(jax_cuda, gpu, run_python, preallocate):
    import gpushare.jax

    with gpu.virtual_device("trainer", memory="4GiB") as device:
        limit = int(run_python(PROGRAM, **gpushare.jax.env(device, preallocate=preallocate)))
    assert 0.98 * (4 << 30) <= limit <= 4 << 30


def test_in_this_process(jax_cuda, gpu, run_python):
    limit = int(run_python("""
        import gpushare, gpushare.jax
        gpu = gpushare.Gpu(gpushare.Runtime())
        gpushare.jax.apply(gpu.virtual_device("trainer", memory="2GiB"))
    """ + "\n".join("        " + line for line in PROGRAM.splitlines())))
    assert 0.98 * (2 << 30) <= limit <= 2 << 30
