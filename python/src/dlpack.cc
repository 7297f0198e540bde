// SPDX-License-Identifier: Apache-2.0
// Exports buffers with DLPack 1.x: dmlc.github.io/dlpack and the Python array API's __dlpack__.
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "amount.h"
#include "buffer.h"
#include "event.h"
#include "stream.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

[[noreturn]] void Refuse(const std::string& why) { throw py::buffer_error("__dlpack__: " + why); }

// What keeps an exported array alive until its consumer calls the deleter, on any thread, with or without the interpreter's
// lock.
struct Export {
  std::shared_ptr<Memory> memory;  // on the device, or else:
  std::shared_ptr<void> host;      // a copy on the host
  std::vector<int64_t> shape, strides;
};

dlpack::Tensor TensorOf(Export& from, const Buffer& buffer) {
  dlpack::Tensor tensor = {};
  tensor.data =
      from.host != nullptr ? from.host.get() : reinterpret_cast<void*>(from.memory->pointer());
  tensor.device = from.host != nullptr ? dlpack::Device{dlpack::kCpu, 0}
                                       : dlpack::Device{dlpack::kCuda, buffer.gpu->ordinal};
  tensor.ndim = static_cast<int32_t>(from.shape.size());
  tensor.dtype = buffer.dtype->dlpack;
  tensor.shape = from.shape.data();
  tensor.strides = from.strides.data();
  return tensor;
}

// The capsule's destructor deletes the tensor if no consumer took it; a consumer renames the capsule.
template <typename Managed>
void DropCapsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

template <typename Managed>
Managed* Manage(std::unique_ptr<Export> from, const Buffer& buffer) {
  auto* const managed = new Managed();
  managed->tensor = TensorOf(*from, buffer);
  managed->context = from.release();
  managed->deleter = [](Managed* self) {
    delete static_cast<Export*>(self->context);
    delete self;
  };
  return managed;
}

constexpr char kOldName[] = "dltensor", kNewName[] = "dltensor_versioned";

py::object Capsule(std::unique_ptr<Export> from, const Buffer& buffer, bool versioned,
                   bool copied) {
  PyObject* capsule = nullptr;
  if (versioned) {
    auto* const managed = Manage<dlpack::ManagedTensorVersioned>(std::move(from), buffer);
    managed->major = dlpack::kMajor;
    managed->minor = dlpack::kMinor;
    managed->flags = copied ? dlpack::kIsCopied : 0;
    capsule = PyCapsule_New(managed, kNewName, [](PyObject* c) {
      DropCapsule<dlpack::ManagedTensorVersioned>(c, kNewName);
    });
    if (capsule == nullptr) managed->deleter(managed);
  } else {
    auto* const managed = Manage<dlpack::ManagedTensor>(std::move(from), buffer);
    capsule = PyCapsule_New(managed, kOldName,
                            [](PyObject* c) { DropCapsule<dlpack::ManagedTensor>(c, kOldName); });
    if (capsule == nullptr) managed->deleter(managed);
  }
  if (capsule == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(capsule);
}

// Makes the consumer's stream wait for the latest use of the memory through gpushare.
void WaitFor(const Buffer& buffer, py::handle stream) {
  CUstream_st* consumer = reinterpret_cast<CUstream_st*>(1);  // the legacy default stream
  if (!stream.is_none()) {
    if (!IsWhole(stream)) ThrowType("stream", stream, "a stream's address as int, 1, 2 or -1");
    const py::int_ value = py::reinterpret_borrow<py::int_>(stream);
    if (value.equal(py::int_(-1))) return;
    const uint64_t address = WholeFrom(stream, "stream");
    if (address == 0) {
      ThrowInvalid("stream: 0 could be the legacy or the per-thread default stream; give 1 or 2");
    }
    consumer = reinterpret_cast<CUstream_st*>(address);
  }
  auto* const wait = buffer.gpu->calls.stream_wait_event;
  const auto waits = [&](gpushare_event event) {
    CUevent_st* native = nullptr;
    const gpushare_status code = gpushare_event_native(event, &native);
    if (code != GPUSHARE_OK || (wait != nullptr && wait(consumer, native, 0) == 0)) return code;
    return gpushare_event_synchronize(event);
  };
  const Producers producers = ProducersOf(buffer);
  for (const EventHandle::Use_& end : producers.ends) {
    Check(Unlocked([&] { return waits(end->get()); }));
  }
  for (const std::shared_ptr<Stream>& producer : producers.streams) {
    const StreamHandle::Use_ on = producer->handle.Use();
    const auto device = producer->device->handle.Use();
    Check(Unlocked([&] {
      return WithEvent(device->get(), [&](gpushare_event event, CUevent_st* native) {
        const gpushare_status code = gpushare_stream_record(on->get(), native);
        return code == GPUSHARE_OK ? waits(event) : code;
      });
    }));
  }
}

bool WantsVersioned(py::handle max_version) {
  if (max_version.is_none()) return false;
  if (!py::isinstance<py::tuple>(max_version) || py::len(max_version) != 2) {
    ThrowType("max_version", max_version, "(major, minor)");
  }
  return WholeFrom(py::tuple(py::reinterpret_borrow<py::tuple>(max_version))[0], "max_version") >=
         dlpack::kMajor;
}

// Copies to the host or within the same quota. The copy is complete when this returns.
void CopyInto(Export& to, const std::shared_ptr<Buffer>& buffer, bool to_host) {
  const std::shared_ptr<VirtualDevice> device = buffer->device;
  if (device == nullptr) Refuse("a copy needs the virtual device, which this buffer has lost");
  const std::shared_ptr<Stream> stream = NewStream(device, py::none());
  WaitFor(*buffer, py::int_(stream->Pointer()));
  const std::shared_ptr<Memory> from = buffer->Use();
  const uint64_t bytes = buffer->bytes;
  const StreamHandle::Use_ on = stream->handle.Use();
  if (to_host) {
    // 256 bytes: the alignment that consumers expect.
    void* const host = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (host == nullptr) throw std::bad_alloc();
    to.host = std::shared_ptr<void>(host, &std::free);
    RunInterruptibly([on, from, bytes, memory = to.host] {
      return gpushare_stream_copy_d2h(on->get(), memory.get(), from->pointer(), bytes);
    });
  } else {
    to.memory = device->DefaultAllocator()->AllocateMemory(from->bytes(), py::int_(0));
    RunInterruptibly([on, from, bytes, memory = to.memory] {
      return gpushare_stream_copy_d2d(on->get(), memory->pointer(), from->pointer(), bytes);
    });
  }
}

}  // namespace

py::object ToDLPack(const std::shared_ptr<Buffer>& buffer, const py::object& stream,
                    const py::object& max_version, const py::object& dl_device,
                    const py::object& copy) {
  const std::shared_ptr<Memory>& memory = buffer->Use();
  bool to_host = false;
  if (!dl_device.is_none()) {
    if (!py::isinstance<py::tuple>(dl_device) || py::len(dl_device) != 2) {
      ThrowType("dl_device", dl_device, "(device type, ordinal)");
    }
    const py::tuple pair = dl_device;
    const auto type = static_cast<int32_t>(WholeFrom(py::int_(pair[0]), "dl_device"));
    const auto id = static_cast<int32_t>(WholeFrom(py::int_(pair[1]), "dl_device"));
    to_host = type == dlpack::kCpu;
    if (!to_host && (type != dlpack::kCuda || id != buffer->gpu->ordinal)) {
      Refuse("the buffer is on CUDA device " + std::to_string(buffer->gpu->ordinal) +
             "; it can be had there or on the host, (1, 0)");
    }
  }
  const bool never = !copy.is_none() && !py::cast<bool>(copy);
  const bool always = !copy.is_none() && py::cast<bool>(copy);
  if (to_host && never) Refuse("on the host it can only be a copy, and copy=False was given");
  const bool copied = to_host || always;
  auto exported = std::make_unique<Export>();
  exported->shape = buffer->shape;
  exported->strides.resize(buffer->shape.size());
  int64_t stride = 1;
  for (size_t i = buffer->shape.size(); i-- > 0;) {
    exported->strides[i] = stride;
    stride *= std::max<int64_t>(buffer->shape[i], 1);
  }
  if (copied) {
    CopyInto(*exported, buffer, to_host);
  } else {
    WaitFor(*buffer, stream);
    exported->memory = memory;
  }
  return Capsule(std::move(exported), *buffer, WantsVersioned(max_version), copied);
}

}  // namespace gpushare::python
