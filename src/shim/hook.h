// SPDX-License-Identifier: Apache-2.0
// One entry point that the shim wants to see.
//
//   void AddMemoryHooks(Hooks* hooks) {
//     GPUSHARE_HOOK(hooks, cuMemAlloc, [](CUdeviceptr* pointer, size_t bytes) { ... });
//   }
//
// The name is what cuda.h makes of it (cuMemAlloc_v2), and the function has to be of that type, so the two
// cannot part.
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

// For the ABIs of before CUDA 3.2, with sizes and addresses of 32 bits: no program of today calls them, and they would
// go past the books.
template <typename... Arguments>
CUresult Refused(Arguments...) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

#define GPUSHARE_HOOK_TEXT_(name) #name
#define GPUSHARE_HOOK_TEXT(name) GPUSHARE_HOOK_TEXT_(name)
#define GPUSHARE_HOOK(hooks, entry, function)                        \
  ::gpushare::shim::Add<std::remove_reference_t<decltype(::entry)>>( \
      (hooks), GPUSHARE_HOOK_TEXT(entry), (function))
// Its variant for the per-thread default stream, which cuda.h does not declare.
#define GPUSHARE_HOOK_VARIANT(hooks, entry, suffix, function)        \
  ::gpushare::shim::Add<std::remove_reference_t<decltype(::entry)>>( \
      (hooks), GPUSHARE_HOOK_TEXT(entry) suffix, (function))

// By subject.
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

// What cuGetProcAddress() is to answer with, once: sorted by name. `exported`: the driver's functions, by the order of
// driver::Symbols().
void NameHooks(const Hooks& hooks, void* const* exported);  // proc_address.cc

// In place of all these: what `gpushare bench record` sees (record/hooks.cc).
void AddRecordHooks(Hooks* hooks);

// The function of the hook called `name`; null: it is not hooked. After the attach.
void* FindHook(const char* name);

// The driver's own function by exported name; null: it has none. After the attach.
void* RealEntry(const char* name);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_HOOK_H_
