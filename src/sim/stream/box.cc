// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/box.h"

#include "sim/memory/address.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kMostPitch = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

struct Extent {
  uint64_t width, height, depth;
};

// The address of the first byte of an end, and the distances of its rows and slices.
struct Place {
  uint64_t address, pitch, slice;
  bool array;
};

bool Fits(uint64_t from, uint64_t length, uint64_t limit) {
  return from <= limit && length <= limit - from;
}

CUresult PlaceInArray(const BoxEnd& end, const Extent& extent, Place* place) {
  const Array* const array = state().arrays.Find(end.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ArrayShape& shape = array->shape;
  if (end.x % shape.element != 0 || extent.width % shape.element != 0 ||
      !Fits(end.x, extent.width, shape.row_bytes()) || !Fits(end.y, extent.height, shape.rows()) ||
      !Fits(end.z, extent.depth, shape.slices())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  place->pitch = shape.row_bytes();
  place->slice = shape.row_bytes() * shape.rows();
  place->address = array->address + end.z * place->slice + end.y * place->pitch + end.x;
  place->array = true;
  return CUDA_SUCCESS;
}

CUresult PlaceInMemory(const BoxEnd& end, const Extent& extent, Pitches pitches, Place* place) {
  uint64_t base = end.device;
  if (end.type == CU_MEMORYTYPE_HOST) base = reinterpret_cast<uint64_t>(end.host);
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  if (end.type == CU_MEMORYTYPE_DEVICE && !IsDeviceAddress(base) && IsPageable(base)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row_end, rows_end;
  if (__builtin_add_overflow(end.x, extent.width, &row_end) ||
      __builtin_add_overflow(end.y, extent.height, &rows_end)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  place->pitch = end.pitch == 0 ? row_end : end.pitch;
  const uint64_t rows = end.height == 0 ? rows_end : end.height;
  const bool one_row = extent.height == 1 && extent.depth == 1 && end.y == 0 && end.z == 0;
  if (!one_row &&
      (place->pitch < row_end || (pitches == Pitches::kLimited && place->pitch > kMostPitch))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((extent.depth > 1 || end.z > 0) && rows < rows_end) return CUDA_ERROR_INVALID_VALUE;
  uint64_t y, z;
  if (__builtin_mul_overflow(place->pitch, rows, &place->slice) ||
      __builtin_mul_overflow(end.z, place->slice, &z) ||
      __builtin_mul_overflow(end.y, place->pitch, &y) ||
      __builtin_add_overflow(base, z, &place->address) ||
      __builtin_add_overflow(place->address, y, &place->address) ||
      __builtin_add_overflow(place->address, end.x, &place->address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  place->array = false;
  return CUDA_SUCCESS;
}

CUresult PlaceOf(const BoxEnd& end, const Extent& extent, Pitches pitches, Place* place) {
  if (end.level != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (end.type) {
    case CU_MEMORYTYPE_ARRAY:
      return PlaceInArray(end, extent, place);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return PlaceInMemory(end, extent, pitches, place);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

template <typename Copy>
CUresult FillFrom3D(const Copy& copy, CopyWork* work) {
  return FillBox({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstXInBytes,
                  copy.dstY, copy.dstZ, copy.dstLOD, copy.dstPitch, copy.dstHeight},
                 {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcXInBytes,
                  copy.srcY, copy.srcZ, copy.srcLOD, copy.srcPitch, copy.srcHeight},
                 copy.WidthInBytes, copy.Height, copy.Depth, Pitches::kLimited, work);
}

}  // namespace

CUresult FillBox(const BoxEnd& to, const BoxEnd& from, size_t width, size_t height, size_t depth,
                 Pitches pitches, CopyWork* work) {
  *work = {};
  work->bytes = width;
  work->rows = height;
  work->slices = depth;
  if (width == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
  const Extent extent{width, height, depth};
  Place target, source;
  CUresult result = PlaceOf(to, extent, pitches, &target);
  if (result == CUDA_SUCCESS) result = PlaceOf(from, extent, pitches, &source);
  if (result != CUDA_SUCCESS) return result;
  work->to = target.address;
  work->pitch_to = target.pitch;
  work->slice_to = target.slice;
  work->to_array = target.array;
  work->from = source.address;
  work->pitch_from = source.pitch;
  work->slice_from = source.slice;
  work->from_array = source.array;
  return CUDA_SUCCESS;
}

CUresult FillBox(const CUDA_MEMCPY2D& copy, Pitches pitches, CopyWork* work) {
  return FillBox({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstXInBytes,
                  copy.dstY, 0, 0, copy.dstPitch, 0},
                 {copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcXInBytes,
                  copy.srcY, 0, 0, copy.srcPitch, 0},
                 copy.WidthInBytes, copy.Height, 1, pitches, work);
}

CUresult FillBox(const CUDA_MEMCPY3D& copy, CopyWork* work) { return FillFrom3D(copy, work); }

CUresult FillBox(const CUDA_MEMCPY3D_PEER& copy, CopyWork* work) {
  // The context of an end that is an array is ignored.
  if ((copy.dstMemoryType != CU_MEMORYTYPE_ARRAY && FindContext(copy.dstContext) == nullptr) ||
      (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY && FindContext(copy.srcContext) == nullptr)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return FillFrom3D(copy, work);
}

}  // namespace gpushare::sim
