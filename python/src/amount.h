// SPDX-License-Identifier: Apache-2.0
// Converts amounts given in Python. Each function raises TypeError or InvalidArgumentError with the field's name.
#ifndef GPUSHARE_PYTHON_AMOUNT_H_
#define GPUSHARE_PYTHON_AMOUNT_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

namespace gpushare::python {

// Bytes: an int, or text such as "8 GB", "8GiB", "512MiB". `allowed` is the allowed range in the message for an invalid number;
// null: 0 to the most.
inline constexpr char kSomeBytes[] = "1 to 2^64-1";
uint64_t SizeFrom(pybind11::handle value, const char* field, const char* allowed = nullptr);
// Fractions of 1: a number, or text such as "30%".
double ShareFrom(pybind11::handle value, const char* field);
// Nanoseconds: a number of seconds, a datetime.timedelta, or text such as "20ms".
int64_t DurationFrom(pybind11::handle value, const char* field);
// The same, where None means for ever.
int64_t TimeoutFrom(pybind11::handle value, const char* field);
// A plain number.
double NumberFrom(pybind11::handle value, const char* field);
// UTF-8 text without a zero byte.
std::string TextFrom(pybind11::handle value, const char* field);

// A whole number from 0 to `most`, through __index__, so that numpy's integers are accepted; bool is not. `allowed`: as above;
// null for the range itself.
bool IsWhole(pybind11::handle value);
uint64_t WholeFrom(pybind11::handle value, const char* field, uint64_t most = UINT64_MAX,
                   const char* allowed = nullptr);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_AMOUNT_H_
