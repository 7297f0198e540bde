# SPDX-License-Identifier: Apache-2.0
"""What gpushare.torch refuses, with messages that say what to do."""

import os
import sys

import gpushare
import gpushare.torch
import pytest

MIB = 1 << 20


def test_importing_gpushare_or_its_torch_module_imports_no_torch(run_python):
    done = run_python("""
        import sys, gpushare, gpushare.torch
        assert gpushare.torch.__name__ == "gpushare.torch"
        print(sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "lightning", "transformers")))
    """)
    assert done.stdout == "[]\n", done.stderr


class _NoTorch:
    """First on sys.meta_path: hides torch even if it is installed."""

    def find_spec(self, name, path, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


def test_without_torch_the_error_says_what_to_install(monkeypatch, trainer):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NoTorch(), *sys.meta_path])
    with pytest.raises(ImportError, match=r"pip install 'torch>=2.8'") as caught, gpushare.torch.tenant(trainer):
        pytest.fail("entered")
    assert caught.value.name == "torch"
    with pytest.raises(ImportError):
        gpushare.torch.allocator()


@pytest.mark.parametrize("version, fits", [("1.13.1", False), ("2.7.1+cu126", False), ("2.8.0a0+git1", True),
                                           ("2.10.0", True), ("3.0.0", True)])
def test_the_oldest_version(gpu, make_torch, trainer, version, fits):
    make_torch([gpu.probe().uuid], version=version)
    if fits:
        assert gpushare.torch.allocator() is gpushare.torch.allocator()
    else:
        with pytest.raises(ImportError, match="2.8 or newer.*" + version.split("+")[0]):
            gpushare.torch.allocator()


def test_cuda_is_initialised_first(torch, trainer):
    with gpushare.torch.tenant(trainer):
        pass
    assert torch.log[0] == ("init",)


def test_a_gpu_that_pytorch_does_not_see(gpu, make_torch, trainer):
    make_torch(["GPU-00000000-0000-0000-0000-000000000000"])
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES.*simulated"), gpushare.torch.tenant(trainer):
        pytest.fail("entered")


def test_pytorch_numbers_gpus_in_its_own_order(gpu, make_torch, trainer):
    torch = make_torch(["GPU-00000000-0000-0000-0000-000000000000", gpu.probe().uuid])
    from gpushare.torch._version import device_index

    assert device_index(trainer) == 1
    assert ("init",) in torch.log


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_backends_without_pools(torch, trainer, backend):
    torch.backend = backend
    with pytest.raises(gpushare.FailedPreconditionError, match=f"'{backend}'.*PYTORCH_ALLOC_CONF"):
        gpushare.torch.tenant(trainer).__enter__()


def test_no_caching(torch, trainer, monkeypatch):
    monkeypatch.setitem(os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    with pytest.raises(gpushare.FailedPreconditionError, match="unset it"):
        gpushare.torch.tenant(trainer).__enter__()


def test_a_closed_virtual_device(torch, trainer):
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(2 * MIB)
    step = gpushare.torch.step(trainer)
    trainer.close()
    for call in (gpushare.torch.tenant, gpushare.torch.step, gpushare.torch.mem_get_info, gpushare.torch.empty_cache):
        with pytest.raises(gpushare.ClosedError):
            call(trainer)
    with pytest.raises(gpushare.ClosedError):
        step.__enter__()
    gpushare.torch.release(trainer)  # this is allowed
    del tensor


def test_closed_within_a_region(torch, trainer):
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(2 * MIB)
        trainer.close()
        with pytest.raises(gpushare.ClosedError), gpushare.torch.step(trainer):
            pytest.fail("entered")
        more = torch.empty(2 * MIB)  # the region still works
    assert torch.current_stream().cuda_stream == 0
    del tensor, more


def test_a_share_returns_with_release(torch, gpu, trainer):
    with gpushare.torch.tenant(trainer):
        torch.empty(2 * MIB)
    tenant = trainer.tenant
    trainer.close()
    with pytest.raises(gpushare.AlreadyExistsError):  # its stream keeps the tenant's device alive
        gpu.virtual_device(tenant, memory="1MiB")
    gpushare.torch.release(trainer)
    assert gpushare.Simulation(gpu.runtime).memory_used() == 0
    with gpu.virtual_device(tenant, memory="1MiB"):
        pass


def test_other_tenants_regions_end_what_was_closed(torch, gpu, trainer):
    with gpushare.torch.tenant(trainer):
        torch.empty(2 * MIB)
    tenant, other = trainer.tenant, gpu.virtual_device("other", memory="64MiB")
    trainer.close()
    with gpushare.torch.tenant(other):
        pass
    with gpu.virtual_device(tenant, memory="1MiB"):
        pass


def test_tensors_outlive_their_virtual_device(torch, gpu, trainer):
    simulation = gpushare.Simulation(gpu.runtime)
    with gpushare.torch.tenant(trainer):
        tensor = torch.empty(2 * MIB)
    trainer.close()
    gpushare.torch.release(trainer)
    assert simulation.memory_used() == 2 * MIB
    del tensor
    torch.cuda.empty_cache()
    assert simulation.memory_used() == 0
