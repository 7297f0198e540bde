// SPDX-License-Identifier: Apache-2.0
// Code on a GPU, and the arguments of launches.
#ifndef GPUSHARE_PYTHON_KERNEL_H_
#define GPUSHARE_PYTHON_KERNEL_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu.h"
#include "object.h"

namespace gpushare::python {

struct Module : Object {
  ModuleHandle handle{"module"};
  std::shared_ptr<Gpu> gpu;
  void Close() override { handle.Close(); }
};

// A view of a CUfunction that keeps its module loaded.
struct Kernel final : Object {
  CUfunc_st* native = nullptr;  // null: closed with its runtime
  std::string name;
  std::shared_ptr<Gpu> gpu;
  ModuleHandle::Use_ module;  // null for another library's kernel
  uint32_t born = 0;          // ForkGeneration()
  // The size of each parameter in bytes, if the driver tells it.
  bool sizes_known = false;
  std::vector<uint32_t> sizes;

  void Close() override {
    native = nullptr;
    module = nullptr;
  }
  CUfunc_st* Use() const;  // throws when it is closed or inherited by a fork
};

class Memory;
struct Stream;
struct VirtualDevice;

std::shared_ptr<Module> LoadModule(const std::shared_ptr<Gpu>& gpu, const pybind11::object& image);
// Loads it into the device's context, which is its own with isolation `context`.
std::shared_ptr<Module> LoadModuleOn(const VirtualDevice& device, const pybind11::object& image);

// The arguments of a launch, packed as the kernel declares them.
class Arguments {
 public:
  // Buffers are recorded as used on `stream`, and kept alive by this object.
  Arguments(const Kernel& kernel, PyObject* const* values, size_t count, Stream& stream);
  void** pointers() { return spilled_pointers_.empty() ? pointers_ : spilled_pointers_.data(); }

 private:
  static constexpr size_t kInline = 16;
  union Word {
    uint64_t u64;
    double f64;
    float f32;
    unsigned char bytes[8];
  };

  void* Pack(const Kernel& kernel, size_t index, PyObject* value, Word& word, Stream& stream);
  void* PackObject(const Kernel& kernel, size_t index, PyObject* value, uint32_t size, Word& word,
                   Stream& stream);

  Word words_[kInline];
  void* pointers_[kInline + 1];
  std::vector<Word> spilled_words_;
  std::vector<void*> spilled_pointers_;
  std::vector<std::unique_ptr<unsigned char[]>> large_;
  std::vector<std::shared_ptr<Memory>> held_;
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_KERNEL_H_
