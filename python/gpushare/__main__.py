# SPDX-License-Identifier: Apache-2.0
"""The `gpushare` command: ``python -m gpushare demo --gpu sim --seconds 5``."""

from __future__ import annotations

import os
import pathlib
import sys


def _command() -> pathlib.Path:
    """The program that the package contains, in a folder of its own."""
    return pathlib.Path(__file__).parent / "_native" / "bin" / "gpushare"


def main() -> int:
    command = _command()
    if not command.is_file():
        print(f"gpushare: this installation has no command ({command} is missing); "
              "build it with GPUSHARE_BUILD_CLI=ON", file=sys.stderr)
        return 1
    sys.stdout.flush()
    os.execv(command, ["gpushare", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
