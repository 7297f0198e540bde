# SPDX-License-Identifier: Apache-2.0
"""Tests with the real PyTorch, Lightning, transformers and Accelerate, if they are installed. None needs a GPU.

    pip install torch lightning transformers accelerate
    pytest -m frameworks python/tests/torch_integration
"""

import importlib.util

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(240)]


def needs(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


RECORDER = """
    import contextlib, gpushare, gpushare.torch
    from gpushare.torch import callbacks

    log = []

    class Recorder:
        def __init__(self, name):
            self.name = name
        def __enter__(self):
            log.append("+" + self.name)
            return self
        def __exit__(self, *error):
            log.append("-" + self.name)

    callbacks.region.tenant = lambda device, lease: Recorder("region")
    callbacks.region.step = lambda device, hint=None: Recorder("step")
    device = gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("trainer", memory="1GiB")
"""


@pytest.fixture
def run(run_python):
    def run(program):
        done = run_python(program, timeout=200, CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@needs("torch")
def test_pytorch_takes_the_functions(run):
    assert run("""
        import gpushare.torch
        made = gpushare.torch.allocator()
        import torch
        assert isinstance(made, torch.cuda.memory.CUDAPluggableAllocator) and made is gpushare.torch.allocator()
        assert isinstance(made.allocator(), torch._C._cuda_CUDAAllocator)
        print(torch.cuda.memory.get_allocator_backend())
    """).strip() == "native"


@needs("torch")
def test_pytorch_has_what_is_called_and_takes_what_is_passed(run):
    run("""
        import inspect, re, torch

        def takes(function, *args, **kwargs):
            inspect.signature(function).bind(*args, **kwargs)

        takes(torch.cuda.init)
        takes(torch.cuda.get_allocator_backend)
        takes(torch.cuda.device_count)
        takes(torch.cuda.get_device_properties, 0)
        takes(torch.cuda.device, 0)
        takes(torch.cuda.stream, None)
        takes(torch.cuda.current_stream, 0)
        takes(torch.cuda.is_current_stream_capturing)
        takes(torch.cuda.empty_cache)
        takes(torch.cuda.mem_get_info, 0)
        takes(torch.cuda.set_per_process_memory_fraction, 0.5, 0)
        takes(torch.cuda.ExternalStream.__new__, torch.cuda.ExternalStream, 1, device=0)
        takes(torch.cuda.Stream.wait_stream, None, None)
        takes(torch.cuda.Stream.synchronize, None)
        takes(torch.cuda.MemPool.__init__, None, None)
        takes(torch.cuda.graph.__init__, None, None, pool=(0, 1), stream=None, capture_error_mode="thread_local")
        takes(torch.cuda.CUDAGraph.replay, None)
        takes(torch.cuda.memory.CUDAPluggableAllocator.__init__, None, "path", "alloc", "free")
        assert isinstance(torch.cuda.MemPool.id, property)
        assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)
        if torch.backends.cuda.is_built():
            end = getattr(torch._C, "_cuda_endAllocateToPool", None) or torch._C._cuda_endAllocateCurrentStreamToPool
            for function in (torch._C._cuda_beginAllocateCurrentStreamToPool, end, torch._C._cuda_releasePool):
                assert len(re.findall(r"arg\\d", function.__doc__)) == 2, function.__doc__
            assert callable(torch._C._cuda_clearCublasWorkspaces)
    """)


@needs("torch")
def test_the_last_line_of_pytorchs_error_can_be_ours(run):
    assert run("""
        import torch
        error = torch.cuda.OutOfMemoryError("CUDA out of memory.")
        error.args = (str(error) + "\\nthe quota", *error.args[1:])
        print(error)
    """) == "CUDA out of memory.\nthe quota\n"


@needs("torch")
def test_a_simulated_gpu_is_not_for_pytorch(run):
    """PyTorch itself refuses without a driver; it must never get a stream that is not CUDA's."""
    assert "refused" in run("""
        import gpushare, gpushare.torch
        device = gpushare.Gpu(gpushare.Runtime("sim")).virtual_device("trainer", memory="1GiB")
        try:
            gpushare.torch.tenant(device).__enter__()
        except (RuntimeError, AssertionError, LookupError) as error:
            print("refused", type(error).__name__, error)
    """)


@needs("torch", "lightning")
def test_lightning(run):
    out = run(RECORDER + """
    import warnings
    warnings.simplefilter("ignore")
    import lightning, torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def training_step(self, batch, index):
            log.append("train")
            return self.layer(batch).sum()
        def validation_step(self, batch, index):
            log.append("validate")
        def on_train_batch_start(self, batch, index):
            if fail and index == 1:
                raise KeyError("x")
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit():
        data = torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2)
        trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                                    callbacks=[gpushare.torch.lightning_callback(device)])
        trainer.fit(Model(), data, data)

    fail = False
    fit()
    print(" ".join(log))
    log.clear()
    fail = True
    try:
        fit()
    except KeyError:
        print(" ".join(log))
    """)
    first, second = out.strip().split("\n")[-2:]
    batches = "+step train -step " * 2 + "+step validate -step " * 2
    assert first == f"+region {batches}-region"
    assert second.split()[0] == "+region" and second.endswith("-region")
    assert second.count("+step") == second.count("-step") == 2


@needs("torch", "transformers", "accelerate")
def test_transformers(run, tmp_path):
    out = run(RECORDER + f"""
    import warnings
    warnings.simplefilter("ignore")
    import torch, transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def forward(self, x, labels=None):
            log.append("forward")
            return {{"loss": self.layer(x).sum()}}

    data = [{{"x": torch.ones(4), "labels": torch.ones(1)}} for _ in range(4)]
    args = transformers.TrainingArguments(output_dir={str(tmp_path)!r}, max_steps=2, per_device_train_batch_size=1,
                                          report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
                                          logging_strategy="no")
    transformers.Trainer(Model(), args, train_dataset=data,
                         callbacks=[gpushare.torch.transformers_callback(device)]).train()
    print(" ".join(log))
    """)
    assert out.strip().split("\n")[-1] == "+region +step forward -step +step forward -step -region"


@needs("torch", "accelerate")
def test_accelerate(run):
    out = run(RECORDER + """
    import accelerate, torch
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    for _ in range(2):
        with gpushare.torch.accumulate(accelerator, device, model):
            log.append(str(accelerator.sync_gradients))
    print(" ".join(log))
    """)
    assert out.strip().split("\n")[-1] == "+step False -step +step True -step"
