// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_RUNTIME_H_
#define GPUSHARE_PYTHON_RUNTIME_H_

#include <memory>

#include "object.h"

namespace gpushare::python {

struct Runtime : Object {
  Owned<gpushare_runtime, gpushare_runtime_destroy> handle{"runtime"};
  bool simulated = false;

  void Close() override { handle.Close(); }

  // A function of the loaded driver; null when it has none of that name.
  template <typename Function>
  Function* Symbol(const char* name) const {
    void* symbol = nullptr;
    static_cast<void>(gpushare_runtime_symbol(handle.Use()->get(), name, &symbol));
    return reinterpret_cast<Function*>(symbol);
  }
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_RUNTIME_H_
