// SPDX-License-Identifier: Apache-2.0
// Hooks that unload modules and libraries. Afterwards their functions' addresses may be reused for other functions.
#include "shim/gated.h"
#include "shim/hook.h"

namespace gpushare::shim {
namespace {

template <Name kName, typename Handle>
CUresult Unload(Handle handle) {
  return Submitted([&](work::Calls& calls, const work::Payer&) {
    calls.ModuleEnds();
    return Driver<kName, CUresult(Handle)>::Call(handle);
  });
}

}  // namespace

void AddModuleHooks(Hooks* hooks) {
  GPUSHARE_HOOK(hooks, cuModuleUnload, (&Unload<"cuModuleUnload", CUmodule>));
  GPUSHARE_HOOK(hooks, cuLibraryUnload, (&Unload<"cuLibraryUnload", CUlibrary>));
}

}  // namespace gpushare::shim
