// SPDX-License-Identifier: Apache-2.0
// Whose function cuGetProcAddress() is to answer with: the driver's, or ours in its place.
//
//   const ProcAnswer answer = AnswerFor({name, version, per_thread}, function, ask, has_hook);
//
// Which ABI a name means depends on the version asked for and on the flags; the driver knows best, and may know ABIs
// that symbols.def does not. So ours is given only where the driver gives for a symbol that is known, asked for at
// exactly the version that introduced it, the same function. What is no symbol that is known, of a name of which any is
// hooked, is not found: it would go past the limits, and the caller's parameters may not be ours. Where the name limits
// nothing (context_changes.def, cuGetExportTable) it is given all the same.
//
// Pure.
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
    kDrivers,  // what the driver gave
    kOurs,     // the hook of `symbol`
    kTooNew,   // nothing
    kUnseen,   // what the driver gave, which changes contexts, and no hook sees it
  } what = kDrivers;
  const driver::Symbol* symbol = nullptr;
};

// `function`: what the driver gave. `ask(version)`: what it gives for the same name and flags at another version; null:
// nothing.
ProcAnswer AnswerFor(const ProcQuestion& question, const void* function,
                     absl::FunctionRef<const void*(int version)> ask,
                     absl::FunctionRef<bool(const driver::Symbol& symbol)> has_hook);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_PROC_ANSWER_H_
