# SPDX-License-Identifier: Apache-2.0
"""For programs under test: the process state that a preloaded library must not change, and the descriptors that it adds."""

import locale
import os
import signal


def state():
    signals = [signal.getsignal(n) for n in range(1, 32) if n not in (9, 19)]
    mask = os.umask(0)
    os.umask(mask)
    return {"signals": signals, "umask": mask, "environment": dict(os.environ),
            "locale": locale.setlocale(locale.LC_ALL), "folder": os.getcwd(), **blocked()}


def blocked():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":") for line in status)
    # Signals 32 and 33 belong to the C library, from the first thread on.
    return {key: int(fields[key], 16) & ~(3 << 31) for key in ("SigIgn", "SigCgt", "SigBlk")}


def descriptors():
    """The open descriptors, by number."""
    there = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            there[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # the descriptor that listed the others
    return there


def closed_at_exec(number):
    with open(f"/proc/self/fdinfo/{number}") as info:
        flags = next(line for line in info if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_CLOEXEC != 0
