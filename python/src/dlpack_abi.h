// SPDX-License-Identifier: Apache-2.0
// The structs of DLPack 1.x, laid out according to its specification (dmlc.github.io/dlpack), by which libraries exchange
// arrays in each other's memory.
#ifndef GPUSHARE_PYTHON_DLPACK_ABI_H_
#define GPUSHARE_PYTHON_DLPACK_ABI_H_

#include <cstdint>

namespace gpushare::python::dlpack {

inline constexpr uint32_t kMajor = 1, kMinor = 0;

inline constexpr int32_t kCpu = 1, kCuda = 2;

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

// The form before version 1.
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor* self);
};

inline constexpr uint64_t kReadOnly = 1, kIsCopied = 2;

struct ManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedTensorVersioned* self);
  uint64_t flags;
  Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64);
static_assert(sizeof(ManagedTensorVersioned) == 80);

}  // namespace gpushare::python::dlpack

#endif  // GPUSHARE_PYTHON_DLPACK_ABI_H_
