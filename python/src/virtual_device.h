// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_VIRTUAL_DEVICE_H_
#define GPUSHARE_PYTHON_VIRTUAL_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "gpu.h"
#include "object.h"
#include "tenant.h"

namespace gpushare::python {

class Allocator;
struct Stream;

// Whether the calling thread is in a framework's memory request, where it may hold a lock of the framework. Then it must not
// take the interpreter's lock: the thread that has that may wait for the framework's.
inline thread_local bool in_framework = false;

struct VirtualDevice : Object, std::enable_shared_from_this<VirtualDevice> {
  std::shared_ptr<Tenant> tenant;  // null: found by Gpu.resolve(); it goes after the handle
  Owned<gpushare_vdev, gpushare_vdev_destroy> handle{"virtual device"};
  std::shared_ptr<Gpu> gpu;
  std::string tenant_name;
  std::shared_ptr<Allocator> allocator;  // created when it is first needed
  std::vector<std::weak_ptr<Stream>> streams;

  // Hold the result during a call: close() on another thread drops the allocator.
  std::shared_ptr<Allocator> DefaultAllocator();
  void Close() override;
};

// The given tenant, or a new one with the given name.
std::shared_ptr<Tenant> TenantFrom(const pybind11::object& tenant, const Gpu& gpu);

std::shared_ptr<VirtualDevice> NewVirtualDevice(const pybind11::object& gpu,
                                                const pybind11::object& tenant,
                                                const pybind11::object& spec,
                                                const pybind11::kwargs& fields);
// Takes over the handle.
std::shared_ptr<VirtualDevice> Adopt(const std::shared_ptr<Gpu>& gpu, gpushare_vdev handle);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_VIRTUAL_DEVICE_H_
