# SPDX-License-Identifier: Apache-2.0
"""How objects are displayed: as one line and as a table, whatever their names are."""

import html.parser
import re

import gpushare
import pytest

HOSTILE = ['<script>alert("1")</script>', "'\"&amp;<b>", "\u202egnirts", "\u0430\u0308 \u6f22\u5b57", "x" * 63]


class Checker(html.parser.HTMLParser):
    """Checks that every element is closed in order, and that there are only layout elements."""

    ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "b", "bdi"}

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        assert tag in self.ALLOWED
        assert all(name in ("style", "scope") for name, _ in attrs), attrs
        assert not any("url(" in value for _, value in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    # The colours are those of the page around it, so that it is readable on dark pages.
    assert set(re.findall(r"(?<![-\w])(?:color|background):([^;\"]+)", page)) <= {"inherit", "transparent", "currentColor"}
    return checker.text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_as_text(gpu, name):
    device = gpu.virtual_device(name, memory="4GiB", guarantee="30%")
    buffer = device.alloc("1GiB")
    for thing in (device, gpu, gpu.runtime.snapshot()):
        text = checked(thing._repr_html_())
        assert name in text
        assert "1 GiB of 4 GiB" in text and "30 %" in text
        line = repr(thing)
        assert line.isprintable() and repr(name) in line and "1 GiB of 4 GiB" in line
    buffer.close()


def test_one_line_says_the_same(gpu):
    device = gpu.virtual_device("a", memory="4GiB", weight=3, cap="50%", priority="high")
    device.suspend()
    assert repr(device) == ("<gpushare.VirtualDevice of 'a' on GPU 0: 0 B of 4 GiB, high, weight 3, guarantee 0 %, "
                            "cap 50 %, suspended>")
    text = checked(device._repr_html_())
    assert "high, suspended" in text and "50 %" in text and "3" in text
    assert repr(gpu) == f"<gpushare.Gpu 0 {gpu.name!r}: 'a' 0 B of 4 GiB>"
    stats = device.stats()
    assert repr(stats).startswith("<gpushare.VirtualDeviceStats of 'a' on GPU 0: 0 B of 4 GiB, 0 launches, 0 s of")
    device.close()
    assert repr(device) == "<gpushare.VirtualDevice of 'a' on GPU 0 closed>"
    assert "closed" in device._repr_html_()


def test_many_and_none(gpu):
    assert "no virtual devices" in repr(gpu) and "no virtual devices" in "".join(checked(gpu._repr_html_()))
    devices = [gpu.virtual_device(f"t{i}", memory="1MiB") for i in range(9)]
    assert repr(gpu.runtime.snapshot()).endswith("'t5' 0 B of 1 MiB, and 3 more>")
    assert "t8" in checked(gpu._repr_html_())
    assert len(devices) == 9


def test_a_closed_runtime_is_no_error(gpu):
    device = gpu.virtual_device("<a>", memory="1MiB")
    gpu.runtime.close_all()
    for thing in (gpu, device):
        assert "closed" in repr(thing)
        checked(thing._repr_html_())
