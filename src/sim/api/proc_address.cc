// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: an entry point by name, version and flags.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "sim/api/api.h"
#include "sim/api/entry_table.h"

namespace gpushare::sim {
namespace {

// Entries with the same name stand together in the table, newest first.
const std::vector<const EntryPoint*>& SortedEntries() {
  static const std::vector<const EntryPoint*>& sorted = *[] {
    auto* const entries = new std::vector<const EntryPoint*>;
    for (size_t i = 0; i < kApiCount; ++i) entries->push_back(&kEntryPoints[i]);
    std::stable_sort(entries->begin(), entries->end(),
                     [](const EntryPoint* a, const EntryPoint* b) {
                       const int order = std::strcmp(a->name, b->name);
                       return order != 0 ? order < 0 : a->since > b->since;
                     });
    return entries;
  }();
  return sorted;
}

// In the order of CUdriverProcAddressQueryResult.
enum class Found { kFound = 0, kNotFound = 1, kVersionNotSufficient = 2 };

Found Search(std::string_view name, int version, bool per_thread, void** address) {
  const std::vector<const EntryPoint*>& entries = SortedEntries();
  auto at = std::lower_bound(entries.begin(), entries.end(), name,
                             [](const EntryPoint* entry, std::string_view wanted) {
                               return std::string_view(entry->name) < wanted;
                             });
  bool known = false, has_per_thread = false;
  for (auto i = at; i != entries.end() && (*i)->name == name; ++i) {
    known = true;
    has_per_thread |= (*i)->per_thread;
  }
  // A name without a variant for the per-thread stream has the same meaning for both.
  const bool wanted = per_thread && has_per_thread;
  for (; at != entries.end() && (*at)->name == name; ++at) {
    if ((*at)->per_thread != wanted || (*at)->since > version) continue;
    *address = (*at)->address;
    return Found::kFound;
  }
  return known ? Found::kVersionNotSufficient : Found::kNotFound;
}

CUresult GetProcAddress(const char* name, void** address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (name == nullptr || address == nullptr || (flags & ~kKnown) != 0 || flags == kKnown) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = nullptr;
  const Found found =
      Search(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, address);
  if (status != nullptr) *status = static_cast<CUdriverProcAddressQueryResult>(found);
  if (found == Found::kFound) return CUDA_SUCCESS;
  // If the caller takes a status, only the status reports that a known name is too new.
  if (found == Found::kVersionNotSufficient && status != nullptr) return CUDA_SUCCESS;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuGetProcAddress)(const char* name, void** address, int version, cuuint64_t flags) {
  SIM_ENTER(cuGetProcAddress, kNone);
  return GetProcAddress(name, address, version, flags, nullptr);
}

SIM_API(cuGetProcAddress_v2)
(const char* name, void** address, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  SIM_ENTER(cuGetProcAddress_v2, kNone);
  return GetProcAddress(name, address, version, flags, status);
}

// The private tables by which NVIDIA's runtime recognises NVIDIA's driver: never provided.
SIM_API(cuGetExportTable)(const void** table, const CUuuid*) {
  SIM_ENTER(cuGetExportTable, kNone);
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
