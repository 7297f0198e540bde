// SPDX-License-Identifier: Apache-2.0
// Hooks of contexts. The end of a context frees the memory that it holds (src/books) and ends its streams (src/work).
#include <array>
#include <atomic>
#include <cstdint>

#include "driver/current_context.h"
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using driver::CurrentContext;

// The hook of a call that changes the calling thread's current context and does nothing else of interest.
template <Name kName, typename Function>
struct Changing;
template <Name kName, typename... A>
struct Changing<kName, CUresult(A...)> {
  static CUresult Call(A... a) {
    if (Process::Forked()) return CUDA_ERROR_NOT_INITIALIZED;
    const CurrentContext::Change change;
    return Driver<kName, CUresult(A...)>::Call(a...);
  }
};
template <Name kName, typename Function>
void AddChanging(Hooks* hooks) {
  Add<Function>(hooks, kName.text, &Changing<kName, Function>::Call);
}

// Calls through these tables bypass the hooks, so the current context can no longer be cached.
CUresult GetExportTable(const void** table, const CUuuid* id) {
  if (Process::Forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result =
      Driver<"cuGetExportTable", CUresult(const void**, const CUuuid*)>::Call(table, id);
  if (result == CUDA_SUCCESS) CurrentContext::End();
  return result;
}

// Whether the driver will destroy the context when asked. It refuses a primary context, and a handle that is not a context.
bool MayEnd(const driver::Table& driver, CUcontext context) {
  CUcontext popped = nullptr, primary = nullptr;
  CUdevice device = -1;
  if (context == nullptr || driver.CtxPushCurrent(context) != CUDA_SUCCESS) return false;
  const CUresult found = driver.CtxGetDevice(&device);
  driver.CtxPopCurrent(&popped);
  unsigned flags = 0;
  int active = 0;
  if (found != CUDA_SUCCESS) return false;
  if (driver.DevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return true;
  }
  if (driver.DevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) return true;
  driver.DevicePrimaryCtxRelease(device);
  return primary != context;
}

// Every call that ends a context has to go through here, because the work in flight on its streams is measured first.
template <typename Call>
CUresult Ending(CUcontext context, const Call& call) {
  return Booked([&](Books& b) {
    Process& process = Process::Get();
    process.ForgetContexts();
    const CurrentContext::Change change(CurrentContext::kOfAll);
    if (!MayEnd(process.driver(), context)) return call(b);
    return process.calls().ContextEnds(context, [&] { return call(b); });
  });
}

CUresult CtxDestroy(CUcontext context) {
  return Ending(context, [&](Books& b) { return b.CtxDestroy(context); });
}
CUresult CtxDetach(CUcontext context) {
  return Ending(context, [&](Books& b) { return b.CtxDetach(context); });
}
// The number of the program's references to a primary context. The engine holds a reference of its own once it has used the
// context. So a release ends the context only before that, or if the program releases more often than it retained.
std::atomic<int>& References(CUdevice device) {
  static std::array<std::atomic<int>, work::Gates::kDevices + 1> of_devices{};
  const bool known = device >= 0 && device < work::Gates::kDevices;
  return of_devices[known ? static_cast<size_t>(device) : work::Gates::kDevices];
}

CUresult DevicePrimaryCtxRelease(CUdevice device) {
  return Booked([&](Books& b) {
    Process& process = Process::Get();
    process.ForgetContexts();
    const auto call = [&] { return b.DevicePrimaryCtxRelease(device); };
    const bool may_end = References(device).fetch_sub(1) <= 0;
    const CurrentContext::Change change(may_end ? CurrentContext::kOfAll
                                                : CurrentContext::kOfThread);
    const CUresult result =
        may_end ? process.calls().PrimaryContextEnds(process.payer(), device, call) : call();
    if (result != CUDA_SUCCESS) References(device).fetch_add(1);
    return result;
  });
}
CUresult DevicePrimaryCtxReset(CUdevice device) {
  return Booked([&](Books& b) {
    Process& process = Process::Get();
    process.ForgetContexts();
    const CurrentContext::Change change(CurrentContext::kOfAll);
    return process.calls().PrimaryContextEnds(process.payer(), device,
                                              [&] { return b.DevicePrimaryCtxReset(device); });
  });
}
CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Booked([&](Books& b) {
    const CUresult result = b.DevicePrimaryCtxRetain(context, device);
    if (result == CUDA_SUCCESS) References(device).fetch_add(1);
    return result;
  });
}
CUresult CtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  return Booked([&](Books& b) {
    const CurrentContext::Change change;
    return b.CtxFromGreenCtx(context, green);
  });
}
CUresult GreenCtxDestroy(CUgreenCtx green) {
  CUcontext context = nullptr;  // the handle by which the green context becomes current
  if (!Process::Forked()) {
    Driver<"cuCtxFromGreenCtx", CUresult(CUcontext*, CUgreenCtx)>::Call(&context, green);
  }
  return Ending(context, [&](Books& b) { return b.GreenCtxDestroy(green); });
}

}  // namespace

void AddContextHooks(Hooks* hooks) {
  GPUSHARE_HOOK(hooks, cuCtxDestroy, &CtxDestroy);
  GPUSHARE_HOOK(hooks, cuDevicePrimaryCtxRelease, &DevicePrimaryCtxRelease);
  GPUSHARE_HOOK(hooks, cuDevicePrimaryCtxReset, &DevicePrimaryCtxReset);
  Add<CUresult(CUcontext)>(hooks, "cuCtxDetach", &CtxDetach);  // deprecated
  GPUSHARE_HOOK(hooks, cuDevicePrimaryCtxRetain, &DevicePrimaryCtxRetain);
  GPUSHARE_HOOK(hooks, cuCtxFromGreenCtx, &CtxFromGreenCtx);
  GPUSHARE_HOOK(hooks, cuGreenCtxDestroy, &GreenCtxDestroy);
  // The exports of before CUDA 4 and CUDA 11, which do the same.
  Add<CUresult(CUcontext)>(hooks, "cuCtxDestroy", &CtxDestroy);
  Add<CUresult(CUdevice)>(hooks, "cuDevicePrimaryCtxRelease", &DevicePrimaryCtxRelease);
  Add<CUresult(CUdevice)>(hooks, "cuDevicePrimaryCtxReset", &DevicePrimaryCtxReset);

#define CHANGES(name, ...) AddChanging<#name, __VA_ARGS__>(hooks);
#define CREATES(name, ...) AddChanging<#name, __VA_ARGS__>(hooks);
#include "shim/context_changes.def"
#undef CREATES
#undef CHANGES
  Add<CUresult(const void**, const CUuuid*)>(hooks, "cuGetExportTable", &GetExportTable);
}

}  // namespace gpushare::shim
