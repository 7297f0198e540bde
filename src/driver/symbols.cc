// SPDX-License-Identifier: Apache-2.0
#include "driver/symbols.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace gpushare::driver {
namespace {

constexpr bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

constexpr std::string_view Base(std::string_view name) {
  if (EndsWith(name, "_ptds") || EndsWith(name, "_ptsz")) name.remove_suffix(5);
  if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v' &&
      name.back() >= '0' && name.back() <= '9') {
    name.remove_suffix(3);
  }
  return name;
}

constexpr Symbol Make(std::string_view name, int version, SymbolClass klass, bool hooked,
                      bool simulated) {
  const std::string_view base = Base(name);
  return {name,
          base,
          version,
          klass,
          hooked,
          simulated,
          EndsWith(name, "_ptds") || EndsWith(name, "_ptsz")};
}

// Sorted at first use: symbols.def itself stands by class, for readers.
// The size is counted first: deducing it is one fold expression, too long for clang.
constexpr size_t kCount = 0
#define X(name, version, klass, hooked, simulated) +1
#include "driver/symbols.def"
#undef X
    ;

auto Build() {
  std::array<Symbol, kCount> symbols = {
#define X(name, version, klass, hooked, simulated) \
  Make(#name, version, SymbolClass::klass, hooked, simulated),
#include "driver/symbols.def"
#undef X
  };
  std::sort(symbols.begin(), symbols.end(),
            [](const Symbol& a, const Symbol& b) { return a.name < b.name; });
  return symbols;
}

// The symbols from the first one whose name is not less than `name`.
std::span<const Symbol> From(std::string_view name) {
  const std::span<const Symbol> all = Symbols();
  const auto at =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const Symbol& symbol, std::string_view n) { return symbol.name < n; });
  return {at, all.end()};
}

}  // namespace

std::span<const Symbol> Symbols() {
  static const auto symbols = Build();
  return symbols;
}

const Symbol* FindSymbol(std::string_view name) {
  const std::span<const Symbol> from = From(name);
  return !from.empty() && from.front().name == name ? &from.front() : nullptr;
}

const Symbol* AnswerSymbol(std::string_view base, int version, bool per_thread_stream,
                           bool* known) {
  const Symbol* plain = nullptr;
  const Symbol* per_thread = nullptr;
  bool any = false;
  for (const Symbol& symbol : From(base)) {
    if (symbol.name.substr(0, base.size()) != base) break;
    if (symbol.base != base) continue;  // "cuMemAllocAsync" lies between "cuMemAlloc" and its _v2
    any = true;
    if (symbol.version > version) continue;
    const Symbol*& best = symbol.per_thread_stream ? per_thread : plain;
    if (best == nullptr || best->version < symbol.version) best = &symbol;
  }
  if (known != nullptr) *known = any;
  return per_thread_stream && per_thread != nullptr ? per_thread : plain;
}

}  // namespace gpushare::driver
