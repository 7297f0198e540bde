// SPDX-License-Identifier: Apache-2.0
#include "shim/proc_answer.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace gpushare::shim {
namespace {

// The symbols from `base` on. Those of one name are adjacent, apart from symbols whose names begin with it.
std::span<const driver::Symbol> From(std::string_view base) {
  const std::span<const driver::Symbol> all = driver::Symbols();
  const auto at = std::lower_bound(
      all.begin(), all.end(), base,
      [](const driver::Symbol& symbol, std::string_view name) { return symbol.name < name; });
  return {at, all.end()};
}

bool LimitsNothing(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "cuGetExportTable",
#define CHANGES(entry, ...) #entry,
#define CREATES(entry, ...) #entry,
#include "shim/context_changes.def"
#undef CREATES
#undef CHANGES
  };
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

ProcAnswer AnswerFor(const ProcQuestion& question, const void* function,
                     absl::FunctionRef<const void*(int version)> ask,
                     absl::FunctionRef<bool(const driver::Symbol& symbol)> has_hook) {
  const auto is = [&](const driver::Symbol& symbol) { return ask(symbol.version) == function; };
  const auto answer = [&](const driver::Symbol& symbol) {
    return has_hook(symbol) ? ProcAnswer{ProcAnswer::kOurs, &symbol} : ProcAnswer{};
  };
  const driver::Symbol* const meant =
      driver::AnswerSymbol(question.name, question.version, question.per_thread);
  // The driver may have introduced a symbol in an earlier version than symbols.def says, so all symbols of the name are tried.
  bool any_hook = false, per_thread = false;
  for (const driver::Symbol& each : From(question.name)) {
    if (!each.name.starts_with(question.name)) break;
    if (each.base != question.name) continue;
    any_hook = any_hook || has_hook(each);
    per_thread = per_thread || (question.per_thread && each.per_thread_stream);
  }
  if (!any_hook) return {};
  if (meant != nullptr && is(*meant)) return answer(*meant);
  for (const driver::Symbol& each : From(question.name)) {
    if (!each.name.starts_with(question.name)) break;
    if (each.base != question.name || each.per_thread_stream != per_thread) continue;
    if (&each != meant && is(each)) return answer(each);
  }
  return {LimitsNothing(question.name) ? ProcAnswer::kUnseen : ProcAnswer::kTooNew, nullptr};
}

}  // namespace gpushare::shim
