/* SPDX-License-Identifier: Apache-2.0 */
/* Imitates the NVML of drivers from 535.43 to 535.86, whose _v3 function lists processes in a longer struct than its version
 * says. It has no figure for the last process. GPU-MPS runs several processes at a time, GPU-MIG is a part of a GPU, and no process
 * runs on GPU-IDLE. */
#include <stdint.h>
#include <string.h>

#define NVML __attribute__((visibility("default")))
enum { kSuccess = 0, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7, kProcesses = 3 };

typedef struct Process {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
} Process;
typedef struct Longer {
  Process process;
  uint64_t protected_memory;
} Longer;

NVML int nvmlInit_v2(void);
NVML int nvmlInit_v2(void) { return kSuccess; }
NVML int nvmlShutdown(void);
NVML int nvmlShutdown(void) { return kSuccess; }
NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** device);
NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = (void*)uuid;
  return kSuccess;
}

static Process At(unsigned i) {
  const uint64_t memory = i == kProcesses - 1 ? UINT64_MAX : (uint64_t)(i + 1) << 30;
  return (Process){1000000 + i, memory, UINT32_MAX, UINT32_MAX};
}
static int Lists(unsigned* count) {
  const unsigned room = *count;
  *count = kProcesses;
  return room < kProcesses ? kInsufficientSize : kSuccess;
}
NVML int nvmlDeviceGetComputeRunningProcesses_v2(void* device, unsigned* count, Process* list);
NVML int nvmlDeviceGetComputeRunningProcesses_v2(void* device, unsigned* count, Process* list) {
  (void)device;
  const int result = Lists(count);
  for (unsigned i = 0; result == kSuccess && i < kProcesses; ++i) list[i] = At(i);
  return result;
}
NVML int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Longer* list);
NVML int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Longer* list) {
  (void)device;
  const int result = Lists(count);
  for (unsigned i = 0; result == kSuccess && i < kProcesses; ++i) list[i] = (Longer){At(i), 0};
  return result;
}

NVML int nvmlDeviceGetMPSComputeRunningProcesses_v2(void* device, unsigned* count, Process* list);
NVML int nvmlDeviceGetMPSComputeRunningProcesses_v2(void* device, unsigned* count, Process* list) {
  *count = strcmp(device, "GPU-MPS") == 0;
  if (*count > 0) list[0] = At(0);
  return kSuccess;
}

typedef struct Sample {
  uint32_t pid;
  uint64_t time_us;
  uint32_t sm, memory, encoder, decoder;
} Sample;
/* More than there is room for at first, with places that are left empty or are nonsense. */
NVML int nvmlDeviceGetProcessUtilization(void* device, Sample* list, unsigned* count,
                                         unsigned long long since);
NVML int nvmlDeviceGetProcessUtilization(void* device, Sample* list, unsigned* count,
                                         unsigned long long since) {
  enum { kSamples = 100 };
  if (strcmp(device, "GPU-MIG") == 0) return kNotSupported;
  if (strcmp(device, "GPU-IDLE") == 0) return kNotFound;
  const unsigned room = *count;
  *count = kSamples;
  if (room < kSamples) return kInsufficientSize;
  memset(list, 0, kSamples * sizeof(*list));
  list[1] = (Sample){1000000, since + 500, 40, 0, 0, 0};
  list[2] = (Sample){1000001, since, 50, 0, 0, 0};        /* seen before */
  list[3] = (Sample){1000002, since + 9, 77777, 0, 0, 0}; /* no percentage */
  list[99] = (Sample){1000003, since + 700, 100, 0, 0, 0};
  return kSuccess;
}
