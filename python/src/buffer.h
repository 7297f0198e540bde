// SPDX-License-Identifier: Apache-2.0
// An array in a virtual device's memory, with the interfaces that other libraries understand.
#ifndef GPUSHARE_PYTHON_BUFFER_H_
#define GPUSHARE_PYTHON_BUFFER_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator.h"
#include "dtype.h"
#include "gpu.h"
#include "object.h"
#include "virtual_device.h"

namespace gpushare::python {

struct Stream;

// In C order, without gaps. Views share the memory.
struct Buffer : Object {
  std::shared_ptr<Memory> memory;  // null: closed
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<VirtualDevice> device;
  std::vector<int64_t> shape;
  const DType* dtype = &ByteType();
  uint64_t bytes = 0;

  void Close() override;
  const std::shared_ptr<Memory>& Use() const;  // throws when the buffer is closed
  gpushare_device_ptr pointer() const { return Use()->pointer(); }

  // The interface that AddLifetime() needs.
  struct Handle {
    const Buffer& buffer;
    bool closed() const { return buffer.memory == nullptr || buffer.memory->pointer() == 0; }
    const std::shared_ptr<Memory>& Use() const { return buffer.Use(); }
  };
  Handle handle{*this};
};

std::shared_ptr<Buffer> WholeBuffer(const std::shared_ptr<VirtualDevice>& device,
                                    std::shared_ptr<Memory> memory);
std::shared_ptr<Buffer> NewArray(const std::shared_ptr<Allocator>& allocator,
                                 const pybind11::object& shape, const pybind11::object& dtype,
                                 const pybind11::object& timeout,
                                 const pybind11::object& stream = pybind11::none());

// The streams that may still use it, the latest one last, and the ends of closed streams.
struct Producers {
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<EventHandle::Use_> ends;
};
Producers ProducersOf(const Buffer& buffer);

// Exports the buffer (dlpack.cc).
pybind11::object ToDLPack(const std::shared_ptr<Buffer>& buffer, const pybind11::object& stream,
                          const pybind11::object& max_version, const pybind11::object& dl_device,
                          const pybind11::object& copy);

// The device memory of an argument: a Buffer, any object with __cuda_array_interface__, or an address as int. `bytes` is
// UINT64_MAX when it is unknown.
struct DeviceMemory {
  gpushare_device_ptr pointer = 0;
  uint64_t bytes = UINT64_MAX;
  std::shared_ptr<Memory> owner;  // set for a Buffer
  // The stream for which a user has to wait, according to another library's array: a CUstream's address, 1 or 2.
  bool has_stream = false;
  uint64_t stream = 0;
};
DeviceMemory DeviceMemoryFrom(pybind11::handle value, const char* field);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_BUFFER_H_
