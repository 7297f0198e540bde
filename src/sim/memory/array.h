// SPDX-License-Identifier: Apache-2.0
// CUDA arrays: memory without an address that programs may use. Rows and slices are contiguous. The array, and each level of a
// mipmapped array, begins at a multiple of 512 bytes and is charged with the bytes of its elements rounded up to that.
#ifndef GPUSHARE_SIM_MEMORY_ARRAY_H_
#define GPUSHARE_SIM_MEMORY_ARRAY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpushare::sim {

class Device;
struct Context;
struct MipmappedArray;

struct ArrayShape {
  uint64_t width = 0, height = 0,
           depth = 0;  // in elements, as requested; 0 if there is no such extent
  unsigned format = 0, channels = 0, flags = 0;
  uint64_t element = 0;  // bytes

  uint64_t row_bytes() const { return width * element; }
  uint64_t rows() const { return std::max<uint64_t>(height, 1); }
  uint64_t slices() const { return std::max<uint64_t>(depth, 1); }  // or layers
  uint64_t bytes() const { return row_bytes() * rows() * slices(); }
};

struct Array {
  uint64_t handle = 0;
  ArrayShape shape;
  Context* context = nullptr;
  Device* device = nullptr;
  uint64_t address = 0;             // of a hidden block
  MipmappedArray* owner = nullptr;  // set for a level of a mipmapped array
};

struct MipmappedArray {
  uint64_t handle = 0;
  Context* context = nullptr;
  Device* device = nullptr;
  uint64_t address = 0;
  bool mapped = false;  // it maps external memory
  std::vector<std::unique_ptr<Array>> levels;
};

// Fills in the size of an element. A CUresult: whether the device supports such an array.
int CheckArrayShape(ArrayShape* shape, bool mipmapped);
// 1 + floor(log2(longest extent)).
unsigned MostLevels(const ArrayShape& shape);

// Null when the device has no room.
Array* CreateArray(Context* context, const ArrayShape& shape);
MipmappedArray* CreateMipmappedArray(Context* context, const ArrayShape& shape, unsigned levels);
// Makes an array over existing memory, which must be large enough.
MipmappedArray* MapMipmappedArray(Context* context, const ArrayShape& shape, unsigned levels,
                                  uint64_t address);
uint64_t MipmappedBytes(const ArrayShape& shape, unsigned levels);
void DestroyArray(Array* array);
void DestroyMipmappedArray(MipmappedArray* array);
// Called when the context ends, and its memory with it.
void ForgetArraysOf(const Context* context);

// The device's limits for textures and surfaces. False if the attribute is not one of these.
bool ArrayLimit(int attribute, int* value);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_ARRAY_H_
