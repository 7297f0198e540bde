# SPDX-License-Identifier: Apache-2.0
"""The requirements of these tests, which are skipped without them."""

import importlib.util
import sys

for package, why in (("gpushare", "the Python package was not built"), ("ray", "Ray is not installed; scripts/setup does"),
                     ("cuda.bindings", "cuda-bindings is not installed; scripts/setup does")):
    if importlib.util.find_spec(package.split(".")[0]) is None or importlib.util.find_spec(package) is None:
        print(f"skipped: {why}")
        sys.exit(77)
