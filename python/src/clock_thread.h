// SPDX-License-Identifier: Apache-2.0
// A thread of the runtime's clock that runs a Python function.
#ifndef GPUSHARE_PYTHON_CLOCK_THREAD_H_
#define GPUSHARE_PYTHON_CLOCK_THREAD_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "gpushare/c/gpushare.h"
#include "runtime.h"

namespace gpushare::python {

class ClockThread {
 public:
  static std::shared_ptr<ClockThread> Start(const Runtime& of, const std::string& name,
                                            pybind11::function body);
  // Waits for the thread's end. Raises what the function raised, or returns what it returned.
  pybind11::object Join();
  bool joined() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  gpushare_thread thread_ = nullptr;  // null when it was joined or is being joined
  std::weak_ptr<const decltype(Runtime::handle)::Owner> runtime_;  // need not wait for this
};

void BindClockThread(pybind11::module_& m);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_CLOCK_THREAD_H_
