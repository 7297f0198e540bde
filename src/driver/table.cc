// SPDX-License-Identifier: Apache-2.0
#include "driver/table.h"

#include <dlfcn.h>

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "driver/symbols.h"

namespace gpushare::driver {
namespace {

enum class Need { kRequired, kOptional };

template <typename Pointer>
struct Absent;
template <typename... Args>
struct Absent<CUresult(CUDAAPI*)(Args...)> {
  static CUresult CUDAAPI Call(Args...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

template <typename Pointer>
void FillField(const Resolver& resolver, Need need, std::initializer_list<const char*> names,
               Pointer* field, std::string* missing) {
  for (const char* name : names) {
    if (void* address = resolver.Find(name); address != nullptr) {
      *field = reinterpret_cast<Pointer>(address);
      return;
    }
  }
  *field = &Absent<Pointer>::Call;
  if (need == Need::kRequired)
    absl::StrAppend(missing, missing->empty() ? "" : ", ", *names.begin());
}

}  // namespace

Resolver::Resolver(void* handle)
    : handle_(handle),
      get_proc_address_v2_(
          reinterpret_cast<GetProcAddressV2>(dlsym(handle, "cuGetProcAddress_v2"))),
      get_proc_address_v1_(reinterpret_cast<GetProcAddressV1>(dlsym(handle, "cuGetProcAddress"))) {}

void* Resolver::Find(std::string_view exported_name) const {
  // Asking for exactly the version that introduced an ABI yields that ABI, also from a driver that
  // knows newer ones; dlsym() is for drivers older than the call and for what it leaves out.
  if (const Symbol* symbol = FindSymbol(exported_name); symbol != nullptr) {
    const std::string base(symbol->base);
    const cuuint64_t flags = symbol->per_thread_stream
                                 ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                 : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void* address = nullptr;
    if (get_proc_address_v2_ != nullptr) {
      CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
      if (get_proc_address_v2_(base.c_str(), &address, symbol->version, flags, &found) ==
              CUDA_SUCCESS &&
          found == CU_GET_PROC_ADDRESS_SUCCESS && address != nullptr) {
        return address;
      }
    } else if (get_proc_address_v1_ != nullptr) {
      if (get_proc_address_v1_(base.c_str(), &address, symbol->version, flags) == CUDA_SUCCESS &&
          address != nullptr) {
        return address;
      }
    }
  }
  return dlsym(handle_, std::string(exported_name).c_str());
}

absl::Status Table::Fill(void* handle) {
  const Resolver resolver(handle);
  std::string missing;
#define X(field, prototype, need, ...) \
  FillField(resolver, Need::need, {__VA_ARGS__}, &this->field, &missing);
#include "driver/entries.def"
#undef X
  if (missing.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the driver lacks entry points that gpushare needs: ", missing));
}

}  // namespace gpushare::driver
