// SPDX-License-Identifier: Apache-2.0
// A thread of the runtime's clock that runs a Python function.
#ifndef GPUSHARE_PYTHON_CLOCK_THREAD_H_
#define GPUSHARE_PYTHON_CLOCK_THREAD_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "gpushare/c/gpushare.h"

namespace gpushare::python {

class ClockThread {
 public:
  static std::shared_ptr<ClockThread> Start(gpushare_runtime runtime, const std::string& name,
                                            pybind11::function body);
  // Waits for its end; what the function raised is raised here, what it returned is returned.
  pybind11::object Join();
  bool joined() const { return thread_ == nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;
  gpushare_thread thread_ = nullptr;
};

void BindClockThread(pybind11::module_& m);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_CLOCK_THREAD_H_
