# SPDX-License-Identifier: Apache-2.0
"""Specs and units: text and keywords have the same result, and errors name the field."""

import datetime
import pickle

import gpushare
import pytest
from gpushare import VirtualDeviceSpec


@pytest.mark.parametrize(("given", "size"), [
    ("8 GB", 8_000_000_000), ("8GB", 8_000_000_000), ("8GiB", 8 << 30), ("8 GiB", 8 << 30), ("512MiB", 512 << 20),
    ("1.5GB", 1_500_000_000), (1 << 30, 1 << 30), ("1073741824", 1 << 30),
])
def test_sizes_mean_what_they_say(given, size):
    assert VirtualDeviceSpec(memory=given).memory == size


def test_text_and_keywords_come_to_the_same():
    text = VirtualDeviceSpec("memory=8GiB,compute=30%,priority=high,h2d=4GB/s,burst=20ms,weight=2")
    keywords = VirtualDeviceSpec(memory="8 GiB", compute=0.3, priority="high", h2d=4_000_000_000,
                                 burst=datetime.timedelta(milliseconds=20), weight=2)
    assert text == keywords
    assert hash(text) == hash(keywords)
    assert str(text) == str(keywords) == "memory=8GiB,compute=30%,weight=2,burst=20ms,priority=high,h2d=4GB/s"
    assert VirtualDeviceSpec(str(text)) == text
    assert VirtualDeviceSpec(**text.to_dict()) == text
    assert pickle.loads(pickle.dumps(text)) == text



def test_a_limit_on_copies_taken_back_by_text():
    for spec in (VirtualDeviceSpec(h2d="none"), VirtualDeviceSpec("h2d=none"), VirtualDeviceSpec(h2d=0)):
        assert str(spec) == "h2d=none" and spec.h2d == 0
    assert str(VirtualDeviceSpec("d2h=1GB/s").replace(d2h="none")) == "d2h=none"


def test_fields_come_back_as_they_are_given():
    spec = VirtualDeviceSpec("memory=50%,cap=80%,guarantee=10%,burst=20ms,policy=burst-share,isolation=shared")
    assert (spec.memory, spec.cap, spec.guarantee, spec.burst) == ("50%", 0.8, 0.1, 0.02)
    assert (spec.policy, spec.isolation, spec.compute, spec.h2d) == ("burst-share", "shared", None, None)


def test_how_much_others_may_delay_it():
    spec = VirtualDeviceSpec(priority="high", delay="5%")
    assert spec.delay == pytest.approx(0.05) and str(spec) == "priority=high,delay=5%"
    assert spec == VirtualDeviceSpec("priority=high,delay=5%") == VirtualDeviceSpec(priority="high", delay=0.05)
    assert VirtualDeviceSpec(**spec.to_dict()) == spec and pickle.loads(pickle.dumps(spec)) == spec
    none = spec.replace(delay=0)  # nothing beside it, which is another thing than to say nothing
    assert none.delay == 0 and str(none) == "priority=high,delay=0%"
    assert VirtualDeviceSpec(priority="high").delay is None
    for given, wrong in (("21%", ValueError), (-0.01, ValueError), (5, ValueError), (True, TypeError), ([], TypeError)):
        with pytest.raises(wrong, match=r"^(spec field 'delay'|delay): "):
            VirtualDeviceSpec(priority="high", delay=given)


def test_keywords_win_over_text():
    spec = VirtualDeviceSpec("memory=8GiB,compute=30%", memory="50%")
    assert str(spec) == "memory=50%,compute=30%"
    assert str(spec.replace(memory=1 << 20, compute="40%")) == "memory=1MiB,compute=40%"


def test_a_small_number_is_not_taken_for_bytes_silently():
    for field in "memory", "memory_cap":
        with pytest.raises(ValueError, match=rf"{field}: 50 given, which is a number of bytes; write '50GiB'"):
            VirtualDeviceSpec(**{field: 50})
    assert VirtualDeviceSpec(memory="50B").memory == 50
    assert VirtualDeviceSpec(memory=64 << 10).memory == 64 << 10


def test_a_spec_cannot_be_changed():
    with pytest.raises(AttributeError):
        VirtualDeviceSpec("memory=1GiB").memory = 5


@pytest.mark.parametrize("fields", [
    {"memory": 1.5}, {"memory": True}, {"memory": [1]}, {"compute": []}, {"compute": True}, {"weight": "two", "cap": {}},
    {"priority": 3}, {"policy": 1}, {"burst": b"20ms"}, {"h2d": 2.5}, {"isolation": 0},
])
def test_a_wrong_type_is_a_type_error_that_names_the_field(fields):
    field = list(fields)[-1]
    fields = {field: fields[field]}
    with pytest.raises(TypeError, match=f"^{field}: "):
        VirtualDeviceSpec(**fields)


@pytest.mark.parametrize(("fields", "named"), [
    ({"memory": "8 XB"}, "memory"), ({"memory": -1}, "memory"), ({"memory": 0}, "memory"), ({"compute": 30}, "compute"),
    ({"compute": "130%"}, "compute"), ({"cap": 0.1, "guarantee": 0.5}, "cap"), ({"priority": "urgent"}, "priority"),
    ({"policy": "none-such"}, "policy"), ({"burst": "20 parsecs"}, "burst"), ({"burst": 11}, "burst"),
    ({"compute": float("nan")}, "compute"), ({"weight": 0}, "weight"), ({"memory": "1GiB,cap=5%"}, "memory"),
])
def test_a_value_out_of_range_is_a_value_error_that_names_the_field(fields, named):
    with pytest.raises(ValueError, match=named) as caught:
        VirtualDeviceSpec(**fields)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_percent_where_a_part_is_wanted():
    with pytest.raises(ValueError, match="^cap: 30 given, which is a part of 1 .*write '30%'"):
        VirtualDeviceSpec(cap=30)
    with pytest.raises(ValueError, match="write '1.5%'"):
        VirtualDeviceSpec(compute=1.5)
    assert VirtualDeviceSpec(cap=1).cap == 1.0


def test_what_there_is_not_is_said_with_what_there_is():
    with pytest.raises(TypeError, match="no limit 'memry'.*memory"):
        VirtualDeviceSpec(memry="8GiB")
    with pytest.raises(NotImplementedError, match="oversubscription"):
        VirtualDeviceSpec("oversubscription=swap")
    with pytest.raises(TypeError, match="^spec: int given"):
        VirtualDeviceSpec(5)


def test_policies_are_named():
    assert {"best-effort", "fixed-share", "burst-share", "fair-share"} <= set(gpushare.policy_names())
    for name in gpushare.policy_names():
        fields = {"weight": {"weight": 2}, "best-effort": {}, "fair-share": {}, "preemptive": {}, "equal-share": {}}
        assert VirtualDeviceSpec(policy=name, **fields.get(name, {"compute": "30%"})).policy == name
    with pytest.raises(ValueError, match="'weight': 2 given, but policy 'fair-share'"):
        VirtualDeviceSpec(policy="fair-share", weight=2)
