// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: what the driver answers, with our function where that is hooked.
//
// Which ABI a name means depends on the version asked for and on the flags; the driver knows best, and may know
// ABIs that are newer than symbols.def. So ours is given only where the driver gives for the symbol that we
// think is meant (asked for at exactly the version that introduced it) the same function. A newer ABI of a name
// that is hooked is not found: it would go past the limits, and the caller's parameters may not be ours.
#include <string>

#include "driver/symbols.h"
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using FunctionV2 = CUresult (*)(const char*, void**, int, cuuint64_t,
                                CUdriverProcAddressQueryResult*);
using FunctionV1 = CUresult (*)(const char*, void**, int, cuuint64_t);

// `ask(function, version)` asks the driver.
template <typename Ask>
CUresult Answer(const char* name, void** function, int version, cuuint64_t flags, bool* too_new,
                const Ask& ask) {
  *too_new = false;
  const CUresult result = ask(function, version);
  if (result != CUDA_SUCCESS || name == nullptr || function == nullptr || *function == nullptr) {
    return result;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const driver::Symbol* symbol = driver::AnswerSymbol(name, version, per_thread);
  if (symbol == nullptr) return result;
  const std::string exported(symbol->name);
  void* const hook = FindHook(exported.c_str());
  if (hook == nullptr) return result;
  void* meant = nullptr;
  if (ask(&meant, symbol->version) == CUDA_SUCCESS && meant == *function) {
    *function = hook;
    return result;
  }
  *too_new = true;
  *function = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult GetProcAddressV2(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return Guarded([&] {
    const auto real = reinterpret_cast<FunctionV2>(Process::Get().Real("cuGetProcAddress_v2"));
    CUdriverProcAddressQueryResult ignored;
    bool first = true, too_new = false;
    const CUresult result =
        Answer(name, function, version, flags, &too_new, [&](void** found, int asked) {
          CUdriverProcAddressQueryResult* const told = first ? status : &ignored;
          first = false;
          return real(name, found, asked, flags, told);
        });
    if (too_new && status != nullptr) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return result;
  });
}

CUresult GetProcAddressV1(const char* name, void** function, int version, cuuint64_t flags) {
  return Guarded([&] {
    const auto real = reinterpret_cast<FunctionV1>(Process::Get().Real("cuGetProcAddress"));
    bool too_new = false;
    return Answer(name, function, version, flags, &too_new,
                  [&](void** found, int asked) { return real(name, found, asked, flags); });
  });
}

}  // namespace

void AddLoaderHooks(Hooks* hooks) {
  Add<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
      hooks, "cuGetProcAddress_v2", &GetProcAddressV2);
  Add<CUresult(const char*, void**, int, cuuint64_t)>(hooks, "cuGetProcAddress", &GetProcAddressV1);
}

}  // namespace gpushare::shim
