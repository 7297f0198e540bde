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

// Calls `use(event, native)` with an event created only for that call. Called without the interpreter's lock.
template <typename Use>
gpushare_status WithEvent(gpushare_vdev device, const Use& use) {
  gpushare_event event = nullptr;
  gpushare_status code = gpushare_event_create(device, 0, &event);
  if (code != GPUSHARE_OK) return code;
  CUevent_st* native = nullptr;
  code = gpushare_event_native(event, &native);
  if (code == GPUSHARE_OK) code = use(event, native);
  static_cast<void>(gpushare_event_destroy(event));
  return code;
}

using GraphHandle = Owned<gpushare_graph, gpushare_graph_destroy>;

// Captured work, ready to launch.
struct Graph : Object {
  GraphHandle handle{"graph"};
  void Close() override { handle.Close(); }
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_EVENT_H_
