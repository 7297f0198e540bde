// SPDX-License-Identifier: Apache-2.0
// Amounts in a scenario's YAML, each with its range.
#ifndef GPUSHARE_HARNESS_VALUES_H_
#define GPUSHARE_HARNESS_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "harness/stretch.h"
#include "yaml/reader.h"

namespace gpushare::harness {

// A time from `least` to `most` in multiples of `step`, as in 500ms.
absl::Status ReadTime(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      Nanos least, Nanos most, Nanos step, Nanos* out);
// A percentage from 0.01 % to 100 %, as in 75%, read as a fraction.
absl::Status ReadPart(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      double* out);
// By what part of its time others may delay a tenant of high priority, as a spec says it: "0%", "5%".
absl::Status ReadDelay(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       double* out);
// Device memory with its unit, from 1 MiB to 1 PiB, as in 256MiB.
absl::Status ReadMemory(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                        uint64_t* out);
// A rate from 0.01/s to 1000000/s.
absl::Status ReadRate(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      double* out);
// 1 to 1000 intervals whose ends are multiples of `step`, as in 0s-1s 2s-4s.
absl::Status ReadStretches(const yaml::Reader& in, const yaml::Node& value,
                           const std::string& place, Nanos step, std::vector<Stretch>* out);
// A whole number from `least` to `most`.
absl::Status ReadCount(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       int64_t least, int64_t most, int64_t* out);
// One of `words`, which are separated by '|'; `out` is its index.
absl::Status ReadWord(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      const char* words, size_t* out);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_VALUES_H_
