// SPDX-License-Identifier: Apache-2.0
// Declares entry points that some supported <cuda.h> lacks: newer than the header, of an ABI that its macros hide, or
// deprecated. They are declared only for their types, which entries.def uses, and never defined.
#ifndef GPUSHARE_DRIVER_PROTOTYPES_H_
#define GPUSHARE_DRIVER_PROTOTYPES_H_

#include <cuda.h>

#include <cstddef>

namespace gpushare::driver::prototypes {

CUresult Launch(CUfunction function);
CUresult LaunchGrid(CUfunction function, int width, int height);
CUresult LaunchGridAsync(CUfunction function, int width, int height, CUstream stream);
CUresult LaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned devices,
                                            unsigned flags);

// Attributes and operations are passed on by address; their layouts are not needed here.
CUresult MemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                          void* attributes, size_t* attribute_of, size_t attribute_count,
                          CUstream stream);
CUresult MemcpyBatchAsyncV1(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            void* attributes, size_t* attribute_of, size_t attribute_count,
                            size_t* failed, CUstream stream);
CUresult Memcpy3DBatchAsync(size_t count, void* operations, unsigned long long flags,
                            CUstream stream);
CUresult Memcpy3DBatchAsyncV1(size_t count, void* operations, size_t* failed,
                              unsigned long long flags, CUstream stream);
CUresult MemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                          CUstream stream);
CUresult MemPrefetchAsyncV1(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
CUresult MemPrefetchBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count,
                               CUmemLocation* locations, size_t* location_of, size_t location_count,
                               unsigned long long flags, CUstream stream);
CUresult MemBatchDecompressAsync(void* operations, size_t count, unsigned flags, size_t* failed,
                                 CUstream stream);

}  // namespace gpushare::driver::prototypes

#endif  // GPUSHARE_DRIVER_PROTOTYPES_H_
