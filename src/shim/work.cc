// SPDX-License-Identifier: Apache-2.0
// Hooks of launches, copies and sets, held and charged for the process's share: every HELD line of work/families.def, with its
// variant for the per-thread default stream where there is one.
#include <string>
#include <string_view>

#include "driver/symbols.h"
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/launch_kernel.h"

namespace gpushare::shim {
namespace {

using work::Calls;

template <auto kCall>
void AddGated(Hooks* hooks, const char* name) {
  Add(hooks, name, &Gated<kCall>::Legacy);
  for (const char* suffix : {"_ptsz", "_ptds"}) {
    const driver::Symbol* variant = driver::FindSymbol(std::string(name) + suffix);
    if (variant != nullptr) Add(hooks, variant->name.data(), &Gated<kCall>::PerThread);
  }
}

template <>
void AddGated<&Calls::LaunchKernel>(Hooks* hooks, const char* name) {
  Add(hooks, name, LaunchKernelHook(/*per_thread=*/false));
  Add(hooks, "cuLaunchKernel_ptsz", LaunchKernelHook(/*per_thread=*/true));
}

}  // namespace

void AddWorkHooks(Hooks* hooks) {
  // The launch of a graph also goes through the books, so graphs.cc adds it.
#define GPUSHARE_ADD_graph(entry, function)
#define GPUSHARE_ADD_kernel(entry, function) AddGated<&Calls::function>(hooks, entry)
#define GPUSHARE_ADD_alone GPUSHARE_ADD_kernel
#define GPUSHARE_ADD_host GPUSHARE_ADD_kernel
#define GPUSHARE_ADD_bytes GPUSHARE_ADD_kernel
#define GPUSHARE_ADD_memory GPUSHARE_ADD_kernel
#define GPUSHARE_ADD_either GPUSHARE_ADD_kernel
#define HELD(entry, function, how) GPUSHARE_ADD_##how(#entry, function);
  // Refused like the memory calls of the 32-bit ABI. The calls on arrays have no address that would not fit.
#define PASSED(entry, reason) \
  if (std::string_view(reason) == "32-bit addresses") Add<CUresult()>(hooks, #entry, &Refused);
#include "work/families.def"
#undef PASSED
#undef HELD
}

}  // namespace gpushare::shim
