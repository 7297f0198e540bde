// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON that are counts. Of one with a point or an exponent, 4e56, the library makes an integer that nobody can say.
//
//   read.repetition = Whole(from.at("repetition")).get<int>();
#ifndef GPUSHARE_HARNESS_WHOLE_H_
#define GPUSHARE_HARNESS_WHOLE_H_

#include <stdexcept>

namespace gpushare::harness {

// Throws where it is none, as the library does where it is no number.
template <typename Json>
const Json& Whole(const Json& number) {
  if (number.is_number_float()) throw std::invalid_argument("a whole number is wanted");
  return number;
}

// The same of all numbers below.
template <typename Json>
const Json& AllWhole(const Json& from) {
  if (!from.is_structured()) return Whole(from);
  for (const Json& each : from) AllWhole(each);
  return from;
}

// Of a member, or 0 where there is none.
template <typename Number, typename Json>
Number WholeMember(const Json& from, const char* key) {
  const auto found = from.find(key);
  return found == from.end() ? Number{0} : Whole(*found).template get<Number>();
}

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_WHOLE_H_
