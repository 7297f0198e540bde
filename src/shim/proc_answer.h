// SPDX-License-Identifier: Apache-2.0
// Decides whether cuGetProcAddress() returns the driver's function or the hook that replaces it.
//
//   const ProcAnswer answer = AnswerFor({name, version, per_thread}, function, ask, has_hook);
//
// Which ABI a name means depends on the requested version and the flags. Only the driver knows for sure, and it may know ABIs
// that symbols.def does not list. So the hook of a known symbol is returned only if the driver, asked for the version that
// introduced that symbol, returns the same function. If no known symbol matches and any symbol of that name is hooked, the
// answer is "not found": the function would bypass the limits, and the hooks may not have its parameters. Functions that limit
// nothing (context_changes.def, cuGetExportTable) are returned anyway.
//
// The decision is a pure function.
#ifndef GPUSHARE_SHIM_PROC_ANSWER_H_
#define GPUSHARE_SHIM_PROC_ANSWER_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "driver/symbols.h"

namespace gpushare::shim {

struct ProcQuestion {
  std::string_view name;
  int version = 0;
  bool per_thread = false;
};

struct ProcAnswer {
  enum What {
    kDrivers,  // the function that the driver returned
    kOurs,     // the hook of `symbol`
    kTooNew,   // no function
    kUnseen,   // the function that the driver returned, which changes contexts and has no hook
  } what = kDrivers;
  const driver::Symbol* symbol = nullptr;
};

// `function` is what the driver returned. `ask(version)` returns what it returns for the same name and flags at another
// version, or null.
ProcAnswer AnswerFor(const ProcQuestion& question, const void* function,
                     absl::FunctionRef<const void*(int version)> ask,
                     absl::FunctionRef<bool(const driver::Symbol& symbol)> has_hook);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_PROC_ANSWER_H_
