// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/calibrate/gpu.h"

#include <unistd.h>

#include <algorithm>

#include "harness/stage/calibrate/kernels.h"

namespace gpushare::harness {
namespace {

constexpr Nanos kWarm = Millis(150);
constexpr Nanos kStep = Nanos(50);

}  // namespace

Gpu::Gpu(driver::Driver& driver, int ordinal, std::FILE* findings)
    : driver_(driver), ordinal_(ordinal), findings_(findings) {
  // Through two macros: cuda.h's names have their versions by macros too (cuMemAlloc is cuMemAlloc_v2).
#define GPUSHARE_CALIBRATE_TEXT(x) #x
#define X(name)                                                                                  \
  cu_.name = reinterpret_cast<decltype(cu_.name)>(driver.Symbol(GPUSHARE_CALIBRATE_TEXT(name))); \
  if (cu_.name == nullptr) Stop("this driver has no " GPUSHARE_CALIBRATE_TEXT(name));
  GPUSHARE_CALIBRATE_CALLS(X)
#undef X
#undef GPUSHARE_CALIBRATE_TEXT
}

void Gpu::Stop(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::fflush(nullptr);
  _exit(1);
}

void Gpu::Must(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cu_.cuGetErrorName(result, &name);
  Stop(std::string(call) + ": " +
       (name == nullptr ? "error " + std::to_string(static_cast<int>(result)) : name));
}

void Gpu::MakeContext() {
  GPUSHARE_MUST(*this, cuDevicePrimaryCtxRetain, &context_, ordinal_);
  GPUSHARE_MUST(*this, cuCtxSetCurrent, context_);
  sms_ = std::max(Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
  const CUmodule module = LoadKernels(&spin_);
  GPUSHARE_MUST(*this, cuModuleGetFunction, &flag_, module, "flag");
  GPUSHARE_MUST(*this, cuModuleGetFunction, &nothing_, module, "nothing");
  const int per_sm = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const int most = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (const int bytes = std::min(per_sm / 2 + 1024, most); bytes > 0) {
    GPUSHARE_MUST(*this, cuFuncSetAttribute, spin_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                  bytes);
    shared_alone_ = static_cast<unsigned>(bytes);
  }
  CUstream stream = NewStream();
  const CUdeviceptr stamps = NewStamps(1);
  Spin(stream, Micros(10), stamps);
  Sync(stream);
  executes_ = ReadStamps(stamps, 1)[0].end != 0;
  // Loads the functions; first_launches.cc measures how long that takes.
  Nothing(stream);
  void* host = nullptr;
  CUdeviceptr word = 0;
  GPUSHARE_MUST(*this, cuMemHostAlloc, &host, 64, CU_MEMHOSTALLOC_DEVICEMAP);
  GPUSHARE_MUST(*this, cuMemHostGetDevicePointer, &word, host, 0);
  Flag(stream, Micros(1), word);
  Sync(stream);
  GPUSHARE_MUST(*this, cuMemFreeHost, host);
  GPUSHARE_MUST(*this, cuMemFree, stamps);
  GPUSHARE_MUST(*this, cuStreamDestroy, stream);
}

void Gpu::Warm() const {
  if (!executes_) return;
  CUstream stream = NewStream();
  for (const Time until = Now() + kWarm; Now() < until;) {
    SpinAlone(stream, sms_, Millis(2));
    Sync(stream);
  }
  GPUSHARE_MUST(*this, cuStreamDestroy, stream);
}

int Gpu::Attribute(CUdevice_attribute which) const {
  int value = 0;
  GPUSHARE_MUST(*this, cuDeviceGetAttribute, &value, which, ordinal_);
  return value;
}

CUstream Gpu::NewStream() const {
  CUstream stream = nullptr;
  GPUSHARE_MUST(*this, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return stream;
}

CUevent Gpu::NewEvent() const {
  CUevent event = nullptr;
  GPUSHARE_MUST(*this, cuEventCreate, &event, CU_EVENT_DEFAULT);
  return event;
}

void Gpu::Record(CUevent event, CUstream stream) const {
  GPUSHARE_MUST(*this, cuEventRecord, event, stream);
}

void Gpu::Sync(CUstream stream) const { GPUSHARE_MUST(*this, cuStreamSynchronize, stream); }

double Gpu::ElapsedNs(CUevent start, CUevent end) const {
  float ms = 0;  // through the table, which knows the name in older drivers
  Must(static_cast<CUresult>(driver_.ElapsedMs(&ms, start, end)), "cuEventElapsedTime");
  return static_cast<double>(ms) * 1e6;
}

bool Gpu::IsDone(CUevent event) const {
  const CUresult result = cu_.cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  Must(result, "cuEventQuery");
  return true;
}

void Gpu::AwaitStream(CUstream stream) const {
  for (Time before = Now();;) {
    const CUresult result = cu_.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) return Must(result, "cuStreamQuery");
    // On a virtual clock a query may take no time.
    if (const Time now = Now(); now != before) {
      before = now;
    } else {
      clock().SleepUntil(now + kStep);
    }
  }
}

void Gpu::Launch(CUfunction function, CUstream stream, int blocks, unsigned shared,
                 void** params) const {
  GPUSHARE_MUST(*this, cuLaunchKernel, function, static_cast<unsigned>(blocks), 1, 1, 32, 1, 1,
                shared, stream, params, nullptr);
}

void Gpu::Spin(CUstream stream, Nanos ns, CUdeviceptr stamp) const {
  auto cost = static_cast<uint64_t>(ns.count());
  void* params[] = {&cost, &stamp};
  Launch(spin_, stream, 1, 0, params);
}

void Gpu::SpinAlone(CUstream stream, int blocks, Nanos ns, CUdeviceptr stamp) const {
  auto cost = static_cast<uint64_t>(ns.count());
  void* params[] = {&cost, &stamp};
  Launch(spin_, stream, blocks, shared_alone_, params);
}

void Gpu::Flag(CUstream stream, Nanos ns, CUdeviceptr word) const {
  auto cost = static_cast<uint64_t>(ns.count());
  void* params[] = {&cost, &word};
  Launch(flag_, stream, 1, 0, params);
}

void Gpu::Nothing(CUstream stream) const { Launch(nothing_, stream, 1, 0, nullptr); }

CUmodule Gpu::LoadKernels(CUfunction* spin) const {
  CUmodule module = nullptr;
  GPUSHARE_MUST(*this, cuModuleLoadData, &module, kKernels);
  GPUSHARE_MUST(*this, cuModuleGetFunction, spin, module, "spin");
  return module;
}

CUdeviceptr Gpu::NewStamps(size_t n) const {
  const std::vector<Stamp> fresh(n);
  CUdeviceptr stamps = 0;
  GPUSHARE_MUST(*this, cuMemAlloc, &stamps, n * sizeof(Stamp));
  GPUSHARE_MUST(*this, cuMemcpyHtoD, stamps, fresh.data(), n * sizeof(Stamp));
  // A small copy may return before it has reached the device, and non-blocking streams do not wait for it.
  GPUSHARE_MUST(*this, cuCtxSynchronize);
  return stamps;
}

std::vector<Stamp> Gpu::ReadStamps(CUdeviceptr stamps, size_t n) const {
  std::vector<Stamp> read(n);
  GPUSHARE_MUST(*this, cuMemcpyDtoH, read.data(), stamps, n * sizeof(Stamp));
  return read;
}

size_t Gpu::FreeMemory() const {
  size_t free = 0, total = 0;
  GPUSHARE_MUST(*this, cuMemGetInfo, &free, &total);
  return free;
}

void Gpu::Report(const char* name, const std::vector<double>& samples) const {
  std::fputs(FormatFinding({name, samples, {}, {}}).c_str(), findings_);
  std::fflush(findings_);
}

void Gpu::ReportWords(const char* name, const std::string& words) const {
  std::fputs(FormatFinding({name, {}, words, {}}).c_str(), findings_);
  std::fflush(findings_);
}

void Gpu::ReportWhyNot(const char* name, const std::string& why) const {
  std::fputs(FormatFinding({name, {}, {}, why}).c_str(), findings_);
  std::fflush(findings_);
}

}  // namespace gpushare::harness
