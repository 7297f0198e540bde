/* SPDX-License-Identifier: Apache-2.0 */
/* An NVML other than the simulated one, of a machine with a different order of devices than the driver's, and with other tenants'
 * processes on them. NVML_UUIDS has the devices' names. With NVML_NAMESPACE=other it does not list this process's id, as in a
 * container. With NVML_INSTANCES its devices are instances of one GPU, which have no index. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVML __attribute__((visibility("default")))
enum {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kVersion = 25
};

static const uint64_t kTotal = 16ull << 30, kReserved = 512ull << 20, kOthers = 5ull << 30;

typedef struct Device {
  unsigned index;
} Device;
static Device devices[2] = {{0}, {1}};

NVML int nvmlInit_v2(void);
NVML int nvmlInit_v2(void) { return kSuccess; }
NVML int nvmlInitWithFlags(unsigned flags);
NVML int nvmlInitWithFlags(unsigned flags) { return (void)flags, kSuccess; }
NVML int nvmlShutdown(void);
NVML int nvmlShutdown(void) { return kSuccess; }
NVML int nvmlDeviceGetCount_v2(unsigned* count);
NVML int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, kSuccess; }

NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device);
NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (index > 1) return kInvalidArgument;
  *device = &devices[index];
  return kSuccess;
}

NVML int nvmlDeviceGetIndex(const Device* device, unsigned* index);
NVML int nvmlDeviceGetIndex(const Device* device, unsigned* index) {
  if (getenv("NVML_INSTANCES") != NULL) return kNotSupported;
  return *index = device->index, kSuccess;
}

NVML int nvmlDeviceGetUUID(const Device* device, char* uuid, unsigned size);
NVML int nvmlDeviceGetUUID(const Device* device, char* uuid, unsigned size) {
  const char* name = getenv("NVML_UUIDS");
  size_t length;
  if (device == NULL) return kInvalidArgument;
  if (device->index == 1) name = strchr(name, ',') + 1;
  length = strcspn(name, ",");
  if (length >= size) return kInsufficientSize;
  memcpy(uuid, name, length);
  uuid[length] = 0;
  return kSuccess;
}

NVML int nvmlDeviceGetTemperature(const Device* device, int sensor, unsigned* degrees);
NVML int nvmlDeviceGetTemperature(const Device* device, int sensor, unsigned* degrees) {
  (void)sensor;
  return *degrees = 50 + device->index, kSuccess;
}

/* NVIDIA's NVML asks the driver for the version too. */
NVML int nvmlSystemGetCudaDriverVersion_v2(int* version);
NVML int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  int (*ask)(int*);
  *(void**)&ask = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuDriverGetVersion");
  return ask(version) == 0 ? kSuccess : kNotFound;
}

typedef struct Memory {
  uint64_t total, free, used;
} Memory;
NVML int nvmlDeviceGetMemoryInfo(const Device* device, Memory* memory);
NVML int nvmlDeviceGetMemoryInfo(const Device* device, Memory* memory) {
  if (device == NULL || memory == NULL) return kInvalidArgument;
  memory->total = kTotal;
  memory->used = kOthers + kReserved;
  memory->free = kTotal - memory->used;
  return kSuccess;
}

typedef struct MemoryV2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
} MemoryV2;
NVML int nvmlDeviceGetMemoryInfo_v2(const Device* device, MemoryV2* memory);
NVML int nvmlDeviceGetMemoryInfo_v2(const Device* device, MemoryV2* memory) {
  if (device == NULL || memory == NULL) return kInvalidArgument;
  if (memory->version != (sizeof(*memory) | 2u << 24)) return kVersion;
  memory->total = kTotal;
  memory->reserved = kReserved;
  memory->used = kOthers;
  memory->free = kTotal - kReserved - kOthers;
  return kSuccess;
}

typedef struct Utilization {
  uint32_t gpu, memory;
} Utilization;
NVML int nvmlDeviceGetUtilizationRates(const Device* device, Utilization* rates);
NVML int nvmlDeviceGetUtilizationRates(const Device* device, Utilization* rates) {
  (void)device;
  rates->gpu = 100;
  rates->memory = 40;
  return kSuccess;
}

/* The processes on a device: two other ones, and this one between them. */
static int IdsOf(uint32_t ids[3]) {
  const char* const space = getenv("NVML_NAMESPACE");
  int count = 0;
  ids[count++] = 1;
  if (space == NULL || strcmp(space, "other") != 0) ids[count++] = (uint32_t)getpid();
  ids[count++] = 2;
  return count;
}

#define LIST_PROCESSES(name, type, fill)                                  \
  NVML int name(const Device* device, unsigned* count, type* list);       \
  NVML int name(const Device* device, unsigned* count, type* list) {      \
    uint32_t ids[3];                                                      \
    const unsigned all = (unsigned)IdsOf(ids), room = count ? *count : 0; \
    if (device == NULL || count == NULL) return kInvalidArgument;         \
    *count = all;                                                         \
    if (room < all) return kInsufficientSize;                             \
    for (unsigned i = 0; i < all; ++i) {                                  \
      memset(&list[i], 0xff, sizeof(list[i]));                            \
      list[i].pid = ids[i];                                               \
      fill;                                                               \
    }                                                                     \
    return kSuccess;                                                      \
  }

typedef struct ProcessV1 {
  uint32_t pid;
  uint64_t used_memory;
} ProcessV1;
typedef struct ProcessV2 {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
} ProcessV2;
typedef struct ProcessSample {
  uint32_t pid;
  uint64_t time_us;
  uint32_t sm, memory, encoder, decoder;
} ProcessSample;

LIST_PROCESSES(nvmlDeviceGetComputeRunningProcesses, ProcessV1, list[i].used_memory = 1 << 30)
LIST_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, ProcessV2, list[i].used_memory = 1 << 30)
LIST_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, ProcessV2, list[i].used_memory = 1 << 30)
LIST_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessV2, list[i].used_memory = 1 << 30)
/* Helpers that are not functions of NVML. */
LIST_PROCESSES(TheSamples, ProcessSample, list[i].sm = 10 * (i + 1))

NVML int nvmlDeviceGetProcessUtilization(const Device* device, ProcessSample* list, unsigned* count,
                                         uint64_t since);
NVML int nvmlDeviceGetProcessUtilization(const Device* device, ProcessSample* list, unsigned* count,
                                         uint64_t since) {
  return since == 0 ? TheSamples(device, count, list) : kNotFound;
}

typedef struct ProcessDetail {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;
  uint64_t protected_memory;
} ProcessDetail;
typedef struct ProcessDetails {
  uint32_t version, mode, count;
  ProcessDetail* list;
} ProcessDetails;
LIST_PROCESSES(Details, ProcessDetail,
               (list[i].used_memory = 1 << 30, list[i].protected_memory = 0))

NVML int nvmlDeviceGetRunningProcessDetailList(const Device* device, ProcessDetails* details);
NVML int nvmlDeviceGetRunningProcessDetailList(const Device* device, ProcessDetails* details) {
  if (details->version != (sizeof(*details) | 1u << 24)) return kVersion;
  return Details(device, &details->count, details->list);
}

typedef struct ProcessSampleInfo {
  uint64_t time_us;
  uint32_t pid, sm, memory, encoder, decoder, jpeg, optical_flow;
} ProcessSampleInfo;
typedef struct ProcessSamples {
  uint32_t version, count;
  uint64_t since_us;
  ProcessSampleInfo* list;
} ProcessSamples;
LIST_PROCESSES(Infos, ProcessSampleInfo, list[i].sm = 10 * (i + 1))

NVML int nvmlDeviceGetProcessesUtilizationInfo(const Device* device, ProcessSamples* samples);
NVML int nvmlDeviceGetProcessesUtilizationInfo(const Device* device, ProcessSamples* samples) {
  if (samples->version != (sizeof(*samples) | 1u << 24)) return kVersion;
  return Infos(device, &samples->count, samples->list);
}
