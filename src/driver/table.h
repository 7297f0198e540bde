// SPDX-License-Identifier: Apache-2.0
// The typed table of driver entry points, filled from a loaded libcuda.
//
//   Table table;
//   GPUSHARE_RETURN_IF_ERROR(table.Fill(handle));   // of dlopen(RTLD_NOW | RTLD_LOCAL)
//   table.MemAlloc(&pointer, bytes);
//
// No field is null after Fill() succeeds: an optional entry point that the driver lacks answers
// CUDA_ERROR_NOT_SUPPORTED.
#ifndef GPUSHARE_DRIVER_TABLE_H_
#define GPUSHARE_DRIVER_TABLE_H_

#include <cuda.h>

#include <string_view>

#include "absl/status/status.h"
#include "driver/prototypes.h"

// Newer than the oldest supported header, or hidden by a macro of the newest one.
extern "C" CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned, int);
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

namespace gpushare::driver {

struct Table {
// The header marks some of them as deprecated, but programs still call them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define X(field, prototype, need, ...) decltype(&::prototype) field = nullptr;
#include "driver/entries.def"
#undef X
#pragma GCC diagnostic pop

  // Looks up every entry point by name and version through the driver's cuGetProcAddress, and through
  // dlsym() if that does not know it. Unavailable, with the names, if required ones are missing.
  absl::Status Fill(void* handle);
};

// Looks up entry points of one loaded driver by exported name.
class Resolver {
 public:
  explicit Resolver(void* handle);
  void* Find(std::string_view exported_name) const;

 private:
  using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t,
                                        CUdriverProcAddressQueryResult*);
  using GetProcAddressV1 = CUresult (*)(const char*, void**, int, cuuint64_t);

  void* handle_;
  GetProcAddressV2 get_proc_address_v2_ = nullptr;
  GetProcAddressV1 get_proc_address_v1_ = nullptr;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_TABLE_H_
