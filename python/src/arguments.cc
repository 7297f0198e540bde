// SPDX-License-Identifier: Apache-2.0
// Converts Python values to a kernel's parameters.
//
//   int, bool          a whole number of the parameter's size, checked to fit
//   float              float or double, by the parameter's size
//   None               a null pointer
//   Buffer, or an object with __cuda_array_interface__      its address
//   ctypes and numpy scalars, and structs of either   their bytes; the size must match
//
// If the driver does not tell the sizes (before CUDA 12.4), int has 8 bytes and float is a double.
#include <cstring>

#include "buffer.h"
#include "kernel.h"
#include "stream.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

std::string Named(const Kernel& kernel, size_t index) {
  return "argument " + std::to_string(index) + " of kernel '" + kernel.name + "'";
}

[[noreturn]] void ThrowSize(const Kernel& kernel, size_t index, const std::string& given,
                            uint32_t size) {
  throw py::type_error(Named(kernel, index) + ": " + given + " given, the parameter has " +
                       std::to_string(size) + " bytes");
}

// A scalar that exposes its bytes, as ctypes and numpy scalars do.
class BytesView {
 public:
  explicit BytesView(PyObject* value)
      : valid_(PyObject_GetBuffer(value, &view_, PyBUF_SIMPLE) == 0) {
    if (!valid_) PyErr_Clear();
  }
  ~BytesView() {
    if (valid_) PyBuffer_Release(&view_);
  }
  BytesView(const BytesView&) = delete;
  BytesView& operator=(const BytesView&) = delete;
  explicit operator bool() const { return valid_; }
  const Py_buffer& operator*() const { return view_; }

 private:
  Py_buffer view_;
  const bool valid_;
};

bool IsScalar(PyObject* value) {
  Py_buffer view;
  if (PyObject_GetBuffer(value, &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool scalar = view.ndim == 0;
  PyBuffer_Release(&view);
  return scalar;
}

}  // namespace

Arguments::Arguments(const Kernel& kernel, PyObject* const* values, size_t count, Stream& stream) {
  if (kernel.sizes_known && count != kernel.sizes.size()) {
    throw py::type_error("kernel '" + kernel.name + "' takes " +
                         std::to_string(kernel.sizes.size()) + " arguments, " +
                         std::to_string(count) + " given");
  }
  Word* words = words_;
  void** pointers = pointers_;
  if (count > kInline) {
    spilled_words_.resize(count);
    spilled_pointers_.resize(count + 1);
    words = spilled_words_.data();
    pointers = spilled_pointers_.data();
  }
  for (size_t i = 0; i < count; ++i) pointers[i] = Pack(kernel, i, values[i], words[i], stream);
  pointers[count] = nullptr;
}

void* Arguments::Pack(const Kernel& kernel, size_t index, PyObject* value, Word& word,
                      Stream& stream) {
  const uint32_t size = kernel.sizes_known ? kernel.sizes[index] : 0;
  word.u64 = 0;
  if (PyLong_Check(value)) {  // includes bool
    int overflow = 0;
    const long long n = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (n == -1 && overflow == 0 && PyErr_Occurred()) throw py::error_already_set();
    bool fits = overflow == 0;
    if (fits) {
      word.u64 = static_cast<uint64_t>(n);
      if (size != 0 && size < 8) {
        const int bits = static_cast<int>(size) * 8;
        fits = n >= -(1LL << (bits - 1)) && n < (1LL << bits);
      }
    } else if (overflow > 0) {
      word.u64 = PyLong_AsUnsignedLongLong(value);
      fits = !PyErr_Occurred() && (size == 0 || size >= 8);
      PyErr_Clear();
    }
    if (size > 8) ThrowSize(kernel, index, "an int", size);
    if (!fits) {
      PyErr_SetString(PyExc_OverflowError,
                      (Named(kernel, index) + ": " + std::string(py::str(value)) +
                       " does not fit into " + std::to_string(size == 0 ? 8 : size) + " bytes")
                          .c_str());
      throw py::error_already_set();
    }
    return &word;
  }
  if (PyFloat_CheckExact(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    if (size == 4) {
      word.f32 = static_cast<float>(number);
    } else if (size == 8 || size == 0) {
      word.f64 = number;
    } else {
      ThrowSize(kernel, index, "a float", size);
    }
    return &word;
  }
  if (value == Py_None) {
    if (size != 0 && size != 8) ThrowSize(kernel, index, "None (a null pointer)", size);
    return &word;
  }
  return PackObject(kernel, index, value, size, word, stream);
}

void* Arguments::PackObject(const Kernel& kernel, size_t index, PyObject* value, uint32_t size,
                            Word& word, Stream& stream) {
  const py::handle object(value);
  const bool buffer = py::isinstance<Buffer>(object);
  if (buffer || (!PyObject_CheckBuffer(value) && py::hasattr(object, "__cuda_array_interface__"))) {
    if (size != 0 && size != 8) ThrowSize(kernel, index, "an address", size);
    DeviceMemory memory = DeviceMemoryFrom(object, "argument");
    stream.Uses(memory);
    if (memory.owner != nullptr) held_.push_back(std::move(memory.owner));
    word.u64 = memory.pointer;
    return &word;
  }
  if (const BytesView view(value); view && IsScalar(value)) {
    const auto length = static_cast<size_t>((*view).len);
    if (size != 0 && length != size) {
      ThrowSize(kernel, index,
                std::string(Py_TYPE(value)->tp_name) + " of " + std::to_string(length) + " bytes",
                size);
    }
    if (length <= sizeof(word)) {
      std::memcpy(word.bytes, (*view).buf, length);
      return &word;
    }
    large_.push_back(std::make_unique<unsigned char[]>(length));
    std::memcpy(large_.back().get(), (*view).buf, length);
    return large_.back().get();
  }
  throw py::type_error(Named(kernel, index) + ": " + Py_TYPE(value)->tp_name +
                       (PyObject_CheckBuffer(value)
                            ? " given, which lies on the host; copy it to a Buffer first"
                            : " given; an int, float, Buffer, or ctypes or numpy scalar wanted"));
}

}  // namespace gpushare::python
