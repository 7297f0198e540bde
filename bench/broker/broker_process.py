# SPDX-License-Identifier: Apache-2.0
"""A broker to measure: `gpushare broker` with a configuration. The broker itself uses no GPU."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def broker(command: str, folder: str, config: str, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the broker's process and its socket in `folder`. The broker is ready, and ends with the block."""
    socket, file = os.path.join(folder, "broker.sock"), os.path.join(folder, "broker.yaml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(config)
    process = subprocess.Popen([command, "broker", "--socket", socket, "--config", file, "--gpu", "none"],
                               env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while "started" not in process.stderr.readline():
            if process.poll() is not None:
                sys.exit(f"{os.path.basename(sys.argv[0])}: the broker has not begun")
        yield process, socket
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()
