// SPDX-License-Identifier: Apache-2.0
// What the work of a stream needs until it is over, and who has to know when it is.
//
// The stream itself may be closed before: then an event behind its work stands for it, and what it needs lies with the
// GPU, which looks after it when its streams come and go (LetGoOfFinished).
//
// Threading: with the interpreter's lock, but for the end of a StreamWork, which is anybody's.
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

// A stream as memory knows it that was used there.
struct StreamWork {
  std::weak_ptr<Stream> stream;
  EventHandle::Use_
      end;  // behind its work, when the stream is closed; null: there is nothing to wait for
};

// What is to live as long as work in flight: code, and what a copy reads or writes on the host.
struct InFlight {
  std::vector<ModuleHandle::Use_> modules;
  std::vector<std::shared_ptr<void>> hosts;

  bool empty() const { return modules.empty() && hosts.empty(); }
  // Puts what was taken out before what has come since.
  void PutBack(InFlight before);
};

// Of a stream that is gone.
struct Ended {
  EventHandle::Use_ end;
  InFlight kept;
};

// Lets go of what work needed that is over. Waits for nothing.
void LetGoOfFinished(Gpu& gpu);
// The same at the GPU's end: waits up to 5 s for copies, as closing the GPU does; what runs on for longer keeps its host memory for good.
void LetGoOfAll(Gpu& gpu);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_STREAM_WORK_H_
