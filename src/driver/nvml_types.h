// SPDX-License-Identifier: Apache-2.0
// The part of NVML's C interface that the hooks, the broker and the simulated management library use, beside nvml.def.
// Declared here because the packages with the CUDA headers do not contain NVIDIA's nvml.h; names, values and layouts are those
// of that header. This file has declarations only: the simulated GPU shares no code with the layers that use it.
#ifndef GPUSHARE_DRIVER_NVML_TYPES_H_
#define GPUSHARE_DRIVER_NVML_TYPES_H_

#include <cstdint>

namespace gpushare::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kFunctionNotFound = 13,
  kMemory = 20,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

// nvmlDevice_t: an opaque handle of the library.
using Device = struct OpaqueDevice*;

struct Memory {
  uint64_t total, free, used;
};
struct MemoryV2 {
  uint32_t version;  // set by the caller
  uint64_t total, reserved, free, used;
};
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40);
inline constexpr uint32_t kMemoryV2 = sizeof(MemoryV2) | 2u << 24;

struct Utilization {
  uint32_t gpu, memory;  // percent
};

struct PciInfoV2 {
  char bus_id[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  uint32_t reserved[4];
};
struct PciInfo {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfoV2) == 52 && sizeof(PciInfo) == 68);

struct ProcessV1 {
  uint32_t pid;
  uint64_t used_memory;
};
// The entry of the _v2 and _v3 calls.
struct ProcessV2 {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;  // kNoInstance: none
};
static_assert(sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24);
inline constexpr uint32_t kNoInstance = UINT32_MAX;
inline constexpr uint64_t kNoFigure = UINT64_MAX;  // the driver does not tell the memory

struct ProcessDetail {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
  uint64_t protected_memory;
};
struct ProcessDetails {
  uint32_t version, mode;
  uint32_t count;  // in: room; out: how many there are
  ProcessDetail* list;
};
static_assert(sizeof(ProcessDetail) == 32 && sizeof(ProcessDetails) == 24);

struct ProcessSample {
  uint32_t pid;
  uint64_t time_us;
  uint32_t sm, memory, encoder, decoder;  // percent
};
struct ProcessSampleInfo {
  uint64_t time_us;
  uint32_t pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
struct ProcessSamples {
  uint32_t version;
  uint32_t count;  // in: room; out: how many there are
  uint64_t since_us;
  ProcessSampleInfo* list;
};
static_assert(sizeof(ProcessSample) == 32 && sizeof(ProcessSampleInfo) == 40 &&
              sizeof(ProcessSamples) == 24);

}  // namespace gpushare::nvml

#endif  // GPUSHARE_DRIVER_NVML_TYPES_H_
