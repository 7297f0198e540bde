// SPDX-License-Identifier: Apache-2.0
#include "shim/coverage.h"

#include <string_view>

namespace gpushare::shim {
namespace {

struct PassedOn {
  std::string_view name;
  const char* reason;
};
constexpr PassedOn kPassedOn[] = {
#define X(name, reason) {#name, reason},
#include "shim/passed_on.def"
#undef X
};

}  // namespace

const char* WhyPassedOn(const driver::Symbol& symbol) {
  for (const PassedOn& each : kPassedOn) {
    if (each.name == symbol.name) return each.reason;
  }
  using driver::SymbolClass;
  switch (symbol.klass) {
    case SymbolClass::launch:
      return "launches are not gated yet";
    case SymbolClass::copy:
      return "copies are not gated yet";
    case SymbolClass::stream:
    case SymbolClass::sync:
      return "nothing is gated yet that would have to know";
    default:
      return nullptr;
  }
}

}  // namespace gpushare::shim
