// SPDX-License-Identifier: Apache-2.0
// A hook: the shim's function for one entry point of the driver.
//
//   void AddMemoryHooks(Hooks* hooks) {
//     GPUSHARE_HOOK(hooks, cuMemAlloc, [](CUdeviceptr* pointer, size_t bytes) { ... });
//   }
//
// cuda.h's macros turn the name into the exported one (cuMemAlloc_v2), and the function must have the type declared for it,
// so the name and the function cannot diverge.
#ifndef GPUSHARE_SHIM_HOOK_H_
#define GPUSHARE_SHIM_HOOK_H_

#include <cuda.h>

#include <type_traits>
#include <vector>

#include "shim/attach_abi.h"

namespace gpushare::shim {

using Hooks = std::vector<gpushare_shim_hook>;

template <typename Function>
void Add(Hooks* hooks, const char* name, Function* function) {
  hooks->push_back({name, reinterpret_cast<void*>(function)});
}

// The hook for ABIs older than CUDA 3.2, with sizes and addresses of 32 bits. No current program calls them, and they would
// bypass the books.
template <typename... Arguments>
CUresult Refused(Arguments...) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

#define GPUSHARE_HOOK_TEXT_(name) #name
#define GPUSHARE_HOOK_TEXT(name) GPUSHARE_HOOK_TEXT_(name)
#define GPUSHARE_HOOK(hooks, entry, function)                        \
  ::gpushare::shim::Add<std::remove_reference_t<decltype(::entry)>>( \
      (hooks), GPUSHARE_HOOK_TEXT(entry), (function))
// Hooks the entry point's variant for the per-thread default stream, which cuda.h does not declare.
#define GPUSHARE_HOOK_VARIANT(hooks, entry, suffix, function)        \
  ::gpushare::shim::Add<std::remove_reference_t<decltype(::entry)>>( \
      (hooks), GPUSHARE_HOOK_TEXT(entry) suffix, (function))

// The hooks, by subject.
void AddLoaderHooks(Hooks* hooks);         // proc_address.cc
void AddContextHooks(Hooks* hooks);        // contexts.cc
void AddMemoryHooks(Hooks* hooks);         // memory.cc
void AddVirtualMemoryHooks(Hooks* hooks);  // virtual_memory.cc
void AddPoolHooks(Hooks* hooks);           // pools.cc
void AddWorkHooks(Hooks* hooks);           // work.cc
void AddGraphHooks(Hooks* hooks);          // graphs.cc
void AddStreamHooks(Hooks* hooks);         // streams.cc
void AddModuleHooks(Hooks* hooks);         // modules.cc
void AddQueryHooks(Hooks* hooks);          // query.cc

// Sets what cuGetProcAddress() returns; only the first call has an effect. `hooks` are sorted by name. `exported` are the
// driver's functions in the order of driver::Symbols().
void NameHooks(const Hooks& hooks, void* const* exported);  // proc_address.cc

// The hooks of `gpushare bench record`, used instead of all these (record/hooks.cc).
void AddRecordHooks(Hooks* hooks);

// The function of the hook called `name`; null if it is not hooked. Call it after the attach.
void* FindHook(const char* name);

// The driver's own function by exported name; null if it has none. Call it after the attach.
void* RealEntry(const char* name);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_HOOK_H_
