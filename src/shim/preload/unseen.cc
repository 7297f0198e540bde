// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/unseen.h"

#include <stdint.h>
#include <string.h>

#include "shim/preload/refused.h"

namespace gpushare::preload {
namespace {

using GetExportTable = int (*)(const void**, const void*);
using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);
using OldGetProcAddress = int (*)(const char*, void**, int, uint64_t);

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(RealEntryPoint(FindEntryPoint(name)));
}

int WatchedExportTable(const void** table, const void* id) {
  const int result = Real<GetExportTable>("cuGetExportTable")(table, id);
  if (result == 0) ContextsChangeUnseen();
  return result;
}

// Code that obtained one function past its hook will obtain others the same way.
int Noted(int result, const char* name, void* const* function) {
  if (result != 0 || name == nullptr || function == nullptr || *function == nullptr) return result;
  const size_t at = FindAnyVersion(name);
  if (at != PRELOAD_ENTRY_COUNT && kEntryPoints[at].hooked != 0) ContextsChangeUnseen();
  return result;
}
int WatchedProcAddress(const char* name, void** function, int version, uint64_t flags,
                       int* status) {
  return Noted(Real<GetProcAddress>("cuGetProcAddress_v2")(name, function, version, flags, status),
               name, function);
}
int OldWatchedProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return Noted(Real<OldGetProcAddress>("cuGetProcAddress")(name, function, version, flags), name,
               function);
}

enum class Kind { kOther, kChanges, kCreates, kTables };
Kind KindOf(const char* name) {
#define CHANGES(entry, ...) \
  if (strcmp(name, #entry) == 0) return Kind::kChanges;
#define CREATES(entry, ...) \
  if (strcmp(name, #entry) == 0) return Kind::kCreates;
#include "shim/context_changes.def"
#undef CREATES
#undef CHANGES
  return strcmp(name, "cuGetExportTable") == 0 ? Kind::kTables : Kind::kOther;
}

}  // namespace

int contexts_unseen = 0;
void ContextsChangeUnseen() { __atomic_store_n(&contexts_unseen, 1, __ATOMIC_RELAXED); }

void* Watched(size_t index) {
  const char* const name = kEntryPoints[index].name;
  if (strcmp(name, "cuGetExportTable") == 0) return reinterpret_cast<void*>(&WatchedExportTable);
  if (strcmp(name, "cuGetProcAddress_v2") == 0) return reinterpret_cast<void*>(&WatchedProcAddress);
  if (strcmp(name, "cuGetProcAddress") == 0) return reinterpret_cast<void*>(&OldWatchedProcAddress);
  return RealEntryPoint(index);
}

void* WatchedOfRefused(size_t index) {
  const Kind kind = KindOf(kEntryPoints[index].name);
  return kind == Kind::kChanges || kind == Kind::kTables ? Watched(index) : nullptr;
}

bool OnlyChangesContexts(const char* name) { return KindOf(name) != Kind::kOther; }

size_t FindAnyVersion(const char* name) {
  constexpr const char* kVersions[] = {"", "_v2", "_v3", "_v4"};
  for (const char* version : kVersions) {
    char versioned[128];
    const size_t length = strlen(name);
    if (length + sizeof("_v4") > sizeof(versioned)) break;
    memcpy(versioned, name, length);
    strcpy(versioned + length, version);
    if (const size_t at = FindEntryPoint(versioned); at != PRELOAD_ENTRY_COUNT) return at;
  }
  return PRELOAD_ENTRY_COUNT;
}

}  // namespace gpushare::preload
