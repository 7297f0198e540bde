// SPDX-License-Identifier: Apache-2.0
// Tiny drivers for tests of loading a driver. A macro selects the kind at compile time:
//
//   FAKE_MODERN     answers through cuGetProcAddress_v2 only, by name and version
//   FAKE_OLD        exports its entry points, and not cuGetProcAddress nor what came late
//   FAKE_BROKEN     FAKE_OLD without cuLaunchKernel
//   FAKE_NO_DEVICE  FAKE_OLD whose cuInit() finds no device
//
// Functions accept any arguments (...), since they are called through the types of cuda.h.
#include <cstdint>
#include <cstring>

#define ENTRY(name, result)                                        \
  extern "C" __attribute__((visibility("default"))) int name(...); \
  extern "C" int name(...) { return result; }

#ifdef FAKE_MODERN

namespace {

int Ok(...) { return 0; }
int Version(int* version) {
  *version = 13000;
  return 0;
}
// The returned code shows which ABI was called.
int OldAbi(...) { return 1001; }
int NewAbi(...) { return 1002; }
int NewestAbi(...) { return 1003; }
int PerThreadStream(...) { return 1004; }

void* Address(int (*function)(...)) { return reinterpret_cast<void*>(function); }

}  // namespace

// A decoy, which is found when dlsym() is asked before the driver.
ENTRY(cuMemAlloc_v2, 1009)

extern "C" __attribute__((visibility("default"))) int cuGetProcAddress_v2(
    const char* symbol, void** function, int version, uint64_t flags, int* status);
extern "C" int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                                   int* status) {
  *status = 0;
  *function = nullptr;
  if (std::strcmp(symbol, "cuMemAlloc") == 0) {
    *function = Address(version < 3020 ? OldAbi : version < 13000 ? NewAbi : NewestAbi);
  } else if (std::strcmp(symbol, "cuMemsetD8Async") == 0) {
    *function = Address((flags & 2) != 0 ? PerThreadStream : NewAbi);
  } else if (std::strcmp(symbol, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(&Version);
  } else if (std::strcmp(symbol, "cuGraphLaunch") == 0) {
    *status = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
    return 0;
  } else if (std::strstr(symbol, "_v2") != nullptr) {
    *status = 1;  // queries use base names, not exported names
    return 500;
  } else {
    *function = Address(Ok);
  }
  return 0;
}

#else

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version);
extern "C" int cuDriverGetVersion(int* version) {
  *version = 11000;
  return 0;
}
#ifdef FAKE_NO_DEVICE
ENTRY(cuInit, 100)
#else
ENTRY(cuInit, 0)
#endif
#ifndef FAKE_BROKEN
ENTRY(cuLaunchKernel, 0)
#endif
ENTRY(cuDeviceGetCount, 0)
ENTRY(cuDeviceGet, 0)
ENTRY(cuDeviceGetName, 0)
ENTRY(cuDeviceGetUuid, 0)
ENTRY(cuDeviceGetAttribute, 0)
ENTRY(cuDeviceTotalMem_v2, 0)
ENTRY(cuDevicePrimaryCtxRetain, 0)
ENTRY(cuDevicePrimaryCtxRelease, 1005)
ENTRY(cuCtxPushCurrent_v2, 0)
ENTRY(cuCtxPopCurrent_v2, 0)
ENTRY(cuCtxGetCurrent, 0)
ENTRY(cuCtxGetStreamPriorityRange, 0)
ENTRY(cuMemAlloc, 1001)
ENTRY(cuMemAlloc_v2, 1002)
ENTRY(cuMemFree_v2, 0)
ENTRY(cuMemGetInfo_v2, 0)
ENTRY(cuMemcpyHtoD_v2, 0)
ENTRY(cuMemcpyDtoH_v2, 0)
ENTRY(cuMemcpyHtoDAsync_v2, 0)
ENTRY(cuMemcpyDtoHAsync_v2, 0)
ENTRY(cuMemcpyDtoDAsync_v2, 0)
ENTRY(cuMemsetD8Async, 0)
ENTRY(cuStreamCreateWithPriority, 0)
ENTRY(cuStreamDestroy_v2, 0)
ENTRY(cuStreamSynchronize, 0)
ENTRY(cuStreamWaitEvent, 0)
ENTRY(cuStreamIsCapturing, 0)
ENTRY(cuThreadExchangeStreamCaptureMode, 0)
ENTRY(cuEventCreate, 0)
ENTRY(cuEventDestroy_v2, 0)
ENTRY(cuEventRecord, 0)
ENTRY(cuEventQuery, 600)
ENTRY(cuEventSynchronize, 0)
ENTRY(cuEventElapsedTime, 1006)
ENTRY(cuModuleLoadData, 0)
ENTRY(cuModuleUnload, 0)
ENTRY(cuModuleGetFunction, 0)
ENTRY(cuFuncSetAttribute, 0)
ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 0)

#endif
