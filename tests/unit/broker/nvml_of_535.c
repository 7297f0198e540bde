/* SPDX-License-Identifier: Apache-2.0 */
/* An NVML of a driver from 535.43 to 535.86: its _v3 lists processes in a longer struct than that of its name. Of the last
 * process it has no figure. */
#include <stdint.h>

#define NVML __attribute__((visibility("default")))
enum { kSuccess = 0, kInsufficientSize = 7, kProcesses = 3 };

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
