// SPDX-License-Identifier: Apache-2.0
#include "amount.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "errors.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

constexpr char kSizes[] = "bytes as int, or text such as '8 GB', '8GiB' or '512MiB'";
constexpr char kShares[] = "a part of 1 as float, or text such as '30%'";
constexpr char kDurations[] = "seconds as float, a timedelta, or text such as '20ms'";

bool IsNumber(py::handle value) {
  return !PyBool_Check(value.ptr()) && !PyUnicode_Check(value.ptr()) &&
         (PyFloat_Check(value.ptr()) || PyNumber_Check(value.ptr()));
}

double AsDouble(py::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) throw py::error_already_set();
  return number;
}

// Parses one key of a spec with the library's own parser, so that units are the same everywhere.
std::optional<gpushare_spec> TryParse(const char* key, const std::string& text, std::string* why) {
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  if (text.find_first_of(",=") != std::string::npos) {
    *why = "not one amount";
    return std::nullopt;
  }
  const std::string whole = std::string(key) + "=" + text;
  if (gpushare_spec_parse(whole.data(), whole.size(), &spec) == GPUSHARE_OK) return spec;
  *why = gpushare_last_message();
  return std::nullopt;
}

gpushare_spec Parse(const char* key, const std::string& text, const char* field) {
  std::string why;
  if (const std::optional<gpushare_spec> spec = TryParse(key, text, &why)) return *spec;
  const std::string prefix = std::string(key) + ": ";
  if (why.starts_with(prefix)) why.erase(0, prefix.size());
  ThrowInvalid(std::string(field) + ": " + why);
}

// A number of any length, as it appears in a message.
std::string Shown(const py::object& whole) {
  const auto bits = py::cast<uint64_t>(whole.attr("bit_length")());
  if (bits > 128) return "a number of " + std::to_string(bits) + " bits";
  return std::string(py::str(whole));
}

int64_t ParseDuration(std::string_view text, const char* field) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::string_view rest = text;
  while (!rest.empty() && blank(rest.front())) rest.remove_prefix(1);
  while (!rest.empty() && blank(rest.back())) rest.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  std::string_view unit(end, static_cast<size_t>(rest.data() + rest.size() - end));
  while (!unit.empty() && blank(unit.front())) unit.remove_prefix(1);
  struct Unit {
    std::string_view name;
    double ns;
  };
  constexpr std::array<Unit, 6> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}}};
  if (error == std::errc() && number >= 0 && std::isfinite(number)) {
    for (const Unit& known : kUnits) {
      if (known.name == unit && number * known.ns < 9e18) return std::llround(number * known.ns);
    }
  }
  ThrowInvalid(std::string(field) + ": '" + std::string(text) +
               "' given; a number and a unit of ns, us, ms, s, min, h wanted, such as '20ms'");
}

}  // namespace

bool IsWhole(py::handle value) { return !PyBool_Check(value.ptr()) && PyIndex_Check(value.ptr()); }

uint64_t WholeFrom(py::handle value, const char* field, uint64_t most, const char* allowed) {
  if (!IsWhole(value)) ThrowType(field, value, "int");
  const py::object whole = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!whole) throw py::error_already_set();
  const uint64_t n = PyLong_AsUnsignedLongLong(whole.ptr());
  const bool none = n == UINT64_MAX && PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (!none && n <= most) return n;
  const std::string range =
      "0 to " + (most == UINT64_MAX ? std::string("2^64-1") : std::to_string(most));
  ThrowInvalid(std::string(field) + ": " + Shown(whole) + " given, " +
               (allowed != nullptr ? allowed : range) + " allowed");
}

std::string TextFrom(py::handle value, const char* field) {
  if (!PyUnicode_Check(value.ptr())) ThrowType(field, value, "str");
  Py_ssize_t length = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
  if (text == nullptr) {
    PyErr_Clear();
    ThrowInvalid(std::string(field) + ": half a surrogate pair given, which UTF-8 does not have");
  }
  // The library takes a text only up to the first zero byte: "a\0b" would be "a".
  if (std::strlen(text) != static_cast<size_t>(length)) {
    ThrowInvalid(std::string(field) + ": a zero byte at " + std::to_string(std::strlen(text)) +
                 " given; text without one wanted");
  }
  return {text, static_cast<size_t>(length)};
}

double NumberFrom(py::handle value, const char* field) {
  if (!IsNumber(value)) ThrowType(field, value, "a number");
  return AsDouble(value);
}

uint64_t SizeFrom(py::handle value, const char* field, const char* allowed) {
  if (PyUnicode_Check(value.ptr())) {
    const std::string text = TextFrom(value, field);
    std::string why;
    const std::optional<gpushare_spec> spec = TryParse("memory", text, &why);
    if (spec && (spec->set & GPUSHARE_SPEC_MEMORY)) return spec->memory;
    if (spec) why = "'" + text + "': a part of a device has no size here";
    // The part of the message about other forms that a spec allows does not apply to this field.
    const std::string prefix = "spec field 'memory': ";
    if (why.starts_with(prefix)) why.erase(0, prefix.size());
    why.erase(std::min(why.size(), why.find("; allowed: ")));
    ThrowInvalid(std::string(field) + ": " + why + "; " + kSizes + " wanted");
  }
  if (!IsWhole(value)) ThrowType(field, value, kSizes);
  return WholeFrom(value, field, UINT64_MAX, allowed);
}

double ShareFrom(py::handle value, const char* field) {
  if (PyUnicode_Check(value.ptr())) {
    return Parse("guarantee", TextFrom(value, field), field).guarantee;
  }
  if (!IsNumber(value)) ThrowType(field, value, kShares);
  const double part = AsDouble(value);
  // A percentage in place of a fraction: a caller who passes 30 does not mean 3000 %.
  if (part > 1 && part <= 100) {
    const std::string given = std::string(py::str(value));
    ThrowInvalid(std::string(field) + ": " + given +
                 " given, which is a part of 1 (1 is all of the device); write '" + given +
                 "%' where percent are meant");
  }
  return part;
}

int64_t DurationFrom(py::handle value, const char* field) {
  if (PyUnicode_Check(value.ptr())) return ParseDuration(TextFrom(value, field), field);
  double seconds = 0;
  if (IsNumber(value)) {
    seconds = AsDouble(value);
  } else if (py::hasattr(value, "total_seconds")) {
    seconds = AsDouble(value.attr("total_seconds")());
  } else {
    ThrowType(field, value, kDurations);
  }
  if (std::isinf(seconds) && seconds > 0) return GPUSHARE_FOREVER;
  if (!(seconds >= 0) || seconds >= 9e9) {
    ThrowInvalid(std::string(field) + ": " + std::string(py::str(value)) +
                 " s given, 0 to 9e9 s allowed");
  }
  return std::llround(seconds * 1e9);
}

int64_t TimeoutFrom(py::handle value, const char* field) {
  return value.is_none() ? GPUSHARE_FOREVER : DurationFrom(value, field);
}

}  // namespace gpushare::python
