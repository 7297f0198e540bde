# SPDX-License-Identifier: Apache-2.0
"""gpushare.ray without a cluster: what it would tell Ray. Tests on a cluster: tests/ray."""

import inspect
import pickle
import sys

import pytest

import gpushare
import gpushare.ray


@pytest.fixture(autouse=True)
def preload(tmp_path, monkeypatch):
    """A folder with files that have the names of the preload libraries, wherever the real ones are."""
    for name in ("libgpushare_preload.so", "libgpushare_preload_nvml.so"):
        (tmp_path / name).touch()
    monkeypatch.setenv("GPUSHARE_PRELOAD_DIR", str(tmp_path))
    return tmp_path


def spec(**asked):
    return gpushare.ray.options(**asked)["runtime_env"]["env_vars"]["GPUSHARE_SPEC"]


def test_what_ray_is_told(preload):
    told = gpushare.ray.options(num_gpus=0.25, num_cpus=2, max_restarts=1)
    objects = f"{preload}/libgpushare_preload.so:{preload}/libgpushare_preload_nvml.so"
    assert told == {"num_gpus": 0.25, "num_cpus": 2, "max_restarts": 1, "runtime_env": {"env_vars": {
        "LD_PRELOAD": "${LD_PRELOAD}:" + objects, "GPUSHARE_BROKER": "/${GPUSHARE_BROKER}",
        "GPUSHARE_SPEC": "memory=25%,compute=25%"}}}


def test_what_was_in_the_runtime_env_stays(preload):
    mine = {"working_dir": ".", "env_vars": {"A": "1", "LD_PRELOAD": "/usr/lib/mine.so"}}
    told = gpushare.ray.options(num_gpus=1, runtime_env=mine, broker="/run/b.sock")["runtime_env"]
    assert told["working_dir"] == "." and told["env_vars"]["A"] == "1"
    assert told["env_vars"]["LD_PRELOAD"].startswith(f"/usr/lib/mine.so:{preload}/")
    assert told["env_vars"]["GPUSHARE_BROKER"] == "/run/b.sock"
    assert mine == {"working_dir": ".", "env_vars": {"A": "1", "LD_PRELOAD": "/usr/lib/mine.so"}}


@pytest.mark.parametrize(("asked", "text"), [
    ({"num_gpus": 0.3333}, "memory=33.33%,compute=33.33%"),
    ({"num_gpus": 1 / 3}, "memory=33.33%,compute=33.33%"),  # rounded down, so that three fit
    ({"num_gpus": 0.0001}, "memory=0.01%,compute=0.01%"),
    ({"num_gpus": 1}, "memory=100%,compute=100%"),
    ({"num_gpus": 4}, "memory=100%,compute=100%"),  # of each of the GPUs
    ({"num_gpus": 0.25, "gpu_memory": "2GiB"}, "memory=2GiB,compute=25%"),
    ({"num_gpus": 0.25, "gpu_memory": 3 << 30}, "memory=3GiB,compute=25%"),
    ({"num_gpus": 0.25, "spec": "cap=50%,priority=high"}, "memory=25%,compute=25%,cap=50%,priority=high"),
    ({"num_gpus": 0.25, "spec": "memory=1GiB,compute=10%"}, "memory=1GiB,compute=10%"),
    ({"num_gpus": 0.25, "spec": "policy=fixed-share"}, "memory=25%,compute=25%,policy=fixed-share"),
    ({"num_gpus": 0.25, "spec": "policy=best-effort"}, "memory=25%,policy=best-effort"),
    ({"num_gpus": 0.25, "spec": gpushare.VirtualDeviceSpec(guarantee="20%")}, "memory=25%,guarantee=20%"),
])
def test_the_share_of_a_fraction(asked, text):
    assert gpushare.VirtualDeviceSpec(spec(**asked)) == gpushare.VirtualDeviceSpec(text)


@pytest.mark.parametrize(("asked", "kind", "said"), [
    ({}, TypeError, "num_gpus: none given"),
    ({"num_gpus": "half"}, TypeError, "num_gpus: str given"),
    ({"num_gpus": True}, TypeError, "num_gpus: bool given"),
    ({"num_gpus": 0}, ValueError, "num_gpus: 0 given, above 0 wanted"),
    ({"num_gpus": -1}, ValueError, "above 0 wanted"),
    ({"num_gpus": float("nan")}, ValueError, "above 0 wanted"),
    ({"num_gpus": 1.5}, ValueError, "num_gpus: 1.5 given; a part of one GPU, or whole ones"),
    ({"num_gpus": 0.00001}, ValueError, "the least that Ray counts"),
    ({"num_gpus": 0.5, "gpu_memory": "50%"}, ValueError, "gpu_memory: '50%' given; bytes wanted"),
    ({"num_gpus": 0.5, "gpu_memory": "2GiB", "spec": "memory=1GiB"}, ValueError, "one of them wanted"),
    ({"num_gpus": 0.5, "spec": "policy=best-effort,compute=10%"}, ValueError, "promises nothing"),
    ({"num_gpus": 0.5, "spec": "cap"}, ValueError, "cap"),
    ({"num_gpus": 0.5, "spec": 3}, TypeError, "spec: int given"),
    ({"num_gpus": 0.5, "runtime_env": {"env_vars": {"GPUSHARE_SPEC": ""}}}, ValueError, "GPUSHARE_SPEC given"),
])
def test_what_cannot_be_is_refused_before_ray_is_asked(asked, kind, said):
    with pytest.raises(kind, match=said):
        gpushare.ray.options(**asked)


def test_no_preloaded_library(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSHARE_PRELOAD_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(gpushare.NotFoundError, match="GPUSHARE_PRELOAD_DIR names its folder"):
        gpushare.ray.options(num_gpus=0.5)


def test_a_path_that_cannot_be_preloaded(monkeypatch, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    for name in ("libgpushare_preload.so", "libgpushare_preload_nvml.so"):
        (folder / name).touch()
    monkeypatch.setenv("GPUSHARE_PRELOAD_DIR", str(folder))
    with pytest.raises(gpushare.FailedPreconditionError, match="a blank or a colon"):
        gpushare.ray.options(num_gpus=0.5)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'ray>=2.40'"):
        gpushare.ray.remote(num_gpus=0.5)
    assert gpushare.ray.options(num_gpus=0.5)["num_gpus"] == 0.5  # a driver script can be read without it


def test_no_share_in_a_process_that_is_no_worker():
    with pytest.raises(gpushare.FailedPreconditionError, match="no worker"):
        gpushare.ray.share()


def test_bytes_alone_need_a_cluster():
    pytest.importorskip("ray", reason="scripts/setup installs ray")
    with pytest.raises(gpushare.FailedPreconditionError, match="ray.init"):
        gpushare.ray.options(gpu_memory="2GiB")


def test_a_task_ends_with_its_worker():
    pytest.importorskip("ray", reason="scripts/setup installs ray")
    with pytest.raises(ValueError, match="max_calls: 5 given, 1 wanted"):
        gpushare.ray.remote(num_gpus=0.5, max_calls=5)


class Plain:
    """What it is for."""

    def __init__(self, size, *, name="x"):
        self.size, self.name = size, name


def test_the_class_stays_what_it_is():
    made = gpushare.ray._class_within(Plain, gpushare.ray._terms(0.5, None, "", 0)[1])
    assert (made.__name__, made.__doc__, made.__module__) == ("Plain", "What it is for.", __name__)
    assert issubclass(made, Plain) and inspect.signature(made.__init__) == inspect.signature(Plain.__init__)


@pytest.mark.parametrize(("given", "socket"), [
    ("/", "/run/gpushare/broker.sock"), ("", "/run/gpushare/broker.sock"), ("//run/b.sock", "/run/b.sock"),
    ("/run/b.sock", "/run/b.sock"),
])
def test_where_a_worker_looks_for_its_broker(given, socket):
    assert gpushare.ray._socket(given) == socket


def test_shares_travel():
    share = gpushare.ray.Share("a", "memory=25%", "/run/b.sock")
    assert pickle.loads(pickle.dumps(share)) == share
