// SPDX-License-Identifier: Apache-2.0
// Reads JSON numbers that must be integers. The library would convert a number with a point or an exponent, such as 4e56, to an
// unspecified integer.
//
//   read.repetition = Whole(from.at("repetition")).get<int>();
#ifndef GPUSHARE_HARNESS_WHOLE_H_
#define GPUSHARE_HARNESS_WHOLE_H_

#include <stdexcept>

namespace gpushare::harness {

// Throws if the number is not an integer, as the library does if it is not a number.
template <typename Json>
const Json& Whole(const Json& number) {
  if (number.is_number_float()) throw std::invalid_argument("a whole number is wanted");
  return number;
}

// Whole() for all numbers in an array or object.
template <typename Json>
const Json& AllWhole(const Json& from) {
  if (!from.is_structured()) return Whole(from);
  for (const Json& each : from) AllWhole(each);
  return from;
}

// Whole() for a member, or 0 if it is missing.
template <typename Number, typename Json>
Number WholeMember(const Json& from, const char* key) {
  const auto found = from.find(key);
  return found == from.end() ? Number{0} : Whole(*found).template get<Number>();
}

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_WHOLE_H_
