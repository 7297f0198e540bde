// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: returns the driver's answer, or the hook if there is one.
//
// proc_answer.h decides which of the two it is.
//
// Answers are remembered (proc_names.h): the driver gives the same answer each time, and programs ask repeatedly.
#include <atomic>
#include <span>
#include <string>

#include "driver/current_context.h"
#include "driver/symbols.h"
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/proc_answer.h"
#include "shim/proc_names.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using RealV2 = Driver<"cuGetProcAddress_v2", CUresult(const char*, void**, int, cuuint64_t,
                                                      CUdriverProcAddressQueryResult*)>;
using RealV1 = Driver<"cuGetProcAddress", CUresult(const char*, void**, int, cuuint64_t)>;

// Created by the attach; lives as long as the process.
std::atomic<const ProcNames*> all_names{nullptr};

// `ask(function, version)` asks the driver. `known` describes the name; null if no known symbol has it.
template <typename Ask>
CUresult Answer(const ProcNames::Name* known, const char* name, void** function, int version,
                cuuint64_t flags, bool* too_new, const Ask& ask) {
  *too_new = false;
  const CUresult result = ask(function, version);
  if (result != CUDA_SUCCESS || known == nullptr || !known->any_hook() || function == nullptr ||
      *function == nullptr) {
    return result;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  // The driver's export of the symbol's own name has that symbol's ABI, so the driver need not be asked again.
  const ProcNames::Meaning* const meant = known->Meant(version, per_thread);
  if (meant != nullptr && meant->exported == *function) {
    if (meant->hook != nullptr) *function = meant->hook;
    return result;
  }
  const auto hook_of = [](const driver::Symbol& symbol) {
    return FindHook(std::string(symbol.name).c_str());
  };
  const ProcAnswer answer = AnswerFor(
      {name, version, per_thread}, *function,
      [&](int at) -> const void* {
        void* found = nullptr;
        return ask(&found, at) == CUDA_SUCCESS ? found : nullptr;
      },
      [&](const driver::Symbol& symbol) { return hook_of(symbol) != nullptr; });
  if (answer.what == ProcAnswer::kOurs) *function = hook_of(*answer.symbol);
  if (answer.what == ProcAnswer::kUnseen) driver::CurrentContext::End();
  if (answer.what != ProcAnswer::kTooNew) return result;
  *too_new = true;
  *function = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

ProcNames::Name* FindName(const char* name) {
  return name == nullptr ? nullptr : all_names.load(std::memory_order_acquire)->Find(name);
}

CUresult GetProcAddressV2(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return Guarded([&] {
    ProcNames::Name* const about = FindName(name);
    const bool asks = about != nullptr && function != nullptr;
    if (void* const known = asks ? about->Find(version, flags) : nullptr) {
      *function = known;
      if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
      return CUDA_SUCCESS;
    }
    CUdriverProcAddressQueryResult ignored;
    bool first = true, too_new = false;
    const CUresult result =
        Answer(about, name, function, version, flags, &too_new, [&](void** found, int asked) {
          CUdriverProcAddressQueryResult* const told = first ? status : &ignored;
          first = false;
          return RealV2::Call(name, found, asked, flags, told);
        });
    if (too_new && status != nullptr) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (asks && result == CUDA_SUCCESS && *function != nullptr) {
      about->Remember(version, flags, *function);
    }
    return result;
  });
}

CUresult GetProcAddressV1(const char* name, void** function, int version, cuuint64_t flags) {
  return Guarded([&] {
    bool too_new = false;
    return Answer(FindName(name), name, function, version, flags, &too_new,
                  [&](void** found, int asked) { return RealV1::Call(name, found, asked, flags); });
  });
}

}  // namespace

void NameHooks(const Hooks& hooks, void* const* exported) {
  if (all_names.load(std::memory_order_acquire) != nullptr) return;
  const std::span<const driver::Symbol> symbols = driver::Symbols();
  auto at = hooks.begin();
  const auto hook_of = [&](const driver::Symbol& symbol) -> void* {
    while (at != hooks.end() && symbol.name > at->name) ++at;  // both are sorted
    return at != hooks.end() && symbol.name == at->name ? at->function : nullptr;
  };
  all_names.store(new ProcNames(
                      symbols, [&](size_t i) { return exported[i]; }, hook_of),
                  std::memory_order_release);
}

void AddLoaderHooks(Hooks* hooks) {
  Add<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
      hooks, "cuGetProcAddress_v2", &GetProcAddressV2);
  Add<CUresult(const char*, void**, int, cuuint64_t)>(hooks, "cuGetProcAddress", &GetProcAddressV1);
}

}  // namespace gpushare::shim
