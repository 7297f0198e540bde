// SPDX-License-Identifier: Apache-2.0
// What the work of a stream needs until it is complete, and what must know when it is.
//
// If the stream is closed before that, an event behind its work stands for it. What the work needs is then kept by the GPU,
// which checks it whenever streams are created and closed (LetGoOfFinished).
//
// Threading: needs the interpreter's lock, except for destroying a StreamWork, which any thread may do.
#ifndef GPUSHARE_PYTHON_STREAM_WORK_H_
#define GPUSHARE_PYTHON_STREAM_WORK_H_

#include <memory>
#include <vector>

#include "owned.h"

namespace gpushare::python {

struct Stream;
struct Gpu;

using ModuleHandle = Owned<gpushare_module, gpushare_module_unload>;
using EventHandle = Owned<gpushare_event, gpushare_event_destroy>;

// Represents a stream in the memory that was used on it.
struct StreamWork {
  std::weak_ptr<Stream> stream;
  EventHandle::Use_ end;  // behind its work, once the stream is closed; null: no need to wait
};

// What must live as long as work in flight: code, and the host memory of copies.
struct InFlight {
  std::vector<ModuleHandle::Use_> modules;
  std::vector<std::shared_ptr<void>> hosts;

  bool empty() const { return modules.empty() && hosts.empty(); }
  // Puts back what was taken out, ahead of what was added since.
  void PutBack(InFlight before);
};

// The remains of a closed stream.
struct Ended {
  EventHandle::Use_ end;
  InFlight kept;
};

// Releases what completed work needed. Does not wait.
void LetGoOfFinished(Gpu& gpu);
// The same when the GPU is closed. Waits up to 5 s for copies, as closing the GPU does; the host memory of those that take
// longer is never released.
void LetGoOfAll(Gpu& gpu);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_STREAM_WORK_H_
