// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_EVENT_H_
#define GPUSHARE_PYTHON_EVENT_H_

#include <memory>

#include "object.h"
#include "stream_work.h"
#include "virtual_device.h"

namespace gpushare::python {

struct Event : Object {
  EventHandle handle{"event"};
  std::shared_ptr<VirtualDevice> device;
  void Close() override { handle.Close(); }
};

using GraphHandle = Owned<gpushare_graph, gpushare_graph_destroy>;

// Captured work, ready to launch.
struct Graph : Object {
  GraphHandle handle{"graph"};
  void Close() override { handle.Close(); }
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_EVENT_H_
