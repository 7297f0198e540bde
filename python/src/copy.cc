// SPDX-License-Identifier: Apache-2.0
// Copies between the host and a virtual device, and within the device.
#include <algorithm>
#include <string>
#include <utility>

#include "amount.h"
#include "buffer.h"
#include "stream.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// The number of copies in flight for which a stream keeps the host memory. Beyond it the stream is synchronised.
constexpr size_t kMostHosts = 256;

// The host memory of a Python object. It is released with the interpreter's lock, on whatever thread.
class HostMemory {
 public:
  HostMemory(py::handle object, bool writable, const char* field) {
    const int flags = PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
      PyErr_Clear();
      ThrowType(field, object,
                writable ? "a writable contiguous host buffer (bytearray, numpy array)"
                         : "a contiguous host buffer (bytes, numpy array)");
    }
  }
  ~HostMemory() {
    if (Finalizing()) return;
    const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
    PyBuffer_Release(&view_);
    PyGILState_Release(gil);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data() const { return view_.buf; }
  uint64_t bytes() const { return static_cast<uint64_t>(view_.len); }

 private:
  Py_buffer view_;
};

void CheckFits(uint64_t bytes, const DeviceMemory& device, const char* field) {
  if (bytes > device.bytes) {
    ThrowInvalid(std::string(field) + ": " + std::to_string(bytes) + " bytes wanted, it has " +
                 std::to_string(device.bytes));
  }
}

uint64_t BytesToCopy(const py::object& nbytes, uint64_t host, const char* field) {
  if (nbytes.is_none()) return host;
  const uint64_t bytes = SizeFrom(nbytes, "nbytes");
  if (bytes > host) {
    ThrowInvalid(std::string("nbytes: ") + std::to_string(bytes) + " given, '" + field + "' has " +
                 std::to_string(host));
  }
  return bytes;
}

// Keeps the buffer export until the copy ends: an exported bytearray cannot be shortened during the copy.
void Keep(Stream& stream, std::shared_ptr<HostMemory> host) {
  if (stream.in_flight.hosts.size() >= kMostHosts) {
    py::cast(stream.shared_from_this()).attr("synchronize")();
  }
  LetGoOfFinished(*stream.device->gpu);
  stream.in_flight.hosts.push_back(std::move(host));
}

void ToDevice(Stream& self, const py::object& to, const py::object& from, const py::object& nbytes,
              bool wait) {
  const DeviceMemory device = DeviceMemoryFrom(to, "to");
  const auto host = std::make_shared<HostMemory>(from, /*writable=*/false, "source");
  const uint64_t bytes = BytesToCopy(nbytes, host->bytes(), "source");
  CheckFits(bytes, device, "to");
  self.Uses(device);
  const StreamHandle::Use_ use = self.handle.Use();
  if (!wait) Keep(self, host);
  auto* const copy = wait ? &gpushare_stream_copy_h2d : &gpushare_stream_copy_h2d_async;
  RunInterruptibly([use, device, host, bytes, copy] {
    return copy(use->get(), device.pointer, host->data(), bytes);
  });
}

void ToHost(Stream& self, const py::object& to, const py::object& from, const py::object& nbytes,
            bool wait) {
  const DeviceMemory device = DeviceMemoryFrom(from, "source");
  const auto host = std::make_shared<HostMemory>(to, /*writable=*/true, "to");
  const uint64_t bytes = BytesToCopy(nbytes, std::min(host->bytes(), device.bytes), "to");
  CheckFits(bytes, device, "source");
  self.Uses(device);
  const StreamHandle::Use_ use = self.handle.Use();
  if (!wait) Keep(self, host);
  auto* const copy = wait ? &gpushare_stream_copy_d2h : &gpushare_stream_copy_d2h_async;
  RunInterruptibly([use, device, host, bytes, copy] {
    return copy(use->get(), host->data(), device.pointer, bytes);
  });
}

void OnDevice(Stream& self, const py::object& to, const py::object& from, const py::object& nbytes,
              bool wait) {
  const DeviceMemory target = DeviceMemoryFrom(to, "to"), source = DeviceMemoryFrom(from, "source");
  uint64_t bytes = std::min(source.bytes, target.bytes);
  if (!nbytes.is_none()) {
    bytes = SizeFrom(nbytes, "nbytes");
  } else if (bytes == UINT64_MAX) {
    ThrowInvalid("nbytes: wanted, since neither side tells its size");
  }
  CheckFits(bytes, target, "to");
  CheckFits(bytes, source, "source");
  self.Uses(target);
  self.Uses(source);
  const StreamHandle::Use_ use = self.handle.Use();
  auto* const copy = wait ? &gpushare_stream_copy_d2d : &gpushare_stream_copy_d2d_async;
  RunInterruptibly([use, target, source, bytes, copy] {
    return copy(use->get(), target.pointer, source.pointer, bytes);
  });
}

void Fill(Stream& self, const py::object& to, const py::object& value, const py::object& nbytes) {
  const DeviceMemory device = DeviceMemoryFrom(to, "to");
  const uint64_t byte = WholeFrom(value, "value", 255);
  if (nbytes.is_none() && device.bytes == UINT64_MAX) {
    ThrowInvalid("nbytes: wanted, since 'to' does not tell its size");
  }
  const uint64_t bytes = nbytes.is_none() ? device.bytes : SizeFrom(nbytes, "nbytes");
  CheckFits(bytes, device, "to");
  self.Uses(device);
  const StreamHandle::Use_ use = self.handle.Use();
  Check(Unlocked([&] {
    return gpushare_stream_set_async(use->get(), device.pointer, static_cast<uint8_t>(byte), bytes);
  }));
}

}  // namespace

void AddCopies(py::class_<Stream, std::shared_ptr<Stream>>& cls) {
  cls.def("copy_to_device", &ToDevice, py::arg("to"), py::arg("source"),
          py::arg("nbytes") = py::none(), py::kw_only(), py::arg("wait") = true,
          "copy_to_device(self, to, source, nbytes=None, *, wait=True)\n--\n\nCopies from the "
          "host within the virtual device's bandwidth.\n\nArgs:\n    to: a Buffer, an object "
          "with __cuda_array_interface__, or an address.\n    source: anything contiguous with "
          "the buffer protocol: bytes, a numpy array.\n    nbytes: None for all of "
          "`source`.\n    wait: False returns when the copy is submitted; `source` is kept "
          "alive until synchronize() or,\n        if the stream is closed before that, until "
          "the copy is complete.")
      .def("copy_to_host", &ToHost, py::arg("to"), py::arg("source"),
           py::arg("nbytes") = py::none(), py::kw_only(), py::arg("wait") = true,
           "copy_to_host(self, to, source, nbytes=None, *, wait=True)\n--\n\nCopies from the "
           "device to the host: `to` is writable (bytearray, numpy array). nbytes: None for as "
           "much as\nboth hold.")
      .def("copy_on_device", &OnDevice, py::arg("to"), py::arg("source"),
           py::arg("nbytes") = py::none(), py::kw_only(), py::arg("wait") = true,
           "copy_on_device(self, to, source, nbytes=None, *, wait=True)\n--\n\nCopies from "
           "device memory to device memory. nbytes: None for as much as both hold.")
      .def("fill", &Fill, py::arg("to"), py::arg("value"), py::arg("nbytes") = py::none(),
           "fill(self, to, value, nbytes=None)\n--\n\nSets every byte to `value` (0 to 255); does "
           "not wait.");
}

}  // namespace gpushare::python
