// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

#include <cmath>

#include "kernels.h"

namespace gpushare::facts {
namespace {

// Long enough for the GPU's clock to leave its idle state, and for the second half to be steady.
constexpr double kWarmNs = 150e6;
constexpr double kCalibrationCycles = 8e6;

void Launch(const Gpu& gpu, CUfunction function, CUstream stream, unsigned blocks, unsigned threads,
            unsigned shared, void** parameters) {
  MUST(gpu.cu, cuLaunchKernel, function, blocks, 1u, 1u, threads, 1u, 1u, shared, stream,
       parameters, nullptr);
}

int Attribute(const Gpu& gpu, CUdevice_attribute attribute) {
  int value = 0;
  MUST(gpu.cu, cuDeviceGetAttribute, &value, attribute, gpu.device);
  return value;
}

CUfunction Function(const Gpu& gpu, CUmodule module, const char* name) {
  CUfunction function = nullptr;
  MUST(gpu.cu, cuModuleGetFunction, &function, module, name);
  return function;
}

// Slightly more than half of an SM's shared memory, as far as one block may have that much.
void KeepSpinAlone(Gpu& gpu) {
  const int per_sm = Attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const int most = Attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  int bytes = per_sm / 2 + 1024;
  if (bytes > most) bytes = most;
  if (bytes <= 0) return;
  MUST(gpu.cu, cuFuncSetAttribute, gpu.spin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
       bytes);
  gpu.shared_alone = static_cast<unsigned>(bytes);
}

void WarmAndCalibrate(Gpu& gpu) {
  CUstream stream = gpu.NewStream();
  CUdeviceptr stamps = gpu.NewStamps(1);
  gpu.Spin(stream, 1, 10 * kNsPerUs, stamps);
  gpu.Sync(stream);
  gpu.executes = gpu.ReadStamps(stamps, 1)[0].end != 0;
  if (gpu.executes) {
    const int64_t until = Now() + static_cast<int64_t>(kWarmNs);
    while (Now() < until) {
      // With 1 cycle per nanosecond assumed until the calibration, this is half a millisecond or more per round.
      for (int i = 0; i < 4; ++i) gpu.Spin(stream, gpu.sms, 0.5 * kNsPerMs);
      gpu.Sync(stream);
    }
    gpu.ResetStamps(stamps, 1);
    gpu.Spin(stream, gpu.sms, kCalibrationCycles, stamps);
    gpu.Sync(stream);
    gpu.cycles_per_ns = kCalibrationCycles / gpu.ReadStamps(stamps, 1)[0].length();
  }
  MUST(gpu.cu, cuMemFree, stamps);
  MUST(gpu.cu, cuStreamDestroy, stream);
}

}  // namespace

CUstream Gpu::NewStream(int priority) const {
  CUstream stream = nullptr;
  MUST(cu, cuStreamCreateWithPriority, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING),
       priority);
  return stream;
}

CUevent Gpu::NewEvent(bool timing) const {
  CUevent event = nullptr;
  MUST(cu, cuEventCreate, &event,
       static_cast<unsigned>(timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
  return event;
}

void Gpu::Record(CUevent event, CUstream stream) const { MUST(cu, cuEventRecord, event, stream); }

void Gpu::Sync(CUstream stream) const { MUST(cu, cuStreamSynchronize, stream); }

double Gpu::ElapsedNs(CUevent start, CUevent end) const {
  float ms = 0;
  MUST(cu, cuEventElapsedTime, &ms, start, end);
  return static_cast<double>(ms) * kNsPerMs;
}

void Gpu::Poll(CUevent event) const {
  for (;;) {
    const CUresult result = cu.cuEventQuery(event);
    if (result == CUDA_SUCCESS) return;
    if (result != CUDA_ERROR_NOT_READY)
      StopFailed("cuEventQuery returned " + ErrorName(cu, result));
  }
}

void Gpu::PollUntil(int64_t when, CUstream stream) const {
  while (Now() < when) {
    const CUresult result = cu.cuStreamQuery(stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      StopFailed("cuStreamQuery returned " + ErrorName(cu, result));
    }
  }
}

void Gpu::Spin(CUstream stream, int blocks, double ns, CUdeviceptr stamp, double sim_ns) const {
  auto cost = static_cast<uint64_t>(std::llround(sim_ns > 0 ? sim_ns : ns));
  auto cycles = static_cast<uint64_t>(std::llround(ns * cycles_per_ns));
  void* parameters[] = {&cost, &cycles, &stamp};
  Launch(*this, spin, stream, static_cast<unsigned>(blocks), 32, shared_alone, parameters);
}

void Gpu::SpinSmall(CUstream stream, int blocks, double ns) const {
  auto cost = static_cast<uint64_t>(std::llround(ns));
  auto cycles = static_cast<uint64_t>(std::llround(ns * cycles_per_ns));
  CUdeviceptr stamp = 0;
  void* parameters[] = {&cost, &cycles, &stamp};
  Launch(*this, spin_small, stream, static_cast<unsigned>(blocks), 32, 0, parameters);
}

void Gpu::Nothing(CUstream stream) const { Launch(*this, nothing, stream, 1, 32, 0, nullptr); }

CUdeviceptr Gpu::NewStamps(size_t n) const {
  CUdeviceptr stamps = 0;
  MUST(cu, cuMemAlloc, &stamps, n * sizeof(Stamp));
  ResetStamps(stamps, n);
  return stamps;
}

void Gpu::ResetStamps(CUdeviceptr stamps, size_t n) const {
  const std::vector<Stamp> fresh(n);
  MUST(cu, cuMemcpyHtoD, stamps, fresh.data(), n * sizeof(Stamp));
  // A small copy may return before it has reached the device, and our streams do not wait for it.
  if (cu.cuCtxSynchronize() != CUDA_SUCCESS) StopFailed("cuCtxSynchronize failed after a copy");
}

std::vector<Stamp> Gpu::ReadStamps(CUdeviceptr stamps, size_t n) const {
  std::vector<Stamp> read(n);
  MUST(cu, cuMemcpyDtoH, read.data(), stamps, n * sizeof(Stamp));
  return read;
}

void Gpu::NeedExecution() const {
  if (!executes)
    StopUnsupported("kernels of this driver execute no code, so they write no time stamps");
}

void OpenKernels(Gpu& gpu) {
  const std::string text = KernelText();
  CUmodule module = nullptr;
  MUST(gpu.cu, cuModuleLoadData, &module, text.c_str());
  gpu.spin = Function(gpu, module, "spin");
  gpu.spin_small = Function(gpu, module, "spin_small");
  gpu.nothing = Function(gpu, module, "nothing");
  gpu.ticks = Function(gpu, module, "ticks");
  gpu.gaps = Function(gpu, module, "gaps");
  gpu.flags = Function(gpu, module, "flags");
  KeepSpinAlone(gpu);
}

Gpu OpenGpu(bool warm) {
  Gpu gpu;
  gpu.cu = OpenDriver();
  int64_t before = Now();
  MUST(gpu.cu, cuInit, 0u);
  gpu.init_ns = static_cast<double>(Now() - before);
  MUST(gpu.cu, cuDeviceGet, &gpu.device, 0);
  before = Now();
  MUST(gpu.cu, cuDevicePrimaryCtxRetain, &gpu.context, gpu.device);
  MUST(gpu.cu, cuCtxSetCurrent, gpu.context);
  gpu.context_ns = static_cast<double>(Now() - before);
  gpu.sms = Attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  MUST(gpu.cu, cuCtxGetStreamPriorityRange, &gpu.least_priority, &gpu.greatest_priority);

  before = Now();
  OpenKernels(gpu);
  gpu.module_ns = static_cast<double>(Now() - before);
  if (warm) WarmAndCalibrate(gpu);
  return gpu;
}

}  // namespace gpushare::facts
