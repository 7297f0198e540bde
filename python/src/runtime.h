// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_RUNTIME_H_
#define GPUSHARE_PYTHON_RUNTIME_H_

#include <cstdint>
#include <memory>

#include "object.h"

namespace gpushare::python {

struct Runtime : Object {
  Owned<gpushare_runtime, gpushare_runtime_destroy> handle{"runtime"};
  bool simulated = false;

  void Close() override { handle.Close(); }

  // A function of the loaded driver; null if the driver has no function of that name.
  template <typename Function>
  Function* Symbol(const char* name) const {
    void* symbol = nullptr;
    static_cast<void>(gpushare_runtime_symbol(handle.Use()->get(), name, &symbol));
    return reinterpret_cast<Function*>(symbol);
  }
};

// Sleeps on the runtime's clock. Called without the interpreter's lock.
inline gpushare_status SleepFor(gpushare_runtime runtime, int64_t ns) {
  int64_t now = 0;
  const gpushare_status code = gpushare_runtime_now(runtime, &now);
  return code != GPUSHARE_OK ? code : gpushare_runtime_sleep_until(runtime, now + ns);
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_RUNTIME_H_
