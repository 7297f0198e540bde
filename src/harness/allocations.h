// SPDX-License-Identifier: Apache-2.0
// How a tenant asks for device memory, and what it was answered.
//
//   {sizes: 256MiB 64MiB, from: malloc async, keep: 8, every: 5ms}
#ifndef GPUSHARE_HARNESS_ALLOCATIONS_H_
#define GPUSHARE_HARNESS_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "yaml/reader.h"

namespace gpushare::harness {

// What the memory is asked for with: cuMemAlloc, cuMemAllocAsync from the default pool, cuMemAllocManaged, cuMemCreate with
// a mapping.
enum class MemoryFamily : uint8_t { kMalloc, kAsync, kManaged, kVirtual };
inline constexpr char kMemoryFamilies[] = "malloc|async|managed|virtual";  // in that order

// Requests at even times, each of the next size by the next family. Who has so many as it keeps gives back the oldest before
// it asks; who is refused gives back the oldest after, as a program that makes room does.
struct Allocations {
  std::vector<uint64_t> sizes = {};  // bytes; none: it asks for nothing
  std::vector<MemoryFamily> families = {MemoryFamily::kMalloc};
  size_t keep = 1;
  Nanos every = Millis(10);
  bool empty() const { return sizes.empty(); }
  bool operator==(const Allocations&) const = default;
};

struct MemoryRequest {
  Nanos at;              // since the start: when it was made
  uint64_t bytes, held;  // asked for; what it had before, as it had asked for it
  bool granted;
};

// Whether it is within the quota, beside what the tenant has.
bool FitsInto(uint64_t quota, const MemoryRequest& request);

inline constexpr Nanos kLeastBetweenRequests = Millis(1);

absl::Status ReadAllocations(const yaml::Reader& in, const yaml::Node& map,
                             const std::string& place, Allocations* out);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ALLOCATIONS_H_
