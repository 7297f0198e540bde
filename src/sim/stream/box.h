// SPDX-License-Identifier: Apache-2.0
// Copies of boxes: rows and slices of host memory, device memory and arrays, in every combination.
#ifndef GPUSHARE_SIM_STREAM_BOX_H_
#define GPUSHARE_SIM_STREAM_BOX_H_

#include "sim/api/api.h"

namespace gpushare::sim {

// One end of the copy, as the descriptors of 2D and 3D copies give it.
struct BoxEnd {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z;  // x in bytes
  size_t level;
  size_t pitch, height;  // for memory that is not an array; 0: that of the copy
};

enum class Pitches : uint8_t { kLimited, kAny };  // cuMemcpy2DUnaligned accepts any

// Checks the ends and fills in the work, except for the direction, which CheckCopy() fills in.
CUresult FillBox(const BoxEnd& to, const BoxEnd& from, size_t width, size_t height, size_t depth,
                 Pitches pitches, CopyWork* work);

CUresult FillBox(const CUDA_MEMCPY2D& copy, Pitches pitches, CopyWork* work);
CUresult FillBox(const CUDA_MEMCPY3D& copy, CopyWork* work);
CUresult FillBox(const CUDA_MEMCPY3D_PEER& copy, CopyWork* work);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_BOX_H_
