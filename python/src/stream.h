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
  pybind11::object adopted;          // somebody else's stream, kept alive; none for one of our own
  InFlight in_flight;                // let go of when synchronize() has waited for it
  std::shared_ptr<StreamWork> work;  // for memory that is used on it

  ~Stream() override { Close(); }
  void Close() override;
  uintptr_t Pointer() const;
  void YieldPoint() const;
  // Notes that work of this stream uses the memory.
  void Uses(const DeviceMemory& memory);
  void Uses(Memory& memory);
  // Its work so far is over before later work of `other`, of the same GPU.
  void Before(const Stream& other) const;
};

// `adopt`: None for a new stream.
std::shared_ptr<Stream> NewStream(const std::shared_ptr<VirtualDevice>& device,
                                  const pybind11::object& adopt);

// The stream behind an object: ours, __cuda_stream__, .cuda_stream (PyTorch), .ptr (CuPy), an int.
CUstream_st* NativeStream(pybind11::handle value, const char* field);

// Copies (copy.cc): adds the methods.
void AddCopies(pybind11::class_<Stream, std::shared_ptr<Stream>>& cls);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_STREAM_H_
