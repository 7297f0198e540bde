// SPDX-License-Identifier: Apache-2.0
// Contexts, whose end frees what they hold (src/books).
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;

CUresult CtxDestroy(CUcontext context) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.CtxDestroy(context); });
}
CUresult DevicePrimaryCtxRelease(CUdevice device) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.DevicePrimaryCtxRelease(device); });
}
CUresult DevicePrimaryCtxReset(CUdevice device) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.DevicePrimaryCtxReset(device); });
}
CUresult CtxDetach(CUcontext context) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.CtxDetach(context); });
}
CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Booked([&](Books& b) { return b.DevicePrimaryCtxRetain(context, device); });
}
CUresult CtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  return Booked([&](Books& b) { return b.CtxFromGreenCtx(context, green); });
}
CUresult GreenCtxDestroy(CUgreenCtx green) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.GreenCtxDestroy(green); });
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
  // Of before CUDA 4 and 11: what they do is the same.
  Add<CUresult(CUcontext)>(hooks, "cuCtxDestroy", &CtxDestroy);
  Add<CUresult(CUdevice)>(hooks, "cuDevicePrimaryCtxRelease", &DevicePrimaryCtxRelease);
  Add<CUresult(CUdevice)>(hooks, "cuDevicePrimaryCtxReset", &DevicePrimaryCtxReset);
}

}  // namespace gpushare::shim
