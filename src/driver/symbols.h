// SPDX-License-Identifier: Apache-2.0
// symbols.def as data: looks up an entry point by its exported name.
//
//   const Symbol* symbol = FindSymbol("cuMemAlloc_v2");
//   symbol->base == "cuMemAlloc"; symbol->version == 3020; symbol->klass == SymbolClass::kMemory;
//   AnswerSymbol("cuMemAlloc", 12000, /*per_thread_stream=*/false) == symbol;
#ifndef GPUSHARE_DRIVER_SYMBOLS_H_
#define GPUSHARE_DRIVER_SYMBOLS_H_

#include <span>
#include <string_view>

namespace gpushare::driver {

enum class SymbolClass {
  loader,
  context,
  partition,
  memory,
  host_memory,
  copy,
  launch,
  stream,
  event,
  sync,
  graph,
  module,
  query,
  texture,
  interop,
  debug,
  pass_through,
};

struct Symbol {
  std::string_view name;  // as exported
  std::string_view base;  // the name that cuGetProcAddress() takes
  int version;            // the least CUDA version for which `base` means this symbol
  SymbolClass klass;
  bool hooked;
  bool simulated;
  bool per_thread_stream;  // the _ptds or _ptsz variant
};

std::span<const Symbol> Symbols();  // sorted by name

// The symbol with this exported name; null if there is none.
const Symbol* FindSymbol(std::string_view name);

// The symbol that cuGetProcAddress() answers for (name, version, flags): the newest ABI that is not newer
// than `version`; with `per_thread_stream`, its variant for the per-thread default stream if it has one.
// Null if the name is unknown or every ABI is newer than `version`; `*known`, unless null, tells which.
const Symbol* AnswerSymbol(std::string_view base, int version, bool per_thread_stream,
                           bool* known = nullptr);

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_SYMBOLS_H_
