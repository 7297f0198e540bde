// SPDX-License-Identifier: Apache-2.0
#include "clock_thread.h"

#include <utility>

#include "call.h"
#include "errors.h"
#include "gil.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

// Shared by the thread and its object. The Python members are only touched with the interpreter's lock.
struct ClockThread::State {
  py::object body, result, exception;
  bool over = false;  // some thread has joined it
};

std::shared_ptr<ClockThread> ClockThread::Start(const Runtime& of, const std::string& name,
                                                py::function body) {
  auto thread = std::make_shared<ClockThread>();
  const auto runtime = of.handle.Use();
  thread->runtime_ = runtime;
  thread->state_ = std::make_shared<State>();
  thread->state_->body = std::move(body);
  auto* const given = new std::shared_ptr<State>(thread->state_);
  const auto run = [](void* argument) {
    auto* const state = static_cast<std::shared_ptr<State>*>(argument);
    if (Finalizing()) return;
    on_virtual_clock = true;  // with a real GPU this leaves Ctrl-C to the main thread
    const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
    try {
      (*state)->result = Call((*state)->body, py::tuple());
    } catch (py::error_already_set& error) {
      (*state)->exception = error.value();
    }
    (*state)->body = py::object();
    delete state;
    PyGILState_Release(gil);
  };
  const gpushare_status code = Unlocked([&] {
    return gpushare_thread_start(runtime->get(), name.c_str(), run, given, &thread->thread_);
  });
  if (code != GPUSHARE_OK) {
    delete given;
    ThrowLast(code);
  }
  return thread;
}

py::object ClockThread::Join() {
  if (thread_ != nullptr) {
    const gpushare_thread thread = std::exchange(thread_, nullptr);
    const gpushare_status code = Unlocked([&] { return gpushare_thread_join(thread); });
    state_->over = true;
    Check(code);
  }
  // Another thread is executing the lines above. Wait on the clock's own time: a thread with the turn must not block outside
  // the clock.
  while (!state_->over) {
    const auto use = runtime_.lock();
    if (use == nullptr) break;
    constexpr int64_t kPollNs = 1'000'000;
    Check(Unlocked([&] { return SleepFor(use->get(), kPollNs); }));
  }
  if (state_->exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(state_->exception.ptr())),
                    state_->exception.ptr());
    throw py::error_already_set();
  }
  return state_->result ? state_->result : py::none();
}

bool ClockThread::joined() const { return state_->over; }

void BindClockThread(py::module_& m) {
  py::class_<ClockThread, std::shared_ptr<ClockThread>>(
      m, "ClockThread",
      "A thread that is registered with the runtime's clock; made by "
      "Runtime.start_thread(). On the simulated GPU's\nvirtual clock one such thread runs "
      "at a time, and every run is the same. A thread that is never joined\nends with the "
      "process.")
      .def("join", &ClockThread::Join,
           "join(self)\n--\n\nWaits for the thread's end. Returns what its function returned, "
           "or raises what it raised. Any threads of\nthe same clock may call it, even several "
           "at the same time. Ctrl-C does not end the wait.")
      .def_property_readonly("joined", &ClockThread::joined, "True after join().");
}

}  // namespace gpushare::python
