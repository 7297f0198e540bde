// SPDX-License-Identifier: Apache-2.0
// Modules and their kernels, as far as the simulator needs them: names, parameters, what a launch costs and how many SMs it
// takes. Kernels do not execute: they take time.
#ifndef GPUSHARE_SIM_MODULE_MODULE_H_
#define GPUSHARE_SIM_MODULE_MODULE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/config.h"

namespace gpushare::sim {

struct Context;
struct Kernel;
struct Library;
struct Module;

struct KernelParameter {
  uint32_t offset, size;
};

// The `//gpushare.sim` line before an entry.
struct KernelCost {
  enum class Kind : uint8_t { kFixed, kPerWave, kParameter };
  Kind kind = Kind::kPerWave;
  uint64_t ns = 5000;
  uint32_t parameter = 0;
  uint32_t blocks_per_sm = 0;  // 0: computed from threads and shared memory
  std::optional<uint32_t> stamps =
      std::nullopt;   // the parameter with the address of the stamps (stamps.h)
  bool away = false;  // the stamps have a fifth word
};

struct PtxEntry {
  std::string name;
  std::vector<KernelParameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t max_threads = 1024;  // .maxntid, .reqntid
  KernelCost cost;
};

struct PtxGlobal {
  std::string name;
  uint64_t bytes = 0;
  std::string initial = {};  // for a cubin, the first of the `bytes`; the rest is 0
};

// A module read from PTX or from a cubin.
struct DeviceModule {
  int version = 0;  // of PTX: 75 means 7.5
  std::vector<PtxEntry> entries;
  std::vector<PtxGlobal> globals;
};

// Empty if `text` is a valid module, else what is wrong with it and in which line.
std::string ParsePtx(std::string_view text, DeviceModule* module);

// The settings of a function that a program may change.
struct FunctionSettings {
  int max_dynamic_shared = 48 << 10;
  int carveout = -1;
};

struct Function {
  uint64_t handle = 0;
  Module* module = nullptr;
  PtxEntry entry;
  FunctionSettings settings;
  int ptx_version = 0;

  // The last answer of BlocksPerSm, and the faults that concern this kernel.
  mutable uint32_t cached_threads = 0, cached_blocks = 0;
  mutable uint64_t cached_shared = 0;
  mutable uint64_t fault_version = 0;
  mutable bool hangs = false, faults = false;
  mutable bool loaded = false;  // its code is on the device: it was launched, or is about to be
};

struct Global {
  std::string name;
  uint64_t address = 0, bytes = 0;
};

struct Module {
  uint64_t handle = 0;
  Context* context = nullptr;
  Library* library = nullptr;  // null for a module that was loaded by itself
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<Global> globals;
  uint64_t charged = 0;  // bytes of device memory besides the variables
};

inline constexpr uint32_t kMaxBlocksPerSm = 32;
inline constexpr uint32_t kReservedShared = 1024;  // per block, from compute capability 8.0

// How many blocks of the kernel fit on an SM by threads and shared memory; 0 if none does.
uint32_t BlocksPerSm(const Function& function, const Config& config, uint32_t threads,
                     uint64_t shared_bytes);

struct LaunchShape {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
};

// What a launch needs from the device.
struct KernelPlan {
  uint32_t groups;
  uint32_t waves;
  uint64_t duration_ns;  // if it has the device alone
  bool fits;             // all blocks can be resident at the same time
  uint64_t stamps = 0;   // the address of its stamps; 0: none
};

// Returns a CUresult. `parameters` are the addresses of the parameters' values, or null when the values are packed one after
// the other in `packed`.
int PlanKernel(const Function& function, const Config& config, const LaunchShape& shape,
               void* const* parameters, const uint8_t* packed, uint64_t packed_bytes,
               KernelPlan* plan);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MODULE_MODULE_H_
