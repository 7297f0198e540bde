// SPDX-License-Identifier: Apache-2.0
#include "buffer.h"

#include <utility>

#include "amount.h"
#include "stream.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

std::vector<int64_t> ShapeFrom(py::handle value) {
  std::vector<int64_t> shape;
  const auto add = [&](py::handle n) {
    const uint64_t extent = WholeFrom(n, "shape");
    if (extent > INT64_MAX) ThrowInvalid("shape: an extent is over 2^63-1");
    shape.push_back(static_cast<int64_t>(extent));
  };
  if (IsWhole(value)) {
    add(value);
  } else if (py::isinstance<py::sequence>(value) && !PyUnicode_Check(value.ptr())) {
    for (const py::handle extent : value) add(extent);
  } else {
    ThrowType("shape", value, "an int or a sequence of ints");
  }
  return shape;
}

uint64_t BytesOf(const std::vector<int64_t>& shape, const DType& dtype) {
  uint64_t bytes = dtype.bytes();
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      ThrowInvalid("shape: it has more than 2^64 bytes");
    }
  }
  return bytes;
}

py::tuple ShapeOf(const Buffer& self) {
  py::tuple shape(self.shape.size());
  for (size_t i = 0; i < self.shape.size(); ++i) shape[i] = self.shape[i];
  return shape;
}

std::shared_ptr<Buffer> View(const Buffer& self, const py::object& shape, const py::object& dtype) {
  const std::shared_ptr<Memory>& memory = self.Use();
  auto view = Born<Buffer>(self.family);
  view->memory = memory;
  view->gpu = self.gpu;
  view->device = self.device;
  view->dtype = dtype.is_none() ? self.dtype : &DTypeFrom(dtype, "dtype");
  if (shape.is_none()) {
    if (self.bytes % view->dtype->bytes() != 0) {
      ThrowInvalid("dtype: " + std::to_string(self.bytes) + " bytes are not a whole number of " +
                   view->dtype->name);
    }
    view->shape = {static_cast<int64_t>(self.bytes / view->dtype->bytes())};
  } else {
    view->shape = ShapeFrom(shape);
  }
  view->bytes = BytesOf(view->shape, *view->dtype);
  if (view->bytes > memory->bytes()) {
    ThrowInvalid("shape: " + std::to_string(view->bytes) + " bytes wanted, the buffer has " +
                 std::to_string(memory->bytes()));
  }
  return view;
}

py::dict ArrayInterface(const Buffer& self) {
  py::dict interface;
  interface["shape"] = ShapeOf(self);
  interface["typestr"] = self.dtype->typestring;
  interface["data"] = py::make_tuple(self.pointer(), false);
  interface["version"] = 3;
  interface["strides"] = py::none();
  // The interface has room for one stream: name the latest one, and make it wait for the others.
  const Producers producers = ProducersOf(self);
  for (const EventHandle::Use_& end : producers.ends) {
    RunInterruptibly([end] { return gpushare_event_synchronize(end->get()); });
  }
  interface["stream"] = py::none();
  if (producers.streams.empty()) return interface;
  const Stream& last = *producers.streams.back();
  for (const std::shared_ptr<Stream>& stream : producers.streams) {
    if (stream.get() != &last) stream->Before(last);
  }
  interface["stream"] = last.Pointer();
  return interface;
}

}  // namespace

void Buffer::Close() {
  const std::shared_ptr<Memory> last = std::move(memory);
  memory = nullptr;
}

const std::shared_ptr<Memory>& Buffer::Use() const {
  if (memory == nullptr || memory->pointer() == 0) ThrowClosed("buffer");
  if (memory->inherited()) ThrowForked("buffer");
  return memory;
}

Producers ProducersOf(const Buffer& buffer) {
  const std::shared_ptr<Memory> memory = buffer.Use();
  Producers producers;
  for (const std::shared_ptr<StreamWork>& work : memory->used_on) {
    std::shared_ptr<Stream> stream = work->stream.lock();
    if (stream != nullptr && !stream->handle.closed()) {
      producers.streams.push_back(std::move(stream));
    } else if (work->end != nullptr) {
      producers.ends.push_back(work->end);
    }
  }
  return producers;
}

std::shared_ptr<Buffer> WholeBuffer(const std::shared_ptr<VirtualDevice>& device,
                                    std::shared_ptr<Memory> memory) {
  auto buffer = Born<Buffer>(device->family);
  buffer->gpu = device->gpu;
  buffer->device = device;
  buffer->bytes = memory->bytes();
  buffer->shape = {static_cast<int64_t>(memory->bytes())};
  buffer->memory = std::move(memory);
  return buffer;
}

std::shared_ptr<Buffer> NewArray(const std::shared_ptr<Allocator>& allocator,
                                 const py::object& shape, const py::object& dtype,
                                 const py::object& timeout, const py::object& stream) {
  const DType& type = DTypeFrom(dtype, "dtype");
  const std::vector<int64_t> extents = ShapeFrom(shape);
  const uint64_t bytes = BytesOf(extents, type);
  // The driver cannot allocate 0 bytes, so an empty array is backed by one byte.
  auto buffer = allocator->Allocate(bytes == 0 ? 1 : bytes, timeout, stream);
  buffer->shape = extents;
  buffer->dtype = &type;
  buffer->bytes = bytes;
  return buffer;
}

DeviceMemory DeviceMemoryFrom(py::handle value, const char* field) {
  DeviceMemory memory;
  if (py::isinstance<Buffer>(value)) {
    const auto& buffer = py::cast<const Buffer&>(value);
    memory.owner = buffer.Use();
    memory.pointer = memory.owner->pointer();
    memory.bytes = buffer.bytes;
    return memory;
  }
  if (IsWhole(value)) {
    memory.pointer = WholeFrom(value, field);
    return memory;
  }
  if (!py::hasattr(value, "__cuda_array_interface__")) {
    ThrowType(field, value,
              "a Buffer, an object with __cuda_array_interface__ or an address as int");
  }
  const py::dict interface = value.attr("__cuda_array_interface__");
  memory.pointer = WholeFrom(py::tuple(interface["data"])[0], field);
  if (interface.contains("stream") && !interface["stream"].is_none()) {
    memory.has_stream = true;
    memory.stream = WholeFrom(interface["stream"], field);
    if (memory.stream == 0) {
      ThrowInvalid(std::string(field) +
                   ": its array interface names stream 0, which could be the "
                   "legacy or the per-thread default stream; 1 or 2 is allowed");
    }
  }
  const bool gaps = interface.contains("strides") && !interface["strides"].is_none();
  if (!gaps) {
    memory.bytes = BytesOf(ShapeFrom(interface["shape"]), DTypeFrom(interface["typestr"], field));
  }
  return memory;
}

void BindBuffer(py::module_& m) {
  auto cls = py::class_<Buffer, std::shared_ptr<Buffer>>(
      m, "Buffer",
      "An array in device memory, in C order without gaps; made by VirtualDevice.alloc() "
      "and .empty().\n\nOther libraries accept it directly: ``torch.from_dlpack(buffer)``, "
      "``cupy.asarray(buffer)``, a kernel's\nargument. They see the number of the physical "
      "device. The memory is credited to the tenant that allocated it\nwhen its last owner "
      "is gone: this object, its views, and consumers that took it by DLPack.");
  AddLifetime(
      cls, "close(self)\n--\n\nFrees the memory, or leaves it to other owners if there are any.");
  cls.def_property_readonly("ptr", &Buffer::pointer, "The device address.")
      .def_property_readonly(
          "nbytes", [](const Buffer& self) { return self.bytes; }, "Its size in bytes.")
      .def_property_readonly("shape", &ShapeOf, "A tuple of ints, in elements.")
      .def_property_readonly(
          "dtype", [](const Buffer& self) { return self.dtype->name; },
          "The element type's name, such as \"float32\".")
      .def_property_readonly(
          "gpu", [](const Buffer& self) { return self.gpu; }, "The GPU on which the memory is.")
      .def_property_readonly(
          "tenant_name", [](const Buffer& self) { return self.device->tenant_name; },
          "The virtual device with the quota that it counts against.")
      .def("view", &View, py::arg("shape") = py::none(), py::arg("dtype") = py::none(),
           "view(self, shape=None, dtype=None)\n--\n\n"
           "The same memory as another array: `shape` an int or a tuple of ints (None: one "
           "dimension),\n`dtype` as for VirtualDevice.empty() (None: the same).")
      .def_property_readonly("__cuda_array_interface__", &ArrayInterface,
                             "Version 3 of the CUDA array interface, a dict.")
      .def(
          "__dlpack_device__",
          [](const Buffer& self) {
            static_cast<void>(self.Use());
            return py::make_tuple(dlpack::kCuda, self.gpu->ordinal);
          },
          "__dlpack_device__(self)\n--\n\n(2, ordinal): CUDA and the physical device number.")
      .def("__dlpack__", &ToDLPack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none(),
           "__dlpack__(self, *, stream=None, max_version=None, dl_device=None, "
           "copy=None)\n--\n\nA DLPack capsule, of version 1.x when `max_version` allows "
           "it.\n\nArgs:\n    stream: the consumer's stream: None or 1 the legacy default "
           "stream, 2 the per-thread one, an address.\n        It is made to wait for earlier "
           "writes through gpushare. -1: no waiting.\n    dl_device: (2, ordinal) of the same "
           "GPU, or (1, 0): a copy on the host.\n    copy: True copies, within the same quota; "
           "False never; None as needed.\n\nRaises:\n    BufferError: the buffer cannot be "
           "exported in that way.")
      .def("__len__",
           [](const Buffer& self) {
             if (self.shape.empty()) throw py::type_error("len() of an array without dimensions");
             return self.shape[0];
           })
      .def("__repr__", [](const py::object& object) {
        const auto& self = py::cast<const Buffer&>(object);
        return "<gpushare.Buffer " + std::string(py::str(ShapeOf(self))) + " " + self.dtype->name +
               " of '" + self.device->tenant_name + "'" + (self.handle.closed() ? " closed>" : ">");
      });
}

}  // namespace gpushare::python
