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
// Entry points that submit nothing that would be held or charged.
constexpr PassedOn kNotHeld[] = {
#define HELD(entry, function, how)
#define PASSED(entry, reason) {#entry, reason},
#include "work/families.def"
#undef PASSED
#undef HELD
};

}  // namespace

const char* WhyPassedOn(const driver::Symbol& symbol) {
  for (const PassedOn& each : kPassedOn) {
    if (each.name == symbol.name) return each.reason;
  }
  // A variant for the per-thread default stream has the reason of its base.
  std::string_view name = symbol.name;
  if (symbol.per_thread_stream) name.remove_suffix(std::string_view("_ptsz").size());
  for (const PassedOn& each : kNotHeld) {
    if (each.name == name) return each.reason;
  }
  return nullptr;
}

}  // namespace gpushare::shim
