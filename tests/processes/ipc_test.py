#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that one process has allocated and another opens (cuIpcOpenMemHandle): charged once, to the process that allocated it, by the
broker's sum and by the simulated GPU's own count, and to nobody who opens it."""

import sys
import unittest

from node import ALLOCATES, OK, OUT_OF_MEMORY, Node

QUOTA = 1024  # MiB, of each of the two tenants

PROGRAM = ALLOCATES + """
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]
opened = []
def free(which=-1): return cuda.cuMemFree_v2(held.pop(which))
def export():
    handle = Handle()
    assert cuda.cuIpcGetMemHandle(ctypes.byref(handle), held[-1]) == 0
    return bytes(handle.bytes).hex()
def open_handle(text):
    handle, piece = Handle.from_buffer_copy(bytes.fromhex(text)), ctypes.c_uint64()
    result = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(piece), handle, 1)
    if result == 0: opened.append(piece)
    return result
def close(): return cuda.cuIpcCloseMemHandle(opened.pop())
def write(value): return cuda.cuMemsetD8_v2(held[-1], ctypes.c_ubyte(value), ctypes.c_size_t(1))
def read():
    byte = ctypes.c_ubyte()
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(byte), opened[-1], ctypes.c_size_t(1)) == 0
    return byte.value
"""

# MiB of each process, as the simulated GPU's own management library counts them. It answers where the driver is loaded; no preloaded
# library is in between.
WITNESS = """
import ctypes
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
def used():
    count, processes = ctypes.c_uint(64), (Process * 64)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes) == 0
    return {each.pid: each.used >> 20 for each in processes[:count.value]}
"""


class Opens(Node):
    TENANTS = "".join(f"  - {{name: {name}, spec: 'memory={QUOTA}MiB'}}\n" for name in "ab")
    AFTER = None

    def setUp(self):
        super().setUp()
        self.witness = self.program(WITNESS, self.bare)

    def by_broker(self):
        """MiB of each process, of both tenants."""
        shares = self.figures()["shares"]
        held = {each["pid"]: each["memory_used"] >> 20 for share in shares for each in share["processes"]}
        self.assertEqual(sum(share["memory_used"] >> 20 for share in shares), sum(held.values()))
        return held

    def by_nvml(self):
        return {int(pid): mib for pid, mib in self.witness("used()").items()}

    def assert_hold(self, *wanted):
        """The MiB that each program holds, in the order of `programs`, by both counts. The broker's comes a little later, so it says
        something only after a change."""
        wanted = {program.process.pid: mib for program, mib in zip(self.programs, wanted)}
        by_nvml = self.by_nvml()
        self.assertEqual({pid: by_nvml[pid] - self.contexts[pid] for pid in wanted}, wanted)
        self.eventually(lambda: self.by_broker() == wanted, lambda: f"{self.by_broker()} instead of {wanted}")

    def exporter_and_opener(self, tenants):
        self.programs = exporter, opener = [
            self.program(PROGRAM, self.of_tenant(tenant)) for tenant in tenants]
        self.contexts = self.by_nvml()
        self.assert_hold(0, 0)
        return exporter, opener

    def assert_charged_once(self, tenants):
        exporter, opener = self.exporter_and_opener(tenants)
        self.assertEqual((exporter("alloc(256)"), exporter("write(7)")), (OK, OK))
        self.assert_hold(256, 0)
        handle = exporter("export()")
        self.assertEqual((opener(f"open_handle('{handle}')"), opener("read()")), (OK, 7), "it is the same memory")
        self.assertEqual((opener(f"open_handle('{handle}')"), opener("alloc(100)")), (OK, OK))
        self.assert_hold(256, 100)
        self.assertEqual((opener("close()"), opener("alloc(10)")), (OK, OK))
        self.assert_hold(256, 110)
        self.assertEqual((opener("close()"), opener("free()")), (OK, OK))
        self.assert_hold(256, 100)
        self.assertEqual(exporter("free()"), OK)
        self.assert_hold(0, 100)
        self.assertEqual(opener("free()"), OK)
        self.assert_hold(0, 0)

    def test_by_a_process_of_the_same_tenant(self):
        self.assert_charged_once("aa")

    def test_by_a_process_of_another_tenant(self):
        self.assert_charged_once("ab")

    # An open makes no room and takes none.
    def exporter_at_its_quota(self, tenants):
        exporter, opener = self.exporter_and_opener(tenants)
        self.assertEqual([exporter("alloc(256)") for _ in range(5)], [OK] * 4 + [OUT_OF_MEMORY])
        self.assertEqual(opener(f"open_handle('{exporter('export()')}')"), OK)
        self.assertEqual(exporter("alloc(1)"), OUT_OF_MEMORY)
        return exporter, opener

    def test_at_the_quota_by_a_process_of_the_same_tenant(self):
        exporter, opener = self.exporter_at_its_quota("aa")
        self.assertEqual(opener("alloc(1)"), OUT_OF_MEMORY)
        self.assertEqual(exporter("free(0)"), OK, "of memory that is not exported")
        self.assertEqual((opener("alloc(256)"), opener("alloc(1)"), exporter("alloc(1)")), (OK, OUT_OF_MEMORY, OUT_OF_MEMORY))
        self.assert_hold(768, 256)
        self.assertEqual((opener("close()"), opener("alloc(1)"), exporter("alloc(1)")), (OK, OUT_OF_MEMORY, OUT_OF_MEMORY))
        self.assertEqual((exporter("free()"), exporter("alloc(200)"), exporter("alloc(57)")), (OK, OK, OUT_OF_MEMORY))
        self.assert_hold(712, 256)

    def test_at_the_quota_by_a_process_of_another_tenant(self):
        exporter, opener = self.exporter_at_its_quota("ab")
        self.assertEqual((opener(f"alloc({QUOTA})"), opener("alloc(1)")), (OK, OUT_OF_MEMORY))
        self.assert_hold(QUOTA, QUOTA)
        self.assertEqual((opener("close()"), opener("alloc(1)"), exporter("alloc(1)")), (OK, OUT_OF_MEMORY, OUT_OF_MEMORY))
        self.assertEqual((exporter("free()"), exporter("alloc(200)"), exporter("alloc(57)")), (OK, OK, OUT_OF_MEMORY))
        self.assert_hold(QUOTA - 56, QUOTA)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
