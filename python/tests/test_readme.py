# SPDX-License-Identifier: Apache-2.0
"""The README's program prints what the README shows."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"


@pytest.mark.skipif(not README.is_file(), reason="the tests are not in the source tree")
def test_the_readme(run_python):
    text = README.read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    expected = re.search(r"```output\n(.*?)```", text, re.S).group(1)
    done = run_python(program)
    assert (done.stdout, done.stderr) == (expected, "")
