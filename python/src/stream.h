// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_STREAM_H_
#define GPUSHARE_PYTHON_STREAM_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "kernel.h"
#include "object.h"
#include "stream_work.h"
#include "virtual_device.h"

namespace gpushare::python {

class Memory;
struct DeviceMemory;

using StreamHandle = Owned<gpushare_stream, gpushare_stream_destroy>;

struct Stream : Object, std::enable_shared_from_this<Stream> {
  StreamHandle handle{"stream"};
  std::shared_ptr<VirtualDevice> device;
  Owned<gpushare_vdev, gpushare_vdev_destroy>::Use_
      share;                         // until it is closed, as the stream itself has it
  pybind11::object adopted;          // another library's stream, kept alive; None for our own
  InFlight in_flight;                // released when synchronize() has waited for it
  std::shared_ptr<StreamWork> work;  // refers to the stream in memory that was used on it

  ~Stream() override { Close(); }
  void Close() override;
  uintptr_t Pointer() const;
  void YieldPoint() const;
  // Records that work of this stream uses the memory.
  void Uses(const DeviceMemory& memory);
  void Uses(Memory& memory);
  // Makes later work of `other`, a stream on the same GPU, wait for this stream's work so far.
  void Before(const Stream& other) const;
};

// `adopt`: None for a new stream.
std::shared_ptr<Stream> NewStream(const std::shared_ptr<VirtualDevice>& device,
                                  const pybind11::object& adopt);

// The stream of an object: ours, __cuda_stream__, .cuda_stream (PyTorch), .ptr (CuPy), an int.
CUstream_st* NativeStream(pybind11::handle value, const char* field);

// Adds the methods that copy (copy.cc).
void AddCopies(pybind11::class_<Stream, std::shared_ptr<Stream>>& cls);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_STREAM_H_
